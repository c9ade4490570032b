"""Dividing rows into parts by what they hold: to calibrate and fit, to choose the threshold, to test.

Each row has a key, a hash of its content and a seed, so the parts are the same in any order, layout and block size.
With `group` it is a hash of the group, so that rows of one group stay together.

**Rows with the same scores** stay together: repeats of one row would else be in a part that another has seen. Where
they are different examples, as of a kNN, a column that tells them apart divides them (`group`).

**One part is plain**: the rows with the smallest keys. Keys are as good as random, so given the number of its rows it
is a simple random sample of all rows; if these are independent draws from a distribution, so are its rows, and what
the other parts are used for is independent of them. A guarantee is exact on this part, unless many rows are repeats
(`copies` says how many there are).

**The other parts are stratified** by label: each label's rows are divided in the same proportion. A rare class is then
not missing in one part by bad luck, and accuracies of two parts differ by less. Shares of a label are rounded by
systematic sampling: labels stand in a random order on one scale, and every part's share of the scale is within one row,
both of a label and of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drrej.core.reuse import Keys, content_keys, mixed
from drrej.core.types import AnyFloats, Integers
from drrej.errors import OptionError
from drrej.records import dataclass


def split_keys(values: AnyFloats, seed: int) -> Keys:
    """Keys of rows of numbers (rows x columns), another set for each seed."""
    return seeded(content_keys(values), seed)


def seeded(keys: Keys, seed: int) -> Keys:
    """Other keys, which have nothing to do with those that samples and fingerprints are taken by."""
    return mixed(keys ^ mixed(np.array([seed], np.uint64)))


def copies(keys: Keys) -> int:
    """Rows that have the key of another one, less one for each such key.

    >>> copies(np.array([5, 7, 5, 5], np.uint64))
    2
    """
    return int(keys.size - np.unique(keys).size)


@dataclass(frozen=True, eq=False)
class Limits:
    """Where each part ends.

    Keys up to `plain_limit` are of the part `plain`; the others, in order, end at `limits` (labels x parts - 2).
    """

    parts: int
    plain: int
    plain_limit: np.uint64
    limits: Keys

    @property
    def by_label(self) -> bool:
        """Whether the label of a row has a say."""
        return bool(self.limits.shape[0] > 1 and self.limits.shape[1] > 0)

    def part_of(self, keys: Keys, labels: Integers | None = None) -> Integers:
        """The number of each row's part."""
        others = np.array([part for part in range(self.parts) if part != self.plain], np.int64)
        ends = self.limits[np.zeros(keys.size, np.int64) if labels is None else labels]
        number = np.count_nonzero(keys[:, None] > ends, axis=1)
        found: Integers = np.where(keys <= self.plain_limit, self.plain, others[number])
        return found


def find_limits(keys: Keys, labels: Integers | None, shares: Sequence[float], plain: int, seed: int = 0) -> Limits:
    """Limits that divide rows in these proportions, as nearly as equal keys and whole rows allow.

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
    # at least one key is left for each of the other parts
    most = distinct.size - len(others)
    place = _nearest(np.cumsum(counts)[:most], shares[plain] / total * keys.size, least=1)
    plain_limit = distinct[place - 1]
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
            place = _nearest(ends, wanted)
            if labels is None:  # whole groups: none of the parts may be empty
                place = min(max(place, number + 1), inside.size - (len(others) - 1 - number))
            limits[label, number] = plain_limit if place == 0 else inside[place - 1]
        before += rows
    return Limits(len(shares), plain, plain_limit, np.maximum.accumulate(limits, axis=1))


def _nearest(counts: NDArray[np.int64], wanted: float, least: int = 0) -> int:
    """How many entries to take for their count to be nearest to what is wanted; `counts[i]` is that of i + `least`."""
    return int(np.argmin(np.abs(counts - wanted))) + least
