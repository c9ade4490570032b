"""The pages of a column chunk, by their headers."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from drrej.data.pages.footer import Layout
from drrej.data.pages.storage import Storage
from drrej.data.pages.thrift import I32, TRUE, UnfitError, number, read_struct, substruct

PLAIN, RLE, BYTE_STREAM_SPLIT = 0, 3, 9
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


def scan(file: Storage, layout: Layout) -> list[Page]:
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


def _page(file: Storage, at: int, end: int) -> tuple[Page, int]:
    """The page whose header is at `at`, and where the page ends."""
    for length in _HEADER_BYTES:
        with contextlib.suppress(IndexError):  # the header is longer
            return parse_page(file.some(at, min(length, end - at)), at)
    raise UnfitError("length of a page header")


def _check(page: Page, layout: Layout, first: int) -> None:
    """Raise `UnfitError` where the header of the page that begins with value number `first` does not fit."""
    if not page.values or max(page.size, page.stored, page.values * 4) > MOST_PAGE_BYTES:
        raise UnfitError("size of a page")
    if page.encoding not in (PLAIN, BYTE_STREAM_SPLIT, *DICTIONARY):
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
