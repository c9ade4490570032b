"""Which of many shares surely moved."""

from __future__ import annotations

from collections.abc import Sequence

from drrej.core import drift as fit_drift
from drrej.core.drift_monitor import bin_counts, moves, stored_bins
from drrej.core.sequential import Tally
from drrej.core.types import Floats
from drrej.documents.points import MovedPart
from drrej.documents.rejector import Ratio
from drrej.records import dataclass


@dataclass(frozen=True)
class Compared:
    """A table: what is compared, the names of its parts, and their shares among new and among old rows."""

    what: str
    names: Sequence[str]
    new: Sequence[Tally]
    old: Sequence[Tally]


def moved_parts(tables: Sequence[Compared], delta: float) -> tuple[MovedPart, ...]:
    """The parts that surely moved, most first; with chance 1 - delta every interval of every table holds."""
    parts = [
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
    return tuple(sorted(parts, key=lambda part: -abs(part.at_least)))


def region_names(edges: Sequence[float]) -> list[str]:
    """What the regions between these losses are called.

    >>> region_names([0.5, 1.0])
    ['below 0.5', '0.5 to 1', '1 or more']
    """
    return [_region_name(edges, first, first + 1) for first in range(len(edges) + 1)]


def _region_name(edges: Sequence[float], first: int, end: int) -> str:
    if first == 0:
        return f"below {edges[end - 1]:.4g}" if end <= len(edges) else "any"
    return f"{edges[first - 1]:.4g} or more" if end > len(edges) else f"{edges[first - 1]:.4g} to {edges[end - 1]:.4g}"


def since_fit(losses: Floats, ratio: Ratio) -> list[Compared]:
    """The share of rows in each region of the loss, here and in the fit; nothing where that is not known."""
    quantiles = ratio.drift_quantiles if ratio.loss.drift_loss is not None else ratio.loss_quantiles
    if quantiles is None:
        return []
    edges, counts = stored_bins(quantiles, fit_drift.ranks(len(quantiles), ratio.rows), ratio.rows)
    if counts is None:
        return []
    here = bin_counts(losses, edges)
    regions = _regions(len(counts))
    names = [_region_name(edges, first, end) for first, end in regions]
    new = [Tally(sum(here[first:end]), losses.size) for first, end in regions]
    old = [Tally(sum(counts[first:end]), sum(counts)) for first, end in regions]
    return [Compared("share of rows by loss", names, new, old)] if regions else []


def _regions(bins: int) -> list[tuple[int, int]]:
    """Single bins, pairs, fours and so on, up to halves: a shift that each bin shows a little of is seen in these."""
    regions = []
    width = 1
    while width < bins:
        regions += [(first, min(first + width, bins)) for first in range(0, bins, width)]
        width *= 2
    return regions


def against_the_rest(by: str, groups: dict[str, Tally]) -> Compared:
    """The coverage of each group, given as (accepted, rows), against that of all other rows."""
    accepted, rows = sum(t.events for t in groups.values()), sum(t.rows for t in groups.values())
    rest = [Tally(accepted - tally.events, rows - tally.rows) for tally in groups.values()]
    return Compared(f"coverage by {by}, against the rest", list(groups), list(groups.values()), rest)
