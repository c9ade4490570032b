"""Parquet batches whose list column of scores comes straight from its pages, see `data.pages`; the rest from Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from drrej.core.types import AnyFloats
from drrej.data.pages import Footer, NeedsArrowError, Storage, open_chunk, open_footer
from drrej.data.readers.base import Request, from_row


class Opened(NamedTuple):
    """An open file: as Arrow sees it, its bytes, and its footer as pages need it (None: leave it to Arrow)."""

    file: pq.ParquetFile
    bytes: Storage
    footer: Footer | None


def footer_of(file: Storage, metadata: pq.FileMetaData) -> Footer | None:
    """The footer for `Opened`."""
    try:
        return open_footer(file, metadata)
    except NeedsArrowError:
        return None


def list_batches(opened: Opened, request: Request) -> Iterator[pa.RecordBatch]:
    """The rows of a row group; the scores are a fixed-size list where pages give them."""
    row = request.start
    try:
        for batch in _from_pages(opened, request):
            yield batch
            row += batch.num_rows
    except NeedsArrowError:
        yield from arrow_batches(opened.file, replace(request, start=row))


def arrow_batches(file: pq.ParquetFile, request: Request) -> Iterator[pa.RecordBatch]:
    """Columns of a row group as Arrow decodes them, which it can do from the first row only."""
    batches: Iterator[pa.RecordBatch] = file.iter_batches(
        batch_size=request.rows, row_groups=[request.group], columns=list(request.columns), use_threads=False
    )
    return from_row(batches, request.start)


def _from_pages(opened: Opened, request: Request) -> Iterator[pa.RecordBatch]:
    scores = request.scores
    assert scores is not None
    leaf = leaf_of(opened.file, scores.column)
    if opened.footer is None or leaf is None:
        raise NeedsArrowError(0, "not a list column of its own")
    chunk = open_chunk(opened.bytes, opened.footer, request.group, leaf, scores.classes)
    others = tuple(name for name in request.columns if name != scores.column)
    beside = _Stream(arrow_batches(opened.file, replace(request, columns=others))) if others else None
    for block in chunk.blocks(request.rows, request.start):
        arrays = {scores.column: _fixed_list(block)}
        if beside is not None:
            arrays |= beside.take(len(block))
        yield pa.RecordBatch.from_arrays([arrays[name] for name in request.columns], names=list(request.columns))


class _Stream:
    """Batches of any size, handed out in pieces of the size that is asked for."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._left: list[pa.RecordBatch] = []

    def take(self, rows: int) -> dict[str, pa.Array]:
        """The columns of the next rows."""
        while sum(batch.num_rows for batch in self._left) < rows:
            batch = next(self._batches, None)
            if batch is None:
                raise NeedsArrowError(0, "columns of other lengths")
            self._left.append(batch)
        (first, *more) = self._left
        if more:
            first = pa.Table.from_batches(self._left).combine_chunks().to_batches()[0]
        taken, rest = first.slice(0, rows), first.slice(rows)
        self._left = [rest] if rest.num_rows else []
        return dict(zip(taken.schema.names, taken.columns, strict=True))


def leaf_of(file: pq.ParquetFile, name: str) -> int | None:
    """The number of the one leaf of a column among those of the schema."""
    schema = file.metadata.schema
    leaves = [i for i in range(len(schema)) if schema.column(i).path.partition(".")[0] == name]
    return leaves[0] if len(leaves) == 1 else None


def _fixed_list(block: AnyFloats) -> pa.FixedSizeListArray:
    values: NDArray[np.floating] = block.reshape(-1)
    plain = pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [None, pa.py_buffer(values)])
    return pa.FixedSizeListArray.from_arrays(plain, block.shape[1])
