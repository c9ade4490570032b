"""Parquet files put together byte by byte: pages as no library writes them, damaged or only unusual."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12
CODECS = {None: 0, "snappy": 1, "zstd": 6}
DTYPES = {"<f4": (4, 0), "<f8": (5, 0), "<f2": (7, 2)}  # physical type and its length


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def thrift(*fields: tuple[int, int, Any]) -> bytes:
    """A struct in the compact protocol; fields are (number, kind, value), lists hold (kind, items)."""
    out, last = b"", 0
    for number, kind, value in fields:
        if isinstance(value, bool):
            kind = 1 if value else 2
        out += bytes([(number - last) << 4 | kind])
        last = number
        if not isinstance(value, bool):
            out += _value(kind, value)
    return out + b"\0"


def _value(kind: int, value: Any) -> bytes:
    if kind in (I32, I64):
        return varint(value << 1 if value >= 0 else (-value << 1) - 1)
    if kind == BINARY:
        return varint(len(value)) + value
    if kind == LIST:
        inner, items = value
        head = bytes([len(items) << 4 | inner]) if len(items) < 15 else bytes([0xF0 | inner]) + varint(len(items))
        return head + b"".join(_value(inner, item) for item in items)
    return bytes(value)  # a struct


def packed(levels: Sequence[int], width: int) -> bytes:
    """Levels as one run of packed values."""
    padded = np.zeros(-(-len(levels) // 8) * 8, np.uint8)
    padded[: len(levels)] = levels
    bits = (padded[:, None] >> np.arange(width, dtype=np.uint8)) & 1
    return varint(padded.size // 8 << 1 | 1) + np.packbits(bits, bitorder="little").tobytes()


def repeated(levels: Sequence[int], width: int) -> bytes:
    """Levels as runs of equal values."""
    ends = [*(np.flatnonzero(np.diff(levels)) + 1), len(levels)]
    out, start = b"", 0
    for end in ends:
        out += varint(int(end - start) << 1) + int(levels[start]).to_bytes(-(-width // 8), "little")
        start = end
    return out


def mixed(levels: Sequence[int], width: int, piece: int = 24) -> bytes:
    """Levels in packed runs and runs of equal values, as they come in pieces."""
    out = b""
    for start in range(0, len(levels), piece):
        part = levels[start : start + piece]
        out += repeated(part, width) if len(set(part)) == 1 else packed(part, width)
    return out


@dataclass(frozen=True)
class ForgedPage:
    """A page; `header` and `tail` replace what belongs there."""

    repetition: bytes
    definition: bytes
    values: bytes
    count: int
    encoding: int = 0
    version: int = 1
    crc: int | None = None  # 0: the right one is put in
    header: dict[str, int] = field(default_factory=dict)
    dictionary: bool = False

    def stored(self, codec: str | None) -> tuple[bytes, bytes]:
        """The header and the bytes after it."""
        if self.version == 2:
            levels, body = self.repetition + self.definition, self.values
        elif self.dictionary:
            levels, body = b"", self.values
        else:
            parts = (self.repetition, self.definition)
            levels, body = b"", b"".join(struct.pack("<I", len(x)) + x for x in parts) + self.values
        size = len(levels) + len(body)
        if codec is not None:
            body = pa.Codec(codec).compress(body, asbytes=True)
        body = levels + body
        return self._header(size, body), body

    def _header(self, size: int, body: bytes) -> bytes:
        h = {"kind": 2 if self.dictionary else 0 if self.version == 1 else 3, "size": size, "stored": len(body)}
        h |= {"count": self.count, "encoding": self.encoding, "definition_encoding": 3, "repetition_encoding": 3}
        h |= {"nulls": 0, "rows": h["count"], "definition_bytes": len(self.definition)}
        h |= {"repetition_bytes": len(self.repetition), **self.header}
        if self.dictionary:
            number, names = 7, ["count", "encoding"]
        elif self.version == 1:
            number, names = 5, ["count", "encoding", "definition_encoding", "repetition_encoding"]
        else:
            number, names = 8, ["count", "nulls", "rows", "encoding", "definition_bytes", "repetition_bytes"]
        inner = thrift(*((at, I32, h[name]) for at, name in enumerate(names, 1)))
        fields: list[tuple[int, int, Any]] = [(1, I32, h["kind"]), (2, I32, h["size"]), (3, I32, h["stored"])]
        if self.crc is not None:
            crc = zlib.crc32(body) ^ self.crc
            fields.append((4, I32, crc - (1 << 32) if crc >> 31 else crc))
        return thrift(*fields, (number, STRUCT, inner))


def list_pages(
    values: np.ndarray[Any, Any], cuts: Sequence[int], encode: Any = mixed, version: int = 1
) -> list[ForgedPage]:
    """Pages of lists (rows x classes), cut at the numbers of values given."""
    rows, classes = values.shape
    levels = np.tile(np.arange(classes) > 0, rows).astype(int).tolist()
    pages = []
    for start, end in zip([0, *cuts], [*cuts, values.size], strict=True):
        texts = encode(levels[start:end], 1), encode([3] * (end - start), 2)
        page = ForgedPage(*texts, values.reshape(-1)[start:end].tobytes(), end - start, version=version)
        pages.append(replace(page, header={"rows": (end - start) // classes}))
    return pages


def forge(
    pages: Sequence[ForgedPage], rows: int, dtype: str = "<f4", codec: str | None = None, trailer: bytes = b""
) -> bytes:
    """A file with one row group and one column `logits`, an optional list of optional floats."""
    out, count, size = b"PAR1", 0, 0
    offsets = []
    for page in pages:
        header, body = page.stored(codec)
        offsets.append(len(out))
        out += header + body
        size += len(header) + len(body)
        count += 0 if page.dictionary else page.count
    out += trailer
    kind, length = DTYPES[dtype]
    logical = [(10, STRUCT, thrift((15, STRUCT, thrift())))] if dtype == "<f2" else []
    schema = [
        thrift((4, BINARY, b"schema"), (5, I32, 1)),
        thrift((3, I32, 1), (4, BINARY, b"logits"), (5, I32, 1), (6, I32, 3)),
        thrift((3, I32, 2), (4, BINARY, b"list"), (5, I32, 1)),
        thrift((1, I32, kind), (2, I32, length), (3, I32, 1), (4, BINARY, b"element"), *logical),
    ]
    first = [(11, I64, offsets[0])] if pages[0].dictionary else []
    chunk = thrift(
        (1, I32, kind),
        (2, LIST, (I32, [0, 3, 8])),
        (3, LIST, (BINARY, [b"logits", b"list", b"element"])),
        (4, I32, CODECS[codec]),
        (5, I64, count),
        (6, I64, size),
        (7, I64, size + len(trailer)),
        (9, I64, offsets[:2][-1] if pages[0].dictionary else offsets[0]),
        *first,
    )
    column = thrift((2, I64, 4), (3, STRUCT, chunk))
    group = thrift((1, LIST, (STRUCT, [column])), (2, I64, size), (3, I64, rows))
    footer = thrift((1, I32, 2), (2, LIST, (STRUCT, schema)), (3, I64, rows), (4, LIST, (STRUCT, [group])))
    return out + footer + struct.pack("<I", len(footer)) + b"PAR1"
