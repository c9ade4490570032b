"""The engine of one machine: threads of this process."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field, replace
from typing import Any, TypeVar

import pyarrow as pa

from drrej.data.dump import Block, Dump, RowGroup
from drrej.data.files import DumpFile
from drrej.data.problems import Notes, Problems
from drrej.data.uris import is_uri
from drrej.engines.ahead import read_ahead
from drrej.engines.cache import SMALL, BlockCache
from drrej.engines.memory import available_memory
from drrej.engines.pool import in_order
from drrej.engines.protocol import Done, Mapper, Parts, Pass, Progress, Silent, Work
from drrej.outputs.datasets import LocalDataset
from drrej.outputs.masks import mask_name
from drrej.outputs.objects import ObjectStoreDataset
from drrej.outputs.parts import PartSink, PendingMask
from drrej.outputs.protocol import Dataset
from drrej.outputs.records import Finished, PartCounts
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

    def map(self, dump: Dump, run: Pass, work: Work[T]) -> Generator[Done[T]]:
        """What `work` makes of each block, in order."""
        streams = (functools.partial(dump.read, group, run.labelled, run.keep) for group in dump.row_groups)
        yield from in_order(read_ahead(dump, streams, _mean_rows(dump)), work, self.workers)

    def keeping(self, memory: int | None) -> AbstractContextManager[Mapper]:
        """Blocks are kept in this process as far as they fit."""
        return nullcontext(_Keeping(self, available_memory() // 4 if memory is None else memory))

    def dataset(self, target: str, force: bool, update: bool = False) -> Dataset:
        """A directory; a rerun after an interruption uses the files that are finished."""
        return ObjectStoreDataset(target, force, update) if is_uri(target) else LocalDataset(target, force, update)

    def write(self, dump: Dump, run: Pass, work: Work[pa.RecordBatch], parts: Parts) -> Generator[Done[Finished]]:
        """Write the masks of all parts, one after the other, while the threads go on."""
        dataset = parts.dataset
        root = dataset.folder([mask_name(part) for part in dump.parts])
        sink = PartSink(root, dataset.name, parts.schema, parts.recipe, dataset.staged, dataset.resumes)
        there = {number: found for number, found in _there(dump, sink, parts) if found is not None}
        for found in there.values():
            yield Done(found, found.record.counts.notes, (), passed=found.record.counts.problems)
        left = [number for number in range(len(dump.parts)) if number not in there]
        groups = tuple(group for group in dump.row_groups if group.part not in there)
        spoilt = False
        with contextlib.closing(_Writer(sink, [dump.parts[number] for number in left])) as writer:
            for done in self.map(replace(dump, row_groups=groups), run, functools.partial(_with_part, work)):
                assert done.result is not None
                part, batch = done.result
                spoilt = spoilt or bool(done.problems)
                if not spoilt:
                    for finished in writer.until(part):
                        yield Done(finished, Notes(), ())
                    writer.write(batch, done)
                yield Done(None, done.notes, done.problems, done.keys, done.passed)
            if not spoilt:
                for finished in writer.until(None):
                    yield Done(finished, Notes(), ())


def _with_part(work: Work[pa.RecordBatch], block: Block) -> Done[tuple[DumpFile, pa.RecordBatch | None]]:
    done = work(block)
    return replace(done, result=(block.part, done.result))


def _mean_rows(dump: Dump) -> int:
    return dump.rows // max(1, len(dump.row_groups))


def _there(dump: Dump, sink: PartSink, parts: Parts) -> Iterator[tuple[int, Finished | None]]:
    """For each part its mask, if the dataset or an interrupted run has it already."""
    present = parts.dataset.present()
    for number, part in enumerate(dump.parts):
        yield number, sink.present(part, present) or sink.earlier(part)


class _Writer:
    """The masks of some parts, one after the other; a part without rows gets a mask without rows."""

    def __init__(self, sink: PartSink, parts: Sequence[DumpFile]) -> None:
        self._sink = sink
        self._waiting = list(reversed(parts))
        self._part: DumpFile | None = None
        self._mask: PendingMask | None = None
        self._counts, self._problems = PartCounts(), Problems()
        self._since = time.monotonic()

    def until(self, part: DumpFile | None) -> Iterator[Finished]:
        """Finish masks until it is the turn of a part; None: all of them."""
        while self._part != part or (part is None and self._waiting):
            if self._mask is not None:
                now = time.monotonic()
                counts = replace(self._counts, problems=tuple(self._problems.all()))
                yield self._mask.finish(counts, now - self._since)
                self._since = now
                self.close()
            if not self._waiting:
                self._part = None
                return
            self._part = self._waiting.pop()
            self._mask = PendingMask(self._sink, self._part)
            self._counts, self._problems = PartCounts(), Problems()

    def write(self, batch: pa.RecordBatch | None, done: Done[Any]) -> None:
        """Add rows of the part."""
        assert self._mask is not None
        if batch is not None:
            self._mask.write(batch)
        self._counts += PartCounts.of(batch, done.notes)
        self._problems.add(done.passed)

    def close(self) -> None:
        """Throw away what is not finished."""
        if self._mask is not None:
            self._mask.discard()
            self._mask = None


@dataclass(frozen=True)
class _Keeping:
    """Passes that read what is not kept from the passes before."""

    engine: ThreadEngine
    memory: int
    cache: BlockCache = field(default_factory=BlockCache)

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
