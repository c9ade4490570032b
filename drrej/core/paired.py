"""Intervals of areas, and of differences between two models on the same rows, for few rows and few errors too.

Rows get random weights, and one more row that is as good or as bad as can be; the proofs are in docs/proofs.md.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from drrej.core import special
from drrej.core.curves import Curve
from drrej.core.intervals import CONFIDENCE, skewed_quantile
from drrej.core.types import Booleans, Floats, Integers, Total

FIGURES = ("coverage", "accuracy", "base_accuracy", "aurc", "e_aurc", "augrc")
"""What is compared."""

_TAIL = (1.0 - CONFIDENCE) / 2
_LIMITS = {"aurc": 1.0, "augrc": 0.5, "e_aurc": 1.5}
"""The largest differences of areas there can be."""


class Difference(Struct, frozen=True):
    """New minus old with its 95 % interval; None where a model accepts no row, so that there is no accuracy."""

    value: float | None
    lower: float | None
    upper: float | None


class Results(Struct, frozen=True, dict=True):
    """What a model makes of each row: the loss, whether the prediction is wrong, whether the row is accepted."""

    losses: Floats
    wrong: Booleans
    accepted: Booleans

    @cached_property
    def curve(self) -> Curve:
        """The risk-coverage curve."""
        return Curve.of(self.losses[~self.wrong], self.losses[self.wrong])

    @property
    def states(self) -> NDArray[np.intp]:
        """0 for a rejected row, 1 for an accepted right one, 2 for an accepted wrong one."""
        return np.where(self.accepted, 1 + self.wrong.astype(np.intp), 0)


def paired_differences(new: Results, old: Results) -> dict[str, Difference]:
    """Each of `FIGURES` for the new model minus that for the old one; row i is the same in both.

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


def _interval(value: float, lowered: Spread, raised: Spread, limit: float = 1.0) -> Difference:
    """From a difference and how it varies with a row more that lowers or raises it; `limit` is the largest there is."""
    lower = max(lowered.quantile(_TAIL), -limit)
    upper = min(raised.quantile(1.0 - _TAIL), limit)
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
        return Spread.of(mean, _powers(kinds, np.array([1.0, -1.0, 0.0]) - mean), int(kinds.sum()))

    return _interval(spread(0).mean, spread(-1), spread(1))


def accuracy_difference(states: Integers) -> Difference:
    """The difference of the accuracies of what each model accepts.

    `states[i, j]` counts the rows that the new model leaves in state i and the old one in state j, as in `Results`.
    """
    if not states[1:].any() or not states[:, 1:].any():
        return Difference(None, None, None)
    return _interval(_accuracy(states, 0).mean, _accuracy(states, -1), _accuracy(states, 1))


def _accuracy(states: Integers, more: int) -> Spread:
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
    return Spread.of(means[0] - means[1], _powers(counts.ravel(), differences.ravel()), rows)


# Areas

AREAS = {"aurc": Curve.aurc, "e_aurc": Curve.e_aurc, "augrc": Curve.augrc}
_RANGES = {"aurc": (0.0, 1.0), "e_aurc": (-0.5, 1.0), "augrc": (0.0, 0.5)}
"""What the areas can be at all; a few right rows before wrong ones that all tie lie up to 1/2 under the ideal."""


def _areas(new: Results, old: Results) -> dict[str, Difference]:
    """The areas; without right rows the ideal order is not known, and E-AURC may differ by anything."""
    raised, lowered = (_area_spreads(new, old, more) for more in (True, False))
    differences = {}
    for name, area in AREAS.items():
        value = area(new.curve) - area(old.curve)
        differences[name] = _interval(value, lowered[name], raised[name], _LIMITS[name])
    _rule_out(differences, new, old)
    if any(results.wrong.all() for results in (new, old)):
        differences["e_aurc"] = Difference(differences["e_aurc"].value, -_LIMITS["e_aurc"], _LIMITS["e_aurc"])
    return differences


LEAST_ERRORS = 10
"""Errors of each model from which on a sign may be ruled out."""


