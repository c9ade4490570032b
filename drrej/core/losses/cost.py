"""A cost matrix C[true, action]: a row's loss is that of its least costly action, which is the prediction.

    L'(x) = min over a of sum_y p_y C[y, a],   p_y = e^{u_y} / (1 + s)

Costs are not negative, so nothing cancels and small expected costs keep their relative precision. A row is computed
in float64 from its own contiguous memory, so its bits do not depend on its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

import numpy as np

from drrej.core.calibrators import Scores
from drrej.core.losses.base import Loss, Scored
from drrej.core.softmax import row_dots
from drrej.core.types import Floats, Integers
from drrej.errors import OptionError
from drrej.records import dataclass

_CHUNK_VALUES = 1 << 16


@dataclass(frozen=True)
class CostLoss(Loss):
    """Costs by true class (row) and action (column), one action per class.

    >>> CostLoss(((0.0, 1.0), (5.0, 0.0))).bound(2)
    1.0
    """

    name: ClassVar[str] = "cost"  # type: ignore[misc]  # the same for all of them

    costs: tuple[tuple[float, ...], ...]

    @property
    def words(self) -> str:
        """What it is."""
        return "the expected cost of the least costly action, which is the prediction"

    @cached_property
    def by_action(self) -> Floats:
        """C transposed, contiguous: the costs of an action."""
        return np.ascontiguousarray(np.array(self.costs, dtype=np.float64).T)

    def of(self, rows: Scores, columns: Mapping[str, Floats]) -> Scored:
        """The least costly action of each row (the first of equals) and its expected cost."""
        count, classes = rows.values.shape
        actions, losses = np.empty(count, np.int64), np.empty(count)
        step = max(1, _CHUNK_VALUES // classes)
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            for start in range(0, count, step):
                part = slice(start, start + step)
                powers = rows.powers(part)
                costs = np.stack([row_dots(powers, costs[None]) for costs in self.by_action])
                actions[part] = costs.argmin(axis=0)
                losses[part] = costs.min(axis=0) / row_dots(powers, None)
        return Scored(actions, losses)

    @property
    def is_cost(self) -> bool:
        """It is."""
        return True

    @property
    def prices(self) -> list[float]:
        """All that an accepted row can cost in the end."""
        return sorted({cost for row in self.costs for cost in row})

    def realised(self, prediction: Integers, labels: Integers) -> Floats:
        """The cost of each row's action, given its true class."""
        realised: Floats = self.by_action[prediction, labels]
        return realised

    def bound(self, classes: int) -> float:
        """No expected cost of the best action exceeds the smallest worst cost of any action."""
        return float(self.by_action.max(axis=1).min())

    def check(self, classes: int) -> None:
        """The matrix must be square, with a row for each class, and no cost negative."""
        if len(self.costs) != classes or any(len(row) != classes for row in self.costs):
            raise OptionError(f"`cost_matrix`: it is for {len(self.costs)} classes but the rejector has {classes}")
        if not all(0 <= cost < math.inf for row in self.costs for cost in row):
            raise OptionError("`cost_matrix`: costs are finite and not negative")

    @property
    def arguments(self) -> dict[str, str]:
        """The parameters of a fit that ask for it."""
        return {"loss": self.name, "cost_matrix": "COSTS"}
