"""Generalisation bounds of the paper: how far the ratio fitted on N rows may be from that of the whole distribution.

With probability 1 - delta over the fitted rows, at M further points, and with 0 <= L' <= B,

    Theorem 4.3 (KL):                      |rho - rho_N| <= e^{3 B/lambda} sinh(B/lambda) sqrt(2/N ln(2M/delta))
    Theorem 4.9 (alpha = 3, lambda > 2B):  |rho - rho_N| <= B/lambda sqrt(2/N ln(2M/delta))

and where the inputs are M points in all, the total variation between Q and the fitted Q_N is at most half of

    M (|rho - rho_N| at delta/2 + B' sqrt(ln(4M/delta) / 2N)),   B' the largest fitted ratio.

They are worst cases over all distributions and assume a loss that was not learned from the fitted rows. What these rows
themselves tell is in `drrej.core.fitted`, which is far smaller and covers every alpha.

A bound is vacuous when it says no more than what always holds: two KL ratios lie between e^{-B/lambda} and
e^{B/lambda}, two ratios of Theorem 4.9 differ by at most B/lambda, and no total variation exceeds 1.
"""

from __future__ import annotations

import math
from dataclasses import replace

from drrej.records import dataclass

DELTA = 0.05

NOT_LEARNED = "a loss that was not learned from these rows"
NOT_CHOSEN = "a lambda that was not chosen from these rows"
"""What every bound needs."""

ESTIMATE = "; the temperature was fitted on these rows too, so this is an estimate"
"""What is said where all conditions hold but this one: the temperature comes from other rows."""

FITTED_ROWS = "fitted rows"
"""The name of the bound that the rows themselves give."""


@dataclass(frozen=True)
class RatioBound:
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
        trivial = _expm1(2.0 * scaled) * math.exp(-scaled) if alpha == 1.0 else scaled
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
    return 0.5 * _exp(2.0 * scaled) * _expm1(2.0 * scaled) * rate


def _variation_bound(alpha: float, scaled: float, rows: int, points: int, max_ratio: float) -> float:
    ratio = _ratio_bound(alpha, scaled, rows, points, DELTA / 2.0)
    mass = max_ratio * math.sqrt(math.log(4.0 * points / DELTA) / (2.0 * rows))
    return 0.5 * points * (ratio + mass)


def _exp(x: float) -> float:
    return math.exp(x) if x < 700.0 else math.inf


def _expm1(x: float) -> float:
    return math.expm1(x) if x < 700.0 else math.inf
