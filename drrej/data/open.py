"""Opening a dump: its parts, its columns, and whether the parts agree."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from drrej.data.columns import (
    CHOICES,
    ColumnHints,
    LogitColumns,
    column_of,
    field_of,
    find_label,
    find_logits,
    is_list,
    likely_label,
    root_of,
    storage_type,
)
from drrej.data.dump import Dump, DumpOptions, RowGroup
from drrej.data.files import DumpFile, ReaderOptions
from drrej.data.labels import Classes, LabelJoin, LabelKind, LabelsBeside, label_kind
from drrej.data.listing import Spools, find_parts
from drrej.data.pandas_index import range_of
from drrej.data.problems import BadFiles, shown
from drrej.data.readers import FileInfo, Request, has_no_keys, reader_of
from drrej.data.scores import as_numpy, labels_in, vector_sizes
from drrej.errors import BadFileError, DumpError, OptionError
from drrej.records import dataclass

T = TypeVar("T")

_REMOTE_LOOKS = 32
"""Files on object storage that are opened at a time: each is a few requests, and most of that is waiting."""

_FIRST_ROWS = 256
"""Rows that are looked at to learn the number of classes."""

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
"""Numbers that are written as int64 would be: 007 stays text."""


@dataclass(frozen=True)
class _Opened:
    """What opening one part tells; of a part without rows only that it has none."""

    contents: FileInfo
    groups: list[RowGroup]
    columns: LogitColumns | None = None
    classes: int = 0


def open_dump(
    arguments: Sequence[str],
    options: DumpOptions,
    labelled: bool,
    spools: Spools | None = None,
    bad: BadFiles | None = None,
    classes: int | None = None,
) -> Dump:
    """Open a dump: list its parts, find its columns, check that the parts agree.

    Files that are known to be `bad` are left out, and those that are found to be so join them, where the options say
    so. `classes` is the number of classes of the rejector, if there is one.
    """
    _check_normalize(options)
    opened = os.urandom(8).hex()
    bad = BadFiles() if bad is None else bad
    asked = ReaderOptions(options.filter)
    every = [replace(part, asked=asked) for part in find_parts(arguments, spools)]
    shape = _Shape(classes)
    looked = _good(every, options, opened, shape, bad)
    parts = [_known(part, look.contents) for part, look in looked]
    hive = _hive_fields(parts)
    groups: list[RowGroup] = []
    schemas: dict[int, pa.Schema] = {}
    noted: dict[int, bytes | None] = {}
    for number, (_, look) in enumerate(looked):
        if look.groups:
            schemas[number], noted[number] = _with_fields(look.contents.schema, hive), look.contents.pandas
            groups += [replace(group, part=number) for group in look.groups]
    if not groups:
        raise DumpError(
            f"{shown([part.name for part in parts], 3)}: zero rows; there is nothing to work on: "
            "did the job that wrote it fail?"
        )
    assert shape.columns is not None
    first = groups[0].part
    if options.filter is not None and shape.columns.layout != "choices":
        raise OptionError("`filter=NAME` is for logs of lm-evaluation-harness")
    if options.classes is not None and len(options.classes) != shape.classes:
        raise DumpError(
            f"{parts[first].name}: column '{shape.columns.pattern}' has {shape.classes} scores per row but `classes` "
            f"names {len(options.classes)} classes; name each class once, in the order of the logits"
        )
    rows = [sum(look.contents.groups) for _, look in looked]
    if options.row_filter is not None:
        options.row_filter.check(schemas[first], parts[first].name)
    labels = _LabelSearch(options, shape.named(options), parts, rows, schemas)
    found = labels.find(labelled, spools)
    return Dump(
        parts=tuple(parts),
        row_groups=tuple(groups),
        rows=sum(rows) if options.split is None else options.split.rows,
        classes=shape.classes,
        columns=shape.columns,
        label=found.column,
        label_kind=found.kind,
        input=options.input or "logits",
        input_said=options.input is not None,
        normalize=bool(options.normalize),
        names=labels.classes.names,
        schema=schemas[first],
        join=found.join,
        beside=found.beside,
        split=options.split,
        row_filter=options.row_filter,
        skip_bad_rows=options.on_bad_row == "skip",
        skip_unlabelled=options.on_missing_label == "skip",
        opened=opened,
        pandas=noted[first],
    )


def _known(part: DumpFile, contents: FileInfo) -> DumpFile:
    """A part with what a look at it has told."""
    return replace(part, identity=contents.identity, index=range_of(contents.pandas, sum(contents.groups)))


def _good(
    every: Sequence[DumpFile], options: DumpOptions, opened: str, shape: _Shape, bad: BadFiles
) -> list[tuple[DumpFile, _Opened]]:
    """The parts that can be read and fit together, with what they hold; raises for others unless they are left out."""
    parts = [part for part in every if part.name not in bad]
    good = []
    for part, look in zip(parts, _looks(parts, options, opened, shape), strict=True):
        try:
            if isinstance(look, DumpError):
                raise look
            if look.groups:
                shape.check(part, look)
            good.append((part, look))
        except DumpError as error:
            if options.on_bad_file == "error" and len(every) == 1:
                raise
            if options.on_bad_file == "error":
                raise BadFileError.of(part.name, f"{error} (or leave such files out with `on_bad_file=skip`)") from None
            bad.add(part.name, str(error))
    bad.check(len(every), options.max_bad)
    return good


def _check_normalize(options: DumpOptions) -> None:
    """Raise when rows are to be divided by a sum that they do not have."""
    if options.normalize and options.input in (None, "logits"):
        raise OptionError("`normalize` goes with `input=probs`: logits have no sum to divide by")
    if options.normalize and options.binary:
        raise OptionError("`normalize` does not go with `binary`: one score per row has no sum to divide by")


def _looks(
    parts: Sequence[DumpFile], options: DumpOptions, opened: str, shape: _Shape
) -> Iterator[_Opened | DumpError]:
    """A look at each part, in order; at several at once where each waits for the network."""
    tasks = [(number, part, options, opened, shape) for number, part in enumerate(parts)]
    if len(parts) == 1 or all(part.uri is None for part in parts):
        yield from itertools.starmap(_tried, tasks)
        return
    with ThreadPoolExecutor(_REMOTE_LOOKS) as pool:
        try:
            yield from pool.map(lambda task: _tried(*task), tasks)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _tried(number: int, part: DumpFile, options: DumpOptions, opened: str, shape: _Shape) -> _Opened | DumpError:
    try:
        return _look(number, part, options, opened, shape)
    except DumpError as error:
        return error


def _look(number: int, part: DumpFile, options: DumpOptions, opened: str, shape: _Shape) -> _Opened:
    contents = reader_of(part).contents(part, opened)
    ends = itertools.accumulate(contents.groups)
    sizes = enumerate(zip(ends, contents.groups, strict=True))
    groups = [RowGroup(number, i, end - rows, rows, contents.place(i)) for i, (end, rows) in sizes if rows]
    if not groups:
        return _Opened(contents, [])
    said = (options.logits, bool(options.binary), options.label, options.classes, options.input)
    wanted = ColumnHints(*said, contents.typed, options.per_length)
    columns = find_logits(contents.schema, wanted, part.name)
    if shape.is_confirmed_by(columns, contents):
        return _Opened(contents, groups, columns, shape.classes)
    first = _FirstRows(columns.names[0], part, contents, opened)
    if columns.layout == "labelled":
        columns = replace(columns, classes=options.classes or first.labels())
    return _Opened(contents, groups, columns, _class_count(columns, first))


@dataclass(frozen=True)
class _FoundLabels:
    """Where labels are: in a column, or in another file; and how they are stored."""

    column: str | None = None
    kind: LabelKind | None = None
    join: LabelJoin | None = None
    beside: LabelsBeside | None = None


class _Shape:
    """Logit columns and number of classes: found in the first part with rows, required of the others."""

    def __init__(self, expected: int | None = None) -> None:
        self.expected = expected
        self.columns: LogitColumns | None = None
        self.classes = 0
        self.first = ""

    def named(self, options: DumpOptions) -> Classes:
        """The classes with the names that the user gives them, or that the dump spells."""
        assert self.columns is not None
        spelled = self.columns.classes
        if self.columns.layout == "labelled" and spelled == tuple(str(i) for i in range(self.classes)):
            spelled = None  # class numbers
        in_values = self.columns.layout == "labelled" and spelled is not None
        return Classes(self.classes, options.classes or spelled, in_values, self.columns.layout == "choices")

    def is_confirmed_by(self, columns: LogitColumns, contents: FileInfo) -> bool:
        """Whether the footer of another part says the same, so that none of its rows need be looked at.

        Rows that hold more or fewer scores than the others are found when they are read.
        """
        same = self.columns == columns and columns.layout == "list"
        return same and contents.list_sizes.get(columns.names[0]) == self.classes

    def check(self, part: DumpFile, look: _Opened) -> None:
        assert look.columns is not None
        varies = look.columns.layout == "choices"  # the longest of all lists counts
        if self.columns is None and not varies and self.expected not in (None, look.classes):
            raise DumpError(
                f"{part.name}: column '{look.columns.pattern}' has {look.classes} scores per row but the rejector was "
                f"made for {self.expected} classes; is it the same model?"
            )
        if self.columns is None:
            self.columns, self.classes, self.first = look.columns, look.classes, part.name
        elif self.columns.layout == look.columns.layout == "choices":
            self.classes = max(self.classes, look.classes)
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


@dataclass(frozen=True)
class _FirstRows:
    """The first rows of a column that hold something."""

    column: str
    part: DumpFile
    contents: FileInfo
    opened: str

    @property
    def type(self) -> pa.DataType:
        field_ = field_of(self.contents.schema, self.column)
        assert field_ is not None
        return field_.type

    def length(self) -> int:
        """The number of scores that most of them have."""
        sizes: Callable[[pa.Array], list[int]] = _lengths if is_list(self.type) else vector_sizes
        values, counts = np.unique(self._of(sizes), return_counts=True)
        return int(values[counts.argmax()])

    def longest(self) -> int:
        """The number of scores of the longest list of all."""
        field_ = field_of(self.contents.schema, self.column)
        known = (field_.metadata or {}).get(CHOICES) if field_ is not None else None
        if known is not None:
            return int(known)
        return max((max(lengths, default=0) for lengths in self._each(_lengths)), default=0)

    def labels(self) -> tuple[str, ...]:
        """The labels that they spell."""
        return tuple(self._of(labels_in))

    def _of(self, found_in: Callable[[pa.Array], list[T]]) -> list[T]:
        for found in self._each(found_in):
            if found:
                return found
        raise DumpError(
            f"{self.part.name}: column '{self.column}' is null in every row; is it the right column? (see `logits`)"
        )

    def _each(self, found_in: Callable[[pa.Array], list[T]]) -> Iterator[list[T]]:
        root = root_of(self.contents.schema, self.column)
        for group in range(len(self.contents.groups)):
            request = Request(self.part, self.opened, group, [root], _FIRST_ROWS, place=self.contents.place(group))
            for batch in reader_of(self.part).batches(request):
                yield found_in(column_of(batch, self.column))


def _lengths(array: pa.Array) -> list[int]:
    if type(array) in (pa.ListArray, pa.LargeListArray) and not array.null_count:
        lengths: list[int] = np.diff(as_numpy(array.offsets)).tolist()
        return lengths
    return [len(row) for row in array if row.is_valid]


def _class_count(columns: LogitColumns, first: _FirstRows) -> int:
    if columns.layout == "score":
        return 2
    if columns.layout == "wide":
        return len(columns.names)
    if columns.layout == "labelled":
        return len(columns.classes or ())
    if columns.layout == "choices":
        return first.longest()
    where = f"{first.part.name}: column '{first.column}'"
    if isinstance(first.type, pa.FixedShapeTensorType) and len(first.type.shape) != 1:
        raise DumpError(f"{where} has tensors of shape {first.type.shape}; one vector per row is needed")
    storage = storage_type(first.type)
    classes = storage.list_size if pa.types.is_fixed_size_list(storage) else first.length()
    if classes == 1:
        raise DumpError(
            f"{where} has one score per row; "
            "store it as a plain floating-point column and add `binary=True` if it is the score of class 1"
        )
    if classes == 0:
        raise DumpError(f"{where} has no scores: its lists are empty")
    return int(classes)


@dataclass(frozen=True)
class _LabelSearch:
    """Looks for the labels of a dump: `rows` are those of each part, `schemas` those of parts with rows."""

    options: DumpOptions
    classes: Classes
    parts: Sequence[DumpFile]
    rows: Sequence[int]
    schemas: dict[int, pa.Schema]

    def find(self, labelled: bool, spools: Spools | None) -> _FoundLabels:
        """Where the labels are; if they are not needed, the column that has them, if any."""
        number, schema = next(iter(self.schemas.items()))
        first, options = self.parts[number], self.options
        self._check_options()
        if labelled and options.labels_from is not None:
            return self._elsewhere(options.labels_from, schema, first, spools)
        if labelled:
            label = find_label(schema, options.label, first.name)
            kinds = [self._kind(number, label, first) for number in self.schemas]
            return _FoundLabels(label, kinds[0])
        known = self._column(schema)
        if known is None:
            return _FoundLabels()
        try:
            return _FoundLabels(known, self._kind(number, known, first))
        except DumpError:  # not needed: without names, predictions are class numbers
            return _FoundLabels(known)

    def _check_options(self) -> None:
        options = self.options
        if options.join_on is not None and options.labels_from is None:
            raise OptionError(
                "`labels_from=FILE` and `join_on=COL` go together: COL is the key column that both files have"
            )
        if options.labels_from is not None and options.join_on is None and options.on_missing_label == "skip":
            raise OptionError(
                "`on_missing_label=skip` goes with `join_on=COL`: without keys, every row needs its label"
            )

    def _elsewhere(self, file: str, schema: pa.Schema, first: DumpFile, spools: Spools | None) -> _FoundLabels:
        options, known = self.options, self._column(schema)
        if options.join_on is None:
            if not all(has_no_keys(part) for part in self.parts) and not all(
                map(has_no_keys, find_parts([file], spools))
            ):
                raise OptionError(
                    "`labels_from=FILE` and `join_on=COL` go together: COL is the key column that both files have "
                    "(rows are matched by their order only where one of the files is an array: .npy or .npz)"
                )
            beside = LabelsBeside.load(file, options, self.classes, self.rows, spools)
            return _FoundLabels(known, beside.kind, beside=beside)
        if options.join_on not in schema.names:
            raise DumpError(
                f"{first.name}: there is no column '{options.join_on}' to join on; columns: {shown(schema.names)}"
            )
        join = LabelJoin.load(file, options.join_on, options, self.classes, spools)
        return _FoundLabels(known, join.kind, join)

    def _column(self, schema: pa.Schema) -> str | None:
        label = self.options.label
        if label is None:
            return likely_label(schema)
        return label if field_of(schema, label) is not None else None

    def _kind(self, number: int, label: str, first: DumpFile) -> LabelKind:
        part, field_ = self.parts[number], field_of(self.schemas[number], label)
        if field_ is None:
            raise DumpError(f"{part.name}: there is no label column '{label}', which {first.name} has")
        return label_kind(field_.type, self.classes, f"{part.name}: column '{label}'")


def _hive_fields(parts: Sequence[DumpFile]) -> list[pa.Field]:
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
