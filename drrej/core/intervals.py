"""Proportions and their exact intervals, and exact comparisons of rates with limits."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drrej.core.types import Floats

CONFIDENCE = 0.95
"""Of every two-sided interval that a report states."""


def proportion(hits: int, rows: int) -> dict[str, float | None]:
    """A proportion with its exact two-sided 95 % (Clopper-Pearson) interval; None without rows."""
    if rows == 0:
        return {"value": None, "lower": None, "upper": None}
    tail = (1.0 - CONFIDENCE) / 2
    return {
        "value": hits / rows,
        "lower": lower_bound(hits, rows, tail),
        "upper": upper_bound(hits, rows, tail),
    }


def lower_bound(hits: int, rows: int, delta: float) -> float:
    """Exact Clopper-Pearson lower bound on a rate at confidence 1 - delta."""
    from drrej.core.special import betaincinv

    if hits <= 0:
        return 0.0
    return float(betaincinv(hits, rows - hits + 1, delta))


def upper_bound(errors: int, rows: int, delta: float) -> float:
    """Exact Clopper-Pearson upper bound on a rate at confidence 1 - delta."""
    from drrej.core.special import betaincinv

    if errors >= rows:
        return 1.0
    return float(betaincinv(errors + 1, rows - errors, 1.0 - delta))


def upper_bounds(errors: NDArray[np.int64], rows: NDArray[np.int64], deltas: Floats) -> Floats:
    """`upper_bound` of many counts, each at its own delta; 1 where delta is 0."""
    from drrej.core.special import betaincinv

    inside = (errors < rows) & (deltas > 0)
    bounds = np.ones(errors.size)
    bounds[inside] = betaincinv(errors[inside] + 1, rows[inside] - errors[inside], 1.0 - deltas[inside])
    return bounds


def exact_decimal(number: float) -> Fraction:
    """The decimal that a user wrote: 0.07 is 7/100, not the binary number next to it."""
    return Fraction(repr(float(number)))  # numpy's floats have another repr


def rate_at_most(hits: NDArray[np.int64], rows: NDArray[np.int64], limit: Fraction) -> NDArray[np.bool_]:
    """Hits / rows <= limit, decided exactly."""
    numerator, denominator = limit.as_integer_ratio()
    if max(numerator, denominator) * max(int(rows.max()), int(hits.max())) < 1 << 62:
        return hits * denominator <= rows * numerator
    excess = hits - float(limit) * rows
    held: NDArray[np.bool_] = excess <= 0
    for i in np.flatnonzero(np.abs(excess) <= 1e-9 * rows):
        held[i] = int(hits[i]) * denominator <= int(rows[i]) * numerator
    return held


def json_number(value: Any) -> float | None:
    """A figure as JSON holds it: None for NaN and infinities."""
    number = float(value)
    return number if np.isfinite(number) else None
