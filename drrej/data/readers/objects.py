"""List columns of parquet objects: the chunk of scores is fetched in one request, its pages are read from memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from drrej.data.pages import Footer, NeedsArrowError, chunk_range
from drrej.data.readers.base import Request
from drrej.data.readers.lists import Opened, arrow_batches, leaf_of, list_batches

_MOST_BYTES = 1 << 28
"""Of a chunk: larger ones are left to Arrow, which asks for them in pieces."""
_TAIL = 8


class RemoteFile(NamedTuple):
    """An open object: as Arrow sees it, its bytes, and how its footer for pages is found with a descriptor."""

    file: pq.ParquetFile
    source: pa.NativeFile
    footer: Callable[[int], Footer | None]


def object_batches(remote: RemoteFile, request: Request) -> Iterator[pa.RecordBatch]:
    """The rows of a row group; Arrow reads what pages do not give."""
    with contextlib.ExitStack() as stack:
        try:
            descriptor = os.memfd_create("drrej")
            stack.callback(os.close, descriptor)
            footer = _fetched(remote, request, descriptor)
        except (AttributeError, OSError, NeedsArrowError):  # a system without such files, a wrong footer, the network
            footer = None
        if footer is None:
            yield from arrow_batches(remote.file, request)
        else:
            yield from list_batches(Opened(remote.file, descriptor, footer), request)


def _fetched(remote: RemoteFile, request: Request, descriptor: int) -> Footer | None:
    """The footer, after the chunk of scores was put into a file of memory, at its place and alone."""
    scores, size = request.scores, remote.source.size()
    leaf = None if scores is None else leaf_of(remote.file, scores.column)
    if scores is None or leaf is None:
        return None
    os.ftruncate(descriptor, size)
    footer = remote.footer(descriptor)
    if footer is None:
        return None
    start, end = chunk_range(footer, request.group, leaf, scores.classes)
    if not 0 <= start < end <= size or end - start > _MOST_BYTES:
        return None
    put(descriptor, remote.source, start, end)
    return footer


def put_footer(descriptor: int, source: Any, metadata: pq.FileMetaData) -> None:
    """Copy the end of an object, which holds its footer."""
    size = source.size()
    put(descriptor, source, max(0, size - metadata.serialized_size - _TAIL), size)


def put(descriptor: int, source: Any, start: int, end: int) -> None:
    """Copy some bytes of an object to their place in a file; raises OSError where they are not all there."""
    data = memoryview(source.read_at(end - start, start))
    if len(data) != end - start:
        raise OSError("the object ends early")
    while data:
        written = os.pwrite(descriptor, data, start)
        data, start = data[written:], start + written
