"""Labels: from whatever type a dump stores them in to class numbers, always by value."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from drrej.data.columns import LABEL, likely_label
from drrej.data.files import DumpFile
from drrej.data.formats import format_of, read_table
from drrej.data.listing import Spools, find_parts
from drrej.data.problems import Problem, Problems, one_line, shown
from drrej.data.scores import Report, as_numpy, boolean_array, numpy_type, plain_array
from drrej.errors import DumpError

if TYPE_CHECKING:
    from drrej.data.dump import Block, DumpOptions


UNKNOWN = -2
"""The number of a label that names none of the classes."""

_NEW = (
    "if it is a new class, evaluate, threshold and monitor can count such rows as errors with "
    "`on_unknown_label=wrong`, or leave them out with `on_unknown_label=skip`"
)
_NAME_THEM = "name the classes in the order of the logits with `classes=A,B,...`"
_LATE = "drop or fix these rows, or leave them out with `on_missing_label=skip`"


class Classes(Struct, frozen=True):
    """The classes of a dump: how many, what they are called, in class order, if they have names.

    `spelled`: the dump writes these names beside the scores, so that labels are names also where they are numbers.
    `listed`: labels may be lists of one, as lighteval writes them.
    """

    count: int
    names: tuple[str, ...] | None = None
    spelled: bool = False
    listed: bool = False


class LabelKind(Struct, frozen=True):
    """How labels are stored (`type`) and what the classes are called, in class order, if they have names."""

    type: pa.DataType
    names: tuple[str, ...] | None = None
    spelled: bool = False

    def encode(self, array: pa.Array, classes: int, report: Report, keep_unknown: bool = False) -> NDArray[np.int64]:
        """Class numbers of a label column; 0 in place of labels that were reported as bad.

        Labels that name none of the classes are bad too, unless they are kept as `UNKNOWN`.
        """
        if isinstance(array, pa.DictionaryArray):  # codes differ from batch to batch: only values count
            array = array.dictionary_decode()
        if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
            array = _only_values(array, report)
        if array.null_count:
            report(np.flatnonzero(np.asarray(array.is_null())), "no label (null)", _LATE)
        if is_text(array.type) and self.names is None:
            array = _whole_numbers(array, report)
        if is_text(array.type) or (self.spelled and pa.types.is_integer(array.type)):
            return self._from_names(array.cast(pa.large_string()), report, keep_unknown)
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.int8())
        return self._from_numbers(array, classes, report, keep_unknown)

    def _from_names(self, array: pa.Array, report: Report, keep_unknown: bool) -> NDArray[np.int64]:
        import pyarrow.compute as pc  # a tenth of a second that numeric labels need not pay

        assert self.names is not None
        codes = pc.index_in(array, value_set=pa.array(self.names, array.type))
        unknown = np.flatnonzero(np.asarray(codes.is_null()) & ~np.asarray(array.is_null()))
        if unknown.size and not keep_unknown:
            example = f"'{array[int(unknown[0])].as_py()}'"
            report(unknown, "a label that is not among the classes", self.known_classes(0), example)
        numbers: NDArray[np.int64] = codes.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        numbers[unknown] = UNKNOWN if keep_unknown else 0
        return numbers

    def _from_numbers(self, array: pa.Array, classes: int, report: Report, keep_unknown: bool) -> NDArray[np.int64]:
        if array.null_count:
            array = array.fill_null(0)
        values = as_numpy(array)
        if values.dtype.kind == "f":
            fractional = np.flatnonzero(~(values == np.floor(values)) | np.isinf(values))
            if fractional.size:
                remedy = f"{classes} scores per row mean classes 0 to {classes - 1}"
                report(fractional, "a label that is not a whole number", remedy, f"{values[fractional[0]]:g}")
                values = values.copy()
                values[fractional] = 0
        outside = np.flatnonzero((values < 0) | (values >= classes))
        if not outside.size:
            return values.astype(np.int64, copy=False)
        first = int(values[outside[0]])
        values = values.copy()
        values[outside] = 0  # what no integer can hold is not cast
        numbers: NDArray[np.int64] = values.astype(np.int64, copy=False)
        if keep_unknown:
            numbers[outside] = UNKNOWN
        else:
            remedy = self.known_classes(classes, first)
            report(outside, f"a label outside 0 to {classes - 1}", remedy, f"{first}")
        return numbers

    def known_classes(self, classes: int, label: Any = None) -> str:
        """What to do about a label that is none of them."""
        if is_text(self.type):
            known = f"name every class with `classes`, in the order of the logits (now: {shown(self.names or ())})"
        else:
            start = "; do yours start at 1?" if label == classes else ""
            known = f"{classes} scores per row mean classes 0 to {classes - 1}{start}"
        return f"{known}; {_NEW}"

    def decode(self, classes: NDArray[np.int64]) -> pa.Array:
        """Class numbers in the label's own type."""
        if is_text(self.type):
            assert self.names is not None
            return pa.array(self.names, pa.string()).take(pa.array(classes)).cast(self.type)
        if pa.types.is_boolean(self.type):
            return boolean_array(classes.astype(bool))
        return plain_array(classes.astype(numpy_type(self.type), copy=False))


