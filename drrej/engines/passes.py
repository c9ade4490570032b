"""Passes as the steps make them: results in order, bad rows counted over the whole dump."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import field
from typing import TypeVar

import numpy as np
import pyarrow as pa

from drrej.data.dump import Block, Dump
from drrej.data.problems import Notes, Problem, Problems
from drrej.engines.protocol import Done, Engine, Mapper, Parts, Pass, Progress, UsedKeys, noted
from drrej.outputs.records import FileCounts, Finished
from drrej.records import dataclass

T = TypeVar("T")


@dataclass
class Noticed:
    """What a pass noticed: counts, and what is wrong with rows that it let through or left out."""

    notes: Notes = field(default_factory=Notes)
    passed: Problems = field(default_factory=Problems)

    def see(self, other: Noticed) -> None:
        """Keep what another pass over the same rows noticed."""
        self.notes.see(other.notes)
        self.passed.see(other.passed)


def map_blocks(
    dump: Dump, function: Callable[[Block], T], run: Pass, engine: Mapper, noticed: Noticed | None = None
) -> Iterator[T]:
    """The results of `function` on every block, in order; bad rows raise at the end, counted over the whole dump."""
    results = engine.map(dump, run, functools.partial(noted, function, run, dump.skip_bad_rows))
    yield from _checked(dump, run, results, engine.progress, noticed)


def write_parts(
    dump: Dump,
    function: Callable[[Block], pa.RecordBatch],
    run: Pass,
    engine: Engine,
    parts: Parts,
    noticed: Noticed | None = None,
) -> list[Finished]:
    """Write what `function` makes of every block to a file per part; bad rows raise at the end."""
    results = engine.write(dump, run, functools.partial(noted, function, run, dump.skip_bad_rows), parts)
    files = []
    for file in _checked(dump, run, results, engine.progress, noticed):
        engine.progress.finished(FileCounts.of(file))
        files.append(file)
    return files


def _checked(
    dump: Dump, run: Pass, results: Generator[Done[T]], progress: Progress, noticed: Noticed | None
) -> Iterator[T]:
    found = Noticed()
    problems = Problems()
    seen = _Seen(dump)
    progress.start(run.what, dump.rows)
    try:
        with closing(results):
            for done in results:
                progress.advance(done.notes.rows + done.notes.left_out)
                found.notes += done.notes
                found.passed.add(done.passed)
                problems.add(done.problems)
                if not run.bad_rows_allowed:
                    problems.add(seen.again(done.keys))
                if done.result is not None and not problems:
                    yield done.result
    finally:
        progress.stop()
    if noticed is not None:
        noticed.see(found)
    problems.raise_first()


class _Seen:
    """Keys of a label join that the dump has used: using one twice is an error."""

    def __init__(self, dump: Dump) -> None:
        self.join = dump.join
        self.used = np.zeros(dump.join.keys.size, bool) if dump.join is not None else None

    def again(self, keys: UsedKeys | None) -> list[Problem]:
        """The rows of a block whose key occurred before."""
        if keys is None or self.used is None or self.join is None:
            return []
        rows = np.flatnonzero(keys.positions >= 0)
        positions = keys.positions[rows]
        first = np.zeros(positions.size, bool)
        first[np.unique(positions, return_index=True)[1]] = True
        repeated = rows[self.used[positions] | ~first]
        self.used[positions] = True
        if not repeated.size:
            return []
        key = f"key {self.join.keys[keys.positions[repeated[0]]]}"
        place = (keys.part, int(keys.row_numbers[repeated[0]]), int(repeated.size))
        return [Problem("a key that occurred before", self.join.on, "a row must have its own key", *place, key)]
