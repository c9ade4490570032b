"""One pass over a predictions file that keeps what a function makes of each row, in the order of the rows."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.core.curves import STRETCH, LossStore, RankedLosses
from drrej.core.reuse import Fingerprint, Sighting, Sketch
from drrej.core.types import Booleans, Floats, Integers, StoredLosses
from drrej.data.dump import Block, Dump
from drrej.engines.memory import available_memory
from drrej.engines.protocol import Mapper, Pass, PassSummary
from drrej.errors import OutputError
from drrej.pipeline.groups import Grouping
from drrej.pipeline.passes import map_blocks
from drrej.pipeline.score import Scorer, column_values
from drrej.pipeline.source import Source, no_labels
from drrej.records import dataclass

MOST_IN_MEMORY = 1 << 26
"""Rows whose columns are kept in memory, where there is enough of it."""
_ROW_BYTES = 32
"""What a row may take of a quarter of the memory."""


def collect(
    source: Source,
    dump: Dump,
    columns: Callable[[Block], Mapping[str, Any]],
    run: Pass,
    engine: Mapper | None = None,
    summary: PassSummary | None = None,
) -> dict[str, Any]:
    """What `columns` makes of every block, as one value per name.

    Numpy arrays with an entry per row are joined in the order of the rows; where there are too many rows for memory
    they are `np.memmap`s of temporary files. Arrow dictionaries (groups) are joined with one dictionary. Anything else
    (sums, counts, sketches) is added up with `+`. A name may be missing in none or in all blocks.
    """
    arrays: dict[str, NDArray[Any]] = {}
    others: dict[str, Any] = {}
    filled = 0
    for block in map_blocks(source, dump, columns, run, engine, summary):
        rows = 0
        for name, value in block.items():
            if isinstance(value, np.ndarray):
                rows = len(value)
                room = arrays.get(name)
                if room is None or np.promote_types(room.dtype, value.dtype) != room.dtype:  # text may become wider
                    arrays[name] = _wider(room, dump.rows, value, filled)
                arrays[name][filled : filled + rows] = value
            elif isinstance(value, pa.DictionaryArray):
                others.setdefault(name, []).append(value)
            else:
                others[name] = others[name] + value if name in others else value
        filled += rows
    if not filled:
        raise no_labels(dump)
    joined = {name: pa.chunked_array(parts).unify_dictionaries().combine_chunks() for name, parts in _lists(others)}
    return others | joined | {name: room[:filled] for name, room in arrays.items()}


def _lists(values: Mapping[str, Any]) -> list[tuple[str, list[pa.DictionaryArray]]]:
    return [(name, value) for name, value in values.items() if isinstance(value, list)]


def _wider(room: NDArray[Any] | None, rows: int, value: NDArray[Any], filled: int) -> NDArray[Any]:
    """Room for all rows, with what was there so far."""
    if room is None:
        return scratch((rows, *value.shape[1:]), value.dtype)
    wider = scratch(room.shape, np.promote_types(room.dtype, value.dtype))
    wider[:filled] = room[:filled]
    return wider


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


@dataclass(frozen=True)
class Losses:
    """L' of every row in order; with labels, whether its prediction is wrong; with a grouping, its group's number.

    `sketch` tells these rows from others, `sightings` which rows of some earlier sets are among them.
    """

    values: Floats
    wrong: Booleans | None
    sketch: Sketch
    sightings: tuple[Sighting, ...] = ()
    groups: Integers | None = None
    names: Sequence[str] = ()
    costs: Floats | None = None
    """What each row costs if it is accepted, for a loss that knows."""
    curve: RankedLosses | None = None
    """All there is of the losses where `Collecting.ranked` says so."""


_NO_LOSSES = np.empty(0)


@dataclass(frozen=True)
class Residuals:
    """The error of a regression in each row, squared or not (`kind` is "mse" or "mae"), at most `clip`."""

    columns: tuple[str, str]
    kind: str
    clip: float | None = None

    def of(self, block: Block) -> Floats:
        """The errors of a block."""
        predicted, true = (column_values(block, name) for name in self.columns)
        return self.of_values(predicted - true)

    def of_values(self, residuals: Floats) -> Floats:
        """From the differences of predictions and targets."""
        with np.errstate(over="ignore"):
            errors = np.square(residuals) if self.kind == "mse" else np.abs(residuals)
        return errors if self.clip is None else np.minimum(errors, self.clip)


@dataclass(frozen=True)
class Collecting:
    """What a pass that collects losses looks for besides."""

    grouping: Grouping | None = None
    earlier: Sequence[Fingerprint] = ()
    sketch: bool = True
    residuals: Residuals | None = None
    ranked: bool = False
    """Whether the curve of all rows is wanted in place of their losses: those need not be in memory then."""

    def of(self, block: Block, scorer: Scorer) -> Losses:
        """The losses of a block."""
        scored = scorer(block)
        wrong = None if block.labels is None else scored.wrong
        groups, names = (None, []) if self.grouping is None else self.grouping.of(block, scored.prediction)
        sketch, sightings = Sketch(), tuple[Sighting, ...]()
        if self.sketch or self.earlier:
            keys = scored.keys
            sketch = Sketch.of(keys) if self.sketch else sketch
            sightings = tuple(fingerprint.look_up(keys) for fingerprint in self.earlier)
        costs = scored.cost
        if self.residuals is not None:
            costs = self.residuals.of(block)
        return Losses(scored.loss, wrong, sketch, sightings, groups, names, costs)


def collect_losses(
    source: Source, dump: Dump, scorer: Scorer, run: Pass, collecting: Collecting | None = None
) -> Losses:
    """One pass that keeps L' of each row (8 bytes, 9 with labels, 8 more with groups), or the curve of all rows."""
    collecting = collecting or Collecting()
    grouped = () if collecting.grouping is None else collecting.grouping.columns
    errors = () if collecting.residuals is None else collecting.residuals.columns
    run = replace(run, keep=(*run.keep, *scorer.columns, *grouped, *errors), scores=scorer.columns)
    if collecting.ranked:
        return _collect_curve(source, dump, partial(collecting.of, scorer=scorer), run)
    values, blocks, rows = np.empty(dump.rows), list[Losses](), 0
    for block in map_blocks(source, dump, partial(collecting.of, scorer=scorer), run):
        # Copied at once: so the memory of a block is that of the one before, which need not be cleared.
        values[rows : rows + block.values.size] = block.values
        rows += block.values.size
        blocks.append(replace(block, values=_NO_LOSSES))
    if not blocks:
        raise no_labels(dump)
    wrong = [block.wrong for block in blocks if block.wrong is not None]
    costs = [block.costs for block in blocks if block.costs is not None]
    return Losses(
        values[:rows],
        np.concatenate(wrong) if wrong else None,
        sum((block.sketch for block in blocks), Sketch()),
        tuple(reduce(add, found) for found in zip(*(block.sightings for block in blocks), strict=True)),
        *_merged_groups(blocks),
        costs=np.concatenate(costs) if costs else None,
    )


