"""Sums without rounding.

A floating-point sum depends on the order of its terms, so a figure would change with the block size, the number
of threads or a shuffle of the rows. Here a sum is an integer number of units of 2**-UNIT_BITS: it is exact, so
partial sums may be merged in any order and the figure is the same to the bit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from drrej.records import dataclass

UNIT_BITS = 1074
"""Every finite float64 is a whole number of units of 2**-1074."""

_PIECE = 1 << 16
_MAX_VALUE = float(1 << 20)
_STEP = 36

_SUMMED = 1 << 13
"""Rows that `Sums` takes at once: their values stay in the cache."""
_TOP = 10
_GRIDS = (-30, -70, -110)
"""Grids of `Sums`, in powers of two, for values below 2**_TOP: they hold every bit of a value of 2**-58 or more."""
_UP = -np.array(_GRIDS)[:, None]
_FLUSHED = 1 << 9
"""Pieces after which steps of a grid, counted in int64, go into the totals."""


class Summand(Protocol):
    """Quantities of each row that are to be summed exactly."""

    @property
    def lines(self) -> int:
        """How many."""

    def fill(self, part: slice, values: NDArray[np.float64]) -> None:
        """Write those of some rows into `values` (lines x rows)."""


class Total:
    """An exact running sum of float64 values; infinite or NaN terms make it non-finite."""

    __slots__ = ("finite", "units")

    def __init__(self, units: int = 0, finite: bool = True) -> None:
        self.units = units
        self.finite = finite

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Total:
        """The exact sum of an array."""
        (total,), _ = sums_of(values.size, [_Plain(values)])
        return total

    @classmethod
    def of_any(cls, values: NDArray[np.float64]) -> Total:
        """The same for values of any size."""
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


@dataclass(frozen=True)
class _Plain:
    """An array as it is."""

    array: NDArray[np.float64]
    lines = 1

    def fill(self, part: slice, values: NDArray[np.float64]) -> None:
        values[0] = self.array[part]


def sums_of(
    rows: int, summands: Sequence[Summand], chosen: NDArray[np.bool_] | None = None
) -> tuple[list[Total], list[Total]]:
    """Exact sums of all lines over all rows, and of those of the first summand over the chosen rows.

    Calls of numpy are few and large, and what they work on stays in the cache.
    """
    ends = list(itertools.accumulate(summand.lines for summand in summands))
    sums = _Sums(ends[-1], ends[0])
    room = np.empty((2, ends[-1], min(rows, _SUMMED)))
    for start in range(0, rows, _SUMMED):
        part = slice(start, min(start + _SUMMED, rows))
        values, scratch = room[:, :, : part.stop - start]
        for summand, end in zip(summands, ends, strict=True):
            summand.fill(part, values[end - summand.lines : end])
        sums.add(values, None if chosen is None else chosen[part], scratch)
    return sums.totals()


class _Sums:
    """Exact sums of several quantities over the same rows, of the first `split` also over chosen rows.

    The grids do not depend on the values: 2**13 values of at most 2**40 steps of a grid have sums of 53 bits, so every
    partial sum is exact, in whatever order a matrix product makes it. Other values wait for `Total.of_any`.
    """

    def __init__(self, quantities: int, split: int) -> None:
        self._split = split
        self._steps = np.zeros((len(_GRIDS), quantities + split), np.int64)
        self._pieces = 0
        self._totals = [Total() for _ in range(quantities + split)]
        self._others: list[list[NDArray[np.float64]]] = [[] for _ in range(quantities + split)]

    def add(self, values: NDArray[np.float64], chosen: NDArray[np.bool_] | None, rounded: NDArray[np.float64]) -> None:
        """Add some rows (quantities x rows); `values` are used up, `rounded` is room for as many."""
        if not max(float(values.max()), -float(values.min())) < 1 << _TOP:
            self._put_off(values, chosen)
            return
        split, quantities = self._split, len(values)
        weights = None if chosen is None else chosen.astype(np.float64)
        found = np.zeros((len(_GRIDS), quantities + split))
        for steps, grid in zip(found, _GRIDS, strict=True):
            shift = math.ldexp(1.5, 52 + grid)
            np.add(values, shift, out=rounded)
            np.subtract(rounded, shift, out=rounded)
            np.subtract(values, rounded, out=values)
            np.add.reduce(rounded, axis=1, out=steps[:quantities])
            if weights is not None:
                np.matmul(rounded[:split], weights, out=steps[quantities:])
        self._steps += np.ldexp(found, _UP).astype(np.int64)
        if values.any():  # bits of very small values
            self._put_off(values, chosen)
        self._pieces += 1
        if self._pieces == _FLUSHED:
            self._flush()

    def _put_off(self, values: NDArray[np.float64], chosen: NDArray[np.bool_] | None) -> None:
        for number, line in enumerate(values):
            rows = np.flatnonzero(line)
            if rows.size:
                self._others[number].append(line[rows])
                if chosen is not None and number < self._split:
                    self._others[len(values) + number].append(line[rows[chosen[rows]]])

    def _flush(self) -> None:
        for number, (total, others) in enumerate(zip(self._totals, self._others, strict=True)):
            for grid, steps in zip(_GRIDS, self._steps[:, number].tolist(), strict=True):
                total.units += steps << (UNIT_BITS + grid)
            if others:
                rest = Total.of_any(np.concatenate(others))
                total.units, total.finite = total.units + rest.units, total.finite and rest.finite
                others.clear()
        self._steps[:] = 0
        self._pieces = 0

    def totals(self) -> tuple[list[Total], list[Total]]:
        """The sums over all rows, and over the chosen ones."""
        self._flush()
        quantities = len(self._totals) - self._split
        return self._totals[:quantities], self._totals[quantities:]


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