def _rule_out(differences: dict[str, Difference], new: Results, old: Results) -> None:
    """Cut intervals at 0 where Student's t of the influences excludes the other sign.

    The intervals allow for errors that were not seen. Which sign a difference has takes less, and a cut takes the true
    value away only where that is claimed wrongly.
    """
    errors = min(np.count_nonzero(new.wrong), np.count_nonzero(old.wrong))
    if errors < LEAST_ERRORS:
        return
    (a, _), (b, _) = _row_influences(new, None), _row_influences(old, None)
    for name, found in differences.items():
        value, low, high = found.value or 0.0, found.lower or 0.0, found.upper or 0.0
        variance = _sum(np.square(a[name] - b[name])) / new.losses.size**2 * errors / (errors - 1)
        if abs(value) > special.stdtrit(errors - 1, 1.0 - _TAIL) * math.sqrt(variance):
            differences[name] = Difference(value, *((max(low, 0.0), high) if value > 0 else (low, min(high, 0.0))))


def _area_spreads(new: Results, old: Results, raised: bool) -> dict[str, Spread]:
    """How the areas' differences vary with a row more: right for one model, confidently wrong for the other."""
    (a, a_values), (b, b_values) = _row_influences(new, raised), _row_influences(old, not raised)
    found = {}
    for name in AREAS:
        influence = a[name] - b[name]
        squares = influence * influence
        sums = np.array([_sum(squares), _sum(squares * influence)])
        found[name] = Spread.of(a_values[name] - b_values[name], sums, influence.size)
    return found


def _sum(values: Floats) -> float:
    """The sum, the same for any order of the rows."""
    total = Total.of(values).mean(1)
    assert total is not None
    return total


def _row_influences(results: Results, wrong: bool | None) -> tuple[dict[str, Floats], dict[str, float]]:
    """The influence of every row on each area of a curve, with one row more that comes first or none, and the areas."""
    curve, is_wrong = results.curve, results.wrong
    point = np.searchsorted(curve.losses, results.losses)
    if wrong is not None:
        curve, point, is_wrong = with_row(curve, wrong), np.append(0, point), np.append(wrong, is_wrong)
    by_row = {
        name: np.where(is_wrong, of_wrong[point], of_right[point])
        for name, (of_right, of_wrong) in influences(curve).items()
    }
    return by_row, {name: area(curve) for name, area in AREAS.items()}


def area_intervals(curve: Curve) -> dict[str, tuple[float, float]]:
    """The 95 % intervals (lower, upper) of the areas.

    >>> losses = np.arange(100.0)
    >>> lower, upper = area_intervals(Curve.of(losses, losses[:0]))["augrc"]  # 100 rows, no error
    >>> lower, round(upper, 4)  # up to 3.6 % errors may have been missed
    (0.0, 0.0356)
    """
    best, worst = ([spreads(with_row(curve, wrong))] for wrong in (False, True))
    if 2 * curve.total_errors > curve.rows:  # then a doubtful row may move the ideal, and E-AURC, more
        best.append({"e_aurc": spreads(with_row(curve, wrong=True, last=True))["e_aurc"]})
        worst.append({"e_aurc": spreads(with_row(curve, wrong=False, last=True))["e_aurc"]})
    intervals = {}
    for name, area in AREAS.items():
        value, (least, most) = area(curve), _RANGES[name]
        lower = min(found[name].quantile(_TAIL) for found in best if name in found)
        upper = max(found[name].quantile(1.0 - _TAIL) for found in worst if name in found)
        intervals[name] = min(max(lower, least), value), max(min(upper, most), value)
    if curve.total_errors == curve.rows:  # without right rows the ideal order is not known
        intervals["e_aurc"] = _RANGES["e_aurc"]
    return intervals


def with_row(curve: Curve, wrong: bool, last: bool = False) -> Curve:
    """The curve with one more row, which ties with the smallest loss, or with the largest (`last`).

    In front of all others it would be a point of its own. Where many rows tie at the smallest loss the trapezoid from
    there to the next point would be large however little the row weighs: with such data AURC has no interval.
    """
    row = curve.ordered[-1:] if last else curve.ordered[:1]
    ordered, errors = (
        np.concatenate([losses, row] if last else [row, losses]) for losses in (curve.ordered, curve.wrong)
    )
    return Curve(ordered, errors if wrong else curve.wrong)


def spreads(curve: Curve) -> dict[str, Spread]:
    """How the areas vary when the rows have random weights."""
    blocks, wrong = (np.diff(counts, prepend=0).astype(np.float64) for counts in (curve.accepted, curve.errors))
    found = {}
    for name, (of_right, of_wrong) in influences(curve).items():
        sums = _powers(blocks - wrong, of_right) + _powers(wrong, of_wrong)
        found[name] = Spread.of(AREAS[name](curve), sums, curve.rows)
    return found


