"""How far the fitted ratio can be from that of the whole distribution, told by the fitted rows, for every alpha.

The derivation is in docs/theory-bound.md, that of the paper's bounds in docs/proofs.md.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from drrej.core.ratio import DensityRatio, ascending, expm1
from drrej.core.types import Floats, Stored

_PIECE = 1 << 16
_NEAR = 0.02
"""The ends of the interval are found to this share of their distance from the fit, on the safe side."""
_BETS = 8
_TINY = 1e-12
_FARTHEST = 60.0
"""Beyond e to this power the largest ratio is called infinite."""


class FittedBound(Struct, frozen=True):
    """|rho - rho_N| <= `value` at every input (None: no bound), except with chance `delta`.

    `lower` and `upper` enclose ln rho at the smallest fitted loss, where the fit has `log_max_ratio`.
    """

    value: float | None
    delta: float
    rows: int
    lower: float
    upper: float


def fitted_bound(
    losses: Floats, ratio: DensityRatio, delta: float = 0.05, largest_loss: float | None = None
) -> FittedBound:
    """The bound for a ratio that was fitted on these losses; `largest_loss` is B, None for a loss without a bound.

    >>> from drrej.core.ratio import fit_ratio
    >>> losses = np.random.default_rng(0).gamma(0.4, 0.5, 10_000)
    >>> round(fitted_bound(losses, fit_ratio(losses)).value, 3)
    0.009
    """
    ordered = ascending(losses)
    interval = _Interval(ordered, ratio, delta, largest_loss)
    lower, upper = interval.end(-1), interval.end(1)
    differences = [_difference(ratio, replace(ratio, log_max_ratio=end), largest_loss) for end in (lower, upper)]
    value = max(differences)
    return FittedBound(value if math.isfinite(value) else None, delta, losses.size, lower, upper)


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
        return guess if _TINY < guess < 1.0 else max(_TINY, 1.0 / self.ordered.size)

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
            for start in range(0, self.ordered.size, _PIECE):
                apart = np.expm1(there.log_ratio(self.ordered[start : start + _PIECE]))
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


DELTA = 0.05

NOT_LEARNED = "a loss that was not learned from these rows"
NOT_CHOSEN = "a lambda that was not chosen from these rows"
"""What every bound needs."""

ESTIMATE = "; the temperature was fitted on these rows too, so this is an estimate"
"""What is said where all conditions hold but this one: the temperature comes from other rows."""

FITTED_ROWS = "fitted rows"
"""The name of the bound that the rows themselves give."""


class RatioBound(Stored, frozen=True):
    """One bound: its value (None: infinite or not applicable), the condition it needs, and whether that holds."""

    theorem: str
    value: float | None
    confidence: float
    points: int
    condition: str
    holds: bool
    vacuous: bool


def bounds(
    alpha: float, lam: float, largest_loss: float | None, rows: int, max_ratio: float | None
) -> list[RatioBound]:
    """Theorems 4.3 or 4.9 and the total variation, for as many points as rows. Empty: no theorem covers this alpha.

    `largest_loss` is B, None for a loss without a bound.
    """
    if alpha not in (1.0, 3.0):
        return []
    theorem = "4.3" if alpha == 1.0 else "4.9"
    condition = "a bounded loss" if alpha == 1.0 else "lambda above 2 B, twice the largest possible loss"
    holds = largest_loss is not None and (alpha == 1.0 or lam > 2.0 * largest_loss)
    ratio = variation = None
    trivial = math.inf
    if holds and largest_loss is not None:
        scaled = largest_loss / lam
        ratio = _ratio_bound(alpha, scaled, rows, rows, DELTA)
        trivial = expm1(2.0 * scaled) * math.exp(-scaled) if alpha == 1.0 else scaled
        if max_ratio is not None:
            variation = _variation_bound(alpha, scaled, rows, rows, max_ratio)
    return [
        _bound(f"theorem {theorem}", ratio, rows, condition, holds, trivial),
        _bound("total variation", variation, rows, f"{condition}, and a finite set of inputs", holds, 1.0),
    ]


def without_promise(bound: RatioBound, needs: str = NOT_LEARNED) -> RatioBound:
    """A bound that says nothing, because the loss or lambda comes from the rows."""
    return replace(bound, value=None, holds=False, vacuous=False, condition=needs)


def as_estimate(bound: RatioBound) -> RatioBound:
    """A bound on rows that the temperature was fitted on."""
    return replace(bound, condition=bound.condition + ESTIMATE) if bound.holds else bound


def _bound(theorem: str, value: float | None, points: int, condition: str, holds: bool, trivial: float) -> RatioBound:
    finite = value is not None and math.isfinite(value)
    vacuous = holds and not (finite and value is not None and value < trivial)
    return RatioBound(theorem, value if finite else None, 1.0 - DELTA, points, condition, holds, vacuous)


def _ratio_bound(alpha: float, scaled: float, rows: int, points: int, delta: float) -> float:
    rate = math.sqrt(2.0 / rows * math.log(2.0 * points / delta))
    if alpha == 3.0:
        return scaled * rate
    # e^{3x} sinh x = (e^{4x} - e^{2x}) / 2
    return 0.5 * math.exp(min(2.0 * scaled, 700.0)) * expm1(2.0 * scaled) * rate


def _variation_bound(alpha: float, scaled: float, rows: int, points: int, max_ratio: float) -> float:
    ratio = _ratio_bound(alpha, scaled, rows, points, DELTA / 2.0)
    mass = max_ratio * math.sqrt(math.log(4.0 * points / DELTA) / (2.0 * rows))
    return 0.5 * points * (ratio + mass)
