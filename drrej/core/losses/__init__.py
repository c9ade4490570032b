"""Losses: what the model expects to lose on a row. One class each, behind `Loss`; `KINDS` knows them by name."""

from __future__ import annotations

from dataclasses import fields

from drrej.core.losses.base import Loss, Scored
from drrej.core.losses.column import ColumnLoss
from drrej.core.losses.cost import CostLoss
from drrej.core.losses.learned import LearnedLoss
from drrej.core.losses.plain import PLAIN, PlainLoss, expected_losses

__all__ = [
    "KINDS",
    "NAMED",
    "PLAIN",
    "ColumnLoss",
    "CostLoss",
    "LearnedLoss",
    "Loss",
    "PlainLoss",
    "Scored",
    "expected_losses",
]

KINDS: dict[str, type[Loss]] = {
    **dict.fromkeys(PLAIN, PlainLoss),
    LearnedLoss.name: LearnedLoss,
    CostLoss.name: CostLoss,
    ColumnLoss.name: ColumnLoss,
}

NAMED: dict[str, Loss] = {
    **PLAIN,
    **{name: kind() for name, kind in KINDS.items() if name not in PLAIN and not fields(kind)},  # type: ignore[arg-type]
}
"""The losses that a name says all about."""
