"""The density ratio rho between the idealized and the real distribution, one formula for every alpha.

With c = (alpha - 1) / 2 the optimum of the paper's objective is a q-exponential of the loss,

    rho = exp_c(k - L'/lambda),   exp_c(w) = (1 + c w)_+^{1/c},   exp_0(w) = e^w,   mean rho = 1.

It is stored and solved by g, the logarithm of the largest ratio on the fitted rows, with y = (L' - L'_min)/lambda:

    ln rho = log1p(expm1(c g) - c y) / c          (c = 0: g - y)

because 0 <= g <= ln n brackets the root and nothing cancels, neither near alpha = 1 nor for huge lambda.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from drrej.core.types import Floats, SortedLosses, StoredLosses
from drrej.records import dataclass

MAX_ALPHA = 1e3
"""Beyond it, and below its negative, floats do not tell ratios apart."""

_SAMPLE = 4096
_MAX_STEPS = 200
_ROUNDING = 2e-16
_PIECE = 1 << 14
_TINY = 1e-290


@dataclass(frozen=True)
class DensityRatio:
    """A fitted ratio: alpha, lambda, and the two numbers that normalise it."""

    alpha: float
    lam: float
    log_max_ratio: float
    min_loss: float

    @property
    def c(self) -> float:
        """(alpha - 1) / 2: 0 for KL, 1 for chi squared."""
        return (self.alpha - 1.0) / 2.0

    def log_ratio(self, losses: Floats) -> Floats:
        """Ln rho of each loss: -inf on the flat part (c > 0), +inf where c < 0 and the row is too easy."""
        return _log_ratio(self.c, self.log_max_ratio, (losses - self.min_loss) / self.lam)

    def ratio(self, losses: Floats) -> Floats:
        """Rho of each loss."""
        with np.errstate(over="ignore", under="ignore"):
            rho: Floats = np.exp(self.log_ratio(losses))
        return rho

    @property
    def flat_start(self) -> float | None:
        """The loss from which on the ratio is exactly 0, None where it never is (alpha <= 1)."""
        if self.c <= 0:
            return None
        try:
            start = self.min_loss + self.lam * (math.exp(self.c * self.log_max_ratio) / self.c)
        except OverflowError:  # beyond every loss
            return None
        return start if math.isfinite(start) else None

    def cutoff(self, tau: float) -> float | None:
        """The loss at or above which rho <= tau; None when no loss is large enough."""
        if tau <= 0:
            return self.flat_start
        c, g, log_tau = self.c, self.log_max_ratio, math.log(tau)
        if c == 0:
            y = g - log_tau
        else:
            try:
                y = (math.expm1(c * g) - math.expm1(c * log_tau)) / c
            except OverflowError:  # tau beyond every ratio (c > 0) or below every one (c < 0)
                y = -math.inf if c > 0 else math.inf
        cutoff = self.min_loss + self.lam * y
        if cutoff == math.inf:
            return None
        return max(cutoff, -1.0)  # losses are never negative: any negative cutoff rejects every row

    def tau(self, cutoff: float | None) -> float | None:
        """The ratio at a cutoff: what tau the cutoff stands for. None when it is infinite."""
        if cutoff is None:
            return 0.0
        tau = float(self.ratio(np.array([cutoff]))[0])
        return tau if math.isfinite(tau) else None

    def normalizer(self) -> dict[str, float | None]:
        """Z (KL) or b (other alpha) of the paper, for display: g and L'_min are what is computed with."""
        shift = self.min_loss / self.lam
        if self.c == 0:
            return {"Z": _finite_exp(-(self.log_max_ratio + shift))}
        top = _finite_exp(self.c * self.log_max_ratio)
        return {"b": None if top is None else top / self.c + shift}


