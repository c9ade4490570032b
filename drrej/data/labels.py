"""Labels: from whatever type a dump stores them in to class numbers, always by value."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.data.columns import LABEL, likely_label
from drrej.data.files import DumpFile, one_line
from drrej.data.listing import Spools, find_parts
from drrej.data.problems import Problem, Problems, shown
from drrej.data.readers import read_table, reader_of
from drrej.data.scores import Report, as_numpy, boolean_array, numpy_type, plain_array
from drrej.errors import DumpError
from drrej.records import dataclass

if TYPE_CHECKING:
    from drrej.data.dump import Block, DumpOptions


_LATE = "drop or fix these rows, or leave them out with `on_missing_label=skip`"


@dataclass(frozen=True)
class Classes:
    """The classes of a dump: how many, what they are called, in class order, if they have names.

    `spelled`: the dump writes these names beside the scores, so that labels are names also where they are numbers.
    `listed`: labels may be lists of one, as lighteval writes them.
    """

    count: int
    names: tuple[str, ...] | None = None
    spelled: bool = False
    listed: bool = False


@dataclass(frozen=True)
class LabelKind:
    """How labels are stored (`type`) and what the classes are called, in class order, if they have names."""

    type: pa.DataType
    names: tuple[str, ...] | None = None
    spelled: bool = False

    def encode(self, array: pa.Array, classes: int, report: Report) -> NDArray[np.int64]:
        """Class numbers of a label column; 0 in place of labels that were reported as bad."""
        if isinstance(array, pa.DictionaryArray):  # codes differ from batch to batch: only values count
            array = array.dictionary_decode()
        if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
            array = _only_values(array, report)
        if array.null_count:
            report(np.flatnonzero(np.asarray(array.is_null())), "no label (null)", _LATE)
        if is_text(array.type) or (self.spelled and pa.types.is_integer(array.type)):
            return self._from_names(array.cast(pa.large_string()), report)
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.int8())
        return _without_bad(array, classes, report)

    def _from_names(self, array: pa.Array, report: Report) -> NDArray[np.int64]:
        import pyarrow.compute as pc  # a tenth of a second that numeric labels need not pay

        assert self.names is not None
        codes = pc.index_in(array, value_set=pa.array(self.names, array.type))
        unknown = np.flatnonzero(np.asarray(codes.is_null()) & ~np.asarray(array.is_null()))
        if unknown.size:
            example = f"'{array[int(unknown[0])].as_py()}'"
            remedy = f"name every class with `classes`, in the order of the logits (now: {shown(self.names)})"
            report(unknown, "a label that is not among the classes", remedy, example)
        numbers: NDArray[np.int64] = codes.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return numbers

    def decode(self, classes: NDArray[np.int64]) -> pa.Array:
        """Class numbers in the label's own type."""
        if is_text(self.type):
            assert self.names is not None
            return pa.array(self.names, pa.string()).take(pa.array(classes)).cast(self.type)
        if pa.types.is_boolean(self.type):
            return boolean_array(classes.astype(bool))
        return plain_array(classes.astype(numpy_type(self.type), copy=False))


def label_kind(data_type: pa.DataType, classes: Classes, where: str) -> LabelKind:
    """Check that labels of a type can be read and say how."""
    data_type = value_type(data_type)
    if classes.listed and (pa.types.is_list(data_type) or pa.types.is_large_list(data_type)):
        data_type = value_type(data_type.value_type)
    count = classes.count
    if classes.spelled and pa.types.is_integer(data_type):
        return LabelKind(pa.string(), classes.names, spelled=True)
    if is_text(data_type):
        if classes.names is None:
            raise DumpError(
                f"{where}: labels are text; name the classes in the order of the logits with `classes=A,B,...`"
            )
    elif not (pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_boolean(data_type)):
        kind = "null in every row" if pa.types.is_null(data_type) else str(data_type)
        raise DumpError(
            f"{where}: labels are {kind}; they must be class numbers 0 to {count - 1} (an integer column) or names"
        )
    elif pa.types.is_boolean(data_type) and count != 2:
        raise DumpError(f"{where}: labels are true or false but rows have {count} scores; use class numbers")
    elif not pa.types.is_boolean(data_type):
        data_type = _wide_enough(data_type, count)
    return LabelKind(data_type, classes.names)


def _wide_enough(data_type: pa.DataType, classes: int) -> pa.DataType:
    """The labels' own type if it holds every prediction: 200 classes do not fit in int8, nor 2049 in float16."""
    kind = numpy_type(data_type)
    most = 1 << (np.finfo(kind).nmant + 1) if kind.kind == "f" else np.iinfo(kind).max
    return data_type if classes - 1 <= most else pa.int64()


def value_type(data_type: pa.DataType) -> pa.DataType:
    """The type of the values of a dictionary."""
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


def is_text(data_type: pa.DataType) -> bool:
    """Whether a column holds text."""
    return bool(
        pa.types.is_string(data_type) or pa.types.is_large_string(data_type) or pa.types.is_string_view(data_type)
    )


