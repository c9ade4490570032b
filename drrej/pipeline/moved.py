"""Which of many shares surely moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from drrej.core import drift as fit_drift
from drrej.core.monitor.bins import bin_counts, stored_bins
from drrej.core.monitor.rate import Tally
from drrej.core.monitor.where import moves
from drrej.core.types import Floats
from drrej.documents.moved import MovedPart
from drrej.documents.rejector import Ratio


@dataclass(frozen=True)
class Compared:
    """A table: what is compared, the names of its parts, and their shares among new and among old rows."""

    what: str
    names: Sequence[str]
    new: Sequence[Tally]
    old: Sequence[Tally]


def moved_parts(tables: Sequence[Compared], delta: float) -> tuple[MovedPart, ...]:
    """The parts that surely moved, most first; with chance 1 - delta every interval of every table holds."""
    found = [
        MovedPart(
            what=table.what,
            part=table.names[move.part],
            new=move.new,
            old=move.old,
            lower=move.interval[0],
            upper=move.interval[1],
            at_least=move.at_least,
        )
        for table in tables
        for move in moves(table.new, table.old, delta / len(tables))
        if move.at_least
    ]
    return tuple(sorted(found, key=lambda part: -abs(part.at_least)))


def region_names(edges: Sequence[float]) -> list[str]:
    """What the regions between these losses are called.

    >>> region_names([0.5, 1.0])
    ['below 0.5', '0.5 to 1', '1 or more']
    """
    ends = [f"{edge:.4g}" for edge in edges]
    if not ends:
        return [""]
    inner = [f"{first} to {last}" for first, last in pairwise(ends)]
    return [f"below {ends[0]}", *inner, f"{ends[-1]} or more"]


def since_fit(losses: Floats, ratio: Ratio) -> list[Compared]:
    """The share of rows in each region of the loss, here and in the fit; nothing where that is not known."""
    quantiles = ratio.drift_quantiles if ratio.loss.drift_loss is not None else ratio.loss_quantiles
    if quantiles is None:
        return []
    edges, counts = stored_bins(quantiles, fit_drift.ranks(len(quantiles), ratio.rows), ratio.rows)
    if counts is None:
        return []
    new = [Tally(n, losses.size) for n in bin_counts(losses, edges)]
    return [Compared("share of rows by loss", region_names(edges), new, [Tally(n, sum(counts)) for n in counts])]


def against_the_rest(by: str, groups: dict[str, Tally]) -> Compared:
    """The coverage of each group, given as (accepted, rows), against that of all other rows."""
    accepted, rows = sum(t.events for t in groups.values()), sum(t.rows for t in groups.values())
    rest = [Tally(accepted - tally.events, rows - tally.rows) for tally in groups.values()]
    return Compared(f"coverage by {by}, against the rest", list(groups), list(groups.values()), rest)
