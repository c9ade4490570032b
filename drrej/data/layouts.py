"""Arrow columns to numpy arrays of scores, without trusting them: nulls and lengths are looked at first.

`.values` ignores slices, `.flatten()` drops null rows and shifts all that follow, and a ragged list can reshape
without an error, so the plain path is taken only when every row is there and has K values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.core.types import AnyFloats


class Report(Protocol):
    """Called with bad rows of a block, what they have, the remedy, and what the first of them holds."""

    def __call__(self, rows: NDArray[np.intp], what: str, remedy: str, example: str = "") -> None:
        """Note bad rows; nothing happens when there are none."""


_DROP = "drop or fix these rows"


def scores_from_list(array: pa.Array, classes: int, report: Report) -> AnyFloats:
    """(rows x classes) of a list, large_list, fixed_size_list or fixed_shape_tensor column."""
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    rows = len(array)
    if pa.types.is_fixed_size_list(array.type):
        width = array.type.list_size
        starts = (np.arange(rows, dtype=np.int64) + array.offset) * width
        lengths = np.full(rows, width, dtype=np.int64)
        values = array.values
    else:
        offsets = as_numpy(array.offsets)
        starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
        values = array.values
    missing = _null_rows(array)
    report(missing, "no value (null)", _DROP)
    whole = lengths == classes
    whole[missing] = False
    if whole.all() and rows:
        span = values.slice(int(starts[0]), rows * classes)
        if not span.null_count:
            return _to_numpy(span).reshape(rows, classes)
    ragged = np.flatnonzero(~whole)
    ragged = ragged[~np.isin(ragged, missing)]
    if ragged.size:
        example = f"it has {int(lengths[ragged[0]])}"
        report(ragged, f"not {classes} scores", "every row needs one score per class", example)
    scores = np.zeros((rows, classes), _numpy_type(values.type))
    good = np.flatnonzero(whole)
    if good.size:
        index = starts[good][:, None] + np.arange(classes)
        taken = values.take(pa.array(index.ravel()))
        nulls = np.asarray(taken.is_null()).reshape(index.shape).any(axis=1)
        report(good[nulls], "a null among the scores", _DROP)
        scores[good] = _to_numpy(taken).reshape(index.shape)
        scores[good[nulls]] = 0
    return scores


def scores_from_columns(arrays: Sequence[pa.Array], report: Report) -> AnyFloats:
    """(rows x classes) of one column per class; stored classes-first, so the result is a transposed view."""
    scores = np.empty((len(arrays), len(arrays[0])), _numpy_type(_widest(arrays)))
    missing = np.zeros(len(arrays[0]), bool)
    for row, array in zip(scores, arrays, strict=True):
        if array.null_count:
            missing |= np.asarray(array.is_null())
        row[:] = _to_numpy(array)
    bad = np.flatnonzero(missing)
    report(bad, "a null among the scores", _DROP)
    scores[:, bad] = 0
    return scores.T


def scores_from_score(array: pa.Array, report: Report) -> AnyFloats:
    """(rows x 1) of the one score of class 1 (`binary=True`)."""
    missing = _null_rows(array)
    report(missing, "no value (null)", _DROP)
    score = _to_numpy(array)
    if missing.size:
        score = score.copy()
        score[missing] = 0
    return score[:, None]


def as_numpy(array: pa.Array) -> NDArray[Any]:
    """An Arrow array as a numpy array; numbers without nulls are not copied, and do not load pandas first."""
    is_number = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    if not is_number or array.null_count or not len(array):
        values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return values
    kind = numpy_type(array.type)
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)


def numpy_type(data_type: pa.DataType) -> np.dtype[Any]:
    """The numpy type of an Arrow type of numbers (`to_pandas_dtype` needs pandas in older versions)."""
    letter = "f" if pa.types.is_floating(data_type) else "u" if pa.types.is_unsigned_integer(data_type) else "i"
    return np.dtype(f"{letter}{data_type.bit_width // 8}")


def plain_array(values: NDArray[Any]) -> pa.Array:
    """A numpy array without nulls as an Arrow array, not copied (`pa.array` and casts load heavy modules first)."""
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [None, pa.py_buffer(values)])


def boolean_array(values: NDArray[np.bool_]) -> pa.Array:
    """The same for booleans, which Arrow packs into bits."""
    packed = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), values.size, [None, pa.py_buffer(packed)])


def _null_rows(array: pa.Array) -> NDArray[np.intp]:
    return np.flatnonzero(np.asarray(array.is_null())) if array.null_count else np.empty(0, np.intp)


def _numpy_type(data_type: pa.DataType) -> np.dtype[np.floating[Any]]:
    if pa.types.is_integer(data_type):  # of numbers that are written as text
        return np.dtype(np.float64)
    return numpy_type(data_type)


def _widest(arrays: Sequence[pa.Array]) -> pa.DataType:
    return max((array.type for array in arrays), key=lambda t: t.bit_width)


def _to_numpy(array: pa.Array) -> AnyFloats:
    if pa.types.is_integer(array.type):
        array = array.cast(pa.float64())
    values: AnyFloats = as_numpy(array)
    return values
