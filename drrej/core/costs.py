"""Chow's rule on rows with labels: the cutoff of the least total cost, where a rejected row costs a review.

An accepted row costs nothing if it is right and the price of an error if it is wrong, or what a cost matrix says; a
rejected row costs the price of a review. Over the rows at hand the total at a cutoff is what the accepted rows cost,
plus a review for each of the others. Prices are the decimals that a user wrote, so that totals are added and compared
as whole numbers of a common unit, wherever these fit in 63 bits. Of equal totals the one that accepts most is chosen.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drrej.core.intervals import exact_decimal
from drrej.core.types import Floats
from drrej.records import dataclass

PER = 1000
"""Costs are told per so many rows."""

_FITS = 1 << 62


@dataclass(frozen=True)
class CostCurve:
    """After each distinct loss, the rows accepted up to there and what they cost, in units.

    A unit is `unit` of money, and a review costs `review` units.

    >>> curve = CostCurve.of(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.0, 0.0, 50.0, 0.0]), 2.0)
    >>> curve.total(curve.best()), curve.best() + 1  # two accepted, two reviews
    (4.0, 2)
    """

    losses: Floats
    accepted: NDArray[np.int64]
    spent: NDArray[Any]
    review: int | float
    unit: Fraction

    @classmethod
    def of(cls, losses: Floats, costs: Floats, review: float) -> CostCurve:
        """From the loss of each row and what it costs if it is accepted; the same for any order of the rows."""
        prices, places = np.unique(costs, return_inverse=True)
        units, paid, unit = _in_units(prices, review, losses.size)
        order = np.argsort(losses, kind="stable")
        ordered = losses[order]
        ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
        if units.dtype == np.float64:  # sums of floats depend on their order
            order = np.lexsort((costs, losses))
        return cls(ordered[ends], ends + 1, np.cumsum(units[places[order]])[ends], paid, unit)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.accepted[-1])

    @property
    def totals(self) -> NDArray[Any]:
        """The total cost at each point, in units."""
        totals: NDArray[Any] = self.spent + self.review * (self.rows - self.accepted)
        return totals

    def best(self, most: int | None = None) -> int:
        """The point of the least total cost among those that accept at most so many rows; -1 accepts none."""
        count = self.accepted.size if most is None else int(np.searchsorted(self.accepted, most, side="right"))
        totals = self.totals[:count]
        if not count or self.review * self.rows < totals.min():
            return -1
        return count - 1 - int(np.argmin(totals[::-1]))

    def total(self, point: int) -> float:
        """The total cost at a point; -1 accepts none."""
        units = self.review * self.rows if point < 0 else self.totals[point].item()
        return float(units * self.unit) if isinstance(units, int) else float(units) * float(self.unit)


def _in_units(prices: Floats, review: float, rows: int) -> tuple[NDArray[Any], int | float, Fraction]:
    """Prices and that of a review as whole numbers of a unit; as they are where these would be too large."""
    exact = [exact_decimal(price) for price in [*prices.tolist(), review]]
    scale = math.lcm(*(price.denominator for price in exact))
    units = [int(price * scale) for price in exact]
    if max(units) * rows < _FITS:
        return np.array(units[:-1], np.int64), units[-1], Fraction(1, scale)
    return prices, review, Fraction(1)
