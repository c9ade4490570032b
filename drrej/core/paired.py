"""Differences between two models on the same rows, with intervals that hold for few rows and few errors.

The method is that of `row_weights`: random weights of the rows, each with both its results, and one more row that is as
good for the new model and as bad for the old one as can be, or the other way round. So a difference in which no row
takes part is not known to be 0: with n rows a share of about 3.7 / n may have been missed.

Coverage and base accuracy are differences of paired proportions, decided by the rows where the models differ. The
accuracy of accepted rows is a difference of two ratios, as each model accepts rows of its own; nine kinds of rows
(rejected, right or wrong for the one and for the other) decide. In all worlds where the chances of every outcome were
added up, the ends of these miss with chance at most 2.5 % each. The areas go through the influence of each row, see
`influence`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from drrej.core.area_intervals import with_confident_row
from drrej.core.curves import RiskCoverage
from drrej.core.exact import Total
from drrej.core.influence import influences
from drrej.core.intervals import CONFIDENCE
from drrej.core.row_weights import Spread
from drrej.core.types import Floats
from drrej.records import dataclass

FIGURES = ("coverage", "accuracy", "base_accuracy", "aurc", "e_aurc", "augrc")
"""What is compared."""

_TAIL = (1.0 - CONFIDENCE) / 2
_LIMITS = {"augrc": 0.5}
"""The largest difference there can be, where it is not 1."""

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Difference:
    """New minus old with its 95 % interval; None where a model accepts no row, so that there is no accuracy."""

    value: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True)
class Results:
    """What a model makes of each row: the loss, whether the prediction is wrong, whether the row is accepted."""

    losses: Floats
    wrong: NDArray[np.bool_]
    accepted: NDArray[np.bool_]

    @cached_property
    def curve(self) -> tuple[RiskCoverage, NDArray[np.intp]]:
        """The risk-coverage curve, and the point of each row on it."""
        losses, place = np.unique(self.losses, return_inverse=True)
        accepted = np.cumsum(np.bincount(place))
        errors = np.cumsum(np.bincount(place[self.wrong], minlength=losses.size))
        return RiskCoverage(losses, accepted, errors), place

    @property
    def states(self) -> NDArray[np.intp]:
        """0 for a rejected row, 1 for an accepted right one, 2 for an accepted wrong one."""
        return np.where(self.accepted, 1 + self.wrong.astype(np.intp), 0)


def paired_differences(new: Results, old: Results) -> dict[str, Difference]:
    """Each of `FIGURES` for the new model less that for the old one; row i is the same in both.

    >>> losses, right, all_ = np.arange(100.0), np.zeros(100, bool), np.ones(100, bool)
    >>> same = Results(losses, right, all_)
    >>> difference = paired_differences(same, same)["accuracy"]
    >>> difference.value, round(difference.lower, 4), round(difference.upper, 4)
    (0.0, -0.0361, 0.0361)
    """
    states = np.bincount(3 * new.states + old.states, minlength=9).reshape(3, 3)
    wrong = np.bincount(2 * new.wrong + old.wrong, minlength=4).reshape(2, 2)
    rows = int(states.sum())
    return {
        "coverage": proportion_difference(int(states[1:, 0].sum()), int(states[0, 1:].sum()), rows),
        "accuracy": accuracy_difference(states),
        "base_accuracy": proportion_difference(int(wrong[0, 1]), int(wrong[1, 0]), rows),
        **_areas(new, old),
    }


def _interval(name: str, spread: Callable[[int], Spread]) -> Difference:
    """From how a difference varies with a row more that raises (1) or lowers (-1) it, and its value as it is (0)."""
    value, limit = spread(0).mean, _LIMITS.get(name, 1.0)
    lower = max(spread(-1).quantile(_TAIL), -limit)
    upper = min(spread(1).quantile(1.0 - _TAIL), limit)
    return Difference(value, min(lower, value), max(upper, value))


# Proportions


def proportion_difference(only_new: int, only_old: int, rows: int) -> Difference:
    """The difference of two paired proportions, of which so many rows count for the one or for the other only.

    >>> difference = proportion_difference(5, 0, 100)  # 5 rows put right, none spoilt
    >>> difference.value, round(difference.lower, 4), round(difference.upper, 4)
    (0.05, -0.0017, 0.1128)
    """

    def spread(more: int) -> Spread:
        kinds = np.array([only_new + (more > 0), only_old + (more < 0), rows - only_new - only_old])
        mean = int(kinds[0] - kinds[1]) / int(kinds.sum())
        return _of_kinds(mean, kinds, np.array([1.0, -1.0, 0.0]) - mean)

    return _interval("proportion", spread)


def accuracy_difference(states: Counts) -> Difference:
    """The difference of the accuracies of what each model accepts.

    `states[i, j]` counts the rows that the new model leaves in state i and the old one in state j, as in `Results`.
    """
    if not states[1:].any() or not states[:, 1:].any():
        return Difference(None, None, None)
    return _interval("accuracy", lambda more: _accuracy(states, more))


def _accuracy(states: Counts, more: int) -> Spread:
    counts = states.copy()
    if more:
        counts[(1, 2) if more > 0 else (2, 1)] += 1
    rows = int(counts.sum())
    means, influence = [], []
    for kinds in (counts.sum(axis=1), counts.sum(axis=0)):
        kept = int(kinds[1] + kinds[2])
        means.append(int(kinds[1]) / kept)
        influence.append(np.array([0.0, int(kinds[2]) / kept, -int(kinds[1]) / kept]) * (rows / kept))
    differences = influence[0][:, None] - influence[1][None, :]
    return _of_kinds(means[0] - means[1], counts.ravel(), differences.ravel())


def _of_kinds(mean: float, counts: Counts, influence: Floats) -> Spread:
    squares = counts * influence * influence
    return Spread.of(mean, float(squares.sum()), float((squares * influence).sum()), int(counts.sum()))


# Areas


def _areas(new: Results, old: Results) -> dict[str, Difference]:
    """The areas; without right rows the ideal order of some is not known, and E-AURC may differ by anything."""
    curves = [results.curve[0] for results in (new, old)]
    raised, lowered = (_area_spreads(new, old, more) for more in (True, False))
    differences = {}
    for name, area in (("aurc", RiskCoverage.aurc), ("e_aurc", RiskCoverage.e_aurc), ("augrc", RiskCoverage.augrc)):
        value = area(curves[0]) - area(curves[1])
        spreads = {0: Spread(value, 0.0, 0.0), 1: raised[name], -1: lowered[name]}
        differences[name] = _interval(name, spreads.__getitem__)
    if any(curve.total_errors == curve.rows for curve in curves):
        differences["e_aurc"] = Difference(differences["e_aurc"].value, -1.0, 1.0)
    return differences


def _area_spreads(new: Results, old: Results, raised: bool) -> dict[str, Spread]:
    """How the areas' differences vary with a row more: right for one model, confidently wrong for the other."""
    a, b = _Influence.of(new, raised), _Influence.of(old, not raised)
    spreads = {}
    for name in a.influence:
        influence = a.influence[name] - b.influence[name]
        squares = influence * influence
        cubes = squares * influence
        spreads[name] = Spread.of(a.values[name] - b.values[name], _sum(squares), _sum(cubes), influence.size)
    return spreads


