"""Thrift's compact protocol, as far as parquet footers and page headers use it.

Every length is one of these bytes' own, so nothing is allocated or repeated beyond their number. What no writer uses
(maps, field numbers in long form, lists of flags) is an `UnfitError`; bytes that end early are an IndexError.
"""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np
import pyarrow as pa
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
