"""What a reader of one file format does, what it tells of a file, and the errors of files that cannot be read.

Formats without row groups that can be read at any place (text, above all) are converted once to a temporary Arrow IPC
file, see `arrow.spooled`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

import pyarrow as pa

from drrej.data.files import DumpFile, Identity, check_unchanged, identity_of, one_line
from drrej.errors import BadFileError, DumpError
from drrej.records import dataclass

READ_ERRORS = (OSError, pa.ArrowException, ValueError, OverflowError, TypeError, UnicodeDecodeError)
"""What pyarrow raises on damaged files."""

BLOCK = 4 << 20
"""Bytes of text that are parsed at a time."""

LONGEST_ROW = 256 << 20
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_known: dict[tuple[object, ...], FileInfo] = {}
"""What was found in files: a command may open a dump several times."""


@dataclass(frozen=True)
class FileInfo:
    """What a file holds: its columns, the rows of each of its row groups, and what it was when it was looked at.

    `typed` is False where numbers are written as text, so that 1 may be a floating-point number. `pandas` is what it
    noted about the frame that was written. `list_sizes` are how many values a row of a column of lists has on average,
    where that is a whole number and known without reading it. `spool` is the path of the Arrow file that it was
    converted to.
    """

    schema: pa.Schema
    groups: tuple[int, ...]
    identity: Identity | None
    typed: bool = True
    pandas: bytes | None = None
    list_sizes: Mapping[str, int] = field(default_factory=dict)
    spool: str | None = None


class ListColumn(NamedTuple):
    """A column of scores in which every list is expected to have so many values."""

    column: str
    classes: int


@dataclass(frozen=True)
class Request:
    """Some columns of one row group of a file from row `start` on, in batches of at most so many rows.

    `opened` names the opening of the dump, so that a reader may keep what it has found out about a file meanwhile.
    `scores` is the list column that nearly all of the time goes into; a reader that knows a short cut may take it.
    """

    file: DumpFile
    opened: str
    group: int
    columns: Sequence[str]
    rows: int
    scores: ListColumn | None = None
    start: int = 0


class Format(NamedTuple):
    """A file format: what messages call it, how names of such files end, and how they are read.

    `look` tells what is in a file; missing, foreign and damaged ones are DumpErrors. `batches` are the rows of a row
    group in order, which is what one worker reads at a time; columns that the file does not have are left out.
    """

    name: str
    endings: tuple[str, ...]
    look: Callable[[DumpFile, str], FileInfo]
    batches: Callable[[Request], Iterator[pa.RecordBatch]]


def from_row(batches: Iterator[pa.RecordBatch], start: int) -> Iterator[pa.RecordBatch]:
    """The same rows without the first so many."""
    for batch in batches:
        passed = min(start, batch.num_rows)
        start -= passed
        if passed < batch.num_rows or not passed:
            yield batch.slice(passed) if passed else batch


def with_compressions(*endings: str) -> tuple[str, ...]:
    """Endings of files, compressed and not."""
    return tuple(ending + more for ending in endings for more in ("", *COMPRESSIONS))


def open_bytes(file: DumpFile) -> Any:
    """The file as it is stored, for reading at any place."""
    return pa.OSFile(file.path) if file.uri is None else file.filesystem().open_input_file(file.path)


def open_text(file: DumpFile) -> Any:
    """The file from its start, decompressed."""
    stream = open_bytes(file)
    compression = next((name for ending, name in COMPRESSIONS.items() if file.ends_with((ending,))), None)
    return stream if compression is None else pa.CompressedInputStream(stream, compression)


def line_chunks(file: DumpFile) -> Iterator[bytes]:
    """A text in pieces of whole lines."""
    waiting = b""
    with open_text(file) as stream:
        while piece := stream.read(BLOCK):
            lines, newline, waiting = (waiting + piece).rpartition(b"\n")
            if newline:
                yield lines
            elif len(waiting) > LONGEST_ROW:
                longest = LONGEST_ROW >> 20
                raise DumpError(f"{file.name}: a row is longer than {longest} MB; is an end of line missing?")
    yield waiting


def looked_at(file: DumpFile, format: str, look: Callable[[Identity], FileInfo]) -> FileInfo:
    """What `look` finds in a file; what was found before, if the file is still the same."""
    key = (format, file.path, file.uri, file.asked, file.ending)
    try:
        identity = identity_of(file)
        check_unchanged(file, identity)
        known = _known.get(key)
        if known is not None and known.identity == identity and (known.spool is None or os.path.exists(known.spool)):
            return known
        info = look(identity)
        _ = [info.schema.names, *map(str, info.schema.types)]  # raises where a name is not text
        if not identity.same_as(identity_of(file)):
            raise DumpError(f"{file.name}: the file was changed while it was being read; wait until it is complete")
    except READ_ERRORS as error:
        check_unchanged(file)
        raise unreadable(file, format, error) from None
    _known[key] = info
    return info


def unreadable(file: DumpFile, format: str, error: Exception) -> BadFileError:
    """The error of a file that is not of its format."""
    return BadFileError.of(
        file.name,
        f"{file.name}: not a readable {format} file ({one_line(error)}); is it complete, and is it {format}?",
    )


def damaged(file: DumpFile, error: Exception) -> BadFileError:
    """The error of a file that cannot be read to its end."""
    message = f"{file.name}: cannot be read to the end ({one_line(error)}); is it complete? write it again"
    return BadFileError.of(file.name, message)


@contextlib.contextmanager
def reading(file: DumpFile) -> Iterator[None]:
    """What goes wrong while a file is read, as one line: it was replaced meanwhile, or it is damaged."""
    try:
        yield
        check_unchanged(file)
    except DumpError as error:  # what is wrong may be that it is another file now
        check_unchanged(file)
        raise BadFileError.of(file.name, str(error)) from None
    except READ_ERRORS as error:
        check_unchanged(file)
        raise damaged(file, error) from None
