"""What a reader of one file format does, and the errors of files that cannot be read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from drrej.data.files import DumpFile, Identity, check_unchanged, identity_of, one_line
from drrej.errors import BadFileError, DumpError
from drrej.records import dataclass

READ_ERRORS = (OSError, pa.ArrowException, ValueError, OverflowError, TypeError, UnicodeDecodeError)
"""What pyarrow raises on damaged files."""


@dataclass(frozen=True)
class FileInfo:
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
    `place` is what the reader itself has said of the row group in `FileInfo`. `start` is the first row that is wanted;
    readers that cannot begin there begin at the first, see `from_row`.
    """

    part: DumpFile
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

    def reads(self, part: DumpFile) -> bool:
        """Whether a file is for this reader, by its name."""

    def contents(self, part: DumpFile, opened: str) -> FileInfo:
        """Look into a file. Missing, foreign and damaged ones are DumpErrors."""

    def batches(self, request: Request) -> Iterator[pa.RecordBatch]:
        """The rows of a row group in order. Columns that the file does not have are left out."""


def unreadable(part: DumpFile, format: str, error: Exception) -> BadFileError:
    """The error of a file that is not of its format."""
    return BadFileError.of(
        part.name,
        f"{part.name}: not a readable {format} file ({one_line(error)}); is it complete, and is it {format}?",
    )


def damaged(part: DumpFile, error: Exception) -> BadFileError:
    """The error of a file that cannot be read to its end."""
    message = f"{part.name}: cannot be read to the end ({one_line(error)}); is it complete? write it again"
    return BadFileError.of(part.name, message)


@contextlib.contextmanager
def reading(part: DumpFile) -> Iterator[None]:
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


CHUNK = 4 << 20
"""Bytes of text that are parsed at a time."""

LONGEST_ROW = 256 << 20
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_MOST_KEPT = 256
_known: dict[tuple[str, str | None, object], FileInfo] = {}
"""What was found in files: a command may open a dump several times, and to count the rows of a text is to read it."""


class Chunk(NamedTuple):
    """Whole rows of a text, and where the first byte of them stands in it."""

    start: int
    text: bytes


def compression_of(part: DumpFile) -> str | None:
    """How a file is compressed, by the end of its name."""
    return next((name for ending, name in COMPRESSIONS.items() if part.ends_with((ending,))), None)


def with_compressions(*endings: str) -> tuple[str, ...]:
    """Endings of files, compressed and not."""
    return tuple(ending + more for ending in endings for more in ("", *COMPRESSIONS))


def open_bytes(part: DumpFile) -> Any:
    """The file as it is stored, for reading at any place."""
    return pa.OSFile(part.path) if part.uri is None else part.filesystem().open_input_file(part.path)


def open_text(part: DumpFile) -> Any:
    """The file from its start, decompressed."""
    stream = open_bytes(part)
    compression = compression_of(part)
    return stream if compression is None else pa.CompressedInputStream(stream, compression)


def read_range(part: DumpFile, start: int, stop: int) -> bytes:
    """Some bytes of a file."""
    with open_bytes(part) as file:
        text: bytes = file.read_at(stop - start, start)
    if len(text) != stop - start:
        raise OSError("the file is shorter than it was")
    return text


def cut(stream: Any, start: int, end_of_rows: Callable[[bytes, bool], int], name: str) -> Iterator[Chunk]:
    """The text from where a stream stands, in chunks.

    `end_of_rows(text, last)` tells how many bytes of a text, which begins with a row, are whole rows.
    """
    waiting = b""
    while piece := stream.read(CHUNK):
        waiting = waiting + piece if waiting else piece
        end = end_of_rows(waiting, False)
        if end:
            yield Chunk(start, waiting[:end])
            start, waiting = start + end, waiting[end:]
        elif len(waiting) > LONGEST_ROW:
            raise DumpError(
                f"{name}: a row is longer than {LONGEST_ROW >> 20} MB; is a quote or an end of line missing?"
            )
    if waiting:
        end_of_rows(waiting, True)
        yield Chunk(start, waiting)


def end_of_lines(text: bytes, last: bool) -> int:
    """How many bytes of a text are whole lines."""
    return len(text) if last else text.rfind(b"\n") + 1


def looked_at(part: DumpFile, format: str, look: Callable[[Identity], FileInfo]) -> FileInfo:
    """What `look` finds in a file; what was found before, if the file is still the same."""
    key = (part.path, part.uri, part.asked)
    try:
        identity = identity_of(part)
        known = _known.get(key)
        if known is not None and known.identity == identity:
            return known
        contents = look(identity)
        _ = [contents.schema.names, *map(str, contents.schema.types)]  # raises where a name is not text
        if not identity.same_as(identity_of(part)):
            raise DumpError(f"{part.name}: the file was changed while it was being read; wait until it is complete")
    except READ_ERRORS as error:
        check_unchanged(part)
        raise unreadable(part, format, error) from None
    if len(_known) >= _MOST_KEPT:
        _known.clear()
    _known[key] = contents
    return contents
