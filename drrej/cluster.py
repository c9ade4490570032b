"""The second engine: the same passes on the workers of a Dask cluster.

A task is a stretch of blocks, addressed by file, row group and block numbers: a worker opens the file itself, runs the
pass's function and sends back the same small results that a thread would. They are taken in order, so documents and
masks have the same bits. A lost worker's tasks are run again by Dask; nothing lives on a worker that cannot be made
again.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import functools
import hashlib
import logging
import os
import pickle
import platform
import re
import secrets
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from multiprocessing import resource_tracker
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from drrej._version import __version__
from drrej.dumps.dump import Block, Dump, RowGroup
from drrej.dumps.partwise import PartCounts, PartSink
from drrej.dumps.problems import Problem, Problems
from drrej.dumps.sources import Part
from drrej.errors import ClusterError, DrrejError, OptionError
from drrej.stream import Done, Engine, Pass

T = TypeVar("T")
R = TypeVar("R")

TASK_BYTES = 64 << 20
"""Logits of a task: long enough that Dask's millisecond per task does not count."""

_TASKS_PER_THREAD = 4
"""Into how many tasks a short pass is cut at least, so that threads end at about the same time."""

_IN_FLIGHT = 3
"""Tasks per thread that are running, waiting or finished and not yet taken."""

CONNECT_SECONDS = 10
LONELY_SECONDS = 60
"""How long a pass waits when the last worker is gone: an autoscaler may bring another."""


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


def cut(dump: Dump, threads: int, task_bytes: int = TASK_BYTES) -> list[tuple[Stretch, ...]]:
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


class _Token(NamedTuple):
    """Whose blocks they are: a client's, of one opening of a dump, with these columns."""

    session: str
    opened: str
    columns: str


@dataclass(frozen=True)
class _Context:
    """What all tasks of a pass share."""

    dump: Dump
    run: Pass
    work: Callable[[Block], Any]
    token: _Token
    versions: dict[str, str]


@dataclass(frozen=True)
class _Answer:
    """What a task sends back: the results, or the error that a thread would have raised after them, and from where."""

    results: list[Any]
    error: BaseException | None
    worker: str


def _run_task(context: _Context, stretches: Sequence[Stretch]) -> _Answer:
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
    return _Answer(results, error, _worker_address())


def _run_part(context: _Context, task: tuple[int, tuple[RowGroup, ...]]) -> _Answer:
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
            return _Answer([_done(counts, part.name, [])], None, _worker_address())
        return _Answer([_write_part(context, sink, part, groups, digest)], None, _worker_address())
    except DrrejError as wrong:
        return _Answer([], _seen_from_here(wrong, part), _worker_address())


