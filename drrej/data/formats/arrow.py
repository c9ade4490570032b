"""Arrow IPC files (feather, version 2) and streams. Record batches are the row groups; a stream is one.

Arrow trusts what such files say of themselves, so every batch is validated before anybody looks at its values.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from drrej.data.files import DumpFile, Identity
from drrej.data.formats import FileInfo, Request, looked_at, open_bytes, reading
from drrej.errors import DumpError

_MAGIC = b"ARROW1"
_OLD = b"FEA1"
_LARGE = 64 << 20
"""Batches above this are mapped, not read: some programs write a file as one batch."""


class ArrowReader:
    """Reads Arrow IPC files and streams, compressed or not."""

    format = "Arrow"
    endings: tuple[str, ...] = (".arrow", ".feather", ".ipc", ".arrows")

    def reads(self, part: DumpFile) -> bool:
        """By the ending of its name."""
        return part.ends_with(self.endings)

    def contents(self, part: DumpFile, opened: str) -> FileInfo:  # noqa: ARG002 - what was found is kept by identity
        """The columns and the rows of each batch."""
        return looked_at(part, self.format, lambda identity: _look(part, identity))

    def batches(self, request: Request) -> Iterator[pa.RecordBatch]:
        """The rows of a batch of a file, or of all of a stream."""
        part = request.part
        with reading(part), open_bytes(part) as file:
            if not _is_file(file, part):
                yield from _slices(_open_stream(file, request.columns), request)
                return
            size = file.size()
            reader = pa.ipc.open_file(file)
            if part.uri is None and size // max(1, reader.num_record_batches) > _LARGE:
                file.close()
                with pa.memory_map(part.path) as mapped:
                    yield from _slices([_open_file(mapped, request.columns).get_batch(request.group)], request)
                return
            yield from _slices([_open_file(file, request.columns).get_batch(request.group)], request)


def _look(part: DumpFile, identity: Identity) -> FileInfo:
    with open_bytes(part) if part.uri is not None else pa.memory_map(part.path) as file:
        if not _is_file(file, part):
            reader = pa.ipc.open_stream(file)
            schema = _plain(reader.schema)
            return FileInfo(schema, (sum(batch.num_rows for batch in reader),), identity)
        schema = pa.ipc.open_file(file).schema
        reader = _open_file(file, _narrow(schema))
        rows = tuple(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))
        return FileInfo(_plain(schema), rows, identity)


def _is_file(file: Any, part: DumpFile) -> bool:
    """Whether it is a file of batches; a stream has no magic number."""
    head = file.read(8)
    file.seek(0)
    if head.startswith(_OLD):
        raise DumpError(f"{part.name}: it is feather of version 1; write it again as version 2 (Arrow IPC)")
    return bool(head.startswith(_MAGIC))


def _plain(schema: pa.Schema) -> pa.Schema:
    for name in schema.names:
        name.encode()
    return schema.remove_metadata()


def _narrow(schema: pa.Schema) -> list[str]:
    """A column that is quickly read, to count the rows."""
    flat = [field.name for field in schema if pa.types.is_primitive(field.type)]
    return [*flat, *schema.names][:1]


def _included(schema: pa.Schema, columns: Any) -> pa.ipc.IpcReadOptions:
    places = sorted({schema.get_field_index(name) for name in columns} - {-1})
    return pa.ipc.IpcReadOptions(included_fields=places, use_threads=False)


def _open_file(file: Any, columns: Any) -> pa.ipc.RecordBatchFileReader:
    file.seek(0)
    schema = pa.ipc.open_file(file).schema
    return pa.ipc.open_file(file, options=_included(schema, columns))


def _open_stream(file: Any, columns: Any) -> pa.ipc.RecordBatchStreamReader:
    schema = pa.ipc.open_stream(file).schema
    file.seek(0)
    return pa.ipc.open_stream(file, options=_included(schema, columns))


def _slices(batches: Any, request: Request) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        known = [name for name in request.columns if name in batch.schema.names]
        chosen = batch.select(known)
        chosen.validate(full=True)
        for start in range(0, batch.num_rows, request.rows):
            yield chosen.slice(start, request.rows)


GROUP_ROWS = 1 << 16
"""Rows of a row group: what one worker reads at a time."""

_PREFIX = "memory:"
_numbers = itertools.count()
_tables: dict[str, pa.Table] = {}


@contextlib.contextmanager
def held(table: pa.Table, name: str) -> Iterator[DumpFile]:
    """A part that stands for a table; messages call it `name`."""
    path = f"{_PREFIX}{next(_numbers)}"
    _tables[path] = table.combine_chunks()
    try:
        yield DumpFile(path, name, name)
    finally:
        del _tables[path]


class MemoryReader:
    """Reads tables that are held by `held`."""

    format = "table"
    endings: tuple[str, ...] = ()

    def reads(self, part: DumpFile) -> bool:
        """Whether a part is such a table."""
        return part.path.startswith(_PREFIX)

    def contents(self, part: DumpFile, opened: str) -> FileInfo:  # noqa: ARG002 - it cannot change
        """The schema, in row groups of a fixed size."""
        table = _tables[part.path]
        starts = range(0, table.num_rows, GROUP_ROWS)
        return FileInfo(table.schema, tuple(min(GROUP_ROWS, table.num_rows - start) for start in starts), None)

    def batches(self, request: Request) -> Iterator[pa.RecordBatch]:
        """The rows of a row group; nothing is copied."""
        table = _tables[request.part.path]
        known = [name for name in request.columns if name in table.schema.names]
        rows = table.select(known).slice(request.group * GROUP_ROWS, GROUP_ROWS)
        yield from rows.to_batches(max_chunksize=request.rows)
