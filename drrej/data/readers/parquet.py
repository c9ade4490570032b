"""Parquet files: settings for streaming, footers that are parsed once, and what can be wrong with them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from drrej.data.identity import check_unchanged, identity_of
from drrej.data.pages import Footer, LocalFile, Storage
from drrej.data.part import Identity, Part, one_line
from drrej.data.readers.base import READ_ERRORS, Contents, Request, reading, unreadable
from drrej.data.readers.lists import Opened, arrow_batches, footer_of, leaf_of, list_batches
from drrej.data.readers.objects import RemoteFile, fetch_footer, object_batches
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

    def reads(self, part: Part) -> bool:
        """By the ending of its name."""
        return part.path.endswith(self.endings)

    def contents(self, part: Part, opened: str) -> Contents:
        """The schema and the rows of each row group."""
        file, known, _ = _open(part, opened)
        with file:
            schema, groups = _schema(file, part), _group_rows(file, part)
            noted = (file.schema_arrow.metadata or {}).get(b"pandas")
            return Contents(schema, groups, known.identity, pandas=noted, list_sizes=_list_sizes(file, schema, groups))

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


def _open(part: Part, opened: str, columns: int = 1) -> tuple[pq.ParquetFile, _Known, Any]:
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


def _schema(file: pq.ParquetFile, part: Part) -> pa.Schema:
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


def _group_rows(file: pq.ParquetFile, part: Part) -> tuple[int, ...]:
    try:
        rows = tuple(file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups))
    except READ_ERRORS as error:
        raise DumpError(f"{part.name}: its footer cannot be read ({one_line(error)}); write it again") from None
    if any(count < 0 for count in rows) or sum(rows) != file.metadata.num_rows:
        raise DumpError(f"{part.name}: its footer contradicts itself about the number of rows; write it again")
    return rows
