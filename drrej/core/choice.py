"""Choosing a loss by cross-validated AUGRC.

AUGRC is a mean over rows of e_i G_i, with e_i = 1 for a wrong row and G_i the share of rows of larger loss (ties count
half), so its influence function is known and so is the standard error of a *difference* between two losses on the
same rows. That is far smaller than the error of either. The rule: among the candidates whose AUGRC is not above the
lowest one by more than one standard error of the difference, the simplest wins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drrej.core.learning import Learner, LearningRows, predict
from drrej.core.losses.learned import ErrorModel, error_probability
from drrej.core.types import Floats

FOLDS = 5
SIMPLEST_FIRST = ("zero-one", "margin", "brier", "log", "logit-margin")
"""The plain losses in the order in which they are preferred."""

STRENGTHS: tuple[float | None, ...] = (None, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0)
"""Strengths of the ridge penalty of a learned loss, the strongest (infinite) first."""


@dataclass(frozen=True)
class Candidate:
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
class Learning:
    """The model, L' of each row from models that had not seen it, and the trial of the chosen strength."""

    model: ErrorModel
    losses: Floats
    trial: Trial


def folds_of(rows: LearningRows, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Fold of each row by its content, errors spread evenly; equal rows stay together."""
    fold = np.empty(rows.rows, np.int64)
    for kind in (False, True):
        chosen = rows.wrong == kind
        _, place = np.unique(keys[chosen], return_inverse=True)
        fold[chosen] = place % FOLDS
    return fold


def augrc_trial(losses: Floats, wrong: NDArray[np.bool_], fold: NDArray[np.int64]) -> Trial:
    """AUGRC within each fold, averaged: models of different folds need not be comparable."""
    influence = np.zeros(losses.size)
    total = 0.0
    for number in range(FOLDS):
        inside = np.flatnonzero(fold == number)
        if inside.size:
            augrc, influence[inside] = augrc_influence(losses[inside], wrong[inside])
            total += augrc * inside.size
    return Trial(total / losses.size, influence)


def augrc_influence(losses: Floats, wrong: NDArray[np.bool_]) -> tuple[float, Floats]:
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


def simplest_of_the_best(trials: Sequence[Trial]) -> int:
    """The first candidate (they come in order of simplicity) within one standard error of the best."""
    best = min(trials, key=lambda trial: trial.augrc)
    return next(
        number
        for number, trial in enumerate(trials)
        if trial is best or trial.augrc - best.augrc <= difference_error(trial, best)
    )


def plain_trials(rows: LearningRows, fold: NDArray[np.int64]) -> dict[str, Trial]:
    """The plain losses need no fit: their AUGRC within the folds."""
    return {name: augrc_trial(rows.base[name], rows.wrong, fold) for name in SIMPLEST_FIRST}


def learn(rows: LearningRows, fold: NDArray[np.int64], plain: dict[str, Trial]) -> Learning:
    """A learned loss: base and strength by cross-validation, then fitted to all rows."""
    base = SIMPLEST_FIRST[simplest_of_the_best([plain[name] for name in SIMPLEST_FIRST])]
    learners = [(np.flatnonzero(fold == k), Learner(rows.take(np.flatnonzero(fold != k)), base)) for k in range(FOLDS)]
    tested = [(inside, rows.take(inside), learner) for inside, learner in learners if inside.size]
    values: list[Floats] = []
    trials: list[Trial] = []
    for strength in STRENGTHS:
        eta = np.empty(rows.rows)
        for inside, part, learner in tested:
            eta[inside] = predict(learner.fit(strength), part)
        values.append(eta)
        trials.append(plain[base] if strength is None else augrc_trial(eta, rows.wrong, fold))
    chosen = simplest_of_the_best(trials)
    model = Learner(rows, base).fit(STRENGTHS[chosen])
    return Learning(model, error_probability(values[chosen]), trials[chosen])


def table_of(trials: dict[str, Trial], strength: float | None) -> tuple[str, tuple[Candidate, ...]]:
    """The loss that the rule picks, and the table it decided from (the simplest first)."""
    names = list(trials)
    chosen = names[simplest_of_the_best([trials[name] for name in names])]
    best = min(trials.values(), key=lambda trial: trial.augrc)
    table = tuple(
        Candidate(
            name,
            trial.augrc,
            trial.augrc - best.augrc,
            difference_error(trial, best),
            strength if name == "learned" else None,
        )
        for name, trial in trials.items()
    )
    return chosen, table
