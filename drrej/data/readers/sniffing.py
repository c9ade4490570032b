"""The format of a file whose name does not tell, from its first bytes."""

from __future__ import annotations

import json
import zlib

HEAD = 1 << 16
"""Bytes that are looked at."""

_MAGIC = {
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
    b"FEA1": ".feather",
    b"\xff\xff\xff\xff": ".arrows",
    b"\x93NUMPY": ".npy",
    b"PK\x03\x04": ".npz",
}
_GZIP, _ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def ending_of(head: bytes) -> str | None:
    r"""The ending that a file should have, None where its first bytes say nothing.

    >>> ending_of(b"PAR1..."), ending_of(b'{"logits": [1.5, 2.0]}\n{"lo'), ending_of(b"a,b,label\n1,2,0\n")
    ('.parquet', '.jsonl', '.csv')
    """
    for magic, ending in _MAGIC.items():
        if head.startswith(magic):
            return ending
    if head.startswith(_GZIP):
        text = _text_ending(zlib.decompressobj(31).decompress(head, HEAD))
        return None if text is None else f"{text}.gz"
    if head.startswith(_ZSTANDARD):
        text = _text_ending(_zstandard(head))
        return None if text is None else f"{text}.zst"
    return _text_ending(head)


def _zstandard(head: bytes) -> bytes:
    import pyarrow as pa

    stream = pa.CompressedInputStream(pa.BufferReader(head), "zstd")
    try:
        text: bytes = stream.read(1 << 10)
    except OSError:  # cut off
        return b""
    return text


def _text_ending(text: bytes) -> str | None:
    start = text.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start or b"\0" in text:
        return None
    if start[:1] in b"{[":
        line, newline, rest = start.partition(b"\n")
        return (
            ".jsonl"
            if start[:1] == b"{" and newline and rest.strip()[:1] in (b"{", b"") and _is_json(line)
            else ".json"
        )
    header, first = (*start.split(b"\n", 2), b"")[:2]
    marks = (b",", b"\t", b";", b"|")
    return ".csv" if any(0 < header.count(mark) <= first.count(mark) for mark in marks) else None


def _is_json(line: bytes) -> bool:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return not {"columns", "data"} <= set(found)
