"""The engine of one machine: threads of this process."""

from __future__ import annotations

import functools
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa

from drrej.data.dump import Block, Dump, RowGroup
from drrej.data.part import Part
from drrej.data.uris import is_uri
from drrej.engines.cache import SMALL, BlockCache
from drrej.engines.memory import available_memory
from drrej.engines.pool import in_order
from drrej.engines.protocol import Done, Mapper, Parts, Pass, Progress, Silent, Work
from drrej.outputs.datasets import LocalDataset
from drrej.outputs.masks import MaskPerPart, mask_name
from drrej.outputs.objects import ObjectStoreDataset
from drrej.outputs.parts import PartCounts
from drrej.outputs.protocol import Dataset

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

    def map(self, dump: Dump, run: Pass, work: Work[T]) -> Generator[Done[T]]:
        """What `work` makes of each block, in order."""
        streams = (functools.partial(dump.read, group, run.labelled, run.keep) for group in dump.row_groups)
        yield from in_order(streams, work, self.workers)

    def keeping(self, memory: int | None) -> AbstractContextManager[Mapper]:
        """Blocks are kept in this process as far as they fit."""
        return nullcontext(_Keeping(self, available_memory() // 4 if memory is None else memory))

    def dataset(self, target: str, force: bool) -> Dataset:
        """A directory that this process writes."""
        return ObjectStoreDataset(target, force) if is_uri(target) else LocalDataset(target, force)

    def write(self, dump: Dump, run: Pass, work: Work[pa.RecordBatch], parts: Parts) -> Generator[Done[PartCounts]]:
        """Write the masks of all parts, one after the other, while the threads go on."""

        def with_part(block: Block) -> Done[tuple[Part, pa.RecordBatch | None]]:
            done = work(block)
            return replace(done, result=(block.part, done.result))

        folder = parts.dataset.folder([mask_name(part) for part in dump.parts])
        spoilt = False
        with MaskPerPart(folder, parts.dataset.name, dump.parts, parts.schema) as masks:
            for done in self.map(dump, run, with_part):
                assert done.result is not None
                part, batch = done.result
                spoilt = spoilt or (bool(done.problems) and not run.bad_rows_allowed)
                if batch is not None and not spoilt:
                    masks.write(part, batch)
                yield Done(PartCounts.of(batch, done.notes), done.notes, done.problems, done.keys)


@dataclass(frozen=True)
class _Keeping:
    """Passes that read what is not kept from the passes before."""

    engine: ThreadEngine
    memory: int
    cache: BlockCache = field(default_factory=BlockCache)

    @property
    def workers(self) -> int:
        return self.engine.workers

    @property
    def progress(self) -> Progress:
        return self.engine.progress

    def map(self, dump: Dump, run: Pass, work: Work[T]) -> Generator[Done[T]]:
        def read(groups: Sequence[RowGroup]) -> Iterator[Block]:
            for group in groups:
                yield from dump.read(group, run.labelled, run.keep)

        def stream(groups: tuple[RowGroup, ...]) -> Iterator[Block]:
            key = (dump.opened, run.labelled, tuple(run.keep), groups)
            return self.cache.blocks(key, functools.partial(read, groups), run.keep, self.memory)

        streams = (functools.partial(stream, groups) for groups in _together(dump))
        yield from in_order(streams, work, self.engine.workers)


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
