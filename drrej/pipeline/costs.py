"""What errors and reviews cost: per row for the loss `cost`, and together for a review cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drrej.core.curves import PER, MeanCurve
from drrej.core.intervals import CONFIDENCE, mean_interval
from drrej.core.sums import Total
from drrej.core.types import Booleans, Floats
from drrej.documents.report import Cost, CostPerRow
from drrej.documents.targets import CostPoint, Saving, TotalCost
from drrej.pipeline.figures import CURVE_STEPS

_TAIL = (1.0 - CONFIDENCE) / 2
_SAVINGS = 2
"""Savings that are judged together."""


def cost_per_row(costs: Floats, expected: Floats, accepted: Booleans, prices: Sequence[float]) -> Cost:
    """Realised and expected costs per accepted row and, under `all`, per row; None without rows.

    `prices` are all that a row can cost, sorted.
    """
    paid, kept = costs[accepted], expected[accepted]
    lower = upper = None
    if paid.size:
        counts = np.bincount(np.searchsorted(prices, paid), minlength=len(prices))
        lower, upper = mean_interval(np.array(prices), counts, _TAIL)
    return Cost(
        value=Total.of(paid).mean(paid.size),
        lower=lower,
        upper=upper,
        expected=Total.of(kept).mean(kept.size),
        all=CostPerRow(value=Total.of(costs).mean(costs.size), expected=Total.of(expected).mean(expected.size)),
    )


def total_cost(losses: Floats, costs: Floats, accepted: Booleans, review: float, prices: Sequence[float]) -> TotalCost:
    """From the loss of each row, what it costs if it is accepted, and whether it is.

    `prices` are all that an accepted row can cost.
    """
    kinds = np.unique(np.asarray(prices, np.float64))
    place = np.searchsorted(kinds, costs)
    kept = np.bincount(place[accepted], minlength=kinds.size)
    left = np.bincount(place[~accepted], minlength=kinds.size)
    paid = _merged(np.append(kinds, review), np.append(kept, left.sum()))
    lower, upper = mean_interval(*paid, _TAIL)
    total = _mean(*paid)
    curve = MeanCurve.of(losses, costs)
    totals = curve.totals(review)
    accepting, rejecting = _mean(kinds, kept + left), PER * review
    # nothing is saved on an accepted row over accepting all, nor on a rejected row over rejecting all
    over_accepting = _merged(np.append(kinds - review, 0.0), np.append(left, kept.sum()))
    over_rejecting = _merged(np.append(review - kinds, 0.0), np.append(kept, left.sum()))
    return TotalCost(
        value=total,
        lower=PER * lower,
        upper=PER * upper,
        accepting_all=accepting,
        rejecting_all=rejecting,
        oracle=_mean(np.minimum(kinds, review), kept + left),
        best_cutoff=PER * float(totals[curve.cheapest(review)]) / curve.rows,
        saved_over_accepting=_saving(over_accepting, accepting - total),
        saved_over_rejecting=_saving(over_rejecting, rejecting - total),
        curve=_curve(curve, totals),
    )


def _merged(values: Floats, counts: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64]]:
    """Equal values as one."""
    kinds, places = np.unique(values, return_inverse=True)
    together = np.zeros(kinds.size, np.int64)
    np.add.at(together, places, counts)
    return kinds, together


def _mean(values: Floats, counts: NDArray[np.int64]) -> float:
    """Per 1000 rows."""
    return PER * float(np.sum(values * counts)) / int(counts.sum())


def _saving(saved: tuple[Floats, NDArray[np.int64]], value: float) -> Saving:
    lower, upper = mean_interval(*saved, _TAIL / _SAVINGS)
    return Saving(value=value, lower=PER * lower, upper=PER * upper)


def _curve(curve: MeanCurve, totals: Floats) -> tuple[CostPoint, ...]:
    """The cost where nothing is accepted, and at 50 steps of coverage, each the smallest that is reached there."""
    wanted = [-(-step * curve.rows // CURVE_STEPS) for step in range(1, CURVE_STEPS + 1)]
    points = dict.fromkeys([-1, *np.searchsorted(curve.accepted, wanted).tolist()])
    shares = {point: 0.0 if point < 0 else int(curve.accepted[point]) / curve.rows for point in points}
    return tuple(CostPoint(coverage=shares[at], cost=PER * float(totals[at]) / curve.rows) for at in points)
