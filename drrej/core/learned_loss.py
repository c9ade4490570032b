"""Fitting a learned loss: a logistic regression of the errors on features of the logits, with a ridge penalty.

The penalty says how far the learned order of rows may leave that of a plain loss; it is chosen by cross-validation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drrej.core.calibrators import Scores
from drrej.core.losses import FEATURES, PLAIN, ErrorModel, Feature, LearnedLoss, base_values, error_probability
from drrej.core.types import Booleans, Floats, Integers, Stored
from drrej.records import dataclass


@dataclass(frozen=True)
class LearningRows:
    """Labelled rows as the model sees them: columns by name.

    These are `prediction`, `wrong`, `label_gaps` (the calibrated gaps u_y), `log_odds` of an error, every plain loss
    that tells rows apart, and every feature.
    """

    classes: int
    columns: dict[str, NDArray[Any]]

    @classmethod
    def of(cls, scores: Scores, labels: Integers) -> LearningRows:
        """From the calibrated rows of a block, with the sums of all plain losses and of the features."""
        sums, classes = scores.sums, scores.classes
        with np.errstate(invalid="ignore", over="ignore"):
            label_gaps: Floats = scores.beta * scores.label_gaps(labels)
        columns = {
            "prediction": scores.prediction,
            "wrong": scores.prediction != labels,
            "label_gaps": label_gaps,
            "log_odds": sums.log_odds,
            **{name: loss.expected(sums) for name, loss in PLAIN.items() if loss.tells_apart(classes)},
            **{name: feature(sums, classes) for name, feature in FEATURES.items()},
        }
        return cls(classes, columns)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.wrong.size)

    @property
    def prediction(self) -> Integers:
        """The predicted class of each row."""
        return self.columns["prediction"]

    @property
    def wrong(self) -> Booleans:
        """Whether it is not the label."""
        return self.columns["wrong"]

    @property
    def features(self) -> Floats:
        """The features (feature x row)."""
        return np.stack([self.columns[name] for name in FEATURES], axis=1).T

    def base(self, loss: str) -> Floats:
        """The values that carry the order of a plain loss, see `base_values`."""
        return base_values(loss, self.columns["log_odds"], self.columns[loss])

    def take(self, rows: NDArray[np.intp]) -> LearningRows:
        """Some of the rows, in the given order."""
        return LearningRows(self.classes, {name: values[rows] for name, values in self.columns.items()})

    @classmethod
    def join(cls, parts: Sequence[LearningRows]) -> LearningRows:
        """The rows of several blocks."""
        names = parts[0].columns
        return cls(parts[0].classes, {name: np.concatenate([part.columns[name] for part in parts]) for name in names})


class Learner:
    """Fits the model to rows, for one plain loss, with a share of wrong labels (`noise`) taken into account."""

    def __init__(self, rows: LearningRows, base: str, noise: float = 0.0) -> None:
        self.base = base
        self.noise = noise
        features = rows.features
        self.low, self.high = _finite_range(features)
        clipped = np.clip(features, self.low[:, None], self.high[:, None])
        self.center = clipped.mean(axis=1)
        spread = clipped.std(axis=1)
        self.used = spread > 1e-9 * np.maximum(np.abs(self.center), 1.0)
        self.scale = np.where(self.used, spread, 1.0)
        scaled = ((clipped - self.center[:, None]) / self.scale[:, None])[self.used]
        # A row that cannot be wrong (s underflown to 0) has a base of -inf; it says nothing about the slope.
        main = np.maximum(rows.base(base), -1e3)
        inputs = np.concatenate([np.ones((1, rows.rows)), main[None], scaled])
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
    return model.log_odds(rows.base(model.base), rows.columns, rows.prediction)


def _finite_range(features: Floats) -> tuple[Floats, Floats]:
    """The range of each feature over its finite values (a class of probability 0 makes a distance infinite)."""
    finite = np.isfinite(features)
    low = np.min(features, axis=1, where=finite, initial=np.inf)
    high = np.max(features, axis=1, where=finite, initial=-np.inf)
    none = ~finite.any(axis=1)
    return np.where(none, 0.0, low), np.where(none, 0.0, high)


_WEAK = 1e-2
_MIN_SLOPE = 1e-3
_MOST_STEPS = 50
TOLERANCE = 1e-9
"""Newton decrement (about twice the log-likelihood still to be gained) at which a fit is done."""


@dataclass(frozen=True)
class Errors:
    """Rows to fit to: inputs (input x row; the first is 1, the second the plain loss), predictions, outcomes.

    Rows come in the order of their predictions, so that what belongs to a class lies together.
    """

    inputs: Floats
    prediction: Integers
    wrong: Booleans
    classes: int

    def take(self, rows: NDArray[np.intp]) -> Errors:
        """Some of the rows, in the same order."""
        return Errors(self.inputs[:, rows], self.prediction[rows], self.wrong[rows], self.classes)


@dataclass(frozen=True)
class _Point:
    """The problem at one theta: its value, and log-odds, odds e^-|eta| and log-likelihood of each row."""

    theta: Floats
    value: float
    eta: Floats
    odds: Floats
    logs: Floats


class Ridge:
    """The penalised log-likelihood of an error in theta = (intercept, slope, weights, class intercepts).

    A strength of None is infinite: intercept and slope alone. Sums over rows avoid BLAS, whose results depend on the
    number of threads.
    """

    def __init__(self, errors: Errors, strength: float | None, noise: float = 0.0) -> None:
        self.inputs = errors.inputs if strength is not None else errors.inputs[:2]
        self.wrong = errors.wrong.astype(np.float64)
        self.noise = noise
        self.right_by_chance = noise / errors.classes
        self.size = self.inputs.shape[0]
        self.classes = 0 if strength is None else errors.classes
        self.penalty = np.full(self.size + self.classes, strength or 0.0)
        self.penalty[:2] = _WEAK
        self.center = np.zeros(self.penalty.size)
        self.center[1] = 1.0
        self.counts = np.bincount(errors.prediction, minlength=self.classes) if self.classes else np.zeros(0, np.int64)
        self.present = np.flatnonzero(self.counts)
        self.starts = (np.cumsum(self.counts) - self.counts)[self.present]

    def eta(self, theta: Floats) -> Floats:
        """Log-odds of an error of each row."""
        eta: Floats = np.einsum("i,ij->j", theta[: self.size], self.inputs)
        if self.classes:
            eta += np.repeat(theta[self.size :], self.counts)
        return eta

    def log_likelihood(self, theta: Floats) -> Floats:
        """Of each row's outcome."""
        return self._at(theta).logs

    def _at(self, theta: Floats) -> _Point:
        eta = self.eta(theta)
        with np.errstate(under="ignore"):
            odds = np.exp(-np.abs(eta))
        if self.noise:
            pi, rest = self._chances(*_both(eta, odds))
            logs = np.log(np.where(self.wrong > 0, pi, rest))
        else:
            logs = self.wrong * eta - np.maximum(eta, 0.0) - np.log1p(odds)
        away = theta - self.center
        value = 0.5 * float(np.sum(self.penalty * away * away)) - float(np.sum(logs))
        return _Point(theta, value, eta, odds, logs)

    def _chances(self, probability: Floats, opposite: Floats) -> tuple[Floats, Floats]:
        """Of counting as an error, and of not."""
        kept = 1.0 - self.noise
        return kept * probability + (self.noise - self.right_by_chance), kept * opposite + self.right_by_chance

    def solve(self, start: Floats | None = None, tolerance: float = TOLERANCE) -> Floats:
        """The minimum with a slope that does not turn the order of the plain loss round.

        Steps are halved where they do not descend. A slope at its limit is held as long as it would go below.
        """
        point = self._at(self.center if start is None or start.size != self.center.size else start)
        for _ in range(_MOST_STEPS):
            step, decrement = self._step(point)
            if decrement <= tolerance:
                break
            length = 1.0
            while (tried := self._at(_limited(point.theta - length * step))).value > point.value and length > 1e-6:
                length /= 2.0
            point = tried
        return point.theta

    def _pull(self, point: _Point) -> tuple[Floats, Floats]:
        """First derivative of the loss of each row by eta, and its (expected) second one."""
        probability, opposite = _both(point.eta, point.odds)
        slope = probability * opposite
        if not self.noise:
            return probability - self.wrong, slope
        pi, rest = self._chances(probability, opposite)
        slope *= 1.0 - self.noise
        share = slope / (pi * rest)
        return (pi - self.wrong) * share, slope * share

    def _step(self, point: _Point) -> tuple[Floats, float]:
        """The step; the classes' part of the Hessian is diagonal, so only the small rest has to be solved."""
        residual, curvature = self._pull(point)
        pull = self.penalty * (point.theta - self.center)
        weighted = self.inputs * curvature
        gradient = np.einsum("ij,j->i", self.inputs, residual) + pull[: self.size]
        matrix = np.diag(self.penalty[: self.size])
        for i in range(self.size):  # and the other half is the same
            line = np.einsum("jk,k->j", weighted[i:], self.inputs[i])
            matrix[i, i:] += line
            matrix[i + 1 :, i] += line[1:]
        full = gradient.copy()
        if self.classes:
            class_gradient = self._by_class(residual) + pull[self.size :]
            cross = self._by_class(weighted)
            diagonal = cross[0] + self.penalty[self.size :]
            matrix = matrix - np.einsum("ik,jk->ij", cross / diagonal, cross)
            full = full - np.einsum("ik,k->i", cross, class_gradient / diagonal)
        if point.theta[1] <= _MIN_SLOPE and gradient[1] >= 0:
            matrix[1], matrix[:, 1], matrix[1, 1] = 0.0, 0.0, 1.0
            full[1] = gradient[1] = 0.0
        step: Floats = np.linalg.solve(matrix, full)
        decrement = float(np.sum(step * gradient))
        if self.classes:
            class_step = (class_gradient - np.einsum("ik,i->k", cross, step)) / diagonal
            decrement += float(np.sum(class_step * class_gradient))
            step = np.concatenate([step, class_step])
        return step, decrement

    def _by_class(self, values: Floats) -> Floats:
        """Sums over the rows of each predicted class."""
        sums = np.zeros((*values.shape[:-1], self.classes))
        if self.present.size:
            sums[..., self.present] = np.add.reduceat(values, self.starts, axis=-1)
        return sums


