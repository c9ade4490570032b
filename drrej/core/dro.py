"""Worst-case weights of distributionally robust optimisation (Corollary 3.4): the ratio with the loss's sign turned.

For a fixed lambda the adversary maximises E_Q[L'] - lambda D(Q || P). Its optimum is the density ratio of the losses
-L', so the weights come from `fit_ratio`: with y = (L'_max - L') / lambda they rise with the loss and have mean 1.
A radius asks for the largest E_Q[L'] with D(Q || P) <= radius. The divergence falls as lambda grows, so the radius
fixes lambda by one more root.
"""

from __future__ import annotations

import math

import numpy as np

from drrej.core.errors import Infeasible
from drrej.core.exact import Total
from drrej.core.ratio import DensityRatio, fit_ratio
from drrej.core.types import Floats
from drrej.records import dataclass

_SERIES = 0.01
_TERMS = 8
_MOST_STEPS = 2000


@dataclass(frozen=True)
class WorstCase:
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
    return worst_case(ordered, alpha, math.exp(_log_lambda(ordered, alpha, radius)))


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


def _log_lambda(ordered: Floats, alpha: float, radius: float) -> float:
    """Ln lambda with D = radius, by Brent's method on ln D, which is nearly linear in ln lambda for small radii."""
    from scipy.optimize import brentq

    def excess(log_lambda: float) -> float:
        density = fit_ratio(-ordered, alpha, math.exp(log_lambda))
        divergence = _mean_divergence(density, ordered)
        return math.log(divergence / radius) if 0 < divergence < math.inf else (1e9 if divergence else -1e9)

    # D is about Var(L') / (2 lambda^2) for large lambda: start there and widen until the root is inside
    spread = float(np.std(ordered))
    start = math.log(spread) - 0.5 * math.log(2.0 * radius)
    low = high = start
    for _ in range(_MOST_STEPS):
        if excess(low) > 0:
            break
        low -= 1.0
    for _ in range(_MOST_STEPS):
        if excess(high) < 0:
            break
        high += 1.0
    return float(brentq(excess, low, high, xtol=1e-15, rtol=8.9e-16, maxiter=200))
