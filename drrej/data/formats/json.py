"""JSON: an object per line, or a table in one document. Both become an Arrow file.

The first piece of JSON lines tells the columns; where a later one has fractions among whole numbers, or values where
there were none, all is read again in types that hold both. Any other change of type is an error with its place. A table
is parsed as a whole: {"columns": [...], "data": [[...], ...]} of MLflow and W&B, an array of objects, or the samples
of an inspect_ai log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from drrej.data import files
from drrej.data.columns import check_repeated
from drrej.data.files import DumpFile, line_chunks, open_text
from drrej.data.formats.arrow import spooled, write_batches
from drrej.data.formats.logs import is_log, parsed, samples_of, without_alternatives, write_log, write_rows
from drrej.data.problems import one_line
from drrej.errors import DumpError
from drrej.strict_json import no_doubled

_CONFLICT = re.compile(r"Column\(/?(.*?)\) (.*) in row (\d+)")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_EXACT = 1 << 53
"""Whole numbers up to this one are floating-point numbers as well."""
_MOST_SIGNED = (1 << 63) - 1
_DEEPEST = 50
"""Values in values: Arrow's parser ends the process on text that is nested very deeply."""
_FORMS = 'a table is {"columns": [...], "data": [[...], ...]} or an array of objects'


class _WiderError(Exception):
    """The rows need other types than those so far: a schema."""


def write_lines(file: DumpFile, path: str) -> None:
    """Convert JSON lines, or a log of lm-evaluation-harness."""
    with open_text(file) as stream:
        if is_log(stream.read(files.BLOCK)):
            return write_log(file, path)
    schema = _first_schema(file)
    while True:
        try:
            stored = [field.with_type(pa.string()) if field.type == pa.null() else field for field in schema]
            return write_batches(path, pa.schema(stored), _batches(file, schema, pa.schema(stored)))
        except _WiderError as wider:
            (schema,) = wider.args


LINES = spooled("JSON lines", write_lines)


def _first_schema(file: DumpFile) -> pa.Schema:
    for text in filter(bytes.strip, map(without_alternatives, line_chunks(file))):
        table = _parse(text, None, file, 0)
        longer = [name for name in _inexact(table, text) if all(map(_is_long, _values(text, name)))]
        types = {field.name: _text_type(field.type) for field in table.schema}
        return pa.schema(types | dict.fromkeys(longer, pa.uint64()))
    return pa.schema([])


def _text_type(kind: pa.DataType, inside: bool = False) -> pa.DataType:
    """A type in which text stays text: Arrow takes times from it, and their zones away.

    Nor does it hold nulls `inside` of lists and structs without a type, which Arrow fails to read.
    """
    if pa.types.is_timestamp(kind) or (inside and pa.types.is_null(kind)):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_text_type(kind.value_type, inside=True))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_text_type(field.type, inside=True)) for field in kind])
    return kind


def _inexact(table: pa.Table, text: bytes) -> list[str]:
    """The columns of floating-point numbers that are whole numbers too long for these where they were written."""
    found = []
    for name in (field.name for field in table.schema if pa.types.is_floating(field.type)):
        values = table[name].to_numpy()
        written = _values(text, name) if (np.abs(values) >= _EXACT).any() else ()
        if any(type(value) is int and abs(value) > _EXACT for value in written):
            found.append(name)
    return found


def _values(text: bytes, name: str) -> list[Any]:
    """What the rows of a piece have in a column, as Python reads it."""
    return [json.loads(line).get(name) for line in _lines(text)]


def _is_long(value: Any) -> bool:
    return value is None or (type(value) is int and 0 <= value < 1 << 64)


def _batches(file: DumpFile, schema: pa.Schema, stored: pa.Schema) -> Iterator[pa.RecordBatch]:
    row = 0
    for text in map(without_alternatives, line_chunks(file)):
        table = _parse(text, schema, file, row)
        if wrong := _inexact(table, text):
            raise DumpError(
                f"{file.name}: column '{wrong[0]}' holds whole numbers that are too long for its floating-point "
                "numbers; write it as text"
            )
        row += table.num_rows
        yield from table.select(schema.names).cast(stored).combine_chunks().to_batches()


def _lines(text: bytes) -> list[bytes]:
    return [line for line in text.split(b"\n") if line.strip()]


def _parse(text: bytes, schema: pa.Schema | None, file: DumpFile, first_row: int) -> pa.Table:
    """The objects of a piece; without a schema all of their fields, in types that are found out."""
    from pyarrow import json as pajson

    lines = len(_lines(text))
    if not lines:
        return pa.schema(schema or []).empty_table()
    _check_depth(text, file, first_row)
    try:
        table = pajson.read_json(
            pa.BufferReader(text),
            pajson.ReadOptions(use_threads=False, block_size=len(text) + 1),
            pajson.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "ignore"
            ),
        )
    except (pa.ArrowException, ValueError) as error:
        if schema is not None:
            _check_types(text, schema, file, first_row)
        _name_the_row(text, schema, file, first_row)
        found = _CONFLICT.search(str(error))
        if found is None:
            raise
        row = first_row + int(found[3])
        raise DumpError(f"{file.name}: column '{found[1]}': row {row}, counted from 0: it {found[2]}") from None
    if table.num_rows != lines:
        raise DumpError(f"{file.name}: {lines} lines hold {table.num_rows} objects; write one JSON object per line")
    return table


