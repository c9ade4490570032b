"""The bytes of a page: from the file, and uncompressed. A header's sizes are believed only as far as checked."""

from __future__ import annotations

import os
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.data.pages.thrift import UnfitError, varint

Bytes = NDArray[np.uint8]


def fresh(size: int) -> Bytes:
    """Memory of one's own, aligned: from Arrow's pool, which keeps what is given back."""
    memory: Bytes = np.frombuffer(pa.allocate_buffer(size), np.uint8)
    return memory


def read_into(memory: Bytes, file: int, offset: int) -> Bytes:
    """Fill `memory` from the file."""
    done = 0
    while done < memory.size:
        count = os.preadv(file, [memory[done:].data], offset + done)
        if not count:
            raise UnfitError("the file ends early")
        done += count
    return memory


def inflate(data: Bytes, size: int, codec: str) -> Bytes:
    """`data` uncompressed, which must be `size` bytes long.

    Arrow's codecs take a larger `size` for room and leave the rest as it was, so the length is looked at here.
    """
    if size < 1:
        raise UnfitError("uncompressed size")
    try:
        if codec == "gzip":
            stream = zlib.decompressobj(wbits=31)
            result: Any = stream.decompress(data.data, size + 1)
            fits = len(result) == size and stream.eof and not stream.unused_data
        else:
            decoder = pa.Codec(codec)
            if codec == "snappy":
                fits = varint(data[:5].tobytes(), 0)[0] == size
            else:
                fits = codec == "zstd" or not _has_room(decoder, data, size)  # Arrow does check zstd
            result = decoder.decompress(data, size) if fits else b""
    except (pa.ArrowException, OSError, zlib.error, IndexError) as error:
        raise UnfitError(f"compressed data ({error})") from None
    if not fits:
        raise UnfitError("uncompressed size")
    return np.frombuffer(result, np.uint8)


def _has_room(decoder: pa.Codec, data: Bytes, size: int) -> bool:
    """Whether the uncompressed data fit into fewer than `size` bytes."""
    try:
        decoder.decompress(data, size - 1)
    except (pa.ArrowException, OSError):
        return False
    return True
