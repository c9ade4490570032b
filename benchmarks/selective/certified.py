"""What rules certify where the truth is known: the share of the oracle's coverage, and the promises that are broken."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.pages import made_by, table
from benchmarks.selective.rules import RULES, Array, Fitted, Rule, curve_of

ROWS = (200, 500, 1000, 3000)
DELTA = 0.1
GRID = 1 << 17
MAPIE_EVERY = 10
"""MAPIE takes about a second: it has one in so many of the trials."""


@dataclass(frozen=True)
class World:
    """A row's place u in the order of all rows is its loss, and it is wrong with a chance that is given on a grid."""

    name: str
    chance: Array
    risk: float
    easier: float = 1.0
    """The rows of the fit have the loss u**easier."""

    @cached_property
    def errors(self) -> Array:
        """Errors per row up to each end of the grid."""
        return np.append(0.0, np.cumsum(self.chance)) / self.chance.size

    def draw(self, rows: int, rng: np.random.Generator, easier: float = 1.0) -> tuple[Array, Array]:
        """Losses, and which rows are wrong."""
        places = rng.random(rows)
        return places**easier, rng.random(rows) < self.chance[(places * self.chance.size).astype(np.int64)]

    def found(self, rule: Rule, rows: int, trials: int) -> tuple[Array, Array]:
        """The true coverage and risk of what a rule certifies in each trial; as many rows fit as certify."""
        cutoffs = []
        for trial in range(trials):
            rng = np.random.default_rng([rows, trial])
            fresh, fit = curve_of(*self.draw(rows, rng)), Fitted(*self.draw(rows, rng, self.easier))
            cutoffs.append(rule(fresh, fit, self.risk, DELTA))
        return self.truth(np.array(cutoffs))

    def truth(self, cutoffs: Array) -> tuple[Array, Array]:
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

    def made(name: str, chance: Callable[[Array], Array], risk: float = 0.05, **more: float) -> World:
        return World(name, chance((np.arange(GRID) + 0.5) / GRID), risk, **more)

    return [
        made("steep", lambda u: 0.4 * u**4),
        made("slow", lambda u: 0.02 + 0.15 * u),
        made("noise", lambda u: 0.02 + 0.3 * u**4),
        made("confidently wrong", lambda u: np.where(u < 0.04, 0.3, 0.25 * u**3)),
        made("small safe part", lambda u: np.minimum(0.9 * u**1.2, 1.0)),
        made("easy fit", lambda u: 0.4 * u**4, easier=6.0),
        made("safe except a tenth", lambda u: np.where(u < 0.9, 0.0, 0.5)),
        made("safe except a tenth, R = 0.01", lambda u: np.where(u < 0.9, 0.0, 0.5), 0.01),
    ]


def tables(args: argparse.Namespace) -> str:
    """All worlds, the means over them, and how many promises were broken in all."""
    counts = {name: max(1, args.trials // MAPIE_EVERY) if "MAPIE" in name else args.trials for name in RULES}
    lines, means = [], []
    broken = dict.fromkeys(RULES, 0.0)
    for rows in ROWS:
        shares = []
        for world in generated():
            found, cells = [world.found(RULES[name], rows, count) for name, count in counts.items()], []
            shares.append([float(np.mean(coverage)) / world.oracle for coverage, _ in found])
            for name, share, (_, risk) in zip(RULES, shares[-1], found, strict=True):
                over = float(np.mean(risk > world.risk * (1 + 1e-9)))
                broken[name] += over
                beyond = "!" if over > DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / counts[name]) else ""
                cells.append(f"{share:.3f} ({100 * over:.0f}{beyond})")
            lines.append([str(rows), world.name, f"{world.risk:g}", f"{world.oracle:.3f}", *cells])
        means.append([str(rows), *(f"{share:.3f}" for share in np.mean(shares, axis=0))])
    said = [f"{100 * share / len(lines):.1f} % of {len(lines) * counts[name]}" for name, share in broken.items()]
    text = [
        "# Certified coverage where the truth is known",
        "",
        made_by(f"python -m benchmarks.selective certified --trials {args.trials}"),
        "",
        "The share of the oracle's coverage that is certified at confidence 0.9; in brackets the promises that were",
        "broken, in percent (10 are allowed; `!` where chance does not explain more). As many rows fit as certify.",
        "",
        "## Means over worlds",
        "",
        *table(["rows", *RULES], [*means, ["promises broken", *said]]),
        "## Every world",
        "",
        *table(["rows", "world", "risk", "oracle", *RULES], lines),
    ]
    return "\n".join(text)
