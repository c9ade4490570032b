"""Which loss a rejector uses, with all that is needed to compute it for a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drrej.core.losses.cost import CostMatrix
from drrej.core.losses.learned import LearnedLoss
from drrej.core.losses.plain import LOSSES
from drrej.errors import DumpError

FITTED = ("learned", "auto")
"""Losses that are fitted to labelled rows; `auto` becomes one of the others."""

LOSS_NAMES = (*LOSSES, *FITTED, "cost", "column")


@dataclass(frozen=True)
class RowLoss:
    """A loss by name: a plain one, or one with a model, a cost matrix or a column behind it."""

    name: str
    learned: LearnedLoss | None = None
    costs: CostMatrix | None = None
    column: str | None = None

    @property
    def needs(self) -> str:
        """The gap sums it is computed from."""
        if self.learned is not None:
            return self.learned.needs
        return LOSSES[self.name].needs if self.name in LOSSES else ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the dump it reads besides the logits."""
        return () if self.column is None else (self.column,)

    def check(self, names: Sequence[str], where: str) -> None:
        """Raise when a dump lacks the column."""
        if self.column is not None and self.column not in names:
            raise DumpError(
                f"{where}: there is no column '{self.column}' that holds the loss; choose with `loss_column`"
            )

    def bound(self, classes: int) -> float | None:
        """The largest possible loss; None where there is no limit."""
        if self.costs is not None:
            return self.costs.bound
        if self.learned is not None:
            return 1.0
        return LOSSES[self.name].bound(classes) if self.name in LOSSES else None