def fit_ratio(losses: SortedLosses, alpha: float = 1.0, lam: float = 1.0) -> DensityRatio:
    """The ratio whose mean over `losses` (one per row) is 1; the result does not depend on the order of an array.

    Losses that lie elsewhere than in memory must be sorted.

    >>> fit_ratio(np.array([0.0, np.log(3.0)])).ratio(np.array([0.0, np.log(3.0)])).round(6)
    array([1.5, 0.5])
    """
    ordered = losses if isinstance(losses, StoredLosses) else np.sort(losses)
    smallest = float(ordered[0])
    y = _Scaled(ordered, smallest, lam) if isinstance(ordered, StoredLosses) else (ordered - smallest) / lam
    c = (alpha - 1.0) / 2.0
    g = _kl_root(y)
    if c != 0 and g > 0:
        if y.size > 4 * _SAMPLE:  # a good start from evenly spaced quantiles spares passes over all rows
            stride = y.size // _SAMPLE
            g = _root(c, y[stride // 2 :: stride], g)
        g = _root(c, y, g)
    return DensityRatio(alpha, lam, g, smallest)


@dataclass(frozen=True)
class _Scaled:
    """y of losses that are not in memory, worked out for those that are looked at."""

    losses: StoredLosses
    smallest: float
    lam: float

    @property
    def size(self) -> int:
        return self.losses.size

    def __getitem__(self, key: slice) -> Floats:
        y: Floats = (self.losses[key] - self.smallest) / self.lam
        return y


def _kl_root(y: Floats | _Scaled) -> float:
    """The root for alpha = 1 in closed form: -ln mean e^{-y}."""
    below_one = _mean(lambda part: np.expm1(-part), y)
    if below_one > -0.5:
        return -math.log1p(below_one)
    with np.errstate(under="ignore"):
        return -math.log(_mean(lambda part: np.exp(-part), y))


def _root(c: float, y: Floats | _Scaled, start: float) -> float:
    """The g with mean expm1(ln rho) = 0: Newton's method inside the bracket [0, ln n].

    d ln rho / dg = e^{c g} / rho^c where rho > 0, so the slope is the mean of e^{c g + (1 - c) ln rho} there.
    """
    low, high = 0.0, math.log(y.size)
    g = min(max(start, low), high)
    for _ in range(_MAX_STEPS):
        excess, slope = _excess_and_slope(c, g, y)
        if abs(excess) <= _ROUNDING * g * slope:  # the step would be lost in rounding
            return g
        if excess > 0:
            high = g
        else:
            low = g
        target = g - excess / slope if slope > 0 else math.nan
        if not low < target < high:
            target = math.sqrt(low * high) if high > 2 * low > 0 else (low + high) / 2
        if not low < target < high:
            return target
        g = target
    return g


def _excess_and_slope(c: float, g: float, y: Floats | _Scaled) -> tuple[float, float]:
    excess, slope = [], []
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for start in range(0, y.size, _PIECE):
            log_rho = _log_ratio(c, g, y[start : start + _PIECE])
            excess.append(float(np.sum(np.expm1(log_rho))))
            positive = log_rho[log_rho > -np.inf]
            slope.append(float(np.sum(np.exp(c * g + (1.0 - c) * positive))))
    return _total(excess) / y.size, _total(slope) / y.size


def _mean(function: Callable[[Floats], Floats], y: Floats | _Scaled) -> float:
    """The mean of a function, in pieces that stay in the cache."""
    pieces = range(0, y.size, _PIECE)
    return _total([float(np.sum(function(y[start : start + _PIECE]))) for start in pieces]) / y.size


def _total(parts: list[float]) -> float:
    """The sum of the pieces; infinite when one of them is (`fsum` would raise)."""
    try:
        return math.fsum(parts)
    except OverflowError:
        return math.inf


def _log_ratio(c: float, g: float, y: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if c == 0:
            result: Floats = g - y
        elif c < 0 and math.exp(c * g) < 0.5:
            top = math.exp(c * g)
            result = np.log(np.maximum(top - c * y, 0.0)) / c
            if top < _TINY:  # far below every c y but that of the easiest rows, whose ln rho is g
                result = np.where(y == 0, g, result)
        else:
            result = np.log1p(np.maximum(_expm1(c * g) - c * y, -1.0)) / c
    return result


def _expm1(x: float) -> float:
    try:
        return math.expm1(x)
    except OverflowError:
        return math.inf


def _finite_exp(x: float) -> float | None:
    try:
        return math.exp(x)
    except OverflowError:
        return None
