"""A sketch of a set of rows: small enough for a document, large enough to notice that rows are used twice.

A guarantee needs rows that calibrate and fit have not seen. The sketch keeps the `KEPT` smallest distinct keys of the
rows (see `row_keys`) with how often each occurs. Keys are as good as random, so the kept ones are a random sample of
the distinct rows, and the same sample whatever the order, the blocks and the threads. New rows are looked up in it:
of m rows that are used again, the number found is hypergeometric (m among all fitted rows, `KEPT` draws).

Rows may also be equal by nature (a model with few distinct outputs, an all-equal row), and then new rows are found
that nobody has used. How often that happens, the fitted rows tell themselves: if M is the probability of the rows
that occur r times, then about n M / (r + 1) of n fitted rows are kept with r + 1 occurrences, as Good and Turing saw,
while n' M of n' fresh rows would be found. Given the sum of both numbers, the second is binomial with the share
n' / (n' + n / (r + 1)): an exact test, for each r, with no model of the rows.

Rows that were rounded, shifted, normalised or stored in another type have other keys. A second sketch is of
`coarse_keys`, which survive that, and is judged in the same way: rows that look alike there count as equal by nature.
After a shift fresh rows may look alike more often than the fitted ones tell, so a quarter more are allowed for.
"""

from __future__ import annotations

import base64
import zlib
from bisect import bisect_left
from functools import cached_property, lru_cache

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from drrej.core.intervals import at_least
from drrej.core.softmax import values_at
from drrej.core.types import AnyFloats, Booleans, Floats, Integers

Keys = NDArray[np.uint64]

KEPT = 2048
LONGEST_TEXT = 11_200
"""Characters of a fingerprint at most; about 8,240 when rows do not repeat."""

FALSE_ALARM = 0.02
"""Chance at most that fresh rows count as used, by each of the two sketches."""

_MORE_ALIKE = 1.25
"""How many times as many fresh rows may share a coarse key with fitted ones as the fitted rows suggest."""

MOST_REPEATS = 0.01
"""The share of repeated rows up to which rows count as independent."""

LOOKED_AT = 1 << 15
"""Rows, of more, among which repeated ones are looked for."""

_LARGEST = (1 << 64) - 1
_STEPS = 1 << 24
_COARSE = 8
_MOST = 255
_GROUPS = (*((r, r) for r in range(1, 17)), (17, 32), (33, 64), (65, 128), (129, _MOST))
"""Occurrences that are tested together; rows that repeat a lot are few of each kind."""


class Sketch(Struct, frozen=True, eq=False):
    """Partial sketch of some rows; adds up over blocks, in any order, to the sketch of all of them."""

    rows: int = 0
    total: int = 0
    keys: Keys = field(default_factory=lambda: np.empty(0, np.uint64))
    counts: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    coarse: Sketch | None = None

    @classmethod
    def of(cls, keys: Keys, coarse: Keys | None = None) -> Sketch:
        """From the keys of some rows, and their coarse keys."""
        low = keys
        if keys.size > 4 * KEPT:  # the smallest are nearly always among twice as many of the smallest
            low = keys[keys <= np.uint64(int(_LARGEST * (2 * KEPT / keys.size)))]
        distinct, counts = np.unique(low, return_counts=True)
        if distinct.size < KEPT and low.size < keys.size:
            distinct, counts = np.unique(keys, return_counts=True)
        total = int(keys.sum(dtype=np.uint64))
        second = None if coarse is None else cls.of(coarse)
        return cls(int(keys.size), total, distinct[:KEPT], counts[:KEPT].astype(np.int64), second)

    def __add__(self, other: Sketch) -> Sketch:
        keys, places = np.unique(np.concatenate([self.keys, other.keys]), return_inverse=True)
        counts = np.zeros(keys.size, np.int64)
        np.add.at(counts, places, np.concatenate([self.counts, other.counts]))
        total = (self.total + other.total) & _LARGEST
        coarse = self.coarse + other.coarse if self.coarse and other.coarse else self.coarse or other.coarse
        return Sketch(self.rows + other.rows, total, keys[:KEPT], counts[:KEPT], coarse)

    def fingerprint(self) -> Fingerprint:
        """What a document keeps of it."""
        limit = int(self.keys[-1]) if self.keys.size == KEPT else _LARGEST
        steps = _steps(self.keys, limit)
        coarse = None if self.coarse is None else self.coarse.fingerprint()
        return Fingerprint(self.rows, self.total, limit, steps, np.minimum(self.counts, _MOST), coarse)


def _steps(keys: Keys, limit: int) -> Integers:
    """Keys up to the limit in 2**24 equal steps: three bytes each. One in 8,000 other rows looks like a kept one."""
    return np.minimum(keys / float(limit) * _STEPS, _STEPS - 1).astype(np.int64)


