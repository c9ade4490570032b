"""Reading ahead where every request waits for the network: the next row groups are fetched while others are worked on.

A row group of an object takes three requests one after the other (is it still the same, its bytes, is it still the
same), in which nobody computes. So several are read at once by threads of their own, whose rows wait for their turn;
how many depends on how large they are, so that memory does not grow with the dump.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from drrej.data.dump import BLOCK_BYTES, Dump

I = TypeVar("I")  # noqa: E741 - an item

Stream = Callable[[], Iterator[I]]

AHEAD_BYTES = 128 << 20
"""Scores that wait for their turn at most; the bytes that they are made of come on top."""

_MOST = 16


def read_ahead(dump: Dump, streams: Iterable[Stream[I]], rows: int) -> Iterator[Stream[I]]:
    """The same streams of blocks, of about so many rows each; those of objects begin before it is their turn."""
    streams = iter(streams)
    if all(part.uri is None for part in dump.parts):
        return streams
    most = max(2, min(_MOST, AHEAD_BYTES // max(1, rows * dump.classes * 4)))
    return begun(streams, most, max(1, AHEAD_BYTES // most // BLOCK_BYTES))


def begun(streams: Iterator[Stream[I]], most: int, items: int) -> Iterator[Stream[I]]:
    """Streams in order of which `most` are begun at a time, each with so many items read."""
    executor = ThreadPoolExecutor(most)
    waiting: deque[Future[Iterator[I]]] = deque()
    unfinished = True
    try:
        for stream in streams:
            waiting.append(executor.submit(_begin, stream, items))
            if len(waiting) >= most:
                yield _Later(waiting.popleft())
        while waiting:
            yield _Later(waiting.popleft())
        unfinished = False
    finally:
        executor.shutdown(wait=False, cancel_futures=unfinished)


def _begin(stream: Stream[I], items: int) -> Iterator[I]:
    """The items of a stream, the first of them read. What goes wrong comes after those that were read before it."""
    rest = stream()
    read: list[I] = []
    try:
        for item in itertools.islice(rest, items):
            read.append(item)  # one by one, so that none is lost where the next is an error
    except BaseException as error:
        return itertools.chain(read, _raise(error))
    return itertools.chain(read, rest)


def _raise(error: BaseException) -> Iterator[I]:
    raise error
    yield


class _Later(Generic[I]):
    """The items of a stream that somebody has begun to read; nobody waits before the first is asked for."""

    def __init__(self, begun: Future[Iterator[I]]) -> None:
        self._begun = begun

    def __call__(self) -> Iterator[I]:
        yield from self._begun.result()
