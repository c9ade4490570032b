"""The density ratio rho between the idealized and the real distribution, one formula for every alpha.

With c = (alpha - 1) / 2 the optimum of the paper's objective is a q-exponential of the loss,

    rho = exp_c(k - L'/lambda),   exp_c(w) = (1 + c w)_+^{1/c},   exp_0(w) = e^w,   mean rho = 1.

It is stored and solved by g, the logarithm of the largest ratio on the fitted rows, with y = (L' - L'_min)/lambda:

    ln rho = log1p(expm1(c g) - c y) / c          (c = 0: g - y)

because 0 <= g <= ln n brackets the root and nothing cancels, neither near alpha = 1 nor for huge lambda.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from drrej.core.sums import Total
from drrej.core.types import Floats
from drrej.errors import Infeasible, OptionError

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

    def normalizer(self) -> dict[str, float | None]:
        """Z (KL) or b (other alpha) of the paper, for display: g and L'_min are what is computed with."""
        shift = self.min_loss / self.lam
        if self.c == 0:
            return {"Z": _finite_exp(-(self.log_max_ratio + shift))}
        top = _finite_exp(self.c * self.log_max_ratio)
        return {"b": None if top is None else top / self.c + shift}


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
        excess, slope = _excess_and_slope(losses, ratio, g)
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


def _excess_and_slope(losses: Floats, ratio: DensityRatio, g: float) -> tuple[float, float]:
    c, excess, slope = ratio.c, [], []
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for y in _scaled(losses, ratio):
            log_rho = _log_ratio(c, g, y)
            excess.append(float(np.sum(np.expm1(log_rho))))
            slope.append(float(np.sum(np.exp(c * g + (1.0 - c) * log_rho[log_rho > -np.inf]))))
    return _total(excess) / losses.size, _total(slope) / losses.size


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


def _finite_exp(x: float) -> float | None:
    try:
        return math.exp(x)
    except OverflowError:
        return None


_SERIES = 0.01
_TERMS = 8


class WorstCase(Struct, frozen=True):
    """The adversary's distribution: its ratio (of -L'), its divergence from the data, and the risk under it."""

    density: DensityRatio
    divergence: float
    risk: float | None
    worst_risk: float | None

    @property
    def alpha(self) -> float:
        """The divergence's alpha."""
        return self.density.alpha

    @property
    def lam(self) -> float:
        """The weight of the divergence; solved for when a radius was given."""
        return self.density.lam

    def weights(self, losses: Floats) -> Floats:
        """The weight of each row: above 1 where the loss is high; mean 1 over the fitted rows."""
        return self.density.ratio(-losses)


def worst_case(losses: Floats, alpha: float, lam: float) -> WorstCase:
    """The worst case of `losses` (one per row) at a given lambda; does not depend on the order of the rows.

    >>> found = worst_case(np.array([0.0, np.log(3.0)]), alpha=1.0, lam=1.0)  # weights 1/2 and 3/2
    >>> float((found.worst_risk / np.log(3.0)).round(6))
    0.75
    """
    ordered = np.sort(losses)
    density = fit_ratio(-ordered, alpha, lam)
    weights = density.ratio(-ordered)
    return WorstCase(
        density,
        _mean_divergence(density, ordered),
        Total.of(ordered).mean(losses.size),
        Total.of(weights * ordered).mean(losses.size),
    )


def worst_case_in_ball(losses: Floats, alpha: float, radius: float) -> WorstCase:
    """The worst case among distributions whose divergence from the data is at most `radius`. Raises Infeasible.

    >>> found = worst_case_in_ball(np.array([0.0, 1.0]), alpha=1.0, radius=np.log(2.0) / 2)
    >>> bool(np.isclose(found.divergence, np.log(2.0) / 2)), round(found.risk, 6)
    (True, 0.5)
    """
    ordered = np.sort(losses)
    limit = largest_divergence(ordered, alpha)
    worst = float(ordered[-1])
    if ordered[0] == worst:
        raise Infeasible(f"every loss is {worst:.6g}, so every distribution on these rows has the same risk")
    if radius >= limit:
        raise Infeasible(
            f"`radius={radius:g}` allows all mass on the rows of the largest loss: the worst-case risk is that loss, "
            f"{worst:.6g}, whatever lambda is; the radius must be below {limit:.6g}"
        )
    return worst_case(ordered, alpha, math.exp(_log_lambda_of_radius(ordered, alpha, radius)))


def largest_divergence(losses: Floats, alpha: float) -> float:
    """D of all mass on the rows of the largest loss: infinite for alpha <= -1, where no ratio may be 0."""
    c = (alpha - 1.0) / 2.0
    worst = int(np.count_nonzero(losses == losses.max()))
    share = worst / losses.size
    if share == 1.0:
        return 0.0
    if c <= -1.0:
        return math.inf
    at_worst = float(phi(c, np.array([-math.log(share)]))[0])
    return share * at_worst + (1.0 - share) / (1.0 + c)


