"""Promises about two things at once, about means, after a split, and what `plan` says: simulated with known truth.

As a script it runs many trials and prints the tables of docs/promises.md; tests run a few.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from drrej.core.certify import certify_mean, joint_candidates, risk_candidates
from drrej.core.curves import Curve
from drrej.core.intervals import lower_bound, upper_bound
from drrej.core.planning import Question, rows_for_both, rows_for_cutoff
from drrej.core.ratio import DensityRatio
from drrej.errors import Infeasible
from drrej.pipeline.split import find_limits

OPEN = DensityRatio(1.0, 1.0, 0.0, 0.0)
GRID = 24000
NEAR = 1e-9


@dataclass(frozen=True)
class Order:
    """Rows at a place x in [0, 1) of the order of losses, in `blocks` of ties (0: none), wrong with chance risk(x)."""

    risk: Callable[[np.ndarray], np.ndarray]
    blocks: int = 0
    monotone: bool = True

    def places(self, x: np.ndarray) -> np.ndarray:
        return (np.floor(x * self.blocks) + 0.5) / self.blocks if self.blocks else x

    def draw(self, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """(losses, the chance that each row is wrong)."""
        x = rng.random(rows)
        places = self.places(x)
        return places, self.risk(places)

    @functools.cached_property
    def everything(self) -> tuple[np.ndarray, np.ndarray]:
        """The places of all rows there are, and the errors expected up to each."""
        places = self.places((np.arange(GRID) + 0.5) / GRID)
        return places, np.concatenate([[0.0], np.cumsum(self.risk(places))])

    def truth(self, cutoff: float | None) -> tuple[float, float]:
        """(coverage, risk) of a cutoff."""
        places, errors = self.everything
        accepted = GRID if cutoff is None else int(np.searchsorted(places, cutoff))
        return accepted / GRID, errors[accepted] / max(accepted, 1)

    def best(self, risk: float) -> float:
        """The largest coverage whose true risk is at most `risk`."""
        places, errors = self.everything
        held = errors[1:] <= risk * np.arange(1, GRID + 1) + NEAR
        ends = np.append(places[1:] != places[:-1], True)
        found = np.flatnonzero(held & ends)
        return (int(found[-1]) + 1) / GRID if found.size else 0.0


ORDERS = {
    "grows": Order(lambda x: 0.4 * x**4),
    "slow": Order(lambda x: 0.02 + 0.06 * x),
    "ties": Order(lambda x: 0.3 * x**3, 12),
    "at the edge": Order(lambda x: np.full(x.shape, 0.0502)),
    "sure but wrong": Order(lambda x: np.where(x < 0.03, 0.5, 0.03 * x), monotone=False),
    "waves": Order(lambda x: 0.05 + 0.05 * np.sin(25 * x), monotone=False),
    "spikes": Order(lambda x: np.where(np.floor(x * 60) % 6 == 5, 0.25, 0.012), monotone=False),
    "in and out": Order(lambda x: np.where(np.floor(x * 20) % 2 == 0, 0.1004, 0.0), 20, monotone=False),
}


def points_of(losses: np.ndarray, wrong: np.ndarray) -> Curve:
    return Curve.of(losses[~wrong], losses[wrong])


# A risk and a coverage together


def joint_trial(order: Order, rows: int, promised: float, delta: float, seed: int) -> tuple[bool, bool]:
    """(certified, broken): a risk of 0.05 and the promised coverage."""
    rng = np.random.default_rng([seed, rows])
    losses, chance = order.draw(rows, rng)
    found = joint_candidates(points_of(losses, rng.random(rows) < chance), OPEN, 0.05, promised, delta).largest()
    if found is None:
        return False, False
    coverage, risk = order.truth(found.cutoff)
    return True, risk > 0.05 + NEAR or coverage < promised - 1 / GRID


# The mean of a bounded loss


def mean_trial(order: Order, rows: int, delta: float, narrow: bool, seed: int) -> tuple[bool, bool, float]:
    """(certified, broken, true coverage): a mean of 0.5 of losses with the mean 10 risk(x), 0 or 10, or near."""
    rng = np.random.default_rng([seed, rows])
    losses, mean = order.draw(rows, rng)
    values = mean * rng.uniform(0.5, 1.5, rows) if narrow else (rng.random(rows) < mean) * 1.0
    try:
        found = certify_mean(losses, 10.0 * values, 0.5, 10.0, delta)
    except Infeasible:
        return False, False, 0.0
    coverage, risk = order.truth(found.cutoff)
    return True, risk * 10.0 > 0.5 + NEAR, coverage


# A split by content, then a certified risk on its plain part and an interval on its test part


def split_trial(order: Order, rows: int, risk: float, delta: float, seed: int) -> tuple[bool, bool, bool]:
    """(certified, broken, the 95 % interval of the risk of a fixed cutoff on the stratified test part misses it).

    Labels have to do with difficulty, as in real data: ten classes, the last ones the hardest.
    """
    rng = np.random.default_rng([seed, rows])
    losses, chance = order.draw(rows, rng)
    wrong = rng.random(rows) < chance
    labels = np.minimum((10 * (0.5 * losses + 0.5 * rng.random(rows))).astype(np.int64), 9)
    keys = rng.integers(0, 1 << 64, rows, np.uint64)
    part = find_limits(keys, labels, (40, 30, 30), plain=1, seed=seed).part_of(keys, labels)
    tested = (part == 2) & (losses < 0.7)
    accepted, errors = int(tested.sum()), int((tested & wrong).sum())
    _, true = order.truth(0.7)
    missed = not lower_bound(errors, accepted, 0.025) <= true <= upper_bound(errors, accepted, 0.025)
    chosen = part == 1
    found = risk_candidates(points_of(losses[chosen], wrong[chosen]), OPEN, risk, delta).largest()
    if found is None:
        return False, False, missed
    return True, order.truth(found.cutoff)[1] > risk + NEAR, missed


# What plan says


def planned(question: Question, kind: str, trials: int) -> tuple[int, float]:
    """(rows that plan says, the share of trials that certify on so many rows)."""
    rows = {"cutoff": rows_for_cutoff, "both": rows_for_both}[kind](question)
    return rows, sum(_certifies(question, kind, rows, seed) for seed in range(trials)) / trials


def _certifies(question: Question, kind: str, rows: int, seed: int) -> bool:
    rng = np.random.default_rng([seed, rows, 7])
    x = rng.random(rows)
    wrong = rng.random(rows) < question.error
    if kind == "cutoff":
        inside = x < question.coverage
        return upper_bound(int((wrong & inside).sum()), int(inside.sum()), question.delta) <= question.risk
    promise = question.risk, question.coverage, question.delta
    return joint_candidates(points_of(x, wrong), OPEN, *promise).largest() is not None


def main(trials: int = 2000, delta: float = 0.1) -> None:
    """Print a table for each promise."""
    allowed = delta + 3 * math.sqrt(delta * (1 - delta) / trials)
    print(f"{trials} trials each, delta {delta:g}; within three standard errors: {allowed:.4f}")
    seeds = range(trials)
    header("risk 0.05 and a coverage", "risk monotone", "rows", "certified", "broken")
    for name, order in ORDERS.items():
        coverage = round(0.9 * order.best(0.05), 2) or 0.5
        for rows in (300, 1000, 5000):
            found = np.mean([joint_trial(order, rows, coverage, delta, seed) for seed in seeds], axis=0)
            row(f"{name}, coverage {coverage:g}", yes(order.monotone), rows, *found)
    header("mean 0.5 of a loss up to 10", "risk monotone", "losses", "rows", "certified", "broken", "of the best")
    for name, order in ORDERS.items():
        for narrow in (False, True):
            for rows in (300, 3000):
                outcomes = [mean_trial(order, rows, delta, narrow, seed) for seed in seeds]
                certified, broken, coverage = np.mean(outcomes, axis=0)
                share = coverage / order.best(0.05) if order.best(0.05) else "-"
                kind = "near their mean" if narrow else "all or nothing"
                row(name, yes(order.monotone), kind, rows, certified, broken, share)
    header("risk 0.05 after a split 40,30,30", "risk monotone", "rows", "certified", "broken", "test interval misses")
    for name, order in ORDERS.items():
        for rows in (1000, 5000):
            found = np.mean([split_trial(order, rows, 0.05, delta, seed) for seed in seeds], axis=0)
            row(name, yes(order.monotone), rows, *found)
    header("plan: risk, confidence, error, coverage, power", "promise", "rows", "simulated")
    for question in (
        Question(0.05, 0.1, 0.02, 0.8, 0.8),
        Question(0.02, 0.05, 0.01, 0.8, 0.8),
        Question(0.02, 0.05, 0.005, 0.6, 0.9),
        Question(0.01, 0.05, 0.004, 0.9, 0.8),
    ):
        asked = (question.risk, 1 - question.delta, question.error, question.coverage, question.power)
        for kind in ("cutoff", "both"):
            row(", ".join(f"{number:g}" for number in asked), kind, *planned(question, kind, trials))


def header(*names: str) -> None:
    """The head of a table in Markdown."""
    print(f"\n| {' | '.join(names)} |\n|{'---|' * len(names)}")


def row(*cells: object) -> None:
    """A line of it."""
    shown = [f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in cells]
    print(f"| {' | '.join(shown)} |", flush=True)


def yes(held: bool) -> str:
    return "yes" if held else "no"


if __name__ == "__main__":
    import sys

    main(*(int(argument) for argument in sys.argv[1:]))
