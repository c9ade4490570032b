"""The worker's side of the second engine: what a task is, and what a worker does with it.

A task is a stretch of blocks, addressed by file, row group and block numbers: a worker opens the file itself, runs the
pass's function and sends back the same small results that a thread would.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import platform
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from drrej._version import __version__
from drrej.data.dump import Block, Dump, RowGroup
from drrej.data.problems import Problem, Problems
from drrej.data.sources import Part
from drrej.engines.threads import Done, Pass
from drrej.errors import ClusterError, DrrejError
from drrej.outputs.parts import PartCounts, PartSink

T = TypeVar("T")

TASK_BYTES = 64 << 20
"""Logits of a task: long enough that Dask's millisecond per task does not count."""

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


class Token(NamedTuple):
    """Whose blocks they are: a client's, of one opening of a dump, with these columns."""

    session: str
    opened: str
    columns: str


@dataclass(frozen=True)
class Context:
    """What all tasks of a pass share."""

    dump: Dump
    run: Pass
    work: Callable[[Block], Any]
    token: Token
    versions: dict[str, str]


@dataclass(frozen=True)
class Answer:
    """What a task sends back: the results, or the error that a thread would have raised after them, and from where."""

    results: list[Any]
    error: BaseException | None
    worker: str


def run_task(context: Context, stretches: Sequence[Stretch]) -> Answer:
    """On a worker: the results of some stretches."""
    prepare_worker()
    check_versions(context.versions, versions(), _worker_address())
    results: list[Any] = []
    error: BaseException | None = None
    try:
        for stretch in stretches:
            for block in _keeper.blocks(context, stretch):
                results.append(context.work(block))
    except DrrejError as wrong:  # in its place: results before it count
        error = _seen_from_here(wrong, context.dump.parts[stretch.group.part])
    return Answer(results, error, _worker_address())


def run_part(context: Context, task: tuple[int, tuple[RowGroup, ...]]) -> Answer:
    """On a worker: the mask of one input file, unless an earlier run has written it."""
    prepare_worker()
    check_versions(context.versions, versions(), _worker_address())
    number, groups = task
    sink, part = context.run.sink, context.dump.parts[number]
    assert sink is not None
    try:
        digest = sink.digest(part)
        counts = sink.earlier(part, digest)
        if counts is not None:
            return Answer([_done(counts, part.name, [])], None, _worker_address())
        return Answer([_write_part(context, sink, part, groups, digest)], None, _worker_address())
    except DrrejError as wrong:
        return Answer([], _seen_from_here(wrong, part), _worker_address())


def _write_part(
    context: Context, sink: PartSink, part: Part, groups: Sequence[RowGroup], digest: str
) -> Done[PartCounts]:
    counts = PartCounts()
    problems = Problems()
    with sink.open(part) as mask:
        for group in groups:
            for block in context.dump.read(group, context.run.labelled, context.run.keep):
                done = context.work(block)
                problems.add(done.problems)
                mask.write(done.result)
                counts = PartCounts(
                    counts.rows + done.rows,
                    counts.rejected + done.result.column("rejected").true_count,
                    counts.bad_rows + done.bad_rows,
                    counts.zeros + done.zeros,
                    counts.all_probabilities and done.all_probabilities,
                )
        if context.run.bad_rows_allowed or not problems:
            mask.finish(counts, digest)
    return _done(counts, part.name, problems.all())


def _done(counts: PartCounts, name: str, problems: list[Problem]) -> Done[PartCounts]:
    return Done(
        result=counts,
        rows=counts.rows,
        problems=problems,
        bad_rows=counts.bad_rows,
        zeros=counts.zeros,
        all_probabilities=counts.all_probabilities,
        joined=None,
        left_out=0,
        part=name,
        row_numbers=None,
    )


def _seen_from_here(error: DrrejError, part: Part) -> DrrejError:
    """The error, or the reason behind it: storage that this worker does not have."""
    if part.uri is None and not os.path.exists(part.path):
        return ClusterError(
            f"{part.name}: the worker {_worker_address()} has no such file; dumps must lie on storage that all workers "
            "share"
        )
    return error


class _Keeper:
    """Blocks that a worker keeps between the passes of one command, as far as they fit; the others are read again."""

    def __init__(self) -> None:
        self.kept: dict[tuple[Token, Stretch], list[Block]] = {}
        self.bytes = 0
        self.lock = threading.Lock()

    def blocks(self, context: Context, stretch: Stretch) -> Iterator[Block]:
        """The blocks of a stretch, kept ones if there are."""
        key = (context.token, stretch)
        found = self.kept.get(key)
        if found is not None:
            yield from found
            return
        self.forget(context.token.session, but=context.token.opened)
        budget = context.run.memory if context.run.memory is not None else worker_memory() // 4
        keep, size = [], 0
        for block in stretch.blocks(context.dump, context.run):
            yield block
            size += block.columns.nbytes
            if context.run.read_again and not block.problems and self.bytes + size <= budget:
                keep.append(block)
            else:
                keep = []
                size = budget + 1
        if keep:
            with self.lock:
                if key not in self.kept:
                    self.kept[key] = keep
                    self.bytes += size

    def forget(self, session: str, but: str | None = None) -> None:
        """Drop what one client made the worker keep, but for one opening of a dump."""
        with self.lock:
            for key in [key for key in self.kept if key[0].session == session and key[0].opened != but]:
                self.bytes -= sum(block.columns.nbytes for block in self.kept.pop(key))


_keeper = _Keeper()


def forget(session: str) -> None:
    """On a worker: drop what a client made it keep."""
    _keeper.forget(session)


def unpack(packed: bytes) -> Any:
    """On a worker: what all tasks share. A task of its own, so that Dask can make it again anywhere."""
    return pickle.loads(packed)  # noqa: S301 - from our own client


def _worker_address() -> str:
    from distributed import get_worker

    return str(get_worker().address)


def worker_memory() -> int:
    """Bytes that this worker may use."""
    from distributed import get_worker

    from drrej.engines.memory import available_memory

    limit = get_worker().memory_manager.memory_limit
    return int(limit) if limit else available_memory()


_prepared = threading.Event()


def prepare_worker() -> None:
    """Memory settings as in a drrej process of its own."""
    if not _prepared.is_set():
        from drrej.engines.memory import keep_freed_memory, prefer_jemalloc

        keep_freed_memory()
        prefer_jemalloc()
        _prepared.set()


def versions() -> dict[str, str]:
    """What has to agree between client and workers for the same bits."""
    return {
        "drrej": __version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
    }


def check_versions(ours: dict[str, str], theirs: dict[str, str], worker: str) -> None:
    """Raise unless a worker runs what the client runs."""
    other = next((name for name in ours if theirs.get(name) != ours[name]), None)
    if other is not None:
        raise ClusterError(
            f"{worker}: the worker has {other} {theirs.get(other, 'of an unknown version')} but this client has "
            f"{ours[other]}; results would differ: install the same versions on both"
        )
