"""The same rows in several predictions files, paired by a key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from drrej.core.types import Integers
from drrej.data.dump import Block
from drrej.data.labels import sortable_keys
from drrej.errors import DumpError

Keys = NDArray[np.generic]


def block_keys(block: Block, name: str) -> Keys:
    """The keys of a block's rows; missing ones are reported."""
    keys, missing = sortable_keys(block.columns.column(name), f"{block.part.name}: column '{name}'")
    block.report(missing, "no key (null)", "every row needs its key", column=name)
    return keys


def check_unique(keys: Keys, column: str, who: str) -> None:
    """Raise when a key occurs twice; `who` names the file."""
    ordered = np.sort(keys)
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
    if repeated.size:
        raise DumpError(
            f"{who}: column '{column}': the key {ordered[repeated[0]]} occurs more than once; keys must be unique"
        )


def partners(wanted: Keys, keys: Keys, column: str, who: str) -> Integers:
    """Where the wanted keys, those of the first file, are in another; raises unless all of them are."""
    if wanted.dtype.kind != keys.dtype.kind:
        raise DumpError(f"{who}: column '{column}' holds keys of another kind than in the first dump")
    place = pc.index_in(pa.array(wanted), pa.array(keys)).fill_null(-1).to_numpy(zero_copy_only=False)
    missing = np.flatnonzero(place < 0)
    if missing.size:
        raise DumpError(
            f"{who}: {missing.size} of {wanted.size} rows are not in it (column '{column}', the first is "
            f"{wanted[missing[0]]}); both dumps must hold the same rows"
        )
    found: Integers = place.astype(np.int64)
    return found
