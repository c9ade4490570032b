"""What every room shares: names of array types and of choices, the base of what documents hold, and sums over rows.

A `Total` has no rounding, being a whole number of units of 2**-1074: the same bits in any order and any blocks.
"""

from __future__ import annotations

from operator import add
from typing import Any, Literal, Self

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple
from numpy.typing import NDArray

Floats = NDArray[np.float64]
AnyFloats = NDArray[np.floating[Any]]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Precision = Literal["auto", "float64"]
InputKind = Literal["logits", "probs", "log-probs", "scores"]


class Stored(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What documents may hold: read with every key and type checked; a field that has its default is not written."""


UNIT_BITS = 1074
"""Every finite float64 is a whole number of units of 2**-1074."""

_PIECE = 1 << 16
"""Values that are summed together: their high and low halves, of 27 bits at most, have sums that float64 holds."""


class Total(Struct, frozen=True):
    """An exact running sum of float64 values; infinite or NaN terms make it non-finite."""

    units: int = 0
    finite: bool = True

    @classmethod
    def of(cls, values: Floats) -> Total:
        """The exact sum of an array."""
        units = 0  # of 2**-(1074 + 53): a mantissa has 53 bits
        for start in range(0, values.size, _PIECE):
            mantissa, exponent = np.frexp(values[start : start + _PIECE])
            if not np.isfinite(mantissa).all():
                return cls(0, finite=False)
            exponent += UNIT_BITS
            mantissa *= 1 << 26
            high = np.trunc(mantissa)
            mantissa -= high
            mantissa *= 1 << 27
            for part, shift in ((high, 27), (mantissa, 0)):
                by_exponent = np.bincount(exponent, part)
                for place in np.flatnonzero(by_exponent).tolist():
                    units += int(by_exponent[place]) << (place + shift)
        return cls(units >> 53)

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


class Sums(Struct, frozen=True):
    """Counts and sums of some rows; those of other rows are added field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(add, astuple(self), astuple(other)))
