"""What an engine is: something that runs passes over the blocks of a dump.

Steps do not ask which one they have: it maps the blocks in order, and may keep rows between passes. `map_blocks` checks
what comes back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Generic, Protocol, TypeVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from drrej.data.dump import Block, Dump, Notes
from drrej.data.files import DumpFile
from drrej.data.problems import Problem, Problems
from drrej.engines import Progress

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class Pass(Struct, frozen=True):
    """What one pass over a dump reads, and what it is called on the progress bar."""

    what: str
    labelled: bool
    keep: Sequence[str] = ()
    bad_rows_allowed: bool = False
    """Whether bad rows are no error: the results say what becomes of them."""
    scores: Sequence[str] = ()
    """Columns besides the scores without which a row cannot be decided, so that it may be left out."""
    written: bool = False
    """Whether the results are written on the way, which keeps a core busy beside those that score."""


class BlockResult(Struct, Generic[R_co], frozen=True):
    """The result of a block (None of one without rows) and what the pass has to know besides."""

    part: DumpFile
    result: R_co | None
    notes: Notes
    problems: Sequence[Problem]
    passed: Sequence[Problem] = ()
    """What is wrong with rows that were let through, or left out."""


Work = Callable[[Block], BlockResult[T]]
"""What is done with a block; it must be possible to send it to another process."""


class Engine(Protocol):
    """How passes are run."""

    @property
    def progress(self) -> Progress:
        """Who is told how far a pass is."""

    def map(self, dump: Dump, run: Pass, work: Work[T]) -> Generator[BlockResult[T]]:
        """What `work` makes of each block, in order, errors in their place. Closing the generator ends the pass."""

    def keeping(self, memory: int | None) -> Engine:
        """The same engine for several passes over the same rows: blocks that fit in `memory` bytes are read once.

        None: a quarter of the memory there is. Where there are workers elsewhere, each has that much.
        """


class PassSummary(Struct):
    """What a pass noticed: counts, also by file, and what is wrong with rows that it let through or left out."""

    notes: Notes = field(default_factory=Notes)
    passed: Problems = field(default_factory=Problems)
    files: dict[str, Notes] = field(default_factory=dict)

    def add(self, notes: Notes, passed: Sequence[Problem], file: str) -> None:
        """Add what was noticed about other rows."""
        self.notes += notes
        self.files[file] = self.files.get(file, Notes()) + notes
        self.passed.add(passed)


def run_block(function: Callable[[Block], T], run: Pass, skip: bool, block: Block) -> BlockResult[T]:
    """The result of a block with all that the pass has to know of it; with `skip`, of its good rows.

    Rows may hold anything. What is not a number shows in results and is reported there: a warning of numpy's, such as
    that on the cast of a signalling NaN, tells nothing that the report does not.
    """
    with np.errstate(invalid="ignore"):
        result = function(block) if block.rows else None  # also beside bad rows: it may find more of them
    if run.bad_rows_allowed:
        return BlockResult(block.part, result, block.notes, (), tuple(block.problems))
    if not skip or not block.bad.any():
        return BlockResult(block.part, result, block.notes, block.problems)
    passed = [problem for problem in block.problems if problem.unusable or problem.column in run.scores]
    wrong = [problem for problem in block.problems if problem not in passed]
    good = replace(block.take(np.flatnonzero(~block.bad)), problems=[])
    with np.errstate(invalid="ignore"):
        result = function(good) if good.rows else None
    return BlockResult(block.part, result, block.notes, wrong, passed)


def map_blocks(
    dump: Dump, function: Callable[[Block], T], run: Pass, engine: Engine, summary: PassSummary | None = None
) -> Iterator[T]:
    """The results of `function` on every block, in order; bad rows raise at the end, counted over the whole dump."""
    for done in run_pass(dump, function, run, engine, PassSummary() if summary is None else summary):
        if done.result is not None:
            yield done.result


def run_pass(
    dump: Dump, function: Callable[[Block], T], run: Pass, engine: Engine, summary: PassSummary
) -> Iterator[BlockResult[T]]:
    """The same with what is known besides; `summary` gets what was noticed. Nothing comes after a bad row."""
    problems = Problems()
    results = engine.map(dump, run, functools.partial(run_block, function, run, dump.options.on_bad_row == "skip"))
    engine.progress.start(run.what, dump.rows)
    try:
        with closing(results):
            for done in results:
                engine.progress.advance(done.notes.rows + done.notes.left_out)
                summary.add(done.notes, done.passed, done.part.name)
                problems.add(done.problems)
                if not problems:
                    yield done
    finally:
        engine.progress.stop()
    problems.raise_first()
