"""The model's own expected loss L'(x) from logits (numerics: gaps to the largest logit).

With m the first largest logit of a row, d_j = z_j - z_m and u_j = beta * d_j, every loss is a function of

    s = sum e^{u_j},   v = sum u_j e^{u_j},   q = sum e^{2 u_j}      over j != m

(w = sum u_j^2 e^{u_j}, which the curvature of the log-likelihood in beta needs, t = sum u_j, which the learned loss
needs, and r = max e^{u_j}, the runner-up, which margins need). Probabilities at other temperatures come without another
exponential: h = sum e^{u_j / 2} at twice the temperature; y = sum (e^{u_j} / r)^2 at half of it and x = sum
(e^{u_j} / r)^4 at a quarter, divided by the runner-up's because the powers themselves would underflow.

Norms look at the logits themselves: with c_j = z_j - mean z and M the largest of them, a = sum of (c_j / M) above 0,
b = sum (c_j / M)^2 and c = sum (c_j / M)^4 over j != m; M is -t / K. Logits of -inf are left out.

Leaving m out keeps the relative error near |u| * eps however sure the model is: `1 - p.max()` would round to 0.

The result of a row depends on that row alone, to the bit: each row goes through the same operations in the same
order whatever its neighbours, the block size, the layout or the thread. Two fixed forms exist, chosen by the
number of classes K: below `ROW_MAJOR` the classes are summed one after the other across a chunk of rows, from there
on each row is reduced along its own contiguous memory in pieces of `_PIECE` classes (a longer BLAS dot may be split
between threads). Sums over classes are float32 for rows whose logits are all float32 numbers, float64 otherwise or
when asked for; all that is computed from the sums is float64.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from enum import Flag, auto
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drrej.core.types import AnyFloats, Floats, Precision
from drrej.records import dataclass

ROW_MAJOR = 32
"""From this many classes on, rows are reduced one by one (numpy's fast argmax needs 32 values in a row)."""

_CHUNK_BYTES = 1 << 19
_PIECE = 4096
_TILE = 16
"""Classes that are copied together to rows: their values of a row are one cache line."""


class Need(Flag):
    """The optional sums, by their letters; W comes with V, X and Y with R, and A, B and C with T."""

    NOTHING = 0
    V = auto()
    Q = auto()
    W = auto()
    T = auto()
    R = auto()
    H = auto()
    X = auto()
    Y = auto()
    A = auto()
    B = auto()
    C = auto()

    @property
    def letters(self) -> tuple[str, ...]:
        """The fields of `GapSums`, `s` first."""
        return ("s", *(need.name.lower() for need in self if need.name))


@dataclass(frozen=True)
class GapSums:
    """The sums of each row at one beta; all but `s` are None unless they were asked for."""

    s: Floats
    v: Floats | None = None
    q: Floats | None = None
    w: Floats | None = None
    t: Floats | None = None
    r: Floats | None = None
    h: Floats | None = None
    x: Floats | None = None
    y: Floats | None = None
    a: Floats | None = None
    b: Floats | None = None
    c: Floats | None = None

    @cached_property
    def log_s(self) -> Floats:
        """Log s, -inf where s is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            log_s: Floats = np.log(self.s)
        return log_s

    @cached_property
    def log_weight(self) -> Floats:
        """log(1 + s), which the log loss and the NLL share."""
        log_weight: Floats = np.log1p(self.s)
        return log_weight


NO_SUMS = GapSums(np.empty(0))


@dataclass(frozen=True)
class BlockSums:
    """What the losses and scores of a block are computed from.

    `largest` is z_m: it is finite exactly when the row has no NaN, no +inf and a logit above -inf.
    """

    prediction: NDArray[np.int64]
    largest: Floats
    at: tuple[GapSums, ...]
    negative: NDArray[np.bool_] | None = None
    """Whether a row has a logit below 0, where that was easy to see."""


def block_sums(
    logits: AnyFloats, betas: Sequence[float], needs: Sequence[Need], precision: Precision = "auto"
) -> BlockSums:
    """Predictions and gap sums of each row of `logits` (rows x classes, any strides): at each beta those needed there.

    >>> block_sums(np.array([[0.0, 0.0, -np.inf]]), [1.0], [Need.NOTHING]).at[0].s
    array([1.])
    """
    letters = [need.letters for need in needs]
    groups = by_precision(logits, precision)
    if len(groups) == 1:
        return _uniform_sums(groups[0][1], betas, letters)
    out = _empty_sums(logits.shape[0], letters)
    for rows, scores in groups:
        part = _uniform_sums(scores, betas, letters)
        out.prediction[rows] = part.prediction
        out.largest[rows] = part.largest
        for whole, piece, wanted in zip(out.at, part.at, letters, strict=True):
            for letter in wanted:
                getattr(whole, letter)[rows] = getattr(piece, letter)
    return out


def label_gaps(logits: AnyFloats, labels: NDArray[np.int64], largest: Floats) -> Floats:
    """d_y = z_y - z_m of each row, at most 0."""
    if logits.flags.c_contiguous:  # twice as quick
        rows, classes = logits.shape
        of_labels = logits.reshape(-1).take(np.arange(0, rows * classes, classes) + labels)
    else:
        of_labels = logits[np.arange(labels.size), labels]
    gaps: Floats = of_labels.astype(np.float64) - largest
    return gaps


def by_precision(logits: AnyFloats, precision: Precision) -> list[tuple[NDArray[np.intp] | slice, AnyFloats]]:
    """The rows of a block with the array they are computed in: float32 where that holds every logit of the row."""
    everything = slice(None)
    with np.errstate(over="ignore", invalid="ignore"):  # damaged files may hold NaN that signals
        if precision == "float64":
            return [(everything, logits.astype(np.float64, copy=False))]
        if logits.dtype != np.float64:
            return [(everything, logits.astype(np.float32, copy=False))]
        single = logits.astype(np.float32)
    fits = (single == logits).all(axis=1)
    if fits.all():
        return [(everything, single)]
    if not fits.any():
        return [(everything, logits)]
    narrow, wide = np.flatnonzero(fits), np.flatnonzero(~fits)
    return [(narrow, single[narrow]), (wide, logits[wide])]


def _empty_sums(rows: int, letters: Sequence[Sequence[str]]) -> BlockSums:
    return BlockSums(
        prediction=np.empty(rows, np.int64),
        largest=np.empty(rows),
        at=tuple(GapSums(**{letter: np.empty(rows) for letter in wanted}) for wanted in letters),
    )


SumColumns = dict[str, AnyFloats]
"""Sums by their letters, in the precision they are computed in."""


def _uniform_sums(logits: AnyFloats, betas: Sequence[float], letters: Sequence[Sequence[str]]) -> BlockSums:
    """The sums of rows of one precision, in chunks that stay in the cache.

    Calls of numpy are few and large: each lets another thread run Python and may have to wait for it.
    """
    rows, classes = logits.shape
    summed = np.float64 if classes > _PIECE else logits.dtype.type
    columns = [{letter: np.empty(rows, summed) for letter in wanted} for wanted in letters]
    fill = _row_major if classes >= ROW_MAJOR else _class_major
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        first, largest, negative = fill(logits, betas, columns)
        at = [{letter: values.astype(np.float64, copy=False) for letter, values in sums.items()} for sums in columns]
        widest = largest.astype(np.float64, copy=False)
    return BlockSums(first, widest, tuple(GapSums(**sums) for sums in at), negative)


def _chunks(rows: int, row_bytes: int) -> tuple[int, list[slice]]:
    """The rows of a chunk, and the chunks."""
    step = max(1, min(rows, _CHUNK_BYTES // row_bytes))
    return step, [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


_kept = threading.local()


def _scratch(size: int, dtype: np.dtype[Any]) -> AnyFloats:
    """Four work arrays, kept by each thread: fresh memory would be cleared page by page for every block."""
    bytes_needed = 4 * size * dtype.itemsize
    raw: NDArray[np.uint8] | None = getattr(_kept, "raw", None)
    if raw is None or raw.size < bytes_needed:
        raw = _kept.raw = np.empty(bytes_needed, np.uint8)
    return raw[:bytes_needed].view(dtype).reshape(4, size)


def _row_major(
    logits: AnyFloats, betas: Sequence[float], columns: Sequence[SumColumns]
) -> tuple[NDArray[np.int64], AnyFloats, None]:
    rows, classes = logits.shape
    first, largest = np.empty(rows, np.int64), np.empty(rows, logits.dtype)
    step, chunks = _chunks(rows, classes * logits.dtype.itemsize)
    scratch = _scratch(step * classes, logits.dtype)
    starts = np.arange(0, step * classes, classes)
    ones = np.ones((1, classes), logits.dtype)

    def total(a: AnyFloats, b: AnyFloats | None, out: AnyFloats) -> None:
        _dots(a, ones if b is None else b, out)

    for chunk in chunks:
        count = chunk.stop - chunk.start
        work = gaps, _, spare, _ = [a[: count * classes].reshape(count, classes) for a in scratch]
        scores = logits[chunk]
        if not scores.flags.c_contiguous:
            for tile in range(0, classes, _TILE):
                spare[:, tile : tile + _TILE] = scores[:, tile : tile + _TILE]
            scores = spare
        scores.argmax(axis=1, out=first[chunk])
        place = first[chunk] + starts[:count]
        largest[chunk] = scores.reshape(-1)[place]
        np.subtract(scores, largest[chunk, None], out=gaps)
        for sums, beta in zip(columns, betas, strict=True):
            _sum_up({letter: values[chunk] for letter, values in sums.items()}, beta, work, place, 1, total)
    return first, largest, None


def row_dots(a: AnyFloats, b: AnyFloats | None) -> AnyFloats:
    """Row by row sums of a * b (b None: of a), in pieces of fixed length."""
    rows, classes = a.shape
    dots = np.empty(rows, np.float64 if classes > _PIECE else a.dtype)
    _dots(a, np.ones((1, classes), a.dtype) if b is None else b, dots)
    return dots


def _dots(a: AnyFloats, b: AnyFloats, out: AnyFloats) -> None:
    classes = a.shape[1]
    if classes <= _PIECE:
        np.vecdot(a, b, out=out)
        return
    out[:] = 0
    for start in range(0, classes, _PIECE):
        piece = slice(start, start + _PIECE)
        out += np.vecdot(a[:, piece], b[:, piece])


def _class_major(
    logits: AnyFloats, betas: Sequence[float], columns: Sequence[SumColumns]
) -> tuple[NDArray[np.int64], AnyFloats, NDArray[np.bool_]]:
    rows, classes = logits.shape
    first, largest = np.empty(rows, np.int64), np.empty(rows, logits.dtype)
    negative = np.empty(rows, bool)
    step, chunks = _chunks(rows, classes * logits.dtype.itemsize)
    scratch = _scratch(step * classes, logits.dtype)
    numbers = np.arange(step)
    for chunk in chunks:
        count = chunk.stop - chunk.start
        work = gaps, powers, _, products = [a[: count * classes].reshape(classes, count) for a in scratch]
        np.copyto(gaps, logits[chunk].T)
        np.less(np.minimum.reduce(gaps, axis=0, out=powers[0]), 0, out=negative[chunk])
        np.maximum.reduce(gaps, axis=0, out=largest[chunk])
        np.subtract(gaps, largest[chunk], out=gaps)
        first[chunk] = _first_zero(gaps, powers)
        place = first[chunk] * count + numbers[:count]
        total = partial(_add_up, products=products)
        for sums, beta in zip(columns, betas, strict=True):
            _sum_up({letter: values[chunk] for letter, values in sums.items()}, beta, work, place, 0, total)
    return first, largest, negative


def _sum_up(
    sums: SumColumns,
    beta: float,
    work: Sequence[AnyFloats],
    place: NDArray[np.int64],
    axis: int,
    total: Callable[[AnyFloats, AnyFloats | None, AnyFloats], None],
) -> None:
    """The sums of a chunk at one beta.

    `place` is where the largest logits are, `axis` that of the classes, `total` sums a * b over it.
    """
    gaps, powers, spare, products = work
    scaled = gaps if beta == 1.0 else np.multiply(gaps, gaps.dtype.type(beta), out=spare)
    if "t" in sums:
        total(scaled, None, sums["t"])
        if sums.keys() & {"a", "b", "c"}:
            _norms(sums, scaled, powers, place, axis, total)
    np.exp(scaled, out=powers)
    powers.reshape(-1)[place] = 0
    total(powers, None, sums["s"])
    if "r" in sums:
        np.maximum.reduce(powers, axis=axis, out=sums["r"])
    if "h" in sums:
        total(np.sqrt(powers, out=products), None, sums["h"])
    if sums.keys() & {"x", "y"}:
        np.divide(powers, np.expand_dims(sums["r"], axis), out=products)  # NaN where all have underflown
        squares = np.square(products, out=products)
        if "y" in sums:
            total(squares, None, sums["y"])
        if "x" in sums:
            total(squares, squares, sums["x"])
    if "q" in sums:
        total(powers, powers, sums["q"])
    if "v" in sums:
        total(powers, scaled, sums["v"])
        if np.isnan(sums["v"].sum()):  # 0 * -inf: those classes have probability 0 and add nothing
            scaled = np.where(scaled == -np.inf, 0, scaled)
            total(powers, scaled, sums["v"])
    if "w" in sums:
        total(np.multiply(powers, scaled, out=powers), scaled, sums["w"])


def _norms(
    sums: SumColumns,
    scaled: AnyFloats,
    parts: AnyFloats,
    place: NDArray[np.int64],
    axis: int,
    total: Callable[[AnyFloats, AnyFloats | None, AnyFloats], None],
) -> None:
    """a, b and c of a chunk, `parts` is room for it; infinite where all logits are the same."""
    classes = scaled.shape[axis]
    finite = None
    largest = sums["t"] / -classes
    if not np.isfinite(sums["t"]).all():
        finite = scaled > -np.inf
        scaled = np.where(finite, scaled, 0)
        total(scaled, None, largest)
        count = finite.sum(axis=axis, dtype=scaled.dtype)
        largest /= -count
        largest[count == 1] = 1  # a class alone is as sure as can be
    np.add(scaled, np.expand_dims(largest, axis), out=parts)
    if finite is not None:
        np.copyto(parts, 0, where=~finite)
    if "a" in sums:  # zeros leave the largest as it is: where no other is above the mean, nothing is left
        above = np.maximum(parts, 0, out=parts if not sums.keys() & {"b", "c"} else None)
        total(above, None, sums["a"])
        sums["a"] -= largest
        sums["a"] /= largest
    if sums.keys() & {"b", "c"}:
        parts.reshape(-1)[place] = 0
        parts /= np.expand_dims(largest, axis)
        squares = np.square(parts, out=parts)
        if "b" in sums:
            total(squares, None, sums["b"])
        if "c" in sums:
            total(squares, squares, sums["c"])
    for letter in sums.keys() & {"a", "b", "c"}:
        np.copyto(sums[letter], np.inf, where=np.isnan(sums[letter]))


def _first_zero(gaps: AnyFloats, scratch: AnyFloats) -> NDArray[np.uint8]:
    """The first class of each column whose gap is 0 (fewer than 256 classes; class 0 if there is none)."""
    classes = gaps.shape[0]
    is_zero = scratch.reshape(-1).view(np.bool_)[: gaps.size].reshape(gaps.shape)
    ranks = np.equal(gaps, 0, out=is_zero).view(np.uint8)
    np.multiply(ranks, np.arange(classes, 0, -1, dtype=np.uint8)[:, None], out=ranks)
    best: NDArray[np.uint8] = np.maximum.reduce(ranks, axis=0)
    first: NDArray[np.uint8] = (np.uint8(classes) - best) % np.uint8(classes)
    return first


def _add_up(a: AnyFloats, b: AnyFloats | None, out: AnyFloats, products: AnyFloats) -> None:
    """Sum a * b (b None: a) over the classes, one after the other; of one row `add.reduce` would change the order."""
    terms = a if b is None else np.multiply(a, b, out=products)
    if terms.shape[1] > 1:
        np.add.reduce(terms, axis=0, out=out)
    else:
        out[:] = np.add.accumulate(terms, axis=0)[-1]
