"""The temperature: one-dimensional convex minimisation of the NLL in beta = 1 / T.

NLL(beta) = mean[log1p(s) - u_y]. With d_j = z_j - z_m its gradient is mean[E_p d - d_y] and its curvature
mean[Var_p d], both from the sums of `kernels`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from functools import partial

import numpy as np

from drrej.core.exact import Total
from drrej.core.kernels import Need, block_sums, label_gaps
from drrej.core.types import AnyFloats, Integers, Precision
from drrej.records import dataclass

MIN_TEMPERATURE = 1e-3
MAX_TEMPERATURE = 1e3
TOLERANCE = 1e-8
"""Relative tolerance on beta; a Newton step squares the error, so the last step may be about its root."""

_SLOW = 0.5
"""Newton's method converges when each step is a small part of the one before; from this part on it does not yet."""

_MOST_STEPS = 30
"""More passes than any search has needed that was seen."""

_APART = 1e-6
"""Logarithms of beta that differ by less tell nothing of how the curvature bends."""


@dataclass(frozen=True)
class NllSums:
    """Sums over rows of the NLL and its first two derivatives in beta."""

    rows: int = 0
    gradient: Total = field(default_factory=Total)
    curvature: Total = field(default_factory=Total)

    def __add__(self, other: NllSums) -> NllSums:
        return NllSums(
            self.rows + other.rows,
            self.gradient + other.gradient,
            self.curvature + other.curvature,
        )


@dataclass(frozen=True)
class TemperatureFit:
    """Outcome of the search: `converged` is False when the NLL has no minimum inside the bracket.

    `bend` is the last known d log(curvature) / d log(beta); a search among more such rows may start with it.
    """

    temperature: float
    converged: bool
    passes: int
    bend: float = 0.0


SumOfRows = Callable[[AnyFloats, Integers], NllSums]
"""A sum over some rows, from their logits and labels."""

Summing = Callable[[SumOfRows], NllSums]
"""One pass: the sum over all rows of a set."""


def fit_temperature(sample: Summing, rows: Summing | None, precision: Precision) -> TemperatureFit:
    """The temperature of least NLL: searched on a sample, then on all rows (None: the sample is all there is)."""

    def at(beta: float, precision: Precision) -> SumOfRows:
        return partial(nll_sums, beta=beta, precision=precision)

    if rows is None:
        return minimise(lambda beta: sample(at(beta, "float64")))
    start = minimise(lambda beta: sample(at(beta, precision)))
    return minimise(lambda beta: rows(at(beta, precision)), 1.0 / start.temperature, start.bend)


def nll_sums(logits: AnyFloats, labels: Integers, beta: float, precision: Precision) -> NllSums:
    """Gradient and curvature of the NLL of one block at one beta."""
    sums = block_sums(logits, [beta], [Need.V | Need.W], precision)
    (at,) = sums.at
    assert at.v is not None
    assert at.w is not None
    weight = 1.0 + at.s
    mean_gap = at.v / (beta * weight)
    return NllSums(
        rows=labels.size,
        gradient=Total.of(mean_gap - label_gaps(logits, labels, sums.largest)),
        curvature=Total.of(at.w / (beta * beta * weight) - np.square(mean_gap)),
    )


def minimise(evaluate: Callable[[float], NllSums], start: float = 1.0, bend: float = 0.0) -> TemperatureFit:
    """The minimum of the NLL by Newton's method inside a bracket; `evaluate` is one pass over the rows.

    The curvature goes roughly with a power of beta, `bend`, which two passes tell: a Newton step for such a function
    comes nearer than one for a parabola (bend 0). The NLL is convex, so the sign of the gradient says on which side of
    the minimum a point lies; a step that leaves the bracket is replaced by its geometric middle, and the ends are
    tried only when everything points there. Where nearly all labels have the largest logit the gradient falls like
    e^-beta, and a Newton step gets hardly further than the one before it: such steps are lengthened, twice each time.
    """
    low, high = 1.0 / MAX_TEMPERATURE, 1.0 / MIN_TEMPERATURE
    beta = _trial(min(max(start, low), high))
    passes = 0
    earlier: tuple[float, float] | None = None
    last_step, slow = 0.0, 0
    while True:
        sums = evaluate(beta)
        passes += 1
        gradient = sums.gradient.mean(sums.rows) or 0.0
        curvature = sums.curvature.mean(sums.rows) or 0.0
        if gradient < 0:
            low = beta
        elif gradient > 0:
            high = beta
        if gradient == 0:
            if curvature > 0:
                return TemperatureFit(1.0 / beta, converged=True, passes=passes, bend=bend)
            # Every e^u has underflown (every label has the largest logit: the best beta is infinite), or every gap is
            # 0 and no beta is better than another. The hottest end, where e^u is largest, tells them apart.
            hottest = evaluate(1.0 / MAX_TEMPERATURE).gradient.mean(sums.rows) or 0.0
            return TemperatureFit(MIN_TEMPERATURE if hottest < 0 else 1.0 / beta, converged=False, passes=passes + 1)
        if earlier is not None and curvature > 0 and abs(math.log(beta / earlier[0])) > _APART:
            bend = math.log(curvature / earlier[1]) / math.log(beta / earlier[0])
        earlier = (beta, curvature) if curvature > 0 else None
        target = beta * _stretch(-gradient / (curvature * beta), bend) if curvature > 0 else -math.inf * gradient
        if abs(target - beta) <= math.sqrt(TOLERANCE) * beta and low <= target <= high:
            return TemperatureFit(1.0 / target, converged=True, passes=passes, bend=bend)
        if high <= low * (1 + TOLERANCE):
            edge = beta in (1.0 / MAX_TEMPERATURE, 1.0 / MIN_TEMPERATURE)
            return TemperatureFit(1.0 / beta, converged=not edge, passes=passes, bend=bend)
        if low < target < high:
            step = math.log(target / beta)
            slow = slow + 1 if step * last_step > 0 and abs(step) > _SLOW * abs(last_step) else 0
            last_step = step
            if slow > 1:
                end = high if step > 0 else low
                longer = 2.0**slow * step
                target = beta * math.exp(longer) if abs(longer) < abs(math.log(end / beta)) else math.sqrt(beta * end)
        if passes > _MOST_STEPS and low > 1.0 / MAX_TEMPERATURE and high < 1.0 / MIN_TEMPERATURE:
            target = math.sqrt(low * high)  # so that it ends, whatever the steps do
        if not low < target < high:
            # Steps outwards grow by squaring, so an end of the bracket is reached in a few passes.
            target = high if target >= high else low
            target = math.sqrt(beta * target) if abs(math.log(target / beta)) > 1.0 else target
        beta = _trial(target)


def _stretch(step: float, bend: float) -> float:
    """Where a gradient vanishes that is -step at x = 1 and has the slope x^bend."""
    power = bend + 1.0
    if abs(power * step) < 0.5:
        return math.exp(math.log1p(power * step) / power) if power else math.exp(step)
    return 1.0 + step


def _trial(beta: float) -> float:
    """A beta that float32 holds, since the sums may be computed with that; the ends of the bracket stay as they are."""
    return beta if beta in (1.0 / MAX_TEMPERATURE, 1.0 / MIN_TEMPERATURE) else float(np.float32(beta))
