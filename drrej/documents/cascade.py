"""What `cascade` says: which stage answers what, what that costs, and what other plans and each stage alone would."""

from __future__ import annotations

from typing import ClassVar

from drrej.documents.codec import Codec
from drrej.documents.document import Document
from drrej.documents.fields import Count, Share
from drrej.errors import ReportError
from drrej.records import dataclass

FORMAT = "drrej-cascade/1"
"""1: the first format."""


@dataclass(frozen=True, kw_only=True)
class CascadeStage:
    """A stage: what a row costs there, below which loss it answers, and how many rows it sees and answers.

    `cutoff` is None where it answers all rows that reach it, and where it is left out (`used` is false).
    """

    name: str
    cost: float
    used: bool
    cutoff: float | None
    reached: Count
    answered: Count


@dataclass(frozen=True, kw_only=True)
class CascadePoint:
    """Cost per row and accuracy of all answers, with its errors; `cutoffs` by stage, of those that pass rows on."""

    cost: float
    accuracy: Share
    errors: Count
    cutoffs: dict[str, float]
    stages: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class StageAlone:
    """A stage that answers everything."""

    name: str
    cost: float
    accuracy: Share
    errors: Count


@dataclass(frozen=True, kw_only=True, eq=False)
class Cascade(Document):
    """The report; figures are of `rows` rows.

    With `confidence` these are fresh rows, none of the `design_rows` that the stages were calibrated and the plans made
    on, and the accuracy on new rows is at least `certified`. Without it all rows do everything. `frontier` are the
    plans that were tested, from the safest on. `saved` is the share of the cost saved over the cheapest stage that
    reaches the accuracy alone (with `confidence`: for certain); None where none does.
    """

    CODEC: ClassVar[Codec] = Codec(FORMAT, "cascade", ReportError)

    drrej_version: str
    rows: Count
    design_rows: int | None
    target: Share
    confidence: float | None
    stages: tuple[CascadeStage, ...]
    chosen: CascadePoint
    certified: float | None
    saved: float | None
    saved_over: str | None
    alone: tuple[StageAlone, ...]
    frontier: tuple[CascadePoint, ...]
