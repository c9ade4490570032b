"""What errors and reviews cost together, per 1000 rows: the section of reports on a threshold of least cost."""

from __future__ import annotations

from typing import Annotated

from drrej.core.thresholds import Verdict
from drrej.documents.fields import NONE, About, Share
from drrej.documents.points import check_interval
from drrej.records import dataclass


@dataclass(frozen=True, kw_only=True)
class Saving:
    """How much less it costs than another way, per 1000 rows, with its interval."""

    value: float
    lower: Annotated[float, About("lower end of its interval")]
    upper: Annotated[float, About("upper end of its interval")]

    def __post_init__(self) -> None:
        check_interval(self.lower, self.upper)


@dataclass(frozen=True, kw_only=True)
class CostPoint:
    """The cost per 1000 rows at one coverage."""

    coverage: Share
    cost: float


@dataclass(frozen=True, kw_only=True)
class TotalCost:
    """Errors of accepted rows and reviews of rejected ones, per 1000 rows, against other ways to decide.

    The oracle rejects a row exactly where accepting it would cost more than a review. The two savings are judged
    together: each has an interval of 97.5 %, so that both hold with 95 %.
    """

    value: float
    lower: Annotated[float, About("lower end of its 95 % interval")]
    upper: Annotated[float, About("upper end of its 95 % interval")]
    accepting_all: Annotated[float, About("if every row were accepted", interval=NONE)]
    rejecting_all: Annotated[float, About("if every row were reviewed", interval=NONE)]
    oracle: Annotated[float, About("if it were known which rows to review", interval=NONE)]
    best_cutoff: Annotated[float, About("at the best cutoff for these rows", interval=NONE)]
    saved_over_accepting: Annotated[Saving, About("less than if every row were accepted", better="higher")]
    saved_over_rejecting: Annotated[Saving, About("less than if every row were reviewed", better="higher")]
    curve: tuple[CostPoint, ...]

    def __post_init__(self) -> None:
        check_interval(self.lower, self.upper)

    @property
    def verdict(self) -> Verdict:
        """Met where it costs less than either simple way, missed where one of them costs less, both beyond noise."""
        return cost_verdict((self.saved_over_accepting.lower, self.saved_over_accepting.upper),
                            (self.saved_over_rejecting.lower, self.saved_over_rejecting.upper))  # fmt: skip


def cost_verdict(*savings: tuple[float, float]) -> Verdict:
    """From the intervals of the savings."""
    if any(upper < 0 for _, upper in savings):
        return "missed"
    return "met" if all(lower >= 0 for lower, _ in savings) else "not shown"
