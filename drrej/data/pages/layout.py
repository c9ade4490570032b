"""Levels and dictionary indices: runs of one value, or of values packed in groups of eight (RLE / bit-packing hybrid).

In a dump every list has K values. Its levels are then a known sequence, and all that is asked of them is whether they
say that sequence. An encoder of a periodic sequence comes back to the same bytes after a few rows, so a few runs are
read one by one and the rest is compared as bytes.
"""

from __future__ import annotations

import contextlib
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from msgspec import Struct
from numpy.typing import NDArray

from drrej.data.pages.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    Fields,
    Stored,
    UnfitError,
    fresh,
    number,
    read_struct,
    substruct,
    varint,
)

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
    """The `count` indices that are the values of a page with a dictionary: a byte with their width, then runs."""
    width, at, done = data[0], 1, 0
    if not 0 < width <= _WIDEST_INDEX:
        raise UnfitError("width of indices")
    everything = np.frombuffer(data, np.uint8)
    packed: list[bytes] = []
    runs: list[tuple[int, int]] = []  # length and value; -1 is for packed values
    for _ in range(_SPARE_RUNS + count // _FEWEST_INDICES):
        if done >= count:
            break
        begin = at
        head, at = varint(data, at)
        length = head >> 1
        stop = at + (length * width if head & 1 else (width + 7) // 8)
        if not length or stop > len(data):
            raise UnfitError("indices")
        if head & 1:
            length *= 8
            some = data[at:stop]
            if at == begin + 1 and (again := _alike(everything, begin, stop, (count - done - 1) // length)):
                # Writers pack long stretches in runs of one length: those are taken together.
                step = stop - begin
                stop += again * step
                some = everything[begin:stop].reshape(-1, step)[:, 1:].tobytes()
                length *= again + 1
            packed.append(some)
        length = min(length, count - done)
        runs.append((length, -1 if head & 1 else int.from_bytes(data[at:stop], "little")))
        done, at = done + length, stop
    if done < count or at != len(data):
        raise UnfitError("indices")
    unpacked = _unpack(b"".join([*packed, bytes(_SPARE)]), width)
    if len(packed) == len(runs):
        return unpacked[:count]
    result = np.empty(count, np.uint32)
    done = taken = 0
    for length, value in runs:
        result[done : done + length] = unpacked[taken : taken + length] if value < 0 else value
        done, taken = done + length, taken + (length if value < 0 else 0)
    return result


def _alike(data: NDArray[np.uint8], begin: int, stop: int, most: int) -> int:
    """How many runs, up to `most`, follow the one from `begin` to `stop` and begin with the same byte as it."""
    step = stop - begin
    heads = data[stop : stop + min(most, (data.size - stop) // step) * step : step]
    other = np.flatnonzero(heads != data[begin])
    return int(other[0]) if other.size else heads.size


def _unpack(data: bytes, width: int) -> NDArray[np.uint32]:
    """Numbers of `width` bits, packed in groups of eight, which are `width` bytes each, before some spare bytes."""
    groups = (len(data) - _SPARE) // width
    numbers = fresh(groups * 8 * 4).view(np.uint32).reshape(groups, 8)
    for place in range(8 if groups else 0):
        byte, bit = divmod(place * width, 8)
        words: NDArray[np.uint32] = np.ndarray((groups,), "<u4", data, byte, (width,))
        np.bitwise_and(words >> np.uint32(bit), np.uint32((1 << width) - 1), out=numbers[:, place])
    return numbers.reshape(-1)


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
    levels: tuple[Levels, Levels]
    """What repetition and definition levels must say."""

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
        levels = Levels(classes, 0, int(classes > 1), 1), Levels(1, top, top, top.bit_length())
        return cls(start, end, rows, classes, _dtype(column), CODECS[codec], levels)


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