def _sum(values: Floats) -> float:
    """The sum, the same for any order of the rows."""
    total = Total.of(values).mean(1)
    assert total is not None
    return total


@dataclass(frozen=True)
class _Influence:
    """The areas of a curve with one row more, and the influence of every row, the added one first."""

    values: dict[str, float]
    influence: dict[str, Floats]

    @classmethod
    def of(cls, results: Results, wrong: bool) -> _Influence:
        curve, place = results.curve
        more = with_confident_row(curve, wrong)
        by_kind: Floats = np.empty((4, more.accepted.size))
        for piece in influences(more):
            here = slice(piece.start, piece.start + piece.right.size)
            by_kind[:, here] = piece.aurc_right, piece.aurc_wrong, piece.augrc_right, piece.augrc_wrong
        rows = np.append(0, place), np.append(wrong, results.wrong)
        aurc, augrc = (np.where(rows[1], by_kind[k + 1][rows[0]], by_kind[k][rows[0]]) for k in (0, 2))
        error = more.total_errors / more.rows
        e_aurc = aurc - error * (rows[1] - error)  # the ideal of E-AURC is error^2 / 2
        values = {"aurc": more.aurc(), "e_aurc": more.aurc() - 0.5 * error * error, "augrc": more.augrc()}
        return cls(values, {"aurc": aurc, "e_aurc": e_aurc, "augrc": augrc})
