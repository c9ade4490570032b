"""Losses of more rows than memory should hold: sorted in temporary files and read in stretches.

Every figure of a curve comes from its losses in order, a stretch of them at a time (see `core.curves`), so they may as
well lie in a file: sorted runs are written as the losses come, and merged. What stays in memory is one loss in
`STRETCH`. The files have no name, so nothing is left of them however the process ends.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from drrej.core.curves import STRETCH, LossStore, RankedLosses
from drrej.core.types import Floats, StoredLosses
from drrej.engines.memory import available_memory
from drrej.errors import OutputError

MOST_IN_MEMORY = 1 << 26
"""Rows whose losses are sorted in memory, where there is enough of it; each takes up to `_ROW_BYTES` there."""

_ROW_BYTES = 32
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
