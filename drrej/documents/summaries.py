"""What the other commands say: `reject`, what it did and left out; `plan`; `cascade`."""

from __future__ import annotations

from typing import ClassVar

from drrej.documents.document import Codec, Document
from drrej.documents.fields import Count, Share, ShareOrNone
from drrej.errors import ReportError
from drrej.records import dataclass


@dataclass(frozen=True, kw_only=True)
class MaskedFile:
    """The mask of one input file. Bad rows are among the rejected, or were left out; `reused`: it was there already."""

    file: str
    rows: Count
    rejected: Count
    coverage: ShareOrNone
    bad_rows: Count
    seconds: float
    reused: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class MaskSummary(Document):
    """What `drrej reject` did: all files together, then each, and what was bad."""

    CODEC: ClassVar[Codec] = Codec("drrej-masks-summary/1", "summary of masks", ReportError)  # 1: the first format

    drrej_version: str
    files: Count
    reused: Count
    rows: Count
    rejected: Count
    coverage: ShareOrNone
    bad_rows: Count
    seconds: float
    masks: tuple[MaskedFile, ...]
    left_out: LeftOut


@dataclass(frozen=True, kw_only=True)
class BadRows:
    """Bad rows of one kind: what is wrong, how many there are, and where the first is."""

    reason: str
    column: str
    rows: Count
    first_file: str
    first_row: Count


@dataclass(frozen=True, kw_only=True)
class BadFile:
    """A file that was left out."""

    file: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Bad rows by kind, and bad files.

    Rows may be of several kinds, so `rows` need not be the sum.
    """

    rows: Count
    reasons: tuple[BadRows, ...]
    files: tuple[BadFile, ...]


@dataclass(frozen=True, kw_only=True)
class PowerPoint:
    """The chance that so many rows certify the risk of a cutoff fixed beforehand."""

    rows: Count
    power: Share


@dataclass(frozen=True, kw_only=True)
class Needed:
    """Fresh labelled rows that certify a risk with the wanted power, if the accepted rows have this error rate.

    None where no number that anyone labels is enough. `fixed_cutoff`: one look at a cutoff chosen on other rows.
    `risk_and_coverage`: both are promised together.
    """

    error: Share
    fixed_cutoff: int | None
    risk_and_coverage: int | None
    powers: tuple[PowerPoint, ...]


@dataclass(frozen=True, kw_only=True)
class Question:
    """The promise: a risk and its confidence; the coverage and the power that are wanted."""

    risk: Share
    confidence: Share
    coverage: Share
    power: Share
    least_accepted: Count
    """Fewer accepted rows cannot do, even without an error."""


@dataclass(frozen=True, kw_only=True)
class AtHand:
    """What labelled rows can promise at a coverage.

    `asked` is the upper bound of the risk if this coverage had been asked for before looking at the rows, `any_cutoff`
    one that holds even though one looks at all of them first. `needed` fresh rows would certify the risk that was asked
    about together with this coverage, if the observed risk were the true one.
    """

    coverage: Share
    accepted: Count
    errors: Count
    risk: Share
    asked: Share
    any_cutoff: Share
    needed: int | None = None


@dataclass(frozen=True, kw_only=True)
class CertifiedNow:
    """The largest cutoff that these rows certify for the risk that was asked about."""

    coverage: Share
    accepted: Count
    errors: Count


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan(Document):
    """The answer; by attribute or by key. `needed` is there without a dump, `at_hand` with one."""

    CODEC: ClassVar[Codec] = Codec("drrej-plan/1", "plan", ReportError)  # 1: the first format

    drrej_version: str
    confidence: Share
    question: Question | None = None
    needed: tuple[Needed, ...] | None = None
    rows: int | None = None
    errors: int | None = None
    at_hand: tuple[AtHand, ...] | None = None
    certified: CertifiedNow | None = None
    why_not: str | None = None
    """Why these rows certify nothing for the risk that was asked about."""


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

    CODEC: ClassVar[Codec] = Codec("drrej-cascade/1", "cascade", ReportError)  # 1: the first format

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