class LookUp(Struct, frozen=True, eq=False):
    """Which kept rows of a fingerprint occur among some new rows; adds up over blocks."""

    rows: int
    total: int
    found: Booleans
    coarse: LookUp | None = None

    def __add__(self, other: LookUp) -> LookUp:
        coarse = self.coarse + other.coarse if self.coarse and other.coarse else None
        total = (self.total + other.total) & _LARGEST
        return LookUp(self.rows + other.rows, total, self.found | other.found, coarse)


class Reuse(Struct, frozen=True):
    """Whether new rows were used before.

    `share` estimates the share of the distinct fitted rows that are among the new ones; `noticeable` is False when rows
    repeat so much by nature that even a full reuse might not show.
    """

    reused: bool
    share: float
    noticeable: bool


class Fingerprint(Struct, frozen=True, eq=False, dict=True):
    """A sketch as a document keeps it: `steps` are its keys, shortened, in ascending order."""

    rows: int
    total: int
    limit: int
    steps: Integers
    counts: Integers
    coarse: Fingerprint | None = None

    def text(self) -> str:
        """One line of ASCII, at most `LONGEST_TEXT` characters for each of the two sketches."""
        packed = self.steps.astype(">u4").view(np.uint8).reshape(-1, 4)[:, 1:].tobytes()
        texts = [packed]
        if (self.counts > 1).any():
            texts.append(zlib.compress(self.counts.astype(np.uint8).tobytes(), 9))
        numbers = "2", f"{self.total:016x}", f"{self.rows:x}", f"{self.limit:016x}"
        coded = (base64.b64encode(text).decode("ascii") for text in texts)
        return ".".join([*numbers, *coded]) + ("" if self.coarse is None else f"|{self.coarse.text()}")

    @classmethod
    def parse(cls, text: str, rows: int) -> Fingerprint:
        """From the text of a document about `rows` rows; ValueError with a reason if it is not a fingerprint."""
        text, more, second = text.partition("|")
        version, *parts = text.split(".")
        try:
            total, own_rows, limit = (int(part, 16) for part in parts[:3])
            keys, *repeated = (base64.b64decode(part, validate=True) for part in parts[3:])
            steps = np.frombuffer(keys, np.uint8).reshape(-1, 3).astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
            counts = np.ones(steps.size, np.int64)
            if repeated:
                inflated = zlib.decompressobj().decompress(repeated[0], KEPT + 1)
                counts = np.frombuffer(inflated, np.uint8).astype(np.int64)
        except (ValueError, zlib.error):
            raise ValueError("it is damaged") from None
        if own_rows != rows:
            raise ValueError(f"it describes {own_rows} rows, but {rows} were used")
        full, known = steps.size == KEPT, int(counts.sum())
        numbers = version == "2" and len(repeated) < 2 and 0 <= total <= _LARGEST and KEPT <= limit <= _LARGEST
        ordered = counts.size == steps.size <= KEPT and (counts > 0).all() and (np.diff(steps) >= 0).all()
        complete = known == rows or (known < rows and (full or bool((counts == _MOST).any())))
        if not (numbers and ordered and complete and full == (limit < _LARGEST)):
            raise ValueError("its keys do not match its number of rows")
        return cls(rows, total, limit, steps, counts, cls.parse(second, rows) if more else None)

    @cached_property
    def _coarse(self) -> Booleans:
        """Which stretches of steps have a kept key."""
        table: Booleans = np.zeros(_STEPS >> _COARSE, bool)
        table[self.steps >> _COARSE] = True
        return table

    def look_up(self, keys: Keys, coarse: Keys | None = None) -> LookUp:
        """Look for new rows, given by their keys and coarse keys."""
        candidates = _steps(keys[keys <= np.uint64(self.limit)], self.limit)
        candidates = candidates[self._coarse[candidates >> _COARSE]]  # nearly all others go before the sort
        found = np.isin(self.steps, candidates)
        second = None if coarse is None or self.coarse is None else self.coarse.look_up(coarse)
        return LookUp(int(keys.size), int(keys.sum(dtype=np.uint64)), found, second)

    def judge(self, looked_up: LookUp) -> Reuse:
        """Whether rows that were looked up were used before, with a false alarm in at most 2 `FALSE_ALARM` of cases.

        The same rows in any order are always noticed.
        """
        if looked_up.rows == self.rows and looked_up.total == self.total:
            return Reuse(True, 1.0, True)
        exact = self._judge(looked_up)
        if exact.reused or self.coarse is None or looked_up.coarse is None:
            return exact
        coarse = self.coarse._judge(looked_up.coarse, _MORE_ALIKE)
        return coarse if coarse.reused else Reuse(False, exact.share, exact.noticeable or coarse.noticeable)

    def _judge(self, looked_up: LookUp, alike: float = 1.0) -> Reuse:
        share = float(looked_up.found.mean()) if looked_up.found.size else 0.0
        found, open_groups = False, False
        for number, (low, high) in enumerate(_GROUPS):
            members = (self.counts >= low) & (self.counts <= high)
            repeats = int(np.count_nonzero((self.counts > low) & (self.counts <= high + 1)))
            needed = needed_hits(repeats, self.rows, alike * looked_up.rows, high, number)
            found = found or int(np.count_nonzero(looked_up.found & members)) >= needed
            # Rows drawn from the fitted ones would find each of these with the chance 1 - (1 - r / n)^n'.
            chances = -np.expm1(looked_up.rows * np.log1p(-np.minimum(self.counts[members] / self.rows, 0.5)))
            open_groups = open_groups or float(chances.sum()) >= needed
        return Reuse(found, share, open_groups)


