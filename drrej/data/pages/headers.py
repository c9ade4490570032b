"""Page headers of parquet (thrift, compact protocol), read by hand: the one part of a file that Arrow does not show.

A header is a struct of a few small numbers. What no writer of dumps uses (lists, field numbers in long form, numbers
beyond 32 bits, deeper structs) makes it `UnfitError`, and Arrow gets to judge it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

PLAIN, RLE, BYTE_STREAM_SPLIT = 0, 3, 9
DICTIONARY = (2, 8)
"""PLAIN_DICTIONARY, of old writers, and RLE_DICTIONARY: the same bytes."""

_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_TRUE, _FALSE, _I16, _I32, _I64, _BINARY, _STRUCT = 1, 2, 4, 5, 6, 8, 12
_DEPTH = 3  # a page header, a data page header in it, the statistics in that

_Fields = dict[int, Any]


class UnfitError(Exception):
    """Bytes that this package does not read; Arrow may."""


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


def parse_page(data: bytes, offset: int) -> tuple[Page, int]:
    """The page whose header begins `data`, read at `offset` of the file, and the offset of what follows the page.

    Raises IndexError where `data` ends before the header does, `UnfitError` for a header that is not understood.
    """
    header, length = _struct(data, 0, _DEPTH)
    kind = header.get(1)
    stored, size, crc = _number(header, 3), _number(header, 2), header.get(4)
    if crc is not None and type(crc) is not int:
        raise UnfitError("page header: checksum")
    known = (offset + length, stored, size, crc)
    end = offset + length + stored
    if kind == _DATA_PAGE:
        fields = _group(header, 5)
        encodings = (_number(fields, 4), _number(fields, 3))
        return Page(*known, _number(fields, 1), _number(fields, 2), level_encodings=encodings), end
    if kind == _DATA_PAGE_V2:
        fields = _group(header, 8)
        compressed = fields.get(7, True)
        if _number(fields, 2) != 0 or type(compressed) is not bool:
            raise UnfitError("nulls")
        lengths, rows = (_number(fields, 6), _number(fields, 5)), _number(fields, 3)
        page = Page(*known, _number(fields, 1), _number(fields, 4), level_bytes=lengths, rows=rows)
        return page._replace(compressed=compressed), end
    if kind == _DICTIONARY_PAGE:
        fields = _group(header, 7)
        if _number(fields, 2) not in (PLAIN, DICTIONARY[0]):  # old writers call it so; the values are plain
            raise UnfitError("encoding of the dictionary")
        return Page(*known, _number(fields, 1), PLAIN, dictionary=True), end
    raise UnfitError("page of an unknown type")


def varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned number of at most 32 bits, and where it ends."""
    byte = data[at]
    value, shift = byte & 0x7F, 0
    while byte > 0x7F:
        at, shift = at + 1, shift + 7
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if value >> 32 or shift > 28:
            raise UnfitError("a number of more than 32 bits")
    return value, at + 1


def _struct(data: bytes, at: int, depth: int) -> tuple[_Fields, int]:
    """The numbers, flags and structs of the struct at `at`, by field, and where it ends; strings are passed over."""
    if not depth:
        raise UnfitError("page header: nesting")
    fields: _Fields = {}
    field = 0
    while byte := data[at]:
        at += 1
        kind, step = byte & 15, byte >> 4
        field += step
        if not step:
            raise UnfitError("page header: field number")
        if kind == _BINARY:
            length, at = varint(data, at)
            at += length
        elif kind in (_I32, _I64, _I16):
            value, at = varint(data, at)
            if kind == _I32:  # the numbers of page headers are of this kind; a field of another kind is not the field
                fields[field] = (value >> 1) ^ -(value & 1)
        elif kind == _STRUCT:
            fields[field], at = _struct(data, at, depth - 1)
        elif kind in (_TRUE, _FALSE):
            fields[field] = kind == _TRUE
        else:
            raise UnfitError("page header: field type")
    return fields, at + 1


def _number(fields: _Fields, field: int) -> int:
    """A number that must be there and must not be negative."""
    value = fields.get(field)
    if type(value) is not int or value < 0:
        raise UnfitError(f"page header: field {field}")
    return value


def _group(fields: _Fields, field: int) -> _Fields:
    value = fields.get(field)
    if type(value) is not dict:
        raise UnfitError(f"page header: field {field}")
    return value
