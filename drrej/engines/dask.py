"""The engine of a Dask cluster: the tasks of `local` on its workers, their results in order, so with the same bits.

Whoever reaches a Dask scheduler can run code as its workers, and as its clients: see docs/scale.md on certificates.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import functools
import ipaddress
import logging
import os
import pickle
import platform
import threading
import time
import warnings
from collections.abc import Generator, Iterable
from typing import Any, TypeVar
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from drrej._version import __version__
from drrej.data.dump import Block, Dump
from drrej.data.problems import one_line
from drrej.engines import Progress
from drrej.engines.local import (
    Kept,
    Task,
    TaskResults,
    available_memory,
    cut,
    in_turn,
    kept_blocks,
    map_ordered,
    read_task,
    reuse_memory,
    run_task,
    to_keep,
)
from drrej.engines.protocol import BlockResult, Pass, Work
from drrej.errors import ClusterError, OptionError

T = TypeVar("T")

TASK_BYTES = 64 << 20
"""Logits of a task: long enough that a millisecond per task does not count."""

CONNECT_SECONDS = 10
LONELY_SECONDS = 60
"""How long a pass waits when the last worker is gone: an autoscaler may bring another."""

SILENT_SECONDS = 60
"""How long a scheduler may leave a question open."""

_IN_FLIGHT = 3
"""Tasks per thread that are running, waiting, or finished and not yet taken."""

_SENT_WITH_EACH = 1 << 20
"""Bytes up to which what all tasks share goes with each; what is larger, such as a table of labels, is sent once."""

VERSIONS = {
    "drrej": __version__,
    "python": ".".join(platform.python_version_tuple()[:2]),
    "numpy": np.__version__,
    "pyarrow": pa.__version__,
}
"""What has to agree between client and workers for the same bits."""

_ENCRYPTED = ("tls://", "wss://")


class DaskEngine(Struct, frozen=True):
    """Passes on the workers of the cluster that a `distributed.Client` is connected to, see `connect`."""

    client: Any
    progress: Progress = field(default_factory=Progress)
    kept: Kept | None = None

    @property
    def address(self) -> str:
        """Of the scheduler."""
        return str(self.client.scheduler.address)

    def keeping(self, memory: int | None) -> DaskEngine:
        """The same engine for several passes; workers keep blocks, each up to `memory`, or a quarter of its own."""
        workers = self.client.scheduler_info(n_workers=-1).get("workers", {}).values()
        limits = [worker["memory_limit"] or available_memory() for worker in workers]
        room = sum(limit // 4 if memory is None else memory for limit in limits)
        return replace(self, kept=Kept(room))

    def map(self, dump: Dump, run: Pass, work: Work[T]) -> Generator[BlockResult[T]]:
        """What `work` makes of each block, in order; a lost worker's tasks are run again by Dask."""
        reading, scoring = self._shared((replace(dump, row_groups=()), run)), self._shared(work)
        threads = max(1, self._threads())

        keeping = self._shared(functools.partial(to_keep, run.keep))

        def sent(blocks: Any, task: Task, work: Any) -> Any:
            return self.client.submit(_run, VERSIONS, blocks, task, work, pure=False)

        def submit(task: Task) -> Any:
            kept = self.kept and self.kept.get(dump, run, task, lambda task: sent(reading, task, keeping))
            return sent(kept or reading, task, scoring)

        def cancel(waiting: Iterable[Any]) -> None:
            with contextlib.suppress(Exception):  # the connection may be what failed
                self.client.cancel(list(waiting), force=True)

        tasks = cut(dump, threads, TASK_BYTES)
        yield from map_ordered(
            submit, tasks, _IN_FLIGHT * threads, lambda future: in_turn(*self._result(future)), cancel
        )

    def _shared(self, content: Any) -> Any:
        """What all tasks need, pickled."""
        import cloudpickle  # comes with distributed

        packed = cloudpickle.dumps(content)
        return packed if len(packed) < _SENT_WITH_EACH else self.client.scatter(packed, broadcast=True, hash=False)

    def _threads(self) -> int:
        """Threads of all workers."""
        try:
            return sum(self.client.sync(self.client.scheduler.ncores, callback_timeout=SILENT_SECONDS).values())
        except Exception as error:  # whatever becomes of a connection
            raise self._lost(error) from None

    def _lost(self, error: BaseException) -> ClusterError:
        reason = one_line(error)
        return ClusterError(
            f"{self.address}: the connection to the scheduler was lost ({reason}); run the command again"
        )

    def _result(self, future: Any) -> Any:
        """The result of a task, or a line about what became of it."""
        import distributed

        lonely_since: float | None = None
        while True:
            try:
                return future.result(timeout=2)
            except (TimeoutError, distributed.TimeoutError):
                if future.done():
                    continue
                lonely_since = None if self._threads() else lonely_since or time.monotonic()
                if lonely_since is not None and time.monotonic() - lonely_since > LONELY_SECONDS:
                    raise ClusterError(
                        f"{self.address}: there has been no worker for {LONELY_SECONDS} seconds; start some and run "
                        "the command again"
                    ) from None
            except distributed.KilledWorker as error:
                raise ClusterError(
                    f"{self.address}: workers died again and again on the same task ({one_line(error)}); most likely "
                    "they lack memory: fewer threads or more memory per worker"
                ) from None
            except (ImportError, AttributeError) as error:  # it does not even know the function
                raise ClusterError(
                    f"{self.address}: a worker cannot run this drrej ({one_line(error)}); install drrej {__version__} "
                    "where it runs"
                ) from None
            except (distributed.CancelledError, OSError) as error:
                if future.status == "error":  # raised by the task
                    raise
                raise self._lost(error) from None


