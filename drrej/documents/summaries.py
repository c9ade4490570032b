"""What the other commands say: `reject`, what it did and left out; `plan`; `cascade`."""

from __future__ import annotations

from drrej.core.types import Stored
from drrej.documents.document import Count, Document, LeftOut, Share
from drrej.errors import ReportError


class MaskedFile(Stored, frozen=True, kw_only=True):
    """The mask of one input file. Bad rows are among the rejected, or were left out; `reused`: it was there already."""

    file: str
    rows: Count
    rejected: Count
    coverage: Share | None
    bad_rows: Count
    seconds: float
    reused: bool


class MaskSummary(Document, frozen=True, kw_only=True, tag="drrej-masks-summary/1"):  # 1: the first format
    """What `drrej reject` did: all files together, then each, and what was bad."""

    NOUN, ERROR = "summary of masks", ReportError

    drrej_version: str
    model: str | None = None
    rejector_model: str | None = None
    files: Count
    reused: Count
    rows: Count
    rejected: Count
    coverage: Share | None
    bad_rows: Count
    seconds: float
    masks: tuple[MaskedFile, ...]
    left_out: LeftOut


class Needed(Stored, frozen=True, kw_only=True):
    """Fresh labelled rows that certify a risk with the wanted power, if the accepted rows have this error rate.

    None where no number that anyone labels is enough. `fixed_cutoff`: one look at a cutoff chosen on other rows.
    `risk_and_coverage`: both are promised together.
    """

    error: Share
    fixed_cutoff: int | None
    risk_and_coverage: int | None


class Question(Stored, frozen=True, kw_only=True):
    """The promise: a risk and its confidence; the coverage and the power that are wanted."""

    risk: Share
    confidence: Share
    coverage: Share
    power: Share
    least_accepted: Count
    """Fewer accepted rows cannot do, even without an error."""


class PromiseNeeds(Stored, frozen=True, kw_only=True):
    """How many fresh rows one of several promises takes; `share` of the rows count for it.

    `least` are the rows that count without any error among them; `needed` are fresh rows of all kinds.
    """

    promise: str
    share: Share
    least: Count
    needed: tuple[Needed, ...]


class CertifiedNow(Stored, frozen=True, kw_only=True):
    """The largest cutoff that these rows certify for the risk that was asked about."""

    coverage: Share
    accepted: Count
    errors: Count


class AtHand(CertifiedNow, frozen=True, kw_only=True):
    """What labelled rows can promise at a coverage.

    `asked` is the upper bound of the risk if this coverage had been asked for before looking at the rows, `any_cutoff`
    one that holds even though one looks at all of them first. `needed` fresh rows would certify the risk that was asked
    about together with this coverage, if the observed risk were the true one.
    """

    risk: Share
    asked: Share
    any_cutoff: Share
    needed: int | None = None


class Plan(Document, frozen=True, kw_only=True, tag="drrej-plan/1"):  # 1: the first format
    """The answer; by attribute or by key. `needed` is there without a dump, `at_hand` with one."""

    NOUN, ERROR = "plan", ReportError

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
    promises: tuple[PromiseNeeds, ...] | None = None


class CascadeStage(Stored, frozen=True, kw_only=True):
    """A stage: what a row costs there, below which loss it answers, and how many rows it sees and answers.

    `cutoff` is None where it answers all rows that reach it, and where it is left out (`used` is false).
    """

    name: str
    cost: float
    used: bool
    cutoff: float | None
    reached: Count
    answered: Count


class CascadePoint(Stored, frozen=True, kw_only=True):
    """A plan: cost per row and accuracy of all answers, with its errors; `cutoffs` of the stages that pass rows on."""

    cost: float
    accuracy: Share
    errors: Count
    cutoffs: dict[str, float]
    stages: tuple[str, ...]


class Cascade(Document, frozen=True, kw_only=True, tag="drrej-cascade/1"):  # 1: the first format
    """The report; figures are of `rows` rows.

    With `confidence` these are fresh rows, none of the `design_rows` that the stages were calibrated and the plans made
    on, and the accuracy on new rows is at least `certified`. Without it all rows do everything. `frontier` are the
    plans that were tested, from the safest on, `alone` those of a single stage. `saved` is the share of the cost saved
    over the cheapest stage that reaches the accuracy alone (with `confidence`: for certain); None where none does.
    """

    NOUN, ERROR = "cascade", ReportError

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
    alone: tuple[CascadePoint, ...]
    frontier: tuple[CascadePoint, ...]
