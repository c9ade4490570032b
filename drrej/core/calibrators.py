"""Calibrators: from the logits of a row to the scores that its probabilities are made of, and how they are fitted.

What the other rooms see of a calibrator are `Scores`: predictions, gap sums, and the few further figures that losses
and reports are computed from. How the scores came about, by a temperature or otherwise, stays in here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
from msgspec import Struct, field

from drrej.core.reuse import content_keys, key_limit
from drrej.core.softmax import NOTHING, ROW_MAJOR, GapSums, Needs, block_sums, label_gaps
from drrej.core.types import AnyFloats, Booleans, Floats, Integers, Precision, Stored, Sums, Total

CalibratorName = Literal["temperature", "vector", "beta", "logistic", "isotonic", "auto"]
"""What may be asked for."""

CALIBRATORS = {
    "temperature": "temperature scaling",
    "vector": "vector scaling",
    "beta": "beta calibration",
    "logistic": "logistic regression",
    "isotonic": "isotonic regression",
}
"""What may have been fitted to rows, in words."""


SMALL_ODDS = 1e-8
"""Smaller odds are summed relative to the largest rival: far below the largest score, single precision loses digits."""


class Scores(Struct, frozen=True):
    """Rows of scores at one scale; a class has the probability softmax(beta * values).

    `largest` is the largest score of a row, `prediction` its class (the first of equals).
    """

    values: AnyFloats
    beta: float
    prediction: Integers
    largest: Floats
    sums: GapSums
    """As far as they were asked for."""
    precision: Precision = "auto"
    ranked: GapSums | None = None
    """Those at the temperature that a learned loss ranks by, if it was known."""

    def label_gaps(self, labels: Integers) -> Floats:
        """U of the label: how far its score, after the scale, lies below the largest; at most 0."""
        with np.errstate(invalid="ignore", over="ignore"):
            return self.beta * label_gaps(self.values, labels, self.largest)

    def log_odds(self, scale: float) -> Floats:
        """The log-odds of an error at `scale` times the inverse temperature.

        Small ones are summed relative to the largest rival of the predicted class: nothing underflows.
        """
        beta, at = self.beta * scale, self.ranked
        if at is None:
            _, _, (at,) = block_sums(self.values, [beta], [NOTHING], self.precision)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_odds: Floats = np.log(at.odds)
            if (small := np.flatnonzero(at.odds < SMALL_ODDS)).size:
                others = self.values[small]
                others[np.arange(small.size), self.prediction[small]] = -np.inf
                _, largest, (at,) = block_sums(others, [beta], [NOTHING], self.precision)
                behind = beta * (largest - self.largest[small]) + at.log_weight
                log_odds[small] = np.where(largest == -np.inf, -np.inf, behind)
        return log_odds

    def energy(self) -> Floats:
        """-T log sum exp(scores / T)."""
        return -(self.largest + np.log1p(self.sums.odds) / self.beta)

    def powers(self, part: slice) -> Floats:
        """e^u of some rows, all classes: probabilities up to a factor. In float64, so a row's bits are its own."""
        scores = np.array(self.values[part], dtype=np.float64, order="C")
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            powers: Floats = np.exp((scores - scores.max(axis=1, keepdims=True)) * self.beta)
        return powers

    def probabilities(self) -> Floats:
        """The probabilities (rows x classes), from the gap sums."""
        probabilities = self.powers(slice(None))
        probabilities /= 1.0 + self.sums.odds[:, None]
        return probabilities


class Temperature(Struct, frozen=True):
    """Logits divided by T.

    >>> calibrated, _ = Temperature(2.0).scores(np.array([[2.0, 0.0]]), NOTHING, "auto")
    >>> calibrated.sums.odds.round(6)  # e^-1
    array([0.367879])
    """

    temperature: float

    def scores(
        self,
        logits: AnyFloats,
        needs: Needs | None,
        precision: Precision,
        raw: Needs | None = None,
        scale: float | None = None,
    ) -> tuple[Scores, Scores]:
        """Scores after and before calibration, with the gap sums that are needed there (None: none).

        With `scale` also those that a learned loss ranks by. All share the search for the largest logit, and the gaps.
        """
        beta = 1.0 / self.temperature
        wanted = [(beta, needs), (1.0, raw), (beta * (scale or 1.0), None if scale is None else NOTHING)]
        betas, sums = zip(*((at, each) for at, each in wanted if each is not None), strict=True)
        prediction, largest, found = block_sums(logits, betas, sums, precision)
        after, before, ranked = (None if each is None else found.pop(0) for _, each in wanted)
        return (
            Scores(logits, beta, prediction, largest, after or GapSums(), precision, ranked),
            Scores(logits, 1.0, prediction, largest, before or GapSums(), precision),
        )


