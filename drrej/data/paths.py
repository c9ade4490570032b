"""Columns inside of columns: `output.logits` is the field `logits` of the struct `output`."""

from __future__ import annotations

import pyarrow as pa


def field_of(schema: pa.Schema, name: str) -> pa.Field | None:
    """The field of a column's name or path; None where there is none.

    >>> schema = pa.schema([("output", pa.struct([("logits", pa.list_(pa.float32()))])), ("a.b", pa.int64())])
    >>> field_of(schema, "output.logits").type, field_of(schema, "a.b").type, field_of(schema, "output.label")
    (ListType(list<item: float>), DataType(int64), None)
    """
    path = _path(schema, name)
    if path is None:
        return None
    found = schema.field(path[0])
    for piece in path[1:]:
        found = found.type.field(piece)
    return found


def root_of(schema: pa.Schema, name: str) -> str:
    """The column that a path begins with; the name itself where it is one."""
    path = _path(schema, name)
    return name if path is None else path[0]


def column_of(batch: pa.RecordBatch, name: str) -> pa.Array:
    """The values of a column or path; null where a struct on the way is."""
    path = _path(batch.schema, name)
    if path is None:
        raise KeyError(name)
    values = batch.column(path[0])
    if len(path) > 1:
        import pyarrow.compute as pc

        values = pc.struct_field(values, list(path[1:]))
    return values


def _path(schema: pa.Schema, name: str) -> tuple[str, ...] | None:
    if schema.get_field_index(name) >= 0 or name in schema.names:  # the list of names is long; -1 if it is there twice
        return (name,)
    pieces = name.split(".")
    for length in range(1, len(pieces)):
        root, rest = ".".join(pieces[:length]), pieces[length:]
        if root in schema.names and _has(schema.field(root).type, rest):
            return (root, *rest)
    return None


def _has(data_type: pa.DataType, pieces: list[str]) -> bool:
    for piece in pieces:
        if not pa.types.is_struct(data_type) or data_type.get_field_index(piece) < 0:
            return False
        data_type = data_type.field(piece).type
    return True