def _check_depth(text: bytes, file: DumpFile, first_row: int) -> None:
    """Raise where a line is nested more deeply than any table; brackets in strings are looked at only if need be."""
    if _depth(text) <= _DEEPEST:
        return
    for row, line in enumerate(_lines(text), first_row):
        if _depth(_STRING.sub(b"", line)) > _DEEPEST:
            raise DumpError(
                f"{file.name}: row {row}, counted from 0, is nested more than {_DEEPEST} levels deep; leave that out"
            )


def _depth(text: bytes) -> int:
    data = np.frombuffer(text, np.uint8)
    opening, closing = (data == ord("[")) | (data == ord("{")), (data == ord("]")) | (data == ord("}"))
    changes = opening.astype(np.int8) - closing
    depths = np.cumsum(changes[changes != 0])
    return int(depths.max(initial=0) - min(0, depths.min(initial=0)))


def _check_types(text: bytes, schema: pa.Schema, file: DumpFile, first_row: int) -> None:
    """Raise `_WiderError` where wider types hold this piece as well as those before it."""
    try:
        found = _parse(text, None, file, first_row).schema
        known = [field.with_type(_text_type(field.type)) for field in found if field.name in schema.names]
        both = pa.unify_schemas([schema, pa.schema(known)], promote_options="permissive")
    except (pa.ArrowException, ValueError, DumpError):
        return
    if both != schema:
        raise _WiderError(both)


def _name_the_row(text: bytes, schema: pa.Schema | None, file: DumpFile, first_row: int) -> None:
    """Raise about the first line that is no JSON object, or has a value of another type."""
    for row, line in enumerate(_lines(text), first_row):
        where = f"row {row}, counted from 0,"
        found: Any = parsed(line, file, where, "write one JSON object per line, without line breaks")
        if not isinstance(found, dict):
            raise DumpError(
                f"{file.name}: {where} is not a JSON object; write one object per line, as pandas does with "
                "orient='records', lines=True"
            )
        for field in schema or ():
            value = found.get(field.name)
            try:
                pa.scalar(value, field.type)
            except (pa.ArrowException, ValueError, TypeError, OverflowError):
                raise DumpError(
                    f"{file.name}: column '{field.name}': {where} holds {json.dumps(value)[:40]}, but the rows before "
                    f"hold {field.type}; write it in one type"
                ) from None


# Tables


def write_table(file: DumpFile, path: str) -> None:
    """Convert a table in one JSON document."""
    with open_text(file) as stream:
        text = b"".join(iter(lambda: stream.read(1 << 20), b""))
    try:
        document: Any = json.loads(text, object_pairs_hook=no_doubled)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if (samples := samples_of(document)) is not None:
        return write_rows(samples, path)
    if not is_table(document):
        raise DumpError(f"{file.name}: not a table: {_FORMS}; an object per line is JSON lines: end its name in .jsonl")
    if isinstance(document, list):
        names = list(dict.fromkeys(name for row in document for name in row))
        cells = {name: [row.get(name) for row in document] for name in names}
    else:
        names = [str(name) for name in document["columns"]]
        for number, row in enumerate(document["data"]):
            if not isinstance(row, list) or len(row) != len(names):
                raise DumpError(
                    f"{file.name}: row {number}, counted from 0, does not have {len(names)} values, one per column"
                )
        check_repeated(names, file.name)
        cells = {name: [row[i] for row in document["data"]] for i, name in enumerate(names)}
    table = pa.table({name: _column(name, values, file) for name, values in cells.items()})
    return write_batches(path, table.schema, table.to_batches())


TABLE = spooled("JSON table", write_table)


def is_table(document: Any) -> bool:
    """Whether a JSON document is a table of one of the forms.

    >>> is_table({"columns": ["a"], "data": [[1]]}), is_table({"format": "drrej-rejector/1"})
    (True, False)
    """
    if isinstance(document, dict):
        listed = isinstance(document.get("columns"), list) and isinstance(document.get("data"), list)
        return listed or samples_of(document) is not None
    return isinstance(document, list) and all(isinstance(row, dict) for row in document)


def _column(name: str, values: list[Any], file: DumpFile) -> pa.Array:
    try:
        longer = any(type(value) is int and value > _MOST_SIGNED for value in values) and all(map(_is_long, values))
        return pa.array(values, pa.uint64() if longer else None)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise DumpError(
            f"{file.name}: column '{name}' holds values of several types ({one_line(error)}); write it in one type"
        ) from None
