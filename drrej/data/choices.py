"""Scores of multiple choice: as many as a question has choices."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.core.types import AnyFloats, Floats
from drrej.data.layouts import Report

_DROP = "drop or fix these rows"


def scores_from_choices(array: pa.Array, classes: int, report: Report, texts: pa.Array | None = None) -> AnyFloats:
    """(rows x classes) of lists of at most so many scores; a choice that a question does not have is impossible: -inf.

    With the `texts` of the choices, each score is divided by the number of characters of its choice.
    """
    missing = np.asarray(array.is_null())
    report(np.flatnonzero(missing), "no value (null)", _DROP)
    offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    lengths = np.where(missing, 0, np.diff(offsets))
    few = np.flatnonzero(~missing & (lengths < 2))
    report(
        few, "fewer than 2 choices", "a question needs at least two", f"it has {lengths[few[0]]}" if few.size else ""
    )
    many = np.flatnonzero(lengths > classes)
    report(many, f"more than {classes} choices", "every row may have at most so many", "")
    lengths = np.minimum(lengths, classes)
    owners = np.repeat(np.arange(len(array)), lengths)
    places = np.arange(owners.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    flat = array.values.take(pa.array(np.repeat(offsets[:-1], lengths) + places))
    nulls = np.asarray(flat.is_null())
    report(np.unique(owners[nulls]), "a null among the scores", _DROP)
    values = flat.fill_null(0.0).to_numpy(zero_copy_only=False)
    if texts is not None:
        values = values / _characters(texts, lengths, report)
    scores = np.full((len(array), classes), -np.inf, values.dtype)
    scores[owners, places] = values
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
