"""Sums over the classes of a row, from which every loss and calibration figure follows.

With m the first largest logit of a row and u_j = beta * (z_j - z_m), the sums are over j != m: leaving m out keeps the
relative error near |u| * eps however sure the model is, where `1 - p.max()` would round to 0.

The result of a row depends on that row alone, to the bit, whatever its neighbours, the block size, the layout or the
thread; nor does it depend on the order of the classes, so that rows with the same numbers tie. Below
`ROW_MAJOR` classes a chunk of rows is worked on classes first. Sums over classes are float32 for rows whose logits are
all float32 numbers (their terms are multiplied in float32 there, in float64 from `ROW_MAJOR` classes on), float64
otherwise or when asked for; all that is computed from the sums is float64.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
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


def _uniform_sums(logits: AnyFloats, betas: Sequence[float], needs: Sequence[Needs]) -> BlockSums:
    """The sums of rows of one precision, in chunks that stay in the cache.

    Calls of numpy are few and large: each lets another thread run Python and may have to wait for it.
    """
    rows, classes = logits.shape
    columns = [{name: np.empty(rows) for name in ("odds", *wanted)} for wanted in needs]
    prediction, largest = np.empty(rows, np.int64), np.empty(rows, logits.dtype)
    step = max(1, min(rows, _CHUNK_BYTES // (classes * logits.dtype.itemsize)))
    single, axis = logits.dtype == np.float32, int(classes >= ROW_MAJOR)
    near: Booleans = np.zeros(rows, bool)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        for start in range(0, rows, step):
            part = slice(start, start + step)
            for at, name, a, b in _summands(logits[part], betas, needs, prediction[part], largest[part]):
                if name == "runner_up":
                    columns[at][name][part] = np.maximum.reduce(a, axis)
                elif single:
                    _add_up(a, b, axis, columns[at][name][part])
                else:
                    _add_exactly(a if b is None else a * b, axis, columns[at][name][part])
        for sums in (sums for at in columns for name, sums in at.items() if single and name != "runner_up"):
            sums[:], between = rounded(sums, classes)
            near |= between
        ambiguous = np.flatnonzero(near)
        for start in range(0, ambiguous.size, step):
            few = ambiguous[start : start + step]
            for at, name, a, b in _summands(logits[few], betas, needs, prediction[few], largest[few]):
                if name != "runner_up":
                    terms = np.ascontiguousarray(np.moveaxis(a if b is None else a * b, axis, 1))
                    sums = np.sort(terms, axis=1).sum(axis=1, dtype=np.float64) * NUDGE
                    columns[at][name][few] = sums.astype(np.float32)
        return prediction, largest.astype(np.float64, copy=False), [GapSums(**at) for at in columns]


_kept = threading.local()


def _scratch(size: int, dtype: np.dtype[Any]) -> list[AnyFloats]:
    """Four work arrays and two of float64, kept by each thread: fresh memory would be cleared page by page."""
    narrow = 4 * size * dtype.itemsize
    raw: NDArray[np.uint8] | None = getattr(_kept, "raw", None)
    if raw is None or raw.size < narrow + 16 * size:
        raw = _kept.raw = np.empty(narrow + 16 * size, np.uint8)
    wide = raw[narrow : narrow + 16 * size].view(np.float64)
    return [*raw[:narrow].view(dtype).reshape(4, size), *wide.reshape(2, size)]


def _summands(
    logits: AnyFloats, betas: Sequence[float], needs: Sequence[Needs], prediction: Integers, largest: AnyFloats
) -> Iterator[tuple[int, str, AnyFloats, AnyFloats | None]]:
    """What is summed over the classes of a chunk, whose prediction and largest logit are filled in.

    For each sum the number of its beta, its name, and one or two factors. They are valid until the next is asked for.
    """
    by_row = logits.shape[1] >= ROW_MAJOR
    find_gaps = _gaps_of_rows if by_row else _gaps_of_classes
    work, place = find_gaps(logits, prediction, largest, _scratch(logits.size, logits.dtype))
    gaps, powers, spare, products, *wide = work
    dots = by_row and gaps.dtype == np.float32  # products of rows are quickest as dot products of float64

    def factors(a: AnyFloats, b: AnyFloats) -> tuple[AnyFloats, AnyFloats | None]:
        return (a, b) if dots else (np.multiply(a, b, out=products), None)

    for at, (beta, wanted) in enumerate(zip(betas, needs, strict=True)):
        scaled = gaps if beta == 1.0 else np.multiply(gaps, gaps.dtype.type(beta), out=spare)
        terms = np.exp(scaled, out=powers)
        terms.reshape(-1)[place] = 0
        if "runner_up" in wanted:
            yield at, "runner_up", terms, None
        if "moment" in wanted and not scaled.min() > -np.inf:
            # a class of -inf has probability 0 and adds nothing: 0 times a number
            scaled = np.maximum(scaled, np.finfo(scaled.dtype).min, out=spare)
        if dots:
            np.copyto(wide[0], terms)
            if "moment" in wanted:
                np.copyto(wide[1], scaled)
            terms, scaled = wide
        yield at, "odds", terms, None
        if "squares" in wanted:
            yield at, "squares", *factors(terms, terms)
        if "moment" in wanted:
            yield at, "moment", *factors(terms, scaled)
        if "second_moment" in wanted:
            yield at, "second_moment", *factors(np.multiply(terms, scaled, out=terms), scaled)


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


def _first_zero(gaps: AnyFloats, scratch: AnyFloats) -> NDArray[np.uint8]:
    """The first class of each column whose gap is 0 (fewer than 256 classes; class 0 if there is none)."""
    classes = gaps.shape[0]
    is_zero = scratch.reshape(-1).view(np.bool_)[: gaps.size].reshape(gaps.shape)
    ranks = np.equal(gaps, 0, out=is_zero).view(np.uint8)
    np.multiply(ranks, np.arange(classes, 0, -1, dtype=np.uint8)[:, None], out=ranks)
    best: NDArray[np.uint8] = np.maximum.reduce(ranks, axis=0)
    return (np.uint8(classes) - best) % np.uint8(classes)


def rounded(sums: Floats, classes: int) -> tuple[AnyFloats, Booleans]:
    """Float64 sums over so many classes as float32 numbers, and which of them the order of the classes might change.

    The last bits of a float64 sum depend on the order, which shows in float32 only where it lies between two of its
    numbers: such rows are to be summed in ascending order. Sums of float32 often lie right there, hence `NUDGE`.
    """
    slack = classes * 2.0**-51
    low, high = ((sums * factor).astype(np.float32) for factor in (NUDGE - slack, NUDGE + slack))
    return high, low != high


def _add_up(a: AnyFloats, b: AnyFloats | None, axis: int, sums: Floats) -> None:
    """Sum a * b (b None: a), all float32 numbers or their products, over the classes in float64."""
    if axis == 0:
        np.add.reduce(a, 0, dtype=np.float64, out=sums)
    elif b is None:
        np.matmul(a, np.ones(a.shape[1]), out=sums)
    else:
        np.vecdot(a, b, out=sums)


def _add_exactly(terms: AnyFloats, axis: int, sums: Floats) -> None:
    """Sum terms of one sign over the classes, whose order has no say.

    They are whole numbers of a unit of the row, and of a much smaller one: both sums are exact.
    """
    bits = terms.shape[axis].bit_length()
    largest = np.maximum(np.maximum.reduce(terms, axis), -np.minimum.reduce(terms, axis))
    unit = np.maximum(np.spacing(largest) * (1 << bits), np.finfo(np.float64).tiny)
    finer = 2.0 ** (52 - bits)
    rest = terms * np.expand_dims(1 / unit, axis)
    whole = np.rint(rest)
    np.rint(np.multiply(np.subtract(rest, whole, out=rest), finer, out=rest), out=rest)
    np.multiply(np.add.reduce(whole, axis) + np.add.reduce(rest, axis) / finer, unit, out=sums)
