"""Simulations with known truth. As a script: many trials, the figures for the documentation."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from drrej.core.calibrators import minimise, nll_sums
from drrej.core.certify import Candidates, certify_coverage, risk_candidates
from drrej.core.curves import Curve
from drrej.core.drift import loss_quantiles, loss_shift, ratio_moments, ratio_shift
from drrej.core.losses import expected_losses
from drrej.core.ratio import DensityRatio, fit_ratio

GRID = 20000
FITS = 20


@dataclass(frozen=True)
class World:
    """Rows have a hidden difficulty x, uniform on [0, 1), in `levels` steps (0: none, so no ties).

    The gap of the largest logit falls with x, so a cutoff on the loss is one on x; a row is wrong with chance risk(x).
    """

    risk: Callable[[np.ndarray], np.ndarray]
    levels: int = 0
    monotone: bool = True
    easier: float = 1.0
    """The rows of fit have the difficulty x**easier."""

    def difficulty(self, x: np.ndarray) -> np.ndarray:
        return x if not self.levels else (np.floor(x * self.levels) + 0.5) / self.levels

    def logits(self, x: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        z = np.tile([0.0, 0.5, -0.5], (x.size, 1))
        z[np.arange(x.size), predicted] = 1.0 + 8.0 * (1.0 - self.difficulty(x)) ** 1.5
        return z

    def draw(self, rows: int, rng: np.random.Generator, easier: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """(logits, labels)."""
        x, predicted = rng.random(rows) ** easier, rng.integers(0, 3, rows)
        wrong = rng.random(rows) < self.risk(self.difficulty(x))
        labels = np.where(wrong, (predicted + rng.integers(1, 3, rows)) % 3, predicted)
        return self.logits(x, predicted), labels


WORLDS = {
    "steep": World(lambda x: 0.4 * x**4),
    "slow": World(lambda x: 0.02 + 0.15 * x),
    "ties": World(lambda x: 0.3 * x**3, levels=12),
    "few ties": World(lambda x: 0.02 + 0.2 * x**2, levels=4),
    "confidently wrong": World(lambda x: np.where(x < 0.04, 0.6, 0.25 * x**3), monotone=False),
    "sure but wrong": World(lambda x: np.where(x < 0.02, 0.6, 0.1 * x**3), monotone=False),
    "waves": World(lambda x: 0.08 + 0.08 * np.sin(25 * x), monotone=False),
    "just too risky": World(lambda x: np.full(x.shape, 0.0505)),
    "noise": World(lambda x: 0.02 + 0.3 * x**4),
    "safe but for a tenth": World(lambda x: np.where(x < 0.9, 0.0, 0.5)),
    "small safe part": World(lambda x: np.minimum(0.9 * x**1.2, 1.0)),
    "easy fit": World(lambda x: 0.4 * x**4, easier=6.0),
    "spikes": World(lambda x: np.where(np.floor(x * 60) % 6 == 5, 0.25, 0.012), monotone=False),
    "safe block after a bad one": World(lambda x: np.where(x < 0.5, 0.11, 0.0), levels=3, monotone=False),
}


@dataclass(frozen=True)
class Fitted:
    """What calibrate and fit make of their own rows."""

    temperature: float
    ratio: DensityRatio
    quantiles: tuple[float, ...]
    rows: int


@functools.cache
def fit_world(world: World, rows: int, number: int) -> Fitted:
    """One of `FITS` fits, each on its own rows; calibrate sees at least 200, or it may find no error to learn from."""
    rng = np.random.default_rng([number, rows, 1])
    logits, labels = world.draw(max(rows, 200), rng)
    temperature = minimise(lambda beta: nll_sums(logits, labels, beta, "float64")).temperature
    losses = np.sort(expected_losses(world.draw(rows, rng, world.easier)[0], temperature=temperature))
    return Fitted(temperature, fit_ratio(losses), loss_quantiles(losses), rows)


@functools.cache
def all_rows(world: World, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """Sorted losses of all rows there are, every class predicted as often, and the errors expected up to each."""
    x = np.tile((np.arange(GRID) + 0.5) / GRID, 3)
    losses = expected_losses(world.logits(x, np.repeat([0, 1, 2], GRID)), temperature=temperature)
    order = np.argsort(losses)
    return losses[order], np.concatenate([[0.0], np.cumsum(world.risk(world.difficulty(x))[order])])


def truth(world: World, temperature: float, cutoff: float | None) -> tuple[float, float]:
    """(coverage, risk) of a cutoff."""
    losses, errors = all_rows(world, temperature)
    accepted = losses.size if cutoff is None else int(np.searchsorted(losses, cutoff))
    return accepted / losses.size, errors[accepted] / max(accepted, 1)


def points_of(world: World, fitted: Fitted, rows: int, rng: np.random.Generator) -> Curve:
    logits, labels = world.draw(rows, rng)
    losses = expected_losses(logits, temperature=fitted.temperature)
    wrong = logits.argmax(axis=1) != labels
    return Curve.of(losses[~wrong], losses[wrong])


@dataclass(frozen=True)
class Outcome:
    """Rows accepted of those at hand (0: infeasible) and the truth."""

    accepted: int
    coverage: float
    risk: float


def certify(world: World, fitted: Fitted, looks: Candidates, risk: float) -> Outcome:
    best = looks.largest()
    if best is None:
        return Outcome(0, 0.0, 0.0)
    return Outcome(best.accepted, *truth(world, fitted.temperature, best.cutoff))


def risk_trial(world: World, rows: int, risk: float, delta: float, seed: int) -> Outcome:
    """A certified cutoff on fresh rows."""
    rng = np.random.default_rng([seed, rows])
    fitted = fit_world(world, rows, seed % FITS)
    points = points_of(world, fitted, rows, rng)
    return certify(world, fitted, risk_candidates(points, fitted.ratio, risk, delta), risk)


def oracle(world: World, risk: float) -> float:
    """The largest coverage of a cutoff whose true risk is at most `risk`."""
    grid = world.levels or GRID
    x = (np.arange(grid) + 0.5) / grid
    held = np.flatnonzero(np.cumsum(world.risk(x)) <= risk * np.arange(1, grid + 1) + 1e-12)
    return (int(held[-1]) + 1) / grid if held.size else 0.0


def coverage_trial(world: World, rows: int, coverage: float, delta: float, seed: int) -> float:
    """The true coverage of a certified one."""
    rng = np.random.default_rng([seed, rows])
    fitted = fit_world(world, rows, seed % FITS)
    points = points_of(world, fitted, rows, rng)
    certified = certify_coverage(points, fitted.ratio, coverage, delta, "coverage")
    return truth(world, fitted.temperature, certified.cutoff)[0]


def group_trial(worlds: list[World], rows: int, risk: float, delta: float, seed: int) -> bool:
    """Whether any group's certified cutoff is riskier than promised; all groups share one fit."""
    rng = np.random.default_rng([seed, rows])
    fitted = fit_world(worlds[0], rows, seed % FITS)
    level = delta / len(worlds)
    broken = False
    for number, world in enumerate(worlds):
        points = points_of(world, fitted, max(20, rows // (number + 1)), rng)
        looks = risk_candidates(points, fitted.ratio, risk, level)
        broken |= certify(world, fitted, looks, risk).risk > risk
    return broken


def drift_p_values(seed: int, fit_rows: int, rows: int, shrink: float = 1.0) -> dict[str, float | None]:
    """P-values of both drift figures on new losses; `shrink` below 1 makes the new rows easier."""
    rng = np.random.default_rng(seed)
    fit = np.sort(rng.gamma(0.4, 0.5, fit_rows))
    new = rng.gamma(0.4, 0.5, rows) * shrink
    density = fit_ratio(fit)
    moments = [ratio_moments([density.log_ratio(losses)], losses.size) for losses in (new, fit)]
    return {
        "ratio": ratio_shift(*moments)["p_value"],
        "drift": loss_shift(Curve.of(new, np.empty(0)), loss_quantiles(fit), fit_rows)["p_value"],
    }


def main(trials: int = 2000, delta: float = 0.1) -> None:
    """Print the shares of broken promises and of the oracle's coverage; other methods: `benchmarks.selective`."""
    allowed = delta + 3 * math.sqrt(delta * (1 - delta) / trials)
    print(f"{trials} trials each, delta {delta}; within three standard errors: {allowed:.4f}")
    for rows in (100, 200, 500, 1000, 3000, 10000):
        for name, world in WORLDS.items():
            risks(name, world, rows, 0.05, delta, trials)
    for rows in (50, 500, 5000):
        for name in ("steep", "ties", "few ties"):
            for target in (0.5, 0.9):
                truths = [coverage_trial(WORLDS[name], rows, target, delta, seed) for seed in range(trials)]
                short = np.mean([truth < target for truth in truths])
                print(
                    f"coverage {target} {name:10} n={rows:5} short {short:.4f} mean {np.mean(truths):.4f}", flush=True
                )
        groups = [WORLDS[name] for name in ("slow", "waves", "just too risky", "ties", "confidently wrong")]
        broken = np.mean([group_trial(groups, rows, 0.05, delta, seed) for seed in range(trials)])
        print(f"groups n={rows:5} any broken {broken:.4f}", flush=True)
    for fit_rows, rows in ((200, 200), (1000, 300), (500, 5000)):
        p = [drift_p_values(seed, fit_rows, rows) for seed in range(trials)]
        for level in (0.05, 0.01):
            rates = {name: float(np.mean([x[name] < level for x in p])) for name in ("ratio", "drift")}
            print(f"drift fit={fit_rows} new={rows} nominal {level}: {rates}", flush=True)


def risks(name: str, world: World, rows: int, risk: float, delta: float, trials: int) -> None:
    """One line: the oracle's coverage, what share of it is reached, and the share of broken promises."""
    best = oracle(world, risk)
    outcomes = [risk_trial(world, rows, risk, delta, seed) for seed in range(trials)]
    coverage = np.mean([outcome.coverage for outcome in outcomes])
    share = f"{coverage / best:.3f}" if best else "  -  "
    broken = np.mean([outcome.risk > risk for outcome in outcomes])
    line = f"risk {name:26} n={rows:5} oracle {best:.3f} reached {share} broken {broken:.4f}"
    print(line + ("" if world.monotone else " (not monotone)"), flush=True)


if __name__ == "__main__":
    import sys

    main(*(int(argument) for argument in sys.argv[1:]))
