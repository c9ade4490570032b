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

import math
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from drrej.core import drift as pearson
from drrej.core.curves import Curve, RiskCoverage
from drrej.core.intervals import CONFIDENCE
from drrej.core.learned_loss import augrc_influence
from drrej.core.sums import Total
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


Interval = tuple[float, float]


def area_intervals(curve: Curve) -> dict[str, Interval]:
    """The 95 % intervals (lower, upper) of `aurc`, `e_aurc`, `standard_e_aurc` and `augrc`.

    >>> losses = np.arange(100.0)
    >>> lower, upper = area_intervals(RiskCoverage.of(losses, losses[:0]))["augrc"]  # 100 rows, no error
    >>> lower, round(upper, 4)  # up to 3.6 % errors may have been missed
    (0.0, 0.0356)
    """
    points = curve.points()
    values = {
        "aurc": curve.aurc(),
        "e_aurc": curve.e_aurc(),
        "standard_e_aurc": curve.standard_e_aurc(),
        "augrc": curve.augrc(),
    }
    best, worst = ([spreads(with_confident_row(points, wrong))] for wrong in (False, True))
    if 2 * points.total_errors > points.rows:
        best.append(_above_ideal(spreads(with_doubtful_row(points, wrong=True))))
        worst.append(_above_ideal(spreads(with_doubtful_row(points, wrong=False))))
    intervals = {}
    for name, value in values.items():
        least, most = _RANGES[name]
        lower = min(found[name].quantile(_TAIL) for found in best if name in found)
        upper = max(found[name].quantile(1.0 - _TAIL) for found in worst if name in found)
        intervals[name] = min(max(lower, least), value), max(min(upper, most), value)
    if points.total_errors == points.rows:  # without right rows the ideal order of some is not known
        intervals |= {name: _RANGES[name] for name in _ABOVE_IDEAL}
    return intervals


_ABOVE_IDEAL = ("e_aurc", "standard_e_aurc")
"""The figures in which the error rate counts too: where most rows are wrong, a doubtful row may move them more."""

_RANGES = {"aurc": (0.0, 1.0), "e_aurc": (0.0, 1.0), "standard_e_aurc": (-0.5, 1.0), "augrc": (0.0, 0.5)}
"""What the areas can be at all; a few right rows before wrong ones that all tie lie up to 1/2 under the ideal."""


def with_confident_row(points: RiskCoverage, wrong: bool) -> RiskCoverage:
    """The curve with one more row, which ties with the smallest loss.

    In front of all others it would be a point of its own. Where many rows tie at the smallest loss the trapezoid from
    there to the next point would be large however little the row weighs: with such data AURC has no interval.
    """
    return RiskCoverage(points.losses, points.accepted + 1, points.errors + int(wrong))


def with_doubtful_row(points: RiskCoverage, wrong: bool) -> RiskCoverage:
    """The curve with one more row, which ties with the largest loss."""
    accepted, errors = points.accepted.copy(), points.errors.copy()
    accepted[-1] += 1
    errors[-1] += int(wrong)
    return RiskCoverage(points.losses, accepted, errors)


def _above_ideal(found: dict[str, Spread]) -> dict[str, Spread]:
    return {name: found[name] for name in _ABOVE_IDEAL}


def spreads(points: RiskCoverage) -> dict[str, Spread]:
    """How the areas vary when the rows have random weights."""
    rows = points.rows
    error = points.total_errors / rows
    # slopes of the ideal areas in the error rate
    slopes = {"aurc": 0.0, "e_aurc": error, "standard_e_aurc": -math.log1p(-error) if error < 1 else 0.0}
    means = {
        "aurc": points.aurc(),
        "e_aurc": points.aurc() - 0.5 * error * error,
        "standard_e_aurc": points.standard_e_aurc(),
        "augrc": points.augrc(),
    }
    sums = {name: np.zeros(2) for name in means}
    for piece in influences(points):
        for name, slope in slopes.items():
            sums[name] += _powers(piece.right, piece.aurc_right + slope * error)
            sums[name] += _powers(piece.wrong, piece.aurc_wrong - slope * (1.0 - error))
        sums["augrc"] += _powers(piece.right, piece.augrc_right) + _powers(piece.wrong, piece.augrc_wrong)
    return {name: Spread.of(means[name], float(sums[name][0]), float(sums[name][1]), rows) for name in means}


def _powers(rows: Floats, influence: Floats) -> Floats:
    """Sums over rows of the squares and of the cubes."""
    squares = rows * influence * influence
    return np.array([np.sum(squares), np.sum(squares * influence)])


PIECE = 1 << 14
"""Points that are looked at together: they fit the cache."""


@dataclass(frozen=True)
class Influences:
    """Right and wrong rows at each of the points start, start + 1, ..., and the influence that each of them has.

    Over all rows of the curve the influences sum to 0.
    """

    start: int
    right: Floats
    wrong: Floats
    aurc_right: Floats
    aurc_wrong: Floats
    augrc_right: Floats
    augrc_wrong: Floats


