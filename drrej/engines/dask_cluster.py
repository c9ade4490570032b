"""The connection to a Dask cluster: a scheduler's address, or worker processes on this machine.

Whoever reaches a Dask scheduler can run code as its workers, and as its clients. So the processes that drrej starts
itself talk TLS with a key that lives as long as they do, and a real cluster should have keys of its own, see
docs/scale.md.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import functools
import itertools
import logging
import math
import re
import secrets
import signal
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import field
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from drrej._version import __version__
from drrej.engines.dask_security import (
    Tls,
    connect,
    import_distributed,
    is_open_to_strangers,
    one_line,
    quiet,
    security_of,
)
from drrej.engines.worker import check_versions, forget, unpack, versions
from drrej.errors import ClusterError, OptionError
from drrej.records import dataclass

R = TypeVar("R")

_IN_FLIGHT = 3
"""Tasks per thread that are running, waiting or finished and not yet taken."""

CONNECT_SECONDS = 10
LONELY_SECONDS = 60
"""How long a pass waits when the last worker is gone: an autoscaler may bring another."""

_UNWATCHED: dict[str, Any] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
}
"""Processes that live for one command have no pages that show what they do, so they need not watch themselves."""

_LOOK_SECONDS = 2.0
"""How often a pass asks the scheduler how many workers there are: a question costs as much as a task."""


@dataclass
class Cluster:
    """A connection that is made when first used. `address` is a scheduler's or `local:N`.

    `security` is a `Tls`, a `distributed.Security`, or None: as Dask is configured on this machine.
    """

    address: str
    security: Any = None
    session: str = field(default_factory=lambda: secrets.token_hex(8))
    _client: Any = None
    _local: Any = None
    _scratch: tempfile.TemporaryDirectory[str] | None = None

    def __post_init__(self) -> None:
        match = re.fullmatch(r"local:(\d+)", self.address, re.ASCII)
        self.local_workers = int(match[1]) if match else None
        if self.local_workers == 0 or (match is None and "://" not in self.address):
            raise OptionError(
                f"`cluster={self.address}`: write local:N for N worker processes on this machine, or the address of "
                "a Dask scheduler such as tls://host:8786"
            )
        if match is None or self.security is not None:
            self.security = security_of(self.address, self.security)
        import_distributed()

    @property
    def is_open_to_strangers(self) -> bool:
        """Whether anybody on the network may be listening, or give the same orders."""
        return self.local_workers is None and is_open_to_strangers(self.address)

    @property
    def client(self) -> Any:
        """The connected client; whether the workers run the same versions has been checked."""
        if self._client is None:
            if self.local_workers is None:
                self._client = connect(self.address, self.security, CONNECT_SECONDS)
            else:
                self._client = self._start(self.local_workers)
            self._check_workers()
        return self._client

    def _start(self, workers: int) -> Any:
        """Processes on this machine. Other users of it can reach their ports, but lack the key.

        What workers spill to the disk goes into a folder of this user alone: Dask's own is one that anybody may have
        made first, and whoever owns it can exchange the files, which are unpickled.
        """
        import dask

        distributed = import_distributed()
        quiet()
        try:
            security = distributed.Security.temporary()
            self._scratch = tempfile.TemporaryDirectory(prefix="drrej-workers-", ignore_cleanup_errors=True)
            with dask.config.set(_UNWATCHED), _ctrl_c_held():
                self._local = distributed.LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    processes=True,
                    protocol="tls://",
                    security=security,
                    dashboard_address=None,
                    local_directory=self._scratch.name,
                    silence_logs=logging.CRITICAL,
                )
            return distributed.Client(self._local, timeout=CONNECT_SECONDS, set_as_default=False, security=security)
        except (OSError, RuntimeError) as error:
            raise ClusterError(f"`cluster={self.address}`: the workers do not start ({one_line(error)})") from None
        except ImportError:
            raise OptionError(
                f"`cluster={self.address}` needs the package cryptography: pip install 'drrej[cluster]'"
            ) from None

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
                    f"{worker}: the worker cannot import drrej ({one_line(answer)}); install drrej {__version__} "
                    "where it runs"
                )
            if isinstance(answer, BaseException):
                raise self._not_understood(answer)
            check_versions(versions(), answer, worker)

    def _not_understood(self, error: BaseException) -> ClusterError:
        return ClusterError(
            f"{self.address}: the workers do not understand this client ({type(error).__name__}: {one_line(error)}); "
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
        """`function(shared, task)` for each (task, worker to prefer), in order, a bounded number at a time.

        Tasks that prefer nobody are dealt out in turns: Dask would give all of them to the worker that has unpacked
        what they share, and let the others take some away from it later.
        """
        client = self.client
        common = client.submit(unpack, self._packed(shared), pure=False)
        waiting: collections.deque[Any] = collections.deque()
        todo = iter(tasks)
        most, looked = 0, -math.inf
        turns: Iterator[str] = iter(())
        try:
            while True:
                if time.monotonic() > looked + _LOOK_SECONDS:
                    hands = [name for name, worker in self._workers().items() for _ in range(worker["nthreads"])]
                    looked, turns = time.monotonic(), itertools.cycle(hands)
                    most = max(1, len(hands)) * _IN_FLIGHT + 1
                for task, wanted in itertools.islice(todo, max(0, most - len(waiting))):
                    place = wanted or next(turns, None)
                    where = {"workers": [place], "allow_other_workers": True} if place else {}
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
                    f"{self.address}: workers died again and again on the same task ({one_line(error)}); most likely "
                    "they lack memory: fewer threads or more memory per worker"
                ) from None
            except ImportError as error:
                raise ClusterError(
                    f"{self.address}: a worker cannot run this drrej ({one_line(error)}); install drrej {__version__} "
                    "where it runs"
                ) from None
            except (distributed.CancelledError, OSError) as error:
                if future.status == "error":  # raised by the task
                    raise
                raise self._lost(one_line(error)) from None

    def forget(self) -> None:
        """Have the workers drop the blocks that they keep for this client."""
        if self._client is not None and self._client.status == "running":
            with contextlib.suppress(Exception):  # on the way out: what has failed has been told
                self._client.run(forget, self.session, on_error="ignore")

    def close(self) -> None:
        """Leave the cluster as it was; a local one ends."""
        if self._local is None:
            self.forget()
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                client.close(timeout=2)
        if self._local is not None:
            with contextlib.suppress(Exception):
                self._local.close(timeout=5)
            self._local = None
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None


@functools.cache
def connection(address: str, security: Tls | None = None) -> Cluster:
    """The connection of this process to a cluster, until it exits."""
    cluster = Cluster(address, security)
    atexit.register(cluster.close)
    return cluster


@contextlib.contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Ctrl-C waits, and the threads and processes started meanwhile never see it: this process ends them."""
    resource_tracker.ensure_running()  # when multiprocessing starts it, it unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
