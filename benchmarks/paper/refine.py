"""`baselines --refine`: more costs where none yet gives about the coverage that the table asks for.

Costs are numbers of the paper's grid, hundredths from 1 to 49. Every fold of a dataset gets the same ones, and those
that have dumps are not trained again.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.paper.pipeline import TARGETS

if TYPE_CHECKING:
    from benchmarks.paper.networks import Settings
    from benchmarks.paper.train import Task

FIRST, LAST = 1, 49
WITHIN = 5.0
"""Points of coverage by which a cell may miss its target."""


def next_costs(coverages: Mapping[int, float]) -> list[int]:
    """The costs to train next, given the mean coverage in percent of each cost so far; none when nothing is left to do.

    For a target that no cost meets: the middle of the widest two neighbours between which it is crossed; where it is
    not crossed, the end of the grid on the side that comes nearer, then the other end.

    >>> next_costs({13: 40.0, 25: 70.0, 37: 99.0})
    [31]
    >>> next_costs({13: 40.0, 25: 70.0, 31: 84.0, 37: 99.0})
    [34]
    >>> next_costs({13: 50.0, 25: 60.0})
    [49]
    >>> next_costs({24: 60.0, 25: 100.0})
    []
    """
    found = {_next(coverages, target) for target in TARGETS}
    return sorted(cost for cost in found if cost is not None)


def _next(coverages: Mapping[int, float], target: int) -> int | None:
    if any(abs(coverage - target) <= WITHIN for coverage in coverages.values()):
        return None
    costs = sorted(coverages)
    crossed = [(low, high) for low, high in pairwise(costs) if (coverages[low] < target) != (coverages[high] < target)]
    if crossed:
        low, high = max(crossed, key=lambda pair: pair[1] - pair[0])
        return (low + high) // 2 if high - low > 1 else None
    sides = sorted([(costs[0], FIRST), (costs[-1], LAST)], key=lambda side: abs(coverages[side[0]] - target))
    return next((end for _, end in sides if end not in coverages), None)


def trained(folder: Path) -> dict[int, float]:
    """Costs of a method that one fold has dumps of, and their coverage in percent."""
    records = [json.loads(path.read_text()) for path in folder.glob("cost-*/training.json")]
    return {round(100 * record["cost"]): 100 * record["coverage"] for record in records}


@dataclass(frozen=True)
class Rival:
    """A baseline on some folds of a dataset."""

    name: str
    folds: "Sequence[Task]"
    settings: "Settings"
    work: Path

    def train(self, costs: Sequence[float]) -> Iterator[dict[str, Any]]:
        """Train these costs, and those of any other fold, on each fold that lacks them; yield the records."""
        from benchmarks.paper.train import train_baseline

        known = self._known()
        wanted = {round(100 * cost) for cost in costs}.union(*known)
        for task, done in zip(self.folds, known, strict=True):
            missing = [number / 100 for number in sorted(wanted - done.keys())]
            if missing:
                yield from train_baseline(task, self.name, missing, self.settings, self.work)

    def refine(self, start: Sequence[float]) -> Iterator[dict[str, Any]]:
        """The same, and more costs until each target is met or cannot be."""
        costs = start
        while costs:
            yield from self.train(costs)
            costs = [number / 100 for number in next_costs(self.coverages())]

    def coverages(self) -> dict[int, float]:
        """Mean coverage in percent of each cost."""
        known = self._known()
        return {number: sum(done[number] for done in known) / len(known) for number in known[0]}

    def _known(self) -> list[dict[int, float]]:
        return [trained(task.folder(self.work) / self.name) for task in self.folds]