# What runs on a worker


def _run(client: dict[str, str], rows: TaskResults[Block] | bytes, task: Task, scoring: bytes) -> TaskResults[Any]:
    """The results of a task: of blocks that are kept on the worker (Dask reads lost ones again) or have to be read."""
    from distributed import get_worker

    for name, version in client.items():
        if VERSIONS.get(name) != version:
            raise ClusterError(
                f"{get_worker().address}: the worker has {name} {VERSIONS.get(name, 'of an unknown version')} but this "
                f"client has {version}; results would differ: install the same versions on both"
            )
    if not isinstance(rows, bytes):
        return run_task(kept_blocks(*rows), _unpacked(scoring))
    dump, run = _unpacked(rows)
    results, error = run_task(read_task(dump, run, task), _unpacked(scoring))
    parts = [dump.parts[group.part] for group in task]
    missing = next((part.name for part in parts if part.uri is None and not os.path.exists(part.path)), None)
    if error is not None and missing is not None:  # the reason behind it: storage that this worker does not have
        error = ClusterError(
            f"{missing}: the worker {get_worker().address} has no such file; files must be on storage that all "
            "workers share"
        )
    return results, error


@functools.lru_cache(4)
def _unpacked(packed: bytes) -> Any:
    reuse_memory()
    return pickle.loads(packed)  # noqa: S301 - from our own client


# The way to a cluster


@functools.cache
def connect(address: str) -> Any:
    """A client of the scheduler at an address, with the certificates of Dask's configuration, until this process exits.

    In Python a `distributed.Client` that was made in another way does as well.
    """
    if address.startswith("local:"):
        raise OptionError(
            f"`cluster={address}`: drrej no longer starts workers of its own; `jobs` uses the cores of this machine, "
            "and 'dask worker' with 'dask scheduler' starts a cluster"
        )
    if "://" not in address:
        raise OptionError(f"`cluster={address}`: write the address of a Dask scheduler, such as tls://host:8786")
    try:
        import distributed
    except ImportError:
        raise OptionError("`cluster` needs the package distributed: pip install 'drrej[cluster]'") from None
    _quiet()
    security = distributed.Security()
    try:
        settings = security.get_connection_args("client")
    except (OSError, ValueError) as error:
        raise OptionError(f"`cluster={address}`: the certificates cannot be read ({one_line(error)})") from None
    if address.startswith(_ENCRYPTED) and settings.get("ssl_context") is None:
        raise OptionError(
            f"`cluster={address}`: an encrypted cluster needs certificates in Dask's configuration "
            "(distributed.comm.tls, see docs/scale.md)"
        )
    try:
        _shake_hands(address, settings)
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False, security=security)
    except Exception as error:  # whatever Dask makes of what answers there
        reason = one_line(error) if isinstance(error, OSError) else "another program answers there"
        raise ClusterError(
            f"{address}: no Dask scheduler answers ({reason}); is it running, is the address right, and do its "
            "certificates and yours match?"
        ) from None
    atexit.register(_close, client)
    try:
        client.wait_for_workers(1, timeout=CONNECT_SECONDS)
    except (TimeoutError, distributed.TimeoutError):
        raise ClusterError(
            f"{address}: the scheduler has no workers; start some with 'dask worker {address}'"
        ) from None
    return client


def _shake_hands(address: str, settings: dict[str, Any]) -> None:
    """Raise unless something that speaks Dask's language answers in time; a client of Dask's would wait for ever.

    In a thread, because the caller may have an event loop of its own, and so that a signal ends the wait at once.
    """
    from distributed.comm import connect as call

    async def shake() -> None:
        try:
            comm = await call(address, timeout=CONNECT_SECONDS, **settings)
            await comm.close()
            answer.set_result(None)
        except BaseException as error:
            answer.set_exception(error)

    answer: concurrent.futures.Future[None] = concurrent.futures.Future()
    threading.Thread(target=lambda: asyncio.run(shake()), daemon=True).start()
    try:
        answer.result(CONNECT_SECONDS)
    except TimeoutError:
        raise OSError(f"no response within {CONNECT_SECONDS} s") from None


def _close(client: Any) -> None:
    with contextlib.suppress(Exception):
        client.close(timeout=2)


def is_open_to_strangers(address: str) -> bool:
    """Whether anybody on the network may be listening, or give the same orders: not encrypted, beyond this machine."""
    if address.startswith((*_ENCRYPTED, "inproc://")):
        return False
    host = urlsplit(address).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def _quiet() -> None:
    """What Dask logs is for its operators; drrej says in one line what went wrong."""
    for name in ("distributed", "tornado", "asyncio", *logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module="distributed|dask|tornado")