def _collect_curve(source: Source, dump: Dump, function: Callable[[Block], Losses], run: Pass) -> Losses:
    """Nothing of a row is kept but its loss, in a file if there are many."""
    losses, sketch = loss_sorter(dump.rows), Sketch()
    sightings: tuple[Sighting, ...] | None = None
    for block in map_blocks(source, dump, function, run):
        if block.wrong is None:
            losses.add(block.values, _NO_LOSSES)
        else:
            losses.add(block.values[np.flatnonzero(~block.wrong)], block.values[np.flatnonzero(block.wrong)])
        sketch += block.sketch
        sightings = block.sightings if sightings is None else tuple(map(add, sightings, block.sightings))
    if sightings is None:
        raise no_labels(dump)
    return Losses(_NO_LOSSES, None, sketch, sightings, curve=losses.ranked())


def _merged_groups(blocks: Sequence[Losses]) -> tuple[Integers | None, list[str]]:
    """Group numbers that mean the same in every block, and the names of the groups that have rows, sorted."""
    used = {block.names[number] for block in blocks if block.groups is not None for number in np.unique(block.groups)}
    names = sorted(used)
    if not names:
        return None, []
    place = {name: number for number, name in enumerate(names)}
    tables = [np.array([place.get(name, -1) for name in block.names], np.int64) for block in blocks]
    return np.concatenate([table[block.groups] for table, block in zip(tables, blocks, strict=True)]), names


