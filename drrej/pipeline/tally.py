"""What evaluation takes from a block of labelled rows: sums, counts, and the losses themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from drrej.core.calibration import CalibrationTally, LabelledRows
from drrej.core.exact import Total
from drrej.core.temperature import label_gaps
from drrej.core.types import Floats
from drrej.data import Block
from drrej.data.join import sortable_keys
from drrej.documents.rejector import Rejector
from drrej.pipeline.compare import Rivals
from drrej.pipeline.cost_figures import CostTally
from drrej.pipeline.groups import Decision, Grouping
from drrej.pipeline.scoring import score

Split = tuple[Floats, Floats]
"""The values of right and of wrong rows."""


@dataclass(frozen=True)
class KeyedRows:
    """Rows that can be paired with those of another dump."""

    keys: NDArray[np.generic]
    losses: Floats
    wrong: NDArray[np.bool_]
    accepted: NDArray[np.bool_]

    @classmethod
    def joined(cls, blocks: Iterable[KeyedRows]) -> KeyedRows:
        """The rows of all blocks."""
        parts = list(blocks)
        return cls(
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.losses for part in parts]),
            np.concatenate([part.wrong for part in parts]),
            np.concatenate([part.accepted for part in parts]),
        )


@dataclass(frozen=True)
class Tally:
    """What is kept of a block; counts are (wrong rejected, right rejected, wrong accepted, right accepted)."""

    losses: Split
    uncalibrated: CalibrationTally
    all: CalibrationTally
    accepted: CalibrationTally
    by_class: NDArray[np.int64]
    ratio: Total
    ratio_squared: Total
    by_group: Counter[tuple[str, int]] = field(default_factory=Counter)
    scores: dict[str, Split] = field(default_factory=dict)
    masks: Counter[tuple[str, int]] = field(default_factory=Counter)
    keyed: KeyedRows | None = None
    cost: CostTally | None = None
    confused: NDArray[np.int64] | None = None
    """label * classes + prediction of each error among the accepted rows."""

    def __add__(self, other: Tally) -> Tally:
        """Sums and counts; what is kept per row stays with the blocks."""
        return Tally(
            losses=self.losses,
            uncalibrated=self.uncalibrated + other.uncalibrated,
            all=self.all + other.all,
            accepted=self.accepted + other.accepted,
            by_class=self.by_class + other.by_class,
            ratio=self.ratio + other.ratio,
            ratio_squared=self.ratio_squared + other.ratio_squared,
            by_group=self.by_group + other.by_group,
            masks=self.masks + other.masks,
            cost=None if self.cost is None or other.cost is None else self.cost + other.cost,
        )

    @property
    def counts(self) -> tuple[int, int, int]:
        """(rows, accepted, errors among the accepted)."""
        _, _, wrong_accepted, right_accepted = map(int, self.by_class.sum(axis=0))
        return int(self.by_class.sum()), wrong_accepted + right_accepted, wrong_accepted


@dataclass(frozen=True)
class Evaluator:
    """Makes the tally of a block."""

    rejector: Rejector
    decision: Decision
    rivals: Rivals
    grouping: Grouping | None
    key: str | None
    pictures: bool = False

    @property
    def columns(self) -> list[str]:
        """Columns to read besides logits and labels."""
        grouped = () if self.grouping is None else self.grouping.columns
        loss = self.rejector.need_ratio().row_loss
        return [
            *loss.columns,
            *self.decision.columns,
            *grouped,
            *self.rivals.columns,
            *([self.key] if self.key else []),
        ]

    def __call__(self, block: Block) -> Tally:
        """The tally."""
        assert block.labels is not None
        rejector, ratio = self.rejector, self.rejector.need_ratio()
        scores = score(block, rejector, ratio.row_loss, [1.0], "".join(sorted({*self.rivals.needs, "q"})))
        sums, losses, prediction = scores.sums, scores.losses, scores.prediction
        accepted = self.decision.accepts(block, losses, prediction)
        gaps = label_gaps(block.logits, block.labels, sums.largest)
        likeliest = sums.prediction == block.labels  # calibration is about the likeliest class, whatever the action
        everything, kept = LabelledRows(sums.at[0], gaps, likeliest).tally(rejector.beta, accepted)
        (raw,) = LabelledRows(sums.at[1], gaps, likeliest).tally(1.0)
        right = prediction == block.labels
        costs = ratio.row_loss.costs
        cell = accepted * 2 + right
        with np.errstate(over="ignore"):
            rho = ratio.density.ratio(losses)
            squared = np.square(rho)
        return Tally(
            losses=(losses[np.flatnonzero(right)], losses[np.flatnonzero(~right)]),
            uncalibrated=raw,
            all=everything,
            accepted=kept,
            by_class=np.bincount(block.labels * 4 + cell, minlength=4 * rejector.classes).reshape(-1, 4),
            ratio=Total.of(rho),
            ratio_squared=Total.of(squared),
            by_group=self._by_group(block, prediction, cell),
            scores={
                name: (values[right], values[~right])
                for name, values in self.rivals.rank(block, sums, rejector.beta).items()
            },
            masks=_counted(
                (name, int(number), int(count))
                for name, rejected in self.rivals.rejected(block).items()
                for number, count in enumerate(np.bincount(~rejected * 2 + right, minlength=4))
            ),
            confused=self._confused(block.labels, prediction, accepted & ~right) if self.pictures else None,
            keyed=None if self.key is None else KeyedRows(block_keys(block, self.key), losses, ~right, accepted),
            cost=None if costs is None else CostTally.of(costs, block.labels, prediction, losses, accepted),
        )

    def _confused(
        self, labels: NDArray[np.int64], prediction: NDArray[np.int64], wrong: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        codes: NDArray[np.int64] = labels[wrong].astype(np.int64) * self.rejector.classes + prediction[wrong]
        return codes

    def _by_group(
        self, block: Block, prediction: NDArray[np.int64], cell: NDArray[np.int64]
    ) -> Counter[tuple[str, int]]:
        if self.grouping is None:
            return Counter()
        numbers, names = self.grouping.of(block, prediction)
        counts = np.bincount(numbers * 4 + cell, minlength=4 * len(names)).reshape(-1, 4)
        return _counted((names[i], j, int(counts[i, j])) for i, j in zip(*np.nonzero(counts), strict=True))


def _counted(cells: Iterable[tuple[str, int, int]]) -> Counter[tuple[str, int]]:
    return Counter({(name, int(cell)): count for name, cell, count in cells})


def block_keys(block: Block, name: str) -> NDArray[np.generic]:
    """The keys of a block's rows; missing ones are reported."""
    keys, missing = sortable_keys(block.columns.column(name), f"{block.part.name}: column '{name}'")
    block.report(missing, "no key (null)", "every row needs its key", column=name)
    return keys
