"""What `drrej reject` did, and which rows and files were left out."""

from __future__ import annotations

from typing import ClassVar

from drrej.documents.codec import Codec
from drrej.documents.document import Document
from drrej.documents.fields import Count, ShareOrNone
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
