"""The one list column that nearly all of the time goes into, straight from parquet pages; all else is left to Arrow.

Arrow decodes the levels of a list column into numbers and bitmaps, which takes longer than its values. In a dump every
list has K values, so the levels are known, and it is enough to compare them: 1.3 to 2 times faster for `reject`.

`list_blocks` is all that others know of this module; DRREJ_ARROW_ONLY=1 switches it off. What it hands out is right.
Whatever does not fit, damaged or only unusual, is left to Arrow to read or to refuse, so open the file there with
`page_checksum_verification=True`: a wrong checksum is left to it as well.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from numpy.typing import NDArray

AnyFloats = NDArray[np.floating[Any]]
Bytes = NDArray[np.uint8]
Fields = dict[tuple[int, int], Any]
"""A struct: values by number and kind of field, as a field of another kind is another field."""

_CODECS = {0: None, 1: "snappy", 6: "zstd"}
_TYPES = {4: ("FLOAT", False), 5: ("DOUBLE", False), 7: ("FIXED_LEN_BYTE_ARRAY", True)}
_FLOATS = {"FLOAT": "<f4", "DOUBLE": "<f8", "FIXED_LEN_BYTE_ARRAY": "<f2"}
_FLAGS, _I16, I32, I64, _BINARY, LIST, STRUCT = (1, 2), 4, 5, 6, 8, 9, 12
"""Kinds of fields in footers and page headers, which are structs of Thrift's compact protocol."""
_ELSEWHERE = {(1, _BINARY), (8, STRUCT), (9, _BINARY)}
_MOST_LEVEL = 7
_FEWEST_ROWS = 1 << 10
"""Of a row group: with smaller ones Arrow is not slower."""
_MOST_FOOTER = 1 << 20
"""Bytes: longer ones take too long to read."""
_MOST_FETCHED = 1 << 28
"""Bytes of a chunk elsewhere: larger ones are left to Arrow, which asks for them in pieces."""


class UnfitError(Exception):
    """Bytes that this module does not read; Arrow may. Bytes that end early may be an IndexError instead."""


def list_blocks(
    source: pa.NativeFile,
    metadata: pq.FileMetaData,
    footer: bytes,
    row_group: int,
    leaf: int,
    classes: int,
    rows: int,
    start: int,
) -> Iterator[AnyFloats]:
    """The rows of a column of `classes` floats each from `start` on, in blocks of so many.

    They may end before the last row, even before the first: the rest is for Arrow. `leaf` is the number of the column
    among the leaves of the schema, `footer` what Arrow has read as `metadata`. An array stays as it is, but may share
    its memory with others: do not write into it.
    """
    if os.environ.get("DRREJ_ARROW_ONLY", "0") != "0":
        return
    with contextlib.suppress(UnfitError, IndexError, OSError, pa.ArrowException):
        yield from open_chunk(source, metadata, footer, row_group, leaf, classes).blocks(rows, start)


def open_chunk(
    source: pa.NativeFile, metadata: pq.FileMetaData, footer: bytes, row_group: int, leaf: int, classes: int
) -> Chunk:
    """The chunk of a column; raises where what the footer and the page headers say does not fit K floats per row.

    That of an object elsewhere is fetched in one request.
    """
    column, chunk = metadata.schema.column(leaf), column_chunks(footer)[row_group][leaf]
    rows, top = metadata.row_group(row_group).num_rows, column.max_definition_level
    if column.max_repetition_level != 1 or not 0 < top <= _MOST_LEVEL:
        raise UnfitError("not a list")
    if classes < 1 or rows < _FEWEST_ROWS or number(chunk, 5, I64) != rows * classes:
        raise UnfitError("number of values")
    kind, codec = _TYPES.get(number(chunk, 1)), number(chunk, 4)
    if kind is None or kind != (column.physical_type, column.logical_type.type == "FLOAT16") or codec not in _CODECS:
        raise UnfitError("type or codec")
    start, dictionary = number(chunk, 9, I64), chunk.get((11, I64), 0)
    start = dictionary if 0 < dictionary < start else start
    end = start + number(chunk, 7, I64)
    if not 4 <= start < end <= source.size():
        raise UnfitError("place of the column chunk")
    if not isinstance(source, pa.OSFile):
        if end - start > _MOST_FETCHED:
            raise UnfitError("size of the column chunk")
        source, start, end = pa.BufferReader(source.read_at(end - start, start)), 0, end - start
    pages = _scan(source, start, end, rows * classes)
    return Chunk(source, classes, rows, np.dtype(_FLOATS[kind[0]]), _CODECS[codec], top, pages)


