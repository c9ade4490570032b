"""Simulated levels of intervals and tests with known truth. As a script: the tables, many trials each."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np
from scipy.special import ndtr

from drrej.core.curves import Curve, coverage_at_risk
from drrej.core.drift import ratio_moments, ratio_shift
from drrej.core.paired import FIGURES, Results, area_intervals, paired_differences
from drrej.core.ratio import fit_ratio

ROWS = (50, 100, 200, 500, 1000, 5000)
ERROR_RATES = (0.005, 0.01, 0.05, 0.2)
GRID = 1 << 20

Figures = dict[str, float]


@dataclass(frozen=True)
class World:
    """Rows have a loss u, uniform on [0, 1), and are wrong with chance risk(u).

    With `levels` above 0 the loss has so many values, and rows tie.
    """

    risk: Callable[[np.ndarray], np.ndarray]
    levels: int = 0

    def loss(self, u: np.ndarray) -> np.ndarray:
        return u if not self.levels else (np.floor(u * self.levels) + 0.5) / self.levels

    def draw(self, rows: int, rng: np.random.Generator) -> Curve:
        losses = self.loss(rng.random(rows))
        wrong = rng.random(rows) < self.risk(losses)
        return Curve.of(losses[~wrong], losses[wrong])

    @functools.cached_property
    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """(coverage, accepted errors / rows) of all rows there are, at the end of each step."""
        steps = self.levels or GRID
        u = (np.arange(steps) + 0.5) / steps
        return np.arange(1, steps + 1) / steps, np.cumsum(self.risk(u)) / steps

    def truth(self) -> Figures:
        coverage, errors = (np.concatenate([[0.0], values]) for values in self.curve)
        risk = errors[1:] / coverage[1:]
        risk = np.concatenate([risk[:1], risk])
        error = float(errors[-1])
        aurc = float(np.trapezoid(risk, coverage))
        return {
            "aurc": aurc,
            "e_aurc": aurc - (error + (1 - error) * math.log1p(-error)),
            "augrc": float(np.trapezoid(errors, coverage)),
        }

    def coverage_at(self, limit: float) -> float:
        """The largest coverage of at most this risk."""
        coverage, errors = self.curve
        held = np.flatnonzero(errors <= limit * coverage)
        return float(coverage[held[-1]]) if held.size else 0.0

    def at_cutoff(self, cutoff: float) -> tuple[float, float]:
        """(coverage, accepted errors / rows) of the rows with a smaller loss."""
        coverage, errors = self.curve
        accepted = int(np.searchsorted(self.loss(coverage - 0.5 / coverage.size), cutoff))
        return (float(coverage[accepted - 1]), float(errors[accepted - 1])) if accepted else (0.0, 0.0)


def worlds(error: float) -> dict[str, World]:
    """Worlds of one error rate, from a loss that tells nearly all to one that misleads."""
    power = min(10.0, 1.0 / error)
    strong = functools.partial(_power, error, power)
    front = min(0.3 * error / 0.05, 1.0)  # 30 % of the errors among the 5 % of smallest loss
    return {
        "informative": World(strong),
        "weak": World(lambda u: error * (0.5 + u)),
        "flat": World(lambda u: np.full(u.shape, error)),
        "confidently wrong": World(
            lambda u: np.where(u < 0.05, front, (error - 0.05 * front) * 3 * u**2 / (1 - 0.05**3))
        ),
        "ties": World(lambda u: error * (0.25 + 1.5 * u), levels=8),
        "few levels": World(lambda u: error * 2 * u, levels=3),
    }


def _power(error: float, power: float, u: np.ndarray) -> np.ndarray:
    return error * power * u ** (power - 1)


def limit_worlds(limit: float) -> dict[str, World]:
    """Worlds whose risk is near a limit."""
    return {
        "flat above": World(lambda u: np.full(u.shape, 1.01 * limit)),
        "flat below": World(lambda u: np.full(u.shape, 0.99 * limit)),
        "slowly over": World(lambda u: limit * (0.8 + 0.5 * u)),
        "over in steps": World(lambda u: limit * (0.5 + 1.2 * u), levels=5),
        "down, then up": World(lambda u: limit * (2.2 - 7 * u + 7.5 * u**2)),
        "steep": World(lambda u: np.minimum(20 * limit * u**4, 1.0)),
    }


@dataclass
class Misses:
    """How often the truth was below the lower end and above the upper end, and the mean width."""

    below: int = 0
    above: int = 0
    width: float = 0.0
    trials: int = 0

    def add(self, lower: float, upper: float, truth: float) -> None:
        slack = 1e-9 + 2 / GRID  # what the grid of the truth may be off by
        self.below += truth < lower - slack * max(lower, 1e-3)
        self.above += truth > upper + slack * max(upper, 1e-3)
        self.width += upper - lower
        self.trials += 1

    def __str__(self) -> str:
        share = 100 / max(self.trials, 1)
        return f"{self.below * share:5.1f} {self.above * share:5.1f} {self.width * share / 100:.4f}"

    def allowed(self, level: float = 0.025) -> bool:
        """Whether each end misses no more often than by chance: three standard errors."""
        most = self.trials * level + 3 * math.sqrt(self.trials * level * (1 - level))
        return max(self.below, self.above) <= most


def area_misses(world: World, rows: int, trials: int) -> dict[str, Misses]:
    truth = world.truth()
    misses = {name: Misses() for name in truth}
    for seed in range(trials):
        points = world.draw(rows, np.random.default_rng([seed, rows]))
        for name, interval in area_intervals(points).items():
            misses[name].add(*interval, truth[name])
    return misses


def coverage_misses(world: World, rows: int, limit: str, trials: int) -> Misses:
    truth = world.coverage_at(float(limit))
    misses = Misses()
    for seed in range(trials):
        points = world.draw(rows, np.random.default_rng([seed, rows]))
        misses.add(*coverage_at_risk(points, Fraction(limit)), truth)
    return misses


@dataclass(frozen=True)
class Pair:
    """Two models on the same rows; how closely their losses and their errors are related is between 0 and 1."""

    new: World
    old: World
    cutoffs: tuple[float, float] = (0.8, 0.8)
    related: float = 0.9

    def draw(self, rows: int, rng: np.random.Generator) -> tuple[Results, Results]:
        losses, chances = (self._related(rows, rng) for _ in range(2))
        new, old = (
            Results(world.loss(u), chance < world.risk(world.loss(u)), world.loss(u) < cutoff)
            for world, u, chance, cutoff in zip((self.new, self.old), losses, chances, self.cutoffs, strict=True)
        )
        return new, old

    def _related(self, rows: int, rng: np.random.Generator) -> np.ndarray:
        common, own = rng.standard_normal(rows), rng.standard_normal((2, rows))
        return ndtr(math.sqrt(self.related) * common + math.sqrt(1 - self.related) * own)

    def truth(self) -> Figures:
        figures = []
        for world, cutoff in zip((self.new, self.old), self.cutoffs, strict=True):
            coverage, errors = world.at_cutoff(cutoff)
            base = {"coverage": coverage, "accuracy": 1 - errors / coverage, "base_accuracy": 1 - world.curve[1][-1]}
            figures.append(base | world.truth())
        return {name: figures[0][name] - figures[1][name] for name in FIGURES}


def pairs(error: float) -> dict[str, Pair]:
    """Pairs of models around one error rate."""
    of, better = worlds(error), worlds(0.7 * error)
    return {
        "alike": Pair(of["informative"], of["informative"]),
        "better": Pair(better["informative"], of["informative"]),
        "weaker order": Pair(of["weak"], of["informative"], (0.8, 0.7)),
        "other rows": Pair(of["weak"], better["flat"], (0.9, 0.5), related=0.3),
        "nearly the same": Pair(of["weak"], of["weak"], related=0.999),
        "confidently wrong": Pair(of["confidently wrong"], of["weak"]),
        "ties": Pair(better["ties"], of["few levels"], (0.75, 0.5)),
    }


def paired_misses(pair: Pair, rows: int, trials: int) -> dict[str, Misses]:
    truth = pair.truth()
    misses = {name: Misses() for name in FIGURES}
    for seed in range(trials):
        for name, found in paired_differences(*pair.draw(rows, np.random.default_rng([seed, rows]))).items():
            if found.lower is not None and found.upper is not None:
                misses[name].add(found.lower, found.upper, truth[name])
    return misses


Losses = Callable[[np.random.Generator, int], np.ndarray]

LOSSES: dict[str, Losses] = {
    "gamma": lambda rng, rows: rng.gamma(0.4, 0.5, rows),
    "lognormal": lambda rng, rows: np.exp(rng.normal(-3, 2, rows)),
    "1 % hard": lambda rng, rows: np.where(rng.random(rows) < 0.99, 1e-4, 1.0) * rng.random(rows),
    "ties": lambda rng, rows: rng.binomial(5, 0.1, rows) / 5,
}
RATIOS = ((1.0, 1.0), (1.0, 0.01), (3.0, 1.0), (3.0, 0.1), (0.0, 0.3))
"""(alpha, lambda)."""
SIZES = ((50, 50), (50, 2000), (200, 200), (200, 5000), (1000, 300), (5000, 200))
"""Rows of the fit and new rows."""
LEVELS = (0.05, 0.01, 0.001)


def drift_p_values(losses: Losses, ratio: tuple[float, float], sizes: tuple[int, int], trials: int) -> np.ndarray:
    """P-values of the mean ratio without drift."""
    found = np.ones(trials)
    for seed in range(trials):
        rng = np.random.default_rng([seed, *sizes])
        fit, new = (losses(rng, rows) for rows in sizes)
        density = fit_ratio(fit, *ratio)
        moments = [ratio_moments([density.log_ratio(rows)], rows.size) for rows in (new, fit)]
        p_value = ratio_shift(*moments)["p_value"]
        assert p_value is not None
        found[seed] = p_value
    return found


def main(what: str = "areas coverage paired drift", trials: int = 1000, only_rows: int = 0) -> None:
    """Print the tables: in percent, truth below the interval, truth above it; its mean width."""
    most = 2.5 + 300 * math.sqrt(0.025 * 0.975 / trials)
    print(f"{trials} trials each; an end may miss 2.5 %, and {most:.1f} % is within three standard errors (! if above)")
    sizes = (only_rows,) if only_rows else ROWS
    if "areas" in what:
        for rows, error in product(sizes, ERROR_RATES):
            for name, world in worlds(error).items():
                _print(f"{name:18} n={rows:4} error {error:5}", area_misses(world, rows, trials))
    if "coverage" in what:
        for rows, limit in product(sizes, ("0.01", "0.05")):
            named = {f"{name} {error}": w for error in ERROR_RATES for name, w in worlds(error).items()}
            for name, world in (limit_worlds(float(limit)) | named).items():
                misses = coverage_misses(world, rows, limit, trials)
                _print(f"{name:24} n={rows:4} risk {limit} c*={world.coverage_at(float(limit)):.3f}", {"": misses})
    if "paired" in what:
        for rows, error in product(sizes, ERROR_RATES):
            for name, pair in pairs(error).items():
                _print(f"{name:18} n={rows:4} error {error:5}", paired_misses(pair, rows, trials))
    if "drift" in what:
        for (name, losses), ratio, rows in product(LOSSES.items(), RATIOS, SIZES):
            p = drift_p_values(losses, ratio, rows, trials)
            rates = [100 * float(np.mean(p <= level)) for level in LEVELS]
            allowed = [100 * (level + 3 * math.sqrt(level * (1 - level) / trials)) for level in LEVELS]
            over = "!" if any(rate > limit for rate, limit in zip(rates, allowed, strict=True)) else ""
            shown = " ".join(f"{rate:5.2f}" for rate in rates)
            print(f"drift {name:10} alpha, lambda {ratio} fit, new {rows}: {shown} {over}", flush=True)


def _print(start: str, misses: dict[str, Misses]) -> None:
    shown = " | ".join(f"{name} {found}{'' if found.allowed() else '!'}" for name, found in misses.items())
    print(f"{start} {shown}", flush=True)


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:2], *(int(argument) for argument in sys.argv[2:]))