def influences(points: RiskCoverage) -> Iterator[Influences]:
    """Influences at the points of a curve, piece by piece from the last one to the first."""
    rows, size = points.rows, points.accepted.size
    last, before = (float(points.errors[b] / points.accepted[b]) for b in (size - 1, max(size - 2, 0)))
    mean = points.aurc() - 0.5 * (last + before)
    augrc = points.augrc()
    by_rows = by_errors = 0.0  # sums over all later points
    for start in reversed(range(0, size, PIECE)):
        stop = min(start + PIECE, size)
        piece = _Piece.of(points, start, stop)
        in_rows, in_errors = piece.slopes(rows, stop == size)
        in_rows[-1] += by_rows
        in_errors[-1] += by_errors
        for sums in (in_rows, in_errors):
            np.cumsum(sums[::-1], out=sums[::-1])
        by_rows, by_errors = float(in_rows[0]), float(in_errors[0])
        right = rows * in_rows - mean
        middle, errors = (piece.up_to_middle(counts) / rows for counts in (piece.accepted, piece.errors))
        wrong = piece.here(piece.errors)
        yield Influences(
            start,
            right=piece.here(piece.accepted) - wrong,
            wrong=wrong,
            aurc_right=right,
            aurc_wrong=right + rows * in_errors,
            augrc_right=errors - 2.0 * augrc,
            augrc_wrong=errors + (1.0 - middle) - 2.0 * augrc,
        )


@dataclass(frozen=True)
class _Piece:
    """Rows and errors at some points, with one more point at each end (repeated where the curve ends)."""

    accepted: Floats
    errors: Floats
    first: bool

    @classmethod
    def of(cls, points: RiskCoverage, start: int, stop: int) -> _Piece:
        around = slice(max(start - 1, 0), stop + 1)
        accepted, errors = points.accepted[around].astype(np.float64), points.errors[around].astype(np.float64)
        ends = (int(start == 0), int(stop == points.accepted.size))
        return cls(np.pad(accepted, ends, "edge"), np.pad(errors, ends, "edge"), start == 0)

    def slopes(self, rows: int, last: bool) -> tuple[Floats, Floats]:
        """Derivatives of AURC in the rows and in the errors up to each point."""
        risk = self.errors / self.accepted
        before = self.accepted[:-2].copy()
        if self.first:
            before[0] = -before[0]
        width = (self.accepted[2:] - before) / (2.0 * rows)
        in_errors = width / self.accepted[1:-1]
        in_rows = (risk[:-2] - risk[2:]) / (2.0 * rows)
        if last:
            in_rows[-1] = 0.0
        in_rows -= risk[1:-1] * in_errors
        return in_rows, in_errors

    def up_to_middle(self, counts: Floats) -> Floats:
        """What is counted up to the middle of each point's tie block."""
        return counts[1:-1] - 0.5 * self.here(counts)

    def here(self, counts: Floats) -> Floats:
        """What is counted in each point's tie block."""
        block = np.diff(counts[:-1])
        if self.first:
            block[0] = counts[1]
        return block


@dataclass(frozen=True)
class Spread:
    """A figure of rows with random weights: its mean, variance and third central moment."""

    mean: float
    variance: float
    third: float

    @classmethod
    def of(cls, value: float, squares: float, cubes: float, rows: int) -> Spread:
        """From a figure and the sums of the squares and the cubes of its influences, whose sum is 0.

        For weights uniform on the simplex of N rows, var(sum w x) = mean(x^2) / (N + 1), and the third central moment
        is 2 mean(x^3) / ((N + 1) (N + 2)).
        """
        variance = squares / rows / (rows + 1)
        third = 2.0 * cubes / rows / ((rows + 1) * (rows + 2))
        return cls(value, variance, third)

    def quantile(self, q: float) -> float:
        """The value that is not exceeded with chance q."""
        if self.variance <= 0.0:
            return self.mean
        deviation = math.sqrt(self.variance)
        return self.mean + deviation * pearson.quantile(self.third / self.variance / deviation, q)


@dataclass(frozen=True)
class OrderDifference:
    """The AUGRC of a score minus that of the loss, with its interval; below 0 the score orders better."""

    value: float
    lower: float
    upper: float


def order_difference(losses: Floats, scores: Floats, right: int, compared: int = 1) -> OrderDifference:
    """Compare a score with the loss; both are low where a row is accepted first.

    Arrays with an entry per row, the `right` rows first; `compared` scores are judged together.

    >>> losses, wrong = np.arange(200) / 200, np.arange(200) % 20 == 19
    >>> order = np.argsort(wrong, kind="stable")
    >>> ideal = order_difference(losses[order], wrong[order].astype(float), right=190)
    >>> ideal.upper < 0
    True
    """
    from drrej.core.special import ndtri

    wrong = np.arange(losses.size) >= right
    order = np.lexsort((scores, losses, wrong))  # sums have the same bits for any order of the rows
    losses, scores = losses[order], scores[order]
    (ours, mine), (theirs, yours) = augrc_influence(losses, wrong), augrc_influence(scores, wrong)
    error = float(np.std(yours - mine)) / math.sqrt(losses.size)
    reach = float(ndtri(1.0 - (1.0 - CONFIDENCE) / 2 / compared)) * error
    value = theirs - ours
    return OrderDifference(value, value - reach, value + reach)