@lru_cache(maxsize=16)
def read_fingerprint(text: str | None, rows: int | None) -> Fingerprint | None:
    """The fingerprint that a document has; None where there is none, or one of the first format, which told too little.

    The same object for the same text. ValueError with a reason if the text is none.
    """
    if not text or rows is None or text.count(".") == 1:
        return None
    return Fingerprint.parse(text, rows)


@lru_cache(maxsize=1024)
def needed_hits(repeats: int, fitted: int, new: float, occurrences: int, group: int) -> int:
    """The number of kept rows found from which on chance does not explain it, in a group of `_GROUPS`.

    `repeats` rows were kept with one occurrence more than those. Half of the false alarms are allowed to rows that
    occur once, the usual case; the other groups share the rest.
    """
    level = FALSE_ALARM / 2 if group == 0 else FALSE_ALARM / 2 / (len(_GROUPS) - 1)
    chance = new / (new + fitted / (occurrences + 1)) if new else 0.0
    hits = range(1, KEPT + 1)  # KEPT + 1 is more than can be found: never
    return 1 + bisect_left(hits, True, key=lambda count: at_least(count, count + repeats, chance) <= level)


_PROBES = 4
_CHUNK = 1 << 14
"""Numbers that are worked on together: they fit the cache."""
_SHORT = 32
"""Rows of fewer columns are summed classes first, which is quicker."""