IDENTITY = Temperature(1.0)
"""Logits as they are."""


class Vector(Stored, frozen=True):
    """Vector scaling: class j has the score weights[j] * ln p_j + biases[j]; no weight is below 0.

    Equal weights and no biases are a temperature; with two classes this is beta calibration. The likeliest class may
    be another after it. A class of probability 0 keeps it.

    >>> calibrated, _ = Vector((0.5, 0.5), (0.0, 0.0)).scores(np.array([[2.0, 0.0]]), NOTHING, "auto")
    >>> calibrated.sums.odds.round(6)  # as at the temperature 2
    array([0.367879])
    """

    weights: tuple[float, ...]
    biases: tuple[float, ...]

    def scores(
        self,
        logits: AnyFloats,
        needs: Needs | None,
        precision: Precision,
        raw: Needs | None = None,
        scale: float | None = None,
    ) -> tuple[Scores, Scores]:
        """As those of `Temperature`; in float64 after calibration, whatever the logits are stored in."""
        logs, before = log_probabilities(logits, raw or NOTHING, precision)
        with np.errstate(invalid="ignore", over="ignore"):
            scores: Floats = logs * np.array(self.weights)
            scores += np.array(self.biases)
            if min(self.weights) <= 0.0:  # below 0 only while they are searched for
                np.copyto(scores, -np.inf, where=np.isneginf(logs))
        return IDENTITY.scores(scores, needs, "float64", scale=scale)[0], before


Calibrator = Temperature | Vector
"""Turns logits into calibrated scores."""


def log_probabilities(logits: AnyFloats, needs: Needs, precision: Precision) -> tuple[Floats, Scores]:
    """Logarithms of softmax(logits) in float64, and the scores they come from; -inf stays -inf.

    >>> log_probabilities(np.array([[1.0, 1.0, -np.inf]]), NOTHING, "auto")[0].round(6).tolist()
    [[-0.693147, -0.693147, -inf]]
    """
    prediction, largest, (sums,) = block_sums(logits, [1.0], [needs], precision)
    # Written as the sums read: classes first where these are few.
    logs: Floats = np.empty(logits.shape) if logits.shape[1] >= ROW_MAJOR else np.empty(logits.shape[::-1]).T
    with np.errstate(invalid="ignore", over="ignore"):
        np.subtract(logits, largest[:, None], out=logs, dtype=np.float64)
        logs -= sums.log_weight[:, None]
    return logs, Scores(logits, 1.0, prediction, largest, sums)


MIN_TEMPERATURE = 1e-3
MAX_TEMPERATURE = 1e3
FEW_ERRORS = 50
"""Below so many errors the rows say little about the temperature, and a prior draws it to 1."""

TOLERANCE = 1e-8
"""Relative tolerance on beta; a Newton step squares the error, so the last step may be about its root."""

_MOST_STEPS = 30
"""More passes than any search has needed that was seen; further ones halve the bracket."""


class NllSums(Sums, frozen=True):
    """Sums over rows of the first two derivatives of the NLL in beta; how many of the rows are wrong."""

    rows: int = 0
    errors: int = 0
    gradient: Total = field(default_factory=Total)
    curvature: Total = field(default_factory=Total)

    def derivatives(self, beta: float) -> tuple[float, float]:
        """Of what is minimised, by row: the NLL and, where errors are few, weight / 2 (ln beta)^2.

        Without errors the NLL alone falls for ever, and with a few it is flat. The prior has half of its full weight
        at 25 errors and none from 50 on.
        """
        gradient, curvature = self.gradient.mean(self.rows) or 0.0, self.curvature.mean(self.rows) or 0.0
        weight = max(0.0, 1.0 - self.errors / FEW_ERRORS) / max(self.rows, 1)
        if weight:
            gradient += weight * math.log(beta) / beta
            curvature += weight * (1.0 - math.log(beta)) / beta**2
        return gradient, curvature