def _limited(theta: Floats) -> Floats:
    theta[1] = max(theta[1], _MIN_SLOPE)
    return theta


def _both(eta: Floats, odds: Floats) -> tuple[Floats, Floats]:
    """1 / (1 + e^-eta) and 1 / (1 + e^eta), each to its own precision."""
    likely = 1.0 / (1.0 + odds)
    unlikely = odds * likely
    above = eta >= 0
    return np.where(above, likely, unlikely), np.where(above, unlikely, likely)


STRENGTHS: tuple[float | None, ...] = (None, 100.0, 30.0, 10.0, 3.0, 1.0)
"""Strengths of the penalty, the strongest (infinite) first."""

MOST_ROWS = 1 << 13
"""Rows that the strength is chosen on: the penalty hardly matters where there are more."""

_WIDER = 5.0
_ENOUGH = 1e-2
"""Newton decrement at which the fit of a fold is done: it starts near, and is only compared."""


def learn(rows: LearningRows, fold: Integers, start: Preferred) -> tuple[LearnedLoss, Floats]:
    """A loss learned from a plain one, and the loss of each row by models that had not seen its fold."""
    most = np.arange(min(rows.rows, MOST_ROWS))  # rows are in an order of their own: these are a sample
    few = Learner(rows.take(most), start.loss, start.noise)
    own_errors = start.own_errors(few.errors.wrong, rows.classes)
    strength, theta = choose_strength(few, fold[most], 1.0 + _WIDER / max(1.0, own_errors))
    learner = Learner(rows, start.loss, start.noise)
    theta = learner.problem(strength).solve(theta)
    losses = np.empty(rows.rows)
    for inside, outside in _parts(fold[learner.order]):
        other = learner.by_labels(learner.problem(strength, outside).solve(theta, _ENOUGH), strength, outside)
        places = learner.order[inside]
        losses[places] = error_probability(predict(learner.model(other, strength), rows.take(places)))
    return LearnedLoss(learner.model(learner.by_labels(theta, strength), strength)), losses


