"""A number for each row that depends on its content alone, evenly spread over 64 bits.

Equal rows have equal keys whatever their order, layout, block or floating-point width. Different rows have different
keys as far as what is hashed tells them apart: of logits a few columns do, of probabilities every column is needed,
because most of them are 0 or alike (of 4000 rows of kNN probabilities with 20 classes, 1702 differ, and 429 in a few
columns).
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from drrej.core.types import AnyFloats

Keys = NDArray[np.uint64]

_PROBES = 4
_CHUNK = 1 << 14
"""Numbers that are worked on together: they fit the cache."""
_SHORT = 32
"""Rows of fewer columns are summed classes first, which is quicker."""


def logit_keys(logits: AnyFloats, largest: NDArray[np.float64], prediction: NDArray[np.int64]) -> Keys:
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
    factors = _factors(columns)
    keys = np.empty(rows, np.uint64)
    step = max(1, _CHUNK // max(columns, 1))
    for start in range(0, rows, step):
        chunk = slice(start, start + step)
        if columns < _SHORT:
            words = _bits(np.array(values[chunk].T, np.float64, order="C"))
        else:
            words = _bits(np.array(values[chunk], np.float64, order="C"))
        # Narrow numbers end in zeros, which a product would keep: their upper half is folded down first.
        words ^= words >> np.uint64(32)
        words *= factors[:, None] if columns < _SHORT else factors
        # A sum modulo 2**64 has no order.
        keys[chunk] = np.add.reduce(words, axis=0 if columns < _SHORT else 1)
    return mixed(keys)


def copy_keys(keys: Keys, kinds: NDArray[np.uint64]) -> Keys:
    """Keys that tell the copies of a row apart too; `kinds` are whole numbers that rows differ in besides, as labels.

    The first, second, ... copy has its own key each, and it does not matter which of equal rows is which: in any order
    the rows have the same keys.

    >>> keys = copy_keys(np.array([7, 7, 5], np.uint64), np.array([0, 0, 1]))
    >>> len(set(keys.tolist())), sorted(keys) == sorted(copy_keys(np.array([5, 7, 7], np.uint64), np.array([1, 0, 0])))
    (3, True)
    """
    rows = mixed(keys ^ mixed(kinds.astype(np.uint64)))
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    first = np.ones(ordered.size, bool)
    first[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(first)
    copies = np.arange(ordered.size) - np.repeat(starts, np.diff(np.append(starts, ordered.size)))
    different = np.empty_like(rows)
    different[order] = mixed(ordered ^ mixed(copies.astype(np.uint64)))
    return different


def key_limit(share: float) -> np.uint64:
    """The largest key of such a share of the rows: a sample that no order of the rows and no size of blocks changes."""
    return np.uint64(0xFFFFFFFFFFFFFFFF) if share >= 1.0 else np.uint64(int(share * 2.0**64))


@cache
def _factors(columns: int) -> Keys:
    """An odd number for each column."""
    return mixed(np.arange(1, columns + 1, dtype=np.uint64)) | np.uint64(1)


def _bits(values: NDArray[np.float64]) -> Keys:
    return (values + 0.0).view(np.uint64)  # + 0.0: one bit pattern for both zeros


def _bits_into(values: AnyFloats, words: Keys) -> Keys:
    """`_bits` of the values as float64, written to `words`."""
    np.add(values, 0.0, out=words.view(np.float64), dtype=np.float64)
    return words


def mixed(state: Keys) -> Keys:
    """The finaliser of splitmix64: every input bit reaches every output bit."""
    state = np.array(state, np.uint64)
    _mix(state, np.empty_like(state))
    return state


def _mix(state: Keys, spare: Keys) -> None:
    """`mixed` in place, with room for as many numbers."""
    state += np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state ^= np.right_shift(state, np.uint64(shift), out=spare)
        state *= np.uint64(factor)
    state ^= np.right_shift(state, np.uint64(31), out=spare)
