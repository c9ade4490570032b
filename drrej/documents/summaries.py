"""The documents of `drrej sweep` and `drrej weights`, and what `drrej reject` did."""

from __future__ import annotations

from typing import ClassVar

from drrej.documents.codec import Codec
from drrej.documents.document import Document
from drrej.documents.fields import Count, Share, ShareOrNone
from drrej.documents.points import CurvePoint
from drrej.errors import ReportError
from drrej.records import dataclass


@dataclass(frozen=True, kw_only=True)
class SweepRow:
    """What tau means for one loss, alpha and lambda.

    The coverage that tau in (0, 1] reaches, the share of rows whose ratio is 0, accuracy at a coverage of 80 and 90 %.
    """

    loss: str
    alpha: float
    lam: float
    lowest_coverage: Share
    highest_coverage: Share
    flat_part: Share
    accuracy_at_80: ShareOrNone
    accuracy_at_90: ShareOrNone
    augrc: ShareOrNone


@dataclass(frozen=True, kw_only=True, eq=False)
class Sweep(Document):
    """A row for each loss, alpha and lambda; with labels, the accuracy-coverage curve of each loss.

    `calibrator` is None for the plain temperature; with another one, the temperature is what its search started from.
    """

    CODEC: ClassVar[Codec] = Codec("drrej-sweep/1", "sweep", ReportError)  # 1: the first format

    drrej_version: str
    rows: Count
    classes: Count
    temperature: float
    table: tuple[SweepRow, ...]
    curves: dict[str, tuple[CurvePoint, ...]] | None = None
    calibrator: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class WorstCaseSummary(Document):
    """The worst case within a divergence of the data; undefined or infinite figures are None."""

    CODEC: ClassVar[Codec] = Codec("drrej-weights/1", "summary of weights", ReportError)  # 1: the first format

    drrej_version: str
    rows: Count
    loss: str
    alpha: float
    lam: float
    divergence: float | None
    risk: float | None
    worst_case_risk: float | None
    max_loss: float
    max_weight: float | None
    zero_weights: Count
    effective_rows: float | None
    fingerprint: str


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
