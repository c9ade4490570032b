"""Other scores and other rejectors' masks, judged on the same rows as the loss.

Every score is turned so that a low value is accepted first and so that it does not cancel where the model is sure,
e.g. 1 - max p instead of max p. All are at the rejector's temperature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.core.calibrators import Scores
from drrej.core.curves import Curve
from drrej.core.intervals import proportion
from drrej.core.losses import PLAIN
from drrej.core.paired import area_intervals
from drrej.core.softmax import Need
from drrej.core.types import Floats
from drrej.data.dump import Block, Dump
from drrej.documents.points import Point, PointFigure, Proportion
from drrej.documents.report import MaskRow, ScoreRow
from drrej.errors import DumpError
from drrej.pipeline.figures import accuracy_figure, coverage_curve, coverage_figure
from drrej.pipeline.groups import check_columns
from drrej.records import dataclass

Order = Literal["high", "low"]
"""Which end of a score is accepted first."""


@dataclass(frozen=True)
class Score:
    """A column that ranks rows."""

    column: str
    order: Order = "high"


@dataclass(frozen=True)
class Rivals:
    """What is compared: the usual scores of the logits, columns that rank rows, columns that are masks."""

    usual: bool = False
    scores: tuple[Score, ...] = ()
    masks: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return (*(score.column for score in self.scores), *self.masks)

    @property
    def needs(self) -> Need:
        """The gap sums to compute."""
        return reduce(or_, (PLAIN[loss].needs for loss in _LOSSES.values())) if self.usual else Need.NOTHING

    def check(self, dump: Dump) -> None:
        """Raise unless the columns are there and hold what is needed."""
        check_columns(dump, [score.column for score in self.scores], "`score`")
        check_columns(dump, self.masks, "`rejected`")
        for score in self.scores:
            kind = dump.schema.field(score.column).type
            if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
                raise DumpError(f"{dump.parts[0].name}: `score={score.column}`: the column is {kind}, not numbers")
        for name in self.masks:
            kind = dump.schema.field(name).type
            if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind)):
                raise DumpError(
                    f"{dump.parts[0].name}: `rejected={name}`: the column is {kind}; it must be boolean (or 0 and 1)"
                )

    def rank(self, block: Block, rows: Scores) -> dict[str, Floats]:
        """Each score of a block, low values first; of probabilities the energy is the same for every row."""
        ranked = usual_scores(rows) if self.usual else {}
        if block.input != "logits":
            ranked.pop("energy", None)
        for score in self.scores:
            values = _numbers(block, score.column)
            ranked[score.column] = -values if score.order == "high" else values
        return ranked

    def rejected(self, block: Block) -> dict[str, NDArray[np.bool_]]:
        """Each foreign mask of a block."""
        return {name: _numbers(block, name) != 0 for name in self.masks}


_LOSSES = {
    "max_probability": "zero-one",
    "entropy": "log",
    "margin": "margin",
    "logit_margin": "logit-margin",
    "max_probability_half_t": "sharp",
    "max_probability_quarter_t": "sharper",
    "max_probability_double_t": "flat",
    "norm_1": "norm-1",
    "norm_2": "norm-2",
    "norm_4": "norm-4",
}
"""The usual scores that are losses."""


def usual_scores(rows: Scores) -> dict[str, Floats]:
    """Max probability (at other temperatures too), entropy, margins, norms, energy and max logit, low values first."""
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        found = {
            name: PLAIN[loss].expected(rows.sums)
            for name, loss in _LOSSES.items()
            if PLAIN[loss].tells_apart(rows.classes)
        }
        return {**found, "energy": rows.energy(), "max_logit": -rows.largest}


def _numbers(block: Block, name: str) -> Floats:
    column = block.columns.column(name)
    if column.null_count:
        block.report(np.flatnonzero(np.asarray(column.is_null())), "no value (null)", "fill it in", column=name)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if column.null_count:
        column = column.fill_null(0)
    values: Floats = column.to_numpy(zero_copy_only=False).astype(np.float64)
    block.report(np.flatnonzero(np.isnan(values)), "NaN", "drop or fix these rows", column=name)
    return values


AREAS = {
    "aurc": Curve.aurc,
    "e_aurc": Curve.e_aurc,
    "augrc": Curve.augrc,
}
"""Those of every score."""


def areas_of(
    points: Curve, intervals: bool, areas: Mapping[str, Callable[[Curve], float]] = AREAS
) -> dict[str, dict[str, float | None]]:
    """The areas under a curve, with their intervals if asked for."""
    spread = area_intervals(points) if intervals else {}
    ends = {name: spread.get(name, (None, None)) for name in areas}
    return {
        name: {"value": area(points), "lower": ends[name][0], "upper": ends[name][1]} for name, area in areas.items()
    }


def score_row(name: str, points: Curve, accepted: int, wanted: Sequence[Point], intervals: bool) -> ScoreRow:
    """The figures of one score; `accuracy` is that at the coverage of the rejector, which accepts so many rows."""
    areas: dict[str, Any] = {name: Proportion(**area) for name, area in areas_of(points, intervals).items()}
    return ScoreRow(
        score=name,
        **areas,
        points={point.name: point.row(points, intervals) for point in wanted},
        accuracy=accuracy_near(points, accepted),
        coverage_curve=coverage_curve(points),
    )


def mask_row(name: str, cells: Sequence[int], points: Curve) -> MaskRow:
    """The figures of another rejector's mask, from its counts (wrong rejected, right rejected, wrong, right)."""
    accepted = cells[2] + cells[3]
    return MaskRow(
        mask=name,
        coverage=coverage_figure(accepted, sum(cells)),
        accuracy=accuracy_figure(cells[2], accepted),
        loss_accuracy=accuracy_near(points, accepted),
    )


def accuracy_near(points: Curve, accepted: int) -> PointFigure:
    """Accuracy at the smallest coverage that accepts at least so many rows; undefined for none."""
    kept, errors = points.reaching(accepted) if accepted else (0, 0)
    return PointFigure(**proportion(kept - errors, kept), accepted=kept, errors=errors)
