"""The second engine: the same passes on the workers of a Dask cluster.

Tasks are cut from the dump and sent to the workers, see `tasks`; their results are taken in order, so documents and
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
import pickle
import re
import secrets
import signal
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from drrej._version import __version__
from drrej.data.dump import Block, Dump, RowGroup
from drrej.engines.threads import Engine, Pass
from drrej.engines.worker import (
    TASK_BYTES,
    Answer,
    Context,
    Stretch,
    Token,
    check_versions,
    cut,
    forget,
    run_part,
    run_task,
    unpack,
    versions,
)
from drrej.errors import ClusterError, OptionError

T = TypeVar("T")
R = TypeVar("R")

_IN_FLIGHT = 3
"""Tasks per thread that are running, waiting or finished and not yet taken."""

CONNECT_SECONDS = 10
LONELY_SECONDS = 60
"""How long a pass waits when the last worker is gone: an autoscaler may bring another."""


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
                f"`cluster={self.address}`: write local:N for N worker processes on this machine, or the address of "
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
            raise ClusterError(f"`cluster={self.address}`: the workers do not start ({_one_line(error)})") from None

    def _check_workers(self) -> None:
        """Raise unless there are workers and all of them run what this client runs; a lost one does not matter."""
        distributed = import_distributed()
        answers: dict[str, Any] = {}
        try:
            while not answers:
                self._client.wait_for_workers(1, timeout=CONNECT_SECONDS)
                asked = self._client.run(versions, on_error="return")
                answers = {worker: answer for worker, answer in asked.items() if not isinstance(answer, OSError)}
        except (TimeoutError, distributed.TimeoutError):
            raise ClusterError(
                f"{self.address}: the scheduler has no workers; start some with 'dask worker {self.address}'"
            ) from None
        except Exception as error:  # whatever another version of Dask makes of the question
            raise self._not_understood(error) from None
        for worker, answer in answers.items():
            if isinstance(answer, ImportError):
                raise ClusterError(
                    f"{worker}: the worker cannot import drrej ({_one_line(answer)}); install drrej {__version__} "
                    "where it runs"
                )
            if isinstance(answer, BaseException):
                raise self._not_understood(answer)
            check_versions(versions(), answer, worker)

    def _not_understood(self, error: BaseException) -> ClusterError:
        return ClusterError(
            f"{self.address}: the workers do not understand this client ({type(error).__name__}: {_one_line(error)}); "
            f"are distributed and drrej {__version__} the same on both sides?"
        )

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
        common = client.submit(unpack, self._packed(shared), pure=False)
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
                    client.run(forget, self.session)
                client.close(timeout=2)
        if self._local is not None:
            with contextlib.suppress(Exception):
                self._local.close(timeout=5)
            self._local = None


@dataclass(frozen=True)
class ClusterEngine(Engine):
    """Passes on the workers of a cluster; `jobs` is for what this process computes itself."""

    cluster: Cluster = field(kw_only=True)
    _places: dict[tuple[Token, tuple[Stretch, ...]], str] = field(default_factory=dict, kw_only=True)

    @property
    def in_process(self) -> bool:
        """Rows would have to travel."""
        return False

    def results(self, dump: Dump, run: Pass, work: Callable[[Block], T]) -> Generator[T]:
        """What `work` makes of each block, in order."""
        columns = hashlib.sha256(pickle.dumps((run.labelled, run.keep))).hexdigest()
        token = Token(self.cluster.session, dump.opened, columns)
        if run.sink is not None:
            yield from self._parts(Context(dump, run, work, token, versions()))
            return
        tasks = cut(dump, self.cluster.threads, TASK_BYTES)
        context = Context(replace(dump, row_groups=()), run, work, token, versions())
        preferred = ((task, self._places.get((token, task))) for task in tasks)
        answers: Generator[Answer] = self.cluster.in_order(run_task, context, preferred)
        with contextlib.closing(answers):
            for task, answer in zip(tasks, answers, strict=True):
                if run.read_again:
                    self._places[token, task] = answer.worker
                yield from answer.results
                if answer.error is not None:
                    raise answer.error

    def _parts(self, context: Context) -> Generator[Any]:
        """One task per input file; results are counts."""
        groups: dict[int, list[RowGroup]] = {}
        for group in context.dump.row_groups:
            groups.setdefault(group.part, []).append(group)
        tasks = (((number, tuple(groups.get(number, ()))), None) for number in range(len(context.dump.parts)))
        context = replace(context, dump=replace(context.dump, row_groups=()))
        answers: Generator[Answer] = self.cluster.in_order(run_part, context, tasks)
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
        raise OptionError("`cluster` needs the package distributed: pip install 'drrej[cluster]'") from None
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
