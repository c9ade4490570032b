"""What a document says of rows and files that were bad and did not stop the work."""

from __future__ import annotations

from drrej.documents.about import Count
from drrej.records import dataclass


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