def _whole_numbers(array: pa.Array, report: Report) -> pa.Array:
    """The class numbers that a format without types has as text: 01 is class 1."""
    import pyarrow.compute as pc

    whole = pc.match_substring_regex(array, r"^[+-]?[0-9]{1,18}$")
    text = np.flatnonzero(~np.asarray(whole.fill_null(True)))
    report(text, "a label that is text", _NAME_THEM, f"'{array[int(text[0])].as_py()}'" if text.size else "")
    return pc.if_else(whole, array, "0").cast(pa.int64())


def label_kind(data_type: pa.DataType, classes: Classes, where: str, typed: bool = True) -> LabelKind:
    """Check that labels of a type can be read and say how; in formats that are not `typed`, numbers may be text."""
    data_type = value_type(data_type)
    if classes.listed and (pa.types.is_list(data_type) or pa.types.is_large_list(data_type)):
        data_type = value_type(data_type.value_type)
    count = classes.count
    if classes.spelled and pa.types.is_integer(data_type):
        return LabelKind(pa.string(), classes.names, spelled=True)
    if is_text(data_type):
        if classes.names is None and not typed:
            return LabelKind(pa.int64())
        if classes.names is None:
            raise DumpError(f"{where}: labels are text; {_NAME_THEM}")
    elif not (pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_boolean(data_type)):
        kind = "null in every row" if pa.types.is_null(data_type) else str(data_type)
        raise DumpError(
            f"{where}: labels are {kind}; they must be class numbers 0 to {count - 1} (an integer column) or names"
        )
    elif pa.types.is_boolean(data_type) and count != 2:
        raise DumpError(f"{where}: labels are true or false but rows have {count} scores; use class numbers")
    elif not pa.types.is_boolean(data_type):
        data_type = _wide_enough(data_type, count)
    if not is_text(data_type):
        _check_numbers(classes.names or (), pa.types.is_boolean(data_type), where)
    return LabelKind(data_type, classes.names)


def _check_numbers(names: Sequence[str], boolean: bool, where: str) -> None:
    """Raise where a label that is a number, or true or false, is one class by its number and another by its name."""
    for number, name in enumerate(names):
        meant: float | None = {"false": 0, "true": 1}.get(name.strip().lower()) if boolean else None
        if meant is None:
            with contextlib.suppress(ValueError):
                meant = float(name)
        if meant is not None and meant != number and meant in range(len(names)):
            raise DumpError(
                f"{where}: label {name} is class {int(meant)} ('{names[int(meant)]}') by its number but class {number} "
                f"by its name; store the labels as text to have them read as names (in parquet, Arrow or JSON), or, if "
                "they are class numbers, name the classes otherwise, such as class_0"
            )


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


# Labels in another file

_AGAIN = "a key that occurred before"
_MATCHED_TOGETHER = 1 << 22
"""Keys of rows that are looked up at a time: each time, the keys of the labels are hashed anew."""