def _powers(rows: Floats | Integers, influence: Floats) -> Floats:
    """Sums over rows of the squares and of the cubes."""
    squares = rows * influence * influence
    return np.array([np.sum(squares), np.sum(squares * influence)])


def influences(curve: Curve) -> dict[str, tuple[Floats, Floats]]:
    """The influence of a right and of a wrong row on each area, at each point; over all rows their sum is 0."""
    rows = curve.rows
    # one more point at each end, the same as the first and the last
    accepted, errors = (np.pad(counts.astype(np.float64), 1, "edge") for counts in (curve.accepted, curve.errors))
    risk = errors / accepted
    before = accepted[:-2].copy()
    before[0] = -before[0]  # the first risk holds from coverage 0
    # derivatives of AURC in the errors and in the rows up to each point; a row counts in all later points
    in_errors = (accepted[2:] - before) / (2.0 * rows) / accepted[1:-1]
    in_rows = (risk[:-2] - risk[2:]) / (2.0 * rows)
    in_rows[-1] = 0.0
    in_rows -= risk[1:-1] * in_errors
    in_rows, in_errors = (np.cumsum(slopes[::-1])[::-1] for slopes in (in_rows, in_errors))
    mean = curve.aurc() - 0.5 * float(risk[-1] + risk[max(risk.size - 3, 1)])
    of_right = rows * in_rows - mean
    of_wrong = of_right + rows * in_errors
    error = curve.total_errors / rows
    slope = -math.log1p(-error) if error < 1 else 0.0  # of the ideal area in the error rate
    blocks, wrong = (np.diff(counts[1:-1], prepend=0.0) for counts in (accepted, errors))
    # what is counted up to the middle of each tie block
    middle, errors_before = ((c[1:-1] - 0.5 * b) / rows for c, b in ((accepted, blocks), (errors, wrong)))
    return {
        "aurc": (of_right, of_wrong),
        "e_aurc": (of_right + slope * error, of_wrong - slope * (1.0 - error)),
        "augrc": (errors_before - 2.0 * curve.augrc(), errors_before + (1.0 - middle) - 2.0 * curve.augrc()),
    }


class Spread(Struct, frozen=True):
    """A figure of rows with random weights: its mean, variance and third central moment."""

    mean: float
    variance: float
    third: float

    @classmethod
    def of(cls, value: float, powers: Floats, rows: int) -> Spread:
        """From a figure and the sums of the squares and of the cubes of its influences, whose sum is 0.

        For weights uniform on the simplex of N rows, var(sum w x) = mean(x^2) / (N + 1), and the third central moment
        is 2 mean(x^3) / ((N + 1) (N + 2)).
        """
        squares, cubes = powers.tolist()
        variance = squares / rows / (rows + 1)
        third = 2.0 * cubes / rows / ((rows + 1) * (rows + 2))
        return cls(value, variance, third)

    def quantile(self, q: float) -> float:
        """The value that is not exceeded with chance q."""
        if self.variance <= 0.0:
            return self.mean
        deviation = math.sqrt(self.variance)
        return self.mean + deviation * skewed_quantile(self.third / self.variance / deviation, q)


def order_difference(losses: Floats, scores: Floats, right: int, compared: int = 1) -> Difference:
    """The AUGRC of a score minus that of the loss; below 0 the score, low where a row is accepted first, orders better.

    Arrays with an entry per row, the `right` rows first; `compared` scores are judged together.

    >>> losses, wrong = np.arange(200) / 200, np.arange(200) % 20 == 19
    >>> order = np.argsort(wrong, kind="stable")
    >>> ideal = order_difference(losses[order], wrong[order].astype(float), right=190)
    >>> ideal.upper < 0
    True
    """
    wrong = np.arange(losses.size) >= right
    order = np.lexsort((scores, losses, wrong))  # sums have the same bits for any order of the rows
    losses, scores = losses[order], scores[order]
    (mine, ours), (yours, theirs) = (
        _row_influences(Results(values, wrong, ~wrong), None) for values in (losses, scores)
    )
    error = float(np.std(yours["augrc"] - mine["augrc"])) / math.sqrt(losses.size)
    reach = float(special.ndtri(1.0 - (1.0 - CONFIDENCE) / 2 / compared)) * error
    value = theirs["augrc"] - ours["augrc"]
    return Difference(value, value - reach, value + reach)
