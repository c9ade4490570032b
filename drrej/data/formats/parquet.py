"""Parquet files: settings for streaming, footers that are parsed once, and what can be wrong with them."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Container, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from drrej.data import files
from drrej.data.files import DumpFile, FileInfo, Format, Identity, RangeIndex, Request
from drrej.data.pages import list_blocks
from drrej.data.problems import one_line
from drrej.data.scores import plain_array
from drrej.errors import DumpError

_ALL_BUFFERS = 4 << 20
_LEAST_BUFFER = 1 << 14
_MOST_LISTS = 4
"""Columns of lists whose sizes are looked up: nearly always there is one."""
_MOST_FOOTERS = 1 << 24
"""Bytes of the footers that are kept, as they are stored."""


class _Known(Struct):
    """The footer of a file as Arrow sees it, and what `list_blocks` remembers of it."""

    opened: str
    identity: Identity
    metadata: pq.FileMetaData
    memo: list[Any] = field(default_factory=list)


class _Footers(dict[str, _Known]):
    """Footers already parsed: a file is opened for each of its row groups, and the footer grows with their number."""

    size = 0

    def keep(self, path: str, known: _Known) -> None:
        """Keep a footer; when there is no room all others are forgotten."""
        self.size += known.metadata.serialized_size
        if self.size > _MOST_FOOTERS:
            self.clear()
            self.size = known.metadata.serialized_size
        self[path] = known


_footers = _Footers()


def _look(file: DumpFile, opened: str) -> FileInfo:
    parquet, known, source = _open(file, opened)
    with parquet:
        schema, groups = _schema(parquet, file), _group_rows(parquet, file)
        noted = (parquet.schema_arrow.metadata or {}).get(_PANDAS)
        sizes = _list_sizes(parquet, schema, groups) if _is_plain(parquet, source) else {}
        return FileInfo(schema, groups, known.identity, pandas=noted, list_sizes=sizes)


def _batches(request: Request) -> Iterator[pa.RecordBatch]:
    """The rows of a row group; lists of scores from pages as far as those go, then from Arrow."""
    file = request.file
    with files.reading(file):
        parquet, known, source = _open(file, request.opened, len(request.columns))
        with parquet:
            stored = set(parquet.schema_arrow.names)
            request = replace(request, columns=tuple(name for name in request.columns if name in stored))
            row = request.start
            for batch in _from_pages(parquet, known, source, request):
                yield batch
                row += batch.num_rows
            if row < parquet.metadata.row_group(request.group).num_rows:
                yield from _from_arrow(parquet, replace(request, start=row))


PARQUET = Format("parquet", (".parquet",), _look, _batches)


def _from_arrow(parquet: pq.ParquetFile, request: Request) -> Iterator[pa.RecordBatch]:
    """Columns of a row group as Arrow decodes them, which it can do from the first row only."""
    batches: Iterator[pa.RecordBatch] = parquet.iter_batches(
        batch_size=request.rows, row_groups=[request.group], columns=list(request.columns), use_threads=False
    )
    return files.from_row(batches, request.start)


def _from_pages(parquet: pq.ParquetFile, known: _Known, source: Any, request: Request) -> Iterator[pa.RecordBatch]:
    """The same with the scores as fixed-size lists from `list_blocks`; may end early."""
    scores = request.scores
    if scores is None:
        return
    scores_name, classes = scores
    leaf = _leaf_of(parquet, scores_name)
    if leaf is None:
        return
    others = tuple(name for name in request.columns if name != scores_name)
    beside = _from_arrow(parquet, replace(request, columns=others)) if others else iter(())
    waiting = None
    with open(source, "rb") if isinstance(source, str) else contextlib.nullcontext(source) as stream:
        for block in list_blocks(
            stream, known.metadata, known.memo, request.group, leaf, classes, request.rows, request.start
        ):
            arrays = {scores_name: pa.FixedSizeListArray.from_arrays(plain_array(block.reshape(-1)), classes)}
            if others:
                waiting = _at_least(len(block), waiting, beside)
                if waiting is None:
                    return
                arrays |= dict(zip(others, waiting.slice(0, len(block)).columns, strict=True))
                waiting = waiting.slice(len(block))
            yield pa.RecordBatch.from_arrays([arrays[name] for name in request.columns], names=list(request.columns))


def _at_least(rows: int, waiting: pa.RecordBatch | None, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    """A batch of so many rows or more; None where there are not as many."""
    while waiting is None or waiting.num_rows < rows:
        batch = next(batches, None)
        if batch is None:
            return None
        waiting = batch if not waiting else pa.concat_batches([waiting, batch])
    return waiting


def _open(file: DumpFile, opened: str, columns: int = 1) -> tuple[pq.ParquetFile, _Known, Any]:
    """Open a file with settings that keep its buffers small; also what is known of it, and where its bytes come from.

    The footer is parsed once for each opening of a dump, which `opened` names: the file may have changed since another.
    Each of the `columns` to be read has a buffer of its own.
    """
    buffer = min(1 << 20, max(_LEAST_BUFFER, _ALL_BUFFERS // columns))
    settings: dict[str, Any] = {"pre_buffer": False, "buffer_size": buffer}
    try:
        source: Any = file.path
        if file.uri is not None:
            source, settings = file.filesystem().open_input_file(file.path), {"pre_buffer": True}
        identity = files.identity_of(file, source)
        files.check_unchanged(file, identity)
        known = _footers.get(file.path)
        if known is not None and (not opened or (known.opened, known.identity) != (opened, identity)):
            known = None
        footer = None if known is None else known.metadata
        parquet = pq.ParquetFile(source, metadata=footer, page_checksum_verification=True, **settings)
        if file.uri is None:  # a file that was opened by its name may be another than the one looked at
            files.check_unchanged(replace(file, identity=identity))
        if known is None:
            known = _Known(opened, identity, parquet.metadata)
            if opened:
                _footers.keep(file.path, known)
        return parquet, known, source
    except files.READ_ERRORS as error:
        files.check_unchanged(file)
        raise files.unreadable(file, PARQUET.name, error) from None


def _schema(parquet: pq.ParquetFile, file: DumpFile) -> pa.Schema:
    try:
        schema = parquet.schema_arrow.remove_metadata()
        for name in schema.names:
            name.encode()
    except files.READ_ERRORS as error:
        raise DumpError(f"{file.name}: its schema cannot be read ({one_line(error)}); write it again") from None
    return schema


def _is_plain(parquet: pq.ParquetFile, source: Any) -> bool:
    """Whether no column is encrypted, which pyarrow's description of such a column would end the process for.

    A footer with encrypted columns is signed, so that it is longer than what it says.
    """
    with open(source, "rb") if isinstance(source, str) else contextlib.nullcontext(source) as stream:
        stream.seek(-8, os.SEEK_END)
        length = int.from_bytes(stream.read(4), "little")
    return bool(length == parquet.metadata.serialized_size)


def _list_sizes(parquet: pq.ParquetFile, schema: pa.Schema, groups: tuple[int, ...]) -> dict[str, int]:
    """From the footer alone; damaged ones, and lists in lists, tell nothing."""
    found: dict[str, int] = {}
    lists = [entry.name for entry in schema if isinstance(entry.type, pa.ListType | pa.LargeListType)]
    rows = sum(groups)
    for name in lists[:_MOST_LISTS] if rows else ():
        leaf = _leaf_of(parquet, name)
        if leaf is None:
            continue
        try:
            values = sum(parquet.metadata.row_group(i).column(leaf).num_values for i in range(len(groups)))
        except files.READ_ERRORS:
            continue
        if values > 0 and values % rows == 0:
            found[name] = values // rows
    return found


def _group_rows(parquet: pq.ParquetFile, file: DumpFile) -> tuple[int, ...]:
    try:
        rows = tuple(parquet.metadata.row_group(i).num_rows for i in range(parquet.metadata.num_row_groups))
    except files.READ_ERRORS as error:
        raise DumpError(f"{file.name}: its footer cannot be read ({one_line(error)}); write it again") from None
    if any(count < 0 for count in rows) or sum(rows) != parquet.metadata.num_rows:
        raise DumpError(f"{file.name}: its footer contradicts itself about the number of rows; write it again")
    return rows


def _leaf_of(parquet: pq.ParquetFile, name: str) -> int | None:
    """The number of the one leaf of a column among those of the schema."""
    schema = parquet.metadata.schema
    leaves = [i for i in range(len(schema)) if schema.column(i).path.partition(".")[0] == name]
    return leaves[0] if len(leaves) == 1 else None


# The index of a pandas frame, as pandas notes it in a schema: a mask that keeps it aligns with the frame

_PANDAS = b"pandas"


def with_index(schema: pa.Schema, noted: bytes | None) -> pa.Schema:
    """The schema of a mask with what pandas noted about those columns of the dump that the mask has.

    An index that is not kept as a whole is none. One that is a mere range is that of a file, see `with_range`.
    """
    tree = _tree(noted)
    if tree is None:
        return schema
    index = [name for name in tree["index_columns"] if isinstance(name, str)]
    whole = bool(index) and all(name in schema.names for name in index)
    kept = _described(tree["columns"], schema.names)
    tree |= {"index_columns": index if whole else [], "columns": kept, "column_indexes": []}
    return schema.with_metadata({_PANDAS: json.dumps(tree).encode()})


def with_range(schema: pa.Schema, parts: Sequence[DumpFile]) -> pa.Schema:
    """The schema of the mask of these parts, one after the other, if their indexes are ranges that make one range."""
    tree = _tree((schema.metadata or {}).get(_PANDAS))
    index = _joined([part.index for part in parts])
    if index is None or tree is None:
        return schema
    found = {"kind": "range"} | asdict(index)
    return schema.with_metadata({_PANDAS: json.dumps(tree | {"index_columns": [found]}).encode()})


def _joined(indexes: Sequence[RangeIndex | None]) -> RangeIndex | None:
    """The range of files one after the other; None where there is none."""
    first = indexes[0]
    for before, after in pairwise(indexes):
        if before is None or after is None or first is None:
            return None
        follows = before.start + before.step * len(range(before.start, before.stop, before.step))
        if (after.start, after.step, after.name) != (follows, first.step, first.name):
            return None
    last = indexes[-1]
    return None if first is None or last is None else replace(first, stop=last.stop)


def _described(columns: Any, names: Container[str]) -> list[Any]:
    return [column for column in columns if isinstance(column, dict) and column.get("field_name") in names]


def _tree(noted: bytes | None) -> dict[str, Any] | None:
    """What pandas noted, if it is what pandas would note: anybody may write there."""
    try:
        tree = json.loads(noted or b"null")
    except ValueError:
        return None
    known = isinstance(tree, dict) and all(isinstance(tree.get(key), list) for key in ("index_columns", "columns"))
    return tree if known else None


def range_of(noted: bytes | None, rows: int) -> RangeIndex | None:
    """The range that is the index of a file of so many rows; None for any other index."""
    index = (_tree(noted) or {"index_columns": []})["index_columns"]
    if len(index) != 1 or not isinstance(index[0], dict) or index[0].get("kind") != "range":
        return None
    numbers: list[Any] = [index[0].get(key) for key in ("start", "stop", "step")]
    name = index[0].get("name")
    if not all(type(number) is int for number in numbers) or not numbers[2] or not isinstance(name, str | None):
        return None
    start, stop, step = numbers
    return RangeIndex(start, stop, step, name) if len(range(*numbers)) == rows else None
