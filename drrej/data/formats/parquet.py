"""Parquet files: settings for streaming, footers that are parsed once, and what can be wrong with them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from drrej.core.types import AnyFloats
from drrej.data.files import DumpFile, Identity, check_unchanged, identity_of, one_line
from drrej.data.formats import READ_ERRORS, FileInfo, Request, from_row, reading, unreadable
from drrej.data.pages import (
    TAIL,
    Fetched,
    Footer,
    LocalFile,
    NeedsArrowError,
    Storage,
    chunk_range,
    open_chunk,
    open_footer,
)
from drrej.errors import DumpError
from drrej.records import dataclass

_ALL_BUFFERS = 4 << 20
_LEAST_BUFFER = 1 << 14
_MOST_LISTS = 4
"""Columns of lists whose sizes are looked up: nearly always there is one."""
_MOST_FOOTERS = 1 << 24
"""Bytes of the footers that are kept, as they are stored."""


@dataclass
class _Known:
    """The footer of a file as Arrow sees it, and as pages need it: a list of one once that is known."""

    opened: str
    identity: Identity
    metadata: pq.FileMetaData
    pages: list[Footer | None] = field(default_factory=list)

    def for_pages(self, file: Storage) -> Footer | None:
        """The footer as pages need it; None: leave the file to Arrow."""
        if not self.pages:
            self.pages.append(footer_of(file, self.metadata))
        return self.pages[0]

    def for_pages_of(self, source: Any) -> Footer | None:
        """The same of an object, whose end is fetched for that."""
        return self.pages[0] if self.pages else self.for_pages(fetch_footer(source, self.metadata))


class _Footers:
    """Footers already parsed: a file is opened for each of its row groups, and the footer grows with their number."""

    def __init__(self) -> None:
        self.found: dict[str, _Known] = {}
        self._bytes = 0

    def keep(self, path: str, known: _Known) -> None:
        """Keep a footer; when there is no room all others are forgotten."""
        size = known.metadata.serialized_size
        if self._bytes + size > _MOST_FOOTERS:
            self.found, self._bytes = {}, 0
        self.found[path] = known
        self._bytes += size


_footers = _Footers()


class ParquetReader:
    """Reads parquet files."""

    format = "parquet"
    endings: tuple[str, ...] = (".parquet",)

    def reads(self, part: DumpFile) -> bool:
        """By the ending of its name."""
        return part.path.endswith(self.endings)

    def contents(self, part: DumpFile, opened: str) -> FileInfo:
        """The schema and the rows of each row group."""
        file, known, _ = _open(part, opened)
        with file:
            schema, groups = _schema(file, part), _group_rows(file, part)
            noted = (file.schema_arrow.metadata or {}).get(b"pandas")
            return FileInfo(schema, groups, known.identity, pandas=noted, list_sizes=_list_sizes(file, schema, groups))

    def batches(self, request: Request) -> Iterator[pa.RecordBatch]:
        """The rows of a row group, decoded in order."""
        part = request.part
        with reading(part):
            file, known, source = _open(part, request.opened, len(request.columns))
            with file:
                stored = set(file.schema_arrow.names)
                request = replace(request, columns=tuple(name for name in request.columns if name in stored))
                if request.scores is None:
                    yield from arrow_batches(file, request)
                    return
                if part.uri is not None:
                    remote = RemoteFile(file, source, functools.partial(known.for_pages_of, source))
                    yield from object_batches(remote, request)
                    return
                with open(part.path, "rb") as stream:
                    local = LocalFile(stream.fileno())
                    yield from list_batches(Opened(file, local, known.for_pages(local)), request)


def _open(part: DumpFile, opened: str, columns: int = 1) -> tuple[pq.ParquetFile, _Known, Any]:
    """Open a part with settings that keep its buffers small, and tell what it is now, and where its bytes come from.

    The footer is parsed once for each opening of a dump, which `opened` names: the file may have changed since another.
    Each of the `columns` to be read has a buffer of its own.
    """
    buffer = min(1 << 20, max(_LEAST_BUFFER, _ALL_BUFFERS // columns))
    settings: dict[str, Any] = {"pre_buffer": False, "buffer_size": buffer}
    try:
        source: Any = part.path
        if part.uri is not None:
            source, settings = part.filesystem().open_input_file(part.path), {"pre_buffer": True}
        identity = identity_of(part, source)
        check_unchanged(part, identity)
        known = _footers.found.get(part.path)
        if known is None or not opened or (known.opened, known.identity) != (opened, identity):
            known = None
        footer = None if known is None else known.metadata
        file = pq.ParquetFile(source, metadata=footer, page_checksum_verification=True, **settings)
        if part.uri is None:  # a file that was opened by its name may be another than the one looked at
            check_unchanged(replace(part, identity=identity))
        if known is None:
            known = _Known(opened, identity, file.metadata)
            if opened:
                _footers.keep(part.path, known)
        return file, known, source
    except READ_ERRORS as error:
        check_unchanged(part)
        raise unreadable(part, ParquetReader.format, error) from None


def _schema(file: pq.ParquetFile, part: DumpFile) -> pa.Schema:
    try:
        schema = file.schema_arrow.remove_metadata()
        for name in schema.names:
            name.encode()
    except READ_ERRORS as error:
        raise DumpError(f"{part.name}: its schema cannot be read ({one_line(error)}); write it again") from None
    return schema


def _list_sizes(file: pq.ParquetFile, schema: pa.Schema, groups: tuple[int, ...]) -> dict[str, int]:
    """From the footer alone; damaged ones, and lists in lists, tell nothing."""
    found: dict[str, int] = {}
    lists = [entry.name for entry in schema if isinstance(entry.type, pa.ListType | pa.LargeListType)]
    rows = sum(groups)
    for name in lists[:_MOST_LISTS] if rows else ():
        leaf = leaf_of(file, name)
        if leaf is None:
            continue
        try:
            values = sum(file.metadata.row_group(i).column(leaf).num_values for i in range(len(groups)))
        except READ_ERRORS:
            continue
        if values > 0 and values % rows == 0:
            found[name] = values // rows
    return found


def _group_rows(file: pq.ParquetFile, part: DumpFile) -> tuple[int, ...]:
    try:
        rows = tuple(file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups))
    except READ_ERRORS as error:
        raise DumpError(f"{part.name}: its footer cannot be read ({one_line(error)}); write it again") from None
    if any(count < 0 for count in rows) or sum(rows) != file.metadata.num_rows:
        raise DumpError(f"{part.name}: its footer contradicts itself about the number of rows; write it again")
    return rows


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
