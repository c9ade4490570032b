"""Vector scaling: the NLL of softmax(w ln p + b) as a convex function of a weight and a bias per class.

With x = ln p, the logarithms of the probabilities before calibration, class j has the score w_j x_j + b_j. A penalty
draws the weights to those of the best temperature and the biases to 0, as strongly as `STRENGTH` rows would:

    sum of NLL + STRENGTH / 2 * sum over classes [((w_j - beta) / beta)^2 + b_j^2].

So there is one minimum and it is finite, and few rows leave the temperature alone. For two classes this is beta
calibration. A weight below 0 would turn a class around: such weights are held at 0 and the others are fitted again.

Dirichlet calibration adds to the score of class j a weight times ln p_k of every other class, drawn to 0 as strongly as
`MIXING_STRENGTH` rows would.

The search is Newton's. What it adds up is exact and so has no order: the NLL and its gradient as `Total`s; the
curvature, which settles only how fast the minimum is found, from numbers that are rounded to so few bits that a
matrix product of them has no rounding left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial, reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from drrej.core.calibrators import Vector, log_probabilities, mixed_values
from drrej.core.exact import Total
from drrej.core.kernels import Need
from drrej.core.types import AnyFloats, Floats, Integers, Precision
from drrej.records import dataclass

MOST_CLASSES = 256
"""Above that the curvature, a square of twice as many numbers, costs more than it is worth."""

MOST_MIXED = 24
"""The same for Dirichlet calibration, with numbers for each pair of classes."""

STRENGTH = 30.0
"""Rows that the penalty weighs as much as."""

MIXING_STRENGTH = 1000.0
"""The same for what other classes add; there are many such numbers."""

TOLERANCE = 1e-14
"""Twice the mean NLL still to be gained at which the last step is taken."""

_MOST_PASSES = 100
_CHUNK = 1 << 13
_BITS = 20
_WIDEST = 6
"""beta x counts as at least -2**6 in the curvature: products have 40 bits then, and sums of 2**13 of them are exact.

