"""Parquet files: settings for streaming, footers that are parsed once, and what can be wrong with them."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from drrej.data import files
from drrej.data.files import DumpFile, FileInfo, Format, Identity, RangeIndex, Request
from drrej.data.pages import I64, UnfitError, column_chunks, list_blocks, number
from drrej.data.problems import one_line
from drrej.data.scores import plain_array
from drrej.errors import DumpError

_ALL_BUFFERS = 4 << 20
_LEAST_BUFFER = 1 << 14
_MOST_LISTS = 4
"""Columns of lists whose sizes are looked up: nearly always there is one."""
_TAIL = 8
"""Bytes after the footer."""
_MOST_FOOTERS = 1 << 24
"""Bytes of the footers that are kept, as they are stored."""

Footer = tuple[Identity, pq.FileMetaData, bytes]
"""What a file was when its footer was parsed, the footer as Arrow sees it, and its bytes if no column is encrypted."""

_footers: dict[str, Footer] = {}
"""Those already parsed, by path: a file is opened for each of its row groups."""


def _look(file: DumpFile) -> FileInfo:
    parquet, (identity, metadata, text), _ = _open(file)
    with parquet:
        try:
            schema = parquet.schema_arrow.remove_metadata()
            _ = schema.names  # raises where one is not text
            rows = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
        except files.READ_ERRORS as error:
            raise DumpError(f"{file.name}: its footer cannot be read ({one_line(error)}); write it again") from None
        if any(count < 0 for count in rows) or sum(rows) != metadata.num_rows:
            raise DumpError(f"{file.name}: its footer contradicts itself about the number of rows; write it again")
        sizes = _list_sizes(metadata, text, schema)
        noted = (parquet.schema_arrow.metadata or {}).get(_PANDAS)
        return FileInfo(schema, rows, identity, pandas=noted, list_sizes=sizes)


def _batches(request: Request) -> Iterator[pa.RecordBatch]:
    """The rows of a row group; lists of scores from pages as far as those go, then from Arrow."""
    file = request.file
    with files.reading(file):
        parquet, (_, _, text), source = _open(file, len(request.columns))
        with parquet:
            stored = set(parquet.schema_arrow.names)
            request = replace(request, columns=tuple(name for name in request.columns if name in stored))
            row = request.start
            for batch in _from_pages(parquet, source, text, request):
                yield batch
                row += batch.num_rows
            if row < parquet.metadata.row_group(request.group).num_rows:
                yield from _from_arrow(parquet, replace(request, start=row))


PARQUET = Format("parquet", _look, _batches)


def _from_arrow(parquet: pq.ParquetFile, request: Request) -> Iterator[pa.RecordBatch]:
    """Columns of a row group as Arrow decodes them, which it can do from the first row only."""
    batches: Iterator[pa.RecordBatch] = parquet.iter_batches(
        batch_size=request.rows, row_groups=[request.group], columns=list(request.columns), use_threads=False
    )
    return files.from_row(batches, request.start)


def _from_pages(parquet: pq.ParquetFile, source: Any, text: bytes, request: Request) -> Iterator[pa.RecordBatch]:
    """The same with the scores as fixed-size lists from `list_blocks`; may end early."""
    scores_name, classes = request.scores or ("", 0)
    leaf = _leaf_of(parquet.metadata, scores_name)
    if leaf is None:
        return
    others = [name for name in request.columns if name != scores_name]
    beside = _from_arrow(parquet, replace(request, columns=others)) if others else iter(())
    waiting: pa.RecordBatch | None = None
    with pa.OSFile(source) if isinstance(source, str) else contextlib.nullcontext(source) as stream:
        place = (request.group, leaf, classes)
        for block in list_blocks(stream, parquet.metadata, text, *place, request.rows, request.start):
            arrays = {scores_name: pa.FixedSizeListArray.from_arrays(plain_array(block.reshape(-1)), classes)}
            if others:
                while waiting is None or waiting.num_rows < len(block):
                    batch = next(beside, None)
                    if batch is None:
                        return
                    waiting = batch if waiting is None else pa.concat_batches([waiting, batch])
                arrays |= dict(zip(others, waiting.slice(0, len(block)).columns, strict=True))
                waiting = waiting.slice(len(block))
            yield pa.RecordBatch.from_arrays([arrays[name] for name in request.columns], names=list(request.columns))


def _open(file: DumpFile, columns: int = 1) -> tuple[pq.ParquetFile, Footer, Any]:
    """Open a file with settings that keep its buffers small; also its footer, and where its bytes come from.

    The footer is parsed once, as long as the file does not change. Each of the `columns` to be read has a buffer of its
    own.
    """
    buffer = min(1 << 20, max(_LEAST_BUFFER, _ALL_BUFFERS // columns))
    settings: dict[str, Any] = {"pre_buffer": False, "buffer_size": buffer}
    try:
        source: Any = file.path
        if file.uri is not None:
            source, settings = file.filesystem().open_input_file(file.path), {"pre_buffer": True}
        identity = files.identity_of(file, source)
        files.check_unchanged(file, identity)
        footer = _footers.get(file.path)
        if footer is not None and footer[0] != identity:
            footer = None
        parsed = None if footer is None else footer[1]
        parquet = pq.ParquetFile(source, metadata=parsed, page_checksum_verification=True, **settings)
        if file.uri is None:  # a file that was opened by its name may be another than the one looked at
            files.check_unchanged(replace(file, identity=identity))
        if footer is None:
            size = parquet.metadata.serialized_size
            if (len(_footers) + 1) * size > _MOST_FOOTERS:  # those of a dump are about as large as one another
                _footers.clear()
            _footers[file.path] = footer = identity, parquet.metadata, _footer_bytes(source, size)
        return parquet, footer, source
    except files.READ_ERRORS as error:
        files.check_unchanged(file)
        raise files.damaged(file, error, PARQUET.name) from None


def _footer_bytes(source: Any, size: int) -> bytes:
    """The bytes of a footer that Arrow takes to be so long; none where a column is encrypted.

    Then it is signed, and longer than what it says; pyarrow's description of such a column would end the process.
    """
    with open(source, "rb") if isinstance(source, str) else contextlib.nullcontext(source) as stream:
        stream.seek(-size - _TAIL, os.SEEK_END)
        text, length = stream.read(size), stream.read(4)
    return text if int.from_bytes(length, "little") == size else b""


def _list_sizes(metadata: pq.FileMetaData, text: bytes, schema: pa.Schema) -> dict[str, int]:
    """From the footer alone; damaged ones, and lists in lists, tell nothing."""
    found: dict[str, int] = {}
    lists = [entry.name for entry in schema if isinstance(entry.type, pa.ListType | pa.LargeListType)]
    for name in lists[:_MOST_LISTS] if metadata.num_rows else ():
        with contextlib.suppress(UnfitError, IndexError):
            leaf = _leaf_of(metadata, name)
            values = 0 if leaf is None else sum(number(chunks[leaf], 5, I64) for chunks in column_chunks(text))
            if values and values % metadata.num_rows == 0:
                found[name] = values // metadata.num_rows
    return found


def _leaf_of(metadata: pq.FileMetaData, name: str) -> int | None:
    """The number of the one leaf of a column among those of the schema."""
    schema = metadata.schema
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
    kept = [
        column for column in tree["columns"] if isinstance(column, dict) and column.get("field_name") in schema.names
    ]
    tree |= {"index_columns": index if whole else [], "columns": kept, "column_indexes": []}
    return schema.with_metadata({_PANDAS: json.dumps(tree).encode()})


def with_range(schema: pa.Schema, parts: Sequence[DumpFile]) -> pa.Schema:
    """The schema of the mask of these parts, one after the other, if their indexes are ranges that make one range."""
    tree = _tree((schema.metadata or {}).get(_PANDAS))
    indexes = [part.index for part in parts if part.index is not None]
    if tree is None or len(indexes) < len(parts):
        return schema
    for (start, stop, step, name), after in pairwise(indexes):
        follows = start + step * len(range(start, stop, step))
        if (after[0], *after[2:]) != (follows, step, name):
            return schema
    (start, _, step, name), stop = indexes[0], indexes[-1][1]
    found = {"kind": "range", "start": start, "stop": stop, "step": step, "name": name}
    index = {_PANDAS: json.dumps(tree | {"index_columns": [found]}).encode()}
    return schema.with_metadata((schema.metadata or {}) | index)


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
    found: list[Any] = [index[0].get(key) for key in ("start", "stop", "step", "name")]
    start, stop, step, name = found
    if not all(type(number) is int for number in (start, stop, step)) or not step or not isinstance(name, str | None):
        return None
    return (start, stop, step, name) if len(range(start, stop, step)) == rows else None
