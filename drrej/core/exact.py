"""Sums without rounding.

A floating-point sum depends on the order of its terms, so a figure would change with the block size, the number
of threads or a shuffle of the rows. Here a sum is an integer number of units of 2**-UNIT_BITS: it is exact, so
partial sums may be merged in any order and the figure is the same to the bit.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

UNIT_BITS = 1074
"""Every finite float64 is a whole number of units of 2**-1074."""

_PIECE = 1 << 16
_MAX_VALUE = float(1 << 20)
_STEP = 36


class Total:
    """An exact running sum of float64 values; infinite or NaN terms make it non-finite."""

    __slots__ = ("finite", "units")

    def __init__(self, units: int = 0, finite: bool = True) -> None:
        self.units = units
        self.finite = finite

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Total:
        """The exact sum of an array."""
        total = cls()
        scratch = np.empty((2, min(values.size, _PIECE)))
        for start in range(0, values.size, _PIECE):
            piece = values[start : start + _PIECE]
            total.units += _piece_units(piece, scratch[:, : piece.size], total)
        return total

    def __add__(self, other: Total) -> Total:
        return Total(self.units + other.units, self.finite and other.finite)

    def mean(self, count: int) -> float | None:
        """The correctly rounded mean, or None when there is none."""
        if not self.finite or count == 0:
            return None
        try:
            return self.units / (count << UNIT_BITS)
        except OverflowError:
            return None


def _piece_units(values: NDArray[np.float64], scratch: NDArray[np.float64], total: Total) -> int:
    """Units of a few thousand values.

    Adding and subtracting c = 1.5 * 2**52 * grid rounds each value to a multiple of the grid without error. With
    at most 2**16 values of at most 2**36 grid steps every partial sum fits the 53 bits of a float64, so `sum` is
    exact. What is left is at most half a grid step and goes through the next, 2**36 times finer grid.
    """
    largest = max(float(values.max()), -float(values.min()))
    if not math.isfinite(largest):
        total.finite = False
        return 0
    units = 0
    if largest > _MAX_VALUE:
        high = np.abs(values) > _MAX_VALUE
        units += sum(int(Fraction(float(x)) * (1 << UNIT_BITS)) for x in values[high])
        values = np.where(high, 0.0, values)
    rounded, rest = scratch
    rounds = 0
    grid = max(math.frexp(min(largest, _MAX_VALUE))[1] - _STEP, -UNIT_BITS)
    while largest:
        shift = math.ldexp(1.5, 52 + grid)
        np.add(values, shift, out=rounded)
        np.subtract(rounded, shift, out=rounded)
        units += int(math.ldexp(float(rounded.sum()), -grid)) << (UNIT_BITS + grid)
        values = np.subtract(values, rounded, out=rest)
        rounds += 1
        if rounds > 1:  # most values have no bits left; the small ones, which do, may need many more rounds
            values = values[np.flatnonzero(values)]
            if not values.size:
                return units
            rounded, rest = rounded[: values.size], rest[: values.size]
        largest = max(float(values.max()), -float(values.min()))  # quicker than `any`
        grid = max(math.frexp(largest)[1] - _STEP, -UNIT_BITS)  # at least so much finer than the last
    return units
