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
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from numpy.typing import NDArray

from drrej.data.pages.layout import DICTIONARY, TAIL, Footer, Layout, Page, indices, scan
from drrej.data.pages.thrift import Bytes, Stored, UnfitError, fresh, inflate

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
            size = metadata.serialized_size + TAIL
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
    pages = scan(file, layout)
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
            for levels, length in zip(self.layout.levels, page.level_bytes or (None, None), strict=True):
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
            return memory, inflate(memory[levels:], page.size - levels, self.layout.codec)
        if page.size != page.stored:
            raise UnfitError("uncompressed size")
        return memory, memory[levels:]

    def _decode(self, page: Page, body: Bytes) -> AnyFloats:
        dtype = self.layout.dtype
        if page.encoding in DICTIONARY:
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
