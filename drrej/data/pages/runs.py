"""Levels and dictionary indices: runs of one value, or of values packed in groups of eight (RLE / bit-packing hybrid).

In a dump every list has K values. Its levels are then a known sequence, and all that is asked of them is whether they
say that sequence. An encoder of a periodic sequence comes back to the same bytes after a few rows, so a few runs are
read one by one and the rest is compared as bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drrej.data.pages.storage import fresh
from drrej.data.pages.thrift import UnfitError, varint

_MOST_RUNS = 1 << 14
_SPARE_RUNS = 64
_FEWEST_INDICES = 1 << 7  # of an average run: shorter ones, of values that repeat now and then, are quicker in Arrow
_WIDEST_INDEX = 25  # an index and the up to seven bits before it fit 32 bits
_SPARE = 3  # bytes after the last index, as four bytes are read for each


class Levels(NamedTuple):
    """A known sequence of levels: `start` at the positions 0, period, 2 period, ..., `inside` between them."""

    period: int
    start: int
    inside: int
    width: int
    """Bits of a level."""

    def check(self, data: bytes, count: int, first: int) -> None:
        """Raise `UnfitError` (or IndexError) unless `data` says the `count` levels from position `first` on."""
        at, position, end = 0, first, first + count
        mark = (at, position)
        for number in range(_MOST_RUNS):
            if position >= end:
                break
            if at > mark[0] and (position - mark[1]) % self.period == 0:
                # The runs since the mark covered whole periods. Where their bytes come again they say the same again.
                length, levels = at - mark[0], position - mark[1]
                times = _repetitions(data, mark[0], at, min((end - position) // levels, (len(data) - at) // length))
                at, position = at + times * length, position + times * levels
                mark = (at, position)
                if times:
                    continue
            elif number & (number - 1) == 0:  # a power of two: as the marks grow apart, one sees the whole cycle
                mark = (at, position)
            at, position = self._run(data, at, position, end)
        if position < end or at != len(data):
            raise UnfitError("levels")

    def _run(self, data: bytes, at: int, position: int, end: int) -> tuple[int, int]:
        """Where the run at byte `at` ends, which must say the levels from `position` on."""
        head, at = varint(data, at)
        length, place, left = head >> 1, position % self.period, end - position
        if head & 1:
            stop = at + length * self.width
            fits = length > 0 and stop <= len(data)
            if not fits or not _same_bits(data[at:stop], _packed(self, place), min(length * 8, left) * self.width):
                raise UnfitError("levels")
            return stop, position + length * 8
        same = left if self.start == self.inside else self.period - place if place else 1
        length = min(length, left)
        if not 0 < length <= same or data[at] != (self.inside if place else self.start):
            raise UnfitError("levels")
        return at + 1, position + length


@lru_cache(maxsize=64)
def _packed(levels: Levels, place: int) -> bytes:
    """Eight periods of the sequence from `place` on, packed: whole bytes that come again and again."""
    values = np.full(8 * levels.period, levels.inside, np.uint8)
    values[-place % levels.period :: levels.period] = levels.start
    bits = (values[:, None] >> np.arange(levels.width, dtype=np.uint8)) & 1
    return np.packbits(bits, bitorder="little").tobytes()


def _same_bits(data: bytes, expected: bytes, bits: int) -> bool:
    """Whether the first `bits` of `data` are those of `expected`, repeated."""
    whole, rest = divmod(bits, 8)
    times, part = divmod(whole, len(expected))
    if data[:whole] != expected * times + expected[:part]:
        return False
    return not rest or not (data[whole] ^ expected[part]) & ((1 << rest) - 1)


def _repetitions(data: bytes, earlier: int, at: int, most: int) -> int:
    """How often, up to `most`, the bytes from `earlier` to `at` come again from `at` on; quick if not often."""
    length, size = at - earlier, 1
    while size < most and data[at : at + size * length] == data[earlier : earlier + size * length]:
        size *= 2
    stop = min(size, most) * length
    again, original = data[at : at + stop], data[earlier : earlier + stop]
    if again == original:
        return min(size, most)
    differ = np.frombuffer(again, np.uint8) != np.frombuffer(original, np.uint8)
    return int(differ.argmax()) // length


def indices(data: bytes, count: int) -> NDArray[np.uint32]:
    """The `count` indices that are the values of a page with a dictionary: a byte with their width, then runs."""
    width, at, done = data[0], 1, 0
    if not 0 < width <= _WIDEST_INDEX:
        raise UnfitError("width of indices")
    everything = np.frombuffer(data, np.uint8)
    packed: list[bytes] = []
    runs: list[tuple[int, int]] = []  # length and value; -1 is for packed values
    for _ in range(_SPARE_RUNS + count // _FEWEST_INDICES):
        if done >= count:
            break
        begin = at
        head, at = varint(data, at)
        length = head >> 1
        stop = at + (length * width if head & 1 else (width + 7) // 8)
        if not length or stop > len(data):
            raise UnfitError("indices")
        if head & 1:
            length *= 8
            some = data[at:stop]
            if at == begin + 1 and (again := _alike(everything, begin, stop, (count - done - 1) // length)):
                # Writers pack long stretches in runs of one length: those are taken together.
                step = stop - begin
                stop += again * step
                some = everything[begin:stop].reshape(-1, step)[:, 1:].tobytes()
                length *= again + 1
            packed.append(some)
        length = min(length, count - done)
        runs.append((length, -1 if head & 1 else int.from_bytes(data[at:stop], "little")))
        done, at = done + length, stop
    if done < count or at != len(data):
        raise UnfitError("indices")
    unpacked = _unpack(b"".join([*packed, bytes(_SPARE)]), width)
    if len(packed) == len(runs):
        return unpacked[:count]
    result = np.empty(count, np.uint32)
    done = taken = 0
    for length, value in runs:
        result[done : done + length] = unpacked[taken : taken + length] if value < 0 else value
        done, taken = done + length, taken + (length if value < 0 else 0)
    return result


def _alike(data: NDArray[np.uint8], begin: int, stop: int, most: int) -> int:
    """How many runs, up to `most`, follow the one from `begin` to `stop` and begin with the same byte as it."""
    step = stop - begin
    heads = data[stop : stop + min(most, (data.size - stop) // step) * step : step]
    other = np.flatnonzero(heads != data[begin])
    return int(other[0]) if other.size else heads.size


def _unpack(data: bytes, width: int) -> NDArray[np.uint32]:
    """Numbers of `width` bits, packed in groups of eight, which are `width` bytes each, before some spare bytes."""
    groups = (len(data) - _SPARE) // width
    numbers = fresh(groups * 8 * 4).view(np.uint32).reshape(groups, 8)
    for number in range(8 if groups else 0):
        byte, bit = divmod(number * width, 8)
        words: NDArray[np.uint32] = np.ndarray((groups,), "<u4", data, byte, (width,))
        np.bitwise_and(words >> np.uint32(bit), np.uint32((1 << width) - 1), out=numbers[:, number])
    return numbers.reshape(-1)
