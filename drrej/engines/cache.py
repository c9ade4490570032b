"""Blocks kept between the passes of one command, as far as they fit; the others are read again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drrej.data.dump import Block, join_blocks

SMALL = 1 << 17
"""Logits below which a block is joined with its neighbours: a pass over thousands of tiny ones is all overhead."""


class BlockCache:
    """Blocks by key, within a number of bytes; may be used by several threads."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[list[Block], int]] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Memory that the blocks hold."""
        return self._bytes

    def blocks(
        self, key: Hashable, read: Callable[[], Iterator[Block]], columns: Sequence[str], memory: int
    ) -> Iterator[Block]:
        """The blocks of a key: kept ones, else those read, which are kept (with `columns`) if all of them fit."""
        found = self._kept.get(key)
        if found is not None:
            yield from map(_copy, found[0])
            return
        kept: list[Block] | None = []
        size = 0
        try:
            for block in joined(read()):
                if kept is not None:
                    slim = _slim(block, columns)
                    if self._reserve(held_bytes(slim), memory):
                        kept.append(slim)
                        size += held_bytes(slim)
                    else:
                        kept = None
                yield block
            if kept is not None and self._store(key, kept, size):
                size = 0
        finally:
            self._release(size)

    def drop(self, unwanted: Callable[[Any], bool]) -> None:
        """Forget the blocks of some keys."""
        with self._lock:
            for key in [key for key in self._kept if unwanted(key)]:
                self._bytes -= self._kept.pop(key)[1]

    def _reserve(self, size: int, memory: int) -> bool:
        with self._lock:
            fits = self._bytes + size <= memory
            self._bytes += size if fits else 0
        return fits

    def _store(self, key: Hashable, blocks: list[Block], size: int) -> bool:
        with self._lock:
            return self._kept.setdefault(key, (blocks, size))[0] is blocks

    def _release(self, size: int) -> None:
        with self._lock:
            self._bytes -= size


def joined(blocks: Iterable[Block]) -> Iterator[Block]:
    """The same rows in fewer blocks: small neighbours of one part are joined."""
    waiting: list[Block] = []
    size = 0
    for block in blocks:
        if waiting and (size + block.scores.size > SMALL or block.part != waiting[0].part):
            yield _one(waiting)
            waiting, size = [], 0
        waiting.append(block)
        size += block.scores.size
    if waiting:
        yield _one(waiting)


def _one(blocks: list[Block]) -> Block:
    return blocks[0] if len(blocks) == 1 else join_blocks(blocks)


def _slim(block: Block, columns: Sequence[str]) -> Block:
    """What a later pass needs, as it was read: whoever works on the block may note bad rows in it."""
    return _copy(replace(block, columns=block.columns.select(list(dict.fromkeys(columns)))))


def _copy(block: Block) -> Block:
    return replace(block, bad=block.bad.copy(), problems=list(block.problems))


def held_bytes(block: Block) -> int:
    """Memory that a block holds: whole buffers, also where it uses a part of them."""
    arrays = [block.scores, block.bad, block.labels, block.kept]
    columns: int = block.columns.get_total_buffer_size()
    return columns + sum(_array_bytes(array) for array in arrays if array is not None)


def _array_bytes(array: NDArray[Any]) -> int:
    owner: Any = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    size = getattr(owner.base, "get_total_buffer_size", None)  # of Arrow's array, where this is a view of one
    return int(size()) if size is not None else int(owner.nbytes)
