"""Certified risks with planned starts and with few levels, walked by another route, many trials at once.

A trial is broken if *any* cutoff that may be certified is riskier than promised, which is stricter than the promise.
As a script: `python -m tests.campaigns simulate_plans ranks|levels [TRIALS]` prints the worst cells, in ten minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import bdtr

from drrej.core.certify import Starts, error_blocks, few_levels, level_starts, planned_starts
from drrej.core.curves import Curve
from drrej.core.drift import loss_quantiles

DELTA, GRID, FIT_ROWS, FITS = 0.1, 20_000, 500, 10
KINDS = ("none", "alike", "easy", "reversed")
"""What the rows of the fit are like: without labels, like the new rows, with half of the errors, in reverse order."""

RANKS = ((0.05, 200), (0.05, 800), (0.02, 500), (0.1, 100), (0.02, 2500))
LEVELS = ((0.05, 300, 3), (0.1, 300, 5), (0.05, 1000, 10), (0.1, 2000, 30), (0.02, 2000, 3))

Risk = Callable[[np.ndarray], np.ndarray]


def orders(limit: float) -> dict[str, Risk]:
    """The probability of an error at a place from 0 (safest) to 1, around a limit."""
    return {
        "flat": lambda x: np.full_like(x, limit * 1.0001),
        "rising": lambda x: 2.4 * limit * x,
        "jump": lambda x: np.where(x < 0.5, limit * 0.9, limit * 1.3),
        "waves": lambda x: limit * (1 + 0.9 * np.sin(25 * x)),
        "bad first": lambda x: np.where(x < 0.1, 3 * limit, limit * 0.85),
        "two parts": lambda x: np.where(x < 1 / 3, 2.5 * limit, np.where(x < 2 / 3, 0.3 * limit, 0.6 * limit)),
    }


def walked(p_values: np.ndarray, starts: Starts) -> np.ndarray:
    """Which places pass, of trials x places."""
    passed = np.zeros(p_values.shape, bool)
    level = np.zeros(len(p_values))
    ends = [*(first - 1 for first, _ in starts[1:]), p_values.shape[1]]
    for (first, share), last in zip(starts, ends, strict=True):
        level = level + share
        run = np.logical_and.accumulate(p_values[:, first - 1 : last] <= level[:, None], axis=1)
        passed[:, first - 1 : last] = run
        level = np.where(run[:, -1], level, 0.0)
    return passed


def fitted(risk: Risk, kind: str, at: Risk, middle: Risk, seed: Sequence[int]) -> tuple[Any, Any]:
    """What the rows of a fit tell: blocks of errors, and quantiles of the losses."""
    random = np.random.default_rng([*seed, 99])
    places = random.random(FIT_ROWS)
    told = {"easy": lambda x: risk(x) / 2, "reversed": lambda x: risk(1 - x)}.get(kind, risk)
    wrong, losses = random.random(FIT_ROWS) < told(middle(places)), at(places)
    blocks = () if kind == "none" else error_blocks(Curve.of(losses[~wrong], losses[wrong]))
    return blocks, loss_quantiles(np.sort(losses))


def ranks_broken(limit: float, rows: int, risk: Risk, kind: str, trials: int) -> float:
    """The share of broken trials with continuous losses."""
    sums = np.append(0, np.cumsum(risk((np.arange(GRID) + 0.5) / GRID)))
    broken, each = 0, max(trials // FITS, 1)
    for fit in range(FITS):
        random = np.random.default_rng([fit, rows])
        places = np.sort(random.random((each, rows)), axis=1)
        errors = np.cumsum(random.random((each, rows)) < risk(places), axis=1).astype(float)
        blocks, _ = fitted(risk, kind, lambda x: x, lambda x: x, [fit, rows])
        may = walked(bdtr(errors, np.arange(1, rows + 1), limit), planned_starts(blocks, rows, limit, DELTA))
        cutoffs = GRID * np.column_stack([places[:, 1:], np.ones(each)])
        bad = np.interp(cutoffs, np.arange(GRID + 1), sums) > limit * cutoffs * (1 + 1e-9)
        broken += int((may & bad).any(axis=1).sum())
    return broken / (each * FITS)


def levels_broken(limit: float, rows: int, levels: int, risk: Risk, kind: str, trials: int) -> float:
    """The share of broken trials with so many different losses."""

    def lower(places: np.ndarray) -> np.ndarray:
        return np.floor(places * levels) / levels

    rates = risk((np.arange(levels) + 0.5) / levels)
    bad = np.cumsum(rates) / np.arange(1, levels + 1) > limit * (1 + 1e-9)
    broken, each = 0, max(trials // FITS, 1)
    for fit in range(FITS):
        random = np.random.default_rng([fit, rows, levels])
        counts = random.multinomial(rows, np.full(levels, 1 / levels), each)
        errors = np.cumsum(random.binomial(counts, rates), axis=1).astype(float)
        accepted = np.cumsum(counts, axis=1)
        blocks, quantiles = fitted(risk, kind, lower, lambda x: lower(x) + 0.5 / levels, [fit, rows])
        cuts = few_levels(quantiles)
        assert cuts is not None
        assert cuts.size == levels
        shares = np.searchsorted(quantiles, cuts)
        ranks = tuple(np.rint(shares * rows / shares[-1]).astype(int).tolist())
        chances = np.where(accepted > 0, bdtr(errors, np.maximum(accepted, 1), limit), 1.0)
        may = walked(chances, level_starts(blocks, ranks, limit, DELTA))
        broken += int((may & bad).any(axis=1).sum())
    return broken / (each * FITS)


def main(part: str = "ranks", trials: str = "2000") -> None:
    """Print the cells with the most broken trials."""
    found = []
    for cell in RANKS if part == "ranks" else LEVELS:
        for name, risk in orders(cell[0]).items():
            for kind in KINDS:
                measure = ranks_broken if part == "ranks" else levels_broken
                found.append((measure(*cell, risk, kind, int(trials)), *cell, name, kind))
    print(f"{len(found)} cells; the largest shares of broken trials, where {DELTA} is allowed:")
    for cell in sorted(found, reverse=True)[:6]:
        print(*cell)


if __name__ == "__main__":
    main(*sys.argv[1:])
