"""Columns side by side to rows: a transposing copy that uses its cache lines whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TILE = 64
_LINE = 64
"""Bytes of a cache line."""


def tiled_transpose(columns: Sequence[NDArray[Any]], dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
    """The (rows x columns) array of columns of equal length, in one type (default: the widest of theirs).

    Goes by tiles of columns, which lie an odd number of cache lines apart: at a power of two, as with blocks of 1024
    rows, all of them would fall on the same few places of the cache.

    >>> tiled_transpose([np.array([1.0, 2.0]), np.array([3.0, 4.0])])
    array([[1., 3.],
           [2., 4.]])
    """
    dtype = np.result_type(*columns) if dtype is None else dtype
    rows, per_line = len(columns[0]), _LINE // dtype.itemsize
    result = np.empty((rows, len(columns)), dtype)
    lines = -(-rows // per_line) | 1
    tile = np.empty((min(_TILE, len(columns)), lines * per_line), dtype)[:, :rows]
    for first in range(0, len(columns), _TILE):
        some = columns[first : first + _TILE]
        for row, column in zip(tile, some, strict=False):
            row[:] = column
        result[:, first : first + _TILE] = tile[: len(some)].T
    return result
