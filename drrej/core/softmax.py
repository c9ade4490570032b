"""Sums over the classes of a row, from which every loss and calibration figure follows.

With m the first largest logit of a row and u_j = beta * (z_j - z_m), the sums are over j != m: leaving m out keeps the
relative error near |u| * eps however sure the model is, where `1 - p.max()` would round to 0.

The result of a row depends on that row alone, to the bit, whatever its neighbours, the block size, the layout or the
thread; nor does it depend on the order of the classes, so that rows with the same numbers tie (`_total`). Below
`ROW_MAJOR` classes a chunk of rows is worked on classes first. Sums over classes are float32 for rows whose logits are
all float32 numbers (their terms are multiplied in float32 there, in float64 from `ROW_MAJOR` classes on), float64
otherwise or when asked for; all that is computed from the sums is float64.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drrej.core.types import AnyFloats, Booleans, Floats, Integers, Precision

ROW_MAJOR = 32
"""From this many classes on, rows are reduced one by one (numpy's fast argmax needs 32 values in a row)."""

_CHUNK_BYTES = 1 << 19
NUDGE = 1 + 2.0**-38
"""What float64 sums are multiplied by before they become float32: a hundredth of a percent of what that rounds away."""
_TILE = 16
"""Classes that are copied together to rows: their values of a row are one cache line."""

Needs = frozenset[str]
"""Names of the optional sums of `GapSums`."""

NOTHING: Needs = frozenset()


class GapSums(SimpleNamespace):
    """The sums of each row at one beta, over all classes but the likeliest, as far as they were asked for."""

    odds: Floats
    """Sum of e^u: the odds of an error, (1 - max p) / max p."""
    moment: Floats
    """Sum of u e^u."""
    second_moment: Floats
    """Sum of u^2 e^u; comes with `moment`."""
    squares: Floats
    """Sum of e^2u."""
    runner_up: Floats
    """The largest e^u."""

    @cached_property
    def log_weight(self) -> Floats:
        """log(1 + odds) = -log max p, which the log loss and the NLL share."""
        return np.log1p(self.odds)


BlockSums = tuple[Integers, Floats, list[GapSums]]
"""Prediction, largest logit and, for each beta, gap sums of each row.

The largest logit is finite exactly when the row has no NaN, no +inf and a logit above -inf.
"""


def block_sums(
    logits: AnyFloats, betas: Sequence[float], needs: Sequence[Needs], precision: Precision = "auto"
) -> BlockSums:
    """The sums of each row of `logits` (rows x classes, any strides): at each beta those needed there.

    >>> prediction, largest, (sums,) = block_sums(np.array([[0.0, 0.0, -np.inf]]), [1.0], [NOTHING])
    >>> sums.odds
    array([1.])
    """
    with np.errstate(over="ignore", invalid="ignore"):  # damaged files may hold NaN that signals
        if precision == "float64":
            return _uniform_sums(logits.astype(np.float64, copy=False), betas, needs)
        single = logits.astype(np.float32, copy=False)
    fits: Booleans = np.ones(len(logits), bool)
    if logits.dtype == np.float64:
        fits = (single == logits).all(axis=1)
    if fits.all():
        return _uniform_sums(single, betas, needs)
    prediction, largest, sums = _uniform_sums(logits, betas, needs)
    if fits.any():
        prediction[fits], largest[fits], narrow = _uniform_sums(single[fits], betas, needs)
        for of_all, of_narrow in zip(sums, narrow, strict=True):
            for name, values in vars(of_narrow).items():
                getattr(of_all, name)[fits] = values
    return prediction, largest, sums


def values_at(scores: AnyFloats, classes: Integers) -> AnyFloats:
    """The score of one class of each row (rows x classes)."""
    if scores.flags.c_contiguous:  # twice as quick
        return scores.reshape(-1).take(np.arange(0, scores.size, scores.shape[1]) + classes)
    values: AnyFloats = scores[np.arange(classes.size), classes]
    return values


def label_gaps(logits: AnyFloats, labels: Integers, largest: Floats) -> Floats:
    """How far the label's logit lies below the largest: at most 0."""
    return values_at(logits, labels).astype(np.float64) - largest


_Columns = dict[str, AnyFloats]


def _uniform_sums(logits: AnyFloats, betas: Sequence[float], needs: Sequence[Needs]) -> BlockSums:
    """The sums of rows of one precision, in chunks that stay in the cache.

    Calls of numpy are few and large: each lets another thread run Python and may have to wait for it.
    """
    rows, classes = logits.shape
    columns = [{name: np.empty(rows, logits.dtype) for name in ("odds", *wanted)} for wanted in needs]
    prediction, largest = np.empty(rows, np.int64), np.empty(rows, logits.dtype)
    step = max(1, min(rows, _CHUNK_BYTES // (classes * logits.dtype.itemsize)))
    scratch = _scratch(step * classes, logits.dtype)
    find_gaps, axis = (_gaps_of_rows, 1) if classes >= ROW_MAJOR else (_gaps_of_classes, 0)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        for start in range(0, rows, step):
            part = slice(start, start + step)
            work, place = find_gaps(logits[part], prediction[part], largest[part], scratch)
            for at, beta in zip(columns, betas, strict=True):
                _sum_up({name: values[part] for name, values in at.items()}, beta, work, place, axis)
        sums = [{name: values.astype(np.float64, copy=False) for name, values in at.items()} for at in columns]
        return prediction, largest.astype(np.float64, copy=False), [GapSums(**at) for at in sums]


_kept = threading.local()


def _scratch(size: int, dtype: np.dtype[Any]) -> list[AnyFloats]:
    """Four work arrays and two of float64, kept by each thread: fresh memory would be cleared page by page."""
    narrow = 4 * size * dtype.itemsize
    raw: NDArray[np.uint8] | None = getattr(_kept, "raw", None)
    if raw is None or raw.size < narrow + 16 * size:
        raw = _kept.raw = np.empty(narrow + 16 * size, np.uint8)
    wide = raw[narrow : narrow + 16 * size].view(np.float64)
    return [*raw[:narrow].view(dtype).reshape(4, size), *wide.reshape(2, size)]


_Gaps = tuple[Sequence[AnyFloats], Integers]
"""Work arrays in the shape of a chunk, the first with the gaps; where the largest logits are."""


def _gaps_of_rows(logits: AnyFloats, prediction: Integers, largest: AnyFloats, scratch: list[AnyFloats]) -> _Gaps:
    """Fill in prediction and largest of a chunk, and find its gaps, row by row."""
    count, classes = logits.shape
    work = gaps, _, spare, *_ = [a[: logits.size].reshape(count, classes) for a in scratch]
    scores = logits
    if not scores.flags.c_contiguous:
        for tile in range(0, classes, _TILE):
            spare[:, tile : tile + _TILE] = scores[:, tile : tile + _TILE]
        scores = spare
    scores.argmax(axis=1, out=prediction)
    place = prediction + np.arange(0, logits.size, classes)
    largest[:] = scores.reshape(-1)[place]
    np.subtract(scores, largest[:, None], out=gaps)
    return work, place


def _gaps_of_classes(logits: AnyFloats, prediction: Integers, largest: AnyFloats, scratch: list[AnyFloats]) -> _Gaps:
    """The same, class after class across all rows."""
    count, classes = logits.shape
    work = gaps, powers, *_ = [a[: logits.size].reshape(classes, count) for a in scratch]
    np.copyto(gaps, logits.T)
    np.maximum.reduce(gaps, axis=0, out=largest)
    np.subtract(gaps, largest, out=gaps)
    prediction[:] = _first_zero(gaps, powers)
    return work, prediction * count + np.arange(count)


def _sum_up(sums: _Columns, beta: float, work: Sequence[AnyFloats], place: Integers, axis: int) -> None:
    """The sums of a chunk at one beta, over the axis of the classes; see `_Gaps` for `work` and `place`."""
    gaps, powers, spare, products, *wide = work
    scaled = gaps if beta == 1.0 else np.multiply(gaps, gaps.dtype.type(beta), out=spare)
    np.exp(scaled, out=powers)
    powers.reshape(-1)[place] = 0
    if "runner_up" in sums:
        np.maximum.reduce(powers, axis=axis, out=sums["runner_up"])
    if "moment" in sums and not scaled.min() > -np.inf:
        # a class of -inf has probability 0 and adds nothing: 0 times a number
        scaled = np.maximum(scaled, np.finfo(scaled.dtype).min, out=spare)
    if axis == 1 and powers.dtype == np.float32:  # products of rows are quickest as dot products of float64
        np.copyto(wide[0], powers)
        if "moment" in sums:
            np.copyto(wide[1], scaled)
        powers, scaled = wide
    total = partial(_total, products=products, axis=axis)
    total(powers, None, sums["odds"])
    if "squares" in sums:
        total(powers, powers, sums["squares"])
    if "moment" in sums:
        total(powers, scaled, sums["moment"])
    if "second_moment" in sums:
        total(np.multiply(powers, scaled, out=powers), scaled, sums["second_moment"])


def _first_zero(gaps: AnyFloats, scratch: AnyFloats) -> NDArray[np.uint8]:
    """The first class of each column whose gap is 0 (fewer than 256 classes; class 0 if there is none)."""
    classes = gaps.shape[0]
    is_zero = scratch.reshape(-1).view(np.bool_)[: gaps.size].reshape(gaps.shape)
    ranks = np.equal(gaps, 0, out=is_zero).view(np.uint8)
    np.multiply(ranks, np.arange(classes, 0, -1, dtype=np.uint8)[:, None], out=ranks)
    best: NDArray[np.uint8] = np.maximum.reduce(ranks, axis=0)
    return (np.uint8(classes) - best) % np.uint8(classes)


def _total(a: AnyFloats, b: AnyFloats | None, out: AnyFloats, products: AnyFloats, axis: int) -> None:
    """Sum a * b (b None: a), all of one sign, over the classes, whose order has no say."""
    classes = a.shape[axis]
    if out.dtype == np.float64:  # whole numbers of a unit of the row, and of a much smaller one: exact sums
        terms = a if b is None else np.multiply(a, b, out=products)
        largest = np.maximum(np.maximum.reduce(terms, axis), -np.minimum.reduce(terms, axis))
        unit = np.maximum(np.spacing(largest) * (1 << classes.bit_length()), np.finfo(np.float64).tiny)
        finer = 2.0 ** (52 - classes.bit_length())
        rest = np.multiply(terms, np.expand_dims(1 / unit, axis), out=products)
        whole = np.rint(rest)
        np.rint(np.multiply(np.subtract(rest, whole, out=rest), finer, out=rest), out=rest)
        np.multiply(np.add.reduce(whole, axis) + np.add.reduce(rest, axis) / finer, unit, out=out)
        return
    if axis == 0:
        a, b = a if b is None else np.multiply(a, b, out=products), None
        sums = np.add.reduce(a, 0, dtype=np.float64)
    else:
        sums = a @ np.ones(classes) if b is None else np.vecdot(a, b)
    # The last bits of a float64 sum depend on the order, which shows in float32 only where it lies between two of its
    # numbers: such rows are summed in ascending order. Sums of float32 numbers often lie right there, hence NUDGE.
    slack = classes * 2.0**-51
    out[:] = sums * (NUDGE + slack)
    near = np.flatnonzero(out != (sums * (NUDGE - slack)).astype(np.float32))
    if near.size:
        terms = a.take(near, 1 - axis) if b is None else a[near] * b[near]
        ordered = np.sort(np.ascontiguousarray(np.moveaxis(terms, axis, 1)), axis=1)
        out[near] = ordered.sum(axis=1, dtype=np.float64) * NUDGE
