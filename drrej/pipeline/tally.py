"""What evaluation takes from a block of labelled rows: sums, counts, and the losses themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field
from functools import reduce
from operator import add
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from drrej.core.calibration import CalibrationTally, ClasswiseTally
from drrej.core.drift import RatioSums
from drrej.core.reuse import Sighting
from drrej.core.softmax import Need
from drrej.core.sums import Total
from drrej.core.types import Booleans, Floats, Integers
from drrej.data.dump import Block
from drrej.pipeline.compare import Rivals
from drrej.pipeline.costs import CostTally
from drrej.pipeline.figures import Picked, Picking
from drrej.pipeline.freshness import Seen
from drrej.pipeline.groups import Grouping
from drrej.pipeline.pairing import block_keys
from drrej.pipeline.score import Scored, Scorer
from drrej.records import dataclass


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
    """Sums and counts of labelled rows; a true sum: blocks may be added in any order.

    Counts are (wrong rejected, right rejected, wrong accepted, right accepted). `cost` is None where rows have none;
    losses are added up where they are probabilities of an error.
    """

    uncalibrated: CalibrationTally
    all: CalibrationTally
    accepted: CalibrationTally
    by_class: NDArray[np.int64]
    ratio: RatioSums
    loss: Total
    loss_accepted: Total
    by_group: Counter[tuple[str, int]]
    masks: Counter[tuple[str, int]]
    cost: CostTally | None = None
    classwise: dict[str, ClasswiseTally] = field(default_factory=dict)
    """Of the rows before calibration, after it, and of the accepted ones, where that is asked for."""

    @classmethod
    def empty(cls, classes: int) -> Tally:
        """That of no rows, which adds nothing."""
        none = CalibrationTally.empty()
        by_class = np.zeros((classes, 4), np.int64)
        return cls(none, none, none, by_class, RatioSums(), Total(), Total(), Counter(), Counter())

    def __add__(self, other: Tally) -> Tally:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Tally(
            uncalibrated=self.uncalibrated + other.uncalibrated,
            all=self.all + other.all,
            accepted=self.accepted + other.accepted,
            by_class=self.by_class + other.by_class,
            ratio=self.ratio + other.ratio,
            loss=self.loss + other.loss,
            loss_accepted=self.loss_accepted + other.loss_accepted,
            by_group=self.by_group + other.by_group,
            masks=self.masks + other.masks,
            cost=sum(costs[1:], costs[0]) if costs else None,
            classwise={
                name: reduce(add, (part[name] for part in (self.classwise, other.classwise) if name in part))
                for name in self.classwise | other.classwise
            },
        )

    @property
    def counts(self) -> tuple[int, int, int]:
        """(rows, accepted, errors among the accepted)."""
        _, _, wrong_accepted, right_accepted = map(int, self.by_class.sum(axis=0))
        return int(self.by_class.sum()), wrong_accepted + right_accepted, wrong_accepted


@dataclass(frozen=True)
class PricedRows:
    """Rows with what each costs if it is accepted."""

    losses: Floats
    costs: Floats
    accepted: NDArray[np.bool_]

    @classmethod
    def joined(cls, blocks: Sequence[PricedRows]) -> PricedRows:
        """The rows of all blocks."""
        return cls(
            np.concatenate([block.losses for block in blocks]),
            np.concatenate([block.costs for block in blocks]),
            np.concatenate([block.accepted for block in blocks]),
        )


@dataclass(frozen=True)
class EvaluatedBlock:
    """What evaluation takes from a block besides sums and columns."""

    sightings: tuple[Sighting, ...]
    keyed: KeyedRows | None
    priced: PricedRows | None
    picked: Picked | None
    confused: NDArray[np.int64]
    """label * classes + prediction of each error among the accepted rows."""


@dataclass(frozen=True)
class Evaluator:
    """Evaluates blocks of labelled rows. `scorer` must bring the gap sums `NEEDS` and those of the rivals."""

    scorer: Scorer
    seen: Seen
    rivals: Rivals
    grouping: Grouping | None
    key: str | None
    picking: Picking | None = None
    classwise: bool = False

    NEEDS: ClassVar[Need] = Need.Q

    @property
    def columns(self) -> list[str]:
        """Columns to read besides logits and labels."""
        grouped = () if self.grouping is None else self.grouping.columns
        shown = () if self.picking is None else self.picking.columns
        return [*self.scorer.columns, *grouped, *self.rivals.columns, *([self.key] if self.key else []), *shown]

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.scorer.rejector.classes

    def __call__(self, block: Block) -> dict[str, Any]:
        """What `collect` takes of a block: a tally, the columns loss, wrong, drift and scores, and the rest."""
        labels = block.labels
        assert labels is not None
        scored = self.scorer(block)
        right = scored.prediction == labels
        wrong_accepted = scored.accepted & ~right
        keyed = None
        if self.key is not None:
            keyed = KeyedRows(block_keys(block, self.key), scored.loss, ~right, scored.accepted)
        rest = EvaluatedBlock(
            sightings=self.seen.look_up(scored),
            keyed=keyed,
            picked=self._picked(block, labels, scored),
            priced=self._priced(scored),
            confused=self._confused(labels, scored.prediction, wrong_accepted),
        )
        return {
            "loss": scored.loss,
            "wrong": scored.wrong,
            **({} if scored.drift is scored.loss else {"drift": scored.drift}),
            **{f"score {name}": values for name, values in self.rivals.rank(block, scored.calibrated).items()},
            "tally": self._tally(block, labels, scored, right),
            "rest": [rest],
        }

    def _tally(self, block: Block, labels: Integers, scored: Scored, right: Booleans) -> Tally:
        # calibration is about the likeliest class, whatever the prediction
        calibrated, raw = scored.calibrated.labelled(labels), scored.raw.labelled(labels)
        cell = scored.accepted * 2 + right
        realised, fitted = scored.cost, scored.loss_function.is_error_probability
        return Tally(
            uncalibrated=raw.tally(),
            all=calibrated.tally(),
            accepted=calibrated.tally(scored.accepted),
            by_class=np.bincount(labels * 4 + cell, minlength=4 * self.classes).reshape(-1, 4),
            ratio=RatioSums.of(scored.log_ratio),
            loss=Total.of(scored.loss) if fitted else Total(),
            loss_accepted=Total.of(scored.loss[scored.accepted]) if fitted else Total(),
            by_group=self._by_group(block, scored.prediction, cell),
            masks=_counted(
                (name, int(number), int(count))
                for name, rejected in self.rivals.rejected(block).items()
                for number, count in enumerate(np.bincount(~rejected * 2 + right, minlength=4))
            ),
            cost=None if realised is None else CostTally.of(realised, scored.loss, scored.accepted),
            classwise=_classwise(scored, labels) if self.classwise else {},
        )

    def _picked(self, block: Block, labels: Integers, scored: Scored) -> Picked | None:
        if self.picking is None:
            return None
        return self.picking.of(block, labels, scored.prediction, scored.loss, scored.accepted)

    def _priced(self, scored: Scored) -> PricedRows | None:
        rule = self.scorer.rejector.need_threshold().rule
        if rule.kind != "cost":
            return None
        costs = scored.cost
        if rule.error_cost is not None:
            costs = np.where(scored.wrong, rule.error_cost, 0.0)
        assert costs is not None
        return PricedRows(scored.loss, costs, scored.accepted)

    def _confused(
        self, labels: NDArray[np.int64], prediction: NDArray[np.int64], wrong: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        codes: NDArray[np.int64] = labels[wrong].astype(np.int64) * self.classes + prediction[wrong]
        return codes

    def _by_group(
        self, block: Block, prediction: NDArray[np.int64], cell: NDArray[np.int64]
    ) -> Counter[tuple[str, int]]:
        if self.grouping is None:
            return Counter()
        numbers, names = self.grouping.of(block, prediction)
        counts = np.bincount(numbers * 4 + cell, minlength=4 * len(names)).reshape(-1, 4)
        return _counted((names[i], j, int(counts[i, j])) for i, j in zip(*np.nonzero(counts), strict=True))


def _classwise(scored: Scored, labels: Integers) -> dict[str, ClasswiseTally]:
    before, after = (view.probabilities() for view in (scored.raw, scored.calibrated))
    kept = scored.accepted
    return {
        "uncalibrated": ClasswiseTally.of(before, labels),
        "all": ClasswiseTally.of(after, labels),
        "accepted": ClasswiseTally.of(after[kept], labels[kept]),
    }


def _counted(cells: Iterable[tuple[str, int, int]]) -> Counter[tuple[str, int]]:
    return Counter({(name, int(cell)): count for name, cell, count in cells})
