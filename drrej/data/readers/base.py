"""What a reader of one file format does, and the errors of files that cannot be read."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple, Protocol

import pyarrow as pa

from drrej.data.identity import check_unchanged
from drrej.data.part import Identity, Part, one_line
from drrej.errors import BadFileError, DumpError
from drrej.records import dataclass

READ_ERRORS = (OSError, pa.ArrowException, ValueError, OverflowError, TypeError, UnicodeDecodeError)
"""What pyarrow raises on damaged files."""


@dataclass(frozen=True)
class Contents:
    """What a file holds: its columns, the rows of each of its row groups, and what it was when it was looked at.

    Nothing is said of what cannot change. `places` tell where each row group is, for readers to whom its number does
    not; they go to whoever reads it, in whatever process. `typed` is False where numbers are written as text, so that 1
    may be a floating-point number. `pandas` is what pandas noted about the frame that was written. `list_sizes` are how
    many values a row of a column of lists has on average, where that is a whole number and known without reading it.
    """

    schema: pa.Schema
    groups: tuple[int, ...]
    identity: Identity | None
    places: tuple[Hashable, ...] = ()
    typed: bool = True
    pandas: bytes | None = None
    list_sizes: Mapping[str, int] = field(default_factory=dict)

    def place(self, group: int) -> Hashable:
        """Where a row group is."""
        return self.places[group] if self.places else None


class ListColumn(NamedTuple):
    """A column of scores in which every list is expected to have so many values."""

    column: str
    classes: int


@dataclass(frozen=True)
class Request:
    """Some columns of one row group of a file, in batches of at most so many rows.

    `opened` names the opening of the dump, so that a reader may keep what it has found out about a file meanwhile.
    `scores` is the list column that nearly all of the time goes into; a reader that knows a short cut may take it.
    `place` is what the reader itself has said of the row group in `Contents`. `start` is the first row that is wanted;
    readers that cannot begin there begin at the first, see `from_row`.
    """

    part: Part
    opened: str
    group: int
    columns: Sequence[str]
    rows: int
    scores: ListColumn | None = None
    place: Hashable = None
    start: int = 0


def from_row(batches: Iterator[pa.RecordBatch], start: int) -> Iterator[pa.RecordBatch]:
    """The same rows without the first so many."""
    for batch in batches:
        passed = min(start, batch.num_rows)
        start -= passed
        if passed < batch.num_rows or not passed:
            yield batch.slice(passed) if passed else batch


class Reader(Protocol):
    """Reads files of one format. A row group is what one worker reads at a time; a format without them has one."""

    @property
    def format(self) -> str:
        """What messages call it."""

    @property
    def endings(self) -> tuple[str, ...]:
        """How names of such files end."""

    def reads(self, part: Part) -> bool:
        """Whether a file is for this reader, by its name."""

    def contents(self, part: Part, opened: str) -> Contents:
        """Look into a file. Missing, foreign and damaged ones are DumpErrors."""

    def batches(self, request: Request) -> Iterator[pa.RecordBatch]:
        """The rows of a row group in order. Columns that the file does not have are left out."""


def unreadable(part: Part, format: str, error: Exception) -> BadFileError:
    """The error of a file that is not of its format."""
    return BadFileError.of(
        part.name,
        f"{part.name}: not a readable {format} file ({one_line(error)}); is it complete, and is it {format}?",
    )


def damaged(part: Part, error: Exception) -> BadFileError:
    """The error of a file that cannot be read to its end."""
    message = f"{part.name}: cannot be read to the end ({one_line(error)}); is it complete? write it again"
    return BadFileError.of(part.name, message)


@contextlib.contextmanager
def reading(part: Part) -> Iterator[None]:
    """What goes wrong while a file is read, as one line: it was replaced meanwhile, or it is damaged."""
    try:
        yield
        check_unchanged(part)
    except DumpError as error:  # what is wrong may be that it is another file now
        check_unchanged(part)
        raise BadFileError.of(part.name, str(error)) from None
    except READ_ERRORS as error:
        check_unchanged(part)
        raise damaged(part, error) from None
