"""An interval of the mean of values that can only be some numbers, from the count of each; valid for any rows.

**At most two numbers besides 0** (nothing, a review, an error): the mean is a sum of shares with their prices, and each
share has its exact (Clopper-Pearson) bound at an even part of the level.

**More of them**, by betting (Waudby-Smith and Ramdas 2024). The values are scaled to X in [0, 1]. For a bet b > 0 the
product over the rows of 1 + min(b, 1/m) (X - m) is never negative, and its expectation is at most 1 where the mean is
at most m. So is that of the mean over some bets that are fixed beforehand, and by Markov's inequality it exceeds
1 / level with a chance of at most `level`. Every factor falls as m grows: the means that are ruled out lie below one
point, which is the bound. The upper end is the same for 1 - X.

A bet pays best where it is about sqrt(2 ln(1 / level) / (rows x variance)). The bets go in steps of 1.6 from what suits
the largest variance that is possible, 1/4, to what suits one of about 1 / rows.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from drrej.core.intervals import lower_bound, upper_bound
from drrej.core.types import Floats

_FEW = 2
_RATIO = 1.6
_LARGEST = 3.0
_STEPS = 100


def mean_interval(values: Floats, counts: NDArray[np.int64], level: float) -> tuple[float, float]:
    """Lower and upper bound of the mean, each wrong with a chance of at most `level`.

    `values` are all that are possible, `counts` how many rows have each: arrays of the same length.

    >>> low, high = mean_interval(np.array([0.0, 2.0, 50.0]), np.array([880, 100, 20]), 0.025)
    >>> round(low, 2), round(high, 2)
    (0.73, 1.87)
    """
    if np.count_nonzero(values) <= _FEW:
        return _by_shares(values, counts, level)
    least, most = float(values.min()), float(values.max())
    scaled = (values - least) / (most - least)
    lower, upper = _lower(scaled, counts, level), 1.0 - _lower(1.0 - scaled, counts, level)
    return least + (most - least) * lower, least + (most - least) * upper


def _by_shares(values: Floats, counts: NDArray[np.int64], level: float) -> tuple[float, float]:
    rows, part = int(counts.sum()), level / max(1, int(np.count_nonzero(values)))
    low = high = 0.0
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        if value:
            ends = (value * lower_bound(count, rows, part), value * upper_bound(count, rows, part))
            low, high = low + min(ends), high + max(ends)
    return low, high


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