def logit_keys(logits: AnyFloats, largest: Floats, prediction: Integers) -> Keys:
    """Keys of rows of logits (rows x classes), from the largest logit, its place, and four columns."""
    rows, classes = logits.shape
    keys = np.empty(rows, np.uint64)
    spare = np.empty(min(rows, _CHUNK), np.uint64)
    for start in range(0, rows, _CHUNK):
        part = slice(start, start + _CHUNK)
        state, scratch = keys[part], spare[: keys[part].size]
        np.add(_bits_into(largest[part], scratch), prediction[part].view(np.uint64), out=state)
        _mix(state, scratch)
        for probe in range(_PROBES):
            column = logits[part, (probe * classes) // _PROBES]
            np.bitwise_xor(state, _bits_into(column, scratch), out=state)
            _mix(state, scratch)
    return keys


def content_keys(values: AnyFloats) -> Keys:
    """Keys of rows of numbers (rows x columns), from every column: for probabilities, counts and the like.

    >>> keys = content_keys(np.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.5, 0.5, -0.0]]))
    >>> bool(keys[0] == keys[2]), bool(keys[0] == keys[1])
    (True, False)
    """
    rows, columns = values.shape
    factors = mixed(np.arange(1, columns + 1, dtype=np.uint64)) | np.uint64(1)  # an odd number for each column
    keys = np.empty(rows, np.uint64)
    step = max(1, _CHUNK // max(columns, 1))
    for start in range(0, rows, step):
        chunk = slice(start, start + step)
        part = values[chunk].T if columns < _SHORT else values[chunk]
        words = _bits_into(part, np.empty(part.shape, np.uint64))
        # Narrow numbers end in zeros, which a product would keep: their upper half is folded down first.
        words ^= words >> np.uint64(32)
        words *= factors[:, None] if columns < _SHORT else factors
        # A sum modulo 2**64 has no order.
        keys[chunk] = np.add.reduce(words, axis=0 if columns < _SHORT else 1)
    return mixed(keys)


_COARSE_PROBES = 8
_FARTHEST = -9.0
"""Gaps below it count as it: what float16 and six decimals leave of smaller probabilities is another number."""
_COARSE_STEPS = {2: 2.0**12, 3: 2.0**6}
"""In 1, by the classes; 16 for four and more. Few classes have few gaps, which have to tell more."""
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


def coarse_keys(scores: AnyFloats, prediction: Integers, probabilities: bool = False) -> Keys:
    """Keys of rows of logits or probabilities, from the class predicted and how far up to eight others lie behind it.

    The steps that they lie behind are packed into one number: a byte each, or two of up to three classes.

    >>> logits = np.array([[2.5, 1.3, 0.2, -0.9], [0.1, 1.0, 0.4, 0.3]])
    >>> other = np.exp(logits + 1).astype(np.float16)
    >>> bool((coarse_keys(logits, logits.argmax(axis=1)) == coarse_keys(other, other.argmax(axis=1), True)).all())
    True
    """
    rows, classes = scores.shape
    precision = np.float64 if scores.dtype == np.float64 or probabilities else np.float32
    probes = np.arange(min(classes, _COARSE_PROBES)) * classes // min(classes, _COARSE_PROBES)
    packed = np.zeros((rows, 4 if classes < 4 else 8), "<u2" if classes < 4 else "u1")
    largest = values_at(scores, prediction).astype(precision, copy=False)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for start in range(0, rows, _CHUNK):
            part = slice(start, start + _CHUNK)
            gaps, top = scores[part][:, probes].astype(precision, copy=False), largest[part, None]
            if probabilities:
                gaps, top = np.log(gaps, out=gaps), np.log(top)
            np.clip(np.subtract(gaps, top, out=gaps), _FARTHEST, 0.0, out=gaps)  # quicker than `maximum`
            np.multiply(gaps, -_COARSE_STEPS.get(classes, 2.0**4), out=gaps)
            packed[part, : probes.size] = np.rint(gaps, out=gaps)
    return mixed(packed.view("<u8")[:, 0] + prediction.astype(np.uint64) * _SPREAD)


def near_keys(scores: AnyFloats, probabilities: bool = False) -> Keys:
    """Four keys for each row (none below four classes): a copy in float16, shifted or with tiny noise has one of them.

    They are of the predicted class and how far the others, or the next four, lie behind it, in steps of 2**-8 of the
    farthest, or 2**-9 where three have to tell. Each grid of steps is a quarter of one further: a small difference
    that crosses a step of one grid crosses none of the others.
    """
    rows, classes = scores.shape
    if classes < 4:
        return np.empty((rows, 0), np.uint64)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.log(scores, dtype=np.float64) if probabilities else scores.astype(np.float64)
        if classes > 5:
            values = np.sort(np.partition(values, -5, axis=1)[:, -5:], axis=1)
        values = np.ascontiguousarray(values.T)  # classes first: so few are quicker that way
        gaps = values.max(axis=0) - values
    finite = np.isfinite(gaps)
    size = np.frexp(np.max(gaps, axis=0, where=finite, initial=2.0**-6))[1]
    steps = np.where(finite, np.ldexp(gaps, (9 if classes == 4 else 8) - size), -1.0)
    columns = np.vstack([steps, scores.argmax(axis=1), size])
    keys = np.empty((rows, 4), np.uint64)
    for number in range(4):
        columns[:-2] = np.floor(steps + number / 4)
        keys[:, number] = content_keys(columns.T)
    return keys


def repeats(keys: Keys) -> Booleans:
    """Which rows have a key of an earlier one; of several keys for each row (rows x keys) any.

    >>> repeats(np.array([7, 5, 7, 7], np.uint64)).tolist()
    [False, False, True, True]
    """
    again = np.zeros(len(keys), bool)
    for column in keys.reshape(len(keys), -1).T:
        ordered = np.sort(column)
        rows = np.flatnonzero(np.isin(column, ordered[1:][ordered[1:] == ordered[:-1]]))  # nearly always few
        first = np.unique(column[rows], return_index=True)[1]
        again[np.delete(rows, first)] = True
    return again


def repeated_rows(keys: list[Keys], rows: int) -> int:
    """How many of so many rows have a key of an earlier one, judged by the keys of all or of some of them."""
    joined = np.concatenate(keys)
    return round(rows * float(repeats(joined).mean())) if len(joined) else 0


def key_limit(share: float) -> np.uint64:
    """The largest key of such a share of the rows: a sample that no order of the rows and no size of blocks changes."""
    return np.uint64(0xFFFFFFFFFFFFFFFF) if share >= 1.0 else np.uint64(int(share * 2.0**64))


def _bits_into(values: AnyFloats, words: Keys) -> Keys:
    """The bits of the values as float64, written to `words`."""
    np.add(values, 0.0, out=words.view(np.float64), dtype=np.float64)  # + 0.0: one bit pattern for both zeros
    return words


def mixed(state: Keys) -> Keys:
    """The finaliser of splitmix64: every input bit reaches every output bit."""
    state = np.array(state, np.uint64)
    _mix(state, np.empty_like(state))
    return state


def _mix(state: Keys, spare: Keys) -> None:
    """`mixed` in place, with room for as many numbers."""
    state += _SPREAD
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state ^= np.right_shift(state, np.uint64(shift), out=spare)
        state *= np.uint64(factor)
    state ^= np.right_shift(state, np.uint64(31), out=spare)
