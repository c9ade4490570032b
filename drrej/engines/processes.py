"""The engine of the command line: processes of this machine for large dumps, threads of this process for the rest.

Tasks are cut from the dump as for a cluster, and what a worker does with one is the same, see `tasks` and `worker`;
results are taken in order. Only a process that is drrej's own may be copied: others have threads of whoever knows what.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from drrej.data.dump import Dump
from drrej.engines import tasks, worker
from drrej.engines.forks import Worker, ready
from drrej.engines.memory import available_memory
from drrej.engines.protocol import BlockResult, Mapper, Pass, Progress, Work
from drrej.engines.threads import ThreadEngine
from drrej.engines.worker import Context, Keep, Task, Token
from drrej.records import dataclass

T = TypeVar("T")

LEAST_BYTES = 8 << 20
"""Logits from which on it pays to have other processes."""

_TASK_BYTES = 8 << 20
_TASK_ROWS = 1 << 18
"""Of a task: its results should fit in the room that `forks` has for them."""

_WINDOW = 4
"""Tasks per worker that may be done before the one whose turn it is."""


@dataclass(frozen=True)
class ProcessEngine(ThreadEngine):
    """Passes by `jobs` processes (0: one for every core) where that pays, else by threads."""

    least_bytes: int = LEAST_BYTES

    def map(self, dump: Dump, run: Pass, work: Work[T]) -> Generator[BlockResult[T]]:
        """What `work` makes of each block, in order; by workers made for this pass, which so know what it is about."""
        context = Context(replace(dump, row_groups=()), run, work, worker.versions())
        with contextlib.closing(_Team(self.workers, context)) as team:
            if self.pays(dump) and team.start():
                yield from team.map(dump)
            else:
                yield from super().map(dump, run, work)

    def pays(self, dump: Dump) -> bool:
        """Whether to have processes: not for objects, whose clients have threads, nor a table of labels to copy."""
        large = dump.rows * dump.classes * 4 >= self.least_bytes
        local = all(part.uri is None for part in dump.parts)
        return large and local and dump.elsewhere is None and self.workers > 1 and sys.platform == "linux"

    @contextlib.contextmanager
    def keeping(self, memory: int | None) -> Iterator[Mapper]:
        """Blocks are kept by the processes, each its share of the memory."""
        with super().keeping(memory) as threads, contextlib.closing(_Team(self.workers)) as team:
            yield _Keeping(self, threads, (available_memory() // 4 if memory is None else memory) // self.workers, team)


@dataclass(frozen=True)
class _Keeping:
    """Passes for which processes keep their blocks."""

    engine: ProcessEngine
    threads: Mapper
    memory: int
    team: _Team

    @property
    def progress(self) -> Progress:
        return self.engine.progress

    def map(self, dump: Dump, run: Pass, work: Work[T]) -> Generator[BlockResult[T]]:
        if not (self.engine.pays(dump) and self.team.start()):
            yield from self.threads.map(dump, run, work)
            return
        keep = Keep(Token("", dump.opened, repr((run.labelled, tuple(run.keep)))), self.memory)
        context = Context(replace(dump, row_groups=()), run, work, worker.versions(), keep)
        yield from self.team.map(dump, context)


class _Team:
    """Workers, made when they are first needed; `context` is what their tasks share, unless a pass brings its own."""

    def __init__(self, count: int, context: Context | None = None) -> None:
        self._count, self._context = count, context
        self._workers: list[Worker] = []
        self._places: dict[tuple[Token, Task], int] = {}  # who has kept the blocks of a task

    def start(self) -> bool:
        """Have workers; False if this process may have no more, or no more files or memory."""
        try:
            while len(self._workers) < self._count:
                self._workers.append(Worker(_Serving(self._context), self._workers))
        except OSError:
            self.close()
        return bool(self._workers)

    def map(self, dump: Dump, context: Context | None = None) -> Generator[BlockResult[Any]]:
        """The results of a pass, in order."""
        token = None if context is None or context.keep is None else context.keep.token
        cut = tasks.cut(dump, self._count, min(_TASK_BYTES, _TASK_ROWS * dump.classes * 4))
        round_ = _Round(self._workers, [(token, task) for task in cut], self._places)
        if context is not None:
            round_.tell(pickle.dumps(context, protocol=5))
        try:
            for turn in range(len(cut)):
                results, error = round_.answer(turn)
                yield from results
                if error is not None:
                    raise error
        except BaseException:  # also where nobody wants the rest
            self.close(kill=True)
            raise

    def close(self, kill: bool = False) -> None:
        """Wait for the workers, or end them at once."""
        while self._workers:
            self._workers.pop().end(kill)


Results = tuple[list[BlockResult[Any]], BaseException | None]


class _Round:
    """One pass: who does what, and what has come back."""

    def __init__(
        self, workers: Sequence[Worker], cut: Sequence[tuple[Any, Task]], places: dict[tuple[Any, Task], int]
    ) -> None:
        self._workers, self._cut, self._places = workers, cut, places
        self._waiting = {number: places.get(key) for number, key in enumerate(cut)}
        self._running: list[list[int]] = [[] for _ in workers]
        self._answers: dict[int, Results] = {}

    def tell(self, packed: bytes) -> None:
        """Send all workers what their tasks share."""
        for one in self._workers:
            one.give(packed)
        for one in self._workers:
            one.take()

    def answer(self, turn: int) -> Results:
        """What a task has made. The workers go on meanwhile, but not too far."""
        while True:
            self._give(turn + _WINDOW * len(self._workers))
            there = list(ready(self._workers, wait=turn not in self._answers))
            if not there:
                return self._answers.pop(turn)
            for one in there:
                place = self._workers.index(one)
                number = self._running[place].pop(0)
                self._answers[number] = one.take()
                if self._cut[number][0] is not None:
                    self._places[self._cut[number]] = place

    def _give(self, end: int) -> None:
        """Orders for all who are free, in turns: the first task before `end` that is nobody's, or that they know."""
        given = True
        while given:
            given = False
            for place, one in enumerate(self._workers):
                mine = (number for number, owner in self._waiting.items() if owner in (None, place))
                number = next(mine, end) if one.free else end
                if number < end:
                    del self._waiting[number]
                    self._running[place].append(number)
                    one.give(pickle.dumps(self._cut[number][1], protocol=5))
                    given = True


class _Serving:
    """A worker's side: it knows what all tasks of a pass share, or is told."""

    def __init__(self, context: Context | None) -> None:
        self._context = context

    def __call__(self, order: Context | Task) -> Results | None:
        if isinstance(order, Context):
            self._context = order
            return None
        assert self._context is not None
        return worker.results_of(self._context, order)
