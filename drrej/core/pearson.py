"""The standardised gamma distribution (Pearson's type III): mean 0, variance 1 and a given skewness.

With a > 0 it is (X - k) / sqrt(k) for X gamma distributed of shape k = 4 / a^2, with a < 0 the mirror image, and at a =
0 the normal distribution. A sum of few equal errors has it nearly exactly, a sum of many is nearly normal.
"""

from __future__ import annotations

import math

NORMAL_BELOW = 1e-5
"""A skewness that moves no quantile of use by more than 1e-4."""


def quantile(skewness: float, q: float) -> float:
    """The value that is not exceeded with chance q.

    >>> round(1.0 + quantile(2.0, 0.975), 4)  # a standard exponential: -ln 0.025
    3.6889
    """
    from drrej.core.special import gammaincinv, ndtri

    if abs(skewness) < NORMAL_BELOW:
        return float(ndtri(q))
    shape = 4.0 / (skewness * skewness)
    if skewness > 0:
        return (float(gammaincinv(shape, q)) - shape) / math.sqrt(shape)
    return (shape - float(gammaincinv(shape, 1.0 - q))) / math.sqrt(shape)


def tails(skewness: float, z: float) -> tuple[float, float]:
    """The chances of a value of at most z and of at least z."""
    from drrej.core.special import gammainc, gammaincc, ndtr

    if abs(skewness) < NORMAL_BELOW:
        return float(ndtr(z)), float(ndtr(-z))
    shape = 4.0 / (skewness * skewness)
    x = max(shape + math.copysign(z, skewness * z) * math.sqrt(shape), 0.0)
    below, above = float(gammainc(shape, x)), float(gammaincc(shape, x))
    return (below, above) if skewness > 0 else (above, below)
