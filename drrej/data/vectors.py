"""Scores in structs: Spark's vectors, and lists of labels with their probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.core.types import AnyFloats, Floats
from drrej.data.layouts import Report, scores_from_list

_DROP = "drop or fix these rows"
_SPARSE, _DENSE = 0, 1


def vector_sizes(array: pa.Array) -> list[int]:
    """How many scores the vectors of a column have; null ones are left out."""
    sizes = []
    for vector in array.to_pylist():
        if vector is not None:
            dense = vector["type"] != _SPARSE
            sizes.append(len(vector["values"] or ()) if dense else int(vector["size"] or 0))
    return sizes


def scores_from_vector(array: pa.Array, classes: int, report: Report) -> AnyFloats:
    """(rows x classes) of Spark ML vectors: dense ones (type 1) hold all values, sparse ones (type 0) those not 0."""
    missing = np.asarray(array.is_null())
    report(np.flatnonzero(missing), "no value (null)", _DROP)
    kinds = _field(array, "type").fill_null(_DENSE).to_numpy(zero_copy_only=False)
    sparse = (kinds == _SPARSE) & ~missing
    unknown = np.flatnonzero(~missing & (kinds != _SPARSE) & (kinds != _DENSE))
    report(unknown, "a vector that is neither dense (type 1) nor sparse (type 0)", _DROP)
    present = np.flatnonzero(~sparse & ~missing)
    values = _field(array, "values")

    def report_dense(rows: NDArray[np.intp], what: str, remedy: str, example: str = "") -> None:
        report(present[rows], what, remedy, example)

    scores = np.zeros((len(array), classes))
    if present.size:
        dense = values if present.size == len(array) else values.take(pa.array(present))
        scores[present] = scores_from_list(dense, classes, report_dense)
    if sparse.any():
        rows = np.flatnonzero(sparse)
        good = _fill(array, rows, classes, scores)
        bad = rows[~good]
        report(bad, f"a sparse vector that is not one of {classes} scores", "every row needs one score per class")
    return scores


def _fill(array: pa.Array, rows: NDArray[np.intp], classes: int, scores: Floats) -> NDArray[np.bool_]:
    """Put the values of sparse vectors in their places; tells which are sound."""
    taken = array.take(pa.array(rows))
    sizes = _field(taken, "size").fill_null(-1).to_numpy(zero_copy_only=False)
    places, place_lengths, place_nulls = _flat(_field(taken, "indices"))
    values, value_lengths, value_nulls = _flat(_field(taken, "values"))
    good: NDArray[np.bool_] = (sizes == classes) & (place_lengths == value_lengths) & ~place_nulls & ~value_nulls
    owner_of_place = np.repeat(np.arange(rows.size), place_lengths)
    inside = (places >= 0) & (places < classes)
    good[owner_of_place[~inside]] = False
    ends = np.cumsum(place_lengths)
    rising = np.ones(places.size, bool)
    rising[1:] = places[1:] > places[:-1]
    rising[(ends - place_lengths)[place_lengths > 0]] = True
    good[owner_of_place[~rising]] = False
    kept_places = good[owner_of_place]
    kept_values = good[np.repeat(np.arange(rows.size), value_lengths)]
    scores[rows[owner_of_place[kept_places]], places[kept_places].astype(np.intp)] = values[kept_values]
    return good


def _flat(lists: pa.Array) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.bool_]]:
    """The values of lists one after the other, their lengths, and which lists are null or hold a null."""
    nulls = np.asarray(lists.is_null())
    flat = lists.flatten()  # leaves null lists out
    offsets = lists.offsets.to_numpy(zero_copy_only=False)
    lengths: NDArray[np.int64] = np.where(nulls, 0, np.diff(offsets)).astype(np.int64)
    if flat.null_count:
        owners = np.repeat(np.arange(len(lists)), lengths)
        nulls = nulls.copy()
        nulls[owners[np.asarray(flat.is_null())]] = True
        flat = flat.fill_null(0)
    return flat.to_numpy(zero_copy_only=False), lengths, nulls


def labels_in(array: pa.Array) -> list[str]:
    """The labels of lists of (label, probability), sorted: as numbers if they are whole numbers."""
    found = {item["label"] for row in array.to_pylist() for item in row or () if item is not None}
    return [str(label) for label in sorted(found - {None})]


def scores_from_labelled(array: pa.Array, classes: Sequence[str], report: Report) -> AnyFloats:
    """(rows x classes) of lists of (label, probability) in any order, matched by label."""
    import pyarrow.compute as pc

    nulls = np.asarray(array.is_null())
    report(np.flatnonzero(nulls), "no value (null)", _DROP)
    items = array.flatten()
    offsets = array.offsets.to_numpy(zero_copy_only=False)
    lengths = np.where(nulls, 0, np.diff(offsets))
    owners = np.repeat(np.arange(len(array)), lengths)
    found = pc.index_in(_field(items, "label").cast(pa.string()), value_set=pa.array(classes, pa.string()))
    places = found.fill_null(-1).to_numpy(zero_copy_only=False)
    probabilities = _field(items, "prob")
    scores = np.zeros((len(array), len(classes)))
    times = np.zeros((len(array), len(classes)), np.int64)
    known = places >= 0
    np.add.at(times, (owners[known], places[known]), 1)
    scores[owners[known], places[known]] = probabilities.fill_null(0.0).to_numpy(zero_copy_only=False)[known]
    bad = ~nulls & ((times != 1).any(axis=1) | (lengths != len(classes)))
    report(
        np.flatnonzero(bad),
        f"not one probability for each of the {len(classes)} labels",
        "every row needs one per class",
    )
    holes = np.zeros(len(array), bool)
    holes[owners[np.asarray(probabilities.is_null())]] = True
    report(np.flatnonzero(holes & ~bad), "a null among the scores", _DROP)
    scores[bad | holes] = 0.0
    return scores


def _field(array: pa.Array, name: str) -> pa.Array:
    import pyarrow.compute as pc

    return pc.struct_field(array, [array.type.get_field_index(name)])
