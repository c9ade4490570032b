"""A learned loss: L'(x) = P(the prediction is wrong | logits), from labelled rows.

The log-odds of an error are linear in a few features of the calibrated logits,

    eta = intercept + slope * base + sum of weight * feature + class intercept [prediction],   L' = 1 / (1 + e^-eta),

where `base` is the log-odds (zero-one) or logarithm (others) of a plain loss. Slope and intercept are free; the weights
and the class intercepts are drawn towards 0 by a ridge penalty. An infinite penalty leaves a rising function of the
plain loss, that is its order of rows, so the penalty decides how far the learned order may leave the plain one;
it is chosen by cross-validation (see `drrej.core.choice`).

Working in log-odds keeps the relative precision of tiny losses. Every feature but `base` is held within the range it
had on the fitted rows, so a strange row cannot be carried away by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drrej.core.kernels import GapSums
from drrej.core.losses.plain import LOSSES
from drrej.core.types import Floats

NEEDS = "vt"
"""The sums that the features are computed from."""

_WEAK = 1e-2
_MIN_SLOPE = 1e-3
_BEND = 20.0
_MOST_STEPS = 50
_TOLERANCE = 1e-8
"""Newton decrement (about twice the log-likelihood still to be gained) at which a fit is done."""


def _log(values: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        logs: Floats = np.log(values)
    return logs


def _bend(sums: GapSums, _classes: int) -> Floats:
    """ln(1 + 20 s): lets the slope change where the odds of an error are about 1 to 20."""
    return _log(1.0 + _BEND * sums.s)


def _rivals(sums: GapSums, classes: int) -> Floats:
    """Entropy of the probabilities of the other classes among themselves: 0 for one rival, ln(K - 1) at most."""
    assert sums.v is not None
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = np.log(sums.s) - sums.v / sums.s
    entropy[sums.s == 0] = 0.0
    clipped: Floats = np.clip(entropy, 0.0, math.log(max(classes - 1, 1)))
    return clipped


def _distance(sums: GapSums, classes: int) -> Floats:
    """Mean calibrated gap from the largest logit to the others."""
    assert sums.t is not None
    distance: Floats = sums.t * (-1.0 / (classes - 1))
    return distance


def _log_distance(sums: GapSums, classes: int) -> Floats:
    """Its logarithm."""
    return _log(_distance(sums, classes) + 1e-6)


FEATURES: dict[str, Callable[[GapSums, int], Floats]] = {
    "bend": _bend,
    "rivals": _rivals,
    "distance": _distance,
    "log_distance": _log_distance,
}


def base_values(loss: str, sums: GapSums) -> Floats:
    """The feature that carries the order of a plain loss: the log-odds of the zero-one loss, ln L' of others."""
    return _log(sums.s) if loss == "zero-one" else _log(LOSSES[loss].expected(sums))


@dataclass(frozen=True)
class Feature:
    """A feature's weight and the range it had on the fitted rows."""

    weight: float
    low: float
    high: float


@dataclass(frozen=True)
class LearnedLoss:
    """A fitted model, small enough for the rejector document. `strength` None: infinite, the order of `base`."""

    base: str
    strength: float | None
    intercept: float
    slope: float
    features: dict[str, Feature]
    class_intercepts: tuple[float, ...]

    @property
    def needs(self) -> str:
        """The sums it is computed from."""
        extra = NEEDS if self.features else ""
        return "".join(sorted(set(LOSSES[self.base].needs + extra)))

    def losses(self, sums: GapSums, prediction: NDArray[np.int64], classes: int) -> Floats:
        """L' of each row."""
        eta = base_values(self.base, sums)
        eta *= self.slope
        eta += self.intercept
        for name, feature in self.features.items():
            values = np.clip(FEATURES[name](sums, classes), feature.low, feature.high)
            values *= feature.weight
            eta += values
        if self.class_intercepts:
            eta += np.asarray(self.class_intercepts)[prediction]
        return error_probability(eta)


def error_probability(eta: Floats) -> Floats:
    """1 / (1 + e^-eta); keeps its relative precision however small it is."""
    with np.errstate(over="ignore", under="ignore"):
        odds = np.exp(-np.abs(eta))
        probability: Floats = np.where(eta < 0, odds, 1.0) / (1.0 + odds)
    return probability


