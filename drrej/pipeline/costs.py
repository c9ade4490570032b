"""Expected and realised cost of labelled rows, for the loss `cost`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drrej.core.curves import PER, MeanCurve
from drrej.core.intervals import CONFIDENCE, mean_interval
from drrej.core.sums import Total
from drrej.core.types import Booleans, Floats
from drrej.documents.costs import CostPoint, Saving, TotalCost
from drrej.documents.report import Cost, CostPerRow
from drrej.pipeline.figures import CURVE_STEPS
from drrej.records import dataclass


@dataclass(frozen=True)
class CostTally:
    """Sums of costs over all and over accepted rows; adds up over blocks exactly."""

    rows: int
    accepted: int
    realised: Total
    expected: Total
    realised_accepted: Total
    expected_accepted: Total
    paid: Counter[float]
    """How many accepted rows cost so much."""

    @classmethod
    def of(cls, realised: Floats, expected: Floats, accepted: Booleans) -> CostTally:
        """Of a block: what each row cost in the end, what it was expected to cost, and whether it is accepted."""
        return cls(
            int(realised.size),
            int(np.count_nonzero(accepted)),
            Total.of(realised),
            Total.of(expected),
            Total.of(realised[accepted]),
            Total.of(expected[accepted]),
            Counter(realised[accepted].tolist()),
        )

    def __add__(self, other: CostTally) -> CostTally:
        return CostTally(
            self.rows + other.rows,
            self.accepted + other.accepted,
            self.realised + other.realised,
            self.expected + other.expected,
            self.realised_accepted + other.realised_accepted,
            self.expected_accepted + other.expected_accepted,
            self.paid + other.paid,
        )

    def figures(self, prices: Sequence[float]) -> Cost:
        """Costs per accepted row and, under `all`, per row; None without rows. `prices` are all that a row can cost."""
        lower = upper = None
        if self.accepted:
            counts = np.array([self.paid[price] for price in prices], np.int64)
            lower, upper = mean_interval(np.array(prices), counts, (1.0 - CONFIDENCE) / 2)
        return Cost(
            value=self.realised_accepted.mean(self.accepted),
            lower=lower,
            upper=upper,
            expected=self.expected_accepted.mean(self.accepted),
            all=CostPerRow(value=self.realised.mean(self.rows), expected=self.expected.mean(self.rows)),
        )


_SAVINGS = 2


def total_cost(losses: Floats, costs: Floats, accepted: Booleans, review: float, prices: Sequence[float]) -> TotalCost:
    """The section of the report, from the loss of each row, what it costs if it is accepted, and whether it is.

    `prices` are all that an accepted row can cost.
    """
    kinds = np.unique(np.asarray(prices, np.float64))
    place = np.searchsorted(kinds, costs)
    kept = np.bincount(place[accepted], minlength=kinds.size)
    left = np.bincount(place[~accepted], minlength=kinds.size)
    everything = kept + left
    tail = (1.0 - CONFIDENCE) / 2
    paid = _merged(np.append(kinds, review), np.append(kept, left.sum()))
    lower, upper = mean_interval(*paid, tail)
    total = _mean(*paid)
    curve = MeanCurve.of(losses, costs)
    totals = curve.totals(review)
    accepting, rejecting = _mean(kinds, everything), PER * review
    # nothing is saved on an accepted row over accepting all, nor on a rejected row over rejecting all
    over_accepting = _merged(np.append(kinds - review, 0.0), np.append(left, kept.sum()))
    over_rejecting = _merged(np.append(review - kinds, 0.0), np.append(kept, left.sum()))
    return TotalCost(
        value=total,
        lower=PER * lower,
        upper=PER * upper,
        accepting_all=accepting,
        rejecting_all=rejecting,
        oracle=_mean(np.minimum(kinds, review), everything),
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


def _saving(found: tuple[Floats, NDArray[np.int64]], value: float) -> Saving:
    lower, upper = mean_interval(*found, (1.0 - CONFIDENCE) / 2 / _SAVINGS)
    return Saving(value=value, lower=PER * lower, upper=PER * upper)


def _curve(curve: MeanCurve, totals: Floats) -> tuple[CostPoint, ...]:
    """The cost where nothing is accepted, and at 50 steps of coverage, each the smallest that is reached there."""
    wanted = [-(-step * curve.rows // CURVE_STEPS) for step in range(1, CURVE_STEPS + 1)]
    points = dict.fromkeys([-1, *np.searchsorted(curve.accepted, wanted).tolist()])
    shares = {point: 0.0 if point < 0 else int(curve.accepted[point]) / curve.rows for point in points}
    return tuple(CostPoint(coverage=shares[at], cost=PER * float(totals[at]) / curve.rows) for at in points)
