"""What an engine is: something that runs passes over the blocks of a dump.

Steps do not ask which one they have. An engine knows three verbs: map the blocks in order, keep rows between passes,
write the parts of a dataset; `passes` checks what comes back. To add one, write a module like `threads` or `dask`; what
runs on a worker of whatever kind is in `worker`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.data.dump import Block, Dump
from drrej.data.problems import Notes, Problem
from drrej.outputs.protocol import Dataset
from drrej.outputs.records import FileCounts, Finished
from drrej.records import dataclass

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class Progress(Protocol):
    """Told how many rows are done; see `cli.console`."""

    def start(self, what: str, rows: int) -> None:
        """A pass over so many rows begins."""

    def advance(self, rows: int) -> None:
        """So many rows more are done."""

    def finished(self, file: FileCounts) -> None:
        """A file is finished."""

    def stop(self) -> None:
        """The pass is over."""


class Silent:
    """No progress shown."""

    def start(self, what: str, rows: int) -> None:
        """Nothing."""

    def advance(self, rows: int) -> None:
        """Nothing."""

    def finished(self, file: FileCounts) -> None:
        """Nothing."""

    def stop(self) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Pass:
    """What one pass over a dump reads, and what it is called on the progress bar."""

    what: str
    labelled: bool
    keep: Sequence[str] = ()
    bad_rows_allowed: bool = False
    """Whether bad rows are no error: the results say what becomes of them."""
    scores: Sequence[str] = ()
    """Columns besides the scores without which a row cannot be decided, so that it may be left out."""


@dataclass(frozen=True)
class UsedKeys:
    """Which keys of a label join the rows of a block have used: (position in the join, row in the file) of each."""

    part: str
    positions: NDArray[np.int64]
    row_numbers: NDArray[np.int64]


@dataclass(frozen=True)
class Done(Generic[R_co]):
    """The result of a block (None of one without rows) and what the pass has to know besides."""

    result: R_co | None
    notes: Notes
    problems: Sequence[Problem]
    keys: UsedKeys | None = None
    passed: Sequence[Problem] = ()
    """What is wrong with rows that were let through, or left out."""


Work = Callable[[Block], Done[T]]
"""What is done with a block; it must be possible to send it to another process."""


@dataclass(frozen=True)
class Parts:
    """A dataset to be written: where, the columns of its files, and all that their content depends on but the input."""

    dataset: Dataset
    schema: pa.Schema
    recipe: str


class Mapper(Protocol):
    """Maps blocks: an engine, or an engine that keeps rows between passes."""

    @property
    def progress(self) -> Progress:
        """Who is told how far a pass is."""

    def map(self, dump: Dump, run: Pass, work: Work[T]) -> Generator[Done[T]]:
        """What `work` makes of each block, in order, errors in their place. Closing the generator ends the pass."""


class Engine(Mapper, Protocol):
    """How passes are run."""

    def keeping(self, memory: int | None) -> AbstractContextManager[Mapper]:
        """The same engine for several passes over the same rows: blocks that fit in `memory` bytes are read once.

        A block may then hold the rows of several small row groups. None: a quarter of the memory there is. Where there
        are workers, each has that much.
        """

    def dataset(self, target: str, force: bool, update: bool = False) -> Dataset:
        """A directory for `write`, of the kind that fits the target and those who write."""

    def write(self, dump: Dump, run: Pass, work: Work[pa.RecordBatch], parts: Parts) -> Generator[Done[Finished]]:
        """Write what `work` makes of each block to a file per part of the dump; tell what is finished.

        Parts of which `parts.dataset` has the same mask already come first, the others in order.
        """


def noted(function: Callable[[Block], T], run: Pass, skip: bool, block: Block) -> Done[T]:
    """The result of a block with all that the pass has to know of it; with `skip`, of its good rows.

    Rows may hold anything. What is not a number shows in results and is reported there: a warning of numpy's, such as
    that on the cast of a signalling NaN, tells nothing that the report does not.
    """
    with np.errstate(invalid="ignore"):
        result = function(block) if block.rows else None  # also beside bad rows: it may find more of them
    keys = None if block.joined is None else UsedKeys(block.part.name, block.joined, block.row_numbers())
    if run.bad_rows_allowed:
        return Done(result, block.notes, (), keys, tuple(block.problems))
    if not skip or not block.bad.any():
        return Done(result, block.notes, block.problems, keys)
    passed = [problem for problem in block.problems if problem.unusable or problem.column in run.scores]
    wrong = [problem for problem in block.problems if problem not in passed]
    good = block.usable()
    with np.errstate(invalid="ignore"):
        result = function(good) if good.rows else None
    return Done(result, block.notes, wrong, keys, passed)
