"""Labels: from whatever type a dump stores them in to class numbers, always by value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.dumps.arrays import Report, boolean_array, plain_array
from drrej.errors import DumpError


@dataclass(frozen=True)
class LabelKind:
    """How labels are stored (`type`) and what the classes are called, in class order, if they have names."""

    type: pa.DataType
    names: tuple[str, ...] | None = None

    def encode(self, array: pa.Array, classes: int, report: Report) -> NDArray[np.int64]:
        """Class numbers of a label column; 0 in place of labels that were reported as bad."""
        if isinstance(array, pa.DictionaryArray):  # codes differ from batch to batch: only values count
            array = array.dictionary_decode()
        if array.null_count:
            report(np.flatnonzero(np.asarray(array.is_null())), "no label (null)", "drop or fix these rows")
        if _is_text(array.type):
            return self._from_names(array, report)
        if pa.types.is_boolean(array.type):
            return _without_bad(array.cast(pa.int8()), classes, report)
        return _without_bad(array, classes, report)

    def _from_names(self, array: pa.Array, report: Report) -> NDArray[np.int64]:
        import pyarrow.compute as pc  # a tenth of a second that numeric labels need not pay

        assert self.names is not None
        codes = pc.index_in(array, value_set=pa.array(self.names, array.type))
        unknown = np.flatnonzero(np.asarray(codes.is_null()) & ~np.asarray(array.is_null()))
        if unknown.size:
            what = f"a label that is not among the classes ('{array[int(unknown[0])].as_py()}')"
            report(unknown, what, "name every class with --classes, in the order of the logits")
        numbers: NDArray[np.int64] = codes.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return numbers

    def decode(self, classes: NDArray[np.int64]) -> pa.Array:
        """Class numbers in the label's own type."""
        if _is_text(self.type):
            assert self.names is not None
            return pa.array(self.names, self.type).take(pa.array(classes))
        if pa.types.is_boolean(self.type):
            return boolean_array(classes.astype(bool))
        return plain_array(classes.astype(self.type.to_pandas_dtype(), copy=False))


def label_kind(data_type: pa.DataType, names: Sequence[str] | None, classes: int, where: str) -> LabelKind:
    """Check that labels of a type can be read and say how."""
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    known = None if names is None else tuple(names)
    if _is_text(data_type):
        if known is None:
            raise DumpError(f"{where}: labels are text; name the classes in the order of the logits with --classes")
    elif not (pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_boolean(data_type)):
        raise DumpError(f"{where}: labels are {data_type}; they must be class numbers 0 to {classes - 1} or names")
    return LabelKind(data_type, known)


def _is_text(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(data_type) or pa.types.is_large_string(data_type) or pa.types.is_string_view(data_type)
    )


def _without_bad(array: pa.Array, classes: int, report: Report) -> NDArray[np.int64]:
    if array.null_count:
        array = array.fill_null(0)
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        fractional = np.flatnonzero(~(values == np.floor(values)) | np.isinf(values))
        report(fractional, "a label that is not a whole number", "labels are class numbers, starting at 0")
        values = values.copy()
        values[fractional] = 0
    outside = np.flatnonzero((values < 0) | (values >= classes))
    if outside.size:
        what = f"a label outside 0 to {classes - 1} ({values[outside[0]]:g})"
        report(outside, what, "labels are class numbers, starting at 0")
        values = values.copy()
        values[outside] = 0
    numbers: NDArray[np.int64] = values.astype(np.int64, copy=False)
    return numbers
