"""python -m benchmarks.certified [TRIALS] [LOSSES.npz ...]: the share of the oracle's coverage, and broken promises.

Generated worlds have known truths. A file of losses (`losses`, `wrong`) is a world too: rows are drawn from it with
replacement, so that the truth is the file itself. In brackets: promises that were broken, in percent (delta is 10 %).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks.certified.methods import mapie
from benchmarks.certified.quick import METHODS, Trials
from drrej.core.curves import Curve

ROWS = (100, 200, 500, 1000, 3000, 10_000)
DELTA = 0.1
GRID = 1 << 17
MAPIE_EVERY = 50
"""MAPIE is slow: it has one in so many of the trials."""


@dataclass(frozen=True)
class World:
    """A row's place u in the order of all rows is its loss, and it is wrong with a chance that is given on a grid."""

    name: str
    chance: np.ndarray
    risk: float
    easier: float = 1.0
    """The rows of the fit have the loss u**easier."""

    @cached_property
    def errors(self) -> np.ndarray:
        """Errors per row up to each end of the grid."""
        return np.append(0.0, np.cumsum(self.chance)) / self.chance.size

    def draw(self, rows: int, trials: int, seed: int) -> Trials:
        """Fresh rows and, for each trial, the losses of a fit."""
        rng = np.random.default_rng([seed, rows])
        losses = np.sort(rng.random((trials, rows)), axis=1)
        fits = np.sort(rng.random((trials, rows)), axis=1) ** self.easier
        wrong = rng.random((trials, rows)) < self.chance[(losses * self.chance.size).astype(np.int64)]
        errors = np.concatenate([np.zeros((trials, 1), np.int64), np.cumsum(wrong, axis=1)], axis=1)
        return Trials(losses, errors, fits)

    def truth(self, cutoffs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(coverage, risk) of cutoffs."""
        coverage = np.clip(cutoffs, 0.0, 1.0)
        errors = np.interp(coverage, np.linspace(0.0, 1.0, self.errors.size), self.errors)
        return coverage, np.divide(errors, coverage, out=np.zeros(coverage.shape), where=coverage > 0)

    @property
    def oracle(self) -> float:
        """The largest coverage of a cutoff whose true risk is at most R, to the grid."""
        ends = np.linspace(0.0, 1.0, self.errors.size)
        return float(ends[np.flatnonzero(self.errors <= self.risk * ends * (1 + 1e-12))[-1]])


def generated() -> list[World]:
    """Worlds from a function of the loss: R is 0.05, but 0.01 where rows are few for it."""

    def made(name: str, chance: Callable[[np.ndarray], np.ndarray], risk: float = 0.05, **more: float) -> World:
        return World(name, chance((np.arange(GRID) + 0.5) / GRID), risk, **more)

    return [
        made("steep", lambda u: 0.4 * u**4),
        made("slow", lambda u: 0.02 + 0.15 * u),
        made("noise", lambda u: 0.02 + 0.3 * u**4),
        made("confidently wrong", lambda u: np.where(u < 0.04, 0.3, 0.25 * u**3)),
        made("small safe part", lambda u: np.minimum(0.9 * u**1.2, 1.0)),
        made("easy fit", lambda u: 0.4 * u**4, easier=6.0),
        made("safe but for a tenth", lambda u: np.where(u < 0.9, 0.0, 0.5)),
        made("safe but for a tenth, R = 0.01", lambda u: np.where(u < 0.9, 0.0, 0.5), 0.01),
    ]


def from_file(path: str) -> World:
    """A world of real losses; R is 0.4 of the error rate, to three digits."""
    with np.load(path) as stored:
        wrong = stored["wrong"][np.argsort(stored["losses"], kind="stable")]
    return World(Path(path).stem, wrong.astype(float), round(0.4 * float(wrong.mean()), 3))


def cell(found: tuple[np.ndarray, np.ndarray], world: World) -> str:
    """The share of the oracle's coverage, and the share of broken promises."""
    coverage, risk = found
    broken = float(np.mean(risk > world.risk * (1 + 1e-9)))
    over = "!" if broken > DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / coverage.size) else ""
    return f"{np.mean(coverage) / world.oracle:.3f} ({100 * broken:.1f}{over})"


def with_mapie(world: World, of: Trials, count: int) -> tuple[np.ndarray, np.ndarray]:
    """MAPIE on the first trials."""
    cutoffs = []
    for losses, errors, fit in zip(of.losses[:count], of.errors[:count], of.fits[:count], strict=True):
        wrong = np.diff(errors) > 0
        cutoffs.append(mapie(Curve.of(losses[~wrong], losses[wrong]), fit, world.risk, DELTA))
    return world.truth(np.array(cutoffs))


def main() -> None:
    """Print the table."""
    arguments = sys.argv[1:]
    trials = int(arguments.pop(0)) if arguments and arguments[0].isdigit() else 1000
    worlds = [*generated(), *map(from_file, arguments)]
    print("| world | R | oracle | rows | " + " | ".join([*METHODS, "MAPIE"]) + " |")
    print("|---|---|---|---|" + "---|" * (len(METHODS) + 1))
    for rows in ROWS:
        for world in worlds:
            of = world.draw(rows, trials, 0)
            cells = [cell(world.truth(method(of, world.risk, DELTA)), world) for method in METHODS.values()]
            cells.append(cell(with_mapie(world, of, max(1, trials // MAPIE_EVERY)), world))
            print(f"| {world.name} | {world.risk:g} | {world.oracle:.3f} | {rows} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
