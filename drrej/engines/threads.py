"""The engine of one machine: threads of this process."""

from __future__ import annotations

import functools
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from typing import TypeVar

from drrej.data.dump import Block, Dump, RowGroup
from drrej.engines.ahead import read_ahead
from drrej.engines.cache import SMALL, BlockCache
from drrej.engines.memory import available_memory
from drrej.engines.pool import in_order
from drrej.engines.protocol import BlockResult, Mapper, Pass, Progress, Silent, Work
from drrej.records import dataclass

T = TypeVar("T")


@dataclass(frozen=True)
class ThreadEngine:
    """Passes by `jobs` threads (0: one for every core that this process may use)."""

    jobs: int = 0
    progress: Progress = field(default_factory=Silent)

    @property
    def workers(self) -> int:
        """The number of threads."""
        return self.jobs or len(os.sched_getaffinity(0))

    def map(self, dump: Dump, run: Pass, work: Work[T]) -> Generator[BlockResult[T]]:
        """What `work` makes of each block, in order."""
        streams = (functools.partial(dump.read, group, run.labelled, run.keep) for group in dump.row_groups)
        yield from in_order(read_ahead(dump, streams, _mean_rows(dump)), work, self.workers)

    def keeping(self, memory: int | None) -> AbstractContextManager[Mapper]:
        """Blocks are kept in this process as far as they fit."""
        return nullcontext(_Keeping(self, available_memory() // 4 if memory is None else memory))


def _mean_rows(dump: Dump) -> int:
    return dump.rows // max(1, len(dump.row_groups))


@dataclass(frozen=True)
class _Keeping:
    """Passes that read what is not kept from the passes before."""

    engine: ThreadEngine
    memory: int
    cache: BlockCache = field(default_factory=BlockCache)

    @property
    def progress(self) -> Progress:
        return self.engine.progress

    def map(self, dump: Dump, run: Pass, work: Work[T]) -> Generator[BlockResult[T]]:
        def read(groups: Sequence[RowGroup]) -> Iterator[Block]:
            for group in groups:
                yield from dump.read(group, run.labelled, run.keep)

        def stream(groups: tuple[RowGroup, ...]) -> Iterator[Block]:
            key = (dump.opened, run.labelled, tuple(run.keep), groups)
            return self.cache.blocks(key, functools.partial(read, groups), run.keep, self.memory)

        streams = (functools.partial(stream, groups) for groups in _together(dump))
        yield from in_order(read_ahead(dump, streams, _mean_rows(dump)), work, self.engine.workers)


def _together(dump: Dump) -> Iterator[tuple[RowGroup, ...]]:
    """Row groups, small neighbours of one part together."""
    most = SMALL // dump.classes
    waiting: list[RowGroup] = []
    rows = 0
    for group in dump.row_groups:
        if waiting and (rows + group.rows > most or group.part != waiting[0].part):
            yield tuple(waiting)
            waiting, rows = [], 0
        waiting.append(group)
        rows += group.rows
    yield tuple(waiting)
