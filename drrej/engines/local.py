"""The engine of this machine: threads, or copies of this process where classes or cores are many.

A pass is cut into tasks, stretches of rows whose results are taken in order, whoever is done first.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import pickle
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice, pairwise
from queue import Queue
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from drrej.data.dump import Block, Dump, RowGroup
from drrej.data.files import check_unchanged
from drrej.engines import Progress
from drrej.engines.protocol import BlockResult, Pass, Work
from drrej.errors import ClusterError, DrrejError

T = TypeVar("T")

Task = tuple[RowGroup, ...]
"""Row groups, or stretches of them, that are read one after the other."""

TaskResults = tuple[list[T], DrrejError | None]
"""One result per block, and the error that comes after them."""

TASKS_PER_HAND = 4
"""Into how many tasks a short pass is cut at least, so that all hands end at about the same time."""

TASK_BYTES = 8 << 20
"""Logits of a task."""

PROCESS_BYTES = 96 << 20
"""Logits from which on other processes pay: with fewer they save 0.1 s at most and take a fifth more processor time."""

PROCESS_CLASSES = 32
"""Classes from which on two cores are better used by processes than by a thread that scores and one that writes.

Where nothing is written on the way, processes are better whatever the number of classes: two evaluate six million rows
of ten classes in 1.2 s, one thread in 1.5 s. Threads that score wait for each other when classes are few, or a column
each: two of them took as long as one to calibrate on a million rows of ten classes, with a fifth more processor time.
"""

OBJECT_BYTES = 128 << 20
"""Logits of row groups in object storage that are read at a time."""

_OBJECTS = 16
_WAITING_RESULTS = 8
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def cut(dump: Dump, hands: int, task_bytes: int) -> Iterator[Task]:
    """The tasks of a pass: small row groups together, large ones in stretches where there are fewer than hands.

    More stretches would not pay: what one of them skips may have to be decoded all the same. A row counts at least 32
    bytes, since that is what its results take.
    """
    block_rows = dump.block_rows
    most = min(task_bytes // (4 * max(dump.classes, 8)), dump.rows // (hands * TASKS_PER_HAND))
    pieces = hands if len(dump.row_groups) < hands * TASKS_PER_HAND else 1
    task: list[RowGroup] = []
    for group in dump.row_groups:
        blocks = -(-group.rows // block_rows)
        bounds = sorted({min(group.rows, round(blocks * i / pieces) * block_rows) for i in range(pieces + 1)})
        for start, stop in pairwise(bounds):
            if task and sum(waiting.rows for waiting in task) + stop - start > most:
                yield tuple(task)
                task = []
            task.append(group.between(start, stop))
    if task:
        yield tuple(task)


def read_task(dump: Dump, run: Pass, task: Task) -> Iterator[Block]:
    """The blocks of a task."""
    for group in task:
        yield from dump.read(group, run.labelled, run.keep)
        if not group.whole:  # who reads to the end looks for itself
            check_unchanged(dump.parts[group.part])


def run_task(blocks: Iterable[Block], work: Callable[[Block], T]) -> TaskResults[T]:
    """What `work` makes of the blocks of a task: to be sent to another process, or to be kept."""
    results: list[T] = []
    try:
        for block in blocks:
            results.append(work(block))
    except DrrejError as error:
        return results, error
    return results, None


class LocalEngine(Struct, frozen=True):
    """Passes by `jobs` threads (0: one for every core that this process may use).

    With `processes`, copies of this process do it where that pays; it must have no threads of others, as that of the
    command line.
    """

    jobs: int = 0
    progress: Progress = field(default_factory=Progress)
    processes: bool = False
    kept: Kept | None = None

    @property
    def workers(self) -> int:
        """The number of threads or processes."""
        if self.jobs or not hasattr(os, "sched_getaffinity"):  # macOS has none
            return self.jobs or os.cpu_count() or 1
        return len(os.sched_getaffinity(0))

    def keeping(self, memory: int | None) -> LocalEngine:
        """The same engine for several passes; blocks are kept in this process, as far as they fit."""
        return replace(self, kept=Kept(available_memory() // 4 if memory is None else memory))

    def map(self, dump: Dump, run: Pass, work: Work[T]) -> Generator[BlockResult[T]]:
        """What `work` makes of each block, in order."""
        if self._processes_pay(dump, run):
            yield from _in_processes(dump, run, work, self.workers)
            return
        threads = self._threads(dump)
        tasks = cut(dump, max(1, threads), TASK_BYTES)

        def keep(task: Task) -> TaskResults[Block]:
            return run_task(read_task(dump, run, task), partial(to_keep, run.keep))

        def results(task: Task) -> Iterator[BlockResult[T]]:
            kept = None if self.kept is None else self.kept.get(dump, run, task, keep)
            return map(work, read_task(dump, run, task) if kept is None else kept_blocks(*kept))

        if threads:
            yield from in_threads(results, tasks, threads)
        else:
            for task in tasks:
                yield from results(task)

    def _threads(self, dump: Dump) -> int:
        """Threads besides this one; more where they wait for the network: three requests for every row group."""
        if any(part.uri is not None for part in dump.parts):
            size = dump.rows * dump.classes * 4 // max(1, len(dump.row_groups))
            return max(2, self.workers, min(_OBJECTS, OBJECT_BYTES // max(1, size)))
        if self.kept is None or self.workers == 1:
            return self.workers - 1
        return self.workers if dump.classes >= PROCESS_CLASSES and dump.columns.layout != "wide" else 0

    def _processes_pay(self, dump: Dump, run: Pass) -> bool:
        """Whether to have processes: not for objects, whose clients have threads, nor a table of labels to copy."""
        many = dump.classes >= PROCESS_CLASSES or self.workers > 2 or not run.written
        large = dump.rows * dump.classes * 4 >= PROCESS_BYTES
        mine = self.processes and self.workers > 1 and self.kept is None and sys.platform == "linux"
        return mine and many and large and dump.elsewhere is None and all(part.uri is None for part in dump.parts)


def map_ordered(
    submit: Callable[[Task], Any],
    tasks: Iterator[Task],
    ahead: int,
    results: Callable[[Any], Iterable[T]],
    cancel: Callable[[Iterable[Any]], Any],
) -> Generator[T]:
    """The results of tasks, in order, errors in their place; at most `ahead` tasks are submitted.

    `results` waits for those of what `submit` returned; `cancel` gets what nobody waits for any more.
    """
    waiting: deque[Any] = deque()
    try:
        while True:
            waiting.extend(map(submit, islice(tasks, ahead - len(waiting))))
            if not waiting:
                return
            yield from results(waiting[0])
            waiting.popleft()
    finally:
        cancel(waiting)


def in_turn(results: Iterable[T], error: DrrejError | None) -> Iterator[T]:
    """What `run_task` returned: the results, then the error."""
    yield from results
    if error is not None:
        raise error


def in_threads(results: Callable[[Task], Iterator[T]], tasks: Iterator[Task], threads: int) -> Generator[T]:
    """The results of tasks by threads; each may be a few results ahead."""
    pool, stopped = ThreadPoolExecutor(threads), threading.Event()

    def fill(task: Task, waiting: Queue[Any]) -> None:
        try:
            for result in results(task):
                waiting.put((result, None, False))
                if stopped.is_set():
                    return
            waiting.put((None, None, True))
        except BaseException as error:
            waiting.put((None, error, True))

    def submit(task: Task) -> Queue[Any]:
        waiting: Queue[Any] = Queue(_WAITING_RESULTS)
        pool.submit(fill, task, waiting)
        return waiting

    def taken(waiting: Queue[Any]) -> Iterator[T]:
        result, error, ended = waiting.get()
        while not ended:
            yield result
            result, error, ended = waiting.get()
        if error is not None:
            raise error

    def stop(begun: Iterable[Queue[Any]]) -> None:
        stopped.set()
        for waiting in begun:
            while not waiting.empty():  # its thread may wait for room
                waiting.get()
        pool.shutdown(cancel_futures=True)

    yield from map_ordered(submit, tasks, threads + 1, taken, stop)


def _in_processes(dump: Dump, run: Pass, work: Work[T], workers: int) -> Generator[BlockResult[T]]:
    """The results of a pass by copies of this process, which are made for it and so know what it is about."""
    import multiprocessing  # takes long to import
    from concurrent.futures import Future, ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    watched, alive = os.pipe()
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("fork"), _start_worker, ((dump, run, work), watched, alive)
    )

    def submit(task: Task) -> Future[Any]:
        held = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)  # nothing may break off a worker's first steps
        try:
            with warnings.catch_warnings():  # of threads that do nothing: a BLAS starts some when numpy is imported
                warnings.simplefilter("ignore", DeprecationWarning)
                return pool.submit(_run_here, task)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)

    def stop(_: Iterable[Any]) -> None:
        pool.shutdown(cancel_futures=True)  # first: a worker that ends while it sends a result leaves the pool waiting
        os.close(alive)
        os.close(watched)

    try:
        tasks = cut(dump, workers, TASK_BYTES)
        yield from map_ordered(submit, tasks, 3 * workers, lambda future: in_turn(*future.result()), stop)
    except BrokenProcessPool:
        raise ClusterError("a worker process was killed; if memory ran out, `jobs=1` needs least of it") from None
    except BlockingIOError as error:
        raise ClusterError(f"no worker process can be started ({error.strerror}); `jobs=1` needs none") from None


_pass_here: tuple[Dump, Pass, Work[Any]]
"""What the tasks of a worker process are about."""


def _start_worker(about: tuple[Dump, Pass, Work[Any]], watched: int, alive: int) -> None:
    """The first steps of a copy of this process.

    A terminal sends Ctrl-C to all of them: the first decides. When that one is gone, however it ended, its copies end
    too: they hold the locks of its outputs.
    """
    global _pass_here
    _pass_here = about
    gc.freeze()  # what was there before belongs to the other process: nothing of it may be closed here
    os.close(alive)
    for number in _STOPPING:
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
    threading.Thread(target=_end_with, args=(watched,), daemon=True).start()


def _end_with(watched: int) -> None:
    os.read(watched, 1)
    os._exit(1)


def _run_here(task: Task) -> TaskResults[BlockResult[Any]]:
    dump, run, work = _pass_here
    try:
        return run_task(read_task(dump, run, task), work)
    except Exception as error:
        failure = error
    try:
        pickle.dumps(failure)
    except Exception as reason:  # what cannot be sent: the pool would take its worker for killed
        failure = type(reason)(*reason.args)
    raise failure  # outside of the handlers: some programs send the context of an error along


# Blocks that are kept between passes


class Kept:
    """What was read of tasks, here or elsewhere, within so many bytes; may be used by several threads."""

    def __init__(self, memory: int) -> None:
        self._free = memory
        self._kept: dict[Any, Any] = {}
        self._lock = threading.Lock()

    def get(self, dump: Dump, run: Pass, task: Task, read: Callable[[Task], T]) -> T | None:
        """What `read` returned for a task, now or in an earlier pass; None where there is no room for it."""
        key = (dump.opened, run.labelled, tuple(run.keep), task)
        if key not in self._kept:
            size = held_bytes(dump, task)
            with self._lock:
                if size > self._free:
                    return None
                self._free -= size
            self._kept[key] = read(task)
        found: T = self._kept[key]
        return found


def to_keep(columns: Sequence[str], block: Block) -> Block:
    """A block with what later passes need: scores that are a part of something larger are copied, to let go of that."""
    owner: Any = block.scores  # a buffer of Arrow may be a part of another: of all columns of a batch, or of a map
    while (larger := getattr(owner, "base" if isinstance(owner, np.ndarray) else "parent", None)) is not None:
        owner = larger
    held = owner.size if isinstance(owner, pa.Buffer) else getattr(owner, "nbytes", math.inf)
    scores = block.scores.copy(order="K") if held > block.scores.nbytes else block.scores
    return replace(block, scores=scores, columns=block.columns.select(list(dict.fromkeys(columns))))


def kept_blocks(blocks: Iterable[Block], error: DrrejError | None) -> Iterator[Block]:
    """The blocks of a kept task for one pass: whoever works on them may note bad rows."""
    return (replace(block, bad=block.bad.copy(), problems=list(block.problems)) for block in in_turn(blocks, error))


def held_bytes(dump: Dump, task: Task) -> int:
    """Memory of the blocks of a task: their scores, labels and marks."""
    return sum(group.rows for group in task) * (dump.classes * dump.score_bytes + 9)


# Memory


def available_memory() -> int:
    """Bytes of memory: the machine's, or the control group's limit where that is lower."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError), open(path, encoding="ascii") as file:
            text = file.read().strip()
            memory = min(memory, int(text)) if text.isdigit() else memory
    return memory


def reuse_memory() -> None:
    """Let malloc and Arrow use the memory of one block for the next, in place of giving it back to be cleared again.

    That saves a tenth of the CPU time of `reject` on a million rows of ten classes. DRREJ_PLAIN_MEMORY=1 switches it
    off.
    """
    if os.environ.get("DRREJ_PLAIN_MEMORY", "0") != "0":
        return
    trim_threshold, mmap_threshold = -1, -3
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(trim_threshold, 1 << 28)
        libc.mallopt(mmap_threshold, 1 << 25)
    with contextlib.suppress(NotImplementedError):  # a pyarrow built without it: slower, not wrong
        pa.set_memory_pool(pa.jemalloc_memory_pool())
