"""Tables in one JSON document: {"columns": [...], "data": [[...], ...]} of MLflow and W&B, or an array of objects.

Such a document has to be parsed as a whole, so the table is held in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from drrej.data.part import Part, one_line
from drrej.data.readers.base import Contents, Request, reading
from drrej.data.readers.chunks import looked_at, open_text, with_compressions
from drrej.errors import DumpError

_FORMS = 'a table is {"columns": [...], "data": [[...], ...]} or an array of objects'


class JsonTableReader:
    """Reads tables in JSON documents."""

    format = "JSON table"
    endings = with_compressions(".json")

    def reads(self, part: Part) -> bool:
        """By the ending of its name."""
        return part.ends_with(self.endings)

    def contents(self, part: Part, opened: str) -> Contents:  # noqa: ARG002 - what was found is kept by identity
        """Its columns; the rows are one row group."""

        def look(identity: Any) -> Contents:
            table = _table(part)
            return Contents(table.schema, (table.num_rows,), identity, typed=False)

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


def _table(part: Part) -> pa.Table:
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


def _column(name: str, values: list[Any], part: Part) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise DumpError(
            f"{part.name}: column '{name}' holds values of several types ({one_line(error)}); write it in one type"
        ) from None
