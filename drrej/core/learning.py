"""Fitting a learned loss: logistic regression of the errors on features of the logits, with a ridge penalty.

See `losses.learned` for the model and `choice` for how the strength of the penalty is chosen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drrej.core.calibrators import View
from drrej.core.losses.learned import FEATURES, ErrorModel, Feature, base_values, error_probability
from drrej.core.losses.plain import PLAIN
from drrej.core.types import Floats
from drrej.records import dataclass

_WEAK = 1e-2
_MIN_SLOPE = 1e-3
_MOST_STEPS = 50
_TOLERANCE = 1e-8
"""Newton decrement (about twice the log-likelihood still to be gained) at which a fit is done."""


@dataclass(frozen=True)
class LearningRows:
    """Labelled rows as the model sees them: `base` per plain loss, features (feature x row), prediction, outcome.

    `plain` are the plain losses themselves, those that tell rows apart. `label_gaps` are the calibrated gaps u_y.
    """

    plain: dict[str, Floats]
    base: dict[str, Floats]
    features: Floats
    prediction: NDArray[np.int64]
    wrong: NDArray[np.bool_]
    label_gaps: Floats
    classes: int

    @classmethod
    def of(cls, rows: View, labels: NDArray[np.int64]) -> LearningRows:
        """From the calibrated rows of a block, with the sums of all plain losses and of the features."""
        with np.errstate(invalid="ignore", over="ignore"):
            gaps: Floats = rows.beta * rows.label_gaps(labels)
        plain = {name: loss.expected(rows.sums) for name, loss in PLAIN.items() if loss.tells_apart(rows.classes)}
        return cls(
            plain,
            {name: base_values(name, rows.sums, values) for name, values in plain.items()},
            np.stack([feature(rows.sums, rows.classes) for feature in FEATURES.values()]),
            rows.prediction,
            rows.prediction != labels,
            gaps,
            rows.classes,
        )

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.wrong.size)

    def take(self, rows: NDArray[np.intp]) -> LearningRows:
        """Some of the rows, in the given order."""
        return LearningRows(
            {name: values[rows] for name, values in self.plain.items()},
            {name: values[rows] for name, values in self.base.items()},
            self.features[:, rows],
            self.prediction[rows],
            self.wrong[rows],
            self.label_gaps[rows],
            self.classes,
        )

    @classmethod
    def join(cls, parts: list[LearningRows]) -> LearningRows:
        """The rows of several blocks."""
        return cls(
            {name: np.concatenate([part.plain[name] for part in parts]) for name in parts[0].plain},
            {name: np.concatenate([part.base[name] for part in parts]) for name in parts[0].base},
            np.concatenate([part.features for part in parts], axis=1),
            np.concatenate([part.prediction for part in parts]),
            np.concatenate([part.wrong for part in parts]),
            np.concatenate([part.label_gaps for part in parts]),
            parts[0].classes,
        )


class Learner:
    """Fits the model to rows, for one plain loss, at one strength after another (each starts where the last ended)."""

    def __init__(self, rows: LearningRows, base: str) -> None:
        self.rows = rows
        self.base = base
        self.low, self.high = _finite_range(rows.features)
        clipped = np.clip(rows.features, self.low[:, None], self.high[:, None])
        none = np.zeros(len(clipped))  # of a dump of one row, one fold has no other rows to learn from
        self.center = clipped.mean(axis=1) if rows.rows else none
        spread = clipped.std(axis=1) if rows.rows else none
        self.used = spread > 1e-9 * np.maximum(np.abs(self.center), 1.0)
        self.scale = np.where(self.used, spread, 1.0)
        features = ((clipped - self.center[:, None]) / self.scale[:, None])[self.used]
        # A row that cannot be wrong (s underflown to 0) has a base of -inf; it says nothing about the slope.
        main = np.maximum(rows.base[base], -1e3)
        self.inputs: Floats = np.concatenate([np.ones((1, rows.rows)), main[None], features])
        self.start: Floats | None = None

    def fit(self, strength: float | None) -> ErrorModel:
        """The model at a strength of the penalty (None: infinite)."""
        free = np.concatenate([self.inputs[:2], self.inputs[2:] if strength is not None else self.inputs[:0]])
        problem = _Ridge(free, self.rows, strength)
        start = self.start if self.start is not None and self.start.size == problem.count else problem.center
        theta = problem.solve(start)
        if theta[1] < _MIN_SLOPE:  # the order of the base would be turned round: hold it and fit the rest
            theta = problem.solve(start, slope=_MIN_SLOPE)
        self.start = theta
        return self._model(theta, strength, free.shape[0] - 2)

    def _model(self, theta: Floats, strength: float | None, free: int) -> ErrorModel:
        weights = np.zeros(self.used.size)
        if free:
            weights[self.used] = theta[2 : 2 + free]
        weights = weights / self.scale
        features = {
            name: Feature(float(weights[i]), float(self.low[i]), float(self.high[i]))
            for i, name in enumerate(FEATURES)
            if free and self.used[i]
        }
        return ErrorModel(
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


def predict(model: ErrorModel, rows: LearningRows) -> Floats:
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