_RUN = 1 << 22
"""Losses of a run: so many of right and of wrong rows are held until they are sorted and written."""
_MERGED = 1 << 22
"""Losses of all runs that are read at a time."""


class LossSorter(Protocol):
    """Takes losses as blocks bring them, of right and of wrong rows, and makes the curve of them."""

    def add(self, right: Floats, wrong: Floats) -> None:
        """Add the losses of some rows."""

    def ranked(self) -> RankedLosses:
        """The curve."""


def loss_sorter(rows: int) -> LossSorter:
    """For so many rows: in memory, or in files where that would take too much of it. The curve has the same bits."""
    return LossFiles(rows) if rows > min(MOST_IN_MEMORY, available_memory() // 4 // _ROW_BYTES) else LossStore(rows)


class LossFiles:
    """Losses sorted in files of the folder for temporary ones: twice 8 bytes a row, and for wrong ones 16 more."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        if shutil.disk_usage(tempfile.gettempdir()).free < 16 * rows:
            raise self._no_room("it has too little room")
        self._right, self._wrong = _Runs(), _Runs()

    def add(self, right: Floats, wrong: Floats) -> None:
        """Add the losses of some rows."""
        try:
            self._right.add(right)
            self._wrong.add(wrong)
        except OSError as error:
            raise self._no_room(error.strerror or str(error)) from None

    def ranked(self) -> RankedLosses:
        """The curve."""
        try:
            wrong = _merged(self._wrong.finish())
            return RankedLosses(_merged([*self._right.finish(), wrong.run()]), wrong)
        except OSError as error:
            raise self._no_room(error.strerror or str(error)) from None

    def _no_room(self, reason: str) -> OutputError:
        return OutputError(
            f"the losses of {self.rows} rows cannot be sorted in {tempfile.gettempdir()} ({reason}); set TMPDIR to a "
            f"folder with {-(-24 * self.rows // 10**9)} GB of free space"
        )


class _Scratch:
    """A temporary file without a name, open as long as somebody has it."""

    def __init__(self) -> None:
        file = tempfile.TemporaryFile(prefix="drrej-")  # noqa: SIM115 - closed by the finalizer
        self.fileno = file.fileno
        weakref.finalize(self, file.close)

    def read(self, start: int, stop: int) -> Floats:
        """The values from one place to another."""
        values = np.empty(stop - start)
        left, offset = values.data.cast("B"), 8 * start
        while left:
            count = os.preadv(self.fileno(), [left], offset)
            if not count:
                raise OSError("a temporary file has lost its end")
            left, offset = left[count:], offset + count
        return values

    def write(self, values: Floats) -> None:
        """Add values at the end."""
        left = np.ascontiguousarray(values).data.cast("B")
        while left:
            left = left[os.write(self.fileno(), left) :]


class SortedFile(StoredLosses):
    """Sorted values in a file, as far as `RankedLosses` asks for them; it has `size`, slices and `searchsorted`."""

    def __init__(self, file: _Scratch) -> None:
        self._file = file
        self._size = 0
        self._lasts = np.empty(0)
        """The last value of each full stretch."""

    @property
    def size(self) -> int:
        """Number of values."""
        return self._size

    def append(self, values: Floats) -> None:
        """Values that are not below those before them."""
        self._lasts = np.append(self._lasts, values[STRETCH - 1 - self.size % STRETCH :: STRETCH])
        self._file.write(values)
        self._size += values.size

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, np.ndarray):
            return np.array([self[int(position)] for position in key])
        if not isinstance(key, slice):
            position = range(self.size)[int(key)]
            return self._file.read(position, position + 1)[0]
        start, stop, step = key.indices(self.size)
        if step == 1:
            return self._file.read(start, max(start, stop))
        if (key.start, key.stop, step) == (STRETCH - 1, None, STRETCH):
            return self._lasts.copy()
        return self[np.arange(start, stop, step)]

    def run(self) -> _Run:
        """All of the values, to be merged with others."""
        return _Run(self._file, 0, self.size)

    def searchsorted(self, values: Any, side: Literal["left", "right"] = "left") -> NDArray[np.int64]:
        """Where the values would stand, as numpy tells it of an array."""
        wanted = np.asarray(values, np.float64)
        stretches = np.searchsorted(self._lasts, wanted, side=side)
        places = np.empty(wanted.shape, np.int64)
        for stretch in np.unique(stretches):
            start = int(stretch) * STRETCH
            here = stretches == stretch
            found = np.searchsorted(self._file.read(start, min(start + STRETCH, self.size)), wanted[here], side=side)
            places[here] = found + start
        return places


class _Runs:
    """Values in sorted runs, written one after the other."""

    def __init__(self) -> None:
        self._file = _Scratch()
        self._held = np.empty(_RUN)
        self._count = 0
        self._runs: list[_Run] = []
        self._written = 0

    def add(self, values: Floats) -> None:
        while values.size:
            taken = values[: self._held.size - self._count]
            self._held[self._count : self._count + taken.size] = taken
            self._count += taken.size
            values = values[taken.size :]
            if self._count == self._held.size:
                self._flush()

    def _flush(self) -> None:
        held = self._held[: self._count]
        held.sort()
        self._file.write(held)
        stop = self._written + held.size
        self._runs.append(_Run(self._file, self._written, stop))
        self._written, self._count = stop, 0

    def finish(self) -> list[_Run]:
        """All runs; nothing can be added any more."""
        if self._count:
            self._flush()
        self._held = np.empty(0)
        return self._runs


class _Run:
    """Some of the values of a file, which are sorted, read from the first to the last."""

    def __init__(self, file: _Scratch, start: int, stop: int) -> None:
        self._file, self._next, self._stop = file, start, stop
        self.values = np.empty(0)

    @property
    def more(self) -> bool:
        """Whether there are values beyond those that were read."""
        return self._next < self._stop

    def fill(self, count: int) -> None:
        """Read the next values if none is left."""
        if not self.values.size and self.more:
            end = min(self._next + count, self._stop)
            self.values = self._file.read(self._next, end)
            self._next = end

    def take(self, limit: float | None) -> Floats:
        """The values up to a limit, ties with it included."""
        count = self.values.size if limit is None else int(np.searchsorted(self.values, limit, side="right"))
        taken, self.values = self.values[:count], self.values[count:]
        return taken


def _merged(runs: list[_Run]) -> SortedFile:
    """The values of sorted runs in one file."""
    merged = SortedFile(_Scratch())
    for values in _in_order(runs, max(1, _MERGED // max(1, len(runs)))):
        merged.append(values)
    return merged


def _in_order(runs: list[_Run], count: int) -> Iterator[Floats]:
    """What is left of runs, merged: up to the smallest value behind which a run may have an equal or a larger one."""
    while True:
        for run in runs:
            run.fill(count)
        runs = [run for run in runs if run.values.size]
        if not runs:
            return
        limit = min((float(run.values[-1]) for run in runs if run.more), default=None)
        values = np.concatenate([run.take(limit) for run in runs])
        values.sort(kind="stable")  # sorted pieces: merged in linear time
        yield values