Rows beyond that have a p of 0 there, near the minimum.
"""

_UNITS = 2.0 ** (_BITS - _WIDEST)
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
    """Sums over rows: the NLL, its gradient (weights, biases, mixing), and if wanted what its curvature is made of.

    With f the features of a class, `own` are the sums of p f f^T class by class, `products` those of (p f)(p f)^T. In
    them x stands multiplied by `scale`.
    """

    rows: int
    nll: Total
    gradient: tuple[Total, ...]
    own: tuple[Squares, ...] | None = None
    products: Squares | None = None
    scale: float = 1.0

    def __add__(self, other: ScalingSums) -> ScalingSums:
        own, products = None, None
        if self.own is not None and other.own is not None:
            own = tuple(mine + yours for mine, yours in zip(self.own, other.own, strict=True))
        if self.products is not None and other.products is not None:
            products = self.products + other.products
        gradient = tuple(mine + yours for mine, yours in zip(self.gradient, other.gradient, strict=True))
        return ScalingSums(self.rows + other.rows, self.nll + other.nll, gradient, own, products, self.scale)

    def mean_gradient(self) -> Floats:
        """Of the mean NLL."""
        return np.array([total.mean(self.rows) or 0.0 for total in self.gradient])

    def mean_curvature(self) -> Floats:
        """Of the mean NLL: diag(p) - p p^T in the biases, and so on."""
        assert self.own is not None
        assert self.products is not None
        curvature = -self.products.values()
        for number, squares in enumerate(self.own):
            places = _places(number, len(self.own), curvature.shape[0])
            curvature[np.ix_(places, places)] += squares.values()
        units = np.full(curvature.shape[0], 1.0 / _UNITS)
        units[: len(self.own)] /= self.scale
        units[len(self.own) : 2 * len(self.own)] /= 2.0**_WIDEST
        return curvature * np.outer(units, units) / self.rows


def _places(number: int, classes: int, size: int) -> NDArray[np.intp]:
    """Where the parameters of a class stand: its weight, its bias, and what the other classes add."""
    own = [number, classes + number]
    if size > 2 * classes:
        first = 2 * classes + number * (classes - 1)
        own += range(first, first + classes - 1)
    return np.array(own, np.intp)


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
    sample: Summing, rows: Summing | None, temperature: float, classes: int, precision: Precision, mixed: bool = False
) -> ScalingFit:
    """Vector scaling of least penalised NLL: searched on a sample, then on all rows (None: the sample is all).

    The search starts at the temperature, which is also where the penalty draws to. `mixed`: Dirichlet calibration.
    """
    start = np.repeat([1.0 / temperature, 0.0], classes)
    if mixed:
        start = np.append(start, np.zeros(classes * (classes - 1)))
    free = np.ones(start.size, bool)
    passes = 0
    while True:
        fit = _search(sample, start, free, _Shape(classes, temperature), precision)
        passes += fit.passes
        if rows is not None:
            fit = _search(rows, fit.parameters, free, _Shape(classes, temperature), precision)
            passes += fit.passes
        turned = np.zeros(start.size, bool)
        turned[:classes] = fit.parameters[:classes] < 0
        if not turned.any():
            return ScalingFit(_Shape(classes, temperature).calibrator(fit.parameters), fit.converged, passes)
        free &= ~turned
        start = np.where(free, start, 0.0)


@dataclass(frozen=True)
class _Shape:
    """What the parameters mean: weights, biases and, if there are more, what the other classes add, class by class."""

    classes: int
    temperature: float

    @property
    def scale(self) -> float:
        """1 / T as a power of 2, which rounds nothing."""
        return 2.0 ** -round(math.log2(self.temperature))

    def calibrator(self, parameters: Floats) -> Vector:
        weights, biases = parameters[: self.classes], parameters[self.classes : 2 * self.classes]
        mixing = None
        if parameters.size > 2 * self.classes:
            square = np.zeros((self.classes, self.classes))
            square[~np.eye(self.classes, dtype=bool)] = parameters[2 * self.classes :]
            mixing = tuple(tuple(line) for line in square.tolist())
        return Vector(tuple(weights.tolist()), tuple(biases.tolist()), mixing)

    def penalty(self, size: int) -> tuple[Floats, Floats]:
        """Where the parameters are drawn to, and how strongly."""
        beta = 1.0 / self.temperature
        centre, pull = np.zeros(size), np.full(size, MIXING_STRENGTH * beta**-2.0)
        centre[: self.classes] = beta
        pull[: self.classes] = STRENGTH * beta**-2.0
        pull[self.classes : 2 * self.classes] = STRENGTH
        return centre, pull


def scaling_sums(
    logits: AnyFloats, labels: Integers, calibrator: Vector, precision: Precision, scale: float | None
) -> ScalingSums:
    """The sums of one block at one calibrator; with a scale, near that of its weights, those of the curvature too."""
    step = _CHUNK if scale is not None and calibrator.mixing is not None else max(labels.size, 1)
    parts = [slice(start, start + step) for start in range(0, max(labels.size, 1), step)]
    sums = [_sums(logits[part], labels[part], calibrator, precision, scale) for part in parts]
    return reduce(add, sums)


def _sums(
    logits: AnyFloats, labels: Integers, calibrator: Vector, precision: Precision, scale: float | None
) -> ScalingSums:
    values = log_probabilities(logits, Need.NOTHING, precision).values
    view = calibrator.scaled(values, Need.NOTHING)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        nll = view.sums.log_weight - view.label_gaps(labels)
        # classes first: what is added up lies together
        x = np.array(values.T, order="C")
        others = [] if calibrator.mixing is None else [mixed_values(x)]
        np.copyto(x, 0.0, where=np.isneginf(x))  # such a class has the probability 0 and adds nothing
        share = 1.0 / (1.0 + view.sums.s)
        powers = np.array(view.scores.T, order="C")
        p = np.exp(np.subtract(powers, view.largest, out=powers), out=powers)
        p *= share
        right = np.flatnonzero(view.prediction == labels)
        rest = p.copy()
        rest[labels, np.arange(labels.size)] -= 1.0
        rest[labels[right], right] = -view.sums.s[right] * share[right]  # 1 - p without cancelling
        features = [[x, np.ones_like(x)], others]
        gradient = tuple(Total.of(line) for line in _products(rest, features))
        sums = ScalingSums(labels.size, Total.of(nll), gradient)
        if scale is None:
            return sums
        x *= scale
        np.maximum(x, -(2.0**_WIDEST), out=x)
        features[0][1] *= 2.0**_WIDEST  # as precise as the others
        columns = np.stack([np.rint(line * _UNITS) for line in _products(p, features)])
        root = np.sqrt(p, out=p)
        roots = np.stack([np.rint(line * _UNITS) for line in _products(root, features)])
    classes = x.shape[0]
    own = tuple(Squares.of(roots[_places(number, classes, roots.shape[0])]) for number in range(classes))
    return ScalingSums(sums.rows, sums.nll, sums.gradient, own, Squares.of(columns), scale)


def _products(factors: Floats, features: list[list[Floats]]) -> Iterator[Floats]:
    """A factor of each class times the features of its parameters, in the order of these."""
    own, others = features
    for feature in own:
        yield from factors * feature
    for number, factor in enumerate(factors):
        for other in others:
            yield from factor * np.delete(other, number, axis=0)


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


def _search(total: Summing, start: Floats, free: NDArray[np.bool_], shape: _Shape, precision: Precision) -> _Found:
    """Newton's method with the curvature of an earlier point as long as that brings it on, and shorter steps if not."""
    centre, pull = shape.penalty(start.size)

    def at(parameters: Floats, curvature: bool) -> _Point:
        calibrator, scale = shape.calibrator(parameters), shape.scale if curvature else None
        sums = total(partial(scaling_sums, calibrator=calibrator, precision=precision, scale=scale))
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
