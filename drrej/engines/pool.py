"""One pool of threads: items of several streams are worked on at once and handed over in order.

A stream is sequential (decoding a row group is), so it has one reader at a time; a worker takes the next item of the
earliest stream whose reader is free, and works on it while others read on. That keeps every core busy with many short
streams as well as with a single long one. The work in flight is bounded, so memory does not grow.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Generic, TypeVar

I = TypeVar("I")  # noqa: E741 - an item
T = TypeVar("T")

_AHEAD = 8
"""Items per worker that may be under way or wait for their turn: enough to go on while a row group is written."""


def in_order(streams: Iterable[Callable[[], Iterator[I]]], work: Callable[[I], T], workers: int) -> Generator[T]:
    """Results in the order of streams and items. A worker's exception is raised in its item's place."""
    if workers == 1:
        for stream in streams:
            for item in stream():
                yield work(item)
        return
    pool = _Pool(streams, work, workers)
    threads = [threading.Thread(target=pool.run, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        yield from pool.results()
    finally:
        pool.stop()
        for thread in threads:
            thread.join()


class _Reader(Generic[I]):
    """The items of one stream: read by one worker at a time, handed out with their numbers."""

    def __init__(self, items: Iterator[I]) -> None:
        self.items = items
        self.busy = False
        self.started = 0
        self.consumed = 0
        self.finished: dict[int, object] = {}
        self.exhausted = False


class _Pool(Generic[I, T]):
    def __init__(self, streams: Iterable[Callable[[], Iterator[I]]], work: Callable[[I], T], workers: int) -> None:
        self.waiting = iter(streams)
        self.work = work
        self.workers = workers
        self.readers: list[_Reader[I]] = []  # open streams, earliest first
        self.in_flight = 0
        self.none_left = False
        self.stopped = False
        self.changed = threading.Condition()

    def run(self) -> None:
        """A worker: take a reader, read one item, give the reader back, work."""
        while (reader := self._take()) is not None:
            number = reader.started
            outcome: object
            try:
                item = next(reader.items, None)
            except BaseException as error:
                self._finish(reader, number, error)  # before the reader counts as exhausted, or it would be lost
                self._give_back(reader, exhausted=True)
                continue
            self._give_back(reader, exhausted=item is None)
            if item is None:
                continue
            try:
                outcome = (self.work(item),)
            except BaseException as error:
                outcome = error
            self._finish(reader, number, outcome)

    def _take(self) -> _Reader[I] | None:
        with self.changed:
            while not self.stopped:
                room = self.in_flight < _AHEAD * self.workers
                for position, reader in enumerate(self.readers):
                    # The item that everyone waits for may always be read, or a full house would never empty.
                    awaited = position == 0 and reader.started == reader.consumed
                    if not reader.busy and not reader.exhausted and (room or awaited):
                        reader.busy = True
                        self.in_flight += 1
                        return reader
                if room and len(self.readers) <= self.workers and not self.none_left:
                    stream = next(self.waiting, None)
                    if stream is None:
                        self.none_left = True
                        self.changed.notify_all()
                        continue
                    reader = _Reader(stream())
                    reader.busy = True
                    self.in_flight += 1
                    self.readers.append(reader)
                    return reader
                if self.none_left and all(reader.exhausted for reader in self.readers):
                    return None
                self.changed.wait()
        return None

    def _give_back(self, reader: _Reader[I], exhausted: bool) -> None:
        with self.changed:
            reader.busy = False
            reader.exhausted = exhausted
            if exhausted:
                self.in_flight -= 1
            else:
                reader.started += 1
            self.changed.notify_all()

    def _finish(self, reader: _Reader[I], number: int, outcome: object) -> None:
        with self.changed:
            reader.finished[number] = outcome
            self.changed.notify_all()

    def results(self) -> Iterator[T]:
        """Wait for item after item."""
        while (outcome := self._next_result()) is not None:
            if isinstance(outcome, BaseException):
                raise outcome
            assert isinstance(outcome, tuple)
            yield outcome[0]

    def _next_result(self) -> object | None:
        with self.changed:
            while True:
                if self.readers:
                    first = self.readers[0]
                    if first.consumed in first.finished:
                        outcome = first.finished.pop(first.consumed)
                        first.consumed += 1
                        self.in_flight -= 1
                        self.changed.notify_all()
                        return outcome
                    if first.exhausted and first.consumed == first.started:
                        self.readers.pop(0)
                        self.changed.notify_all()
                        continue
                elif self.none_left:
                    return None
                self.changed.wait()

    def stop(self) -> None:
        """Let the workers end."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()