@lru_cache(maxsize=64)
def column_chunks(footer: bytes) -> list[list[Fields]]:
    """What a footer says of each column in each row group; nothing of those in other files, or encrypted.

    pyarrow ends the process on a damaged one.
    """
    if not 0 < len(footer) <= _MOST_FOOTER:
        raise UnfitError("length of the footer")
    try:
        groups = [group[1, LIST] for group in read_value(footer, 0)[0][4, LIST]]
        return [[chunk[3, STRUCT] if not _ELSEWHERE & set(chunk) else {} for chunk in chunks] for chunks in groups]
    except (KeyError, TypeError):
        raise UnfitError("footer") from None


class Page(NamedTuple):
    """A page of a column chunk: where its bytes are, and what its header says of them."""

    offset: int
    """Of the bytes after the header, in the file."""
    stored: int
    """Bytes in the file."""
    size: int
    """Bytes uncompressed."""
    crc: int | None
    first: int
    """The number of its first value."""
    values: int
    """How many it holds."""
    encoding: int
    dictionary: bool


class Chunk(Struct, frozen=True):
    """A column chunk of lists of K values, whose page headers were read and fit; the dictionary's page is the first."""

    file: pa.NativeFile
    classes: int
    rows: int
    dtype: np.dtype[Any]
    codec: str | None
    top: int
    """The definition level of a value that is there."""
    pages: list[Page]

    def blocks(self, rows: int, start: int = 0) -> Iterator[AnyFloats]:
        """The rows from `start` on, in order, as arrays of `rows` x classes; the last may have fewer rows.

        `UnfitError` or IndexError is raised at a page that does not fit.
        """
        spans = self._spans(start * self.classes)
        span = np.empty(0, self.dtype)
        for row in range(start, self.rows, rows):
            pieces, missing = [], min(rows, self.rows - row) * self.classes
            while missing:
                span = span if span.size else next(spans)
                pieces.append(span[:missing])
                span = span[missing:]
                missing -= pieces[-1].size
            if not span.size:  # whether the last row ends here is for the next page to say
                span = next(spans, span)
            values = pieces[0]
            if len(pieces) > 1 or not values.flags.aligned:  # arithmetic on unaligned numbers is slow
                values = np.concatenate(pieces, out=_memory(sum(map(len, pieces)), self.dtype))
            yield values.reshape(-1, self.classes)

    def _spans(self, first: int) -> Iterator[AnyFloats]:
        """The values from number `first` on, page by page."""
        words = np.empty(0, self.dtype)
        for page in self.pages:
            if page.dictionary:  # Arrow reads it, and may refuse it, even if no page needs it
                words = self._plain(self._bytes(page), page.values)
            elif page.first + page.values > first:
                yield self.values(page, words)[max(0, first - page.first) :]

    def values(self, page: Page, words: AnyFloats) -> AnyFloats:
        """The values of a page whose levels say what they must; `words` is the dictionary."""
        body = self._bytes(page)
        repetition = Levels(self.classes, 0, int(self.classes > 1), 1)
        for levels in (repetition, Levels(1, self.top, self.top, self.top.bit_length())):
            end = 4 + int.from_bytes(body[:4].tobytes(), "little")
            if body.size < end:
                raise UnfitError("length of the levels")
            levels.check(body[4:end].tobytes(), page.values, page.first % levels.period)
            body = body[end:]
        if page.encoding == _PLAIN:
            return self._plain(body, page.values)
        places = indices(body.tobytes(), page.values)
        if places.max() >= words.size:
            raise UnfitError("index beyond the dictionary")
        return words.take(places, out=_memory(places.size, self.dtype), mode="clip")  # none is, as the check said

    def _plain(self, body: Bytes, values: int) -> AnyFloats:
        if body.size != values * self.dtype.itemsize:
            raise UnfitError("size of the values")
        return body.view(self.dtype)

    def _bytes(self, page: Page) -> Bytes:
        """A page, uncompressed. Arrow's codecs take a larger size for room, but for zstd; snappy begins with it."""
        data = self.file.read_at(page.stored, page.offset)
        if len(data) < page.stored:
            raise UnfitError("the file ends early")
        if page.crc is not None and zlib.crc32(data) != page.crc & 0xFFFFFFFF:
            raise UnfitError("checksum")
        stated = varint(data, 0)[0] if self.codec == "snappy" else page.size if self.codec else page.stored
        if page.size != stated:
            raise UnfitError("uncompressed size")
        whole = data if self.codec is None else pa.Codec(self.codec).decompress(data, page.size)
        return np.frombuffer(whole, np.uint8)


