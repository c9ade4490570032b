"""What identifies a set of rows by content, whatever their order, layout, blocks or floating-point width.

A guarantee needs rows that the fit has not seen. Each row is hashed from its largest logit, its place, and a few
others; the sum of the hashes tells whether two sets are the same, and the smallest hashes whether they share rows: the
smallest of a union are a random sample of it.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drrej.core.calibrators import View

KEPT = 16
CLEAR_SHARE = 1 / 8
"""A share of common rows from which on two sets count as overlapping."""

_PROBES = 4


@dataclass(frozen=True)
class RowHashes:
    """Partial fingerprint of some rows; adds up over blocks."""

    rows: int
    total: int
    smallest: NDArray[np.uint64]

    @classmethod
    def empty(cls) -> RowHashes:
        """That of no rows, which adds nothing."""
        return cls(0, 0, np.empty(0, np.uint64))

    @classmethod
    def of(cls, keys: NDArray[np.uint64]) -> RowHashes:
        """From the keys of some rows, see `row_keys`."""
        count = min(KEPT, keys.size)
        smallest = np.sort(np.partition(keys, count - 1)[:count]) if count else keys
        return cls(int(keys.size), int(keys.sum(dtype=np.uint64)), smallest)

    def __add__(self, other: RowHashes) -> RowHashes:
        smallest = np.sort(np.concatenate([self.smallest, other.smallest]))[:KEPT]
        return RowHashes(self.rows + other.rows, (self.total + other.total) % (1 << 64), smallest)

    def fingerprint(self) -> str:
        """As the rejector stores it: the sum, a dot, and the smallest hashes."""
        shortened = b"".join((int(h) >> 16).to_bytes(6, "big") for h in self.smallest)
        return f"{self.total:016x}.{base64.b64encode(shortened).decode('ascii')}"


def row_keys(rows: View) -> NDArray[np.uint64]:
    """A number for each row that depends on its content alone, evenly spread over 64 bits; of rows as they are read."""
    logits, classes = rows.scores, rows.classes
    state = _mix(_bits(rows.largest) + rows.prediction.astype(np.uint64))
    for probe in range(_PROBES):
        column = logits[:, (probe * classes) // _PROBES]
        state = _mix(state ^ _bits(column.astype(np.float64)))
    return state


def key_limit(share: float) -> np.uint64:
    """The largest key of such a share of the rows: a sample that no order of the rows and no size of blocks changes."""
    return np.uint64(0xFFFFFFFFFFFFFFFF) if share >= 1.0 else np.uint64(int(share * 2.0**64))


def shared_share(fingerprint: str, other: str) -> float:
    """Estimated share of the rows of the smaller set that both sets hold; 1 for the same set."""
    (content, smallest), (other_content, other_smallest) = _parts(fingerprint), _parts(other)
    if content == other_content:
        return 1.0
    union = sorted(smallest | other_smallest)[:KEPT]
    common = smallest & other_smallest
    return sum(h in common for h in union) / max(len(union), 1)


def overlaps(fingerprint: str, other: str) -> bool:
    """Whether two sets are the same or clearly share rows.

    Rows that repeat within a set say nothing: two independent sets of them would share their hashes as well.
    """
    if fingerprint.partition(".")[0] == other.partition(".")[0]:
        return True
    repeats = any(len(base64.b64decode(f.partition(".")[2])) > 6 * len(_parts(f)[1]) for f in (fingerprint, other))
    return not repeats and shared_share(fingerprint, other) >= CLEAR_SHARE


def _parts(fingerprint: str) -> tuple[str, set[bytes]]:
    content, _, packed = fingerprint.partition(".")
    raw = base64.b64decode(packed)
    return content, {raw[i : i + 6] for i in range(0, len(raw), 6)}


def _bits(values: NDArray[np.float64]) -> NDArray[np.uint64]:
    return (values + 0.0).view(np.uint64)  # + 0.0: one bit pattern for both zeros


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64: every input bit reaches every output bit."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
