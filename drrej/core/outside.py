"""Rows that belong to no class, ranked together with those that do.

A right row costs 0 when it is accepted, an error 1, and a row of no class the cost ratio c. Costs at every coverage
are then sums of two, and so are the areas, over one ranking of all rows:

    area = area(errors) + c area(rows of no class)
"""

from __future__ import annotations

import numpy as np

from drrej.core.curves import RankedLosses
from drrej.core.types import Floats
from drrej.records import dataclass


@dataclass(frozen=True)
class OutsideAreas:
    """AUROC and FPR at 95 % TPR of telling rows of no class, and the joint areas."""

    auroc: float | None
    fpr_at_95_tpr: float | None
    aurc: float
    augrc: float


def outside_areas(inside: RankedLosses, outside: Floats, ratio: float) -> OutsideAreas:
    """From the ranked losses of rows that have a class and the losses of those that have none.

    >>> ranked = RankedLosses.of(np.array([0.1, 0.2]), np.array([0.3]))
    >>> areas = outside_areas(ranked, np.array([0.4, 0.15]), 1.0)
    >>> areas.auroc, areas.fpr_at_95_tpr, round(areas.augrc, 6)
    (0.6666666666666666, 0.5, 0.22)
    """
    ordered = np.sort(np.concatenate([inside.ordered, outside]))
    errors = RankedLosses(ordered, inside.wrong)
    strange = RankedLosses(ordered, np.sort(outside))
    return OutsideAreas(
        auroc=strange.failure_auroc(),
        fpr_at_95_tpr=strange.fpr_at_95_tpr(),
        aurc=errors.aurc() + ratio * strange.aurc(),
        augrc=errors.augrc() + ratio * strange.augrc(),
    )