def _memory(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array to be filled, aligned: from Arrow's pool, which keeps what is given back."""
    return np.frombuffer(pa.allocate_buffer(count * dtype.itemsize), dtype)


# Page headers

_PLAIN, _RLE = 0, 3
_DICTIONARY = (2, 8)
"""PLAIN_DICTIONARY, of old writers, and RLE_DICTIONARY: the same bytes."""
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_PLACES = {_DATA_PAGE: 5, _DICTIONARY_PAGE: 7}
"""Fields of the headers of their own; pages of version 2, which no writer makes unless asked, are left to Arrow."""
_MOST_PAGE_BYTES = 1 << 27
"""Larger pages are left to Arrow, as a header may claim any size; also as 32-bit numbers, which indices are first."""
_FEWEST_VALUES = 1 << 10
"""Values of an average page; with smaller pages Arrow is not slower."""
_SPARE_PAGES = 16
"""May be small."""
_HEADER_BYTES = 1 << 12
"""Read for a header, which is far shorter; a longer one is an IndexError."""
_DEPTH = 10


def _scan(file: pa.NativeFile, start: int, end: int, values: int) -> list[Page]:
    """The pages of a chunk by their headers: they must fill it and hold all its values."""
    pages: list[Page] = []
    at = first = 0
    while start + at < end:
        page = _page(file, start + at, end, first)
        pages.append(page)
        if (page.dictionary and len(pages) > 1) or (page.encoding in _DICTIONARY and not pages[0].dictionary):
            raise UnfitError("place of the dictionary")
        first += 0 if page.dictionary else page.values
        if len(pages) > _SPARE_PAGES + first // _FEWEST_VALUES:
            raise UnfitError("many small pages")
        at = page.offset + page.stored - start
    if start + at != end or first != values:
        raise UnfitError("number of values")
    return pages


def _page(file: pa.NativeFile, at: int, end: int, first: int) -> Page:
    """The page whose header is at `at` and whose values begin with number `first`."""
    header, length = read_value(file.read_at(min(_HEADER_BYTES, end - at), at), 0)
    place = _PLACES.get(number(header, 1))
    if place is None or {field for field, _ in header} - {1, 2, 3, 4, place}:  # Arrow would look at other headers, too
        raise UnfitError("kind of page")
    inner, size, stored = header.get((place, STRUCT), {}), number(header, 2), number(header, 3)
    values, encoding = number(inner, 1), number(inner, 2)
    dictionary = place == _PLACES[_DICTIONARY_PAGE]
    if not values or max(size, stored, values * 4) > _MOST_PAGE_BYTES:
        raise UnfitError("size of a page")
    if dictionary:  # old writers call plain values otherwise here
        encoding = _PLAIN if encoding == _DICTIONARY[0] else encoding
    elif (number(inner, 3), number(inner, 4)) != (_RLE, _RLE):
        raise UnfitError("levels")
    if encoding != _PLAIN and (dictionary or encoding not in _DICTIONARY):
        raise UnfitError("encoding")
    return Page(at + length, stored, size, header.get((4, I32)), first, values, encoding, dictionary)


def number(fields: Fields, field: int, kind: int = I32) -> int:
    """A number that must be there and must not be negative."""
    value: int = fields.get((field, kind), -1)
    if value < 0:
        raise UnfitError(f"number in field {field}")
    return value


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


def read_value(data: bytes, at: int, kind: int = STRUCT, depth: int = _DEPTH) -> tuple[Any, int]:
    """The number, list or struct at `at`, None in place of other values, and where it ends.

    What no writer of parquet uses (field numbers in the long form, lists of flags) is an `UnfitError`.
    """
    if not depth:
        raise UnfitError("nesting")
    if kind in (_I16, I32, I64):
        value, at = varint(data, at, 64 if kind == I64 else 32)
        return (value >> 1) ^ -(value & 1), at
    if kind == _BINARY:
        length, at = varint(data, at)
        return None, at + length
    if kind == LIST:
        size, kind, at = data[at] >> 4, data[at] & 15, at + 1
        if size == 15:
            size, at = varint(data, at)
        values = []
        for _ in range(size):
            value, at = read_value(data, at, kind, depth - 1)
            values.append(value)
        return values, at
    if kind != STRUCT:
        raise UnfitError("kind of field")
    fields: Fields = {}
    field = 0
    while head := data[at]:
        if head < 16:
            raise UnfitError("field number")
        field, kind = field + (head >> 4), head & 15
        fields[field, kind], at = (None, at + 1) if kind in _FLAGS else read_value(data, at + 1, kind, depth - 1)
    return fields, at + 1


# Levels and dictionary indices: runs of one value, or of values packed in groups of eight (RLE / bit-packing hybrid).
#
# An encoder of a periodic sequence comes back to the same bytes after a few rows, so a few runs are read one by
# one and the rest is compared as bytes.

_MOST_RUNS = 1 << 14
_SPARE_RUNS = 64
_FEWEST_INDICES = 1 << 7  # of an average run: shorter ones, of values that repeat now and then, are quicker in Arrow
_WIDEST_INDEX = 25  # an index and the up to seven bits before it fit 32 bits
_SPARE = 3  # bytes after the last index, as four bytes are read for each


class Levels(NamedTuple):
    """A known sequence of levels: `start` at the positions 0, period, 2 period, ..., `inside` between them."""

    period: int
    start: int
    inside: int
    width: int
    """Bits of a level."""

    def check(self, data: bytes, count: int, first: int) -> None:
        """Raise `UnfitError` (or IndexError) unless `data` says the `count` levels from position `first` on."""
        at, position, end = 0, first, first + count
        mark = (at, position)
        for run in range(_MOST_RUNS):
            if position >= end:
                break
            if at > mark[0] and (position - mark[1]) % self.period == 0:
                # The runs since the mark covered whole periods. Where their bytes come again they say the same again.
                length, levels = at - mark[0], position - mark[1]
                times = _repetitions(data, mark[0], at, min((end - position) // levels, (len(data) - at) // length))
                at, position = at + times * length, position + times * levels
                mark = (at, position)
                if times:
                    continue
            elif run & (run - 1) == 0:  # a power of two: as the marks grow apart, one sees the whole cycle
                mark = (at, position)
            at, position = self._run(data, at, position, end)
        if position < end or at != len(data):
            raise UnfitError("levels")

    def _run(self, data: bytes, at: int, position: int, end: int) -> tuple[int, int]:
        """Where the run at byte `at` ends, which must say the levels from `position` on."""
        head, at = varint(data, at)
        length, place, left = head >> 1, position % self.period, end - position
        if head & 1:
            stop = at + length * self.width
            fits = length > 0 and stop <= len(data)
            if not fits or not _same_bits(data[at:stop], _packed(self, place), min(length * 8, left) * self.width):
                raise UnfitError("levels")
            return stop, position + length * 8
        same = left if self.start == self.inside else self.period - place if place else 1
        length = min(length, left)
        if not 0 < length <= same or data[at] != (self.inside if place else self.start):
            raise UnfitError("levels")
        return at + 1, position + length


@lru_cache(maxsize=64)
def _packed(levels: Levels, place: int) -> bytes:
    """Eight periods of the sequence from `place` on, packed: whole bytes that come again and again."""
    values = np.full(8 * levels.period, levels.inside, np.uint8)
    values[-place % levels.period :: levels.period] = levels.start
    bits = (values[:, None] >> np.arange(levels.width, dtype=np.uint8)) & 1
    return np.packbits(bits, bitorder="little").tobytes()


def _same_bits(data: bytes, expected: bytes, bits: int) -> bool:
    """Whether the first `bits` of `data` are those of `expected`, repeated."""
    whole, rest = divmod(bits, 8)
    times, part = divmod(whole, len(expected))
    if data[:whole] != expected * times + expected[:part]:
        return False
    return not rest or not (data[whole] ^ expected[part]) & ((1 << rest) - 1)


def _repetitions(data: bytes, earlier: int, at: int, most: int) -> int:
    """How often, up to `most`, the bytes from `earlier` to `at` come again from `at` on; quick if not often."""
    length, size = at - earlier, 1
    while size < most and data[at : at + size * length] == data[earlier : earlier + size * length]:
        size *= 2
    stop = min(size, most) * length
    again, original = data[at : at + stop], data[earlier : earlier + stop]
    if again == original:
        return min(size, most)
    differ = np.frombuffer(again, np.uint8) != np.frombuffer(original, np.uint8)
    return int(differ.argmax()) // length


def indices(data: bytes, count: int) -> NDArray[np.uint32]:
    """The `count` indices of a page with a dictionary: a byte with their width, then packed runs.

    Runs of one value, which come where values repeat, are left to Arrow.
    """
    width, at, done = data[0], 1, 0
    if not 0 < width <= _WIDEST_INDEX:
        raise UnfitError("width of indices")
    packed: list[bytes] = []
    while done < count and len(packed) <= _SPARE_RUNS + done // _FEWEST_INDICES:
        head, at = varint(data, at)
        stop = at + (head >> 1) * width
        if head < 3 or not head & 1 or stop > len(data):
            raise UnfitError("indices")
        packed.append(data[at:stop])
        at, done = stop, done + (head >> 1) * 8
    if done < count or at != len(data):
        raise UnfitError("indices")
    # Groups of eight are `width` bytes each.
    groups, text = done // 8, b"".join([*packed, bytes(_SPARE)])
    numbers = _memory(groups * 8, np.dtype(np.uint32)).reshape(groups, 8)
    for place in range(8):
        byte, bit = divmod(place * width, 8)
        words: NDArray[np.uint32] = np.ndarray((groups,), "<u4", text, byte, (width,))
        np.bitwise_and(words >> np.uint32(bit), np.uint32((1 << width) - 1), out=numbers[:, place])
    return numbers.reshape(-1)[:count]