def choose(
    rows: LearningRows, fold: Integers, start: Preferred, learned: LearnedLoss, losses: Floats
) -> tuple[str, tuple[Candidate, ...]]:
    """The loss that `auto` takes, and the table it was chosen from, in order of preference.

    The learned loss comes first, if it is more than its plain one.
    """
    strength = learned.learned.strength
    trials = plain_trials(rows, fold, start)
    if strength is not None:
        trials = {LearnedLoss.name: augrc_trial(losses, rows.wrong, fold), **trials}
    names = list(trials)
    chosen = names[first_of_the_best(list(trials.values()))]
    best = min(trials.values(), key=lambda trial: trial.augrc)
    table = tuple(
        Candidate(
            loss=name,
            augrc=trial.augrc,
            above_best=trial.augrc - best.augrc,
            std_error=difference_error(trial, best),
            strength=strength if name == LearnedLoss.name else None,
        )
        for name, trial in trials.items()
    )
    return chosen, table


def choose_strength(learner: Learner, fold: Integers, wide: float) -> tuple[float | None, Floats]:
    """The strongest penalty whose held-out likelihood is within `wide` standard errors of the best; its solution."""
    parts = [(learner.errors.take(inside), outside) for inside, outside in _parts(fold[learner.order])]
    tried: list[tuple[float | None, Floats, list[Floats]]] = []
    theta: Floats | None = None
    for strength in STRENGTHS:
        theta = learner.problem(strength).solve(theta, _ENOUGH)
        logs = []
        for held_out, outside in parts:
            other = learner.problem(strength, outside).solve(theta, _ENOUGH)
            logs.append(Ridge(held_out, strength, learner.noise).log_likelihood(other))
        if tried and _sum(logs) <= _sum(tried[-1][2]):
            break  # and weaker ones would do worse still
        tried.append((strength, theta, logs))
    best = np.concatenate(tried[-1][2])
    for strength, theta, logs in tried[1:]:
        difference = best - np.concatenate(logs)
        if float(np.sum(difference)) <= wide * float(np.std(difference)) * math.sqrt(difference.size):
            return strength, theta
    return None, tried[0][1]


