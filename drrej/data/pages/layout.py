"""What a parquet file says of a column chunk: its bytes, the footer, and the headers of its pages.

Both are in Thrift's compact protocol, of which as much is read as they use. Every length is one of these bytes' own, so
nothing is allocated or repeated beyond their number. What no writer uses (maps, field numbers in long form, lists of
flags) is an `UnfitError`; bytes that end early are an IndexError.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from numpy.typing import NDArray

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12
_INTEGERS = (I16, I32, I64)
_DEPTH = 10

Fields = dict[tuple[int, int], Any]
"""A struct: values by number and kind of field, as a field of another kind is another field."""


class UnfitError(Exception):
    """Bytes that this package does not read; Arrow may."""


def varint(data: bytes, at: int, bits: int = 32) -> tuple[int, int]:
    """An unsigned number of at most `bits` bits, and where it ends."""
    byte = data[at]
    value, shift = byte & 0x7F, 0
    while byte > 0x7F:
        at, shift = at + 1, shift + 7
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if shift >= bits or value >> bits:
            raise UnfitError("a number that is too long")
    return value, at + 1


def read_struct(data: bytes, at: int, depth: int = _DEPTH) -> tuple[Fields, int]:
    """The struct at `at`, and where it ends.

    Numbers, flags, strings and structs are read; of a list of structs there is where each of them begins.
    """
    fields: Fields = {}
    number = 0
    while head := data[at]:
        kind, number, at = head & 15, number + (head >> 4), at + 1
        if head < 16 or not depth:
            raise UnfitError("field number or nesting")
        value: Any
        if kind in _INTEGERS:
            value, at = varint(data, at, 64 if kind == I64 else 32)
            value = (value >> 1) ^ -(value & 1)
        elif kind == BINARY:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        elif kind == STRUCT:
            value, at = read_struct(data, at, depth - 1)
        elif kind in (TRUE, FALSE):
            value, kind = kind == TRUE, TRUE
        elif kind == LIST:
            value, at = _list(data, at, depth - 1)
        else:
            raise UnfitError("kind of field")
        fields[number, kind] = value
    return fields, at + 1


def _list(data: bytes, at: int, depth: int) -> tuple[list[int], int]:
    """Where the structs of a list begin, and where it ends."""
    size, kind, at = data[at] >> 4, data[at] & 15, at + 1
    if not depth:
        raise UnfitError("nesting")
    if size == 15:
        size, at = varint(data, at)
    starts = []
    for _ in range(size):
        starts.append(at)
        at = _skip(data, at, kind, depth)
    return starts if kind == STRUCT else [], at


def _skip(data: bytes, at: int, kind: int, depth: int) -> int:
    """Where the value at `at` ends, after one byte of `data` at least."""
    if kind in _INTEGERS:
        while data[at] > 0x7F:
            at += 1
        return at + 1
    if kind == BINARY:
        length, at = varint(data, at)
        return at + length
    if kind == LIST:
        return _list(data, at, depth - 1)[1]
    if kind != STRUCT or not depth:
        raise UnfitError("kind of field or nesting")
    while head := data[at]:
        at += 1
        if head < 16:
            raise UnfitError("field number")
        if head & 15 not in (TRUE, FALSE):
            at = _skip(data, at, head & 15, depth - 1)
    return at + 1


def number(fields: Fields, field: int, kind: int = I32) -> int:
    """A number that must be there and must not be negative."""
    value: int = fields.get((field, kind), -1)
    if value < 0:
        raise UnfitError(f"number in field {field}")
    return value


def substruct(fields: Fields, field: int) -> Fields:
    """A struct that must be there."""
    value: Fields | None = fields.get((field, STRUCT))
    if value is None:
        raise UnfitError(f"struct in field {field}")
    return value


Bytes = NDArray[np.uint8]


def fresh(size: int) -> Bytes:
    """Memory of one's own, aligned: from Arrow's pool, which keeps what is given back."""
    memory: Bytes = np.frombuffer(pa.allocate_buffer(size), np.uint8)
    return memory


class Stored(Struct, frozen=True):
    """The bytes of a file by its descriptor, which must stay open; or those from `start` on that were fetched."""

    size: int
    """Of the whole file."""
    descriptor: int = -1
    start: int = 0
    fetched: Bytes | None = None

    @classmethod
    def local(cls, descriptor: int) -> Self:
        """A file of this machine, as it is now."""
        return cls(os.fstat(descriptor).st_size, descriptor)

    def some(self, offset: int, count: int) -> bytes:
        """So many bytes, or fewer where they end."""
        return (
            os.pread(self.descriptor, count, offset) if self.fetched is None else self._slice(offset, count).tobytes()
        )

    def page(self, offset: int, count: int) -> Bytes:
        """So many bytes, to be left as they are; aligned at their end, if that costs nothing."""
        if self.fetched is not None:
            memory = self._slice(offset, count)
            done = memory.size
        else:
            memory, done, read = fresh(count + 7)[-count % 8 :][:count], 0, -1
            while done < count and read:
                read = os.preadv(self.descriptor, [memory[done:].data], offset + done)
                done += read
        if done < count:
            raise UnfitError("the file ends early")
        return memory

    def _slice(self, offset: int, count: int) -> Bytes:
        if offset < self.start or self.fetched is None:
            raise UnfitError("bytes that were not fetched")
        return self.fetched[offset - self.start :][:count]


def inflate(data: Bytes, size: int, codec: str) -> Bytes:
    """`data` uncompressed, which must be `size` bytes long.

    Arrow's codecs take a larger `size` for room, but for zstd; snappy begins with it.
    """
    try:
        if size < 1 or (codec == "snappy" and varint(data[:5].tobytes(), 0)[0] != size):
            raise UnfitError("uncompressed size")
        return np.frombuffer(pa.Codec(codec).decompress(data, size), np.uint8)
    except (pa.ArrowException, OSError, IndexError) as error:
        raise UnfitError(f"compressed data ({error})") from None


# The footer

CODECS = {0: None, 1: "snappy", 6: "zstd"}

TAIL = 8
"""Bytes after the footer."""
_MAGIC = b"PAR1"
_MOST_BYTES = 1 << 22
_MOST_COLUMNS = 512
_FEWEST_ROWS = 1 << 10  # of an average row group: smaller ones are not worth the reading of the footer
_MOST_LEVEL = 7
_TYPES = {4: "FLOAT", 5: "DOUBLE", 7: "FIXED_LEN_BYTE_ARRAY"}


class Footer(Struct, frozen=True):
    """The footer of a file: Arrow's reading of it, its bytes, and where in them the row groups are."""

    metadata: pq.FileMetaData
    data: bytes
    row_groups: list[int]

    @classmethod
    def read(cls, file: Stored, metadata: pq.FileMetaData) -> Footer:
        """Read the footer of a file, which Arrow has read as `metadata`."""
        if metadata.num_columns > _MOST_COLUMNS or metadata.num_rows < metadata.num_row_groups * _FEWEST_ROWS:
            raise UnfitError("many columns or small row groups")
        size = metadata.serialized_size
        if size > _MOST_BYTES:
            raise UnfitError("length of the footer")
        data = file.some(max(0, file.size - size - TAIL), size + TAIL)
        if data[size:] != size.to_bytes(4, "little") + _MAGIC:
            raise UnfitError("footer")
        fields, _ = read_struct(data, 0)
        row_groups = fields.get((4, LIST), [])
        if len(row_groups) != metadata.num_row_groups or (8, STRUCT) in fields:
            raise UnfitError("row groups, or encryption")
        return cls(metadata, data, row_groups)

    def column(self, row_group: int, leaf: int) -> tuple[Fields, int]:
        """What the footer says of a column chunk, and the rows of the row group."""
        fields, _ = read_struct(self.data, self.row_groups[row_group])
        rows = number(fields, 3, I64)
        columns = fields.get((1, LIST), [])
        if len(columns) != self.metadata.num_columns or rows != self.metadata.row_group(row_group).num_rows:
            raise UnfitError("columns or rows")
        place, _ = read_struct(self.data, columns[leaf])
        if (1, BINARY) in place or (8, STRUCT) in place or (9, BINARY) in place:
            raise UnfitError("in another file, or encrypted")
        return substruct(place, 3), rows