class LabelsElsewhere(Struct, frozen=True):
    """The labels of all rows of a dump, in their order, from another file: by a key, or by the order itself.

    `on` is the key column, None without one. `known` tells which rows have a label, `repeated` which have a key that a
    row before them has. `stranger` is a label that names none of the classes, if there is one, and `known_classes` says
    what to do about it; only where a row of the dump has such a label does that matter.
    """

    file: str
    on: str | None
    kind: LabelKind
    labels: NDArray[np.int64]
    known: NDArray[np.bool_]
    repeated: NDArray[np.bool_]
    stranger: str = ""
    known_classes: str = ""

    def of(self, block: Block, skip_missing: bool, keep_unknown: bool) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The label of each row, and whether it has one; rows without are reported unless they are skipped."""
        rows = block.rows_before + block.row_numbers()
        labels, known, repeated = self.labels[rows], self.known[rows], np.flatnonzero(self.repeated[rows])
        if self.on is None:
            return labels, known
        keys = block.columns.column(self.on)
        missing = np.flatnonzero(~known)
        nulls = np.asarray(keys.is_null())[missing] if missing.size else np.empty(0, bool)
        if not skip_missing:
            block.report(missing[nulls], "no key (null)", "every row needs its key", column=self.on)
            remedy = f"add it to {self.file}, or leave such rows out with `on_missing_label=skip`"
            unknown = missing[~nulls]
            block.report(unknown, f"no label in {self.file}", remedy, _example(keys, unknown), column=self.on)
        block.report(repeated, _AGAIN, "a row must have its own key", _example(keys, repeated), column=self.on)
        strange = np.flatnonzero(known & (labels == UNKNOWN))
        if strange.size and not keep_unknown:
            what = f"a label in {self.file} that is not among the classes, such as {self.stranger}"
            block.report(strange, what, self.known_classes, _example(keys, strange), column=self.on)
            labels = np.maximum(labels, 0)
        return labels, known


KeyColumn = tuple[DumpFile, pa.ChunkedArray]
"""The keys of the rows of a file."""


def _example(keys: pa.Array, rows: NDArray[np.intp]) -> str:
    return f"key {key_array(keys.slice(int(rows[0]), 1), '')[0].as_py()}" if rows.size else ""


def labels_elsewhere(
    path: str,
    options: DumpOptions,
    classes: Classes,
    keys_of_rows: Iterable[KeyColumn],
    rows: int,
    spools: Spools | None,
) -> LabelsElsewhere:
    """The labels of another file for so many rows: matched by the key of the options, or by their order without one.

    Every label must have a key, and no two the same.
    """
    problems = Problems()
    tables = [_read_labels(file, options, classes, problems) for file in find_parts([path], spools)]
    problems.raise_first()
    labels, kind, on = np.concatenate([table[1] for table in tables]), tables[0][2], options.join_on
    if on is None:
        if labels.size != rows:
            raise DumpError(
                f"{path}: it has {labels.size} labels but the dump has {rows} rows; without `join_on=COL` labels "
                "belong to rows by their order, so there must be one for each"
            )
        return LabelsElsewhere(path, None, kind, labels, np.ones(rows, bool), np.zeros(rows, bool))
    filled = [(table[0], table[3]) for table in tables if len(table[0])]
    if not filled:
        raise DumpError(f"{path}: zero rows; there are no labels to join")
    keys = _unique_keys(filled, on)
    import pyarrow.compute as pc

    places = [
        pc.index_in(some, value_set=keys, skip_nulls=True).fill_null(-1).to_numpy().astype(np.int64)
        for some in _together(keys_of_rows, on, keys.type, path)
    ]
    found = np.concatenate(places) if places else np.empty(0, np.int64)
    known = found >= 0
    repeated = np.zeros(found.size, bool)
    repeated[np.flatnonzero(known)[_repeated(found[known])]] = True
    stranger = next((table[4] for table in tables if table[4]), ())
    return LabelsElsewhere(path, on, kind, labels[np.maximum(found, 0)], known, repeated, *stranger)


def _unique_keys(tables: Sequence[tuple[pa.Array, str]], on: str) -> pa.Array:
    """The keys of the labels of several files, one after the other; raises where one occurs twice."""
    for keys, file in tables:
        if keys.type != tables[0][0].type:
            raise DumpError(f"{file}: column '{on}' is of another type than in {tables[0][1]}")
    together = pa.concat_arrays([keys for keys, _ in tables])
    again = _repeated(as_numpy(together.dictionary_encode().indices))
    if again.size:
        ends = np.cumsum([len(keys) for keys, _ in tables])
        number = int(np.searchsorted(ends, again[0], side="right"))
        row = int(again[0]) - int(ends[number]) + len(tables[number][0])
        place = (tables[number][1], row, len(again), f"key {together[int(again[0])].as_py()}")
        problem = Problem(_AGAIN, on, "a key must name one label: drop the repeated rows", *place)
        raise DumpError(problem.message())
    return together


def _together(columns: Iterable[KeyColumn], on: str, kind: pa.DataType, path: str) -> Iterator[pa.ChunkedArray]:
    """The keys of all rows, those of small files together."""
    waiting: list[pa.Array] = []
    for file, column in columns:
        keys = key_array(_whole(column), f"{file.name}: column '{on}'")
        if keys.type != kind:
            there = "text" if pa.types.is_string(kind) else "whole numbers"
            raise DumpError(
                f"{file.name}: column '{on}' is {column.type} but {path} has {there} there; write both as one type"
            )
        waiting.append(keys)
        if sum(map(len, waiting)) >= _MATCHED_TOGETHER:
            yield pa.chunked_array(waiting)
            waiting = []
    if waiting:
        yield pa.chunked_array(waiting)


def _read_labels(
    file: DumpFile, options: DumpOptions, classes: Classes, problems: Problems
) -> tuple[pa.Array, NDArray[np.int64], LabelKind, str, tuple[str, ...]]:
    """Keys and labels of one file, how labels are stored, what messages call it, and a label of none of the classes."""

    def report(rows: NDArray[np.intp], what: str, remedy: str, example: str = "", column: str = "") -> None:
        if rows.size:
            place = (file.name, int(rows[0]), int(rows.size))
            problems.add([Problem(what, column or name, remedy, *place, example)])

    on = options.join_on
    info = format_of(file).look(file)
    known = info.schema.names
    if on is not None and on not in known:
        raise DumpError(f"{file.name}: there is no column '{on}' to join on; columns: {shown(known)}")
    name = _label_column(info.schema, options, on, file)
    table = read_table(file, [name] if on is None else [on, name], info)
    if options.on_missing_label == "skip" and table.column(name).null_count:  # labels that have not come yet
        table = table.filter(table.column(name).is_valid())
    kind = label_kind(table.schema.field(name).type, classes, f"{file.name}: column '{name}'", info.typed)
    keep_unknown = on is not None or options.on_unknown_label != "error"  # of rows that are not joined they are nothing
    labels = kind.encode(_whole(table.column(name)), classes.count, report, keep_unknown)
    stranger: tuple[str, ...] = ()
    for row in np.flatnonzero(labels == UNKNOWN)[:1]:
        label = table.column(name)[int(row)].as_py()
        stranger = (repr(label), kind.known_classes(classes.count, label))
    if on is None:
        return pa.array([], pa.int64()), labels, kind, file.name, stranger
    keys = key_array(_whole(table.column(on)), f"{file.name}: column '{on}'")
    report(np.flatnonzero(np.asarray(keys.is_null())), "no key (null)", "every label needs its key", column=on)
    return keys, labels, kind, file.name, stranger


def _label_column(schema: pa.Schema, options: DumpOptions, on: str | None, file: DumpFile) -> str:
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
            f"{file.name}: there is no column '{options.label or LABEL}'; choose the label column with `label` among: "
            f"{shown(known)}"
        )
    return name


def _repeated(codes: NDArray[Any]) -> NDArray[np.intp]:
    """The places of numbers that occurred before."""
    first = np.zeros(codes.size, bool)
    first[np.unique(codes, return_index=True)[1]] = True
    return np.flatnonzero(~first)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """One array; dictionaries, which may differ from chunk to chunk, are decoded first."""
    chunks = [c.dictionary_decode() if isinstance(c, pa.DictionaryArray) else c for c in column.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], value_type(column.type))


def key_array(column: pa.Array, where: str) -> pa.Array:
    """Keys as whole numbers (int64) or text (string)."""
    while isinstance(column, pa.ExtensionArray):
        column = column.storage
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    kind = column.type
    try:
        if pa.types.is_floating(kind):
            values = column.drop_null().to_numpy(zero_copy_only=False)
            bits = np.finfo(values.dtype).nmant + 1  # from here on different whole numbers may be one of this type
            if (np.abs(values) >= 2.0**bits).any():
                raise ValueError(f"floating-point numbers of 2^{bits} and more are not exact")
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):  # pandas turns numbers with gaps into floats
            return column.cast(pa.int64())
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
            return pa.array([None if key is None else key.hex() for key in column.to_pylist()], pa.string())
        return column.cast(pa.string())
    except (pa.ArrowException, ValueError) as error:
        raise DumpError(f"{where} is {kind}; keys must be whole numbers or text ({one_line(error)})") from None


def sortable_keys(column: pa.Array, where: str) -> tuple[NDArray[np.int64] | NDArray[np.object_], NDArray[np.intp]]:
    """Keys as whole numbers or text (None where there is none), and the rows without one."""
    keys = key_array(column, where)
    nulls = np.flatnonzero(np.asarray(keys.is_null()))
    if pa.types.is_integer(keys.type):
        return keys.fill_null(0).to_numpy(zero_copy_only=False), nulls
    text = np.empty(len(keys), object)
    text[:] = keys.to_pylist()
    return text, nulls
