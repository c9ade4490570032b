"""The density ratio rho between the idealized and the real distribution, one formula for every alpha.

With c = (alpha - 1) / 2 the optimum of the paper's objective is a q-exponential of the loss,

    rho = exp_c(k - L'/lambda),   exp_c(w) = (1 + c w)_+^{1/c},   exp_0(w) = e^w,   mean rho = 1.

It is stored and solved by g, the logarithm of the largest ratio on the fitted rows, with y = (L' - L'_min)/lambda:

    ln rho = log1p(expm1(c g) - c y) / c          (c = 0: g - y)

because 0 <= g <= ln n brackets the root and nothing cancels, neither near alpha = 1 nor for huge lambda.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from drrej.core.types import Floats

MAX_ALPHA = 1e3
"""Beyond it, and below its negative, floats do not tell ratios apart."""

_SAMPLE = 4096
_MAX_STEPS = 200
_ROUNDING = 2e-16
_PIECE = 1 << 14
_TINY = 1e-290


class DensityRatio(Struct, frozen=True):
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
            return np.exp(self.log_ratio(losses))

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


def ascending(losses: Floats) -> Floats:
    """The losses in ascending order: themselves if they are, so that those beyond memory are not copied."""
    pieces = (losses[start : start + _PIECE + 1] for start in range(0, losses.size, _PIECE))
    return losses if all((piece[1:] >= piece[:-1]).all() for piece in pieces) else np.sort(losses)


def fit_ratio(losses: Floats, alpha: float = 1.0, lam: float = 1.0) -> DensityRatio:
    """The ratio whose mean over `losses` (one per row) is 1; the result does not depend on their order.

    >>> fit_ratio(np.array([0.0, np.log(3.0)])).ratio(np.array([0.0, np.log(3.0)])).round(6)
    array([1.5, 0.5])
    """
    ordered = ascending(losses)
    unit = DensityRatio(alpha, lam, 0.0, float(ordered[0]))
    g = _kl_root(ordered, unit)
    if unit.c != 0 and g > 0:
        if ordered.size > 4 * _SAMPLE:  # a good start from evenly spaced quantiles spares passes over all rows
            stride = ordered.size // _SAMPLE
            g = _root(ordered[stride // 2 :: stride], unit, g)
        g = _root(ordered, unit, g)
    return replace(unit, log_max_ratio=g)


def _scaled(losses: Floats, ratio: DensityRatio) -> Iterator[Floats]:
    """Y of each loss, in pieces that stay in the cache."""
    for start in range(0, losses.size, _PIECE):
        yield (losses[start : start + _PIECE] - ratio.min_loss) / ratio.lam


def _kl_root(losses: Floats, ratio: DensityRatio) -> float:
    """The root for alpha = 1 in closed form: -ln mean e^{-y}."""
    below_one = _total([float(np.sum(np.expm1(-y))) for y in _scaled(losses, ratio)]) / losses.size
    if below_one > -0.5:
        return -math.log1p(below_one)
    with np.errstate(under="ignore"):
        return -math.log(_total([float(np.sum(np.exp(-y))) for y in _scaled(losses, ratio)]) / losses.size)


def _root(losses: Floats, ratio: DensityRatio, start: float) -> float:
    """The g with mean expm1(ln rho) = 0: Newton's method inside the bracket [0, ln n].

    d ln rho / dg = e^{c g} / rho^c where rho > 0, so the slope is the mean of e^{c g + (1 - c) ln rho} there.
    """
    low, high = 0.0, math.log(losses.size)
    g = min(max(start, low), high)
    for _ in range(_MAX_STEPS):
        excesses, slopes = [], []
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            for y in _scaled(losses, ratio):
                log_rho = _log_ratio(ratio.c, g, y)
                excesses.append(float(np.sum(np.expm1(log_rho))))
                slopes.append(float(np.sum(np.exp(ratio.c * g + (1.0 - ratio.c) * log_rho[log_rho > -np.inf]))))
        excess, slope = _total(excesses) / losses.size, _total(slopes) / losses.size
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
        elif c * g < 0 and c < 0 and math.exp(c * g) < 0.5:
            top = math.exp(c * g)
            result = np.log(np.maximum(top - c * y, 0.0)) / c
            if top < _TINY:  # far below every c y but that of the easiest rows, whose ln rho is g
                result = np.where(y == 0, g, result)
        else:
            result = np.log1p(np.maximum(expm1(c * g) - c * y, -1.0)) / c
    return result


def expm1(x: float) -> float:
    """E^x - 1, infinite beyond the largest float."""
    try:
        return math.expm1(x)
    except OverflowError:
        return math.inf
