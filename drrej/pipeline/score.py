"""From the scores that a dump stores to logits: what they mean, and whether they are what they are said to be."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from drrej.core.calibrators import Rows
from drrej.core.inputs import (
    BINARY_REASONS,
    BINARY_REMEDIES,
    FACE_VALUE,
    REASONS,
    REMEDIES,
    Kind,
    Positives,
    ProbabilityRows,
    ScoreLook,
    floored_logits,
    read_binary_probabilities,
    read_log_probabilities,
    read_probabilities,
)
from drrej.core.losses import Loss
from drrej.core.ratio import DensityRatio
from drrej.core.reuse import Fingerprint, Keys, Sighting, content_keys, logit_keys
from drrej.core.softmax import Need
from drrej.core.types import AnyFloats, Booleans, Floats, InputKind, Integers
from drrej.data.columns import PROBABILITY_NAMES
from drrej.data.dump import Block, Dump
from drrej.data.problems import Notes
from drrej.documents.rejector import Rejector
from drrej.errors import DumpError, OptionError
from drrej.pipeline.groups import Grouping, OnUnseen
from drrej.records import dataclass


@dataclass(frozen=True)
class Intake:
    """Reads the scores of the blocks of a dump.

    Scores are logits, or probabilities or their logarithms; then `floor` is what a probability of 0 counts as.
    """

    kind: InputKind
    binary: bool
    normalize: bool = False
    floor: float = FACE_VALUE

    @classmethod
    def of(cls, dump: Dump, floor: float | None = None) -> Intake:
        """For a dump; without a floor nothing but 0 itself is moved."""
        return cls(dump.input, dump.binary, dump.normalize, FACE_VALUE if floor is None else floor)

    def logits(self, block: Block) -> AnyFloats:
        """Logits (rows x classes) of a block; reports rows that are no probabilities."""
        if self.kind != "logits":
            return floored_logits(self.probabilities(block), self.floor)
        return _pairs(block.scores[:, 0]) if self.binary else block.scores

    def probabilities(self, block: Block) -> Floats:
        """Probabilities (rows x classes) of a block that sum to 1; reports rows that are none."""
        rows = self._read(block.scores)
        for bad in rows.bad_rows():
            fresh = bad.rows[~block.bad[bad.rows]]
            block.report(fresh, bad.what, bad.remedy, bad.example if fresh.size == bad.rows.size else "")
        block.zeros = Positives.of(rows.values).zeros
        return rows.values

    def _read(self, scores: AnyFloats) -> ProbabilityRows:
        if self.binary:
            stored = scores[:, 0]
            with np.errstate(under="ignore", over="ignore"):
                return read_binary_probabilities(np.exp(stored) if self.kind == "log-probs" else stored)
        read = read_log_probabilities if self.kind == "log-probs" else read_probabilities
        return read(scores, self.normalize)

    def look(self, block: Block, largest: Floats, negative: Booleans | None = None) -> None:
        """Note what scores look like that are taken as logits.

        `largest` is the largest logit of each row, and `negative` whether one is below 0, where that is known.
        """
        if self.kind == "logits":
            scores = block.scores
            look = ScoreLook.of_binary(scores[:, 0]) if self.binary else ScoreLook.of(scores, largest, negative)
            block.inside, block.summing, block.scaled = look.inside, look.summing, look.scaled

    def keys(self, block: Block, logits: AnyFloats, largest: Floats, first: Integers) -> Keys:
        """A number for each row by its content, from the scores as they are stored.

        `largest` and `first` are the largest logit and its class.
        """
        return logit_keys(logits, largest, first) if self.kind == "logits" else content_keys(block.scores)


def _pairs(score: AnyFloats) -> AnyFloats:
    """Logits of two classes, stored classes-first."""
    pairs = np.zeros((2, score.size), score.dtype)
    pairs[1] = score
    return pairs.T


def check_kind(dump: Dump, notes: Notes, calibrating: bool = False) -> None:
    """Raise when scores that nobody has called logits look like probabilities, percentages or counts.

    With one score per row, logits that are all positive say only that every row is of class 1, as in a dump of such
    rows: a reason to ask when the temperature is fitted, and not later.
    """
    if dump.input != "logits" or dump.input_said:
        return
    look = ScoreLook(notes.rows - notes.bad_rows, notes.inside, notes.summing, notes.scaled)
    kind = look.kind(dump.binary)
    if kind == "logits" and dump.columns.names[0].lower() in PROBABILITY_NAMES:
        raise DumpError(
            f"{dump.parts[0].name}: column '{dump.columns.pattern}' is called as probabilities are, but its rows are "
            "none; say `input=logits` if they are logits, or `input=probs` with `normalize=True`"
        )
    if kind == "logits" or (kind == "scaled" and dump.binary and not calibrating):
        return
    raise DumpError(f"{dump.parts[0].name}: column '{dump.columns.pattern}': {doubt_about(dump, kind)}")


def doubt_about(dump: Dump, kind: Kind) -> str:
    """Why scores of such a look are not taken as logits, and what to say."""
    reasons, remedies = (BINARY_REASONS, BINARY_REMEDIES) if dump.binary else (REASONS, REMEDIES)
    return f"{reasons[kind]}; {remedies[kind]}"


def check_floor(floor: float | None, dump: Dump) -> None:
    """Raise when a floor is given for logits, or is out of range."""
    if floor is None:
        return
    if dump.input == "logits":
        raise OptionError("`floor` goes with probabilities: it is what a probability of 0 counts as")
    if not 0 < floor <= 0.5 / dump.classes:
        raise OptionError(f"`floor={floor:g}`: it must be above 0 and at most 1 / (2 x {dump.classes} classes)")


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


@dataclass(frozen=True)
class ScoredRows:
    """What a rejector makes of each row of a block.

    `rows` is what the predictions and losses come from; bad rows have placeholders there and are never accepted.
    """

    prediction: Integers
    loss: Floats
    accepted: Booleans
    rows: Rows
    density: DensityRatio
    drift: Floats
    """The loss by which drift is looked for."""
    sightings: tuple[Sighting, ...] = ()
    """Which rows of the sets that were looked for are among these."""

    @property
    def log_ratio(self) -> Floats:
        """The logarithm of the density ratio."""
        return self.density.log_ratio(self.loss)

    @cached_property
    def ratio(self) -> Floats:
        """The density ratio."""
        return self.density.ratio(self.loss)


class Application:
    """Applies a finished rejector to the blocks of a dump.

    Made before any work: it knows the columns it needs besides logits and labels and raises when one is missing.
    `needs` and `raw` ask for more gap sums, see `Scoring`. Rows of the sets `earlier` are looked for.
    """

    def __init__(
        self,
        rejector: Rejector,
        dump: Dump,
        on_unseen: OnUnseen = "error",
        needs: Need = Need.NOTHING,
        raw: Need | None = None,
        earlier: Sequence[Fingerprint] = (),
    ) -> None:
        ratio, threshold = rejector.need_ratio(), rejector.need_threshold()
        self.rejector = rejector
        self.earlier = tuple(earlier)
        self.density = ratio.density
        self.scoring = Scoring(rejector, ratio.loss, dump, needs, raw)
        self.threshold = threshold
        self.on_unseen = on_unseen
        self.grouping = None
        if threshold.by is not None:
            self.grouping = Grouping(threshold.by, rejector, dump, "the threshold's groups")
        self.columns = (*self.scoring.columns, *(() if self.grouping is None else self.grouping.columns))
        self._cutoffs = {
            group.group: np.inf if group.cutoff is None else group.cutoff for group in threshold.groups or ()
        }

    def __call__(self, block: Block) -> ScoredRows:
        """Score and decide the rows of a block; reports bad rows."""
        scored = self.scoring(block)
        accepted = self._accepted(block, scored)
        if block.bad.any():
            accepted = accepted & ~block.bad
        drift = self.scoring.drift_values(scored)
        sightings: tuple[Sighting, ...] = ()
        if self.earlier:
            keys = self.scoring.keys(block, scored.rows)[~block.bad]
            sightings = tuple(fingerprint.look_up(keys) for fingerprint in self.earlier)
        return ScoredRows(scored.prediction, scored.loss, accepted, scored.rows, self.density, drift, sightings)

    def _accepted(self, block: Block, scored: ScoredBlock) -> Booleans:
        if self.grouping is None:
            return self.threshold.accepts(scored.loss)
        numbers, names = self.grouping.of(block, scored.prediction)
        cutoffs = np.array([self._cutoffs.get(name, np.nan) for name in names])[numbers]
        unseen = np.isnan(cutoffs) & ~block.bad
        if self.on_unseen == "error" and unseen.any():
            row = int(np.argmax(unseen))
            raise DumpError(
                f"{block.part.name}: row {block.row_numbers()[row]} (counted from 0) is of the group "
                f"{self.grouping.by} = '{names[numbers[row]]}', for which the rejector has no threshold; "
                "use `on_unseen_group=reject`, or choose the threshold again on rows of every group"
            )
        accepted: Booleans = scored.loss < cutoffs
        return accepted
