"""Choosing a loss: by likelihood where errors are few, by cross-validated AUGRC too where they are many.

Where rows are few no loss can be told from another by AUGRC, so it matters where one starts. That is 1 - max p at the
temperature that likelihood prefers when some labels may be wrong:

    P(y) = (1 - noise) p_y + noise / K

Without noise that is the temperature of the calibration (the loss `zero-one`). Wrong labels raise the temperature of
least NLL, far more than they should for a ranking: in rows of which the model is sure they look like errors of the
model. The share of noise explains them instead. A loss learned from there (see `strengths`) takes its place where
held-out errors are likelier under it.

With many errors every plain loss is a candidate besides. AUGRC is a mean over rows of e_i G_i, with e_i = 1 for a wrong
row and G_i the share of rows of larger loss (ties count half), so its influence function is known and so is the
standard error of a *difference* between two losses on the same rows. That is far smaller than the error of either. The
first candidate stays unless another one is better by more than one standard error of the difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drrej.core.learning import LearningRows
from drrej.core.types import Floats
from drrej.records import dataclass

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
class Preferred:
    """A loss 1 - max p, and the share of labels that are taken for drawn at random."""

    loss: str
    noise: float

    def own_errors(self, wrong: NDArray[np.bool_], classes: int) -> float:
        """How many errors are the model's: those that are expected of wrong labels do not count.

        >>> round(Preferred("sharp", 0.2).own_errors(np.arange(100) < 30, 5))  # 16 labels are others by chance
        14
        """
        return float(np.count_nonzero(wrong)) - self.noise * (1.0 - 1.0 / classes) * wrong.size


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


def first_of_the_best(trials: Sequence[Trial]) -> int:
    """The first candidate (they come in order of preference) within one standard error of the best."""
    best = min(trials, key=lambda trial: trial.augrc)
    return next(
        number
        for number, trial in enumerate(trials)
        if trial is best or trial.augrc - best.augrc <= difference_error(trial, best)
    )


def plain_trials(rows: LearningRows, fold: NDArray[np.int64], first: Preferred) -> dict[str, Trial]:
    """AUGRC within the folds of the preferred loss and, where errors are many, of all plain ones: they need no fit."""
    names = [first.loss]
    if first.own_errors(rows.wrong, rows.classes) >= MANY_ERRORS:
        names += [name for name in SIMPLEST_FIRST if name != first.loss and name in rows.base]
    return {name: augrc_trial(rows.base[name], rows.wrong, fold) for name in names}


def preferred(rows: LearningRows) -> Preferred:
    """The loss 1 - max p at the temperature of the largest likelihood when some labels may be wrong."""
    found, most = Preferred("zero-one", 0.0), None
    for name, scale in SCALES.items():
        with np.errstate(under="ignore"):
            of_label = np.exp(scale * rows.label_gaps) * (1.0 - rows.plain[name])
        for noise in NOISES:
            with np.errstate(divide="ignore"):
                likelihood = float(np.sum(np.log((1.0 - noise) * of_label + noise / rows.classes)))
            if most is None:  # without noise, at the temperature of the calibration
                most = likelihood + _GAIN
            elif likelihood > most:
                found, most = Preferred(name, noise), likelihood
    return found


def table_of(trials: dict[str, Trial], strength: float | None) -> tuple[str, tuple[Candidate, ...]]:
    """The loss that the rule picks, and the table it decided from, in order of preference."""
    names = list(trials)
    chosen = names[first_of_the_best([trials[name] for name in names])]
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
