"""What is known of a column chunk before its values are read: its place, type, levels, page headers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from drrej.data.pages.headers import BYTE_STREAM_SPLIT, DICTIONARY, PLAIN, RLE, Page, UnfitError, parse_page
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
    levels: tuple[Levels, Levels]
    """What repetition and definition levels must say."""

    @classmethod
    def of(cls, metadata: pq.FileMetaData, row_group: int, leaf: int, classes: int) -> Layout:
        """The layout of the column `leaf` in a row group, if it holds `classes` floats in each row."""
        group, column = metadata.row_group(row_group), metadata.schema.column(leaf)
        stored = group.column(leaf)
        if group.num_rows < 1 or classes < 1 or stored.num_values != group.num_rows * classes:
            raise UnfitError("number of values")
        start: int = stored.data_page_offset
        if stored.has_dictionary_page and 0 < stored.dictionary_page_offset < start:
            start = stored.dictionary_page_offset
        if start < 4 or stored.total_compressed_size < 1 or stored.file_path or stored.compression not in CODECS:
            raise UnfitError("place or codec of the column chunk")
        top = column.max_definition_level
        if column.max_repetition_level != 1 or not 0 < top <= _MOST_LEVEL:
            raise UnfitError("not a list")
        repetition = Levels(classes, 0, int(classes > 1), 1)
        definition = Levels(1, top, top, top.bit_length())
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
        """Raise `UnfitError` where the header of the page that begins with value number `first` does not fit."""
        if not page.values or max(page.size, page.stored) > MOST_PAGE_BYTES or page.offset + page.stored > self.end:
            raise UnfitError("size of a page")
        if page.dictionary:
            return
        if page.encoding not in (PLAIN, BYTE_STREAM_SPLIT, *DICTIONARY):
            raise UnfitError("encoding")
        if page.level_encodings != (RLE, RLE) or sum(page.level_bytes or ()) > min(page.size, page.stored):
            raise UnfitError("levels")
        if page.rows is not None and (first % self.classes or page.rows * self.classes != page.values):
            raise UnfitError("rows of a page")


def _dtype(column: Any, stored: Any) -> np.dtype[Any]:
    kind = {"FLOAT": "<f4", "DOUBLE": "<f8"}.get(column.physical_type)
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY" and column.length == 2 and column.logical_type.type == "FLOAT16":
        kind = "<f2"
    if kind is None or stored.physical_type != column.physical_type:
        raise UnfitError("type")
    return np.dtype(kind)


def scan(file: int, layout: Layout) -> list[Page]:
    """The pages of a chunk, the dictionary's first, by their headers: they must fill it and hold all its values."""
    if layout.end > os.fstat(file).st_size:
        raise UnfitError("the file ends early")
    pages: list[Page] = []
    at, count, total = layout.start, 0, layout.rows * layout.classes
    while at < layout.end:
        page, after = _page(file, at, layout.end)
        layout.check(page, count)
        if page.dictionary and pages:
            raise UnfitError("a dictionary after the first page")
        if page.encoding in DICTIONARY and not page.dictionary and not pages[0].dictionary:
            raise UnfitError("no dictionary")
        pages.append(page)
        at, count = after, count + (0 if page.dictionary else page.values)
        if len(pages) > 16 + count // FEWEST_VALUES:
            raise UnfitError("many small pages")
    if count != total:
        raise UnfitError("number of values")
    return pages


def _page(file: int, at: int, end: int) -> tuple[Page, int]:
    for length in _HEADER_BYTES:
        try:
            return parse_page(os.pread(file, min(length, end - at), at), at)
        except IndexError:  # the header is longer
            continue
    raise UnfitError("page header: length")