def _sum(parts: list[Floats]) -> float:
    return math.fsum(float(np.sum(part)) for part in parts)


def _parts(fold: Integers) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Rows inside and outside of each fold."""
    return [(np.flatnonzero(fold == k), np.flatnonzero(fold != k)) for k in range(FOLDS) if (fold == k).any()]


FOLDS = 5
SCALES = {"zero-one": 1.0, "sharp": 2.0, "sharper": 4.0, "flat": 0.5}
"""The losses 1 - max p, by what their inverse temperature is multiplied with."""

SIMPLEST_FIRST = (
    *("zero-one", "margin", "brier", "log", "logit-margin", "sharp", "sharper", "flat"),
    *("norm-2", "norm-1", "norm-4"),
)
"""The plain losses in the order in which they are preferred, but for the first."""

MANY_ERRORS = 300
"""Among fewer errors other plain losses, and norms above all, win by chance too often, and then cost much."""

NOISES = (0.0, 0.003, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
"""Shares of labels that may be drawn at random."""

_GAIN = 2.0
"""Log-likelihood that another temperature must gain: one for each of the two numbers that are fitted."""


class Candidate(Stored, frozen=True):
    """A loss that was considered: its cross-validated AUGRC and how far it is above the best, with standard error."""

    loss: str
    augrc: float
    above_best: float
    std_error: float
    strength: float | None = None


@dataclass(frozen=True)
class Trial:
    """Cross-validated values of one candidate: AUGRC and the influence of each row on it."""

    augrc: float
    influence: Floats


@dataclass(frozen=True)
class Preferred:
    """A loss 1 - max p, and the share of labels that are taken for drawn at random."""

    loss: str
    noise: float

    def own_errors(self, wrong: Booleans, classes: int) -> float:
        """How many errors are the model's: those that are expected of wrong labels do not count.

        >>> round(Preferred("sharp", 0.2).own_errors(np.arange(100) < 30, 5))  # 16 labels are others by chance
        14
        """
        return float(np.count_nonzero(wrong)) - self.noise * (1.0 - 1.0 / classes) * wrong.size


def folds_of(rows: LearningRows, keys: NDArray[np.uint64]) -> Integers:
    """Fold of each row by its content, errors spread evenly; equal rows stay together."""
    fold = np.empty(rows.rows, np.int64)
    for kind in (False, True):
        chosen = rows.wrong == kind
        _, place = np.unique(keys[chosen], return_inverse=True)
        fold[chosen] = place % FOLDS
    return fold


def augrc_trial(losses: Floats, wrong: Booleans, fold: Integers) -> Trial:
    """AUGRC within each fold, averaged: models of different folds need not be comparable."""
    influence = np.zeros(losses.size)
    total = 0.0
    for number in range(FOLDS):
        inside = np.flatnonzero(fold == number)
        if inside.size:
            augrc, influence[inside] = augrc_influence(losses[inside], wrong[inside])
            total += augrc * inside.size
    return Trial(total / losses.size, influence)


def augrc_influence(losses: Floats, wrong: Booleans) -> tuple[float, Floats]:
    """AUGRC, and the influence of each row on it: a mean of 0, and the variance of AUGRC times the rows."""
    rows = losses.size
    ordered, errors = np.sort(losses), np.sort(losses[wrong])
    before, up_to = np.searchsorted(ordered, losses, "left"), np.searchsorted(ordered, losses, "right")
    above = (rows - 0.5 * (before + up_to)) / rows
    errors_below = 0.5 * (np.searchsorted(errors, losses, "left") + np.searchsorted(errors, losses, "right")) / rows
    own = wrong * above
    augrc = float(own.sum()) / rows
    return augrc, own + errors_below - 2.0 * augrc


def difference_error(one: Trial, other: Trial) -> float:
    """Standard error of the difference of two AUGRCs on the same rows."""
    return float(np.std(one.influence - other.influence)) / math.sqrt(one.influence.size)


def first_of_the_best(trials: Sequence[Trial]) -> int:
    """The first candidate (they come in order of preference) within one standard error of the best."""
    best = min(trials, key=lambda trial: trial.augrc)
    return next(
        number
        for number, trial in enumerate(trials)
        if trial is best or trial.augrc - best.augrc <= difference_error(trial, best)
    )


def plain_trials(rows: LearningRows, fold: Integers, first: Preferred) -> dict[str, Trial]:
    """AUGRC within the folds of the preferred loss and, where errors are many, of all plain ones: they need no fit."""
    names = [first.loss]
    if first.own_errors(rows.wrong, rows.classes) >= MANY_ERRORS:
        names += [name for name in SIMPLEST_FIRST if name != first.loss and name in rows.columns]
    return {name: augrc_trial(rows.base(name), rows.wrong, fold) for name in names}


def preferred(rows: LearningRows) -> Preferred:
    """The loss 1 - max p at the temperature of the largest likelihood when some labels may be wrong."""
    found, most = Preferred("zero-one", 0.0), None
    for name, scale in SCALES.items():
        with np.errstate(under="ignore"):
            of_label = np.exp(scale * rows.columns["label_gaps"]) * (1.0 - rows.columns[name])
        for noise in NOISES:
            with np.errstate(divide="ignore"):
                likelihood = float(np.sum(np.log((1.0 - noise) * of_label + noise / rows.classes)))
            if most is None:  # without noise, at the temperature of the calibration
                most = likelihood + _GAIN
            elif likelihood > most:
                found, most = Preferred(name, noise), likelihood
    return found
