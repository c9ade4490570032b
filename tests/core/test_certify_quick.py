"""Certified cutoffs against their quick form on many trials: tables of allowed errors instead of p-values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.certified import methods, quick
from benchmarks.certified.__main__ import DELTA, generated
from drrej.core.curves import Curve


@pytest.mark.parametrize("rows", [60, 500])
@pytest.mark.parametrize("name", list(quick.METHODS))
def test_both_ways_lead_to_the_same_cutoff(rows: int, name: str) -> None:
    for world in generated():
        of = world.draw(rows, 12, seed=1)
        found = quick.METHODS[name](of, world.risk, DELTA)
        for trial, (losses, errors, fit) in enumerate(zip(of.losses, of.errors, of.fits, strict=True)):
            wrong = np.diff(errors) > 0
            points = Curve.of(losses[~wrong], losses[wrong])
            assert methods.METHODS[name](points, fit, world.risk, DELTA) == found[trial]


def test_no_more_promises_are_broken_than_delta_allows() -> None:
    """400 trials of each world, within three standard errors; every cutoff against the truth of its world."""
    for rows in (100, 700):
        for world in generated():
            _, risk = world.truth(quick.every_rank(world.draw(rows, 400, seed=2), world.risk, DELTA))
            assert np.mean(risk > world.risk) <= DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / 400)


def test_few_rows_are_not_wasted() -> None:
    """Errors only in the riskiest tenth: 0.01 at confidence 0.95 was infeasible on 400 and on 700 rows."""
    world = next(world for world in generated() if world.risk == 0.01)
    for rows in (400, 700):
        coverage, _ = world.truth(quick.every_rank(world.draw(rows, 300, seed=3), 0.01, 0.05))
        assert np.mean(coverage > 0.85) > 0.95
        before, _ = world.truth(quick.halves(world.draw(rows, 300, seed=3), 0.01, 0.05))
        assert np.mean(before > 0) < 0.05
