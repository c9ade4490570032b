"""Map a function over the blocks of a dump, on all cores, and hand the results over in order.

Decoding a row group is sequential, so a row group has one reader at a time; a worker takes the next block of the
earliest row group whose reader is free, and computes on it while others read on. That keeps every core busy with many
small row groups as well as with a single huge one. The work in flight is bounded, so memory does not grow.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from drrej.data.dump import Block, Dump, RowGroup
from drrej.data.problems import Problem, Problems
from drrej.errors import DumpError
from drrej.outputs.parts import PartSink

T = TypeVar("T")

_AHEAD = 8
"""Blocks per worker that may be under way or wait for their turn: enough to go on while a row group is written."""


class Progress(Protocol):
    """Told how many rows are done; see `cli.progress`."""

    def start(self, what: str, rows: int) -> None:
        """A pass over so many rows begins."""

    def advance(self, rows: int) -> None:
        """So many rows more are done."""

    def stop(self) -> None:
        """The pass is over."""


class Silent:
    """No progress shown."""

    def start(self, what: str, rows: int) -> None:
        """Nothing."""

    def advance(self, rows: int) -> None:
        """Nothing."""

    def stop(self) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Engine:
    """How passes are run: the number of worker threads and who is told of the progress."""

    jobs: int = 0
    progress: Progress = field(default_factory=Silent)

    @property
    def workers(self) -> int:
        """Number of threads: `jobs`, or every core that this process may use."""
        return self.jobs or len(os.sched_getaffinity(0))

    @property
    def in_process(self) -> bool:
        """Whether blocks and results stay in this process, so that handing over rows costs nothing."""
        return True

    def results(self, dump: Dump, run: Pass, work: Callable[[Block], T]) -> Generator[T]:
        """What `work` makes of each block, in order. Closing the generator ends the work."""

        def read(group: RowGroup) -> Iterator[Block]:
            return dump.read(group, run.labelled, run.keep)

        yield from _ordered(dump.row_groups, read, work, self.workers)


@dataclass(frozen=True)
class Pass:
    """What one pass over a dump reads, and what it is called on the progress bar."""

    what: str
    labelled: bool
    keep: Sequence[str] = ()
    bad_rows_allowed: bool = False
    read_again: bool = False
    """Whether more passes over the same rows follow: a worker elsewhere may keep its blocks."""
    memory: int | None = None
    """Bytes that each such worker may keep (default: a quarter of its memory)."""
    sink: PartSink | None = None
    """Where workers elsewhere write the batches that are the results; `PartCounts` come back in their place."""


@dataclass
class Notes:
    """What passes over a dump noticed besides their results."""

    zeros: int = 0
    bad_rows: int = 0
    left_out: int = 0

    def merge(self, other: Notes) -> None:
        """Add what another pass over the same rows noticed: the same things, if it looked for them."""
        self.zeros = max(self.zeros, other.zeros)
        self.bad_rows = max(self.bad_rows, other.bad_rows)
        self.left_out = max(self.left_out, other.left_out)


@dataclass(frozen=True)
class Done(Generic[T]):
    """The result of a block and what the pass has to know besides."""

    result: T | None
    rows: int
    problems: list[Problem]
    bad_rows: int
    zeros: int
    all_probabilities: bool
    joined: NDArray[np.int64] | None
    left_out: int
    part: str
    row_numbers: NDArray[np.int64] | None  # of joined rows


@dataclass(frozen=True)
class _Work(Generic[T]):
    """A function of blocks with what the pass has to know of each block besides."""

    function: Callable[[Block], T]

    def __call__(self, block: Block) -> Done[T]:
        result = self.function(block) if block.rows else None  # also beside bad rows: it may find more of them
        return Done(
            result,
            block.rows,
            block.problems,
            int(np.count_nonzero(block.bad)),
            block.zeros,
            block.all_probabilities,
            block.joined,
            block.left_out,
            block.part.name,
            None if block.joined is None else block.row_numbers(),
        )


def map_blocks(
    dump: Dump, function: Callable[[Block], T], run: Pass, engine: Engine, notes: Notes | None = None
) -> Iterator[T]:
    """The results of `function` on every block, in order; bad rows raise at the end, counted over the whole dump."""
    counts = Notes()
    problems = Problems()
    suspicious, any_rows = True, False
    seen = _Seen(dump)

    engine.progress.start(run.what, dump.rows)
    try:
        with closing(engine.results(dump, run, _Work(function))) as results:
            for done in results:
                engine.progress.advance(done.rows + done.left_out)
                counts.zeros += done.zeros
                counts.bad_rows += done.bad_rows
                counts.left_out += done.left_out
                suspicious = suspicious and (done.all_probabilities or not done.rows)
                any_rows = any_rows or done.rows > 0
                if not run.bad_rows_allowed:
                    problems.add(done.problems)
                    problems.add(seen.again(done))
                if done.result is not None and not problems:
                    yield done.result
    finally:
        engine.progress.stop()
    if notes is not None:
        notes.merge(counts)
    if suspicious and any_rows and dump.input == "logits" and not dump.binary:
        raise DumpError(
            f"{dump.parts[0].name}: column '{dump.columns.pattern}': every row lies in [0, 1] and sums to 1, so these "
            "are probabilities, not logits; add `input=probs`"
        )
    problems.raise_first()


class _Seen:
    """Keys of a label join that the dump has used: using one twice is an error."""

    def __init__(self, dump: Dump) -> None:
        self.join = dump.join
        self.used = np.zeros(dump.join.keys.size, bool) if dump.join is not None else None

    def again(self, block: Done[T]) -> list[Problem]:
        """The rows of a block whose key occurred before."""
        if block.joined is None or block.row_numbers is None or self.used is None or self.join is None:
            return []
        rows = np.flatnonzero(block.joined >= 0)
        positions = block.joined[rows]
        first = np.zeros(positions.size, bool)
        first[np.unique(positions, return_index=True)[1]] = True
        repeated = rows[self.used[positions] | ~first]
        self.used[positions] = True
        if not repeated.size:
            return []
        key = f"key {self.join.keys[block.joined[repeated[0]]]}"
        place = (block.part, int(block.row_numbers[repeated[0]]), int(repeated.size))
        return [Problem("a key that occurred before", self.join.on, "a row must have its own key", *place, key)]


class _Reader:
    """The blocks of one row group: read by one worker at a time, handed out with their numbers."""

    def __init__(self, blocks: Iterator[Block]) -> None:
        self.blocks = blocks
        self.busy = False
        self.started = 0
        self.consumed = 0
        self.finished: dict[int, object] = {}
        self.exhausted = False


def _ordered(
    groups: Sequence[RowGroup],
    read: Callable[[RowGroup], Iterator[Block]],
    work: Callable[[Block], T],
    workers: int,
) -> Generator[T]:
    """Results in the order of row groups and blocks. A worker's exception is raised in its block's place."""
    if workers == 1:
        for group in groups:
            for block in read(group):
                yield work(block)
        return
    pool = _Pool(groups, read, work, workers)
    threads = [threading.Thread(target=pool.run, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        yield from pool.results()
    finally:
        pool.stop()
        for thread in threads:
            thread.join()


class _Pool(Generic[T]):
    def __init__(
        self,
        groups: Sequence[RowGroup],
        read: Callable[[RowGroup], Iterator[Block]],
        work: Callable[[Block], T],
        workers: int,
    ) -> None:
        self.waiting = iter(groups)
        self.read = read
        self.work = work
        self.workers = workers
        self.readers: list[_Reader] = []  # open row groups, earliest first
        self.in_flight = 0
        self.none_left = False
        self.stopped = False
        self.changed = threading.Condition()

    def run(self) -> None:
        """A worker: take a reader, read one block, give the reader back, compute."""
        while (reader := self._take()) is not None:
            number = reader.started
            outcome: object
            try:
                block = next(reader.blocks, None)
            except BaseException as error:
                self._finish(reader, number, error)  # before the reader counts as exhausted, or it would be lost
                self._give_back(reader, exhausted=True)
                continue
            self._give_back(reader, exhausted=block is None)
            if block is None:
                continue
            try:
                outcome = (self.work(block),)
            except BaseException as error:
                outcome = error
            self._finish(reader, number, outcome)

    def _take(self) -> _Reader | None:
        with self.changed:
            while not self.stopped:
                room = self.in_flight < _AHEAD * self.workers
                for position, reader in enumerate(self.readers):
                    # The block that everyone waits for may always be read, or a full house would never empty.
                    awaited = position == 0 and reader.started == reader.consumed
                    if not reader.busy and not reader.exhausted and (room or awaited):
                        reader.busy = True
                        self.in_flight += 1
                        return reader
                if room and len(self.readers) <= self.workers and not self.none_left:
                    group = next(self.waiting, None)
                    if group is None:
                        self.none_left = True
                        self.changed.notify_all()
                        continue
                    reader = _Reader(self.read(group))
                    reader.busy = True
                    self.in_flight += 1
                    self.readers.append(reader)
                    return reader
                if self.none_left and all(reader.exhausted for reader in self.readers):
                    return None
                self.changed.wait()
        return None

    def _give_back(self, reader: _Reader, exhausted: bool) -> None:
        with self.changed:
            reader.busy = False
            reader.exhausted = exhausted
            if exhausted:
                self.in_flight -= 1
            else:
                reader.started += 1
            self.changed.notify_all()

    def _finish(self, reader: _Reader, number: int, outcome: object) -> None:
        with self.changed:
            reader.finished[number] = outcome
            self.changed.notify_all()

    def results(self) -> Iterator[T]:
        """Wait for block after block."""
        while (outcome := self._next_result()) is not None:
            if isinstance(outcome, BaseException):
                raise outcome
            assert isinstance(outcome, tuple)
            yield outcome[0]

    def _next_result(self) -> object | None:
        with self.changed:
            while True:
                if self.readers:
                    first = self.readers[0]
                    if first.consumed in first.finished:
                        outcome = first.finished.pop(first.consumed)
                        first.consumed += 1
                        self.in_flight -= 1
                        self.changed.notify_all()
                        return outcome
                    if first.exhausted and first.consumed == first.started:
                        self.readers.pop(0)
                        self.changed.notify_all()
                        continue
                elif self.none_left:
                    return None
                self.changed.wait()

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify_all()
