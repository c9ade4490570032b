"""One dump as several: rows to calibrate and fit, rows to choose the threshold on, rows to test, by what they hold."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from drrej.core.reuse import Keys, copy_keys
from drrej.core.split import Limits, are_examples, copies, find_limits, seeded, split_keys
from drrej.core.types import Booleans, Integers
from drrej.data.dump import Block
from drrej.data.labels import sortable_keys
from drrej.data.problems import Notes, Problems
from drrej.engines.protocol import Pass
from drrej.errors import DumpError, OptionError
from drrej.pipeline.groups import check_columns
from drrej.pipeline.passes import map_blocks
from drrej.pipeline.source import Source, no_labels, without_bad_files
from drrej.records import dataclass

DEFAULT_SHARES = (40.0, 30.0, 30.0)
"""To calibrate and fit, to choose, to test."""

MOST_COPIES = 0.01
"""The share of repeated rows up to which parts count as random samples."""


@dataclass(frozen=True)
class SplitOptions:
    """How rows are divided: shares in any unit, a seed, and a column whose values stay together.

    Each row goes by its content. The part number `plain` is a simple random sample; the others are stratified by label,
    unless there are groups.
    """

    shares: Sequence[float] = DEFAULT_SHARES
    plain: int = 1
    seed: int = 0
    group: str | None = None

    def __post_init__(self) -> None:
        given = ",".join(f"{share:g}" for share in self.shares)
        if len(self.shares) < 2 or not all(math.isfinite(share) and share > 0 for share in self.shares):
            raise OptionError(f"`split={given}`: give the share of each part, numbers above 0")
        if not 0 <= self.plain < len(self.shares):
            raise OptionError(f"`plain={self.plain}`: it must be the number of a part")
        if not 0 <= self.seed < 1 << 63:
            raise OptionError(f"`seed={self.seed}`: it must be a whole number from 0 up")


@dataclass(frozen=True, eq=False)
class SplitPart:
    """The rows of one part; see `drrej.data.dump`."""

    limits: Limits
    number: int
    rows: int
    seed: int
    group: str | None = None
    copies: int = 0
    """Rows of the whole dump that have the same scores as another one."""
    apart: Mapping[str, _Apart] | None = None
    """By file, where copies that are different examples go; None: copies stay together."""

    @property
    def columns(self) -> Sequence[str]:
        """The column of groups."""
        return () if self.group is None else (self.group,)

    @property
    def by_label(self) -> bool:
        """Whether labels must be read to tell."""
        return self.limits.by_label

    def chosen(self, block: Block) -> NDArray[np.intp]:
        """The places of the rows in a block."""
        keys = _keys(block, self.seed, self.group)
        parts = self.limits.part_of(keys, block.labels if self.by_label else None)
        if self.apart is not None and block.part.name in self.apart:
            parts = self.apart[block.part.name].instead(parts, block.row_numbers())
        return np.flatnonzero(parts == self.number)


@dataclass(frozen=True, eq=False)
class _Apart:
    """Some rows of a file, ascending, and the part of each."""

    rows: Integers
    parts: NDArray[np.uint8]

    def instead(self, parts: Integers, rows: Integers) -> Integers:
        """The parts of the rows of a block, with those that are known here."""
        place = np.minimum(np.searchsorted(self.rows, rows), self.rows.size - 1)
        found: Integers = np.where(self.rows[place] == rows, self.parts[place], parts)
        return found


def why_no_sample(parts: Sequence[Source]) -> str | None:
    """Why parts of a dump are no random samples of its rows, if they are not: then no guarantee would hold."""
    portions = [part.options.split for part in parts if isinstance(part.options.split, SplitPart)]
    rows = sum(portion.rows for portion in portions)
    if not portions or portions[0].apart is not None or portions[0].copies <= MOST_COPIES * rows:
        return None
    return (
        f"{portions[0].copies} of {rows} rows have the same scores as another row, and always the same label: they "
        "seem to be repeats, which stay together, so the parts are no random samples and nothing can be certified on "
        "them; drop the repeats, or if they are different rows name a column that tells them apart, `group=ID`"
    )


def copies_apart(parts: Sequence[Source]) -> int:
    """How many rows have the same scores as another one, where they were divided one by one; else 0."""
    portions = [part.options.split for part in parts if isinstance(part.options.split, SplitPart)]
    return portions[0].copies if portions and portions[0].apart is not None else 0


@dataclass(frozen=True)
class _Seen:
    file: str
    rows: Integers
    keys: Keys
    labels: Integers


@without_bad_files
def split(source: Source, options: SplitOptions | None = None) -> list[Source]:
    """The parts of a labelled dump, each to be read like a dump of its own.

    One pass, which keeps 24 bytes a row. A part is the same whatever the order, layout and number of files; where
    several rows are equal, it holds as many of them.
    """
    options = options or SplitOptions()
    if source.options.split is not None:
        raise OptionError("this is a part of a dump already; divide the dump into more parts at once")
    if source.options.on_bad_row == "skip":
        raise OptionError("`on_bad_row=skip`: rows without usable scores cannot be divided; drop them from the dump")
    dump = source.open(None, labelled=True)
    check_columns(dump, () if options.group is None else (options.group,), "`group`")
    run = Pass("dividing", labelled=True, keep=() if options.group is None else (options.group,))
    look = functools.partial(_look, seed=options.seed, group=options.group)
    seen = list(map_blocks(source, dump, look, run))
    if not seen:
        raise no_labels(dump)
    keys, labels = (np.concatenate([getattr(block, name) for block in seen]) for name in ("keys", "labels"))
    strata = labels if options.group is None else None
    alike = copies(keys) if options.group is None else 0
    by_content, apart = keys, None
    if alike and are_examples(keys, labels):
        keys = _spread(keys, labels)
    try:
        limits = find_limits(keys, strata, options.shares, options.plain, options.seed)
    except OptionError as error:
        raise DumpError(f"{dump.parts[0].name}: {error}") from None
    places = limits.part_of(keys, strata)
    counts = np.bincount(places, minlength=len(options.shares))
    if not counts.all():
        raise DumpError(f"{dump.parts[0].name}: {keys.size} rows are too few to divide into {counts.size} parts")
    if keys is not by_content:
        apart = _apart(seen, keys != by_content, places)
    parts = [
        SplitPart(limits, number, int(rows), options.seed, options.group, alike, apart)
        for number, rows in enumerate(counts.tolist())
    ]
    return [
        replace(
            source,
            options=replace(source.options, split=part),
            notes=Notes(),
            passed=Problems(),
            found=list(source.found),
        )
        for part in parts
    ]


def _look(block: Block, seed: int, group: str | None) -> _Seen:
    assert block.labels is not None
    return _Seen(block.part.name, block.row_numbers(), _keys(block, seed, group), block.labels)


def _spread(keys: Keys, labels: Integers) -> Keys:
    """Keys of their own for rows that have the key of another one; the others keep theirs."""
    _, place, sizes = np.unique(keys, return_inverse=True, return_counts=True)
    copied = sizes[place] > 1
    spread = keys.copy()
    spread[copied] = copy_keys(keys[copied], labels[copied].astype(np.uint64))
    return spread


def _apart(seen: Sequence[_Seen], moved: Booleans, parts: Integers) -> dict[str, _Apart]:
    """Where the rows that have keys of their own go, by file."""
    numbers = np.concatenate([block.rows for block in seen])
    files = np.repeat(np.arange(len(seen)), [block.rows.size for block in seen])
    names = sorted({block.file for block in seen})
    of_block = np.array([names.index(block.file) for block in seen])[files]
    found = {}
    for number, name in enumerate(names):
        rows = np.flatnonzero(moved & (of_block == number))
        rows = rows[np.argsort(numbers[rows])]
        if rows.size:
            found[name] = _Apart(numbers[rows], parts[rows].astype(np.uint8))
    return found


def _keys(block: Block, seed: int, group: str | None) -> Keys:
    """A number for each row: of its scores, or of its group."""
    if group is None:
        return split_keys(block.scores, seed)
    values, missing = sortable_keys(block.columns.column(group), f"{block.part.name}: column '{group}'")
    block.report(missing, "no group (null)", "fill it in", column=group)
    distinct, places = np.unique(np.array([str(value) for value in values], object), return_inverse=True)
    hashes = [int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") for name in distinct]
    return seeded(np.array(hashes, np.uint64)[places], seed)
