"""Predictions and losses of the rows of a block, whatever the calibrator and the loss."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from drrej.core.calibrators import Rows
from drrej.core.kernels import Need
from drrej.core.losses import Loss
from drrej.core.row_keys import Keys
from drrej.core.types import AnyFloats, Booleans, Floats, Integers
from drrej.data.dump import Block, Dump
from drrej.documents.rejector import Rejector
from drrej.errors import DumpError
from drrej.pipeline.intake import Intake
from drrej.records import dataclass


@dataclass(frozen=True)
class ScoredBlock:
    """Prediction and loss of each row, and the rows that they come from (placeholders where a row is bad)."""

    prediction: Integers
    loss: Floats
    rows: Rows


class Scoring:
    """Scores the blocks of a dump by a loss, at the calibration of a rejector.

    `needs` are gap sums wanted besides those of the loss, `raw` those of the rows before calibration.
    """

    def __init__(
        self, rejector: Rejector, loss: Loss, dump: Dump, needs: Need = Need.NOTHING, raw: Need | None = None
    ) -> None:
        for name in loss.columns:
            if name not in dump.schema.names:
                raise DumpError(
                    f"{dump.parts[0].name}: there is no column '{name}' that holds the loss; choose with `loss_column`"
                )
        self.intake = Intake.of(dump, rejector.floor)
        self.has_classes = rejector.has_classes
        self.calibrator = rejector.calibrator
        self.precision = rejector.precision
        self.loss = loss
        self.columns = loss.columns
        self.needs = loss.needs | needs
        self.raw = raw

    def __call__(self, block: Block) -> ScoredBlock:
        """Score a block; reports rows without usable scores."""
        rows = self._rows(block)
        columns = {name: column_values(block, name, non_negative=True) for name in self.columns}
        return ScoredBlock(*self.loss.of(rows.calibrated, columns), rows)

    def _rows(self, block: Block) -> Rows:
        logits = self.intake.logits(block)
        rows = self.calibrator.rows(logits, self.needs, self.precision, self.raw)
        if self.has_classes:
            self.intake.look(block, rows.raw.largest, rows.raw.negative)
        if block.check_largest(rows.raw.largest):
            return rows
        return self.calibrator.rows(without_rows(logits, block.bad), self.needs, self.precision, self.raw)

    def drift_values(self, scored: ScoredBlock) -> Floats:
        """The loss by which drift is looked for: L' itself unless that was fitted to rows."""
        other = self.loss.drift_loss
        return scored.loss if other is None else other.of(scored.rows.calibrated, {}).loss

    def keys(self, block: Block, rows: Rows) -> Keys:
        """A number for each row that tells it from others, by its content."""
        raw = rows.raw
        return self.intake.keys(block, raw.scores, raw.largest, raw.prediction)


def without_rows(logits: AnyFloats, bad: Booleans) -> AnyFloats:
    """Logits with placeholders in the bad rows."""
    logits = logits.copy()
    logits[bad] = 0
    return logits


def column_values(block: Block, name: str, non_negative: bool = False) -> Floats:
    """A numeric column of a block as float64; reports rows that are null, not finite or (if so asked) negative."""
    array = block.columns.column(name)
    if not (pa.types.is_floating(array.type) or pa.types.is_integer(array.type)):
        raise DumpError(f"{block.part.name}: column '{name}' is {array.type}; it must hold numbers")
    remedy = "drop or fix these rows"
    values = np.array(array.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    missing = np.asarray(array.is_null())
    block.report(np.flatnonzero(missing & ~block.bad), "no value (null)", remedy, column=name)
    odd = ~np.isfinite(values) & ~missing
    block.report(np.flatnonzero(odd & ~block.bad), "a value that is not finite", remedy, column=name)
    if non_negative:
        with np.errstate(invalid="ignore"):
            below = np.flatnonzero((values < 0) & ~odd & ~block.bad)
        block.report(below, "a negative loss", "a loss is 0 or more", column=name)
    return values
