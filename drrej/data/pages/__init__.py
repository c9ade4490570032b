"""The one list column that nearly all of the time goes into, straight from parquet pages; all else is left to Arrow.

Arrow decodes the levels of a list column into numbers and bitmaps, which takes longer than its values. In a dump every
list has K values, so the levels are known, and it is enough to compare them: 1.3 to 2 times faster for `reject`.

`list_blocks` is all that others know of this folder; DRREJ_ARROW_ONLY=1 switches it off. What it hands out is right.
Whatever does not fit, damaged or only unusual, is left to Arrow to read or to refuse, so open the file there with
`page_checksum_verification=True`: a wrong checksum is left to it as well.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from numpy.typing import NDArray

from drrej.data.pages import layout as headers
from drrej.data.pages.layout import Bytes, Footer, Layout, Page, Stored, UnfitError, fresh, varint

AnyFloats = NDArray[np.floating[Any]]

_MOST_FETCHED = 1 << 28
"""Bytes of a chunk: larger ones are left to Arrow, which asks for them in pieces."""


def list_blocks(
    source: Any,
    metadata: pq.FileMetaData,
    memo: list[Footer | None],
    row_group: int,
    leaf: int,
    classes: int,
    rows: int,
    start: int,
) -> Iterator[AnyFloats]:
    """The rows of a column of `classes` floats each from `start` on, in blocks of so many.

    They may end before the last row, even before the first: the rest is for Arrow. `source` is an open file, or an
    object as Arrow opens it, whose column chunk is fetched in one request; `leaf` is the number of the column among the
    leaves of the schema. `memo` keeps the footer for other row groups.
    """
    if os.environ.get("DRREJ_ARROW_ONLY", "0") != "0":
        return
    with contextlib.suppress(UnfitError, IndexError, OSError):  # bytes that are unusual, end early, or were not sent
        remote = isinstance(source, pa.NativeFile)
        file = None if remote else Stored.local(source.fileno())
        if not memo:
            memo.append(None)  # unless what follows goes well, the file is left to Arrow
            size = metadata.serialized_size + headers.TAIL
            memo[0] = Footer.read(file or _fetch(source, max(0, source.size() - size), source.size()), metadata)
        if memo[0] is None:
            return
        layout = Layout.of(memo[0], row_group, leaf, classes)
        if file is None:
            if not 0 <= layout.start < layout.end <= min(source.size(), layout.start + _MOST_FETCHED):
                return
            file = _fetch(source, layout.start, layout.end)
        yield from open_chunk(file, layout).blocks(rows, start)


def _fetch(source: pa.NativeFile, start: int, end: int) -> Stored:
    """Some bytes of an object."""
    data = np.frombuffer(source.read_at(end - start, start), np.uint8)
    if data.size != end - start:
        raise OSError("the object ends early")
    return Stored(source.size(), start=start, fetched=data)


def open_chunk(file: Stored, layout: Layout) -> Chunk:
    """The chunk of a column; raises `UnfitError`, or IndexError, where its page headers do not fit K floats per row."""
    pages = headers.scan(file, layout)
    dictionary = pages.pop(0) if pages[0].dictionary else None
    firsts = itertools.accumulate((page.values for page in pages), initial=0)
    return Chunk(file, layout, tuple(pages), tuple(firsts), dictionary)


class Chunk(Struct, frozen=True, dict=True):
    """A column chunk of lists of K values, whose page headers were read and fit.

    Several threads may read it at the same time.
    """

    file: Stored
    layout: Layout
    pages: tuple[Page, ...]
    firsts: tuple[int, ...]
    """The number of the first value of each page, and of all values."""
    dictionary_page: Page | None

    def blocks(self, rows: int, start: int = 0) -> Iterator[AnyFloats]:
        """The rows from `start` on, in order, as arrays of `rows` x classes; the last may have fewer rows.

        An array stays as it is, but may share its memory with others: do not write into it. `UnfitError` is raised at a
        page that does not fit.
        """
        classes = self.layout.classes
        spans = self._spans(start * classes)
        span = np.empty(0, self.layout.dtype)
        for row in range(start, self.layout.rows, rows):
            pieces, missing = [], min(rows, self.layout.rows - row) * classes
            while missing:
                span = span if span.size else next(spans)
                pieces.append(span[:missing])
                span = span[missing:]
                missing -= pieces[-1].size
            if not span.size:  # whether the last row ends here is for the next page to say
                span = next(spans, span)
            yield self._joined(pieces).reshape(-1, classes)

    def _joined(self, pieces: list[AnyFloats]) -> AnyFloats:
        """The pieces in one array: a single one as it is, unless unaligned, for which arithmetic is slow."""
        if len(pieces) == 1 and pieces[0].flags.aligned:
            return pieces[0]
        memory = fresh(sum(piece.nbytes for piece in pieces)).view(self.layout.dtype)
        return np.concatenate(pieces, out=memory)

    def _spans(self, first: int) -> Iterator[AnyFloats]:
        """The values from number `first` on, page by page."""
        self._dictionary  # noqa: B018 - Arrow reads it, and may refuse it, even if no page needs it
        for number in range(bisect_right(self.firsts, first) - 1, len(self.pages)):
            yield self._values(number)[max(0, first - self.firsts[number]) :]

    def _values(self, number: int) -> AnyFloats:
        """The values of a page whose levels say what they must."""
        page, first = self.pages[number], self.firsts[number]
        stored, body = self._bytes(page)
        try:
            top, classes = self.layout.top, self.layout.classes
            expected = Levels(classes, 0, int(classes > 1), 1), Levels(1, top, top, top.bit_length())
            for levels, length in zip(expected, page.level_bytes or (None, None), strict=True):
                if length is None:
                    text, body = _counted(body)
                else:
                    text, stored = stored[:length], stored[length:]
                levels.check(text.tobytes(), page.values, first % levels.period)
            return self._decode(page, body)
        except IndexError:  # bytes are taken one by one, and there were too few
            raise UnfitError("data too short") from None

    def _bytes(self, page: Page) -> tuple[Bytes, Bytes]:
        """A page as it is stored, and its uncompressed bytes (of a v2 page: of its values alone)."""
        # Uncompressed values may become a block. They end where the page ends, so that is where they should be aligned.
        memory = self.file.page(page.offset, page.stored)
        if page.crc is not None and zlib.crc32(memory.data) != page.crc & 0xFFFFFFFF:
            raise UnfitError("checksum")
        levels = sum(page.level_bytes or ())
        if self.layout.codec is not None and page.compressed:
            return memory, headers.inflate(memory[levels:], page.size - levels, self.layout.codec)
        if page.size != page.stored:
            raise UnfitError("uncompressed size")
        return memory, memory[levels:]

    def _decode(self, page: Page, body: Bytes) -> AnyFloats:
        dtype = self.layout.dtype
        if page.encoding in headers.DICTIONARY:
            places = indices(body.tobytes(), page.values)
            if places.max() >= self._dictionary.size:
                raise UnfitError("index beyond the dictionary")
            memory = fresh(places.size * dtype.itemsize).view(dtype)
            return self._dictionary.take(places, out=memory, mode="clip")  # none is clipped, as the check said
        if body.size != page.values * dtype.itemsize:
            raise UnfitError("size of the values")
        return body.view(dtype)

    @cached_property
    def _dictionary(self) -> AnyFloats:
        if self.dictionary_page is None:
            return np.empty(0, self.layout.dtype)
        return self._decode(self.dictionary_page, self._bytes(self.dictionary_page)[1])


def _counted(body: Bytes) -> tuple[Bytes, Bytes]:
    """The section that begins `body` with its length, and what follows it."""
    end = 4 + int.from_bytes(body[:4].tobytes(), "little")
    if body.size < end:
        raise UnfitError("length of the levels")
    return body[4:end], body[end:]


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
