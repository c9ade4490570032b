"""The same rows in several dumps, paired by a key."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drrej.errors import DumpError

Keys = NDArray[np.generic]


def check_unique(keys: Keys, column: str, who: str) -> None:
    """Raise when a key occurs twice; `who` names the dump."""
    ordered = np.sort(keys)
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
    if repeated.size:
        raise DumpError(
            f"{who}: column '{column}': the key {ordered[repeated[0]]} occurs more than once; keys must be unique"
        )


def partners(wanted: Keys, keys: Keys, column: str, who: str) -> NDArray[np.intp]:
    """Where the wanted keys, those of the first dump, are in another; raises unless both have the same ones."""
    if wanted.dtype.kind != keys.dtype.kind:
        raise DumpError(f"{who}: column '{column}' holds keys of another kind than in the first dump")
    order = np.argsort(keys, kind="stable")
    place = np.minimum(np.searchsorted(keys[order], wanted), keys.size - 1)
    missing = np.flatnonzero(keys[order][place] != wanted)
    if missing.size or keys.size != wanted.size:
        count = missing.size or keys.size - wanted.size
        which = f"the first is {wanted[missing[0]]}" if missing.size else "it has more than the first dump"
        raise DumpError(
            f"{who}: {count} rows are without a partner (column '{column}', {which}); all dumps must hold the same rows"
        )
    found: NDArray[np.intp] = order[place]
    return found


def check_labels(first: NDArray[np.int64], labels: NDArray[np.int64], keys: Keys, who: str) -> None:
    """Raise when rows have other labels than their partners in the first dump."""
    unlike = np.flatnonzero(labels != first)
    if unlike.size:
        raise DumpError(
            f"{who}: {unlike.size} of {first.size} rows have another label than in the first dump (the first has the "
            f"key {keys[unlike[0]]}); are they the same rows?"
        )
