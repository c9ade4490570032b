"""Calibrators: from the logits of a row to the scores that its probabilities are made of.

What the other rooms see of a calibrator are `Scores`: predictions, gap sums, and the few further figures that losses,
scores and reports are computed from. How the scores came about, by a temperature or otherwise, stays in here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import partial, reduce
from operator import add
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from drrej.core.calibration import LabelledRows
from drrej.core.reuse import content_keys, key_limit
from drrej.core.softmax import NO_SUMS, ROW_MAJOR, GapSums, Need, block_sums, label_gaps
from drrej.core.sums import Total
from drrej.core.types import AnyFloats, Booleans, Floats, Integers, Precision
from drrej.records import dataclass

CalibratorName = Literal["temperature", "vector", "beta", "dirichlet", "auto"]
"""What may be asked for."""


@dataclass(frozen=True)
class Scores:
    """Rows of scores at one scale; a class has the probability softmax(beta * values).

    `largest` is the largest score of a row, `prediction` its class (the first of equals).
    """

    values: AnyFloats
    beta: float
    prediction: Integers
    largest: Floats
    sums: GapSums
    """As far as they were asked for."""
    negative: Booleans | None = None
    """Whether a row has a score below 0, where that is known."""

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.values.shape[1])

    def label_gaps(self, labels: Integers) -> Floats:
        """How far the label's score lies below the largest, before the scale."""
        return label_gaps(self.values, labels, self.largest)

    def labelled(self, labels: Integers) -> LabelledRows:
        """What calibration figures need of each row."""
        with np.errstate(invalid="ignore", over="ignore"):
            scaled: Floats = self.beta * self.label_gaps(labels)
        return LabelledRows(self.sums, scaled, self.prediction == labels)

    def energy(self) -> Floats:
        """-T log sum exp(scores / T)."""
        energy: Floats = -(self.largest + np.log1p(self.sums.s) / self.beta)
        return energy

    def powers(self, part: slice) -> Floats:
        """e^u of some rows, all classes: probabilities up to a factor. In float64, so a row's bits are its own."""
        scores = np.array(self.values[part], dtype=np.float64, order="C")
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            powers: Floats = np.exp((scores - scores.max(axis=1, keepdims=True)) * self.beta)
        return powers

    def logarithms(self) -> Floats:
        """The logarithms of the probabilities (rows x classes); -inf where one is 0."""
        with np.errstate(invalid="ignore", over="ignore"):
            logs: Floats = (self.values.astype(np.float64) - self.largest[:, None]) * self.beta
        return logs - self.sums.log_weight[:, None]

    def probabilities(self) -> Floats:
        """The probabilities (rows x classes), from the gap sums."""
        probabilities = self.powers(slice(None))
        probabilities /= 1.0 + self.sums.s[:, None]
        return probabilities


class Calibrator(Protocol):
    """Turns logits into calibrated scores."""

    def scores(
        self, logits: AnyFloats, needs: Need, precision: Precision, raw: Need | None = None
    ) -> tuple[Scores, Scores]:
        """Scores after and before calibration, with the gap sums that are needed there (`raw` None: none before)."""


@dataclass(frozen=True)
class Temperature:
    """Logits divided by T.

    >>> calibrated, _ = Temperature(2.0).scores(np.array([[2.0, 0.0]]), Need.NOTHING, "auto")
    >>> calibrated.sums.s.round(6)  # e^-1
    array([0.367879])
    """

    temperature: float

    def scores(
        self, logits: AnyFloats, needs: Need, precision: Precision, raw: Need | None = None
    ) -> tuple[Scores, Scores]:
        """See `Calibrator`. Both scales share the search for the largest logit, and the gaps to it."""
        beta = 1.0 / self.temperature
        betas, wanted = ([beta], [needs]) if raw is None else ([beta, 1.0], [needs, raw])
        sums = block_sums(logits, betas, wanted, precision)
        top = sums.prediction, sums.largest
        as_given = NO_SUMS if raw is None else sums.at[1]
        return (
            Scores(logits, beta, *top, sums.at[0], sums.negative),
            Scores(logits, 1.0, *top, as_given, sums.negative),
        )


IDENTITY = Temperature(1.0)
"""Logits as they are."""


@dataclass(frozen=True)
class LogProbabilities:
    """ln p of some rows (rows x classes) in float64, at most 0; `raw` is what they come from."""

    values: Floats
    raw: Scores


