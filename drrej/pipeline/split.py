"""One dump as several: rows to calibrate and fit, rows to choose the threshold on, rows to test, by what they hold."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drrej.core.reuse import Keys
from drrej.core.split import Limits, copies, find_limits, seeded, split_keys
from drrej.data.dump import Block
from drrej.data.labels import sortable_keys
from drrej.data.problems import Notes, Problems
from drrej.engines.protocol import Pass
from drrej.errors import DumpError, OptionError
from drrej.pipeline.collect import collect
from drrej.pipeline.groups import check_columns
from drrej.pipeline.source import Source, without_bad_files
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
        return np.flatnonzero(parts == self.number)


def why_no_sample(parts: Sequence[Source]) -> str | None:
    """Why parts of a dump are no random samples of its rows, if they are not: then no guarantee would hold."""
    portions = [part.options.split for part in parts if isinstance(part.options.split, SplitPart)]
    rows = sum(portion.rows for portion in portions)
    if not portions or portions[0].copies <= MOST_COPIES * rows:
        return None
    return (
        f"{portions[0].copies} of {rows} rows have the same scores as another row; they stay together, so the parts "
        "are no random samples and nothing can be certified on them; drop the repeats, or if they are different rows "
        "name a column that tells them apart, `group=ID`"
    )


@without_bad_files
def split(source: Source, options: SplitOptions | None = None) -> list[Source]:
    """The parts of a labelled dump, each to be read like a dump of its own.

    One pass, which keeps 16 bytes a row. A part is the same whatever the order, layout and number of files; rows with
    the same scores stay together.
    """
    options = options or SplitOptions()
    if source.options.split is not None:
        raise OptionError("this is a part of a dump already; divide the dump into more parts at once")
    if source.options.on_bad_row == "skip":
        raise OptionError("`on_bad_row=skip`: rows without usable scores cannot be divided; drop them from the dump")
    dump = source.open(None, labelled=True)
    check_columns(dump, () if options.group is None else (options.group,), "`group`")
    run = Pass("dividing", labelled=True, keep=() if options.group is None else (options.group,))
    rows = collect(source, dump, functools.partial(_look, seed=options.seed, group=options.group), run)
    keys, strata = rows["key"], rows["label"] if options.group is None else None
    alike = copies(keys) if options.group is None else 0
    try:
        limits = find_limits(keys, strata, options.shares, options.plain, options.seed)
    except OptionError as error:
        raise DumpError(f"{dump.parts[0].name}: {error}") from None
    counts = np.bincount(limits.part_of(keys, strata), minlength=len(options.shares))
    if not counts.all():
        raise DumpError(f"{dump.parts[0].name}: {keys.size} rows are too few to divide into {counts.size} parts")
    parts = [
        SplitPart(limits, number, int(rows), options.seed, options.group, alike)
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


def _look(block: Block, seed: int, group: str | None) -> dict[str, NDArray[Any]]:
    assert block.labels is not None
    return {"key": _keys(block, seed, group), "label": block.labels}


def _keys(block: Block, seed: int, group: str | None) -> Keys:
    """A number for each row: of its scores, or of its group."""
    if group is None:
        return split_keys(block.scores, seed)
    values, missing = sortable_keys(block.columns.column(group), f"{block.part.name}: column '{group}'")
    block.report(missing, "no group (null)", "fill it in", column=group)
    distinct, places = np.unique(np.array([str(value) for value in values], object), return_inverse=True)
    hashes = [int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") for name in distinct]
    return seeded(np.array(hashes, np.uint64)[places], seed)
