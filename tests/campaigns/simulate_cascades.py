"""How often a certified cascade breaks its promise, in a population whose risks are known.

python -m tests.campaigns simulate_cascades [TRIALS]: each trial draws design rows and fresh rows, certifies a
cascade, looks up
the true risk of the chosen plan. The share of trials with a true risk above the target must not exceed 1 - confidence.
"""

from __future__ import annotations

import sys

import numpy as np
from test_cascades import world

from drrej.core.cascades import StageRows, alone, certified, outcome
from drrej.errors import Infeasible

POPULATION = 100_000


def simulate(rows: int, stages: int, slack: float, confidence: float, trials: int) -> tuple[int, int, float]:
    """(trials with a certificate, of these broken, mean cost against the last stage's)."""
    population, costs = world(POPULATION, stages, seed=1), [1.0, 4.0, 10.0][:stages]
    risk = alone(population, costs)[-1].risk + slack
    rng = np.random.default_rng(rows + stages)
    made = broken = 0
    spent = 0.0
    for _ in range(trials):
        parts = [rng.integers(0, POPULATION, rows) for _ in range(2)]
        design, fresh = (StageRows(population.losses[:, part], population.wrong[:, part]) for part in parts)
        try:
            plan = certified(design, fresh, costs, risk, confidence)[0].plan
        except Infeasible:
            continue
        true = outcome(plan, population, costs)
        made, broken, spent = made + 1, broken + (true.risk > risk), spent + true.cost / costs[-1]
    return made, broken, spent / max(made, 1)


if __name__ == "__main__":
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for stages in (2, 3):
        for rows in (200, 1000, 5000):
            for slack in (0.005, 0.03):
                made, broken, cost = simulate(rows, stages, slack, 0.9, trials)
                said = f"{stages} stages, {rows} + {rows} rows, risk {slack:g} above the last stage's"
                share = f"certified in {made} of {trials} trials, broken in {broken} ({broken / trials:.1%})"
                print(f"{said}: {share}, cost {cost:.3f}", flush=True)
