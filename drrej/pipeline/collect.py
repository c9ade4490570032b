"""Passes over a dump as the steps make them, and one that keeps what a function makes of each row, in order."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.core.curves import Curve
from drrej.core.types import Booleans, Floats
from drrej.data.dump import Block, Dump
from drrej.engines import protocol
from drrej.engines.local import available_memory
from drrej.engines.protocol import Engine, Pass, PassSummary
from drrej.errors import DumpError, OutputError
from drrej.pipeline.score import Scored, Scorer, check_kind
from drrej.pipeline.source import Source

MOST_IN_MEMORY = 1 << 26
"""Rows whose columns are kept in memory, where there is enough of it."""
_PIECE = 1 << 17
_ROW_BYTES = 32
"""What a row may take of a quarter of the memory."""


def collect(
    source: Source,
    dump: Dump,
    columns: Callable[[Block], Mapping[str, Any]],
    run: Pass,
    if_none: DumpError | None = None,
    **how: Any,
) -> dict[str, Any]:
    """What `columns` makes of every block, as one value per name.

    Numpy arrays with an entry per row are joined in the order of the rows; where there are too many rows for memory
    they are `np.memmap`s of temporary files. Arrow dictionaries (groups) are joined with one dictionary. Anything else
    (sums, counts, sketches, lists) is added up with `+`. A name may be missing in none or in all blocks.
    `if_none` is raised where there is no row; for `how` see `map_blocks`.
    """
    arrays: dict[str, NDArray[Any]] = {}
    groups: dict[str, list[pa.DictionaryArray]] = {}
    found: dict[str, Any] = {}
    filled, empty = 0, True
    for block in map_blocks(source, dump, columns, run, **how):
        rows, empty = 0, False
        for name, value in block.items():
            if isinstance(value, np.ndarray):
                rows = len(value)
                room = arrays.get(name, value[:0])
                kind = np.promote_types(room.dtype, value.dtype)
                if name not in arrays or kind != room.dtype:  # text may become wider
                    arrays[name] = scratch((dump.rows, *value.shape[1:]), kind)
                    arrays[name][:filled] = room[:filled]
                arrays[name][filled : filled + rows] = value
            elif isinstance(value, pa.DictionaryArray):
                groups.setdefault(name, []).append(value)
            elif name in found:
                found[name] += value
            else:
                found[name] = value
        filled += rows
    if empty:
        where = f" in {dump.labels_file}" if dump.labels_file else ""
        raise if_none or DumpError(f"{dump.parts[0].name}: no row has a label{where}")
    for name, parts in groups.items():
        found[name] = pa.chunked_array(parts).unify_dictionaries().combine_chunks()
    for name, room in arrays.items():
        found[name] = room[:filled]
    return found


def collect_scored(
    source: Source,
    dump: Dump,
    scorer: Scorer,
    columns: Callable[[Scored], Mapping[str, Any]],
    what: str,
    labelled: bool,
    keep: Sequence[str] = (),
    if_none: DumpError | None = None,
) -> dict[str, Any]:
    """`collect` of what `columns` makes of scored rows; `keep` are columns that it needs besides the scorer's."""
    run = Pass(what, labelled, (*scorer.columns, *keep), scores=scorer.columns)
    return collect(source, dump, lambda block: columns(scorer(block)), run, if_none)


def scratch(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array to be filled: in memory, or in a temporary file without a name where there are too many rows."""
    if shape[0] <= min(MOST_IN_MEMORY, available_memory() // 4 // _ROW_BYTES):
        return np.empty(shape, dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    try:
        with tempfile.TemporaryFile(prefix="drrej-") as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a page without room behind it would end the process
            return np.memmap(file, dtype, "r+", shape=shape)
    except OSError as error:
        raise OutputError(
            f"the columns of {shape[0]} rows cannot be kept in {tempfile.gettempdir()} ({error.strerror}); "
            f"set TMPDIR to a folder with {-(-24 * shape[0] // 10**9)} GB of free space"
        ) from None


def pieces(rows: int) -> Iterator[slice]:
    """Rows that are looked at together: columns beyond memory are read in pieces."""
    for start in range(0, rows, _PIECE):
        yield slice(start, start + _PIECE)


def curve_of(losses: Floats, wrong: Booleans | None = None, in_place: bool = False) -> Curve:
    """The risk-coverage curve of a column of losses; without labels no row counts as wrong.

    The column stays as it is unless it may be sorted `in_place`, which is quicker: memory for a copy takes longer to
    get than to sort. A copy of a column beyond memory is a second temporary file.
    """
    errors = np.sort(losses[:0] if wrong is None else losses[np.flatnonzero(wrong)])
    ordered = losses
    if not in_place:
        ordered = scratch(losses.shape, losses.dtype)
        ordered[:] = losses
    ordered.sort()
    return Curve(ordered, errors)


T = TypeVar("T")


def map_blocks(
    source: Source,
    dump: Dump,
    function: Callable[[Block], T],
    run: Pass,
    engine: Engine | None = None,
    calibrating: bool = False,
) -> Iterator[T]:
    """The results of `function` on every block, in order.

    At the end it raises for bad rows, counted over the whole dump, and for scores that are not what they are taken for;
    for `calibrating` see `check_kind`. `engine` is the source's own unless one that keeps rows.
    """
    summary = PassSummary()
    yield from protocol.map_blocks(dump, function, run, engine or source.engine, summary)
    source.see(summary)
    check_kind(dump, summary, calibrating)
