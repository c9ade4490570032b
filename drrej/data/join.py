"""Labels kept in another file: joined by key, or, where arrays have none, row by row."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.data.columns import LABEL, likely_label
from drrej.data.labels import Classes, LabelKind, label_kind
from drrej.data.part import Part, one_line
from drrej.data.problems import Problem, Problems, shown
from drrej.data.readers import read_table, reader_of
from drrej.data.sources import Spools, find_parts
from drrej.errors import DumpError
from drrej.records import dataclass

if TYPE_CHECKING:
    from drrej.data.dump import Block, DumpOptions


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
    def read(cls, part: Part, on: str | None, options: DumpOptions, classes: Classes) -> _Labels:
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


def _label_column(schema: pa.Schema, options: DumpOptions, on: str | None, part: Part) -> str:
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
