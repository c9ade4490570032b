"""How far a learned loss may leave the plain one: the strength of its ridge penalty, by likelihood of held-out errors.

The likelihood of an error tells strengths apart with far fewer errors than AUGRC does, because it weighs every row. The
strongest penalty is infinite: the order of the plain loss. The first finite one changes little, and is taken if the
held-out errors are likelier with it at all. A weaker one must gain more than a standard error of the difference between
the two, row by row. With few errors that is itself uncertain, so it is widened by 1 + 5 / errors; errors that are
expected of wrong labels do not count.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from drrej.core.choice import FOLDS, Preferred, Trial, augrc_trial, plain_trials
from drrej.core.learning import Learner, LearningRows, predict
from drrej.core.losses.learned import ErrorModel, LearnedLoss, error_probability
from drrej.core.ridge import Ridge
from drrej.core.types import Floats
from drrej.records import dataclass

STRENGTHS: tuple[float | None, ...] = (None, 100.0, 30.0, 10.0, 3.0, 1.0)
"""Strengths of the penalty, the strongest (infinite) first."""

MOST_ROWS = 1 << 13
"""Rows that the strength is chosen on: the penalty hardly matters where there are more."""

_WIDER = 5.0
_ENOUGH = 1e-2
"""Newton decrement at which the fit of a fold is done: it starts near, and is only compared."""


@dataclass(frozen=True)
class Learning:
    """The model, and L' of each row from models that had not seen it."""

    model: ErrorModel
    losses: Floats


def learn(rows: LearningRows, fold: NDArray[np.int64], start: Preferred) -> Learning:
    """A loss learned from a plain one, with folds of the rows."""
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
    return Learning(learner.model(learner.by_labels(theta, strength), strength), losses)


def candidates(rows: LearningRows, fold: NDArray[np.int64], start: Preferred, learning: Learning) -> dict[str, Trial]:
    """What `auto` chooses from, in order of preference: the learned loss first, if it is more than its plain one."""
    plain = plain_trials(rows, fold, start)
    if learning.model.strength is None:
        return plain
    return {LearnedLoss.name: augrc_trial(learning.losses, rows.wrong, fold), **plain}


def choose_strength(learner: Learner, fold: NDArray[np.int64], wide: float) -> tuple[float | None, Floats]:
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


def _parts(fold: NDArray[np.int64]) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Rows inside and outside of each fold."""
    return [(np.flatnonzero(fold == k), np.flatnonzero(fold != k)) for k in range(FOLDS) if (fold == k).any()]