class TemperatureFit(Struct, frozen=True):
    """Outcome of the search: `converged` is False when the NLL has no minimum inside the bracket.

    `bend` is the last known d log(curvature) / d log(beta); a search among more such rows may start with it.
    """

    temperature: float
    converged: bool
    passes: int
    bend: float = 0.0


T = TypeVar("T")
Summing = Callable[[Callable[[AnyFloats, Integers], T]], T]
"""One pass: the sum over all rows of a set of what a function makes of their logits and labels."""


def fit_temperature(sample: Summing[NllSums], rows: Summing[NllSums] | None, precision: Precision) -> TemperatureFit:
    """The temperature of least NLL, with a prior where errors are few.

    It is searched on a sample, then on all rows (None: the sample is all there is).
    """
    if rows is None:
        return minimise(lambda beta: sample(partial(nll_sums, beta=beta, precision="float64")))
    start = minimise(lambda beta: sample(partial(nll_sums, beta=beta, precision=precision)))
    return minimise(
        lambda beta: rows(partial(nll_sums, beta=beta, precision=precision)), 1.0 / start.temperature, start.bend
    )


def nll_sums(logits: AnyFloats, labels: Integers, beta: float, precision: Precision) -> NllSums:
    """Gradient and curvature of the NLL of one block at one beta."""
    needs = frozenset({"moment", "second_moment"})
    prediction, largest, (at,) = block_sums(logits, [beta], [needs], precision)
    weight = 1.0 + at.odds
    mean_gap = at.moment / (beta * weight)
    return NllSums(
        rows=labels.size,
        errors=int(np.count_nonzero(prediction != labels)),
        gradient=Total.of(mean_gap - label_gaps(logits, labels, largest)),
        curvature=Total.of(at.second_moment / (beta * beta * weight) - np.square(mean_gap)),
    )


def minimise(evaluate: Callable[[float], NllSums], start: float = 1.0, bend: float = 0.0) -> TemperatureFit:
    """The minimum of the NLL, with its prior, by Newton's method in a bracket; `evaluate` is a pass over the rows.

    The curvature goes roughly with a power of beta, `bend`, which two passes tell: a Newton step for such a function
    comes nearer than one for a parabola (bend 0). The NLL is convex, so the sign of the gradient says on which side of
    the minimum a point lies; a step that leaves the bracket goes to its end or, where that is far, to the geometric
    middle. Where nearly all labels have the largest logit the gradient falls like e^-beta, and a Newton step gets
    hardly further than the one before it: such steps are lengthened, twice each time.
    """
    coldest, hottest = 1.0 / MIN_TEMPERATURE, 1.0 / MAX_TEMPERATURE
    low, high, beta = hottest, coldest, min(max(start, hottest), coldest)
    earlier, last_step, slow, passes = None, 0.0, 0, 0
    while True:
        if beta not in (hottest, coldest):
            beta = float(np.float32(beta))  # the sums may be computed with that
        sums = evaluate(beta)
        passes += 1
        gradient, curvature = sums.derivatives(beta)
        if gradient == 0:
            if curvature > 0:
                return TemperatureFit(1.0 / beta, converged=True, passes=passes, bend=bend)
            # Every e^u has underflown (every label has the largest logit: the best beta is infinite), or every gap is
            # 0 and no beta is better than another. The hottest end, where e^u is largest, tells them apart.
            separable = (evaluate(hottest).gradient.mean(sums.rows) or 0.0) < 0
            return TemperatureFit(MIN_TEMPERATURE if separable else 1.0 / beta, converged=False, passes=passes + 1)
        low, high = (beta, high) if gradient < 0 else (low, beta)
        step = math.copysign(math.inf, -gradient)
        if curvature > 0:
            if earlier is not None and abs(math.log(beta / earlier[0])) > 1e-6:
                bend = math.log(curvature / earlier[1]) / math.log(beta / earlier[0])
            step = _log_step(-gradient / (curvature * beta), bend)
        earlier = (beta, curvature) if curvature > 0 else None
        target = beta * math.exp(min(step, 100.0))
        if abs(target - beta) <= math.sqrt(TOLERANCE) * beta and low <= target <= high:
            return TemperatureFit(1.0 / target, converged=True, passes=passes, bend=bend)
        if high <= low * (1 + TOLERANCE):
            at_end = beta in (hottest, coldest)
            return TemperatureFit(1.0 / beta, converged=not at_end, passes=passes, bend=bend)
        end = high if gradient < 0 else low
        room = abs(math.log(end / beta))
        if low < target < high:
            slow = slow + 1 if step * last_step > 0 and abs(step) > 0.5 * abs(last_step) else 0
            last_step = step
            if slow > 1:
                longer = 2.0**slow * step
                target = beta * math.exp(longer) if abs(longer) < room else math.sqrt(beta * end)
        if passes > _MOST_STEPS and low > hottest and high < coldest:
            target = math.sqrt(low * high)  # so that it ends, whatever the steps do
        elif not low < target < high:
            target = end if room <= 1.0 else math.sqrt(beta * end)
        beta = target


