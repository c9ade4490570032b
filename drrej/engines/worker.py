"""The worker's side of an engine with workers elsewhere, whoever starts them.

A worker opens the files itself, runs the pass's function and sends back the same small results that a thread would.
"""

from __future__ import annotations

import functools
import os
import pickle
import platform
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from drrej._version import __version__
from drrej.data.dump import Block, Dump
from drrej.data.files import DumpFile
from drrej.engines.ahead import read_ahead
from drrej.engines.cache import BlockCache
from drrej.engines.protocol import BlockResult, Pass, Work
from drrej.engines.tasks import Stretch
from drrej.errors import ClusterError, DrrejError
from drrej.records import dataclass


class Token(NamedTuple):
    """Whose blocks they are: a client's, of one opening of a dump, with these columns."""

    session: str
    opened: str
    columns: str


@dataclass(frozen=True)
class Keep:
    """Whose blocks a worker keeps between passes, and in how many bytes (None: a quarter of its memory)."""

    token: Token
    memory: int | None


@dataclass(frozen=True)
class Context:
    """What all tasks of a pass share. The dump comes without its row groups: each task has its own."""

    dump: Dump
    run: Pass
    work: Work[Any]
    versions: dict[str, str]
    keep: Keep | None = None


@dataclass(frozen=True)
class Host:
    """Where a task runs: its name for messages, and the bytes of memory that it has."""

    name: str
    memory: int


@dataclass(frozen=True)
class Answer:
    """What a task sends back: the results, the error that a thread would have raised after them, and from where."""

    results: list[Any]
    error: BaseException | None
    worker: str


Task = tuple[Stretch, ...]


def run_task(context: Context, task: Task, host: Host) -> Answer:
    """The results of some stretches."""
    _prepare(context, host)
    results, error = results_of(context, task, host.memory)
    if error is not None:
        error = _seen_from_here(error, [context.dump.parts[stretch.group.part] for stretch in task], host)
    return Answer(results, error, host.name)


def results_of(context: Context, task: Task, memory: int = 0) -> tuple[list[BlockResult[Any]], DrrejError | None]:
    """The results of some stretches, and the error that comes after them; `memory` is that of the machine."""
    results: list[BlockResult[Any]] = []
    try:
        for block in _blocks(context, task, memory):
            results.append(context.work(block))
    except DrrejError as wrong:  # in its place: results before it count
        return results, wrong
    return results, None


def _blocks(context: Context, task: Task, there: int) -> Iterator[Block]:
    def read() -> Iterator[Block]:
        streams = (functools.partial(stretch.blocks, context.dump, context.run) for stretch in task)
        rows = max(stretch.group.rows for stretch in task)
        for stream in read_ahead(context.dump, streams, rows):
            yield from stream()

    if context.keep is None:
        return read()
    token = context.keep.token
    memory = there // 4 if context.keep.memory is None else context.keep.memory
    _kept.drop(lambda key: key[0].session == token.session and key[0].opened != token.opened)
    return _kept.blocks((token, task), read, context.run.keep, memory)


def _seen_from_here(error: DrrejError, parts: Sequence[DumpFile], host: Host) -> DrrejError:
    """The error, or the reason behind it: storage that this worker does not have."""
    for part in parts:
        if part.uri is None and not os.path.exists(part.path):
            return ClusterError(
                f"{part.name}: the worker {host.name} has no such file; dumps must lie on storage that all workers "
                "share"
            )
    return error


_kept = BlockCache()
"""Blocks that this worker keeps between the passes of one command."""


def forget(session: str) -> None:
    """Drop what a client made this worker keep."""
    _kept.drop(lambda key: key[0].session == session)


def unpack(packed: bytes) -> Any:
    """What all tasks share. A task of its own, so that a scheduler can make it again anywhere."""
    return pickle.loads(packed)  # noqa: S301 - from our own client


_prepared = threading.Event()


def _prepare(context: Context, host: Host) -> None:
    """Memory settings as in a drrej process of its own; raise when this is not the client's version."""
    if not _prepared.is_set():
        from drrej.engines.memory import keep_freed_memory, prefer_jemalloc

        keep_freed_memory()
        prefer_jemalloc()
        _prepared.set()
    check_versions(context.versions, versions(), host.name)


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