def _write_part(
    context: _Context, sink: PartSink, part: Part, groups: Sequence[RowGroup], digest: str
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
        self.kept: dict[tuple[_Token, Stretch], list[Block]] = {}
        self.bytes = 0
        self.lock = threading.Lock()

    def blocks(self, context: _Context, stretch: Stretch) -> Iterator[Block]:
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


def _forget(session: str) -> None:
    _keeper.forget(session)


def _unpack(packed: bytes) -> Any:
    """On a worker: what all tasks share. A task of its own, so that Dask can make it again anywhere."""
    return pickle.loads(packed)  # noqa: S301 - from our own client


def _worker_address() -> str:
    from distributed import get_worker

    return str(get_worker().address)


def worker_memory() -> int:
    """Bytes that this worker may use."""
    from distributed import get_worker

    from drrej.memory import available_memory

    limit = get_worker().memory_manager.memory_limit
    return int(limit) if limit else available_memory()


_prepared = threading.Event()


def prepare_worker() -> None:
    """Memory settings as in a drrej process of its own."""
    if not _prepared.is_set():
        from drrej.memory import keep_freed_memory, prefer_jemalloc

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


@dataclass
class Cluster:
    """A connection that is made when first used. `address` is a scheduler's or `local:N`."""

    address: str
    session: str = field(default_factory=lambda: secrets.token_hex(8))
    _client: Any = None
    _local: Any = None

    def __post_init__(self) -> None:
        match = re.fullmatch(r"local:(\d+)", self.address, re.ASCII)
        self.local_workers = int(match[1]) if match else None
        if self.local_workers == 0 or (match is None and "://" not in self.address):
            raise OptionError(
                f"--cluster {self.address}: write local:N for N worker processes on this machine, or the address of "
                "a Dask scheduler such as tcp://host:8786"
            )
        import_distributed()

    @property
    def client(self) -> Any:
        """The connected client; whether the workers run the same versions has been checked."""
        if self._client is None:
            self._client = self._connect()
            self._check_workers()
        return self._client

    def _connect(self) -> Any:
        distributed = import_distributed()
        _quiet()
        if self.local_workers is None:
            try:
                return distributed.Client(self.address, timeout=CONNECT_SECONDS, set_as_default=False)
            except (OSError, ValueError, ImportError, RuntimeError) as error:
                raise ClusterError(
                    f"{self.address}: no Dask scheduler answers ({_one_line(error)}); is it running, and is the "
                    "address right?"
                ) from None
        try:
            with _ctrl_c_held():
                self._local = distributed.LocalCluster(
                    n_workers=self.local_workers,
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                )
            return distributed.Client(self._local, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, RuntimeError) as error:
            raise ClusterError(f"--cluster {self.address}: the workers do not start ({_one_line(error)})") from None

    def _check_workers(self) -> None:
        distributed = import_distributed()
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_SECONDS)
            found: dict[str, dict[str, str]] = self._client.run(versions)
        except (TimeoutError, distributed.TimeoutError):
            raise ClusterError(
                f"{self.address}: the scheduler has no workers; start some with 'dask worker {self.address}'"
            ) from None
        except ImportError as error:
            raise ClusterError(
                f"{self.address}: the workers cannot import drrej ({_one_line(error)}); install drrej {__version__} "
                "where they run"
            ) from None
        except Exception as error:  # whatever another version of Dask or of drrej makes of the question
            raise ClusterError(
                f"{self.address}: the workers do not understand this client ({type(error).__name__}: "
                f"{_one_line(error)}); are distributed and drrej {__version__} the same on both sides?"
            ) from None
        for worker, theirs in found.items():
            check_versions(versions(), theirs, worker)

    @property
    def threads(self) -> int:
        """Threads of all workers, at least 1."""
        return max(1, sum(int(worker["nthreads"]) for worker in self._workers().values()))

    def _workers(self) -> dict[str, Any]:
        workers: dict[str, Any] | None = self.client.scheduler_info(n_workers=-1).get("workers")
        if workers is None:  # the client has given the scheduler up
            raise self._lost("no answer")
        return workers

    def _lost(self, reason: str) -> ClusterError:
        return ClusterError(
            f"{self.address}: the connection to the scheduler was lost ({reason}); run the command again"
        )

    def in_order(
        self, function: Callable[..., R], shared: Any, tasks: Iterable[tuple[Any, str | None]]
    ) -> Generator[R]:
        """`function(shared, task)` for each (task, worker to prefer), in order, a bounded number at a time."""
        client = self.client
        common = client.submit(_unpack, self._packed(shared), pure=False)
        waiting: collections.deque[Any] = collections.deque()
        todo = iter(tasks)
        try:
            while True:
                room = self.threads * _IN_FLIGHT + 1 - len(waiting)
                for task, worker in islice(todo, max(0, room)):
                    where = {"workers": [worker], "allow_other_workers": True} if worker else {}
                    waiting.append(client.submit(function, common, task, pure=False, **where))
                if not waiting:
                    return
                yield self._result(waiting[0])
                waiting.popleft().release()
        finally:
            with contextlib.suppress(Exception):  # the connection may be what failed
                client.cancel([*waiting, common], force=True)

    def _packed(self, shared: Any) -> bytes:
        import cloudpickle  # comes with distributed

        packed: bytes = cloudpickle.dumps(shared)
        return packed

    def _result(self, future: Any) -> Any:
        """The result of a task, or a line about what became of it."""
        distributed = import_distributed()
        lonely_since: float | None = None
        while True:
            try:
                return future.result(timeout=2)
            except (TimeoutError, distributed.TimeoutError):
                if future.done():
                    continue
                lonely_since = None if self._workers() else lonely_since or time.monotonic()
                if lonely_since is not None and time.monotonic() - lonely_since > LONELY_SECONDS:
                    raise ClusterError(
                        f"{self.address}: no worker has been left for {LONELY_SECONDS} seconds; start some and run "
                        "the command again"
                    ) from None
            except distributed.KilledWorker as error:
                raise ClusterError(
                    f"{self.address}: workers died again and again on the same task ({_one_line(error)}); most likely "
                    "they lack memory: fewer threads or more memory per worker"
                ) from None
            except (distributed.CancelledError, OSError) as error:
                if future.status == "error":  # raised by the task
                    raise
                raise self._lost(_one_line(error)) from None

    def close(self) -> None:
        """Leave the cluster as it was; a local one ends."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):  # on the way out: what has failed has been told
                if self._local is None:
                    client.run(_forget, self.session)
                client.close(timeout=2)
        if self._local is not None:
            with contextlib.suppress(Exception):
                self._local.close(timeout=5)
            self._local = None


@dataclass(frozen=True)
class ClusterEngine(Engine):
    """Passes on the workers of a cluster; `jobs` is for what this process computes itself."""

    cluster: Cluster = field(kw_only=True)
    _places: dict[tuple[_Token, tuple[Stretch, ...]], str] = field(default_factory=dict, kw_only=True)

    @property
    def in_process(self) -> bool:
        """Rows would have to travel."""
        return False

    def results(self, dump: Dump, run: Pass, work: Callable[[Block], T]) -> Generator[T]:
        """What `work` makes of each block, in order."""
        columns = hashlib.sha256(pickle.dumps((run.labelled, run.keep))).hexdigest()
        token = _Token(self.cluster.session, dump.opened, columns)
        if run.sink is not None:
            yield from self._parts(_Context(dump, run, work, token, versions()))
            return
        tasks = cut(dump, self.cluster.threads)
        context = _Context(replace(dump, row_groups=()), run, work, token, versions())
        preferred = ((task, self._places.get((token, task))) for task in tasks)
        answers: Generator[_Answer] = self.cluster.in_order(_run_task, context, preferred)
        with contextlib.closing(answers):
            for task, answer in zip(tasks, answers, strict=True):
                if run.read_again:
                    self._places[token, task] = answer.worker
                yield from answer.results
                if answer.error is not None:
                    raise answer.error

    def _parts(self, context: _Context) -> Generator[Any]:
        """One task per input file; results are counts."""
        groups: dict[int, list[RowGroup]] = {}
        for group in context.dump.row_groups:
            groups.setdefault(group.part, []).append(group)
        tasks = (((number, tuple(groups.get(number, ()))), None) for number in range(len(context.dump.parts)))
        context = replace(context, dump=replace(context.dump, row_groups=()))
        answers: Generator[_Answer] = self.cluster.in_order(_run_part, context, tasks)
        with contextlib.closing(answers):
            for answer in answers:
                if answer.error is not None:
                    raise answer.error
                yield from answer.results

    def __reduce__(self) -> Any:
        """A function for the workers must not carry the connection along."""
        raise TypeError("an engine cannot be sent to a worker")


@functools.cache
def connection(address: str) -> Cluster:
    """The connection of this process to a cluster, until it exits."""
    cluster = Cluster(address)
    atexit.register(cluster.close)
    return cluster


def import_distributed() -> Any:
    """The package `distributed`, or a line about how to get it."""
    try:
        import distributed
    except ImportError:
        raise OptionError("--cluster needs the package distributed: pip install 'drrej[cluster]'") from None
    return distributed


@contextlib.contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Ctrl-C waits, and the threads and processes started meanwhile never see it: this process ends them."""
    resource_tracker.ensure_running()  # when multiprocessing starts it, it unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _quiet() -> None:
    """What Dask logs is for its operators; drrej says in one line what went wrong."""
    for name in ("distributed", "tornado", "asyncio", *logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module="distributed|dask|tornado")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
