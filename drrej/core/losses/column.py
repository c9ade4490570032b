"""A loss that each row brings along, such as the predicted variance of a regression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from drrej.core.calibrators import Scores
from drrej.core.losses.base import Loss, Scored
from drrej.core.types import Floats
from drrej.records import dataclass


@dataclass(frozen=True)
class ColumnLoss(Loss):
    """The values of a column, any numbers from 0 up."""

    name: ClassVar[str] = "column"  # type: ignore[misc]  # the same for all of them

    loss_column: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.loss_column,)

    @property
    def words(self) -> str:
        """What it is."""
        return f"read from each row's own column '{self.loss_column}'"

    def of(self, rows: Scores, columns: Mapping[str, Floats]) -> Scored:
        """The class of the largest score, and the column."""
        return Scored(rows.prediction, columns[self.loss_column])

    @property
    def arguments(self) -> dict[str, str]:
        """The parameters of a fit that ask for it."""
        return {"loss": self.name, "loss_column": self.loss_column}
