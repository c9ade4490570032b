"""Rows that belong to no class of the model, as a section of the report."""

from __future__ import annotations

from typing import Annotated

from drrej.documents.about import EXACT, NONE, About, Unit
from drrej.documents.proportions import Proportion
from drrej.records import dataclass


@dataclass(frozen=True, kw_only=True)
class OutsideScore:
    """How a score sees rows of no class, and the areas over all rows; None where there is nothing to tell apart."""

    score: str
    auroc: float | None
    fpr_at_95_tpr: float | None
    aurc: float
    augrc: float


@dataclass(frozen=True, kw_only=True)
class Outside:
    """Rows of no class (column `column` is true). To accept one costs `cost_ratio` times an error.

    All other figures of the report are about rows that have a class.
    """

    column: str
    cost_ratio: Annotated[float, About(gate=False)]
    rows: Annotated[int, About("how many there are", Unit.COUNT, "neither", NONE)]
    accepted: Annotated[Proportion, About("share of them that is accepted", Unit.SHARE, "lower", EXACT)]
    joint_risk: Annotated[
        float | None,
        About(
            "errors, and accepted rows of no class times the cost ratio, per accepted row of either kind",
            Unit.COST,
            "lower",
            NONE,
        ),
    ]
    joint_risk_all: Annotated[float, About("the same if every row were accepted", Unit.COST, "lower", NONE)]
    auroc: Annotated[
        float | None,
        About(
            "chance that a row of no class has a larger loss than one of a class, ties half",
            Unit.SHARE,
            "higher",
            NONE,
            label="AUROC",
        ),
    ]
    fpr_at_95_tpr: Annotated[
        float | None,
        About(
            "share of them accepted where 95 % of the others are", Unit.SHARE, "lower", NONE, label="FPR at 95 % TPR"
        ),
    ]
    aurc: Annotated[float, About("AURC of the joint risk, over both kinds of rows", Unit.COST, "lower", NONE)]
    augrc: Annotated[float, About("AUGRC of the joint risk, over both kinds of rows", Unit.COST, "lower", NONE)]
    scores: tuple[OutsideScore, ...] | None = None
