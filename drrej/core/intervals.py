"""Proportions and their exact intervals, and exact comparisons of rates with limits."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drrej.core import special
from drrej.core.types import Floats

CONFIDENCE = 0.95
"""Of every two-sided interval that a report states."""


def proportion(hits: int, rows: int, independent: float = 1.0, claims: int = 1) -> dict[str, Any]:
    """A proportion with its exact two-sided 95 % (Clopper-Pearson) interval; None without rows.

    Where only a share of the rows is `independent`, the others being copies, the interval is that of fewer rows. Those
    of so many `claims` hold together.
    """
    if rows == 0:
        return {"value": None, "lower": None, "upper": None}
    tail = (1.0 - CONFIDENCE) / 2 / claims
    return {
        "value": hits / rows,
        "lower": lower_bound(hits * independent, rows * independent, tail),
        "upper": upper_bound(hits * independent, rows * independent, tail),
    }


def at_most(errors: Any, rows: Any, rate: float) -> Any:
    """P(Bin(rows, rate) <= errors), of numbers or arrays."""
    inside = special.betainc(np.maximum(np.subtract(rows, errors), 1), np.maximum(errors, 0) + 1, 1.0 - rate)
    return np.where(np.less(errors, 0), 0.0, np.where(np.less(errors, rows), inside, 1.0))


def at_least(hits: Any, rows: Any, rate: float) -> Any:
    """P(Bin(rows, rate) >= hits), of numbers or arrays."""
    inside = special.betainc(np.maximum(hits, 1), np.maximum(np.subtract(rows, hits), 0) + 1, rate)
    return np.where(np.less_equal(hits, 0), 1.0, np.where(np.less_equal(hits, rows), inside, 0.0))


def lower_bound(hits: float, rows: float, delta: float) -> float:
    """Exact Clopper-Pearson lower bound on a rate at confidence 1 - delta."""
    return float(special.betaincinv(hits, rows - hits + 1, delta)) if hits > 0 else 0.0


def upper_bound(errors: float, rows: float, delta: float) -> float:
    """Exact Clopper-Pearson upper bound on a rate at confidence 1 - delta."""
    return float(upper_bounds(np.array([errors]), np.array([rows]), np.array([delta]))[0])


def upper_bounds(errors: NDArray[np.int64], rows: NDArray[np.int64], deltas: Floats) -> Floats:
    """The bounds of many counts, each at its own delta; 1 where delta is 0."""
    inside = (errors < rows) & (deltas > 0)
    bounds = np.ones(errors.size)
    bounds[inside] = special.betaincinv(errors[inside] + 1, rows[inside] - errors[inside], 1.0 - deltas[inside])
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


_FEW = 2
_RATIO = 1.6
_LARGEST = 3.0
_STEPS = 100


def mean_interval(values: Floats, counts: NDArray[np.int64], level: float) -> tuple[float, float]:
    """Lower and upper bound of the mean, each wrong with a chance of at most `level`.

    `values` are all that are possible, `counts` how many rows have each: arrays of the same length. The proof is in
    docs/proofs.md.

    >>> low, high = mean_interval(np.array([0.0, 2.0, 50.0]), np.array([880, 100, 20]), 0.025)
    >>> round(low, 2), round(high, 2)
    (0.73, 1.87)
    """
    some, least, most = int(np.count_nonzero(values)), float(values.min()), float(values.max())
    if some <= _FEW:
        rows, part, low, high = int(counts.sum()), level / max(1, some), 0.0, 0.0
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            ends = (value * lower_bound(count, rows, part), value * upper_bound(count, rows, part))
            low, high = low + min(ends), high + max(ends)
        return max(low, least), min(high, most)
    scaled = (values - least) / (most - least)
    lower, upper = _lower(scaled, counts, level), 1.0 - _lower(1.0 - scaled, counts, level)
    return least + (most - least) * lower, least + (most - least) * upper


def _lower(values: Floats, counts: NDArray[np.int64], level: float) -> float:
    values, counts, rows = values[counts > 0], counts[counts > 0], int(counts.sum())
    bets = [math.sqrt(8.0 * math.log(1.0 / level) / rows)]
    while bets[-1] < _LARGEST:
        bets.append(bets[-1] * _RATIO)

    def is_ruled_out(mean: float) -> bool:
        with np.errstate(divide="ignore"):
            capital = [float(np.sum(counts * np.log1p(min(bet, 1.0 / mean) * (values - mean)))) for bet in bets]
        return float(np.logaddexp.reduce(capital)) - math.log(len(bets)) >= -math.log(level)

    low, high = 0.0, float(np.sum(values * counts) / rows)
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (middle, high) if is_ruled_out(middle) else (low, middle)
    return low


def sampled_share(
    rows: NDArray[np.int64], drawn: NDArray[np.int64], hits: NDArray[np.int64], level: float
) -> tuple[float | None, float, float]:
    """The share of hits among rows of several kinds, of each of which some were drawn at random; with its bounds.

    Each bound is wrong with a chance of at most `level`: exact for one kind, else by Hoeffding's bound on the moment
    generating function of a weighted sum, see docs/proofs.md. Kinds of which none was drawn may hold any share.

    >>> share, low, high = sampled_share(np.array([9000, 1000]), np.array([200, 100]), np.array([2, 10]), 0.025)
    >>> round(share, 4), round(low, 4), round(high, 4)
    (0.019, 0.0035, 0.0554)
    """
    weights, seen = rows / max(int(rows.sum()), 1), drawn > 0
    unseen = float(weights[~seen].sum())
    weights, drawn, hits = weights[seen], drawn[seen], hits[seen]
    if not weights.size:
        return None, 0.0, 1.0
    most, total = float(weights.sum()), int(drawn.sum())
    share = float(np.sum(weights * hits / drawn))
    if weights.size == 1:
        low, high = (most * bound(int(hits[0]), total, level) for bound in (lower_bound, upper_bound))
    else:
        unit = total * float((weights / drawn).max())  # the sum of the weighted rows is at most that
        mean = min(share / unit, 1.0)  # up to rounding
        low, high = unit * _chernoff(mean, total, level, 0.0), unit * _chernoff(mean, total, level, 1.0)
    return share / most, low, min(high, most) + unseen


def _chernoff(mean: float, rows: int, level: float, end: float) -> float:
    """The rate towards an end from which a mean of so many rows departs so far with a chance of at most `level`."""
    inside, outside = mean, end
    for _ in range(_STEPS):
        middle = 0.5 * (inside + outside)
        if middle in (inside, outside):  # at once where the mean is the end itself
            break
        likely = special.xlogy(mean, mean / middle) + special.xlogy(1.0 - mean, (1.0 - mean) / (1.0 - middle))
        inside, outside = (middle, outside) if rows * likely <= -math.log(level) else (inside, middle)
    return outside


_NORMAL_BELOW = 1e-5
"""A skewness that moves no quantile of use by more than 1e-4."""


def skewed_quantile(skewness: float, q: float) -> float:
    """The value that a standardised gamma distribution (Pearson's type III) does not exceed with chance q.

    Mean 0, variance 1 and a given skewness: few equal errors have it nearly exactly, at 0 it is the normal one.

    >>> round(1.0 + skewed_quantile(2.0, 0.975), 4)  # a standard exponential: -ln 0.025
    3.6889
    """
    if abs(skewness) < _NORMAL_BELOW:
        return float(special.ndtri(q))
    shape = 4.0 / (skewness * skewness)
    if skewness > 0:
        return (float(special.gammaincinv(shape, q)) - shape) / math.sqrt(shape)
    return (shape - float(special.gammaincinv(shape, 1.0 - q))) / math.sqrt(shape)


def skewed_tails(skewness: float, z: float) -> tuple[float, float]:
    """The chances of a value of at most z and of at least z, of the same distribution."""
    if abs(skewness) < _NORMAL_BELOW:
        return float(special.ndtr(z)), float(special.ndtr(-z))
    shape = 4.0 / (skewness * skewness)
    x = max(shape + math.copysign(z, skewness * z) * math.sqrt(shape), 0.0)
    below, above = float(special.gammainc(shape, x)), float(special.gammaincc(shape, x))
    return (below, above) if skewness > 0 else (above, below)
