"""Choosing lambda: how much of the sample the idealized distribution is to keep.

Alpha and lambda do not change the order of rows, so they do not change which rows are accepted at a given coverage.
They say how far the idealized distribution may go from the data, and with that what a ratio and a tau mean: a large
lambda keeps the ratio near 1, a small one puts all weight on the easiest rows. The *effective sample* says this in
rows: N rows with weights rho of mean 1 are worth (sum rho)^2 / sum rho^2 = N / mean(rho^2) rows of equal weight.

**It grows with lambda, for every alpha.** With t = 1/lambda and c = (alpha - 1)/2 the ratio is exp_c(k - t L'), and d
rho/dt = rho^{1-c} (k' - L') where rho > 0. Its mean is 0 because the mean of rho stays 1, so k' is the mean of L'
under the weights w = rho^{1-c}. Hence d mean(rho^2)/dt = 2 mean(rho w (k' - L')), which is -2 mean(w) times the
covariance of rho and L' under w, and that is not positive because rho falls with L'. So mean(rho^2) grows with t. For
t -> 0 the ratio is 1 everywhere and the share of the sample is 1; for t -> infinity only the rows of the smallest
loss are left. Every share in between belongs to one lambda.

**Lambda is then a number that the rows have chosen**, and what holds for a fixed lambda does not hold for it. So it is
rounded to four digits, and each of the numbers with four digits has a share of delta fixed beforehand: 1 / (9000 x 3.2
(1 + e^2)) for one between 10^e and 10^(e+1). As 1 / (1 + e^2) sums to 3.15 over all e, they sum to less than 1. A bound
at its lambda's share of delta then holds for whichever is chosen.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from drrej.core.errors import Infeasible, OptionError
from drrej.core.exact import Total
from drrej.core.ratio import DensityRatio, fit_ratio

Floats = NDArray[np.float64]

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


def lambda_for_effective_sample(losses: Floats, share: float, alpha: float = 1.0) -> float:
    """The lambda at which the idealized distribution keeps this share of the effective sample. Raises Infeasible.

    >>> losses = np.random.default_rng(0).gamma(0.4, 0.5, 10_000)
    >>> lam = lambda_for_effective_sample(losses, 0.5)
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
    log_lambda = _log_lambda(ordered, share, alpha)
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


def _log_lambda(ordered: Floats, share: float, alpha: float) -> float | None:
    """Ln lambda, by Brent's method on ln mean (rho - 1)^2, which is nearly linear in it for large lambda."""
    from scipy.optimize import brentq

    wanted = math.log(1.0 / share - 1.0)

    def excess(log_lambda: float) -> float:
        variance = _variance(ordered, fit_ratio(ordered, alpha, math.exp(log_lambda)))
        return math.log(variance) - wanted if 0.0 < variance < math.inf else math.copysign(1e9, variance - 1.0)

    # mean (rho - 1)^2 is about Var(L') / lambda^2 for large lambda: start there and widen until the root is inside
    low = high = math.log(float(np.std(ordered))) - 0.5 * wanted
    while excess(low) <= 0:
        low -= 1.0 + 0.5 * (high - low)
        if low < -_WIDEST:  # as near to the end as floats go
            return None
    while excess(high) >= 0:
        high += 1.0
    return float(brentq(excess, low, high, xtol=1e-14, rtol=8.9e-16, maxiter=200))