def _only_values(array: pa.Array, report: Report) -> pa.Array:
    """The value of each list of one; others are no labels."""
    missing = np.asarray(array.is_null())
    lengths = np.where(missing, 1, np.diff(array.offsets.to_numpy(zero_copy_only=False)))
    report(np.flatnonzero(lengths > 1), "several right answers", "leave these rows out: a row has one label")
    starts = array.offsets.to_numpy(zero_copy_only=False)[:-1]
    places = pa.array(starts, pa.int64(), mask=missing | (lengths == 0))
    return array.values.take(places)


def _without_bad(array: pa.Array, classes: int, report: Report) -> NDArray[np.int64]:
    if array.null_count:
        array = array.fill_null(0)
    values = as_numpy(array)
    remedy = f"{classes} scores per row mean classes 0 to {classes - 1}"
    if values.dtype.kind == "f":
        fractional = np.flatnonzero(~(values == np.floor(values)) | np.isinf(values))
        if fractional.size:
            report(fractional, "a label that is not a whole number", remedy, f"{values[fractional[0]]:g}")
            values = values.copy()
            values[fractional] = 0
    outside = np.flatnonzero((values < 0) | (values >= classes))
    if outside.size:
        first = values[outside[0]]
        if first == classes:
            remedy += "; do yours start at 1?"
        report(outside, f"a label outside 0 to {classes - 1}", remedy, f"{int(first)}")
        values = values.copy()
        values[outside] = 0
    numbers: NDArray[np.int64] = values.astype(np.int64, copy=False)
    return numbers


Keys = NDArray[np.int64] | NDArray[np.object_]
"""Whole numbers, or text (None where there is none)."""


@dataclass(frozen=True)
class LabelJoin:
    """A table of labels by key, held in memory; the dump side streams.

    Whole numbers are sorted, so that a block is joined by binary search; text goes through a dictionary, because numpy
    2.4 does not find strings of more than 15 bytes in a sorted StringDType array. `skip_missing` says whether a row
    without a label is left out or is an error.
    """

    on: str
    file: str
    keys: Keys
    labels: NDArray[np.int64]
    kind: LabelKind
    skip_missing: bool
    places: dict[str, int] | None

    @classmethod
    def load(
        cls, path: str, on: str, options: DumpOptions, classes: Classes, spools: Spools | None = None
    ) -> LabelJoin:
        """Read key and label columns; duplicate and null keys are errors."""
        tables = [_Labels.read(part, on, options, classes) for part in find_parts([path], spools)]
        keys: Keys = np.concatenate([table.keys for table in _same_kind(tables, on)])
        labels = np.concatenate([table.labels for table in tables])
        problems = Problems()
        for table in tables:
            problems.add(table.problems)
        problems.raise_first()
        if not keys.size:
            raise DumpError(f"{path}: zero rows; there are no labels to join")
        places: dict[str, int] | None = None
        if keys.dtype == object:
            places = {}
            repeated = np.array([i for i, key in enumerate(keys) if places.setdefault(key, i) != i], np.intp)
        else:
            order = np.argsort(keys, kind="stable")
            keys, labels = keys[order], labels[order]
            repeated = np.sort(order[1:][keys[1:] == keys[:-1]])
        if repeated.size:
            table, row = _place(tables, int(repeated[0]))
            problems.add([Problem(_AGAIN, on, _UNIQUE, table.file, row, repeated.size, f"key {table.keys[row]}")])
            problems.raise_first()
        return cls(on, path, keys, labels, tables[0].kind, options.on_missing_label == "skip", places)

    def positions(self, column: pa.Array, block: Block) -> NDArray[np.int64]:
        """Where each row's label is, -1 where there is none: reported as bad unless those rows are left out."""
        keys, nulls = sortable_keys(column, f"{block.part.name}: column '{self.on}'")
        if keys.dtype != self.keys.dtype:
            raise DumpError(
                f"{block.part.name}: column '{self.on}' is {column.type} but {self.file} has "
                f"{'whole numbers' if self.places is None else 'text'} there; write both as one type"
            )
        found = self._find(keys)
        found[nulls] = -1
        if not self.skip_missing:
            block.report(nulls, "no key (null)", "every row needs its key", column=self.on)
            missing = np.setdiff1d(np.flatnonzero(found < 0), nulls)
            remedy = f"add it to {self.file}, or leave such rows out with `on_missing_label=skip`"
            example = f"key {keys[missing[0]]}" if missing.size else ""
            block.report(missing, f"no label in {self.file}", remedy, example, column=self.on)
        return found

    def _find(self, keys: Keys) -> NDArray[np.int64]:
        if self.places is not None:
            return np.fromiter((self.places.get(key, -1) for key in keys), np.int64, keys.size)
        found = np.minimum(np.searchsorted(self.keys, keys), self.keys.size - 1).astype(np.int64)
        found[self.keys[found] != keys] = -1
        return found