def _log_step(step: float, bend: float) -> float:
    """The logarithm of where a gradient vanishes that is -step at x = 1 and has the slope x^bend."""
    power = bend + 1.0
    if abs(power * step) < 0.5:
        return math.log1p(power * step) / power if power else step
    return math.log1p(step) if step > -1.0 else -math.inf


MOST_CLASSES = 256
"""Above that the curvature, a square of twice as many numbers, costs more than it is worth."""

STRENGTH = 30.0
"""Rows that the penalty weighs as much as."""

SCALING_TOLERANCE = 1e-14
"""Twice the mean NLL still to be gained at which the last step is taken."""

_MOST_PASSES = 100
_DIGITS = 10
"""Decimals that weights and biases are rounded to: so the order in which rows are added does not show."""


class ScalingSums(Sums, frozen=True):
    """Sums over rows: the NLL, its gradient in the weights and biases, and its curvature."""

    rows: int
    nll: float
    gradient: Floats
    curvature: Floats


def fit_vector(
    sample: Summing[ScalingSums],
    rows: Summing[ScalingSums] | None,
    temperature: float,
    classes: int,
    precision: Precision,
) -> tuple[Vector, bool]:
    """Vector scaling of least penalised NLL, and whether the search has converged.

    It is searched on a sample, then on all rows (None: the sample is all). The search starts at the temperature, which
    is also where the penalty draws to. Weights that would turn a class round are held at 0.
    """
    start = np.repeat([1.0 / temperature, 0.0], classes)
    free = np.ones(start.size, bool)
    while True:
        parameters, converged = _search(sample, start, free, temperature, precision)
        if rows is not None:
            parameters, converged = _search(rows, parameters, free, temperature, precision)
        turned = np.append(parameters[:classes] < 0, np.zeros(classes, bool))
        if not turned.any():
            return _vector(np.round(parameters, _DIGITS)), converged
        free &= ~turned
        start = np.where(free, start, 0.0)


def _vector(parameters: Floats) -> Vector:
    weights, biases = np.split(parameters, 2)
    return Vector(tuple(weights.tolist()), tuple(biases.tolist()))


def scaling_sums(logits: AnyFloats, labels: Integers, calibrator: Vector, precision: Precision) -> ScalingSums:
    """The sums of one block at one calibrator."""
    logs, _ = log_probabilities(logits, NOTHING, precision)
    scores, _ = calibrator.scores(logits, NOTHING, precision)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        nll = float(np.sum(scores.sums.log_weight - scores.label_gaps(labels)))
        x = np.array(logs.T, order="C")  # classes first: what is added up lies together
        np.copyto(x, 0.0, where=np.isneginf(x))  # such a class has the probability 0 and adds nothing
        p = np.ascontiguousarray(scores.probabilities().T)
        rest = p.copy()
        rest[labels, np.arange(labels.size)] -= 1.0
        gradient = np.concatenate([(rest * x).sum(axis=1), rest.sum(axis=1)])
        weighted = np.concatenate([p * x, p])
        curvature = -(weighted @ weighted.T)  # diag(p) - p p^T in the biases, and so on
        classes = np.arange(x.shape[0])
        of_weights, of_biases = classes, classes + classes.size
        cross = weighted[of_weights].sum(axis=1)
        curvature[of_weights, of_weights] += (weighted[of_weights] * x).sum(axis=1)
        curvature[of_weights, of_biases] += cross
        curvature[of_biases, of_weights] += cross
        curvature[of_biases, of_biases] += p.sum(axis=1)
    return ScalingSums(labels.size, nll, gradient, curvature)


