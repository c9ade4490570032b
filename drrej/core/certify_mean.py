"""Guarantees for the mean of any loss between 0 and a limit: a cost, a clipped error of a regression, a column.

The test bets against "the mean is at least R" (Waudby-Smith and Ramdas 2024); the proof is in docs/proofs.md.
"""

from __future__ import annotations

import math

import numpy as np

from drrej.core.certify import Certificate, spread, tie_order, walk
from drrej.core.types import Floats
from drrej.errors import Infeasible, OptionError

_BET_RATIO = 1.6


def mean_upper_bound(values: Floats, limit: float, delta: float) -> float:
    """An upper bound of the mean of values in [0, `limit`] at confidence 1 - delta, for rows chosen beforehand.

    The same for any order of the values.

    >>> float(round(mean_upper_bound(np.full(500, 0.3), 1.0, 0.05), 3))  # they do not vary
    0.306
    """
    scaled = np.sort(_scaled(values, limit, delta))
    if not scaled.size:
        return limit
    low, high = min(float(np.mean(scaled)), 1.0), 1.0
    while True:  # the rejected means lie above one point: the smallest float that is known to be rejected
        middle = 0.5 * (low + high)
        if not low < middle < high:
            return limit * high
        if _log_p(scaled, middle, delta) <= math.log(delta):
            high = middle
        else:
            low = middle


def certify_mean(
    losses: Floats, values: Floats, mean: float, limit: float, delta: float, last: float | None = None
) -> Certificate:
    """The largest certified cutoff on `losses` at which the mean of the accepted rows' `values` is at most `mean`.

    Arrays of one entry per row, the values between 0 and `limit`. `last` is the largest cutoff that is allowed (where
    the ratio becomes 0), None if any is. The same for any order of the rows. Raises Infeasible.
    """
    scaled = _scaled(values, limit, delta)
    if not 0 <= mean < limit:
        raise OptionError(f"`mean` {mean:g}: it must be at least 0 and below the largest value, {limit:g}")
    inside = np.ones(losses.size, bool) if last is None else losses < last
    losses, scaled = losses[inside], scaled[inside]
    order = tie_order(losses, scaled)
    losses, scaled = losses[order], scaled[order]
    rows, risk = losses.size, mean / limit
    start = f"a mean of at most {mean:g} cannot be certified on {rows} rows"
    if not rows or risk == 0.0:
        raise Infeasible(f"{start}: {'no number of rows suffices for 0' if rows else 'the ratio is 0 on every row'}")
    ends = np.flatnonzero(np.append(losses[1:] != losses[:-1], True)) + 1
    log_p = _log_p_of_ranks(scaled, risk, delta)

    def first_failure(first: int, end: int, level: float) -> int | None:
        failed = log_p[first - 1 : end] > math.log(level)
        return first + int(np.argmax(failed)) if failed.any() else None

    starts = spread(rows, delta, lambda rank, level: _log_p(np.zeros(1), risk, delta, rank) <= math.log(level))
    levels, certified = walk(starts, ends, first_failure)
    held = np.flatnonzero(certified)
    if held.size:
        accepted = int(ends[held[-1]])
        return Certificate(last if accepted == rows else float(losses[accepted]), accepted, 0, mean, delta)
    tested = ends[levels > 0]
    if not tested.size:
        raise Infeasible(f"{start}; more rows are needed")
    first = scaled[: int(tested[0])]
    bound = mean_upper_bound(first * limit, limit, delta)
    raise Infeasible(f"{start}: the upper bound over the {first.size} rows of the smallest losses is {bound:.6g}")


def _bets(rows: int, delta: float) -> int:
    """How many bets there are for so many rows: 1, 1/1.6, 1/1.6^2, ..."""
    least = math.sqrt(8.0 * math.log(1.0 / delta) / rows) if rows else 1.0
    return 1 + max(0, math.floor(-math.log(least) / math.log(_BET_RATIO)))


def _log_p(ordered: Floats, risk: float, delta: float, times: int = 1) -> float:
    """Ln of the p-value of sorted values, each so many times."""
    count = _bets(ordered.size * times, delta)
    edge = (risk - ordered) / (1.0 - risk)
    with np.errstate(divide="ignore"):
        capital = [times * float(np.sum(np.log1p(_BET_RATIO**-j * edge))) for j in range(count)]
    return min(0.0, math.log(count) - float(np.logaddexp.reduce(capital)))


def _log_p_of_ranks(values: Floats, risk: float, delta: float) -> Floats:
    """Ln of the p-value of the first 1, 2, ... values."""
    rows = np.arange(1, values.size + 1)
    # the rank from which on there are so many bets
    scale = 8.0 * math.log(1.0 / delta)
    joins = [1.0, *(scale * _BET_RATIO ** (2 * j) for j in range(1, _bets(values.size, delta)))]
    edge = (risk - values) / (1.0 - risk)
    total = np.full(values.size, -np.inf)
    for j, join in enumerate(joins):
        with np.errstate(divide="ignore"):
            capital = np.cumsum(np.log1p(_BET_RATIO**-j * edge))
        total = np.where(rows >= join, np.logaddexp(total, capital), total)
    result: Floats = np.minimum(np.log(np.searchsorted(joins, rows, side="right")) - total, 0.0)
    return result


def _scaled(values: Floats, limit: float, delta: float) -> Floats:
    if not 0 < limit < math.inf:
        raise OptionError(f"`limit` {limit:g}: the largest possible value must be above 0 and finite")
    if not 0 < delta < 1:
        raise OptionError(f"`delta` {delta:g}: it must be above 0 and below 1")
    if values.size and not (float(values.min()) >= 0 and float(values.max()) <= limit):  # false for NaN too
        raise OptionError(f"the values must lie between 0 and `limit` {limit:g}")
    scaled: Floats = values / limit
    return scaled