@dataclass(frozen=True)
class LearningRows:
    """Labelled rows as the model sees them: `base` per plain loss, features (feature x row), prediction, outcome."""

    base: dict[str, Floats]
    features: Floats
    prediction: NDArray[np.int64]
    wrong: NDArray[np.bool_]
    classes: int

    @classmethod
    def of(cls, sums: GapSums, prediction: NDArray[np.int64], wrong: NDArray[np.bool_], classes: int) -> LearningRows:
        """From the sums of a block, all plain losses' needs and `NEEDS` included."""
        return cls(
            {name: base_values(name, sums) for name in LOSSES},
            np.stack([feature(sums, classes) for feature in FEATURES.values()]),
            prediction,
            wrong,
            classes,
        )

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.wrong.size)

    def take(self, rows: NDArray[np.intp]) -> LearningRows:
        """Some of the rows, in the given order."""
        return LearningRows(
            {name: values[rows] for name, values in self.base.items()},
            self.features[:, rows],
            self.prediction[rows],
            self.wrong[rows],
            self.classes,
        )

    @classmethod
    def join(cls, parts: list[LearningRows]) -> LearningRows:
        """The rows of several blocks."""
        return cls(
            {name: np.concatenate([part.base[name] for part in parts]) for name in parts[0].base},
            np.concatenate([part.features for part in parts], axis=1),
            np.concatenate([part.prediction for part in parts]),
            np.concatenate([part.wrong for part in parts]),
            parts[0].classes,
        )


class Learner:
    """Fits the model to rows, for one plain loss, at one strength after another (each starts where the last ended)."""

    def __init__(self, rows: LearningRows, base: str) -> None:
        self.rows = rows
        self.base = base
        self.low, self.high = _finite_range(rows.features)
        clipped = np.clip(rows.features, self.low[:, None], self.high[:, None])
        self.center = clipped.mean(axis=1)
        spread = clipped.std(axis=1)
        self.used = spread > 1e-9 * np.maximum(np.abs(self.center), 1.0)
        self.scale = np.where(self.used, spread, 1.0)
        features = ((clipped - self.center[:, None]) / self.scale[:, None])[self.used]
        # A row that cannot be wrong (s underflown to 0) has a base of -inf; it says nothing about the slope.
        main = np.maximum(rows.base[base], -1e3)
        self.inputs: Floats = np.concatenate([np.ones((1, rows.rows)), main[None], features])
        self.start: Floats | None = None

    def fit(self, strength: float | None) -> LearnedLoss:
        """The model at a strength of the penalty (None: infinite)."""
        free = np.concatenate([self.inputs[:2], self.inputs[2:] if strength is not None else self.inputs[:0]])
        problem = _Ridge(free, self.rows, strength)
        start = self.start if self.start is not None and self.start.size == problem.count else problem.center
        theta = problem.solve(start)
        if theta[1] < _MIN_SLOPE:  # the order of the base would be turned round: hold it and fit the rest
            theta = problem.solve(start, slope=_MIN_SLOPE)
        self.start = theta
        return self._model(theta, strength, free.shape[0] - 2)

    def _model(self, theta: Floats, strength: float | None, free: int) -> LearnedLoss:
        weights = np.zeros(self.used.size)
        if free:
            weights[self.used] = theta[2 : 2 + free]
        weights = weights / self.scale
        features = {
            name: Feature(float(weights[i]), float(self.low[i]), float(self.high[i]))
            for i, name in enumerate(FEATURES)
            if free and self.used[i]
        }
        return LearnedLoss(
            base=self.base,
            strength=strength,
            intercept=float(theta[0] - np.sum(weights * self.center)),
            slope=float(theta[1]),
            features=features,
            class_intercepts=tuple(map(float, theta[2 + free :])),
        )