def _search(
    total: Summing[ScalingSums], start: Floats, free: Booleans, temperature: float, precision: Precision
) -> tuple[Floats, bool]:
    """Newton's method, with shorter steps where a full one does not descend; whether it has converged."""
    beta = 1.0 / temperature
    centre = np.repeat([beta, 0.0], start.size // 2)
    pull = np.repeat([STRENGTH * temperature**2, STRENGTH], start.size // 2)

    def at(parameters: Floats) -> tuple[float, ScalingSums]:
        sums = total(partial(scaling_sums, calibrator=_vector(parameters), precision=precision))
        return (sums.nll + float(np.sum(pull * (parameters - centre) ** 2)) / 2) / sums.rows, sums

    parameters = start
    value, sums = at(parameters)
    length = 1.0
    for _ in range(_MOST_PASSES):
        gradient = ((sums.gradient + pull * (parameters - centre)) / sums.rows)[free]
        curvature = ((sums.curvature + np.diag(pull)) / sums.rows)[np.ix_(free, free)]
        step = np.zeros(start.size)
        step[free] = -np.linalg.solve(curvature, gradient)
        gain = -float(gradient @ step[free])
        following = parameters + length * step
        if gain <= SCALING_TOLERANCE:
            return following, True
        trial, trial_sums = at(following)
        if trial <= value - 1e-4 * length * gain + 1e-15 * abs(value):
            parameters, value, sums, length = following, trial, trial_sums, 1.0
        else:
            length /= 2  # only far from the minimum: the NLL is convex
    return parameters, False


FOLDS = 5
MOST_VALUES = 1 << 19
"""Logits that the choice looks at."""


def candidates(classes: int) -> tuple[str, ...]:
    """The calibrators for so many classes, the simplest first.

    >>> candidates(2), candidates(10), candidates(1000)
    (('temperature', 'beta'), ('temperature', 'vector'), ('temperature',))
    """
    if classes == 2:
        return "temperature", "beta"
    return ("temperature", "vector") if classes <= MOST_CLASSES else ("temperature",)


def fit_calibrator(
    name: str, sample: Summing[Any], rows: Summing[Any] | None, classes: int, precision: Precision
) -> tuple[float, Vector | None, bool]:
    """One of the `candidates`: the temperature, what it is if not that, and whether the search has converged.

    It is searched on a sample, then on all rows (None: the sample is all).
    """
    fit = fit_temperature(sample, rows, precision)
    if name == "temperature":
        return fit.temperature, None, fit.converged
    return fit.temperature, *fit_vector(sample, rows, fit.temperature, classes, precision)


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
        seen = logits[others], labels[others]
        for name in names:
            temperature, vector, _ = fit_calibrator(name, _of(*seen), None, logits.shape[1], precision)
            calibrated, _ = (vector or Temperature(temperature)).scores(logits[part], NOTHING, precision)
            found[name].append(calibrated.sums.log_weight - calibrated.label_gaps(labels[part]))
    return {name: np.concatenate(values) for name, values in found.items()}


def _of(logits: AnyFloats, labels: Integers) -> Summing[Any]:
    """What a function makes of these rows."""
    return lambda function: function(logits, labels)


def choose_calibrator(nll: Mapping[str, Floats]) -> str:
    """The first calibrator whose NLL is within one standard error of the best.

    `nll` has the values of the same rows under each calibrator, the simplest first.

    >>> rows = np.array([1.0, 0.5, 0.2, 0.4])
    >>> choose_calibrator({"temperature": rows, "vector": rows - 0.1 + np.array([0.3, -0.2, 0.2, -0.2])})
    'temperature'
    >>> choose_calibrator({"temperature": rows, "vector": rows - 0.1})
    'vector'
    """
    means = {name: Total.of(values).mean(values.size) for name, values in nll.items()}
    finite = {name: mean for name, mean in means.items() if mean is not None}
    best = min(finite, key=lambda name: finite[name])
    return next(name for name, mean in finite.items() if mean - finite[best] <= _std_error(nll[name] - nll[best]))


def _std_error(differences: Floats) -> float:
    """Of their mean."""
    rows = differences.size
    mean = Total.of(differences).mean(rows) or 0.0
    variance = Total.of(np.square(differences - mean)).mean(rows) or 0.0
    return math.sqrt(variance / rows)
