"""The bytes of a page: from where they are, and uncompressed. A header's sizes are believed only as far as checked."""

from __future__ import annotations

import os
import zlib
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.data.pages.thrift import UnfitError, varint
from drrej.records import dataclass

Bytes = NDArray[np.uint8]


def fresh(size: int) -> Bytes:
    """Memory of one's own, aligned: from Arrow's pool, which keeps what is given back."""
    memory: Bytes = np.frombuffer(pa.allocate_buffer(size), np.uint8)
    return memory


class Storage(Protocol):
    """Where the bytes of a file are."""

    @property
    def size(self) -> int:
        """Of the whole file."""

    def some(self, offset: int, count: int) -> bytes:
        """So many bytes, or fewer where they end."""

    def page(self, offset: int, count: int) -> Bytes:
        """So many bytes, to be left as they are; aligned at their end, if that costs nothing."""


@dataclass(frozen=True)
class LocalFile:
    """A file by its descriptor, which must stay open."""

    descriptor: int

    @property
    def size(self) -> int:
        """As it is now."""
        return os.fstat(self.descriptor).st_size

    def some(self, offset: int, count: int) -> bytes:
        """See `Storage`."""
        return os.pread(self.descriptor, count, offset)

    def page(self, offset: int, count: int) -> Bytes:
        """See `Storage`."""
        memory = fresh(count + 7)[-count % 8 :][:count]
        done = 0
        while done < count:
            read = os.preadv(self.descriptor, [memory[done:].data], offset + done)
            if not read:
                raise UnfitError("the file ends early")
            done += read
        return memory


@dataclass(frozen=True)
class Fetched:
    """The bytes from `start` on of a file that is elsewhere, as far as they were fetched."""

    size: int
    start: int
    data: Bytes

    def some(self, offset: int, count: int) -> bytes:
        """See `Storage`."""
        return self._slice(offset, count).tobytes()

    def page(self, offset: int, count: int) -> Bytes:
        """See `Storage`."""
        page = self._slice(offset, count)
        if page.size != count:
            raise UnfitError("the bytes end early")
        return page

    def _slice(self, offset: int, count: int) -> Bytes:
        if offset < self.start:
            raise UnfitError("bytes that were not fetched")
        return self.data[offset - self.start :][:count]


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
