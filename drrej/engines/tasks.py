"""A pass cut into tasks for workers elsewhere: stretches of blocks, addressed by file, row group and block numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from drrej.data.dump import Block, Dump, RowGroup
from drrej.data.files import check_unchanged
from drrej.engines.protocol import Pass
from drrej.records import dataclass

TASK_BYTES = 64 << 20
"""Logits of a task: long enough that a millisecond per task does not count."""

_TASKS_PER_THREAD = 4
"""Into how many tasks a short pass is cut at least, so that threads end at about the same time."""

_BUNDLES_PER_THREAD = 2
"""Into how many bundles a worker's own tasks are cut, so that an idle one may take some over."""

_MOST_BUNDLED = 64
"""Tasks per thread whose results may have to wait for those before them."""


@dataclass(frozen=True)
class Stretch:
    """Consecutive blocks of a row group; `count` None: to its end."""

    group: RowGroup
    first: int = 0
    count: int | None = None

    def blocks(self, dump: Dump, run: Pass) -> Iterator[Block]:
        """Read them. Columns that cannot be read by pages are decoded from the start of the row group."""
        start = self.first * dump.block_rows
        stop = self.group.rows if self.count is None else start + self.count * dump.block_rows
        yield from dump.read(self.group.between(start, stop), run.labelled, run.keep)
        if stop < self.group.rows:  # who reads to the end looks for itself
            check_unchanged(dump.parts[self.group.part])


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
    """A row group in at most so many pieces: what a piece has to skip may be decoded all the same, so not more."""
    pieces = max(1, min(pieces, blocks))
    bounds = [round(blocks * i / pieces) for i in range(pieces + 1)]
    for first, last in pairwise(bounds):
        yield Stretch(group, first, None if last == blocks else last - first), last - first


@dataclass(frozen=True)
class Bundle:
    """Numbers of tasks that go to a worker in one message, and the worker to prefer for them."""

    numbers: tuple[int, ...]
    place: str | None


def bundles(places: Sequence[str | None], threads: int) -> Iterator[Bundle]:
    """Tasks, given by who has kept their rows, in few messages: a message costs as much as a task on kept rows.

    Those that nobody has kept go one by one, since nobody knows yet who will be free.

    >>> [bundle.numbers for bundle in bundles(["a", "b", "a", "b", None, "a", "a"], threads=2)]
    [(0, 2), (1,), (3,), (4,), (5, 6)]
    """
    window = threads * _MOST_BUNDLED
    for start in range(0, len(places), window):
        numbers = range(start, min(start + window, len(places)))
        own: dict[str, list[int]] = {}
        for number in numbers:
            place = places[number]
            if place is not None:
                own.setdefault(place, []).append(number)
        found = [Bundle((number,), None) for number in numbers if places[number] is None]
        pieces = max(1, round(_BUNDLES_PER_THREAD * threads / max(1, len(own))))
        for place, kept in own.items():
            bounds = sorted({round(len(kept) * i / pieces) for i in range(pieces + 1)})
            found += [Bundle(tuple(kept[first:last]), place) for first, last in pairwise(bounds)]
        yield from sorted(found, key=lambda bundle: bundle.numbers)
