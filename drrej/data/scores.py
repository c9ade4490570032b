"""Arrow columns to numpy arrays of scores, without trusting them: nulls and lengths are looked at first.

`.values` ignores slices, `.flatten()` drops null rows and shifts all that follow, and a ragged list can reshape
without an error, so the plain path is taken only when every row is there and has K values.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.core.types import AnyFloats, Floats
from drrej.data.columns import LogitColumns, as_numpy, column_of, list_bounds, list_items

Report = Callable[..., None]
"""Called with bad rows of a block, if any, what they have, the remedy, and what the first of them holds."""

_DROP = "drop or fix these rows"


def read_scores(batch: pa.RecordBatch, columns: LogitColumns, classes: int, report: Report) -> AnyFloats:
    """The scores of the rows of a batch (rows x classes; rows x 1 where each has one score), in their own type."""
    first, *others = (column_of(batch, name) for name in columns.names)
    if columns.layout in ("wide", "score"):
        return scores_from_columns([first, *others], report)
    if first.null_count:
        report(np.flatnonzero(np.asarray(first.is_null())), "no value (null)", _DROP)
    if columns.layout == "list":
        return scores_from_list(first, classes, report)
    if columns.layout == "vector":
        return scores_from_vector(first, classes, report)
    if columns.layout == "labelled":
        return scores_from_labelled(first, columns.classes or tuple(str(i) for i in range(classes)), report)
    if columns.layout == "tokens":
        return scores_from_tokens(first, columns.classes or (), report)
    texts = None if columns.texts is None else column_of(batch, columns.texts)
    return scores_from_choices(first, classes, report, texts)


def scores_from_list(array: pa.Array, classes: int, report: Report) -> AnyFloats:
    """(rows x classes) of a list, large_list or fixed_size_list column."""
    rows, (starts, lengths, values) = len(array), list_bounds(array)
    missing = np.flatnonzero(np.asarray(array.is_null())) if array.null_count else np.empty(0, np.intp)
    whole = lengths == classes
    whole[missing] = False
    if whole.all() and rows:
        span = values.slice(int(starts[0]), rows * classes)
        if not span.null_count:
            return _floats(span).reshape(rows, classes)
    ragged = np.flatnonzero(~whole)
    ragged = ragged[~np.isin(ragged, missing)]
    if ragged.size:
        example = f"it has {int(lengths[ragged[0]])}"
        report(ragged, f"not {classes} scores", "every row needs one score per class", example)
    scores = np.zeros((rows, classes), _floats(values[:0]).dtype)
    good = np.flatnonzero(whole)
    if good.size:
        index = starts[good][:, None] + np.arange(classes)
        taken = values.take(pa.array(index.ravel()))
        nulls = np.asarray(taken.is_null()).reshape(index.shape).any(axis=1)
        report(good[nulls], "a null among the scores", _DROP)
        scores[good] = _floats(taken).reshape(index.shape)
        scores[good[nulls]] = 0
    return scores


def scores_from_columns(arrays: Sequence[pa.Array], report: Report) -> AnyFloats:
    """(rows x classes) of one column per class, or (rows x 1) of the one score of class 1 (`binary=True`).

    Stored classes-first, so the result is a transposed view.
    """
    widest = max(arrays, key=lambda array: array.type.bit_width)
    scores = np.empty((len(arrays), len(arrays[0])), _floats(widest[:0]).dtype)
    missing = np.zeros(len(arrays[0]), bool)
    for row, array in zip(scores, arrays, strict=True):
        if array.null_count:
            missing |= np.asarray(array.is_null())
        row[:] = _floats(array)
    bad = np.flatnonzero(missing)
    report(bad, "a null among the scores" if len(arrays) > 1 else "no value (null)", _DROP)
    scores[:, bad] = 0
    return scores.T


def plain_array(values: NDArray[Any]) -> pa.Array:
    """A numpy array without nulls as an Arrow array, not copied (`pa.array` and casts load heavy modules first)."""
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [None, pa.py_buffer(values)])


def boolean_array(values: NDArray[np.bool_]) -> pa.Array:
    """The same for booleans, which Arrow packs into bits."""
    packed = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), values.size, [None, pa.py_buffer(packed)])


def _floats(array: pa.Array) -> AnyFloats:
    """Floating-point numbers, also where those that are written as text look whole."""
    values: AnyFloats = as_numpy(array.cast(pa.float64()) if pa.types.is_integer(array.type) else array)
    return values


def scores_from_choices(array: pa.Array, classes: int, report: Report, texts: pa.Array | None = None) -> AnyFloats:
    """(rows x classes) of lists of at most so many scores; a choice that a question does not have is impossible: -inf.

    With the `texts` of the choices, each score is divided by the number of characters of its choice.
    """
    owners, places, items = list_items(array)
    lengths = np.bincount(owners, minlength=len(array))
    few = np.flatnonzero(np.asarray(array.is_valid()) & (lengths < 2))
    example = f"it has {lengths[few[0]]}" if few.size else ""
    report(few, "fewer than 2 choices", "a question needs at least two", example)
    report(np.flatnonzero(lengths > classes), f"more than {classes} choices", "every row may have at most so many")
    report(np.unique(owners[np.asarray(items.is_null())]), "a null among the scores", _DROP)
    values = items.fill_null(0.0).to_numpy(zero_copy_only=False)
    if texts is not None:
        values = values / _characters(texts, lengths, report)
    scores = np.full((len(array), classes), -np.inf, values.dtype)
    known = places < classes
    scores[owners[known], places[known]] = values[known]
    scores[lengths == 0] = 0.0  # placeholders of rows that were reported
    return scores


def _characters(texts: pa.Array, lengths: NDArray[np.int64], report: Report) -> Floats:
    """The lengths of the texts of all choices, one after the other."""
    counts: list[float] = []
    wrong = []
    for row, (choices, length) in enumerate(zip(texts.to_pylist(), lengths.tolist(), strict=True)):
        sizes = [float(len(text or "")) for text in choices or ()]
        if len(sizes) != length or 0.0 in sizes:
            wrong.append(row)
            sizes = [1.0] * length
        counts += sizes
    report(np.array(wrong, np.intp), "no text for each choice", "`per_length=True` needs the texts of all choices")
    return np.array(counts)


_SPARSE, _DENSE = 0, 1


def vector_sizes(array: pa.Array) -> list[int]:
    """How many scores the vectors of a column have; null ones are left out."""
    vectors = [vector for vector in array.to_pylist() if vector is not None]
    return [int(v["size"] or 0) if v["type"] == _SPARSE else len(v["values"] or ()) for v in vectors]


def scores_from_vector(array: pa.Array, classes: int, report: Report) -> AnyFloats:
    """(rows x classes) of Spark ML vectors: dense ones (type 1) hold all values, sparse ones (type 0) those not 0."""
    import pyarrow.compute as pc

    missing = np.asarray(array.is_null())
    kinds = pc.struct_field(array, ["type"]).fill_null(_DENSE).to_numpy(zero_copy_only=False)
    sparse = (kinds == _SPARSE) & ~missing
    unknown = np.flatnonzero(~missing & (kinds != _SPARSE) & (kinds != _DENSE))
    report(unknown, "a vector that is neither dense (type 1) nor sparse (type 0)", _DROP)
    present = np.flatnonzero(~sparse & ~missing)
    values = pc.struct_field(array, ["values"])
    scores = np.zeros((len(array), classes))
    if present.size:
        dense = values if present.size == len(array) else values.take(pa.array(present))
        scores[present] = scores_from_list(dense, classes, lambda rows, *words: report(present[rows], *words))
    odd = [row for row in np.flatnonzero(sparse).tolist() if not _fill(scores[row], array[row].as_py())]
    what = f"a sparse vector that is not one of {classes} scores"
    report(np.array(odd, np.intp), what, "every row needs one score per class")
    return scores


def _fill(scores: Floats, vector: dict[str, Any]) -> bool:
    """Put the values of a sparse vector in their places; tells whether it is sound."""
    places, values = vector["indices"], vector["values"]
    if vector["size"] != scores.size or places is None or values is None or len(places) != len(values):
        return False
    if None in places or None in values or any(not 0 <= place < scores.size for place in places):
        return False
    if any(after <= before for before, after in itertools.pairwise(places)):
        return False
    scores[places] = values
    return True


def labels_in(array: pa.Array) -> list[str]:
    """The labels of lists of (label, probability), sorted: as numbers if they are whole numbers."""
    found = {item["label"] for row in array.to_pylist() for item in row or () if item is not None}
    return [str(label) for label in sorted(found - {None})]


def scores_from_labelled(array: pa.Array, classes: Sequence[str], report: Report) -> AnyFloats:
    """(rows x classes) of lists of (label, probability) in any order, matched by label."""
    import pyarrow.compute as pc

    owners, _, items = list_items(array)
    lengths = np.bincount(owners, minlength=len(array))
    found = pc.index_in(pc.struct_field(items, ["label"]).cast(pa.string()), value_set=pa.array(classes, pa.string()))
    places = found.fill_null(-1).to_numpy(zero_copy_only=False)
    probabilities = pc.struct_field(items, ["prob"])
    scores = np.zeros((len(array), len(classes)))
    times = np.zeros((len(array), len(classes)), np.int64)
    known = places >= 0
    np.add.at(times, (owners[known], places[known]), 1)
    scores[owners[known], places[known]] = probabilities.fill_null(0.0).to_numpy(zero_copy_only=False)[known]
    bad = np.asarray(array.is_valid()) & ((times != 1).any(axis=1) | (lengths != len(classes)))
    what = f"not one probability for each of the {len(classes)} labels"
    report(np.flatnonzero(bad), what, "every row needs one per class")
    holes = np.zeros(len(array), bool)
    holes[owners[np.asarray(probabilities.is_null())]] = True
    report(np.flatnonzero(holes & ~bad), "a null among the scores", _DROP)
    scores[bad | holes] = 0.0
    return scores


def scores_from_tokens(array: pa.Array, classes: Sequence[str], report: Report) -> AnyFloats:
    """(rows x classes) of lists of (token, log-probability): the alternatives to the token of an answer.

    Spaces around a token do not count; of equal ones the likeliest does. A class that is not among the alternatives is
    as likely as the last of them.
    """
    scores = np.zeros((len(array), len(classes)))
    none = []
    for row, items in enumerate(array.to_pylist()):
        found: dict[str, float] = {}
        for item in items or ():
            if item is not None and item["token"] is not None and item["logprob"] is not None:
                token = item["token"].strip()
                found[token] = max(found.get(token, -np.inf), float(item["logprob"]))
        if items is not None and not found.keys() & set(classes):
            none.append(row)
        elif found:
            least = min(found.values())
            scores[row] = [found.get(name, least) for name in classes]
    report(np.array(none, np.intp), "none of the classes among its tokens", "name the tokens of the classes: `classes`")
    return scores
