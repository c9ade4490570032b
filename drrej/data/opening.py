"""Opening a dump: its parts, its columns, and whether the parts agree."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from drrej.data.columns import LABEL, LogitColumns, find_label, find_logits, storage_type
from drrej.data.dump import Dump, DumpOptions, RowGroup
from drrej.data.join import LabelJoin
from drrej.data.labels import LabelKind, label_kind
from drrej.data.part import Part
from drrej.data.problems import shown
from drrej.data.readers import Contents, Request, reader_of
from drrej.data.sources import Spools, find_parts
from drrej.errors import DumpError, OptionError

_REMOTE_LOOKS = 32
"""Files on object storage that are opened at a time: each is a few requests, and most of that is waiting."""

_FIRST_ROWS = 256
"""Rows that are looked at to learn the number of classes."""

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
"""Numbers that are written as int64 would be: 007 stays text."""


@dataclass(frozen=True)
class _Opened:
    """What opening one part tells; of a part without rows only that it has none."""

    contents: Contents
    groups: list[RowGroup]
    columns: LogitColumns | None = None
    classes: int = 0


def open_dump(arguments: Sequence[str], options: DumpOptions, labelled: bool, spools: Spools | None = None) -> Dump:
    """Open a dump: list its parts, find its columns, check that the parts agree."""
    _check_normalize(options)
    opened = os.urandom(8).hex()
    parts = find_parts(arguments, spools)
    hive = _hive_fields(parts)
    groups: list[RowGroup] = []
    schemas: dict[int, pa.Schema] = {}
    shape = _Shape()
    for number, (part, look) in enumerate(zip(list(parts), _looks(parts, options, opened), strict=True)):
        parts[number] = replace(part, identity=look.contents.identity, index=look.contents.index)
        if look.groups:
            shape.check(part, look)
            schemas[number] = _with_fields(look.contents.schema, hive)
            groups += look.groups
    if not groups:
        raise DumpError(
            f"{shown([part.name for part in parts], 3)}: zero rows; there is nothing to work on: "
            "did the job that wrote it fail?"
        )
    assert shape.columns is not None
    first = groups[0].part
    label, kind, join = _find_labels(schemas[first], options, shape.classes, parts[first], labelled, spools)
    if labelled and join is None:
        for number, schema in schemas.items():
            _check_label(schema, label, options, shape.classes, parts[number], parts[first])
    if options.classes is not None and len(options.classes) != shape.classes:
        raise DumpError(
            f"{parts[first].name}: column '{shape.columns.pattern}' has {shape.classes} scores per row but `classes` "
            f"names {len(options.classes)} classes; name each class once, in the order of the logits"
        )
    return Dump(
        parts=tuple(parts),
        row_groups=tuple(groups),
        rows=sum(group.rows for group in groups),
        classes=shape.classes,
        columns=shape.columns,
        label=label,
        label_kind=kind,
        input=options.input or "logits",
        input_said=options.input is not None,
        normalize=bool(options.normalize),
        names=options.classes,
        schema=schemas[first],
        join=join,
        opened=opened,
    )


def _check_normalize(options: DumpOptions) -> None:
    """Raise when rows are to be divided by a sum that they do not have."""
    if options.normalize and options.input in (None, "logits"):
        raise OptionError("`normalize` goes with `input=probs`: logits have no sum to divide by")
    if options.normalize and options.binary:
        raise OptionError("`normalize` does not go with `binary`: one score per row has no sum to divide by")


def _looks(parts: Sequence[Part], options: DumpOptions, opened: str) -> Iterator[_Opened]:
    """A look at each part, in order; at several at once where each waits for the network."""
    tasks = [(number, part, options, opened) for number, part in enumerate(parts)]
    if len(parts) == 1 or all(part.uri is None for part in parts):
        yield from itertools.starmap(_look, tasks)
        return
    with ThreadPoolExecutor(_REMOTE_LOOKS) as pool:
        try:
            yield from pool.map(lambda task: _look(*task), tasks)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _look(number: int, part: Part, options: DumpOptions, opened: str) -> _Opened:
    contents = reader_of(part).contents(part, opened)
    ends = itertools.accumulate(contents.groups)
    sizes = enumerate(zip(ends, contents.groups, strict=True))
    groups = [RowGroup(number, i, end - rows, rows) for i, (end, rows) in sizes if rows]
    if not groups:
        return _Opened(contents, [])
    columns = find_logits(contents.schema, options.logits, bool(options.binary), part.name, options.label)
    return _Opened(contents, groups, columns, _class_count(columns, part, contents, opened))


class _Shape:
    """Logit columns and number of classes: found in the first part with rows, required of the others."""

    def __init__(self) -> None:
        self.columns: LogitColumns | None = None
        self.classes = 0
        self.first = ""

    def check(self, part: Part, look: _Opened) -> None:
        assert look.columns is not None
        if self.columns is None:
            self.columns, self.classes, self.first = look.columns, look.classes, part.name
        elif look.classes != self.classes:
            raise DumpError(
                f"{part.name}: column '{look.columns.pattern}' has {look.classes} scores per row, but {self.first} has "
                f"{self.classes}; all files of a dump must come from one model"
            )
        elif look.columns != self.columns:
            raise DumpError(
                f"{part.name}: logits are in '{look.columns.pattern}', but in {self.first} in "
                f"'{self.columns.pattern}'; all files of a dump must have the same columns"
            )


def _class_count(columns: LogitColumns, part: Part, contents: Contents, opened: str) -> int:
    if columns.layout == "score":
        return 2
    if columns.layout == "wide":
        return len(columns.names)
    name = columns.names[0]
    data_type = contents.schema.field(name).type
    if isinstance(data_type, pa.FixedShapeTensorType) and len(data_type.shape) != 1:
        raise DumpError(
            f"{part.name}: column '{name}' has tensors of shape {data_type.shape}; one vector per row is needed"
        )
    storage = storage_type(data_type)
    fixed = pa.types.is_fixed_size_list(storage)
    classes = storage.list_size if fixed else _first_length(name, part, contents, opened)
    if classes == 1:
        raise DumpError(
            f"{part.name}: column '{name}' has one score per row; "
            "store it as a plain floating-point column and add `binary=True` if it is the score of class 1"
        )
    if classes == 0:
        raise DumpError(f"{part.name}: column '{name}' has no scores: its lists are empty")
    return int(classes)


def _first_length(name: str, part: Part, contents: Contents, opened: str) -> int:
    """The length that most of the first lists have."""
    for group in range(len(contents.groups)):
        for batch in reader_of(part).batches(Request(part, opened, group, [name], _FIRST_ROWS)):
            lengths = [len(row) for row in batch.column(0) if row.is_valid]
            if lengths:
                values, counts = np.unique(lengths, return_counts=True)
                return int(values[counts.argmax()])
    raise DumpError(f"{part.name}: column '{name}' is null in every row; is it the right column? (see `logits`)")


def _find_labels(
    schema: pa.Schema, options: DumpOptions, classes: int, first: Part, labelled: bool, spools: Spools | None
) -> tuple[str | None, LabelKind | None, LabelJoin | None]:
    if (options.labels_from is None) != (options.join_on is None):
        raise OptionError(
            "`labels_from=FILE` and `join_on=COL` go together: COL is the key column that both files have"
        )
    label = options.label or LABEL
    known = label if label in schema.names else None
    if labelled and options.labels_from is not None:
        assert options.join_on is not None
        if options.join_on not in schema.names:
            raise DumpError(
                f"{first.name}: there is no column '{options.join_on}' to join on; columns: {shown(schema.names)}"
            )
        join = LabelJoin.load(options.labels_from, options.join_on, options, classes, spools)
        return known, join.kind, join
    if labelled:
        label = find_label(schema.names, options.label, first.name)
        where = f"{first.name}: column '{label}'"
        return label, label_kind(schema.field(label).type, options.classes, classes, where), None
    if known is None:
        return None, None, None
    try:
        return known, label_kind(schema.field(known).type, options.classes, classes, first.name), None
    except DumpError:  # not needed: without names, predictions are class numbers
        return known, None, None


def _check_label(
    schema: pa.Schema, label: str | None, options: DumpOptions, classes: int, part: Part, first: Part
) -> None:
    if label not in schema.names:
        raise DumpError(f"{part.name}: there is no label column '{label}', which {first.name} has")
    label_kind(schema.field(label).type, options.classes, classes, f"{part.name}: column '{label}'")


def _hive_fields(parts: Sequence[Part]) -> list[pa.Field]:
    """The columns that the folders of every part spell, integers where all values are."""
    spelled = [dict(part.hive) for part in parts]
    keys = [key for key in spelled[0] if all(key in other for other in spelled)]
    fields = []
    for key in keys:
        values = {other[key] for other in spelled} - {None}
        whole = all(_INTEGER.fullmatch(value or "") for value in values) and bool(values)
        fields.append(pa.field(key, pa.int64() if whole else pa.string()))
    return fields


def _with_fields(schema: pa.Schema, fields: Sequence[pa.Field]) -> pa.Schema:
    for field_ in fields:
        if field_.name not in schema.names:
            schema = schema.append(field_)
    return schema
