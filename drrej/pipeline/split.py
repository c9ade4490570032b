"""One dump as several: rows to calibrate and fit, rows to choose the threshold on, rows to test, by what they hold.

Each row has a key, a hash of its content and a seed, so the parts are the same in any order, layout and block size.
With `group` it is a hash of the group, so that rows of one group stay together. So do rows with the same scores:
repeats of one row would otherwise be in a part that another part has seen.

**One part is plain**: the rows with the smallest keys. Keys are as good as random, so given the number of its rows it
is a simple random sample of all rows, and a guarantee is exact on it, unless many rows are repeats.

**The other parts are stratified** by label: each label's rows are divided in the same proportion, rounded by systematic
sampling. Labels stand in a random order on one scale, and every part's share of the scale is within one row, both of a
label and of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from drrej.core.reuse import LOOKED_AT, MOST_REPEATS, Keys, coarse_keys, content_keys, key_limit, mixed, repeated_rows
from drrej.core.types import Integers
from drrej.data.dump import Block, Notes
from drrej.data.problems import Problems
from drrej.engines.protocol import Pass
from drrej.errors import DumpError, OptionError
from drrej.pipeline.collect import collect
from drrej.pipeline.score import check_columns, copy_keys, example_keys
from drrej.pipeline.source import Source, without_bad_files

DEFAULT_SHARES = (40.0, 30.0, 30.0)
"""To calibrate and fit, to choose, to test, where nothing can be certified."""

TEST_SHARE = 0.3

LEAST_FITTED = 50
"""Rows that calibrate and fit have, if that is no more than half."""


def fit_share(rows: int) -> float:
    """Of the rows that fit and certify, the share that fits: a fifth, and more of few rows; see docs/promises.md.

    >>> [fit_share(rows) for rows in (60, 200, 10_000)]
    [0.5, 0.25, 0.2]
    """
    return max(0.2, min(0.5, LEAST_FITTED / rows))


class SplitOptions(Struct, frozen=True):
    """How rows are divided: shares in any unit, a seed, and a column whose values stay together.

    Without shares 30 % of the rows test, and of the others as many fit as `fit_share` says.

    Each row goes by its content. The part number `plain` is a simple random sample; the others are stratified by label,
    unless there are groups.
    """

    shares: Sequence[float] | None = DEFAULT_SHARES
    plain: int = 1
    seed: int = 0
    group: str | None = None

    def __post_init__(self) -> None:
        shares = DEFAULT_SHARES if self.shares is None else self.shares
        given = ",".join(f"{share:g}" for share in shares)
        if len(shares) < 2 or not all(math.isfinite(share) and share > 0 for share in shares):
            raise OptionError(f"`split={given}`: give the share of each part, numbers above 0")
        if not 0 <= self.plain < len(shares):
            raise OptionError(f"`plain={self.plain}`: it must be the number of a part")
        if not 0 <= self.seed < 1 << 63:
            raise OptionError(f"`seed={self.seed}`: it must be a whole number from 0 up")


class SplitPart(Struct, frozen=True, eq=False):
    """The rows of one part, by number; see `drrej.data.dump`.

    Keys up to `plain_limit` are of the part `plain`; the others, in order, end at `limits` (labels x parts - 2).
    """

    plain: int
    plain_limit: np.uint64
    limits: Keys
    number: int = 0
    rows: int = 0
    seed: int = 0
    group: str | None = None
    copies: int = 0
    """Rows of the whole dump that have the same scores as another one, as far as near copies are found."""
    shared: bool = False
    """Whether some group has several rows."""

    @property
    def columns(self) -> Sequence[str]:
        """The column of groups."""
        return () if self.group is None else (self.group,)

    @property
    def by_label(self) -> bool:
        """Whether labels must be read to tell."""
        return bool(self.limits.shape[0] > 1 and self.limits.shape[1] > 0)

    def part_of(self, keys: Keys, labels: Integers | None = None) -> Integers:
        """The number of each row's part."""
        ends = self.limits[np.zeros(keys.size, np.int64) if labels is None else labels]
        number = np.count_nonzero(keys[:, None] > ends, axis=1)
        number += number >= self.plain  # of all parts
        found: Integers = np.where(keys <= self.plain_limit, self.plain, number)
        return found

    def chosen(self, block: Block) -> NDArray[np.intp]:
        """The places of the rows in a block."""
        parts = self.part_of(_keys(block, self.seed, self.group), block.labels if self.by_label else None)
        return np.flatnonzero(parts == self.number)


