"""Fitting a learned loss: logistic regression of the errors on features of the logits, with a ridge penalty.

See `losses.learned` for the model, `ridge` for the fit and `strengths` for how the penalty is chosen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drrej.core.calibrators import View
from drrej.core.losses.learned import FEATURES, ErrorModel, Feature, base_values
from drrej.core.losses.plain import PLAIN
from drrej.core.ridge import Errors, Ridge
from drrej.core.types import Floats
from drrej.records import dataclass


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
    """Fits the model to rows, for one plain loss, with a share of wrong labels (`noise`) taken into account."""

    def __init__(self, rows: LearningRows, base: str, noise: float = 0.0) -> None:
        self.base = base
        self.noise = noise
        self.low, self.high = _finite_range(rows.features)
        clipped = np.clip(rows.features, self.low[:, None], self.high[:, None])
        self.center = clipped.mean(axis=1)
        spread = clipped.std(axis=1)
        self.used = spread > 1e-9 * np.maximum(np.abs(self.center), 1.0)
        self.scale = np.where(self.used, spread, 1.0)
        features = ((clipped - self.center[:, None]) / self.scale[:, None])[self.used]
        # A row that cannot be wrong (s underflown to 0) has a base of -inf; it says nothing about the slope.
        main = np.maximum(rows.base[base], -1e3)
        inputs = np.concatenate([np.ones((1, rows.rows)), main[None], features])
        self.order = np.argsort(rows.prediction, kind="stable")
        self.errors = Errors(inputs, rows.prediction, rows.wrong, rows.classes).take(self.order)

    def problem(self, strength: float | None, rows: NDArray[np.intp] | None = None) -> Ridge:
        """What is fitted at a strength of the penalty (None: infinite), to all rows or to some, counted in `order`."""
        return Ridge(self.errors if rows is None else self.errors.take(rows), strength, self.noise)

    def by_labels(self, theta: Floats, strength: float | None, rows: NDArray[np.intp] | None = None) -> Floats:
        """A solution moved and stretched, the order of rows kept, so that L' is the chance of an error by the labels.

        Those may be wrong, but nothing else tells how many errors there are: what looks like noise may be the model's.
        """
        if not self.noise:
            return theta
        problem = self.problem(strength, rows)
        eta = problem.eta(theta)
        line = Errors(np.stack([np.ones(eta.size), eta]), np.zeros(eta.size, np.int64), problem.wrong > 0, 1)
        shift, stretch = Ridge(line, None).solve()
        moved: Floats = theta * stretch
        moved[0] += shift
        return moved

    def fit(self, strength: float | None) -> ErrorModel:
        """The model of all rows."""
        return self.model(self.by_labels(self.problem(strength).solve(), strength), strength)

    def model(self, theta: Floats, strength: float | None) -> ErrorModel:
        """The model of a solution, in terms of the features as they are."""
        free = strength is not None
        weights = np.zeros(self.used.size)
        count = int(np.count_nonzero(self.used)) if free else 0
        weights[self.used] = theta[2 : 2 + count] if free else 0.0
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
            class_intercepts=tuple(map(float, theta[2 + count :])),
        )


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
