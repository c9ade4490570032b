"""JSON lines: an object per line. The file is cut into pieces at ends of lines, which Arrow parses one by one.

The first piece tells the columns and their types; an object that says otherwise later is an error with its place.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from drrej.data.files import DumpFile, Identity, one_line
from drrej.data.formats import (
    CHUNK,
    FileInfo,
    Request,
    compression_of,
    cut,
    end_of_lines,
    looked_at,
    open_text,
    read_range,
    reading,
    with_compressions,
)
from drrej.data.formats.lm_eval import Place as LogPlace
from drrej.data.formats.lm_eval import batches as log_batches
from drrej.data.formats.lm_eval import is_log
from drrej.data.formats.lm_eval import look as look_at_log
from drrej.errors import DumpError
from drrej.records import dataclass

_CONFLICT = re.compile(r"Column\(/?(.*?)\) (.*) in row (\d+)")


@dataclass(frozen=True)
class Place:
    """Where a piece is: its bytes (`stop` None: all of a compressed file), its first row, and the columns' types."""

    start: int
    stop: int | None
    first_row: int
    schema: pa.Schema


class JsonLinesReader:
    """Reads JSON lines; .gz and .zst too."""

    format = "JSON lines"
    endings = with_compressions(".jsonl", ".ndjson")

    def reads(self, part: DumpFile) -> bool:
        """By the ending of its name."""
        return part.ends_with(self.endings)

    def contents(self, part: DumpFile, opened: str) -> FileInfo:  # noqa: ARG002 - what was found is kept by identity
        """The columns, and pieces of about the same size as row groups; a compressed file is one."""
        return looked_at(part, self.format, lambda identity: _look(part, identity))

    def batches(self, request: Request) -> Iterator[pa.RecordBatch]:
        """The rows of a piece, or of all of a compressed file."""
        part, place = request.part, request.place
        if isinstance(place, LogPlace):
            yield from log_batches(request, place)
            return
        assert isinstance(place, Place)
        with reading(part):
            if place.stop is not None:
                yield from _batches(request, place, read_range(part, place.start, place.stop))
                return
            with open_text(part) as stream:
                for chunk in cut(stream, 0, end_of_lines, part.name):
                    for batch in _batches(request, place, chunk.text):
                        place = replace(place, first_row=place.first_row + batch.num_rows)
                        yield batch


def _look(part: DumpFile, identity: Identity) -> FileInfo:
    with open_text(part) as stream:
        if is_log(stream.read(CHUNK)):
            return look_at_log(part, identity)
    schema: pa.Schema | None = None
    rows: list[int] = []
    ends: list[int] = []
    with open_text(part) as stream:
        for chunk in cut(stream, 0, end_of_lines, part.name):
            rows.append(_count(chunk.text))
            ends.append(chunk.start + len(chunk.text))
            if schema is None and rows[-1]:
                schema = _parse(chunk.text, None, part, sum(rows[:-1])).schema
    names = (
        pa.schema([]) if schema is None else pa.schema([field.with_type(_stored_json(field.type)) for field in schema])
    )
    if compression_of(part) is not None:
        return FileInfo(names, (sum(rows),), identity, (Place(0, None, 0, names),), typed=False)
    spans = zip([0, *ends], ends, itertools.accumulate(rows, initial=0), strict=False)
    return FileInfo(names, tuple(rows), identity, tuple(Place(*span, names) for span in spans), typed=False)


def _count(text: bytes) -> int:
    """Lines that are not blank."""
    if b"\n\n" in text or b"\r" in text or text.startswith(b"\n") or b" \n" in text:
        return sum(1 for line in text.split(b"\n") if line.strip())
    return text.count(b"\n") + (not text.endswith(b"\n"))


def _stored_json(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_null(kind) else kind


def _batches(request: Request, place: Place, text: bytes) -> Iterator[pa.RecordBatch]:
    wanted = pa.schema([place.schema.field(name) for name in request.columns if name in place.schema.names])
    table = _parse(text, wanted, request.part, place.first_row)
    yield from table.select(wanted.names).to_batches(max_chunksize=request.rows)


def _parse(text: bytes, schema: pa.Schema | None, part: DumpFile, first_row: int) -> pa.Table:
    """The objects of a piece; without a schema all of their fields, in types that are found out."""
    from pyarrow import json as pajson

    lines = _count(text)
    if not lines:
        return pa.schema(schema or []).empty_table()
    try:
        table = pajson.read_json(
            pa.BufferReader(text),
            pajson.ReadOptions(use_threads=False, block_size=len(text) + 1),
            pajson.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "ignore"
            ),
        )
    except (pa.ArrowException, ValueError) as error:
        _name_the_row(text, schema, part, first_row)
        found = _CONFLICT.search(str(error))
        if found is None:
            raise
        row = first_row + int(found[3])
        raise DumpError(f"{part.name}: column '{found[1]}': row {row}, counted from 0: it {found[2]}") from None
    if table.num_rows != lines:
        raise DumpError(f"{part.name}: {lines} lines hold {table.num_rows} objects; write one JSON object per line")
    return table