def log_probabilities(logits: AnyFloats, needs: Need, precision: Precision) -> LogProbabilities:
    """Logarithms of softmax(logits); they do not depend on what is added to all logits of a row. -inf stays -inf.

    >>> log_probabilities(np.array([[1.0, 1.0, -np.inf]]), Need.NOTHING, "auto").values.round(6).tolist()
    [[-0.693147, -0.693147, -inf]]
    """
    sums = block_sums(logits, [1.0], [needs], precision)
    raw = Scores(logits, 1.0, sums.prediction, sums.largest, sums.at[0])
    rows, classes = logits.shape
    # Written as the kernels read: classes first where these are few.
    values: Floats = np.empty((rows, classes) if classes >= ROW_MAJOR else (classes, rows))
    values = values if classes >= ROW_MAJOR else values.T
    with np.errstate(invalid="ignore", over="ignore"):
        np.subtract(logits, sums.largest[:, None], out=values, dtype=np.float64)
        values -= raw.sums.log_weight[:, None]
    return LogProbabilities(values, raw)


LEAST_MIXED = -6.0 * 2.302585092994046
"""ln 1e-6."""


@dataclass(frozen=True)
class Vector:
    """Vector scaling: class j has the score weights[j] * ln p_j + biases[j]; no weight is below 0.

    Equal weights and no biases are a temperature; with two classes this is beta calibration. The likeliest class may
    be another after it. A class of probability 0 keeps it. With `mixing` (Dirichlet calibration) class j also has
    mixing[j][k] * ln p_k of the other classes, where a p_k below 1e-6 counts as that: further down it says no more.

    >>> calibrated, _ = Vector((0.5, 0.5), (0.0, 0.0)).scores(np.array([[2.0, 0.0]]), Need.NOTHING, "auto")
    >>> calibrated.sums.s.round(6)  # as at the temperature 2
    array([0.367879])
    """

    weights: tuple[float, ...]
    biases: tuple[float, ...]
    mixing: tuple[tuple[float, ...], ...] | None = None

    def scores(
        self, logits: AnyFloats, needs: Need, precision: Precision, raw: Need | None = None
    ) -> tuple[Scores, Scores]:
        """See `Calibrator`."""
        before = log_probabilities(logits, raw or Need.NOTHING, precision)
        return self.scaled(before.values, needs), before.raw

    def scaled(self, values: Floats, needs: Need) -> Scores:
        """Calibrated rows, from their ln p; in float64, whatever the logits are stored in."""
        with np.errstate(invalid="ignore", over="ignore"):
            scores: Floats = values * np.array(self.weights)
            scores += np.array(self.biases)
            if self.mixing is not None:
                _mix(scores, mixed_values(values), self.mixing)
            if min(self.weights) <= 0.0:  # below 0 only while they are searched for
                np.copyto(scores, -np.inf, where=np.isneginf(values))
        sums = block_sums(scores, [1.0], [needs], "float64")
        return Scores(scores, 1.0, sums.prediction, sums.largest, sums.at[0])


def mixed_values(values: Floats) -> Floats:
    """What other classes see of ln p."""
    return np.maximum(values, LEAST_MIXED)


def _mix(scores: Floats, values: Floats, mixing: tuple[tuple[float, ...], ...]) -> None:
    """Add to each score its share of the others, one after the other: a row's bits are its own."""
    for target, line in enumerate(mixing):
        for place, weight in enumerate(line):
            if weight:
                scores[:, target] += weight * values[:, place]


@dataclass(frozen=True)
class CalibratorTrial:
    """A calibrator that was considered: its NLL on rows not fitted to, and how far that is above the best."""

    calibrator: str
    nll: float
    above_best: float
    std_error: float


MOST_CLASSES = 256
"""Above that the curvature, a square of twice as many numbers, costs more than it is worth."""

MOST_MIXED = 24
"""The same for Dirichlet calibration, with numbers for each pair of classes."""

STRENGTH = 30.0
"""Rows that the penalty weighs as much as."""

MIXING_STRENGTH = 1000.0
"""The same for what other classes add; there are many such numbers."""

SCALING_TOLERANCE = 1e-14
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


ScalingSumOfRows = Callable[[AnyFloats, Integers], ScalingSums]
"""A sum over some rows, from their logits and labels."""