class Layout(Struct, frozen=True):
    """What the footer says of a column chunk of lists of K floats."""

    start: int
    end: int
    """Where the chunk is in the file."""
    rows: int
    classes: int
    """K."""
    dtype: np.dtype[Any]
    codec: str | None
    top: int
    """The definition level of a value that is there."""

    @classmethod
    def of(cls, footer: Footer, row_group: int, leaf: int, classes: int) -> Layout:
        """The layout of the column `leaf` in a row group, if it can hold `classes` floats in each row."""
        chunk, rows = footer.column(row_group, leaf)
        column = footer.metadata.schema.column(leaf)
        codec, top = number(chunk, 4), column.max_definition_level
        if codec not in CODECS or _TYPES.get(number(chunk, 1)) != column.physical_type:
            raise UnfitError("type or codec")
        if classes < 1 or rows < 1 or number(chunk, 5, I64) != rows * classes:
            raise UnfitError("number of values")
        if column.max_repetition_level != 1 or not 0 < top <= _MOST_LEVEL:
            raise UnfitError("not a list")
        start = number(chunk, 9, I64)
        dictionary = chunk.get((11, I64), 0)
        start = dictionary if 0 < dictionary < start else start
        end = start + number(chunk, 7, I64)
        return cls(start, end, rows, classes, _dtype(column), CODECS[codec], top)


def _dtype(column: Any) -> np.dtype[Any]:
    kind = {"FLOAT": "<f4", "DOUBLE": "<f8"}.get(column.physical_type)
    if kind is None and column.length == 2 and column.logical_type.type == "FLOAT16":
        kind = "<f2"
    if kind is None:
        raise UnfitError("type")
    return np.dtype(kind)


