"""The index of a pandas frame, as pandas notes it in a schema: a mask that keeps it aligns with the frame."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Container, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from drrej.data.files import DumpFile, RangeIndex

KEY = b"pandas"


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
    return schema.with_metadata({KEY: json.dumps(tree).encode()})


def with_range(schema: pa.Schema, parts: Sequence[DumpFile]) -> pa.Schema:
    """The schema of the mask of these parts, one after the other, if their indexes are ranges that make one range."""
    tree = _tree((schema.metadata or {}).get(KEY))
    index = _joined([part.index for part in parts])
    if index is None or tree is None:
        return schema
    found = {"kind": "range"} | dataclasses.asdict(index)
    return schema.with_metadata({KEY: json.dumps(tree | {"index_columns": [found]}).encode()})


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
    return None if first is None or last is None else dataclasses.replace(first, stop=last.stop)


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
