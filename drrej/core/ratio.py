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


# How far the fitted ratio can be from that of the whole distribution, by the fitted rows, for every alpha: the
# derivation is in docs/theory.md

_BOUND_PIECE = 1 << 16
_NEAR = 0.02
"""The ends of the interval are found to this share of their distance from the fit, on the safe side."""
_BETS = 8
_NARROWEST = 1e-12
_FARTHEST = 60.0
"""Beyond e to this power the largest ratio is called infinite."""


def fitted_bound(
    losses: Floats, ratio: DensityRatio, delta: float = 0.05, largest_loss: float | None = None
) -> tuple[float | None, float, float]:
    """|rho - rho_N| is at most the first number at every input (None: no bound), except with chance `delta`.

    The others enclose ln rho at the smallest fitted loss. The ratio was fitted on these losses; `largest_loss` is B,
    None for a loss without a bound.

    >>> losses = np.random.default_rng(0).gamma(0.4, 0.5, 10_000)
    >>> value, lower, upper = fitted_bound(losses, fit_ratio(losses))
    >>> round(value, 3)
    0.009
    """
    interval = _Interval(ascending(losses), ratio, delta, largest_loss)
    lower, upper = interval.end(-1), interval.end(1)
    value = max(_difference(ratio, replace(ratio, log_max_ratio=end), largest_loss) for end in (lower, upper))
    return value if math.isfinite(value) else None, lower, upper


class _Interval:
    """Ends of the interval for k, as g, the logarithm of the ratio at the smallest fitted loss, which grows with k."""

    def __init__(self, ordered: Floats, ratio: DensityRatio, delta: float, largest_loss: float | None) -> None:
        self.ordered = ordered
        self.ratio = ratio
        self.largest_loss = largest_loss
        self.enough = math.log(2.0 / delta)
        # The best bet is sqrt(2 ln(2/delta) / N) / (the ratio's standard deviation). The largest possible distance
        # from 1 tells in which unit to measure that: from 1/64 to 2 units.
        unit = 1.0 if largest_loss is None else min(1.0, -math.expm1(-largest_loss / ratio.lam))
        best = math.sqrt(2.0 * self.enough / ordered.size) / unit
        self.bets = np.minimum(best * 0.5 * 2.0 ** np.arange(_BETS), 0.9 / unit)

    def end(self, side: int) -> float:
        """Upper (1) or lower (-1) end: a g that is known to be rejected and not much too far; infinite if none is."""
        g, guess = self.ratio.log_max_ratio, self._guess()
        near, far = 0.0, guess
        while not self.rejects(g + side * far, side):
            near, far = far, 1.5 * far
            if far > max(_FARTHEST, 2.0 * guess):
                return side * math.inf
        middle = max(near, 0.8 * far)
        while far - near > _NEAR * far:
            near, far = (near, middle) if self.rejects(g + side * middle, side) else (middle, far)
            middle = 0.5 * (near + far)
        return g + side * far

    def _guess(self) -> float:
        """The half width for many rows: where the sum of X - 1 is sqrt(2 V ln(2J/delta))."""
        _, squares = self._sums(self.ratio)
        step = 1e-4
        slope = self._sums(replace(self.ratio, log_max_ratio=self.ratio.log_max_ratio + step))[0] / step
        guess = math.sqrt(2.0 * squares * (self.enough + math.log(_BETS))) / slope if slope > 0 else 0.0
        return guess if _NARROWEST < guess < 1.0 else max(_NARROWEST, 1.0 / self.ordered.size)

    def rejects(self, g: float, side: int) -> bool:
        """Whether the lower bound of U (1) or D (-1) is large enough at this g."""
        there = replace(self.ratio, log_max_ratio=g)
        if side > 0:
            reach = 1.0 - (0.0 if self.largest_loss is None else float(_at(there, self.largest_loss)))
        else:
            reach = float(_at(there, 0.0)) - 1.0
        if reach <= 0.0:  # every possible ratio is above, or below, 1: so is the mean
            return True
        bets = self.bets[self.bets * reach < 1.0]
        total, squares = self._sums(there)
        if not bets.size or not math.isfinite(squares):
            return False
        g_bets = bets * reach
        psi = -np.log1p(-g_bets) - g_bets
        capital = side * bets * total - psi * (squares / reach**2)
        return float(np.logaddexp.reduce(capital)) - math.log(self.bets.size) >= self.enough

    def _sums(self, there: DensityRatio) -> tuple[float, float]:
        """The sums of X - 1 and of its square."""
        total, squares = [], []
        with np.errstate(over="ignore", under="ignore"):
            for start in range(0, self.ordered.size, _BOUND_PIECE):
                apart = np.expm1(there.log_ratio(self.ordered[start : start + _BOUND_PIECE]))
                total.append(float(np.sum(apart)))
                squares.append(float(np.sum(apart * apart)))
        return (math.fsum(total), math.fsum(squares)) if math.isfinite(sum(squares)) else (math.inf, math.inf)


def _at(ratio: DensityRatio, loss: float) -> float:
    return float(ratio.ratio(np.array([loss]))[0])


def _difference(one: DensityRatio, other: DensityRatio, largest_loss: float | None) -> float:
    """The largest difference of two ratios that have the same alpha, lambda and smallest loss, over all losses."""
    if other.log_max_ratio == math.inf:
        return math.inf
    if other.log_max_ratio == -math.inf:  # the other is only known not to be negative
        return _at(one, 0.0)
    loss = 0.0
    if one.c > 1.0:
        smaller = min(one, other, key=lambda ratio: ratio.log_max_ratio)
        flat = smaller.flat_start
        assert flat is not None
        loss = max(0.0, flat if largest_loss is None else min(flat, largest_loss))
    first, second = _at(one, loss), _at(other, loss)
    return math.inf if math.isinf(first) or math.isinf(second) else abs(first - second)
