"""Labels: from whatever type a dump stores them in to class numbers, always by value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.data.layouts import Report, as_numpy, boolean_array, numpy_type, plain_array
from drrej.data.problems import shown
from drrej.errors import DumpError
from drrej.records import dataclass

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