class _Ridge:
    """The penalised log-likelihood of an error, convex in theta = (intercept, slope, weights, class intercepts).

    Sums over rows avoid BLAS, whose results depend on the number of threads.
    """

    def __init__(self, inputs: Floats, rows: LearningRows, strength: float | None) -> None:
        self.inputs = inputs
        self.prediction = rows.prediction
        self.wrong = rows.wrong.astype(np.float64)
        self.size = inputs.shape[0]
        self.classes = 0 if strength is None else rows.classes
        self.count = self.size + self.classes
        self.penalty = np.full(self.count, strength or 0.0)
        self.penalty[:2] = _WEAK
        self.center = np.zeros(self.count)
        self.center[1] = 1.0

    def _eta(self, theta: Floats) -> Floats:
        eta: Floats = np.einsum("i,ij->j", theta[: self.size], self.inputs)
        if self.classes:
            eta += theta[self.size :][self.prediction]
        return eta

    def _value(self, theta: Floats) -> float:
        eta = self._eta(theta)
        away = theta - self.center
        return float(np.sum(np.logaddexp(0.0, eta) - self.wrong * eta) + 0.5 * np.sum(self.penalty * away * away))

    def _by_class(self, values: Floats) -> Floats:
        sums: Floats = np.bincount(self.prediction, values, minlength=self.classes).astype(np.float64, copy=False)
        return sums

    def solve(self, start: Floats, slope: float | None = None) -> Floats:
        """Newton's method, halving steps that do not descend; `slope` holds that coefficient."""
        theta = start.copy()
        if slope is not None:
            theta[1] = slope
        value = self._value(theta)
        for _ in range(_MOST_STEPS):
            step, decrement = self._step(theta, held=slope is not None)
            if decrement <= _TOLERANCE:
                break
            length = 1.0
            while (tried := self._value(theta - length * step)) > value and length > 1e-6:
                length /= 2.0
            theta = theta - length * step
            value = tried
        return theta

    def _step(self, theta: Floats, held: bool) -> tuple[Floats, float]:
        """The Newton step; the classes' part of the Hessian is diagonal, so only the small rest has to be solved."""
        from scipy.linalg import solve

        probability = error_probability(self._eta(theta))
        residual = probability - self.wrong
        pull = self.penalty * (theta - self.center)
        weighted = self.inputs * (probability * (1.0 - probability))
        gradient = np.einsum("ij,j->i", self.inputs, residual) + pull[: self.size]
        matrix = np.einsum("ik,jk->ij", weighted, self.inputs) + np.diag(self.penalty[: self.size])
        full = gradient.copy()
        if self.classes:
            class_gradient = self._by_class(residual) + pull[self.size :]
            diagonal = self._by_class(weighted[0]) + self.penalty[self.size :]
            cross = np.stack([self._by_class(row) for row in weighted])
            matrix = matrix - np.einsum("ik,jk->ij", cross / diagonal, cross)
            full = full - np.einsum("ik,k->i", cross, class_gradient / diagonal)
        if held:
            matrix[1], matrix[:, 1], matrix[1, 1] = 0.0, 0.0, 1.0
            full[1] = gradient[1] = 0.0
        step: Floats = solve(matrix, full, assume_a="pos")
        decrement = float(np.sum(step * gradient))
        if self.classes:
            class_step = (class_gradient - np.einsum("ik,i->k", cross, step)) / diagonal
            decrement += float(np.sum(class_step * class_gradient))
            step = np.concatenate([step, class_step])
        return step, decrement


def predict(model: LearnedLoss, rows: LearningRows) -> Floats:
    """Log-odds of an error of rows that were prepared for learning."""
    eta = model.slope * rows.base[model.base] + model.intercept
    for i, name in enumerate(FEATURES):
        if name in model.features:
            feature = model.features[name]
            eta += np.clip(rows.features[i], feature.low, feature.high) * feature.weight
    if model.class_intercepts:
        eta += np.asarray(model.class_intercepts)[rows.prediction]
    return eta


def _finite_range(features: Floats) -> tuple[Floats, Floats]:
    """The range of each feature over its finite values (a class of probability 0 makes a distance infinite)."""
    finite = np.isfinite(features)
    low = np.min(features, axis=1, where=finite, initial=np.inf)
    high = np.max(features, axis=1, where=finite, initial=-np.inf)
    none = ~finite.any(axis=1)
    return np.where(none, 0.0, low), np.where(none, 0.0, high)
