"""Tables that this process holds, read like files: the way by which arrays go through the pipeline."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pyarrow as pa

from drrej.data.part import Part
from drrej.data.readers.base import Contents, Request

GROUP_ROWS = 1 << 16
"""Rows of a row group: what one worker reads at a time."""

_PREFIX = "memory:"
_numbers = itertools.count()
_tables: dict[str, pa.Table] = {}


@contextlib.contextmanager
def held(table: pa.Table, name: str) -> Iterator[Part]:
    """A part that stands for a table; messages call it `name`."""
    path = f"{_PREFIX}{next(_numbers)}"
    _tables[path] = table.combine_chunks()
    try:
        yield Part(path, name, name)
    finally:
        del _tables[path]


class MemoryReader:
    """Reads tables that are held by `held`."""

    format = "table"
    endings: tuple[str, ...] = ()

    def reads(self, part: Part) -> bool:
        """Whether a part is such a table."""
        return part.path.startswith(_PREFIX)

    def contents(self, part: Part, opened: str) -> Contents:  # noqa: ARG002 - it cannot change
        """The schema, in row groups of a fixed size."""
        table = _tables[part.path]
        starts = range(0, table.num_rows, GROUP_ROWS)
        return Contents(table.schema, tuple(min(GROUP_ROWS, table.num_rows - start) for start in starts), None)

    def batches(self, request: Request) -> Iterator[pa.RecordBatch]:
        """The rows of a row group; nothing is copied."""
        table = _tables[request.part.path]
        known = [name for name in request.columns if name in table.schema.names]
        rows = table.select(known).slice(request.group * GROUP_ROWS, GROUP_ROWS)
        yield from rows.to_batches(max_chunksize=request.rows)
