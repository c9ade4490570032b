"""What is known of a column chunk before its values are read: its place, type and levels, and the headers of its pages."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from drrej.data.pages.headers import BYTE_STREAM_SPLIT, DICTIONARY, PLAIN, RLE, Page, Unfit, parse_page
from drrej.data.pages.runs import Levels
from drrej.data.pages.storage import CODECS

MOST_PAGE_BYTES = 1 << 27
"""Larger pages are left to Arrow: a header may claim any size."""
FEWEST_VALUES = 1 << 10
"""Values of an average page; with smaller pages Arrow is not slower."""

_MOST_LEVEL = 7
_HEADER_BYTES = (1 << 8, 1 << 16)  # read for a header: at first, and when it is longer


@dataclass(frozen=True)
class Layout:
    """What the footer says of a column chunk, and what its pages have to fit."""

    start: int
    end: int
    rows: int
    classes: int
    dtype: np.dtype[Any]
    codec: str | None
    levels: tuple[Levels | None, Levels | None]
    """What repetition and definition levels must say; None where the column has none."""

    @classmethod
    def of(cls, metadata: pq.FileMetaData, row_group: int, leaf: int, classes: int) -> Layout:
        """The layout of the column `leaf` in a row group, if it holds `classes` floats in each row."""
        group, column = metadata.row_group(row_group), metadata.schema.column(leaf)
        stored = group.column(leaf)
        if group.num_rows < 1 or classes < 1 or stored.num_values != group.num_rows * classes:
            raise Unfit("number of values")
        start: int = stored.data_page_offset
        if stored.has_dictionary_page and 0 < stored.dictionary_page_offset < start:
            start = stored.dictionary_page_offset
        if start < 4 or stored.total_compressed_size < 1 or stored.file_path or stored.compression not in CODECS:
            raise Unfit("place or codec of the column chunk")
        depth, top = column.max_repetition_level, column.max_definition_level
        if depth > 1 or top > _MOST_LEVEL or (depth == 0 and classes > 1):
            raise Unfit("nesting")
        repetition = Levels(classes, 0, int(classes > 1), 1) if depth else None
        definition = Levels(1, top, top, top.bit_length()) if top else None
        return cls(
            start,
            start + stored.total_compressed_size,
            group.num_rows,
            classes,
            _dtype(column, stored),
            CODECS[stored.compression],
            (repetition, definition),
        )

    def check(self, page: Page, first: int) -> None:
        """Raise `Unfit` where the header of the page that begins with value number `first` does not fit."""
        if not page.count or max(page.size, page.stored) > MOST_PAGE_BYTES or page.offset + page.stored > self.end:
            raise Unfit("size of a page")
        if page.dictionary:
            if page.encoding not in (PLAIN, *DICTIONARY):
                raise Unfit("encoding of the dictionary")
            return
        if page.encoding not in (PLAIN, BYTE_STREAM_SPLIT, *DICTIONARY):
            raise Unfit("encoding")
        lengths = page.level_bytes or (0, 0)
        for levels, encoding, length in zip(self.levels, page.level_encodings, lengths, strict=True):
            if encoding != RLE if levels is not None else length:
                raise Unfit("levels")
        if sum(lengths) > min(page.size, page.stored):
            raise Unfit("length of the levels")
        if page.rows is not None and (first % self.classes or page.rows * self.classes != page.count):
            raise Unfit("rows of a page")


def _dtype(column: Any, stored: Any) -> np.dtype[Any]:
    kind = {"FLOAT": "<f4", "DOUBLE": "<f8"}.get(column.physical_type)
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY" and column.length == 2 and column.logical_type.type == "FLOAT16":
        kind = "<f2"
    if kind is None or stored.physical_type != column.physical_type:
        raise Unfit("type")
    return np.dtype(kind)


def scan(file: int, layout: Layout) -> list[Page]:
    """The pages of a chunk, the dictionary's first, by their headers: they must fill it and hold all its values."""
    if layout.end > os.fstat(file).st_size:
        raise Unfit("the file ends early")
    pages: list[Page] = []
    at, count, total = layout.start, 0, layout.rows * layout.classes
    while at < layout.end:
        page, after = _page(file, at, layout.end)
        layout.check(page, count)
        if page.dictionary and pages:
            raise Unfit("a dictionary after the first page")
        if page.encoding in DICTIONARY and not page.dictionary and not pages[0].dictionary:
            raise Unfit("no dictionary")
        pages.append(page)
        at, count = after, count + (0 if page.dictionary else page.count)
        if len(pages) > 16 + count // FEWEST_VALUES:
            raise Unfit("many small pages")
    if count != total:
        raise Unfit("number of values")
    return pages


def _page(file: int, at: int, end: int) -> tuple[Page, int]:
    for length in _HEADER_BYTES:
        try:
            return parse_page(os.pread(file, min(length, end - at), at), at)
        except IndexError:  # the header is longer
            continue
    raise Unfit("page header: length")
