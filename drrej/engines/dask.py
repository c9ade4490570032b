"""The engine of a Dask cluster: the same passes on its workers.

Tasks are cut from the dump and sent to the workers, see `tasks` and `worker`; their results are taken in order, so
documents and masks have the same bits. A lost worker's tasks are run again by Dask; nothing lives on a worker that
cannot be made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any, TypeVar

from drrej.data.dump import Dump
from drrej.engines import tasks
from drrej.engines.dask_cluster import Cluster
from drrej.engines.memory import available_memory
from drrej.engines.protocol import BlockResult, Mapper, Pass, Progress, Silent, Work
from drrej.engines.worker import Answer, Context, Host, Keep, Task, Token, run_task, versions
from drrej.records import dataclass

T = TypeVar("T")


@dataclass(frozen=True)
class DaskEngine:
    """Passes on the workers of a cluster."""

    cluster: Cluster
    progress: Progress = field(default_factory=Silent)

    def map(self, dump: Dump, run: Pass, work: Work[T]) -> Generator[BlockResult[T]]:
        """What `work` makes of each block, in order."""
        context = Context(replace(dump, row_groups=()), run, work, versions())
        yield from self._map(dump, context, {})

    def _map(self, dump: Dump, context: Context, places: dict[Any, str]) -> Generator[BlockResult[Any]]:
        """`places` says which worker to prefer for a task: the one that has kept its blocks."""
        threads = self.cluster.threads
        cut = tasks.cut(dump, threads, tasks.TASK_BYTES)
        token = None if context.keep is None else context.keep.token
        bundles = list(tasks.bundles([places.get((token, task)) for task in cut], threads))
        sent = ((tuple(cut[number] for number in bundle.numbers), bundle.place) for bundle in bundles)
        answers: Generator[list[Answer]] = self.cluster.in_order(_run_tasks, context, sent)
        arrived: dict[int, Answer] = {}
        number = 0
        with contextlib.closing(answers):
            for bundle, together in zip(bundles, answers, strict=True):
                arrived |= zip(bundle.numbers, together, strict=True)
                while number in arrived:
                    answer = arrived.pop(number)
                    if token is not None:
                        places[token, cut[number]] = answer.worker
                    yield from answer.results
                    if answer.error is not None:
                        raise answer.error
                    number += 1

    @contextmanager
    def keeping(self, memory: int | None) -> Iterator[Mapper]:
        """Blocks are kept by the workers, each as far as they fit."""
        yield _Keeping(self, memory)
        self.cluster.forget()  # after an error the connection's end does it

    def __reduce__(self) -> Any:
        """A function for the workers must not carry the connection along."""
        raise TypeError("an engine cannot be sent to a worker")


@dataclass(frozen=True)
class _Keeping:
    """Passes for which workers keep their blocks."""

    engine: DaskEngine
    memory: int | None
    places: dict[Any, str] = field(default_factory=dict)

    @property
    def progress(self) -> Progress:
        return self.engine.progress

    def map(self, dump: Dump, run: Pass, work: Work[T]) -> Generator[BlockResult[T]]:
        columns = hashlib.sha256(pickle.dumps((run.labelled, run.keep))).hexdigest()
        keep = Keep(Token(self.engine.cluster.session, dump.opened, columns), self.memory)
        context = Context(replace(dump, row_groups=()), run, work, versions(), keep)
        yield from self.engine._map(dump, context, self.places)


def _run_tasks(context: Context, bundle: Sequence[Task]) -> list[Answer]:
    return [run_task(context, task, _host()) for task in bundle]


def _host() -> Host:
    from distributed import get_worker

    worker = get_worker()
    limit = worker.memory_manager.memory_limit
    return Host(str(worker.address), int(limit) if limit else available_memory())
