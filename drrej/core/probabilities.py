"""Rows of probabilities, read without trusting them.

A row is good when its values are not negative and sum to 1 within their own rounding; it is then divided by its sum.
What the rounding is, the values tell: they are decimals (0.333, 0.667), or numbers of a narrow type (float16,
bfloat16, float32) whatever type they are stored in. Each row is judged by itself, so that the verdict and the bits do
not depend on its neighbours, the block, the layout or the type: all arithmetic is float64, and sums have no order.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from drrej.core.types import AnyFloats, Booleans, Floats
from drrej.records import dataclass

LOOSEST = 0.1
"""Rounding many classes to few decimals can lose any share of a row; a sum further from 1 is never taken as right."""

LOG_TOLERANCE = 1e-2
"""Logarithms with two decimals, or in float16, sum to 1 within this."""

_ROUNDING = {64: (1e-6, 2.0**-53), 32: (1e-4, 2.0**-24), 16: (5e-3, 2.0**-11)}
"""By the bits of a type: what a softmax computed in it may leave of the sum, and its unit roundoff."""

_BFLOAT16 = (8e-3, 2.0**-9)

_DECIMALS = range(2, 13)
"""Grids that are looked for; on the grid of one decimal a row of 20 classes could sum to anything from 0 to 2."""

_CHUNK = 1 << 15
_SUM_BITS = 30


class Verdict(IntEnum):
    """What a row is; everything but `GOOD` is bad."""

    GOOD = 0
    NOT_FINITE = 1
    NEGATIVE = 2
    ABOVE_ONE = 3
    OFF_SUM = 4
    NO_MASS = 5


_LOGITS = "if these are logits, say `input=logits`"
_TEXTS = {
    Verdict.NOT_FINITE: ("NaN or infinity among the probabilities", "drop or fix these rows"),
    Verdict.NEGATIVE: ("a negative probability", _LOGITS),
    Verdict.ABOVE_ONE: (
        "a probability above 1",
        f"`normalize=True` divides counts or percentages by their sum; {_LOGITS}",
    ),
    Verdict.OFF_SUM: (
        "probabilities that do not sum to 1 within their rounding",
        "is every class there? if so, `normalize=True` divides each row by its sum",
    ),
    Verdict.NO_MASS: ("no probability above 0", "drop or fix these rows"),
}


@dataclass(frozen=True)
class BadRows:
    """Rows of a block that are bad for one reason: what they have, what to do, and what the first of them holds."""

    rows: NDArray[np.intp]
    what: str
    remedy: str
    example: str


@dataclass(frozen=True)
class ProbabilityRows:
    """Probabilities (rows x classes, float64) that sum to 1; bad rows have equal ones as placeholders.

    `verdicts` holds a `Verdict` for each row, `sums` the sum of each row as it was stored.
    """

    values: Floats
    verdicts: NDArray[np.uint8]
    sums: Floats

    def bad_rows(self) -> Iterator[BadRows]:
        """Bad rows, reason by reason."""
        for verdict, (what, remedy) in _TEXTS.items():
            rows = np.flatnonzero(self.verdicts == verdict)
            if rows.size:
                example = f"its sum is {self.sums[rows[0]]:.8g}" if verdict is Verdict.OFF_SUM else ""
                yield BadRows(rows, what, remedy, example)


def read_probabilities(scores: AnyFloats, normalize: bool = False) -> ProbabilityRows:
    """Read rows (rows x classes) of probabilities in any floating-point type and layout.

    With `normalize` rows of numbers that are not negative, such as counts, are divided by their sum whatever it is.

    >>> rows = read_probabilities(np.array([[0.667, 0.167, 0.167], [0.6, 0.3, 0.3], [0.5, 0.25, 0.25]]))
    >>> rows.verdicts.tolist(), rows.sums.round(12).tolist()
    ([0, 4, 0], [1.001, 1.2, 1.0])
    """
    rows, classes = scores.shape
    read = ProbabilityRows(np.empty((rows, classes)), np.empty(rows, np.uint8), np.empty(rows))
    step = max(1, _CHUNK // max(classes, 1))
    for start in range(0, rows, step):
        chunk = slice(start, start + step)
        values = read.values[chunk]
        values[:] = scores[chunk]
        sums = read.sums[chunk] = row_sums(values)
        verdicts, divisors = _judge(values, sums, np.finfo(scores.dtype).bits, normalize)
        read.verdicts[chunk] = verdicts
        _divide(values, divisors, verdicts)
    return read


def read_log_probabilities(scores: AnyFloats, normalize: bool = False) -> ProbabilityRows:
    """Read rows of logarithms of probabilities; -inf is a probability of 0.

    >>> read_log_probabilities(np.log(np.array([[0.5, 0.25, 0.25]]))).values.round(12).tolist()
    [[0.5, 0.25, 0.25]]
    """
    logs = np.array(scores, np.float64, order="C")
    top = logs.max(axis=1, initial=-np.inf)
    usable = np.isfinite(top)
    with np.errstate(invalid="ignore", under="ignore"):
        values = np.exp(logs - (np.where(usable, top, 0.0)[:, None] if normalize else 0.0), out=logs)
    sums = row_sums(values)
    verdicts = np.full(sums.size, Verdict.GOOD, np.uint8)
    if not normalize:
        with np.errstate(invalid="ignore"):
            verdicts[~(np.abs(sums - 1.0) <= LOG_TOLERANCE)] = Verdict.OFF_SUM
            verdicts[top > LOG_TOLERANCE] = Verdict.ABOVE_ONE
    verdicts[~usable] = Verdict.NOT_FINITE
    verdicts[top == -np.inf] = Verdict.NO_MASS
    _divide(values, sums.copy(), verdicts)
    return ProbabilityRows(values, verdicts, sums)


def read_binary_probabilities(scores: AnyFloats) -> ProbabilityRows:
    """Read one probability per row, that of class 1, as rows of two classes.

    >>> read_binary_probabilities(np.array([0.25, 1.0])).values.tolist()
    [[0.75, 0.25], [0.0, 1.0]]
    """
    stored = np.array(scores, np.float64)
    verdicts = np.full(stored.size, Verdict.GOOD, np.uint8)
    with np.errstate(invalid="ignore"):
        verdicts[stored < 0] = Verdict.NEGATIVE
        verdicts[stored > 1.0 + _ROUNDING[64][0]] = Verdict.ABOVE_ONE
        verdicts[~np.isfinite(stored)] = Verdict.NOT_FINITE
        second = np.minimum(stored, 1.0)
    values = np.stack([1.0 - second, second], axis=1)
    values[verdicts != Verdict.GOOD] = 0.5
    return ProbabilityRows(values, verdicts, stored)


def row_sums(values: Floats) -> Floats:
    """Sums of the rows (rows x classes), the same for any order of the classes.

    Each value is split into multiples of 2**-30 and 2**-60. Sums of such whole numbers below 2**53 have no rounding,
    so only what lies below 2**-61 is lost of each value up to 1 (classes up to 2**22).
    """
    unit = float(1 << _SUM_BITS)
    ones = np.ones(values.shape[1])
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = values * unit
        high = np.rint(scaled)
        np.subtract(scaled, high, out=scaled)
        np.multiply(scaled, unit, out=scaled)
        low = np.rint(scaled, out=scaled)
        sums: Floats = (high @ ones + low @ ones / unit) / unit  # a product with ones is the quickest sum of short rows
    return sums


def _divide(values: Floats, divisors: Floats, verdicts: NDArray[np.uint8]) -> None:
    bad = np.flatnonzero(verdicts)
    if bad.size:
        values[bad] = 1.0 / values.shape[1]
        divisors[bad] = 1.0
    np.divide(values, divisors[:, None], out=values)


def _judge(values: Floats, sums: Floats, bits: int, normalize: bool) -> tuple[NDArray[np.uint8], Floats]:
    """Verdicts, and what the rows are to be divided by; rows that `normalize` saves are scaled by a power of 2."""
    verdicts, divisors = np.full(sums.size, Verdict.GOOD, np.uint8), sums.copy()
    with np.errstate(invalid="ignore"):
        off = np.flatnonzero(~(np.abs(sums - 1.0) <= _ROUNDING[bits][0]))
        if not values.min(initial=0.0) >= 0:  # NaN as well
            verdicts[(values < 0).any(axis=1)] = Verdict.NEGATIVE
    if off.size:
        columns = np.ascontiguousarray(values[off].T)  # classes first: sums and extremes of short rows are quicker
        verdicts[off] = _verdicts(columns, sums[off], normalize)
    if normalize:
        saved = off[verdicts[off] == Verdict.GOOD]
        _, exponents = np.frexp(values[saved].max(axis=1, initial=0.0))
        values[saved] = np.ldexp(values[saved], -exponents[:, None])  # the largest in [1/2, 1): the sum is exact
        divisors[saved] = row_sums(values[saved])
    return verdicts, divisors


def _verdicts(columns: Floats, sums: Floats, normalize: bool) -> NDArray[np.uint8]:
    """Verdicts on rows (here classes x rows) whose sums are not 1 within the rounding of the stored type."""
    with np.errstate(invalid="ignore"):
        lowest, largest = columns.min(axis=0), columns.max(axis=0)
        verdicts = np.full(sums.size, Verdict.OFF_SUM, np.uint8)
        if normalize:
            verdicts[:] = Verdict.GOOD
        else:
            verdicts[_within_rounding(columns, sums)] = Verdict.GOOD
            verdicts[(largest > 1.0) & (verdicts != Verdict.GOOD)] = Verdict.ABOVE_ONE
        verdicts[largest <= 0] = Verdict.NO_MASS
        verdicts[lowest < 0] = Verdict.NEGATIVE
        verdicts[~(np.isfinite(lowest) & np.isfinite(largest))] = Verdict.NOT_FINITE
    return verdicts


def _within_rounding(columns: Floats, sums: Floats) -> Booleans:
    """Which rows sum to 1 within what their rounding allows."""
    excess = sums - 1.0
    tolerance, unit = _type_rounding(columns)
    good = np.abs(excess) <= tolerance
    open_rows = np.flatnonzero(~good & (np.abs(excess) <= LOOSEST + tolerance))
    for decimals in _DECIMALS:
        if not open_rows.size:
            break
        scale = 10.0**decimals
        scaled = columns[:, open_rows] * scale
        # A decimal as its type stores it: off by half a unit in its last place, and as much again from the product.
        slack = scaled * (2.0 * unit[open_rows]) + 1e-9
        on_grid = (np.abs(scaled - np.rint(scaled)) <= slack).all(axis=0) & (scale * unit[open_rows] <= 0.5)
        found = open_rows[on_grid]
        # A value may have been rounded by half a step either way, a 0 only downwards.
        half = 0.5 / scale
        most = np.minimum(np.count_nonzero(columns[:, found], axis=0) * half, LOOSEST) + tolerance[found]
        least = min(len(columns) * half, LOOSEST) + tolerance[found]
        good[found] = (excess[found] <= most) & (-excess[found] <= least)
        open_rows = open_rows[~on_grid]
    return good


def _type_rounding(columns: Floats) -> tuple[Floats, Floats]:
    """For each row the tolerance of its sum and the unit roundoff of the narrowest type that holds its values."""
    rows = columns.shape[1]
    tolerance, unit = np.full(rows, _ROUNDING[64][0]), np.full(rows, _ROUNDING[64][1])
    with np.errstate(over="ignore", invalid="ignore"):
        single = columns.astype(np.float32)
        held = np.flatnonzero((single == columns).all(axis=0))
        tolerance[held], unit[held] = _ROUNDING[32]
        single = single[:, held]
        in_half = held[(single.astype(np.float16) == single).all(axis=0)]
        tolerance[in_half], unit[in_half] = _ROUNDING[16]
        in_brain = held[(single.view(np.uint32) & 0xFFFF == 0).all(axis=0)]
        tolerance[in_brain], unit[in_brain] = _BFLOAT16
    return tolerance, unit
