"""What `plan` says: how many fresh labelled rows a promise takes, and what rows at hand can promise."""

from __future__ import annotations

from typing import ClassVar

from drrej.documents.codec import Codec
from drrej.documents.document import Document
from drrej.documents.fields import Count, Share
from drrej.errors import ReportError
from drrej.records import dataclass

FORMAT = "drrej-plan/1"
"""1: the first format."""


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

    CODEC: ClassVar[Codec] = Codec(FORMAT, "plan", ReportError)

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
