"""Certified cutoffs by another route: tables of allowed errors instead of p-values, rank by rank; and known truths."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from benchmarks.selective.certified import DELTA, generated
from benchmarks.selective.rules import Fitted, curve_of, every_rank
from drrej.core.certify import error_blocks, planned_starts


def allowed(rows: int, risk: float, level: float) -> np.ndarray:
    """The most errors with which 0, 1, ..., rows rows pass at a level; -1: none."""
    ranks = np.arange(rows + 1)
    most = binom.ppf(level, ranks, risk).astype(np.int64)
    most -= binom.cdf(most, ranks, risk) > level  # ppf is the first that reaches the level
    return np.where(ranks > 0, most, -1)


def by_tables(losses: np.ndarray, wrong: np.ndarray, fit: Fitted, risk: float) -> float:
    """Runs from each start, a level that an unbroken run carries along."""
    errors = np.append(0, np.cumsum(wrong[np.argsort(losses)]))
    rows, blocks = losses.size, error_blocks(curve_of(fit.losses, fit.wrong))
    best = reached(errors, dict(planned_starts(blocks, rows, risk, DELTA)), risk)
    return -math.inf if not best else math.inf if best == rows else float(np.sort(losses)[best])


def reached(errors: np.ndarray, starts: dict[int, float], risk: float) -> int:
    """The last rank that passes."""
    rows, level, best = errors.size - 1, 0.0, 0
    table = {0.0: np.full(rows + 1, -1)}
    for rank in range(1, rows + 1):
        if rank in starts:
            level += starts[rank]
            table.setdefault(level, allowed(rows, risk, level))
        passes = errors[rank] <= table[level][rank]
        best, level = (rank, level) if passes else (best, 0.0)
    return best


@pytest.mark.parametrize("rows", [60, 500])
def test_both_ways_lead_to_the_same_cutoff(rows: int) -> None:
    for world in generated():
        for seed in range(2):
            rng = np.random.default_rng([rows, seed])
            losses, wrong = world.draw(rows, rng)
            fit = Fitted(*world.draw(rows, rng, world.easier))
            found = every_rank(curve_of(losses, wrong), fit, world.risk, DELTA)
            assert found == by_tables(losses, wrong, fit, world.risk)


def test_no_more_promises_are_broken_than_delta_allows() -> None:
    """20 trials of each world, together within three standard errors; every cutoff against the truth of its world."""
    broken = [risk > world.risk for world in generated() for risk in world.found(every_rank, 200, 20)[1]]
    assert np.mean(broken) <= DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / len(broken))


def test_few_rows_are_not_wasted() -> None:
    """Errors only in the riskiest tenth: 0.01 at confidence 0.9 is certified on 400 and on 700 rows."""
    world = next(world for world in generated() if world.risk == 0.01)
    for rows in (400, 700):
        coverage, _ = world.found(every_rank, rows, 10)
        assert np.mean(coverage > 0.85) >= 0.9
