"""A pass cut into tasks for workers elsewhere: stretches of blocks, addressed by file, row group and block numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator
from itertools import islice, pairwise
from typing import TypeVar

from drrej.data.dump import Block, Dump, RowGroup
from drrej.data.identity import check_unchanged
from drrej.engines.protocol import Pass
from drrej.records import dataclass

T = TypeVar("T")

TASK_BYTES = 64 << 20
"""Logits of a task: long enough that a millisecond per task does not count."""

_TASKS_PER_THREAD = 4
"""Into how many tasks a short pass is cut at least, so that threads end at about the same time."""


@dataclass(frozen=True)
class Stretch:
    """Consecutive blocks of a row group; `count` None: to its end."""

    group: RowGroup
    first: int = 0
    count: int | None = None

    def blocks(self, dump: Dump, run: Pass) -> Iterator[Block]:
        """Read them. A row group is decoded from its start, so blocks before the first are read and dropped."""
        stop = None if self.count is None else self.first + self.count
        with contextlib.closing(_generator(dump.read(self.group, run.labelled, run.keep))) as blocks:
            yield from islice(blocks, self.first, stop)
        if stop is not None:  # who reads to the end looks for itself
            check_unchanged(dump.parts[self.group.part])


def _generator(blocks: Iterable[T]) -> Generator[T]:
    yield from blocks


def cut(dump: Dump, threads: int, task_bytes: int) -> list[tuple[Stretch, ...]]:
    """The tasks of a pass: several small row groups together, large ones in several stretches if hands are free."""
    block_rows = dump.block_rows
    all_blocks = sum(-(-group.rows // block_rows) for group in dump.row_groups)
    block_bytes = block_rows * dump.classes * 4
    most = max(1, min(task_bytes // block_bytes, all_blocks // (threads * _TASKS_PER_THREAD)))
    tasks: list[tuple[Stretch, ...]] = []
    waiting: list[Stretch] = []
    blocks_waiting = 0
    split = len(dump.row_groups) < threads * _TASKS_PER_THREAD
    for group in dump.row_groups:
        for stretch, blocks in _stretches(group, -(-group.rows // block_rows), threads if split else 1):
            if waiting and blocks_waiting + blocks > most:
                tasks.append(tuple(waiting))
                waiting, blocks_waiting = [], 0
            waiting.append(stretch)
            blocks_waiting += blocks
    return [*tasks, tuple(waiting)] if waiting else tasks


def _stretches(group: RowGroup, blocks: int, pieces: int) -> Iterator[tuple[Stretch, int]]:
    """A row group in at most so many pieces: what a piece has to skip is decoded all the same, so not more of them."""
    pieces = max(1, min(pieces, blocks))
    bounds = [round(blocks * i / pieces) for i in range(pieces + 1)]
    for first, last in pairwise(bounds):
        yield Stretch(group, first, None if last == blocks else last - first), last - first
