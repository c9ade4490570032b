"""Promises about rare classes, alone and together: how often they are broken, simulated with known truth.

As a script it runs many trials and prints the tables of docs/promises.md; tests run a few. A world is a large set of
rows with the chance of each class; samples are drawn from it with replacement, so the truth about any cutoffs is known.
"""

from __future__ import annotations

import bisect
import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from scipy import stats

from drrej.core.certify import most_errors
from drrej.core.promises import PromiseRows, choose_cutoffs, over_budget, path_of
from drrej.core.thresholds import Goal
from drrej.errors import Infeasible

GRID = 60_000
FIT = 2000
HIDDEN = 0.01
NAMES = ("legit", "fraud")
SEED = 32
NEAR = 1e-12


@dataclass(frozen=True, eq=False)
class World:
    """Rows with a loss, a prediction and the chance of each class."""

    loss: np.ndarray
    prediction: np.ndarray
    chance: np.ndarray
    names: Sequence[str] = NAMES

    @classmethod
    def several(cls, share: float, strength: float = 3.0) -> World:
        """Four classes, of which the last is rare and half of the others are of the first; 1 % look like the first."""
        rng = np.random.default_rng(SEED)
        shares = np.append(np.array([0.5, 0.3, 0.2]) * (1 - share), share)
        truth = rng.choice(4, GRID, p=shares)
        shown = np.where(rng.random(GRID) < HIDDEN, 0, truth)
        x = rng.normal(size=(GRID, 4)) + strength * np.eye(4)[shown]
        likely = np.exp(strength * x)
        likely[:, 1:] = (1 - HIDDEN) * likely[:, 1:] + HIDDEN * likely[:, :1]
        chance = shares * likely
        chance /= chance.sum(axis=1, keepdims=True)
        return cls(1 - chance.max(axis=1), chance.argmax(axis=1), chance, ("legit", "b", "c", "fraud"))

    @classmethod
    def rare(cls, share: float, strength: float = 3.0, waves: float = 0.0) -> World:
        """A rare class whose rows lie apart, except for a few; with waves the loss is not in the order of the risk."""
        rng = np.random.default_rng(SEED)
        rare = rng.random(GRID) < share
        shown = rare & (rng.random(GRID) >= HIDDEN)
        x = rng.normal(size=GRID) + strength * shown
        odds = share / (1 - share) * ((1 - HIDDEN) * np.exp(strength * x - strength**2 / 2) + HIDDEN)
        chance = odds / (1 + odds)
        prediction = (chance > 0.5).astype(np.int64)
        loss = np.minimum(chance, 1 - chance)
        if waves:
            loss = np.abs(loss * (1 + waves * np.sin(40 * x)))
        return cls(loss, prediction, np.stack([1 - chance, chance], axis=1))

    def draw(self, rows: int, rng: np.random.Generator) -> PromiseRows:
        chosen = rng.integers(GRID, size=rows)
        label = (rng.random((rows, 1)) > self.steps[chosen]).sum(axis=1)
        return PromiseRows(self.loss[chosen], self.prediction[chosen], label, np.ones(rows, bool))

    @functools.cached_property
    def steps(self) -> np.ndarray:
        """Of each row the chances that its class is one of the first, of the first two, ..."""
        return np.cumsum(self.chance, axis=1)[:, :-1]

    @functools.cached_property
    def sums(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each predicted class the sorted losses, and the sums of the chances of all classes up to each."""
        found = []
        for number in range(len(self.names)):
            mine = np.flatnonzero(self.prediction == number)
            order = mine[np.argsort(self.loss[mine], kind="stable")]
            found.append((self.loss[order], np.vstack([np.zeros(len(self.names)), np.cumsum(self.chance[order], 0)])))
        return found

    def truth(self, cutoffs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each predicted class the share of all rows that is accepted, and as which class (predicted x true)."""
        below = [int(np.searchsorted(losses, cutoff)) for (losses, _), cutoff in zip(self.sums, cutoffs, strict=True)]
        classes = [sums[count] for (_, sums), count in zip(self.sums, below, strict=True)]
        return np.array(below) / GRID, np.array(classes) / GRID

    def broken(self, goal: Goal, cutoffs: np.ndarray, rng: np.random.Generator) -> bool:
        """Whether cutoffs break a promise; of a review budget, whether one batch does."""
        accepted, classes = self.truth(cutoffs)
        wrong = accepted - np.diag(classes)
        coverage = float(accepted.sum())
        if goal.what == "coverage":
            return coverage < goal.limit - NEAR
        if goal.what == "reviews":
            return bool(rng.binomial(goal.per, max(0.0, 1 - coverage)) > goal.limit)
        if goal.what == "overall-risk":
            reviewed = (1 - (goal.reviewer_accuracy or 1.0)) * (1 - coverage)
            return bool(wrong.sum() + reviewed > goal.limit + NEAR)
        if goal.what == "missed":
            number = self.names.index(goal.group or "")
            missed = classes[:, number].sum() - classes[number, number]
            return bool(missed > goal.limit * self.chance[:, number].mean() + NEAR)
        if goal.group is None:
            return bool(wrong.sum() > goal.risk * coverage + NEAR)
        number = self.names.index(goal.group)
        return bool(wrong[number] > goal.risk * accepted[number] + NEAR)


def promises(
    values: dict[str, float], missed: float, overall: float, after: float, coverage: float
) -> dict[str, Sequence[Goal]]:
    """Promises about predicted classes, missed cases, errors (also after review) and reviews, alone and together."""
    precise = [Goal("accuracy", value, name) for name, value in values.items()]
    few, least = Goal("missed", missed, "fraud"), Goal("overall-risk", overall)
    return {
        "values": precise,
        "missed": [few],
        "overall": [least],
        "reviewers": [Goal("overall-risk", after, reviewer_accuracy=0.97)],
        "reviews": [Goal("reviews", 200, per=2000)],
        "values, missed": [*precise, few],
        "risk, missed, coverage": [Goal("risk", overall), few, Goal("coverage", 0.7)],
        "missed, overall, reviews": [few, least, Goal("reviews", 300, per=2000)],
        "values, coverage": [*precise, Goal("coverage", coverage)],
    }


PROMISES = promises({"legit": 0.998, "fraud": 0.9}, 0.2, 0.002, 0.01, 0.8)
OF_FOUR = promises({"legit": 0.98, "b": 0.97, "c": 0.97, "fraud": 0.9}, 0.1, 0.015, 0.02, 0.7)


class Costs(NamedTuple):
    """What a review and an accepted error cost, and how much the loss departs from the order of the risk."""

    review: float
    error: float
    waves: float = 0.0


COSTS = {"costs": Costs(1.0, 200.0), "waves": Costs(1.0, 200.0, 0.3), "perverse": Costs(-1.0, -600.0, 0.3)}
"""Beside a promise, as in "values, missed, costs"; the perverse ones pay for errors, so the worst cutoffs are taken."""


def confusion_of(rows: PromiseRows, classes: int) -> np.ndarray:
    counts = np.bincount(classes * rows.prediction + rows.label, minlength=classes * classes)
    return counts.reshape(classes, classes)


def simulate(
    world: World, goals: Sequence[Goal], rows: int, trials: int, delta: float, costs: Costs | None = None, seed: int = 0
) -> tuple[float, ...]:
    """(share of trials that break a promise, mean coverage, share that are infeasible), after one fit."""
    rng = np.random.default_rng([SEED, rows, seed])
    names = world.names
    path = path_of(goals, names, confusion_of(world.draw(FIT, rng), len(names)), rows, delta)
    broken, coverage, infeasible = 0, 0.0, 0
    for _ in range(trials):
        drawn = world.draw(rows, rng)
        if costs is not None:
            drawn = replace(drawn, cost=np.where(drawn.wrong, costs.error, 0.0) - costs.review)
        try:
            found = choose_cutoffs(goals, names, drawn, path, delta)
        except Infeasible:
            infeasible += 1
            continue
        broken += any(world.broken(goal, found.cutoffs, rng) for goal in goals)
        coverage += float(world.truth(found.cutoffs)[0].sum())
    return broken / trials, coverage / trials, infeasible / trials


def chance_broken(world: World, goal: Goal, rows: int, delta: float) -> float:
    """The exact chance that missed cases, errors among all rows, or a review budget, promised alone, are broken.

    Of two classes: rows are then accepted in the order of their losses, and a promise is broken if no more of the rows
    at hand are bad than allowed, up to the first loss at which it does not hold.
    """
    if goal.what == "reviews":
        over = functools.partial(over_budget, rows, batch=goal.per, budget=int(goal.limit))
        accepted = 1 + bisect.bisect_left(range(1, rows + 1), -delta, key=lambda r: -over(r))
        return over(accepted + 1) if accepted < rows else 0.0  # all up to the next row at hand are accepted
    predicted, share = world.chance[np.arange(GRID), world.prediction], 1.0
    bad = 1 - predicted
    if goal.group is not None:
        number = world.names.index(goal.group)
        bad = np.where(world.prediction == number, 0.0, world.chance[:, number])
        share = float(world.chance[:, number].mean())
    sums = np.cumsum(bad[np.argsort(world.loss)]) / GRID / share
    first = np.searchsorted(sums, goal.limit + NEAR, side="right")
    if first == GRID:
        return 0.0
    sizes = np.arange(*stats.binom.interval(1 - 1e-10, rows, share)) if share < 1 else np.array([rows])
    weights = stats.binom.pmf(sizes, rows, share)
    errors = np.array([max(most_errors(int(size), goal.limit, delta), -1) if size else -1 for size in sizes])
    return float((weights * stats.binom.cdf(errors, sizes, sums[first])).sum())


FITS, DAYS = 4, 250


def budget_kept(world: World, goal: Goal, rows: int, trials: int, delta: float) -> tuple[float, float, float]:
    """(share of first days over a review budget, share of all days, largest share of one threshold's days)."""
    rng = np.random.default_rng([SEED, rows, 1])
    over = np.zeros((trials, DAYS), bool)
    path = path_of([goal], world.names, confusion_of(world.draw(FIT, rng), len(world.names)), rows, delta)
    for trial in range(trials):
        found = choose_cutoffs([goal], world.names, world.draw(rows, rng), path, delta)
        coverage = float(world.truth(found.cutoffs)[0].sum())
        over[trial] = rng.binomial(goal.per or 1, 1 - min(1.0, coverage), DAYS) > goal.limit
    return float(over[:, 0].mean()), float(over.mean()), float(over.mean(axis=1).max())


CELLS = [(share, rows) for share in (0.005, 0.02, 0.1) for rows in (500, 2000, 20_000)]


def main(trials: int = 2000, names: Sequence[str] = ()) -> None:
    """Print the table of these promises; "4" before a name: with four classes; "days": a budget day after day.

    A name of `COSTS` after a promise: the cheapest cutoffs that keep it. "exact": the chances of promises that are
    monotone, without trials.
    """
    if list(names) == ["exact"]:
        for name, share in ((name, share) for name in ("missed", "overall", "reviews") for share in (0.005, 0.02, 0.1)):
            found = [chance_broken(World.rare(share), PROMISES[name][0], rows, 0.1) for rows in (500, 2000, 20_000)]
            print(f"| {name} | {share:g} | " + " | ".join(f"{each:.4f}" for each in found) + " |", flush=True)
        return
    if list(names) == ["days"]:
        for rows in (500, 2000, 20_000):
            found = budget_kept(World.rare(0.02), Goal("reviews", 200, per=2000), rows, trials, 0.1)
            print(f"| {rows} | " + " | ".join(f"{each:.4f}" for each in found) + " |", flush=True)
        return
    print("| promises | rare class | rows | trials | broken | coverage | infeasible |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in names or PROMISES:
        for share, rows in CELLS:
            four, (plain, _, last) = name.startswith("4 "), name.removeprefix("4 ").rpartition(", ")
            costs = COSTS.get(last)
            goals = (OF_FOUR if four else PROMISES)[plain if costs else name.removeprefix("4 ")]
            world = World.several(share) if four else World.rare(share, waves=costs.waves if costs else 0.0)
            parts = [simulate(world, goals, rows, trials // FITS, 0.1, costs, seed) for seed in range(FITS)]
            broken, coverage, infeasible = np.mean(parts, axis=0)
            start = f"| {name} | {share:g} | {rows} | {trials} | {broken:.4f}"
            print(f"{start} | {coverage:.3f} | {infeasible:.3f} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000, sys.argv[2:])
