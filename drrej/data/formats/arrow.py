"""Arrow IPC files (feather, version 2) and streams, text that is spooled as such a file, and tables in memory.

Arrow trusts what such files say of themselves, so every batch of somebody else is validated before anybody looks at its
values. Record batches are the row groups; a stream is one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from drrej.data import files
from drrej.data.files import DumpFile, FileInfo, Format, Identity, Request
from drrej.errors import DumpError

_MAGIC = b"ARROW1"
_OLD = b"FEA1"
_LARGE = 64 << 20
"""Batches above this are mapped, not read: some programs write a file as one batch."""


def _look(file: DumpFile) -> FileInfo:
    def look(identity: Identity) -> FileInfo:
        with files.open_bytes(file) if file.uri is not None else pa.memory_map(file.path) as stream:
            return _contents(stream, identity, file.name)

    return files.looked_at(file, ARROW.name, look)


def _batches(request: Request) -> Iterator[pa.RecordBatch]:
    with files.reading(request.file):
        yield from _rows_of(files.open_bytes(request.file), request, None if request.file.uri else request.file.path)


ARROW = Format("Arrow", _look, _batches)


def _contents(stream: Any, identity: Identity, name: str) -> FileInfo:
    if not _is_file(stream, name):
        reader = pa.ipc.open_stream(stream)
        return FileInfo(reader.schema.remove_metadata(), (sum(batch.num_rows for batch in reader),), identity)
    schema = pa.ipc.open_file(stream).schema
    flat = [field.name for field in schema if pa.types.is_primitive(field.type)]
    reader = _open_file(stream, [*flat, *schema.names][:1])  # a column that is quickly read, to count the rows
    rows = tuple(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))
    return FileInfo(schema.remove_metadata(), rows, identity)


def _rows_of(stream: Any, request: Request, path: str | None, trusted: bool = False) -> Iterator[pa.RecordBatch]:
    """The rows of a batch of a file, or of all of a stream; `path` is that of a file on this machine."""
    with stream:
        batches: Iterable[pa.RecordBatch]
        if not _is_file(stream, request.file.name):
            schema = pa.ipc.open_stream(stream).schema
            stream.seek(0)
            batches = pa.ipc.open_stream(stream, options=_included(schema, request.columns))
        elif path is not None and stream.size() // max(1, pa.ipc.open_file(stream).num_record_batches) > _LARGE:
            with pa.memory_map(path) as mapped:
                batches = [_open_file(mapped, request.columns).get_batch(request.group)]
        else:
            batches = [_open_file(stream, request.columns).get_batch(request.group)]
        for batch in files.from_row(iter(batches), request.start):
            known = set(batch.schema.names)
            chosen = batch.select([name for name in request.columns if name in known])
            if not trusted:
                chosen.validate(full=True)
            for start in range(0, batch.num_rows, request.rows):
                yield chosen.slice(start, request.rows)


def _is_file(stream: Any, name: str) -> bool:
    """Whether it is a file of batches; a stream has no magic number."""
    head = stream.read(8)
    stream.seek(0)
    if head.startswith(_OLD):
        raise DumpError(f"{name}: it is feather of version 1; write it again as version 2 (Arrow IPC)")
    return bool(head.startswith(_MAGIC))


def _included(schema: pa.Schema, columns: Sequence[str]) -> pa.ipc.IpcReadOptions:
    places = sorted({schema.get_field_index(name) for name in columns} - {-1})
    return pa.ipc.IpcReadOptions(included_fields=places, use_threads=False)


def _open_file(stream: Any, columns: Sequence[str]) -> pa.ipc.RecordBatchFileReader:
    stream.seek(0)
    schema = pa.ipc.open_file(stream).schema
    return pa.ipc.open_file(stream, options=_included(schema, columns))


# Spooled text


def spooled(name: str, write: Callable[[DumpFile, str], frozenset[str] | None]) -> Format:
    """A format that is converted once, by `write(file, path)`, to an Arrow IPC file; a process elsewhere makes its own.

    Its numbers are written as text, so that what looks whole may be a floating-point number.
    """

    def look(file: DumpFile) -> FileInfo:
        def make(identity: Identity) -> FileInfo:
            path = files.temporary_path()
            try:
                altered = write(file, path)
                with pa.memory_map(path) as stream:
                    info = _contents(stream, identity, file.name)
                own = [each for each in info.schema if altered is None or not each.name.endswith(files.AS_WRITTEN)]
                return replace(info, schema=pa.schema(own), typed=False, spool=path, altered=altered or frozenset())
            except BaseException as error:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                if isinstance(error, OSError) and error.errno in files.NO_ROOM:
                    raise files.no_room(file.name, error) from None
                raise

        return files.looked_at(file, name, make)

    def batches(request: Request) -> Iterator[pa.RecordBatch]:
        with files.reading(request.file):
            path = look(request.file).spool
            yield from _rows_of(pa.OSFile(path), request, path, trusted=True)

    return Format(name, look, batches)


def write_batches(path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write a spool."""
    with pa.ipc.new_file(path, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


# Tables in memory

GROUP_ROWS = 1 << 16
"""Rows of a row group: what one worker reads at a time."""

_tables: dict[str, pa.Table] = {}
_numbers = itertools.count()


@contextlib.contextmanager
def held(table: pa.Table, name: str) -> Iterator[DumpFile]:
    """A file that stands for a table of this process, the way by which arrays go through the pipeline."""
    path = f"memory:{next(_numbers)}"
    _tables[path] = table.combine_chunks()
    try:
        yield DumpFile(path, name, name, ending=files.IN_MEMORY)
    finally:
        del _tables[path]


def _look_at_table(file: DumpFile) -> FileInfo:
    table = _tables[file.path]
    starts = range(0, table.num_rows, GROUP_ROWS)
    return FileInfo(table.schema, tuple(min(GROUP_ROWS, table.num_rows - start) for start in starts), None)


def _table_batches(request: Request) -> Iterator[pa.RecordBatch]:
    table = _tables[request.file.path]
    present = set(table.schema.names)
    known = [name for name in request.columns if name in present]
    start = request.group * GROUP_ROWS
    rows = table.select(known).slice(start + request.start, max(0, GROUP_ROWS - request.start))
    yield from rows.to_batches(max_chunksize=request.rows)


MEMORY = Format("table", _look_at_table, _table_batches)
