"""Risk against coverage for a real-valued error, such as the squared error of a regression.

Rows by L', tie blocks whole, and within a tie by the error itself, so every figure is the same under any shuffle.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drrej.core.types import Floats
from drrej.records import dataclass


@dataclass(frozen=True)
class SelectiveRisk:
    """After each distinct loss: rows accepted, and the sum of their errors."""

    losses: Floats
    accepted: NDArray[np.int64]
    sums: Floats

    @classmethod
    def of(cls, losses: Floats, errors: Floats) -> SelectiveRisk:
        """From the loss and the error of each row."""
        order = np.lexsort((errors, losses))
        ordered = losses[order]
        last_of_tie = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
        return cls(ordered[last_of_tie], last_of_tie + 1, np.cumsum(errors[order])[last_of_tie])

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.accepted[-1])

    def below(self, cutoff: float | None) -> tuple[int, float | None]:
        """(accepted, mean error) at a cutoff: rows with L' < cutoff; None where nothing is accepted."""
        points = self.losses.size if cutoff is None else int(np.searchsorted(self.losses, cutoff))
        if not points:
            return 0, None
        accepted = int(self.accepted[points - 1])
        return accepted, float(self.sums[points - 1]) / accepted

    def aurc(self) -> float:
        """Area under mean error against coverage: trapezoid, the first value extended to coverage 0."""
        risk = self.sums / self.accepted
        previous = np.concatenate([risk[:1], risk[:-1]])
        return float(np.sum(np.diff(self.accepted, prepend=0) * (risk + previous)) / (2 * self.rows))

    def augrc(self) -> float:
        """Area under (sum of accepted errors / rows) against coverage, from (0, 0)."""
        previous = np.concatenate([[0.0], self.sums[:-1]])
        width = np.diff(self.accepted, prepend=0)
        return float(np.sum(width * (self.sums + previous)) / (2 * self.rows * self.rows))
