"""Text files in pieces that end where a row ends, and the bytes of a piece again, from wherever they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from drrej.data.identity import check_unchanged, identity_of
from drrej.data.part import Identity, Part
from drrej.data.readers.base import READ_ERRORS, Contents, unreadable
from drrej.errors import DumpError

CHUNK = 4 << 20
"""Bytes of text that are parsed at a time."""

LONGEST_ROW = 256 << 20
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_MOST_KEPT = 256
_known: dict[tuple[str, str | None, object], Contents] = {}
"""What was found in files: a command may open a dump several times, and to count the rows of a text is to read it."""


class Chunk(NamedTuple):
    """Whole rows of a text, and where the first byte of them stands in it."""

    start: int
    text: bytes


def compression_of(part: Part) -> str | None:
    """How a file is compressed, by the end of its name."""
    return next((name for ending, name in COMPRESSIONS.items() if part.ends_with((ending,))), None)


def with_compressions(*endings: str) -> tuple[str, ...]:
    """Endings of files, compressed and not."""
    return tuple(ending + more for ending in endings for more in ("", *COMPRESSIONS))


def open_bytes(part: Part) -> Any:
    """The file as it is stored, for reading at any place."""
    return pa.OSFile(part.path) if part.uri is None else part.filesystem().open_input_file(part.path)


def open_text(part: Part) -> Any:
    """The file from its start, decompressed."""
    stream = open_bytes(part)
    compression = compression_of(part)
    return stream if compression is None else pa.CompressedInputStream(stream, compression)


def read_range(part: Part, start: int, stop: int) -> bytes:
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


def looked_at(part: Part, format: str, look: Callable[[Identity], Contents]) -> Contents:
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
