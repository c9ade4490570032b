"""The values of a float column, straight from the pages of its column chunk."""

from __future__ import annotations

import itertools
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from drrej.data.pages.headers import BYTE_STREAM_SPLIT, DICTIONARY, Page, UnfitError
from drrej.data.pages.runs import indices
from drrej.data.pages.scan import Layout, scan
from drrej.data.pages.storage import Bytes, fresh, inflate, read_into, scratch

AnyFloats = NDArray[np.floating[Any]]


class NeedsArrowError(Exception):
    """Arrow must read this column of the row group from `row` on; the rows handed out before it are right."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"row {row}: {reason}")
        self.row = row
        self.reason = reason


def open_chunk(file: int, metadata: pq.FileMetaData, row_group: int, leaf: int, classes: int) -> Chunk:
    """The chunk of the column `leaf` (a number among the leaves of the schema) in a row group.

    `file` is a descriptor of a local file. All page headers are read; where they, the type, or the numbers of rows and
    values do not fit `classes` floats in each row, `NeedsArrowError` is raised.
    """
    try:
        layout = Layout.of(metadata, row_group, leaf, classes)
        pages = scan(file, layout)
    except (UnfitError, pa.ArrowException) as error:
        raise NeedsArrowError(0, str(error)) from None
    dictionary = pages.pop(0) if pages[0].dictionary else None
    firsts = np.cumsum([0, *(page.values for page in pages)]).tolist()
    return Chunk(file, layout, tuple(pages), tuple(firsts), dictionary)


@dataclass(frozen=True)
class Chunk:
    """A column chunk of lists of K values, whose page headers were read and fit.

    Several threads may read it at the same time.
    """

    file: int
    layout: Layout
    pages: tuple[Page, ...]
    firsts: tuple[int, ...]
    """The number of the first value of each page, and of all values."""
    dictionary_page: Page | None

    def split(self, parts: int) -> list[tuple[int, int]]:
        """At most `parts` ranges of rows, cut where pages begin: several threads may read one each."""
        starts = -(-np.array(self.firsts) // self.layout.classes)
        wanted = np.arange(1, parts) * self.layout.rows // parts
        edges = sorted({0, self.layout.rows, *starts[np.searchsorted(starts, wanted)].tolist()})
        return list(itertools.pairwise(edges))

    def blocks(self, rows: int, start: int = 0, stop: int | None = None) -> Iterator[AnyFloats]:
        """The rows from `start` to `stop`, in order, as arrays of `rows` x classes; the last may have fewer rows.

        An array stays as it is, but may share its memory with others: do not write into it. `NeedsArrowError` is raised
        at a page that does not fit.
        """
        row, stop = start, self.layout.rows if stop is None else stop
        block: AnyFloats | None = None
        done: AnyFloats | None = None
        filled = 0
        try:
            for span in self._spans(start, stop):
                while done is not None or span.size:
                    if done is not None:
                        yield done.reshape(-1, self.layout.classes)
                        row, done = row + done.size // self.layout.classes, None
                        continue
                    if block is None:
                        wanted = min(rows, stop - row) * self.layout.classes
                        if span.size >= wanted and span.flags.aligned:
                            done, span = span[:wanted], span[wanted:]
                        else:
                            block, filled = fresh(wanted * self.layout.dtype.itemsize).view(self.layout.dtype), 0
                    if block is not None:
                        some = span[: block.size - filled]
                        block[filled : filled + some.size] = some
                        filled, span = filled + some.size, span[some.size :]
                        if filled == block.size:
                            done, block = block, None
                    if not span.size:
                        break  # whether the last row ends here is for the next page to say
            if done is not None:
                yield done.reshape(-1, self.layout.classes)
        except UnfitError as error:
            raise NeedsArrowError(row, str(error)) from None

    def _spans(self, start: int, stop: int) -> Iterator[AnyFloats]:
        """The values of the rows, page by page, up to the page that shows where the last row ends."""
        first, last = start * self.layout.classes, stop * self.layout.classes
        number = bisect_right(self.firsts, first) - 1
        while number < len(self.pages) and self.firsts[number] <= last:
            begin = self.firsts[number]
            yield self._values(number)[max(0, first - begin) : last - begin]
            number += 1

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
        """A page as it is stored, for this thread's next look only, and its uncompressed bytes without v2 levels."""
        codec = self.layout.codec if page.compressed else None
        if codec is not None:
            memory = scratch(page.stored)
        else:  # these values may go into the hands of the caller; they end with the page, which is to be aligned
            memory = fresh(page.stored + 7)[-page.stored % 8 :][: page.stored]
        read_into(memory, self.file, page.offset)
        if page.crc is not None and zlib.crc32(memory.data) != page.crc & 0xFFFFFFFF:
            raise UnfitError("checksum")
        apart = sum(page.level_bytes or ())
        if codec is not None:
            return memory, inflate(memory[apart:], page.size - apart, codec)
        if page.size != page.stored:
            raise UnfitError("uncompressed size")
        return memory, memory[apart:]

    def _decode(self, page: Page, body: Bytes) -> AnyFloats:
        dtype = self.layout.dtype
        if page.encoding in DICTIONARY:
            places = indices(body.tobytes(), page.values)
            if places.max() >= self._dictionary.size:
                raise UnfitError("index beyond the dictionary")
            return self._dictionary.take(places, mode="clip")
        if body.size != page.values * dtype.itemsize:
            raise UnfitError("size of the values")
        if page.encoding == BYTE_STREAM_SPLIT:
            body = body.reshape(dtype.itemsize, -1).T.reshape(-1)
        return body.view(dtype)

    @cached_property
    def _dictionary(self) -> AnyFloats:
        assert self.dictionary_page is not None
        return self._decode(self.dictionary_page, self._bytes(self.dictionary_page)[1])


def _counted(body: Bytes) -> tuple[Bytes, Bytes]:
    """The section that begins `body` with its length, and what follows it."""
    end = 4 + int.from_bytes(body[:4].tobytes(), "little")
    if body.size < end:
        raise UnfitError("length of the levels")
    return body[4:end], body[end:]
