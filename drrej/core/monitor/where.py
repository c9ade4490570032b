"""Where it moved: many shares, new against old, ranked, with intervals that hold all together.

A part is a class, a group, a file, a region of the loss. Each has a share among new rows and one among old rows: rows
of the class among all rows, accepted rows of a group among its rows, and so on. Of G parts, each share gets an exact
Clopper-Pearson interval whose two ends fail with chance delta / (4 G) each. There are 4 G ends in all, so with chance
1 - delta every one holds, whatever depends on whatever, and then every difference new - old lies between the
difference of the opposite ends. The part that surely moved most, by the end of its interval nearest to 0, comes first.

This is for one look that was fixed beforehand, with rows independent within new and within old. For a table that is
made every night and read when something is odd, give look t the level delta · `start_share(t)` (`restarts`): these
sum to delta, so that all tables of all nights hold together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from drrej.core.monitor.rate import Tally
from drrej.records import dataclass


@dataclass(frozen=True)
class Move:
    """One part: its index, its shares (None without rows), their intervals, and that of the difference new - old.

    `at_least` is how far it has moved for sure, with its sign; 0 if it may not have moved.
    """

    part: int
    new: float | None
    old: float | None
    new_interval: tuple[float, float]
    old_interval: tuple[float, float]
    interval: tuple[float, float]
    at_least: float

    @property
    def difference(self) -> float | None:
        """The difference new - old, as found."""
        return None if self.new is None or self.old is None else self.new - self.old


def moves(new: Sequence[Tally], old: Sequence[Tally], delta: float) -> tuple[Move, ...]:
    """All parts, those that surely moved most first; then by the difference found, then in the order given.

    >>> table = moves([Tally(30, 100), Tally(70, 100)], [Tally(900, 1000), Tally(700, 1000)], 0.05)
    >>> [(move.part, round(move.at_least, 3)) for move in table]
    [(0, -0.447), (1, 0.0)]
    """
    if len(new) != len(old):
        raise ValueError(f"`new` has {len(new)} parts and `old` has {len(old)}")
    if not 0.0 < delta < 1.0:
        raise ValueError(f"`delta` must be between 0 and 1, not {delta}")
    if not new:
        return ()
    level = delta / (4 * len(new))
    found = [
        _move(part, pair, (now, then))
        for part, (pair, now, then) in enumerate(
            zip(zip(new, old, strict=True), _intervals(new, level), _intervals(old, level), strict=True)
        )
    ]
    return tuple(sorted(found, key=lambda move: (-abs(move.at_least), -abs(move.difference or 0.0), move.part)))


def _move(part: int, pair: tuple[Tally, Tally], intervals: tuple[tuple[float, float], tuple[float, float]]) -> Move:
    new, old = intervals
    low, high = new[0] - old[1], new[1] - old[0]
    at_least = low if low > 0.0 else min(high, 0.0)
    return Move(part, pair[0].rate, pair[1].rate, new, old, (low, high), at_least)


def _intervals(tallies: Sequence[Tally], level: float) -> list[tuple[float, float]]:
    """Clopper-Pearson, each end at `level`."""
    from drrej.core.special import betaincinv

    events = np.array([tally.events for tally in tallies], np.float64)
    others = np.array([tally.rows - tally.events for tally in tallies], np.float64)
    low = np.where(events > 0, betaincinv(np.maximum(events, 1), others + 1, level), 0.0)
    high = np.where(others > 0, 1.0 - betaincinv(np.maximum(others, 1), events + 1, level), 1.0)
    return list(zip(low.tolist(), high.tolist(), strict=True))
