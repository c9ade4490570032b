"""Rows of probabilities, read without trusting them.

A row is good when its values are not negative and sum to 1 within the rounding of the narrowest type that holds them
(float16, bfloat16, float32), whatever type they are stored in; it is then divided by its sum. Each row is judged by
itself, so that the verdict and the bits do not depend on its neighbours, the block, the layout or the type: all
arithmetic is float64, and sums have no order.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import cache
from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from drrej.core.types import AnyFloats, Floats, InputKind, Sums

LOG_TOLERANCE = 1e-2
"""Logarithms with two decimals, or in float16, sum to 1 within this."""

TOLERANCE = {64: 1e-6, 32: 1e-4, 16: 5e-3}
"""By the bits of a type: what a softmax computed in it may leave of the sum."""

BFLOAT16_TOLERANCE = 8e-3

_CHUNK = 1 << 15
_SUM_BITS = 30


class Verdict(IntEnum):
    """What a row is; everything but `GOOD` is bad."""

    GOOD = 0
    NOT_FINITE = 1
    NEGATIVE = 2
    ABOVE_ONE = 3
    OFF_SUM = 4
    NO_MASS = 5
    NO_SHARE = 6


_LOGITS = "if these are logits, pass `input=logits`"
_TEXTS = {
    Verdict.NOT_FINITE: ("NaN or infinity among the probabilities", "drop or fix these rows"),
    Verdict.NEGATIVE: ("a negative probability", _LOGITS),
    Verdict.ABOVE_ONE: (
        "a probability above 1",
        f"`normalize=True` divides counts or percentages by their sum; {_LOGITS}",
    ),
    Verdict.OFF_SUM: (
        "probabilities that do not sum to 1 within the rounding of their type",
        "are all classes there? if so, and they were rounded, `normalize=True` divides each row by its sum",
    ),
    Verdict.NO_MASS: ("no probability above 0", "drop or fix these rows"),
    Verdict.NO_SHARE: ("a probability above 1", f"store it as a share of 1, not as a percentage; {_LOGITS}"),
}


class ProbabilityRows(Struct, frozen=True):
    """Probabilities (rows x classes, float64) that sum to 1; bad rows have equal ones as placeholders.

    `verdicts` holds a `Verdict` for each row, `sums` the sum of each row as it was stored.
    """

    values: Floats
    verdicts: NDArray[np.uint8]
    sums: Floats

    def bad_rows(self) -> Iterator[tuple[NDArray[np.intp], str, str, str]]:
        """Bad rows, reason by reason: their places, what they have, what to do, and what the first of them holds."""
        for verdict, (what, remedy) in _TEXTS.items():
            rows = np.flatnonzero(self.verdicts == verdict)
            if rows.size:
                example = f"its sum is {self.sums[rows[0]]:.8g}" if verdict is Verdict.OFF_SUM else ""
                yield rows, what, remedy, example


def read_probabilities(scores: AnyFloats, normalize: bool = False) -> ProbabilityRows:
    """Read rows (rows x classes) of probabilities in any floating-point type and layout.

    With `normalize` rows of numbers that are not negative, such as counts, are divided by their sum whatever it is.

    >>> rows = read_probabilities(np.array([[0.6, 0.3, 0.3], [0.5, 0.25, 0.25]]))
    >>> rows.verdicts.tolist(), rows.sums.round(12).tolist()
    ([4, 0], [1.2, 1.0])
    """
    rows, classes = scores.shape
    read = ProbabilityRows(np.empty((rows, classes)), np.empty(rows, np.uint8), np.empty(rows))
    step = max(1, _CHUNK // max(classes, 1))
    for start in range(0, rows, step):
        chunk = slice(start, start + step)
        values = read.values[chunk]
        values[:] = scores[chunk]
        sums = read.sums[chunk] = row_sums(values)
        verdicts, divisors = _judge(values, sums, np.finfo(scores.dtype).bits, normalize)
        read.verdicts[chunk] = verdicts
        _divide(values, divisors, verdicts)
    return read


def read_log_probabilities(scores: AnyFloats, normalize: bool = False) -> ProbabilityRows:
    """Read rows of logarithms of probabilities; -inf is a probability of 0.

    >>> read_log_probabilities(np.log(np.array([[0.5, 0.25, 0.25]]))).values.round(12).tolist()
    [[0.5, 0.25, 0.25]]
    """
    logs = np.array(scores, np.float64, order="C")
    top = logs.max(axis=1, initial=-np.inf)
    usable = np.isfinite(top)
    with np.errstate(invalid="ignore", under="ignore"):
        values = np.exp(logs - (np.where(usable, top, 0.0)[:, None] if normalize else 0.0), out=logs)
    sums = row_sums(values)
    verdicts = np.full(sums.size, Verdict.GOOD, np.uint8)
    if not normalize:
        with np.errstate(invalid="ignore"):
            verdicts[~(np.abs(sums - 1.0) <= LOG_TOLERANCE)] = Verdict.OFF_SUM
            verdicts[top > LOG_TOLERANCE] = Verdict.ABOVE_ONE
    verdicts[~usable] = Verdict.NOT_FINITE
    verdicts[top == -np.inf] = Verdict.NO_MASS
    _divide(values, sums.copy(), verdicts)
    return ProbabilityRows(values, verdicts, sums)


def read_binary_probabilities(scores: AnyFloats) -> ProbabilityRows:
    """Read one probability per row, that of class 1, as rows of two classes.

    >>> read_binary_probabilities(np.array([0.25, 1.0])).values.tolist()
    [[0.75, 0.25], [0.0, 1.0]]
    """
    stored = np.array(scores, np.float64)
    verdicts = np.full(stored.size, Verdict.GOOD, np.uint8)
    with np.errstate(invalid="ignore"):
        verdicts[stored < 0] = Verdict.NEGATIVE
        verdicts[stored > 1.0 + TOLERANCE[64]] = Verdict.NO_SHARE
        verdicts[~np.isfinite(stored)] = Verdict.NOT_FINITE
        second = np.minimum(stored, 1.0)
    values = np.stack([1.0 - second, second], axis=1)
    values[verdicts != Verdict.GOOD] = 0.5
    return ProbabilityRows(values, verdicts, stored)


def read_rows(scores: AnyFloats, input: InputKind, normalize: bool = False) -> ProbabilityRows:
    """Read probabilities or their logarithms: rows x classes, or one per row (rows,)."""
    if scores.ndim == 1:
        with np.errstate(under="ignore", over="ignore"):
            return read_binary_probabilities(np.exp(scores) if input == "log-probs" else scores)
    return (read_log_probabilities if input == "log-probs" else read_probabilities)(scores, normalize)


def binary_logits(score: AnyFloats) -> AnyFloats:
    """Logits (rows x 2) of one score per row, that of class 1."""
    pairs = np.zeros((2, score.size), score.dtype)
    pairs[1] = score
    return pairs.T


def row_logits(scores: AnyFloats, input: InputKind, normalize: bool, floor: float | None) -> AnyFloats | None:
    """Logits (rows x classes) of scores (rows x classes, or rows,); None where some are no probabilities."""
    if input == "logits":
        return binary_logits(scores) if scores.ndim == 1 else scores
    read = read_rows(scores, input, normalize)
    return None if read.verdicts.any() else floored_logits(read.values, FACE_VALUE if floor is None else floor)


def row_sums(values: Floats) -> Floats:
    """Sums of the rows (rows x classes), the same for any order of the classes.

    Each value is split into multiples of 2**-30 and 2**-60. Sums of such whole numbers below 2**53 have no rounding,
    so only what lies below 2**-61 is lost of each value up to 1 (classes up to 2**22).
    """
    unit = float(1 << _SUM_BITS)
    ones = np.ones(values.shape[1])
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = values * unit
        high = np.rint(scaled)
        np.subtract(scaled, high, out=scaled)
        np.multiply(scaled, unit, out=scaled)
        low = np.rint(scaled, out=scaled)
        return (high @ ones + low @ ones / unit) / unit  # a product with ones is the quickest sum of short rows


def _divide(values: Floats, divisors: Floats, verdicts: NDArray[np.uint8]) -> None:
    bad = np.flatnonzero(verdicts)
    if bad.size:
        values[bad] = 1.0 / values.shape[1]
        divisors[bad] = 1.0
    np.divide(values, divisors[:, None], out=values)


def _judge(values: Floats, sums: Floats, bits: int, normalize: bool) -> tuple[NDArray[np.uint8], Floats]:
    """Verdicts, and what the rows are to be divided by; rows that `normalize` saves are scaled by a power of 2."""
    verdicts, divisors = np.full(sums.size, Verdict.GOOD, np.uint8), sums.copy()
    with np.errstate(invalid="ignore"):
        off = np.flatnonzero(~(np.abs(sums - 1.0) <= TOLERANCE[bits]))
        if not values.min(initial=0.0) >= 0:  # NaN as well
            verdicts[(values < 0).any(axis=1)] = Verdict.NEGATIVE
    if off.size:
        columns = np.ascontiguousarray(values[off].T)  # classes first: sums and extremes of short rows are quicker
        verdicts[off] = _verdicts(columns, sums[off], normalize)
    if normalize:
        saved = off[verdicts[off] == Verdict.GOOD]
        _, exponents = np.frexp(values[saved].max(axis=1, initial=0.0))
        values[saved] = np.ldexp(values[saved], -exponents[:, None])  # the largest in [1/2, 1): the sum is exact
        divisors[saved] = row_sums(values[saved])
    return verdicts, divisors


def _verdicts(columns: Floats, sums: Floats, normalize: bool) -> NDArray[np.uint8]:
    """Verdicts on rows (here classes x rows) whose sums are not 1 within the rounding of the stored type."""
    with np.errstate(invalid="ignore"):
        lowest, largest = columns.min(axis=0), columns.max(axis=0)
        verdicts = np.full(sums.size, Verdict.OFF_SUM, np.uint8)
        if normalize:
            verdicts[:] = Verdict.GOOD
        else:
            verdicts[np.abs(sums - 1.0) <= _tolerance(columns)] = Verdict.GOOD
            verdicts[(largest > 1.0) & (verdicts != Verdict.GOOD)] = Verdict.ABOVE_ONE
        verdicts[largest <= 0] = Verdict.NO_MASS
        verdicts[lowest < 0] = Verdict.NEGATIVE
        verdicts[~(np.isfinite(lowest) & np.isfinite(largest))] = Verdict.NOT_FINITE
    return verdicts


def _tolerance(columns: Floats) -> Floats:
    """For each row (here classes x rows) that of the narrowest type that holds its values."""
    tolerance = np.full(columns.shape[1], TOLERANCE[64])
    with np.errstate(over="ignore", invalid="ignore"):
        single = columns.astype(np.float32)
        held = np.flatnonzero((single == columns).all(axis=0))
        single = single[:, held]
        tolerance[held] = TOLERANCE[32]
        tolerance[held[(single.astype(np.float16) == single).all(axis=0)]] = TOLERANCE[16]
        tolerance[held[(single.view(np.uint32) & 0xFFFF == 0).all(axis=0)]] = BFLOAT16_TOLERANCE
    return tolerance


Kind = Literal["probabilities", "mixed", "unit interval", "scaled", "logits"]

_KIND_SLACK = 1e-6
_STRAYS = 100
"""One score in so many may lie outside of [0, 1], damaged or not: the others still tell."""

_ENOUGH = 20
"""Rows from which on it is no accident that all scores lie in [0, 1] though they do not sum to 1."""

_SOME = 8
"""The same for one score per row: a batch of a few doubtful rows has logits in [0, 1] too."""

_PROBES = 6
"""Columns that are looked at before whole rows."""

_ROUNDED = 0.1
"""Rows of probabilities with few decimals sum to 1 within this, as a rule."""

_PERCENT = 2.0
"""Percentages without decimals sum to 100 within this, as a rule."""

_EXACT = 1e-3
"""Rows of logits hardly ever sum to 1 within this: where one in 50 does, these are of another kind than the others."""

DOUBTS: dict[Kind, tuple[str, str]] = {
    "mixed": (
        "some rows lie in [0, 1] and sum to 1, as probabilities do, and others do not",
        "store all rows in one kind, or pass `input=logits` if they really are logits",
    ),
    "probabilities": (
        "rows lie in [0, 1] and sum to 1, so these are probabilities, not logits",
        "pass `input=probs`, or `input=logits` if they really are logits",
    ),
    "unit interval": (
        "scores lie in [0, 1], as probabilities do, but rows do not sum to 1",
        "pass `input=logits` if they are logits, or `input=probs` with `normalize=True` if each is a probability of "
        "its own class",
    ),
    "scaled": (
        "rows are not negative and sum to 100 or are whole numbers: percentages or counts, not logits",
        "pass `input=probs` with `normalize=True`, or `input=logits` if they really are logits",
    ),
}
"""Why scores of such a kind are not taken as logits, and what to do."""

BINARY_DOUBTS: dict[Kind, tuple[str, str]] = {
    "probabilities": ("scores lie in [0, 1], as a probability of class 1 does", DOUBTS["probabilities"][1]),
    "scaled": (
        "no score is negative, so every row would be of class 1: percentages or counts, not logits",
        "store them as probabilities in [0, 1], or pass `input=logits` if they really are logits",
    ),
}
"""The same for one score per row."""


class ScoreLook(Sums, frozen=True, order=True):
    """Counts of rows: all, those with every score in [0, 1], of these the ones that sum to 1, and scaled ones; adds up.

    `summing` allows for decimals that were cut, `exact` for those of floating-point numbers only.
    Scaled rows are not negative, and they sum to 100 or are whole numbers (of one score per row: any above 1). Rows
    with NaN or +inf are bad anyway and do not count.
    """

    rows: int = 0
    inside: int = 0
    summing: int = 0
    scaled: int = 0
    exact: int = 0

    @classmethod
    def of(cls, scores: AnyFloats, largest: Floats | None = None) -> ScoreLook:
        """Look at rows of scores (rows x classes); `largest` is the largest of each row, if that is known already.

        >>> ScoreLook.of(np.array([[0.2, 0.8], [0.5, 0.9], [-1.0, 2.0], [30.0, 70.0]]))
        ScoreLook(rows=4, inside=2, summing=1, scaled=1, exact=1)
        """
        if largest is None:
            largest = scores.max(axis=1).astype(np.float64)
        with np.errstate(invalid="ignore"):
            finite = largest < np.inf  # not NaN either
            likely = np.flatnonzero((largest >= 0) & finite & (scores[:, 0] >= 0) & (scores[:, -1] >= 0))
            likely = _without_negative(scores, likely)
            found = scores[likely]
            positive = found.min(axis=1) >= 0 if found.size else np.zeros(likely.size, bool)
            tops = largest[likely[positive]]
            found, small = found[positive], tops <= 1.0 + _KIND_SLACK
        off, large = np.abs(row_sums(found[small].astype(np.float64)) - 1.0), found[~small]
        with np.errstate(over="ignore"):
            percentages = np.abs(large.sum(axis=1, dtype=np.float64) - 100.0) <= _PERCENT
        whole = (large == np.rint(large)).all(axis=1)
        return cls(
            rows=int(np.count_nonzero(finite)),
            inside=int(np.count_nonzero(small)),
            summing=int(np.count_nonzero(off <= _ROUNDED)),
            scaled=int(np.count_nonzero(percentages | whole)),
            exact=int(np.count_nonzero((off <= _EXACT) & (tops[small] < 1.0))),  # logits may be 0 and 1
        )

    @classmethod
    def of_binary(cls, scores: AnyFloats) -> ScoreLook:
        """Look at one score per row."""
        with np.errstate(invalid="ignore"):
            inside = int(np.count_nonzero((scores >= -_KIND_SLACK) & (scores <= 1.0 + _KIND_SLACK)))
            above = int(np.count_nonzero((scores > 1.0 + _KIND_SLACK) & (scores < np.inf)))
            return cls(int(np.count_nonzero(scores < np.inf)), inside, inside, above)

    def kind(self, binary: bool = False) -> Kind:
        """What the scores look like.

        Rows of several scores are probabilities when most rows lie in [0, 1] and sum to 1. One score per row has no
        sum, so all of them must lie in [0, 1], except one in a hundred.
        """
        rows, positive = self.rows, self.inside + self.scaled
        nearly_all_inside, nearly_all_positive = ((rows - some) * _STRAYS <= rows for some in (self.inside, positive))
        if binary and rows >= _SOME and nearly_all_inside:
            return "probabilities"
        if not binary and 2 * self.summing > rows:
            return "probabilities"
        if rows < _ENOUGH:
            return "logits"
        if 50 * self.exact >= rows:
            return "mixed"
        if nearly_all_positive and (binary or 2 * self.scaled > rows):
            return "scaled"  # a negative score here and there is no percentage and no count
        return "unit interval" if nearly_all_inside and not binary else "logits"


def _without_negative(scores: AnyFloats, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Those of the rows that may be without a negative score, by a few columns: most logits are seen through there."""
    columns = scores.shape[1]
    for column in range(1, min(_PROBES, columns - 1)):
        before = rows.size
        rows = rows[scores[rows, column * (columns - 1) // min(_PROBES, columns - 1)] >= 0]
        if 4 * rows.size > 3 * before:
            break
    return rows


def are_log_probabilities(scores: AnyFloats) -> NDArray[np.bool_]:
    """Which rows (rows x classes) are logarithms of probabilities: their exponentials sum to 1.

    There -inf is a probability of 0; in true logits it means that a class is impossible.

    >>> are_log_probabilities(np.array([[np.log(0.5), np.log(0.5), -np.inf], [3.0, 1.0, -np.inf]])).tolist()
    [True, False]
    """
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        exponentials = np.exp(np.minimum(scores.astype(np.float64), 1.0))
        return np.abs(row_sums(exponentials) - 1.0) <= LOG_TOLERANCE


TOLERATED = 2.0
"""Nats of total NLL by which two floors must differ before the rows prefer one: about a 95 % likelihood interval."""

_SLACK = 1.1
"""2 f may exceed the smallest positive probability by this factor, so that its own rounding does not decide."""

_COARSE = 4
_LAST = 1074

HALF_PRECISION = 2.0**-24
"""The smallest positive float16."""

FACE_VALUE = 2.0**-_LAST
"""The smallest positive float64, for a temperature that was given: a 0 is all but impossible, nothing else moves."""


class Positives(Struct, frozen=True):
    """What some probabilities tell of the floor: how many are 0, and the smallest of the others; adds up exactly.

    >>> Positives.of(np.array([[0.75, 0.25, 0.0]])) + Positives.of(np.array([[0.5, 0.4, 0.1]]))
    Positives(zeros=1, smallest=0.1)
    """

    zeros: int = 0
    smallest: float = math.inf

    @classmethod
    def of(cls, probabilities: Floats) -> Positives:
        """From rows of probabilities, without bad rows."""
        zeros = probabilities.size - int(np.count_nonzero(probabilities))
        if not zeros:
            return cls(0, float(probabilities.min(initial=math.inf)))
        return cls(zeros, float(np.min(probabilities, initial=math.inf, where=probabilities > 0)))

    def __add__(self, other: Positives) -> Positives:
        return Positives(self.zeros + other.zeros, min(self.smallest, other.smallest))


def floored(probabilities: AnyFloats, floor: float) -> Floats:
    """The larger of p and p / 2 + floor for each probability p: none is below the floor; not normalised again.

    >>> floored(np.array([0.75, 0.25, 0.0]), 0.015625).tolist()
    [0.75, 0.25, 0.015625]
    """
    raised: Floats = np.multiply(probabilities, 0.5, dtype=np.float64)
    np.add(raised, floor, out=raised)
    np.maximum(raised, probabilities, out=raised)
    return raised


def floored_logits(probabilities: AnyFloats, floor: float) -> Floats:
    """Logits of rows of probabilities: the logarithms of `floored`; -inf at a 0 when the floor is 0.

    >>> floored_logits(np.array([[0.5, 0.5, 0.0]]), 0.125).round(3).tolist()
    [[-0.693, -0.693, -2.079]]
    """
    raised = floored(probabilities, floor)
    with np.errstate(divide="ignore"):
        return np.log(raised, out=raised)


def choose_floor(nll: Callable[[float], float], rows: int, classes: int, smallest: float) -> float:
    """The floor for calibration rows whose smallest positive probability is `smallest`.

    `nll(f)` is the mean NLL of the rows with the floor f at the best temperature for it. Powers of 2 are tried, from
    half the uniform probability 1 / K down to the smallest float64; a larger floor would lift a 0 above chance. Of the
    floors that keep every positive probability, the largest that is as good as the best floor of all is taken; if none
    is as good, the best. "As good" is within `TOLERATED` nats over all rows.

    Deterministic, and about 20 calls of `nll` (25 at most).

    >>> choose_floor(lambda f: (math.log2(f) + 6) ** 2 / 100, rows=1000, classes=3, smallest=0.1) == 2**-6
    True
    """
    grid = _floors(classes)

    @cache
    def total(place: int) -> float:
        return rows * nll(grid[place])

    coarse = [*range(0, len(grid) - 1, _COARSE), len(grid) - 1]
    near = min(coarse, key=total)
    best = min(range(max(0, near - _COARSE + 1), min(len(grid), near + _COARSE)), key=total)
    enough = total(best) + TOLERATED
    keeping = next((i for i, floor in enumerate(grid) if 2.0 * floor <= _SLACK * smallest), len(grid) - 1)
    if best > keeping:  # the totals fall towards the best
        best = keeping + bisect_left(range(keeping, best), True, key=lambda place: total(place) <= enough)
    elif total(keeping) <= enough:
        best = keeping
    return grid[best]


def _floors(classes: int) -> tuple[float, ...]:
    """Powers of 2 in falling order, by factors of 2 at first and then by steps of an eighth of the exponent."""
    exponents = []
    exponent = 1 + math.ceil(math.log2(classes))
    while exponent < _LAST:
        exponents.append(exponent)
        exponent += max(1, exponent // 8)
    return tuple(math.ldexp(1.0, -exponent) for exponent in [*exponents, _LAST])


# Confidence in words

LEVELS = {"very low": 0.1, "low": 0.25, "medium": 0.5, "moderate": 0.5, "high": 0.75, "very high": 0.9}
"""Numbers that words of confidence stand for; only their order counts once they are calibrated."""
WORDS = ":words"
"""How the name of a score ends that is a word in every row."""


def level_words(name: str, value: float) -> str:
    """A value of a score as people know it: a word where the score is in words."""
    if not name.endswith(WORDS):
        return f"{value:.10g}"
    return min(LEVELS, key=lambda level: abs(LEVELS[level] - value))