ScalingSumming = Callable[[ScalingSumOfRows], ScalingSums]
"""One pass: the sum over all rows of a set."""


def fit_vector(
    sample: ScalingSumming,
    rows: ScalingSumming | None,
    temperature: float,
    classes: int,
    precision: Precision,
    mixed: bool = False,
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
        powers = np.array(view.values.T, order="C")
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


def _search(
    total: ScalingSumming, start: Floats, free: NDArray[np.bool_], shape: _Shape, precision: Precision
) -> _Found:
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
        if gain <= SCALING_TOLERANCE:
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


FOLDS = 5
MOST_VALUES = 1 << 19
"""Logits that the choice looks at."""


def candidates(classes: int) -> tuple[str, ...]:
    """The calibrators for so many classes, the simplest first.

    >>> candidates(2), candidates(10), candidates(100), candidates(1000)
    (('temperature', 'beta'), ('temperature', 'vector', 'dirichlet'), ('temperature', 'vector'), ('temperature',))
    """
    if classes == 2:
        return "temperature", "beta"
    if classes <= MOST_MIXED:
        return "temperature", "vector", "dirichlet"
    return ("temperature", "vector") if classes <= MOST_CLASSES else ("temperature",)


def fit_calibrator(name: str, logits: AnyFloats, labels: Integers, precision: Precision) -> Calibrator:
    """One of the `candidates`, fitted to rows in memory."""
    temperature = fit_temperature(lambda function: function(logits, labels), None, precision).temperature
    if name == "temperature":
        return Temperature(temperature)
    classes, mixed = logits.shape[1], name == "dirichlet"
    fit = fit_vector(lambda function: function(logits, labels), None, temperature, classes, precision, mixed)
    return fit.calibrator


def held_out_nll(logits: AnyFloats, labels: Integers, precision: Precision) -> dict[str, Floats]:
    """The NLL of rows (rows x classes) under each candidate, fitted to the rows of the other folds.

    Folds and, where there are too many rows, those that are looked at are settled by what the rows hold. None at all
    where there are too few rows to divide.
    """
    keys = content_keys(logits)
    fold = (keys % np.uint64(FOLDS)).astype(np.int64)
    chosen = keys <= key_limit(MOST_VALUES / logits.size)
    parts = [np.flatnonzero(chosen & (fold == number)) for number in range(FOLDS)]
    parts = [part for part in parts if part.size]
    if len(parts) < 2:
        return {}
    names = candidates(logits.shape[1])
    found: dict[str, list[Floats]] = {name: [] for name in names}
    for number, part in enumerate(parts):
        others = np.concatenate([other for place, other in enumerate(parts) if place != number])
        for name in names:
            calibrator = fit_calibrator(name, logits[others], labels[others], precision)
            calibrated, _ = calibrator.scores(logits[part], Need.NOTHING, precision)
            rows = calibrated.labelled(labels[part])
            found[name].append(rows.sums.log_weight - rows.label_gap)
    return {name: np.concatenate(values) for name, values in found.items()}


def choose_calibrator(nll: Mapping[str, Floats]) -> tuple[str, tuple[CalibratorTrial, ...]]:
    """The first calibrator whose NLL is within one standard error of the best, and the table it was chosen from.

    `nll` has the values of the same rows under each calibrator, the simplest first.

    >>> rows = np.array([1.0, 0.5, 0.2, 0.4])
    >>> choose_calibrator({"temperature": rows, "vector": rows - 0.1 + np.array([0.3, -0.2, 0.2, -0.2])})[0]
    'temperature'
    >>> choose_calibrator({"temperature": rows, "vector": rows - 0.1})[0]
    'vector'
    """
    means = {name: Total.of(values).mean(values.size) for name, values in nll.items()}
    finite = {name: mean for name, mean in means.items() if mean is not None}
    best = min(finite, key=lambda name: finite[name])
    table = tuple(
        CalibratorTrial(name, mean, mean - finite[best], _std_error(nll[name] - nll[best]))
        for name, mean in finite.items()
    )
    chosen = next(trial for trial in table if trial.above_best <= trial.std_error)
    return chosen.calibrator, table


def _std_error(differences: Floats) -> float:
    """Of their mean."""
    rows = differences.size
    mean = Total.of(differences).mean(rows) or 0.0
    variance = Total.of(np.square(differences - mean)).mean(rows) or 0.0
    return math.sqrt(variance / rows)
