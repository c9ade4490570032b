"""Labels: from whatever type a dump stores them in to class numbers, always by value."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from drrej.data.columns import LABEL, as_numpy, likely_label, list_bounds, numpy_type, plain
from drrej.data.formats import format_of, read_table
from drrej.data.listing import Spools, find_parts
from drrej.data.problems import Problem, Problems, one_line, shown
from drrej.data.scores import Report, boolean_array, plain_array
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
LATE = "drop or fix these rows, or leave them out with `on_missing_label=skip`"


class LabelKind(Struct, frozen=True):
    """How labels are stored (`type`) and what the classes are called, in class order, if they have names."""

    type: pa.DataType
    names: tuple[str, ...] | None = None
    spelled: bool = False

    def encode(self, array: pa.Array, classes: int, report: Report, keep_unknown: bool = False) -> NDArray[np.int64]:
        """Class numbers of a label column; 0 in place of labels that were reported as bad.

        Labels that name none of the classes are bad too, unless they are kept as `UNKNOWN`.
        """
        if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
            array = _only_values(array, report)
        if array.null_count:
            report(np.flatnonzero(np.asarray(array.is_null())), "no label (null)", LATE)
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
    return pc.if_else(whole, pc.utf8_ltrim(array, "+"), "0").cast(pa.int64())


def label_kind(
    data_type: pa.DataType,
    where: str,
    typed: bool = True,
    *,
    classes: int,
    names: tuple[str, ...] | None,
    spelled: bool = False,
    listed: bool = False,
) -> LabelKind:
    """Check that labels of a type can be read and say how; in formats that are not `typed`, numbers may be text.

    `spelled`: the dump writes the names beside the scores, so that labels are names also where they are numbers.
    `listed`: labels may be lists of one, as lighteval writes them.
    """
    data_type = value_type(data_type)
    if listed and (pa.types.is_list(data_type) or pa.types.is_large_list(data_type)):
        data_type = value_type(data_type.value_type)
    if spelled and pa.types.is_integer(data_type):
        return LabelKind(pa.string(), names, spelled=True)
    if is_text(data_type):
        if names is None and typed:
            raise DumpError(f"{where}: labels are text; {_NAME_THEM}")
        return LabelKind(pa.int64() if names is None else data_type, names)
    boolean = bool(pa.types.is_boolean(data_type))
    if not (pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or boolean):
        kind = "null in every row" if pa.types.is_null(data_type) else str(data_type)
        raise DumpError(
            f"{where}: labels are {kind}; they must be class numbers 0 to {classes - 1} (an integer column) or names"
        )
    if boolean and classes != 2:
        raise DumpError(f"{where}: labels are true or false but rows have {classes} scores; use class numbers")
    if not boolean:  # predictions have the same type, if it holds them: 200 classes do not fit in int8
        own = numpy_type(data_type)
        most = 1 << (np.finfo(own).nmant + 1) if own.kind == "f" else np.iinfo(own).max
        data_type = data_type if classes - 1 <= most else pa.int64()
    _check_numbers(names or (), boolean, where)
    return LabelKind(data_type, names)


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
                "they are class numbers, use other class names, such as class_0"
            )


def value_type(data_type: pa.DataType) -> pa.DataType:
    """The type of the values of a dictionary."""
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


def is_text(data_type: pa.DataType) -> bool:
    """Whether a column holds text."""
    return data_type in (pa.string(), pa.large_string(), pa.string_view())


def without_blanks(array: pa.Array) -> pa.Array:
    """Labels with null in place of empty texts, as text files have them where a label has not come."""
    if not is_text(array.type):
        return array
    import pyarrow.compute as pc  # a tenth of a second that numeric labels need not pay

    array = array.cast(pa.large_string())
    return pc.if_else(pc.equal(pc.binary_length(array), 0), pa.scalar(None, array.type), array)


def _only_values(array: pa.Array, report: Report) -> pa.Array:
    """The value of each list of one; others are no labels."""
    missing = np.asarray(array.is_null())
    starts, lengths, values = list_bounds(array)
    several = np.flatnonzero((lengths > 1) & ~missing)
    report(several, "several right answers", "leave these rows out: a row has one label")
    return values.take(pa.array(starts, pa.int64(), mask=missing | (lengths == 0)))


# Labels in another file

_AGAIN = "a key that occurred before"


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
    truths: pa.Array | None = None
    """The labels themselves where predictions are compared with them: then `labels` are places among these."""

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


def _example(keys: pa.Array, rows: NDArray[np.intp]) -> str:
    return f"key {key_array(keys.slice(int(rows[0]), 1), '')[0].as_py()}" if rows.size else ""


def labels_elsewhere(
    path: str,
    options: DumpOptions,
    classes: int,
    kind_of: Callable[[pa.DataType, str, bool], LabelKind],
    keys_of_rows: Iterable[tuple[str, pa.ChunkedArray]],
    rows: int,
    spools: Spools | None,
) -> LabelsElsewhere:
    """The labels of another file for so many rows: matched by the key of the options, or by their order without one.

    `kind_of` is `label_kind` for the classes of the dump, `keys_of_rows` the keys of each of its files by their names.
    Every label must have a key, and no two the same.
    """
    problems, on = Problems(), options.join_on
    keys, labels, kinds, truths = list[tuple[str, pa.Array]](), [], [], []
    stranger = ("", "")
    keep_unknown = on is not None or options.on_unknown_label != "error"  # of rows that are not joined they are nothing
    for file in find_parts([path], spools):
        info = format_of(file).look(file)
        if on is not None and on not in info.schema.names:
            raise DumpError(f"{file.name}: there is no column '{on}' to join on; columns: {shown(info.schema.names)}")
        name = _label_column(info.schema, options, file.name)
        table = read_table(file, [name] if on is None else [on, name], info)
        table = table.set_column(table.schema.names.index(name), name, without_blanks(_whole(table.column(name))))
        if options.on_missing_label == "skip" and table.column(name).null_count:  # labels that have not come yet
            table = table.filter(table.column(name).is_valid())
        kind = kind_of(table.schema.field(name).type, f"{file.name}: column '{name}'", info.typed)
        report = partial(_report, problems, file.name, name)
        if options.prediction is not None:
            truths.append(_whole(table.column(name)))
            report(np.flatnonzero(np.asarray(truths[-1].is_null())), "no label (null)", LATE)
            labels.append(np.arange(table.num_rows) + sum(map(len, truths[:-1])))
        else:
            labels.append(kind.encode(_whole(table.column(name)), classes, report, keep_unknown))
        kinds.append(kind)
        for row in np.flatnonzero(labels[-1] == UNKNOWN)[:1] if not any(stranger) else ():
            label = table.column(name)[int(row)].as_py()
            stranger = (repr(label), kind.known_classes(classes, label))
        if on is not None and table.num_rows:
            found = key_array(_whole(table.column(on)), f"{file.name}: column '{on}'")
            missing = np.flatnonzero(np.asarray(found.is_null()))
            _report(problems, file.name, on, missing, "no key (null)", "every label needs its key")
            keys.append((file.name, found))
    problems.raise_first()
    known = np.concatenate(labels)
    if len({truth.type for truth in truths}) > 1:
        raise DumpError(f"{path}: the labels are of several types; write them in one type")
    truth = pa.concat_arrays(truths) if truths else None
    if on is None:
        if known.size != rows:
            raise DumpError(
                f"{path}: it has {known.size} labels but the dump has {rows} rows; without `join_on=COL` labels "
                "belong to rows by their order, so there must be one for each"
            )
        return LabelsElsewhere(path, None, kinds[0], known, np.ones(rows, bool), np.zeros(rows, bool), truths=truth)
    if not keys:
        raise DumpError(f"{path}: zero rows; there are no labels to join")
    found = _places(keys_of_rows, _unique_keys(keys, on), on, path)
    repeated = np.zeros(found.size, bool)
    there = np.flatnonzero(found >= 0)
    repeated[there[_repeated(found[there])]] = True
    numbers = known[np.maximum(found, 0)]
    return LabelsElsewhere(path, on, kinds[0], numbers, found >= 0, repeated, *stranger, truth)


def _report(
    problems: Problems, file: str, column: str, rows: NDArray[np.intp], what: str, remedy: str, example: str = ""
) -> None:
    if rows.size:
        problems.add([Problem(what, column, remedy, file, int(rows[0]), int(rows.size), example)])


def _unique_keys(columns: Sequence[tuple[str, pa.Array]], on: str) -> pa.Array:
    """The keys of the labels of several files, one after the other; raises where one occurs twice."""
    first = columns[0]
    for file, keys in columns:
        if keys.type != first[1].type:
            raise DumpError(f"{file}: column '{on}' is of another type than in {first[0]}")
    together = pa.concat_arrays([keys for _, keys in columns])
    again = _repeated(as_numpy(together.dictionary_encode().indices))
    if again.size:
        ends = np.cumsum([len(keys) for _, keys in columns])
        number = int(np.searchsorted(ends, again[0], side="right"))
        file, keys = columns[number]
        row, example = int(again[0]) - int(ends[number]) + len(keys), f"key {together[int(again[0])].as_py()}"
        remedy = "a key must name one label: drop the repeated rows"
        raise DumpError(Problem(_AGAIN, on, remedy, file, row, len(again), example).message())
    return together


def _places(columns: Iterable[tuple[str, pa.ChunkedArray]], keys: pa.Array, on: str, path: str) -> NDArray[np.int64]:
    """Where among the keys of the labels those of the rows are, -1 for none."""
    import pyarrow.compute as pc

    chunks = []
    for file, column in columns:
        chunks.append(key_array(_whole(column), f"{file}: column '{on}'"))
        if chunks[-1].type != keys.type:
            there = "text" if pa.types.is_string(keys.type) else "whole numbers"
            raise DumpError(
                f"{file}: column '{on}' is {column.type} but {path} has {there} there; write both as one type"
            )
    found = pc.index_in(pa.chunked_array(chunks, keys.type), value_set=keys, skip_nulls=True)
    places: NDArray[np.int64] = found.fill_null(-1).to_numpy().astype(np.int64)
    return places


def _label_column(schema: pa.Schema, options: DumpOptions, file: str) -> str:
    """The column of labels: as asked for, as labels are called, or the only one besides the key."""
    if options.label is not None and options.label in schema.names:
        return options.label
    others = [name for name in schema.names if name != options.join_on]
    name = likely_label(schema) if options.label is None else None
    if name is None and len(others) == 1 and (options.label is None or options.join_on is None):
        name = others[0]
    if name is None:
        raise DumpError(
            f"{file}: there is no column '{options.label or LABEL}'; choose the label column with `label` among: "
            f"{shown(schema.names)}"
        )
    return name


def _repeated(codes: NDArray[Any]) -> NDArray[np.intp]:
    """The places of numbers that occurred before."""
    first = np.zeros(codes.size, bool)
    first[np.unique(codes, return_index=True)[1]] = True
    return np.flatnonzero(~first)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """One plain array."""
    chunks = [plain(chunk) for chunk in column.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], value_type(column.type))


def key_array(column: pa.Array, where: str) -> pa.Array:
    """Keys as whole numbers (int64) or text (string)."""
    column = plain(column)
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
    return (keys.fill_null(0) if pa.types.is_integer(keys.type) else keys).to_numpy(zero_copy_only=False), nulls