PLAIN, RLE = 0, 3
DICTIONARY = (2, 8)
"""PLAIN_DICTIONARY, of old writers, and RLE_DICTIONARY: the same bytes."""

MOST_PAGE_BYTES = 1 << 27
"""Larger pages are left to Arrow, as a header may claim any size; also as 32-bit numbers, which indices are first."""
FEWEST_VALUES = 1 << 10
"""Values of an average page; with smaller pages Arrow is not slower."""

_SPARE_PAGES = 16  # may be small
_HEADER_BYTES = (1 << 8, 1 << 16)  # read for a header: at first, and when it is longer
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_PLACES = {_DATA_PAGE: 5, _DICTIONARY_PAGE: 7, _DATA_PAGE_V2: 8}


class Page(NamedTuple):
    """A page of a column chunk: where its bytes are, and what its header says of them."""

    offset: int
    """Of the bytes after the header, in the file."""
    stored: int
    """Bytes in the file."""
    size: int
    """Bytes uncompressed."""
    crc: int | None
    values: int
    """How many it holds."""
    encoding: int
    dictionary: bool = False
    level_encodings: tuple[int, int] = (RLE, RLE)
    """Of repetition and definition levels."""
    level_bytes: tuple[int, int] | None = None
    """A v2 page says how long its levels are, and does not compress them."""
    rows: int | None = None
    """Known of a v2 page."""
    compressed: bool = True
    """As far as the chunk is."""


def scan(file: Stored, layout: Layout) -> list[Page]:
    """The pages of a chunk, the dictionary's first, by their headers: they must fill it and hold all its values."""
    if not 4 <= layout.start < layout.end <= file.size:
        raise UnfitError("place of the column chunk")
    pages: list[Page] = []
    at, values = layout.start, 0
    while at < layout.end:
        page, at = _page(file, at, layout.end)
        _check(page, layout, values)
        pages.append(page)
        if (page.dictionary and len(pages) > 1) or (page.encoding in DICTIONARY and not pages[0].dictionary):
            raise UnfitError("place of the dictionary")
        values += 0 if page.dictionary else page.values
        if len(pages) > _SPARE_PAGES + values // FEWEST_VALUES:
            raise UnfitError("many small pages")
    if at != layout.end or values != layout.rows * layout.classes:
        raise UnfitError("number of values")
    return pages


def _page(file: Stored, at: int, end: int) -> tuple[Page, int]:
    """The page whose header is at `at`, and where the page ends."""
    for length in _HEADER_BYTES:
        with contextlib.suppress(IndexError):  # the header is longer
            return parse_page(file.some(at, min(length, end - at)), at)
    raise UnfitError("length of a page header")


def _check(page: Page, layout: Layout, first: int) -> None:
    """Raise `UnfitError` where the header of the page that begins with value number `first` does not fit."""
    if not page.values or max(page.size, page.stored, page.values * 4) > MOST_PAGE_BYTES:
        raise UnfitError("size of a page")
    if page.encoding not in (PLAIN, *DICTIONARY):
        raise UnfitError("encoding")
    if page.level_encodings != (RLE, RLE) or sum(page.level_bytes or ()) > min(page.size, page.stored):
        raise UnfitError("levels")
    if page.rows is not None and (first % layout.classes or page.rows * layout.classes != page.values):
        raise UnfitError("rows of a page")


def parse_page(data: bytes, offset: int) -> tuple[Page, int]:
    """The page whose header begins `data`, read at `offset` of the file, and the offset of what follows the page.

    Raises IndexError where `data` ends before the header does, `UnfitError` for a header that is not understood.
    """
    header, length = read_struct(data, 0)
    kind, stored = number(header, 1), number(header, 3)
    known = (offset + length, stored, number(header, 2), header.get((4, I32)))
    end = offset + length + stored
    place = _PLACES.get(kind)
    if place is None or {field for field, _ in header} - {1, 2, 3, 4, place}:  # Arrow would look at other headers, too
        raise UnfitError("kind of page")
    fields = substruct(header, place)
    if kind == _DATA_PAGE:
        encodings = (number(fields, 4), number(fields, 3))
        return Page(*known, number(fields, 1), number(fields, 2), level_encodings=encodings), end
    if kind == _DATA_PAGE_V2:
        if number(fields, 2) != 0:
            raise UnfitError("nulls")
        lengths, rows = (number(fields, 6), number(fields, 5)), number(fields, 3)
        page = Page(*known, number(fields, 1), number(fields, 4), level_bytes=lengths, rows=rows)
        return page._replace(compressed=fields.get((7, TRUE), True)), end
    if number(fields, 2) not in (PLAIN, DICTIONARY[0]):  # old writers call it so; the values are plain
        raise UnfitError("encoding of the dictionary")
    return Page(*known, number(fields, 1), PLAIN, dictionary=True), end
