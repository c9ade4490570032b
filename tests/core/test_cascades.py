"""Cascades against brute force, and the certificate against the truth of a known population."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from conftest import thorough
from scipy.stats import binom

import drrej
from drrej.core import cascades
from drrej.core.cascades import StageRows, alone, certified, cheapest, frontier, outcome
from drrej.errors import OptionError


def world(rows: int, stages: int, seed: int) -> StageRows:
    """Later stages are wrong less often; a loss says how likely its stage is wrong."""
    rng = np.random.default_rng(seed)
    hard = rng.random(rows)
    risks = [np.clip(hard**3 * (0.6 / (stage + 1)) + 0.01, 0, 1) for stage in range(stages)]
    wrong = np.stack([rng.random(rows) < risk for risk in risks])
    losses = np.stack([np.clip(risk + rng.normal(0, 0.03, rows), 1e-6, None) for risk in risks])
    return StageRows(losses, wrong)


def by_hand(cutoffs: tuple[float | None, ...], rows: StageRows, costs: list[float]) -> tuple[float, int]:
    spent, errors = 0.0, 0
    for row in range(rows.rows):
        for stage, cutoff in enumerate(cutoffs):
            if cutoff is None:
                continue
            spent += costs[stage]
            if rows.losses[stage, row] < cutoff:
                errors += int(rows.wrong[stage, row])
                break
    return spent / rows.rows, errors


@pytest.mark.parametrize(("rows", "stages"), [(25, 2), (9, 3)])
def test_the_frontier_is_that_of_all_plans(rows: int, stages: int) -> None:
    made, costs = world(rows, stages, seed=rows), [1.0, 3.0, 10.0][:stages]
    choices = [[None, math.inf, *np.unique(losses)] for losses in made.losses]
    points = []
    for cutoffs in itertools.product(*choices):
        used = [cutoff for cutoff in cutoffs if cutoff is not None]
        if used and used[-1] == math.inf and math.inf not in used[:-1]:
            points.append(by_hand(cutoffs, made, costs))
    best = [
        point
        for point in set(points)
        if not any(a <= point[0] + 1e-12 and b <= point[1] and (a, b) != point for a, b in points)
    ]
    found = frontier(made, costs)
    assert sorted((errors, round(cost, 9)) for cost, errors in best) == [
        (point.errors, round(point.cost, 9)) for point in found
    ]
    for point in found:
        assert (point.cost, point.errors) == pytest.approx(by_hand(point.plan, made, costs))
        assert sum(point.answered) == rows


def test_a_plan_counts_what_each_stage_sees() -> None:
    made = world(300, 3, seed=1)
    found = outcome((0.05, None, math.inf), made, [1.0, 5.0, 20.0])
    first = int((made.losses[0] < 0.05).sum())
    assert found.reached == (300, 0, 300 - first)
    assert found.answered == (first, 0, 300 - first)
    assert found.cost == pytest.approx(1.0 + 20.0 * (300 - first) / 300)


def test_each_stage_alone() -> None:
    made = world(200, 2, seed=2)
    one, two = alone(made, [1.0, 10.0])
    assert (one.cost, two.cost) == (1.0, 10.0)
    assert (one.errors, two.errors) == tuple(made.wrong.sum(axis=1))


def test_the_cheapest_plan_keeps_the_risk_and_no_other_on_the_frontier_is_cheaper() -> None:
    made, costs = world(2000, 2, seed=3), [1.0, 10.0]
    risk = alone(made, costs)[1].risk + 0.005
    chosen, _ = cheapest(made, costs, risk)
    assert chosen.risk <= risk
    first = np.append(np.unique(made.losses[0])[1:], np.inf)
    fitting = [by_hand_fast(cutoff, made, costs) for cutoff in first]
    least = min(cost for cost, errors in fitting if errors <= risk * 2000)
    assert chosen.cost == pytest.approx(least, abs=10.0 * 3 / 1000)  # the grid has 1000 cutoffs
    with pytest.raises(drrej.Infeasible, match=r"no cascade .* the best reaches"):
        cheapest(made, costs, 0.0)


def by_hand_fast(cutoff: float, rows: StageRows, costs: list[float]) -> tuple[float, int]:
    accepted = rows.losses[0] < cutoff
    return costs[0] + costs[1] * (~accepted).mean(), int(np.where(accepted, *rows.wrong).sum())


def test_a_certified_plan_passes_the_exact_test_and_the_next_does_not() -> None:
    design, fresh, costs = world(3000, 2, seed=4), world(3000, 2, seed=5), [1.0, 10.0]
    risk = 0.12
    chosen, tested = certified(design, fresh, costs, risk, 0.9)
    *passed, last = tested
    assert passed[-1] == chosen
    for found in passed:
        assert binom.cdf(found.errors, found.rows, risk) <= 0.1
    assert binom.cdf(last.errors, last.rows, risk) > 0.1
    assert binom.cdf(chosen.errors, 3000, chosen.risk_bound(0.9)) == pytest.approx(0.1, rel=1e-6)
    with pytest.raises(drrej.Infeasible, match=r"cannot be certified at confidence 0\.9: the safest cascade has"):
        certified(design, fresh, costs, 0.001, 0.9)


@pytest.mark.parametrize("trials", [50, thorough(150)])
def test_the_promise_holds_as_often_as_it_says(trials: int) -> None:
    """Samples of a population whose every plan has a known risk; the limit is 0.2 plus three standard errors."""
    population, costs = world(100_000, 2, seed=6), [1.0, 10.0]
    risk = alone(population, costs)[1].risk + 0.01
    rng, broken = np.random.default_rng(7), 0
    certified_at_all = 0
    for _ in range(trials):
        sample = [rng.integers(0, 100_000, 400) for _ in range(2)]
        design, fresh = (StageRows(population.losses[:, rows], population.wrong[:, rows]) for rows in sample)
        try:
            plan = certified(design, fresh, costs, risk, 0.8)[0].plan
        except drrej.Infeasible:
            continue
        certified_at_all += 1
        broken += outcome(plan, population, costs).risk > risk
    assert certified_at_all > trials / 4
    assert broken <= trials * 0.2 + 3 * math.sqrt(trials * 0.2 * 0.8)


def test_too_many_stages() -> None:
    with pytest.raises(OptionError, match="at most 4 stages, here are 5"):
        frontier(world(10, 5, seed=1), [1.0] * 5)


def test_a_long_frontier_is_thinned_with_its_ends() -> None:
    path = frontier(world(5000, 2, seed=8), [1.0, 10.0])
    thin = cascades._thinned(path)
    assert len(thin) <= cascades.MOST_PLANS < len(path)
    assert (thin[0], thin[-1]) == (path[0], path[-1])
