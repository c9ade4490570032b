"""List columns of parquet objects: the chunk of scores is fetched in one request, its pages are read from memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from drrej.data.pages import TAIL, Fetched, Footer, NeedsArrowError, chunk_range
from drrej.data.readers.base import Request
from drrej.data.readers.lists import Opened, arrow_batches, leaf_of, list_batches

_MOST_BYTES = 1 << 28
"""Of a chunk: larger ones are left to Arrow, which asks for them in pieces."""


class RemoteFile(NamedTuple):
    """An open object: as Arrow sees it, its bytes, and how its footer for pages is found."""

    file: pq.ParquetFile
    source: pa.NativeFile
    footer: Callable[[], Footer | None]


def object_batches(remote: RemoteFile, request: Request) -> Iterator[pa.RecordBatch]:
    """The rows of a row group; Arrow reads what pages do not give."""
    try:
        opened = _fetched(remote, request)
    except (OSError, NeedsArrowError):  # the network, a wrong footer
        opened = None
    yield from arrow_batches(remote.file, request) if opened is None else list_batches(opened, request)


def _fetched(remote: RemoteFile, request: Request) -> Opened | None:
    """The object with its chunk of scores fetched, if that can be read by pages."""
    scores, size = request.scores, remote.source.size()
    leaf = None if scores is None else leaf_of(remote.file, scores.column)
    footer = None if leaf is None else remote.footer()
    if scores is None or leaf is None or footer is None:
        return None
    start, end = chunk_range(footer, request.group, leaf, scores.classes)
    if not 0 <= start < end <= size or end - start > _MOST_BYTES:
        return None
    return Opened(remote.file, fetch(remote.source, start, end), footer)


def fetch_footer(source: Any, metadata: pq.FileMetaData) -> Fetched:
    """The end of an object, which holds its footer."""
    size = source.size()
    return fetch(source, max(0, size - metadata.serialized_size - TAIL), size)


def fetch(source: Any, start: int, end: int) -> Fetched:
    """Some bytes of an object; raises OSError where they are not all there."""
    data = np.frombuffer(source.read_at(end - start, start), np.uint8)
    if data.size != end - start:
        raise OSError("the object ends early")
    return Fetched(source.size(), start, data)
