"""Intervals of the areas under a risk-coverage curve, for any number of rows and errors.

The method is that of `row_weights`. The worst row there can be is a wrong one that ties with the smallest loss, the
best a right one there. AUGRC and AURC are means over rows of (error) (weight at the row's coverage u), the weights
being 1 - u and -ln u. So a confident error counts at most once in AUGRC but up to ln n times in AURC, and AURC's upper
end lies far off where errors are few: a small share of confident errors, which n rows need not show, would move it that
much.
"""

from __future__ import annotations

import math

import numpy as np

from drrej.core.curves import Curve, RiskCoverage
from drrej.core.influence import influences
from drrej.core.intervals import CONFIDENCE
from drrej.core.row_weights import Spread
from drrej.core.types import Floats

_TAIL = (1.0 - CONFIDENCE) / 2

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
