"""The paper's four baselines, each from the formula of its own paper.

c is the cost of rejecting a row, in (0, 1/2). Softmax probabilities are p, of K classes and a class K + 1 that stands
for rejection; g and r are outputs without a softmax. A stack of networks learns one cost each: its outputs are (cost,
row, output), and its loss is the sum over the stack.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from benchmarks.paper.data import Floats
from benchmarks.paper.judge import TARGETS, costs_of
from benchmarks.paper.networks import Settings
from benchmarks.paper.training import Loss, Task, train_baseline

GCE_Q = 0.7

Bools = npt.NDArray[np.bool_]
RowLoss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Baseline:
    """How a baseline learns and how it rejects.

    `two_stage` learns a rejector beside the frozen base network; the others learn classes and rejection together.
    """

    title: str
    source: str
    loss: RowLoss
    rejects: Callable[[Floats], Bools]
    more_outputs: int = 0
    normalised: bool = False
    two_stage: bool = False

    def training_loss(self, costs: Sequence[float]) -> Loss:
        """The loss of a stack, one cost per network."""
        column = torch.tensor(costs)[:, None]
        return lambda outputs, labels: self.loss(outputs, labels, column).mean(dim=1).sum()


def costs(count: int) -> list[float]:
    """`count` of the paper's 49 costs 0.01 ... 0.49, as equidistant in (0, 1/2) as they can be."""
    return [round(50 * number / (count + 1)) / 100 for number in range(1, count + 1)]


def defer_loss(outputs: torch.Tensor, labels: torch.Tensor, cost: torch.Tensor) -> torch.Tensor:
    """-log p_y - (1 - c) log p_{K+1}."""
    log_p = functional.log_softmax(outputs, dim=-1)
    return -_of_label(log_p, labels) - (1 - cost) * log_p[..., -1]


def gce_loss(outputs: torch.Tensor, labels: torch.Tensor, cost: torch.Tensor) -> torch.Tensor:
    """H(p_y) + (1 - c) H(p_{K+1}) with the generalised cross-entropy H(p) = (1 - p^q) / q."""
    entropy = (1 - torch.exp(GCE_Q * functional.log_softmax(outputs, dim=-1))) / GCE_Q
    return _of_label(entropy, labels) + (1 - cost) * entropy[..., -1]


def css_loss(outputs: torch.Tensor, labels: torch.Tensor, cost: torch.Tensor) -> torch.Tensor:
    """Of a row, c s(g_y) + (1 - c) sum of s(-g) over the other classes, with the sigmoid loss s(m) = 1 / (1 + e^m)."""
    positive = torch.sigmoid(outputs)  # s(-g)
    own = _of_label(positive, labels)
    return cost * (1 - own) + (1 - cost) * (positive.sum(dim=-1) - own)


def predrej_loss(outputs: torch.Tensor, wrong: torch.Tensor, cost: torch.Tensor) -> torch.Tensor:
    """[h(x) wrong] e^r + c e^-r; the "label" of a row is 1 where the base network h is wrong, else 0."""
    score = outputs[..., 0]
    return wrong * torch.exp(score) + cost * torch.exp(-score)


def _of_label(values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    columns = labels[:, None].expand(*values.shape[:-1], 1)
    return values.gather(-1, columns)[..., 0]


def last_is_largest(outputs: Floats) -> Bools:
    """The class K + 1 wins; a tie goes to a true class."""
    rejected: Bools = outputs.argmax(axis=1) == outputs.shape[1] - 1
    return rejected


def not_one_positive(outputs: Floats) -> Bools:
    """No class has a positive score, or more than one has."""
    rejected: Bools = (outputs > 0).sum(axis=1) != 1
    return rejected


def not_positive(outputs: Floats) -> Bools:
    """The rejector's score is at most 0."""
    rejected: Bools = outputs[:, 0] <= 0
    return rejected


BASELINES: dict[str, Baseline] = {
    "predrej": Baseline(
        "PredRej",
        "Mao, Mohri and Zhong, Predictor-rejector multi-class abstention (two-stage, exponential loss)",
        predrej_loss,
        not_positive,
        more_outputs=1,
        two_stage=True,
    ),
    "css": Baseline(
        "CSS",
        "Charoenphakdee et al., Classification with rejection based on cost-sensitive classification (sigmoid loss)",
        css_loss,
        not_one_positive,
        normalised=True,
    ),
    "defer": Baseline(
        "DEFER",
        "Mozannar and Sontag, Consistent estimators for learning to defer to an expert",
        defer_loss,
        last_is_largest,
        more_outputs=1,
    ),
    "gce": Baseline(
        "GCE",
        "Cao et al., Generalizing consistent multi-class classification with rejection (generalised cross-entropy)",
        gce_loss,
        last_is_largest,
        more_outputs=1,
    ),
}


# More costs where none yet gives about the coverage that the table asks for. Every fold gets the same ones, and those
# that have dumps are not trained again.

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


@dataclass(frozen=True)
class Rival:
    """A baseline on some folds of a dataset."""

    name: str
    folds: Sequence[Task]
    settings: Settings
    work: Path

    def train(self, costs: Sequence[float]) -> Iterator[dict[str, Any]]:
        """Train these costs, and those of any other fold, on each fold that lacks them; yield the records."""
        known = self._known()
        wanted = {round(100 * cost) for cost in costs}.union(*known)
        for task, done in zip(self.folds, known, strict=True):
            missing = [number / 100 for number in sorted(wanted - done.keys())]
            if missing:
                yield from train_baseline(task, self.name, BASELINES[self.name], missing, self.settings, self.work)

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
        return [costs_of(task.folder(self.work) / self.name) for task in self.folds]