def _name_the_row(text: bytes, schema: pa.Schema | None, part: DumpFile, first_row: int) -> None:
    """Raise about the first line that is no JSON object, or has a value of another type."""
    for row, line in enumerate((line for line in text.split(b"\n") if line.strip()), first_row):
        where = f"row {row}, counted from 0,"
        try:
            found: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())[:120]
            raise DumpError(
                f"{part.name}: {where} is not JSON ({reason}); write one JSON object per line, without line breaks"
            ) from None
        if not isinstance(found, dict):
            raise DumpError(
                f"{part.name}: {where} is not a JSON object; write one object per line, as pandas does with "
                "orient='records', lines=True"
            )
        for field in schema or ():
            value = found.get(field.name)
            try:
                pa.scalar(value, field.type)
            except (pa.ArrowException, ValueError, TypeError, OverflowError):
                raise DumpError(
                    f"{part.name}: column '{field.name}': {where} holds {json.dumps(value)[:40]}, but the rows before "
                    f"hold {field.type}; write it in one type"
                ) from None


_FORMS = 'a table is {"columns": [...], "data": [[...], ...]} or an array of objects'


class JsonTableReader:
    """Reads tables in JSON documents."""

    format = "JSON table"
    endings = with_compressions(".json")

    def reads(self, part: DumpFile) -> bool:
        """By the ending of its name."""
        return part.ends_with(self.endings)

    def contents(self, part: DumpFile, opened: str) -> FileInfo:  # noqa: ARG002 - what was found is kept by identity
        """Its columns; the rows are one row group."""

        def look(identity: Any) -> FileInfo:
            table = _table(part)
            return FileInfo(table.schema, (table.num_rows,), identity, typed=False)

        return looked_at(part, self.format, look)

    def batches(self, request: Request) -> Iterator[pa.RecordBatch]:
        """All rows."""
        with reading(request.part):
            table = _table(request.part)
            known = [name for name in request.columns if name in table.column_names]
            yield from table.select(known).to_batches(max_chunksize=request.rows)


def is_table(document: Any) -> bool:
    """Whether a JSON document is a table of one of the forms.

    >>> is_table({"columns": ["a"], "data": [[1]]}), is_table({"format": "drrej-rejector/1"})
    (True, False)
    """
    if isinstance(document, dict):
        return isinstance(document.get("columns"), list) and isinstance(document.get("data"), list)
    return isinstance(document, list) and all(isinstance(row, dict) for row in document)


def _table(part: DumpFile) -> pa.Table:
    with open_text(part) as stream:
        text = b"".join(iter(lambda: stream.read(1 << 20), b""))
    try:
        document = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not is_table(document):
        raise DumpError(f"{part.name}: not a table: {_FORMS}; an object per line is JSON lines: end its name in .jsonl")
    if isinstance(document, list):
        names = list(dict.fromkeys(name for row in document for name in row))
        cells = {name: [row.get(name) for row in document] for name in names}
    else:
        names = [str(name) for name in document["columns"]]
        for number, row in enumerate(document["data"]):
            if not isinstance(row, list) or len(row) != len(names):
                raise DumpError(
                    f"{part.name}: row {number}, counted from 0, has not a value for each of its {len(names)} columns"
                )
        if len(set(names)) < len(names):
            raise DumpError(f"{part.name}: column '{max(names, key=names.count)}' occurs twice; rename one of them")
        cells = {name: [row[i] for row in document["data"]] for i, name in enumerate(names)}
    return pa.table({name: _column(name, values, part) for name, values in cells.items()})


def _column(name: str, values: list[Any], part: DumpFile) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise DumpError(
            f"{part.name}: column '{name}' holds values of several types ({one_line(error)}); write it in one type"
        ) from None
