"""Cascades: a cheap model answers what it is sure of, the rest goes on to a dearer one.

A plan says for each stage whether it is there at all and below which loss it answers; the last one answers whatever
arrives. How the cheapest plan is certified is in docs/proofs.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from drrej.core.intervals import upper_bound
from drrej.core.types import Booleans, Floats, Integers
from drrej.errors import Infeasible, OptionError

MOST_STAGES = 4
GRID = {0: 0, 1: 1000, 2: 60, 3: 20}
"""How many cutoffs are tried per stage, by the number of stages that have one."""

MOST_PLANS = 64
"""Plans of the frontier that are tested: neighbours differ in a few rows only, and each test may fail by chance."""


class StageRows(Struct, frozen=True):
    """What each stage would do with the same rows, were it asked: its loss and whether it is wrong (stages x rows)."""

    losses: Floats
    wrong: Booleans

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.losses.shape[1])


Plan = tuple[float | None, ...]
"""Below which loss each stage answers: None where a stage is left out, infinity where it answers everything."""


def route(plan: Plan, losses: Floats) -> Integers:
    """The stage that answers each row, from the losses (stages x rows)."""
    answering = np.full(losses.shape[1], -1, np.int64)
    for stage, cutoff in enumerate(plan):
        if cutoff is not None:
            answering[(answering < 0) & (losses[stage] < cutoff)] = stage
    return answering


class Outcome(Struct, frozen=True):
    """What a plan does with some rows: how many each stage sees and answers, the errors, and the mean cost."""

    plan: Plan
    rows: int
    reached: tuple[int, ...]
    answered: tuple[int, ...]
    errors: int
    cost: float

    @property
    def risk(self) -> float:
        """Share of wrong answers."""
        return self.errors / self.rows

    def risk_bound(self, confidence: float) -> float:
        """An upper bound of the true risk of a plan that was fixed beforehand."""
        return upper_bound(self.errors, self.rows, 1.0 - confidence)


def outcome(plan: Plan, rows: StageRows, costs: Sequence[float]) -> Outcome:
    """Send rows through a plan.

    >>> rows = StageRows(np.array([[0.1, 0.6], [0.2, 0.3]]), np.array([[False, True], [False, False]]))
    >>> found = outcome((0.5, math.inf), rows, [1.0, 10.0])
    >>> found.reached, found.answered, found.errors, found.cost
    ((2, 1), (1, 1), 0, 6.0)
    """
    stages = route(plan, rows.losses)
    answered = np.bincount(stages, minlength=len(rows.losses))
    left = rows.rows - np.concatenate([[0], np.cumsum(answered)[:-1]])
    reached = [0 if cutoff is None else int(count) for count, cutoff in zip(left, plan, strict=True)]
    errors = int(np.count_nonzero(rows.wrong[stages, np.arange(rows.rows)]))
    cost = math.fsum(count * price for count, price in zip(reached, costs, strict=True)) / rows.rows
    return Outcome(plan, rows.rows, tuple(reached), tuple(answered.tolist()), errors, cost)


def alone(rows: StageRows, costs: Sequence[float]) -> list[Outcome]:
    """Each stage answering everything."""
    stages = range(len(rows.losses))
    plans = [tuple(math.inf if other == stage else None for other in stages) for stage in stages]
    return [outcome(plan, rows, costs) for plan in plans]


def frontier(rows: StageRows, costs: Sequence[float]) -> list[Outcome]:
    """Plans that no other beats in cost and errors, from the one with the fewest errors to the cheapest."""
    if len(rows.losses) > MOST_STAGES:
        raise OptionError(f"`stage`: a cascade has at most {MOST_STAGES} stages, here are {len(rows.losses)}")
    found: list[tuple[float, int, Plan]] = []
    for size in range(1, len(rows.losses) + 1):
        for chain in itertools.combinations(range(len(rows.losses)), size):
            found += _plans(rows, costs, chain)
    found.sort(key=lambda entry: entry[:2])
    kept: list[Plan] = []
    fewest = rows.rows + 1
    for _, errors, plan in found:
        if errors < fewest:
            kept.append(plan)
            fewest = errors
    return [outcome(plan, rows, costs) for plan in reversed(kept)]


def _plans(rows: StageRows, costs: Sequence[float], chain: tuple[int, ...]) -> list[tuple[float, int, Plan]]:
    """(cost, errors, plan) of all plans on the grid that use exactly these stages, the best of each cost level."""
    deciding = len(chain) - 1
    grids = [_grid(rows.losses[stage], GRID[deciding]) for stage in chain[:-1]]
    bins = [np.searchsorted(grid, rows.losses[stage], "right") for grid, stage in zip(grids, chain[:-1], strict=True)]
    shape = tuple(grid.size + 1 for grid in grids)
    place = np.ravel_multi_index(bins, shape) if deciding else np.zeros(rows.rows, np.int64)
    errors, total = np.zeros(shape), np.zeros(shape)
    for number, stage in enumerate(chain):
        errors += _passed(rows.wrong[stage].astype(np.float64), place, shape, number)
        total += costs[stage] * _passed(np.ones(rows.rows), place, shape, number, answered=False)
    inside = tuple(slice(0, grid.size) for grid in grids)
    errors, total = errors[inside].reshape(-1), total[inside].reshape(-1)
    order = np.lexsort((errors, total))  # those that none of lower or equal cost beats in errors
    fewest = np.minimum.accumulate(errors[order])
    best = order[np.append(True, fewest[1:] < fewest[:-1])]
    cutoffs = np.array(np.unravel_index(best, tuple(grid.size for grid in grids))).T if deciding else [()] * best.size
    plans = []
    for number, places in zip(best, cutoffs, strict=True):
        plan: list[float | None] = [None] * len(rows.losses)
        for stage, grid, at in zip(chain[:-1], grids, places, strict=True):
            plan[stage] = float(grid[at])
        plan[chain[-1]] = math.inf
        plans.append((total[number] / rows.rows, int(errors[number]), tuple(plan)))
    return plans


def _passed(weights: Floats, place: Integers, shape: tuple[int, ...], number: int, answered: bool = True) -> Floats:
    """The weight of the rows that stage `number` of a chain answers (or sees), for every choice of the cutoffs.

    Row bins count the cutoffs at or below its loss, so it is answered with the cutoff t iff its bin is at most t.
    """
    sums = np.bincount(place, weights, int(np.prod(shape, dtype=np.int64))).astype(np.float64).reshape(shape)
    for axis in range(len(shape)):
        of_all, up_to = sums.sum(axis, keepdims=True), np.cumsum(sums, axis)
        if axis < number:  # passed on by the stages before: bins above t
            sums = of_all - up_to
        else:  # later cutoffs do not matter
            sums = up_to if axis == number and answered else of_all
    return sums


def _grid(losses: Floats, size: int) -> Floats:
    """Cutoffs between the smallest and the largest loss, at evenly spread quantiles."""
    values = np.unique(losses)[1:]
    if values.size <= size:
        return values
    grid: Floats = np.unique(np.quantile(losses, np.linspace(0.0, 1.0, size + 2)[1:-1], method="higher"))
    above: Floats = grid[grid > losses.min()]
    return above


def cheapest(design: StageRows, costs: Sequence[float], risk: float) -> tuple[Outcome, list[Outcome]]:
    """The cheapest plan whose error rate on these rows is at most `risk`, and the frontier; nothing is promised."""
    path = frontier(design, costs)
    fitting = [found for found in path if found.errors <= risk * found.rows * (1 + 1e-12)]
    if not fitting:
        raise Infeasible(
            f"no cascade of these stages has an accuracy of {1 - risk:g} on these rows; the best reaches "
            f"{1 - path[0].risk:.6g}"
        )
    return fitting[-1], path


def certified(
    design: StageRows, fresh: StageRows, costs: Sequence[float], risk: float, confidence: float
) -> tuple[Outcome, list[Outcome]]:
    """The cheapest plan that fresh rows certify, and all that were tested; the last of these may have failed.

    Its risk on new rows is at most `risk`, except with chance 1 - confidence. The stages must not have been fitted to
    the fresh rows.
    """
    tested: list[Outcome] = []
    passed: Outcome | None = None
    for planned in _thinned(frontier(design, costs)):
        found = outcome(planned.plan, fresh, costs)
        tested.append(found)
        if found.risk_bound(confidence) > risk:
            break
        passed = found
    if passed is None:
        first = tested[0]
        raise Infeasible(
            f"an accuracy of {1 - risk:g} cannot be certified at confidence {confidence:g}: the safest cascade has "
            f"{first.errors} errors in {first.rows} fresh rows; more rows, a lower accuracy or a better last stage help"
        )
    return passed, tested


def _thinned(path: list[Outcome]) -> list[Outcome]:
    """At most `MOST_PLANS` of a path, with its ends, evenly spread."""
    if len(path) <= MOST_PLANS:
        return path
    places = np.unique(np.rint(np.linspace(0, len(path) - 1, MOST_PLANS)).astype(int))
    return [path[place] for place in places]