def why_no_sample(parts: Sequence[Source]) -> str | None:
    """Why parts of a dump are no random samples of its rows, if they are not: then no guarantee would hold."""
    portions = [part.options.split for part in parts if isinstance(part.options.split, SplitPart)]
    rows = sum(portion.rows for portion in portions)
    if not portions or portions[0].copies <= MOST_REPEATS * rows:
        return None
    return (
        f"{portions[0].copies} of {rows} rows have the same scores as another row; they stay together, so the parts "
        "are not random samples and nothing can be certified on them; drop the repeats, or if they are different "
        "rows name a column that tells them apart, `group=ID`"
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
    limit = key_limit(LOOKED_AT / dump.rows)

    def of_block(block: Block) -> dict[str, Any]:
        keys = _keys(block, options.seed, options.group)
        if options.group is not None or block.input == "scores":
            return {"key": keys, "label": block.labels}
        scores = block.scores
        told = coarse_keys(scores, scores.argmax(axis=1), block.input == "probs") if not block.binary else keys
        return {"key": keys, "label": block.labels, "copies": [copy_keys(block, rows=told <= limit)]}

    found = collect(source, dump, of_block, run)
    keys, strata = found["key"], found["label"] if options.group is None else None
    copies = repeated_rows(found["copies"], keys.size) if "copies" in found else 0
    shares = options.shares
    if shares is None:
        fitted = fit_share(round((1.0 - TEST_SHARE) * keys.size)) * (1.0 - TEST_SHARE)
        shares = (fitted, 1.0 - TEST_SHARE - fitted, TEST_SHARE)
    try:
        limits = find_limits(keys, strata, shares, options.plain, options.seed)
    except OptionError as error:
        raise DumpError(f"{dump.parts[0].name}: {error}") from None
    counts = np.bincount(limits.part_of(keys, strata), minlength=len(shares))
    if not counts.all():
        raise DumpError(f"{dump.parts[0].name}: {keys.size} rows are too few to divide into {counts.size} parts")
    shared = options.group is not None and np.unique(keys).size < keys.size
    whole = replace(limits, seed=options.seed, group=options.group, copies=copies, shared=shared)
    parts = [replace(whole, number=number, rows=rows) for number, rows in enumerate(counts.tolist())]
    divided = [replace(source.options, split=part) for part in parts]
    return [replace(source, options=each, notes=Notes(), passed=Problems(), found=[*source.found]) for each in divided]


def _keys(block: Block, seed: int, group: str | None) -> Keys:
    """A number for each row: of its scores, or of its group.

    Scores of any kind tie by nature, so a row that brings one goes by its place.
    """
    if group is None and block.input == "scores":
        return seeded(mixed((block.rows_before + block.row_numbers()).astype(np.uint64)), seed)
    if group is None:
        return seeded(content_keys(block.scores), seed)
    return seeded(example_keys(block, group), seed)


def seeded(keys: Keys, seed: int) -> Keys:
    """Other keys, which have nothing to do with those that samples and fingerprints are taken by."""
    return mixed(keys ^ mixed(np.array([seed], np.uint64)))


def find_limits(keys: Keys, labels: Integers | None, shares: Sequence[float], plain: int, seed: int = 0) -> SplitPart:
    """A part whose limits divide rows in these proportions, as nearly as equal keys and whole rows allow.

    `labels` (None: not stratified) are class numbers from 0; `plain` is the part that is not stratified.

    >>> keys = seeded(np.arange(10, dtype=np.uint64), 0)
    >>> found = find_limits(keys, np.arange(10) % 2, [0.4, 0.2, 0.4], plain=1)
    >>> parts = found.part_of(keys, np.arange(10) % 2)
    >>> np.bincount(parts).tolist(), np.bincount(parts[::2]).tolist()
    ([4, 2, 4], [2, 1, 2])
    """
    total = float(sum(shares))
    strata = np.zeros(keys.size, np.int64) if labels is None else labels
    others = [share for part, share in enumerate(shares) if part != plain]
    distinct, counts = np.unique(keys, return_counts=True)
    if distinct.size < len(shares):
        raise OptionError(
            f"there are {distinct.size} different rows or groups, too few to divide into {len(shares)} parts"
        )
    # the key up to which rows are nearest to what is wanted; at least one is left for each of the other parts
    most = distinct.size - len(others)
    plain_limit = distinct[np.argmin(np.abs(np.cumsum(counts)[:most] - shares[plain] / total * keys.size))]
    rest = keys > plain_limit
    targets = np.cumsum(others)[:-1] / sum(others)
    limits = np.zeros((int(strata.max()) + 1, len(others) - 1), np.uint64)
    rng = np.random.default_rng(seed)
    before, offset = 0, rng.random()
    order = np.lexsort((keys[rest], strata[rest]))
    ordered, starts = keys[rest][order], np.searchsorted(strata[rest][order], np.arange(limits.shape[0] + 1))
    for label in rng.permutation(limits.shape[0]):
        inside, repeats = np.unique(ordered[starts[label] : starts[label + 1]], return_counts=True)
        rows = int(repeats.sum())
        ends = np.concatenate([[0], np.cumsum(repeats)])
        for number, share in enumerate(targets):
            wanted = np.floor(share * (before + rows) + offset) - np.floor(share * before + offset)
            place = int(np.argmin(np.abs(ends - wanted)))
            if labels is None:  # whole groups: none of the parts may be empty
                place = min(max(place, number + 1), inside.size - (len(others) - 1 - number))
            limits[label, number] = plain_limit if place == 0 else inside[place - 1]
        before += rows
    return SplitPart(plain, plain_limit, np.maximum.accumulate(limits, axis=1))