@dataclass(frozen=True)
class LabelsBeside:
    """The labels of all rows of a dump, in their order; `starts` tell how many rows are before each part."""

    file: str
    labels: NDArray[np.int64]
    kind: LabelKind
    starts: tuple[int, ...]

    @classmethod
    def load(
        cls, path: str, options: DumpOptions, classes: Classes, rows: Sequence[int], spools: Spools | None
    ) -> Self:
        """Read the label column; there must be as many labels as the parts have `rows`."""
        tables = [_Labels.read(part, None, options, classes) for part in find_parts([path], spools)]
        problems = Problems()
        for table in tables:
            problems.add(table.problems)
        problems.raise_first()
        labels = np.concatenate([table.labels for table in tables])
        if labels.size != sum(rows):
            raise DumpError(
                f"{path}: it has {labels.size} labels but the dump has {sum(rows)} rows; without `join_on=COL` labels "
                "belong to rows by their order, so there must be one for each"
            )
        return cls(path, labels, tables[0].kind, tuple(itertools.accumulate(rows, initial=0))[:-1])


_AGAIN = "a key that occurred before"
_UNIQUE = "a key must name one label: drop the repeated rows"


@dataclass(frozen=True)
class _Labels:
    """Keys and labels of one file."""

    file: str
    keys: Keys
    labels: NDArray[np.int64]
    kind: LabelKind
    problems: list[Problem]

    @classmethod
    def read(cls, part: DumpFile, on: str | None, options: DumpOptions, classes: Classes) -> _Labels:
        problems: list[Problem] = []

        def report(rows: NDArray[np.intp], what: str, remedy: str, example: str = "", column: str = "") -> None:
            if rows.size:
                place = (part.name, int(rows[0]), int(rows.size))
                problems.append(Problem(what, column or name, remedy, *place, example))

        contents = reader_of(part).contents(part, "")
        known = contents.schema.names
        if on is not None and on not in known:
            raise DumpError(f"{part.name}: there is no column '{on}' to join on; columns: {shown(known)}")
        name = _label_column(contents.schema, options, on, part)
        table = read_table(part, [name] if on is None else [on, name], contents)
        if options.on_missing_label == "skip" and table.column(name).null_count:  # labels that have not come yet
            table = table.filter(table.column(name).is_valid())
        where = f"{part.name}: column '{name}'"
        kind = label_kind(table.schema.field(name).type, classes, where)
        labels = kind.encode(_whole(table.column(name)), classes.count, report)
        if on is None:
            return cls(part.name, np.empty(0, np.int64), labels, kind, problems)
        keys, nulls = sortable_keys(_whole(table.column(on)), f"{part.name}: column '{on}'")
        report(nulls, "no key (null)", "every label needs its key", column=on)
        return cls(part.name, keys, labels, kind, problems)


def _label_column(schema: pa.Schema, options: DumpOptions, on: str | None, part: DumpFile) -> str:
    """The column of labels: as asked for, as labels are called, or the only one besides the key."""
    known = schema.names
    if options.label in known:
        assert options.label is not None
        return options.label
    others = [name for name in known if name != on]
    name = likely_label(schema) if options.label is None else None
    if name is None and len(others) == 1 and (options.label is None or on is None):
        name = others[0]
    if name is None:
        raise DumpError(
            f"{part.name}: there is no column '{options.label or LABEL}'; choose the label column with `label` among: "
            f"{shown(known)}"
        )
    return name


def _same_kind(tables: list[_Labels], on: str) -> list[_Labels]:
    filled = [table for table in tables if table.keys.size] or tables
    for table in filled:
        if table.keys.dtype != filled[0].keys.dtype:
            raise DumpError(f"{table.file}: column '{on}' is of another type than in {filled[0].file}")
    return filled


def _place(tables: list[_Labels], row: int) -> tuple[_Labels, int]:
    """The file and the row in it of a row counted over all files."""
    for table in tables:
        if row < table.keys.size:
            return table, row
        row -= table.keys.size
    raise IndexError(row)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """One array; dictionaries, which may differ from chunk to chunk, are decoded first."""
    chunks = [c.dictionary_decode() if isinstance(c, pa.DictionaryArray) else c for c in column.chunks]
    value_type = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return pa.concat_arrays(chunks) if chunks else pa.array([], value_type)


def sortable_keys(column: pa.Array, where: str) -> tuple[Keys, NDArray[np.intp]]:
    """Keys as whole numbers or text, and the rows without one."""
    while isinstance(column, pa.ExtensionArray):
        column = column.storage
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    nulls = np.flatnonzero(np.asarray(column.is_null()))
    kind = column.type
    try:
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):  # pandas turns numbers with gaps into floats
            numbers: NDArray[np.int64] = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
            return numbers, nulls
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
            values = [None if key is None else key.hex() for key in column.to_pylist()]
        else:
            values = column.cast(pa.string()).to_pylist()
    except (pa.ArrowException, ValueError) as error:
        raise DumpError(f"{where} is {kind}; keys must be whole numbers or text ({one_line(error)})") from None
    text = np.empty(len(values), object)
    text[:] = values
    return text, nulls