def phi(c: float, log_ratio: Floats) -> Floats:
    """The generator phi_alpha of the divergence at rho = e^{log_ratio}, alpha = 1 + 2 c (Definition 4.4, corrected).

    With ln_c(z) = (z^c - 1) / c it is [z ln_c(z) - (z - 1)] / (1 + c), or the same as [ln_{1+c}(z) - (z - 1)] / c:
    the first is taken away from c = -1, the second away from c = 0. Near z = 1 both cancel; there the Taylor series
    of phi'' = z^{c-1} is summed.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        excess = np.expm1(log_ratio)
        if c > -0.5:
            # z ln_c(z); where z = 0 it is 0
            power = np.exp(log_ratio) * _ln(c, log_ratio)
            result: Floats = (np.where(np.isneginf(log_ratio), 0.0, power) - excess) / (1.0 + c)
        else:
            result = (_ln(1.0 + c, log_ratio) - excess) / c
        near = np.abs(excess) * max(1.0, abs(c)) < _SERIES
        t = excess[near]
        term = t * t / 2.0
        total = np.zeros_like(t)
        for n in range(_TERMS):
            total = total + term
            term = term * t * ((c - 1.0 - n) / (n + 3.0))
        result[near] = total
    return result


def _ln(c: float, log_z: Floats) -> Floats:
    """(z^c - 1) / c from ln z."""
    if c == 0:
        return log_z
    value: Floats = np.expm1(c * log_z) / c
    return value


def _mean_divergence(density: DensityRatio, ordered: Floats) -> float:
    mean = Total.of(phi(density.c, density.log_ratio(-ordered))).mean(ordered.size)
    return math.inf if mean is None else mean


def _log_lambda_of_radius(ordered: Floats, alpha: float, radius: float) -> float:
    """Ln lambda with D = radius; ln D is nearly linear in it for small radii, where D is about Var(L') / 2 lambda^2."""

    def excess(log_lambda: float) -> float:
        divergence = _mean_divergence(fit_ratio(-ordered, alpha, math.exp(log_lambda)), ordered)
        return math.log(divergence / radius) if 0 < divergence < math.inf else (1e9 if divergence else -1e9)

    found = _falling_root(excess, math.log(float(np.std(ordered))) - 0.5 * math.log(2.0 * radius))
    if found is None:
        raise Infeasible(f"`radius={radius:g}` is as good as that of all mass on the rows of the largest loss")
    return found


def _falling_root(excess: Callable[[float], float], start: float) -> float | None:
    """Where a falling function of ln lambda is 0, by Brent's method; None if that is as far down as floats go."""
    from scipy.optimize import brentq

    low = high = start
    while excess(low) <= 0:
        low -= 1.0 + 0.5 * (high - low)
        if low < -_WIDEST:
            return None
    while excess(high) >= 0:
        high += 1.0
    return float(brentq(excess, low, high, xtol=1e-14, rtol=8.9e-16, maxiter=200))


_WIDEST = 600
"""Lambda is looked for within so many powers of e."""


def effective_sample(losses: Floats, ratio: DensityRatio) -> float:
    """The share of the sample that the idealized distribution keeps, 1 / mean(rho^2), for the fitted rows.

    The same for any order of the rows.
    """
    return 1.0 / (1.0 + _variance(losses, ratio))


def _variance(losses: Floats, ratio: DensityRatio) -> float:
    """The mean of (rho - 1)^2, which is mean(rho^2) - 1 as the mean of rho is 1, without cancellation."""
    with np.errstate(over="ignore", under="ignore"):
        squares = Total.of(np.square(np.expm1(ratio.log_ratio(losses)))).mean(losses.size)
    return math.inf if squares is None else squares


def check_share(share: float) -> None:
    """Raise unless it is a share of the sample that can be kept."""
    if not 0 < share < 1:
        raise OptionError(f"`effective_sample={share:g}`: it must be above 0 and below 1, e.g. 0.5")


def choose_lambda(losses: Floats, share: float, alpha: float = 1.0) -> float:
    """The lambda at which the idealized distribution keeps this share of the effective sample. Raises Infeasible.

    >>> losses = np.random.default_rng(0).gamma(0.4, 0.5, 10_000)
    >>> lam = choose_lambda(losses, 0.5)
    >>> round(effective_sample(losses, fit_ratio(losses, 1.0, lam)), 6)
    0.5
    """
    check_share(share)
    ordered = np.sort(losses)
    smallest = int(np.searchsorted(ordered, ordered[0], side="right"))
    if smallest == ordered.size:
        raise Infeasible(
            f"every loss is {ordered[0]:.6g}: the ratio is 1 for every `lam`, which keeps the whole sample"
        )
    if share * ordered.size <= smallest:
        raise Infeasible(_too_little(share, smallest, ordered.size))
    log_lambda = _log_lambda_of_share(ordered, share, alpha)
    if log_lambda is None:
        raise Infeasible(_too_little(share, smallest, ordered.size))
    return math.exp(log_lambda)


def rounded(lam: float) -> float:
    """Lambda to four digits."""
    return float(f"{lam:.3e}")


def share_of_delta(lam: float) -> float:
    """The share of delta that a lambda of four digits has.

    >>> [round(1 / share_of_delta(lam)) for lam in (1.5, 0.02)]
    [28800, 144000]
    """
    exponent = int(f"{lam:.3e}".partition("e")[2])
    return 1.0 / (9000 * 3.2 * (1 + exponent**2))


def _too_little(share: float, smallest: int, rows: int) -> str:
    return (
        f"`effective_sample={share:g}` cannot be reached: {smallest} of {rows} rows have the smallest loss, and more "
        f"than {smallest / rows:.6g} of the sample is kept for every `lam`"
    )


def _log_lambda_of_share(ordered: Floats, share: float, alpha: float) -> float | None:
    """Ln lambda; ln mean (rho - 1)^2 is nearly linear in it for large lambda, where it is about Var(L') / lambda^2."""
    wanted = math.log(1.0 / share - 1.0)

    def excess(log_lambda: float) -> float:
        variance = _variance(ordered, fit_ratio(ordered, alpha, math.exp(log_lambda)))
        return math.log(variance) - wanted if 0.0 < variance < math.inf else math.copysign(1e9, variance - 1.0)

    return _falling_root(excess, math.log(float(np.std(ordered))) - 0.5 * wanted)
