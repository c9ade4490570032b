"""Vector scaling: the NLL of softmax(w ln p + b) as a convex function of a weight and a bias per class.

With x = ln p, the logarithms of the probabilities before calibration, class j has the score w_j x_j + b_j. A penalty
draws the weights to those of the best temperature and the biases to 0, as strongly as `STRENGTH` rows would:

    sum of NLL + STRENGTH / 2 * sum over classes [((w_j - beta) / beta)^2 + b_j^2].

So there is one minimum and it is finite, and few rows leave the temperature alone. For two classes this is beta
calibration. A weight below 0 would turn a class around: such weights are held at 0 and the others are fitted again.

The search is Newton's. What it adds up is exact and so has no order: the NLL and its gradient as `Total`s; the
curvature, which settles only how fast the minimum is found, from numbers that are rounded to so few bits that a
matrix product of them has no rounding left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drrej.core.calibrators import Vector, log_probabilities
from drrej.core.exact import Total
from drrej.core.kernels import Need
from drrej.core.types import AnyFloats, Floats, Integers, Precision

MOST_CLASSES = 256
"""Above that the curvature, a square of twice as many numbers, costs more than it is worth."""

STRENGTH = 30.0
"""Rows that the penalty weighs as much as."""

TOLERANCE = 1e-14
"""Twice the mean NLL still to be gained at which the last step is taken."""

_MOST_PASSES = 100
_CHUNK = 1 << 13
_BITS = 20
_WIDEST = 6
"""x counts as at least -2**6 in the curvature: products then have 40 bits, and sums of 2**13 of them are exact."""

_LOW = 32


@dataclass(frozen=True)
class Squares:
    """An exact sum of matrices of whole numbers, in two parts: high * 2**32 + low."""

    high: NDArray[np.int64]
    low: NDArray[np.int64]

    @classmethod
    def of(cls, columns: Floats) -> Squares:
        """The sum over columns c of c c^T. They hold whole numbers of at most 20 bits (numbers x rows)."""
        size = columns.shape[0]
        high, low = np.zeros((size, size), np.int64), np.zeros((size, size), np.int64)
        for start in range(0, columns.shape[1], _CHUNK):
            chunk = np.ascontiguousarray(columns[:, start : start + _CHUNK])
            product = (chunk @ chunk.T).astype(np.int64)
            high += product >> _LOW
            low += product & ((1 << _LOW) - 1)
        return cls(high, low)

    def __add__(self, other: Squares) -> Squares:
        return Squares(self.high + other.high, self.low + other.low)

    def values(self) -> Floats:
        """The sums as numbers."""
        return np.ldexp(self.high.astype(np.float64), _LOW) + self.low.astype(np.float64)


@dataclass(frozen=True)
class ScalingSums:
    """Sums over rows: the NLL, its gradient (weights, then biases), and if wanted what its curvature is made of.

    `diagonal` are the sums of p x^2, p x and p per class, in units of 2**-20; `products` those of p_i x_i p_j x_j etc.
    """

    rows: int
    nll: Total
    gradient: tuple[Total, ...]
    diagonal: NDArray[np.int64] | None = None
    products: Squares | None = None

    def __add__(self, other: ScalingSums) -> ScalingSums:
        both = self.diagonal is not None and other.diagonal is not None
        both = both and self.products is not None and other.products is not None
        return ScalingSums(
            self.rows + other.rows,
            self.nll + other.nll,
            tuple(mine + yours for mine, yours in zip(self.gradient, other.gradient, strict=True)),
            self.diagonal + other.diagonal if both else None,  # type: ignore[operator]  # checked above
            self.products + other.products if both else None,  # type: ignore[operator]
        )

    def mean_gradient(self) -> Floats:
        """Of the mean NLL."""
        return np.array([total.mean(self.rows) or 0.0 for total in self.gradient])

    def mean_curvature(self) -> Floats:
        """Of the mean NLL: diag(p) - p p^T in the biases, and so on (2 classes x 2 classes)."""
        assert self.diagonal is not None
        assert self.products is not None
        squared, once, plain = self.diagonal * 2.0**-_BITS
        units = np.repeat([2.0 ** (_WIDEST - _BITS), 2.0**-_BITS], squared.size)
        curvature = -self.products.values() * np.outer(units, units)
        curvature += np.block([[np.diag(squared), np.diag(once)], [np.diag(once), np.diag(plain)]])
        return curvature / self.rows


@dataclass(frozen=True)
class ScalingFit:
    """Outcome of the search."""

    calibrator: Vector
    converged: bool
    passes: int


SumOfRows = Callable[[AnyFloats, Integers], ScalingSums]
"""A sum over some rows, from their logits and labels."""

Summing = Callable[[SumOfRows], ScalingSums]
"""One pass: the sum over all rows of a set."""


def fit_vector(
    sample: Summing, rows: Summing | None, temperature: float, classes: int, precision: Precision
) -> ScalingFit:
    """Vector scaling of least penalised NLL: searched on a sample, then on all rows (None: the sample is all).

    The search starts at the temperature, which is also where the penalty draws to.
    """
    start = np.repeat([1.0 / temperature, 0.0], classes)
    free = np.ones(start.size, bool)
    passes = 0
    while True:
        fit = _search(sample, start, free, temperature, precision)
        passes += fit.passes
        if rows is not None:
            fit = _search(rows, fit.parameters, free, temperature, precision)
            passes += fit.passes
        weights, biases = np.split(fit.parameters, 2)
        turned = np.append(weights < 0, np.zeros(classes, bool))
        if not turned.any():
            found = Vector(tuple(weights.tolist()), tuple(biases.tolist()))
            return ScalingFit(found, fit.converged, passes)
        free &= ~turned
        start = np.where(free, start, 0.0)


def scaling_sums(
    logits: AnyFloats, labels: Integers, calibrator: Vector, precision: Precision, curvature: bool
) -> ScalingSums:
    """The sums of one block at one vector of weights and biases."""
    raw = log_probabilities(logits, Need.NOTHING, precision)
    view = calibrator.scaled(raw.values, Need.NOTHING)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        nll = view.sums.log_weight - view.label_gaps(labels)
        # classes first: what is added up lies together
        x = np.array(raw.values.T, order="C")
        np.copyto(x, 0.0, where=np.isneginf(x))  # such a class has the probability 0 and adds nothing
        share = 1.0 / (1.0 + view.sums.s)
        powers = np.array(view.scores.T, order="C")
        p = np.exp(np.subtract(powers, view.largest, out=powers), out=powers)
        p *= share
        numbers = np.arange(labels.size)
        right = np.flatnonzero(view.prediction == labels)
        rest = p.copy()
        rest[labels, numbers] -= 1.0
        rest[labels[right], right] = -view.sums.s[right] * share[right]  # 1 - p without cancelling
        gradient = [Total.of(values) for values in (*(rest * x), *rest)]
        sums = ScalingSums(labels.size, Total.of(nll), tuple(gradient))
        if not curvature:
            return sums
        x = np.maximum(x, -(2.0**_WIDEST), out=x)
        once = p * x
        diagonal = np.stack([_whole(once * x), _whole(once), _whole(p)])
        columns = np.rint(np.concatenate([once * 2.0 ** (_BITS - _WIDEST), p * 2.0**_BITS]))
    return ScalingSums(sums.rows, sums.nll, sums.gradient, diagonal, Squares.of(columns))


def _whole(values: Floats) -> NDArray[np.int64]:
    """The sum of each line, in units of 2**-20; whole numbers, so it has no order."""
    sums: NDArray[np.int64] = np.rint(values * 2.0**_BITS).astype(np.int64).sum(axis=1)
    return sums


@dataclass(frozen=True)
class _Found:
    parameters: Floats
    converged: bool
    passes: int


@dataclass(frozen=True)
class _Point:
    """The penalised mean NLL at some parameters, and its gradient."""

    parameters: Floats
    value: float
    gradient: Floats
    sums: ScalingSums


def _search(total: Summing, start: Floats, free: NDArray[np.bool_], temperature: float, precision: Precision) -> _Found:
    """Newton's method with the curvature of an earlier point as long as that brings it on, and shorter steps if not."""
    beta = 1.0 / temperature
    half = start.size // 2
    centre, pull = np.repeat([beta, 0.0], half), STRENGTH * np.repeat([beta**-2.0, 1.0], half)

    def at(parameters: Floats, curvature: bool) -> _Point:
        weights, biases = np.split(parameters, 2)
        calibrator = Vector(tuple(weights.tolist()), tuple(biases.tolist()))
        sums = total(lambda logits, labels: scaling_sums(logits, labels, calibrator, precision, curvature))
        away = parameters - centre
        mean = sums.nll.mean(sums.rows)
        value = math.inf if mean is None else mean + math.fsum(pull * away * away) / (2 * sums.rows)
        return _Point(parameters, value, (sums.mean_gradient() + pull * away / sums.rows)[free], sums)

    def curved(point: _Point) -> Floats:
        return (point.sums.mean_curvature() + np.diag(pull / point.sums.rows))[np.ix_(free, free)]

    point, passes = at(start, True), 1
    matrix, earlier, scale = curved(point), math.inf, 1.0
    while passes < _MOST_PASSES:
        step = -_solved(matrix, point.gradient)
        gain = -float(point.gradient @ step)
        following = point.parameters.copy()
        following[free] += scale * step
        if gain <= TOLERANCE:
            return _Found(following, True, passes)
        slow = gain > 1e-2 * earlier or scale < 1.0
        trial = at(following, slow or earlier == math.inf)
        passes += 1
        if not trial.value <= point.value - 1e-4 * scale * gain + 1e-15 * abs(point.value):
            scale /= 2  # only far from the minimum: the NLL is convex
            continue
        if trial.sums.products is not None:
            matrix = curved(trial)
        point, earlier, scale = trial, gain, 1.0
    return _Found(point.parameters, False, passes)


def _solved(matrix: Floats, gradient: Floats) -> Floats:
    """matrix^-1 gradient; where rounding has taken the matrix its positive values, a little is added."""
    from scipy.linalg import cho_factor, cho_solve

    extra = 0.0
    while True:
        try:
            factor = cho_factor(matrix + extra * np.eye(gradient.size))
        except np.linalg.LinAlgError:
            extra = max(10 * extra, 1e-9)
            continue
        solved: Floats = cho_solve(factor, gradient)
        return solved
