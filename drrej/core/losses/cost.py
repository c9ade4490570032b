"""A cost matrix C[true, action]: a row's loss is that of its least costly action, which is the prediction.

    L'(x) = min over a of sum_y p_y C[y, a],   p_y = e^{u_y} / (1 + s)

Costs are not negative, so nothing cancels and small expected costs keep their relative precision. A row is computed
in float64 from its own contiguous memory, so its bits do not depend on its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from drrej.core.kernels import row_dots
from drrej.core.types import AnyFloats, Floats

_CHUNK_VALUES = 1 << 16


@dataclass(frozen=True)
class CostMatrix:
    """Costs by true class (row) and action (column), one action per class."""

    rows: tuple[tuple[float, ...], ...]

    @cached_property
    def by_action(self) -> Floats:
        """C transposed, contiguous: the costs of an action."""
        return np.ascontiguousarray(np.array(self.rows, dtype=np.float64).T)

    def least(self, logits: AnyFloats, beta: float) -> tuple[NDArray[np.int64], Floats]:
        """The least costly action of each row (the first of equals) and its expected cost."""
        rows, classes = logits.shape
        actions, losses = np.empty(rows, np.int64), np.empty(rows)
        step = max(1, _CHUNK_VALUES // classes)
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            for start in range(0, rows, step):
                part = slice(start, start + step)
                scores = np.array(logits[part], dtype=np.float64, order="C")
                powers = np.exp((scores - scores.max(axis=1, keepdims=True)) * beta)
                costs = np.stack([row_dots(powers, costs[None]) for costs in self.by_action])
                actions[part] = costs.argmin(axis=0)
                losses[part] = costs.min(axis=0) / row_dots(powers, None)
        return actions, losses

    def realised(self, labels: NDArray[np.int64], actions: NDArray[np.int64]) -> Floats:
        """The cost of each row's action, given its true class."""
        realised: Floats = self.by_action[actions, labels]
        return realised

    @property
    def bound(self) -> float:
        """No expected cost of the best action exceeds the smallest worst cost of any action."""
        return float(self.by_action.max(axis=1).min())
