"""What stored numbers say about numbers that are not stored any more; cheap, so that every reader can look.

A rejector keeps order statistics of its losses. A mean over all losses of a function that rises or falls is then known
within a bracket, and exactly when all losses are kept. A bound from the binomial distribution belongs to its counts.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from drrej.core.drift import ranks
from drrej.core.ratio import DensityRatio
from drrej.core.types import Floats

_NEAR = 1e-9
_ROUNDING = 1e-11
_REACH = 12.0


def mean_bracket(values: Floats, rows: int) -> tuple[float, float]:
    """The least and the largest mean of `rows` numbers in order, of which those of the kept ranks are known.

    >>> mean_bracket(np.array([0.0, 1.0, 4.0]), 5)
    (1.2, 2.0)
    """
    between = np.diff(ranks(values.size, rows)) - 1
    with np.errstate(over="ignore", invalid="ignore"):
        ends = np.stack([values[:-1], values[1:]])
        low, high = (values.sum() + np.sum(np.where(between, between * end, 0.0)) for end in (ends.min(0), ends.max(0)))
        return float(low / rows), float(high / rows)


def is_normalised(density: DensityRatio, quantiles: Floats, rows: int) -> bool:
    """Whether the mean ratio can be 1: ln of the largest ratio, a little lower, is not too high, and vice versa.

    The mean rises with it. At large alpha it jumps, so that the mean itself need not be near 1.
    """
    low, high = (_excess(density, g, quantiles) for g in _around(density.log_max_ratio, _NEAR))
    slack = 1e-13 * float(np.max(np.abs(np.concatenate([low, high])))) + 1e-300  # denormal ratios have few digits
    # NaN, where floats do not suffice to tell, is no contradiction
    return not (mean_bracket(low, rows)[0] > slack or mean_bracket(high, rows)[1] < -slack)


def deviation_bracket(density: DensityRatio, quantiles: Floats, rows: int) -> tuple[float, float]:
    """The least and the largest standard deviation that the ratio can have on rows where its mean is 1."""
    away = _excess(density, density.log_max_ratio, quantiles)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(away)
        between = np.diff(ranks(away.size, rows)) - 1
        ends = np.stack([squares[:-1], squares[1:]])
        least = np.where(away[:-1] * away[1:] > 0, ends.min(0), 0.0)
        low, high = (squares.sum() + np.sum(np.where(between, between * end, 0.0)) for end in (least, ends.max(0)))
        return math.sqrt(low / rows), math.sqrt(high / rows)


def is_tau_of(density: DensityRatio, tau: float | None, cutoff: float | None) -> bool:
    """Whether tau is the ratio at a cutoff, but for rounding; None is infinite as in `DensityRatio.tau`."""
    if cutoff is None:
        return tau == 0.0
    step = _ROUNDING * (abs(cutoff) + abs(density.min_loss))
    lower, upper = (dataclasses.replace(density, log_max_ratio=g) for g in _around(density.log_max_ratio, _ROUNDING))
    low, given, high = (
        math.inf if value is None else value for value in (lower.tau(cutoff + step), tau, upper.tau(cutoff - step))
    )
    return low * (1.0 - _ROUNDING) <= given <= high * (1.0 + _ROUNDING)


def is_cutoff_of(density: DensityRatio, cutoff: float | None, tau: float) -> bool:
    """Whether a cutoff is that of a tau, but for rounding; None is infinite as in `DensityRatio.cutoff`."""
    low, given, high = (
        math.inf if value is None else value
        for value in (density.cutoff(tau * (1.0 + _ROUNDING)), cutoff, density.cutoff(tau * (1.0 - _ROUNDING)))
    )
    slack = _ROUNDING * (abs(given) + abs(density.min_loss)) if math.isfinite(given) else 0.0
    return low - slack <= given <= high + slack


def binomial_tail(most: int, rows: int, rate: float) -> float:
    """P(Bin(rows, rate) <= most) for a rate between 0 and 1, to about six digits.

    The terms relative to the last one follow from each other; those within 12 standard deviations are summed.

    >>> round(binomial_tail(5, 100, 0.1022533776), 6)
    0.05
    """
    log_last = (
        math.lgamma(rows + 1) - math.lgamma(most + 1) - math.lgamma(rows - most + 1)
        + most * math.log(rate) + (rows - most) * math.log1p(-rate)
    )  # fmt: skip
    mean = rows * rate
    reach = _REACH * math.sqrt(mean * (1.0 - rate)) + _REACH**2
    k = np.arange(most, max(int(min(mean, most) - reach), 0), -1, dtype=np.float64)
    logs = np.concatenate([[0.0], np.cumsum(np.log(k * ((1.0 - rate) / rate) / (rows - k + 1.0)))])
    top = float(logs.max())
    return min(math.exp(min(log_last + top + math.log(float(np.exp(logs - top).sum())), 0.0)), 1.0)


def is_binomial_level(delta: float, most: int, rows: int, rate: float) -> bool:
    """Whether `rate` is the exact upper bound of a rate at the level delta, from `most` events in `rows` rows."""
    if not (0 < rate < 1 and 0 <= most < rows and delta > 0):
        return False
    return abs(binomial_tail(most, rows, rate) - delta) <= delta * _tolerance(rows, delta)


def is_below_level(delta: float, most: int, rows: int, rate: float) -> bool:
    """Whether so few events in so many rows have a chance of at most delta at this rate."""
    if not (0 < rate < 1 and 0 <= most < rows and delta > 0):
        return False
    return binomial_tail(most, rows, rate) <= delta * (1.0 + _tolerance(rows, delta))


def supports_rate(delta: float, least: int, rows: int, rate: float) -> bool:
    """Whether `least` events in `rows` rows make a rate of at least `rate` certain at the level delta."""
    if not 0 < rate < 1:
        return rate == 0
    return binomial_tail(rows - least, rows, 1.0 - rate) <= delta * (1.0 + _tolerance(rows, delta))


def _tolerance(rows: int, delta: float) -> float:
    """Logarithms of factorials cancel, and a bound is computed from 1 - delta."""
    return 1e-6 + 1e-14 * rows + 1e-15 / delta


def _around(g: float, step: float) -> tuple[float, float]:
    return g * (1.0 - step), g * (1.0 + step)


def _excess(density: DensityRatio, g: float, losses: Floats) -> Floats:
    """Rho - 1 of losses if g were ln of the largest ratio."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        excess: Floats = np.expm1(dataclasses.replace(density, log_max_ratio=g).log_ratio(losses))
    return excess
