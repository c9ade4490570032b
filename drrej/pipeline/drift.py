"""What rows tell without labels: the accuracy to expect, how far losses have moved, and which shares surely moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec.structs import replace

from drrej.core.curves import Curve
from drrej.core.drift import RatioMoments, RatioSums, bin_counts, loss_shift, ratio_shift, stored_bins
from drrej.core.intervals import CONFIDENCE, lower_bound
from drrej.core.types import Booleans, Floats, Stored, Total
from drrej.documents.rejector import Ratio
from drrej.documents.report import Drift, ExpectedAccuracy, GroupLook, MeanRatio, MovedPart, Where
from drrej.pipeline.collect import curve_of, pieces
from drrej.pipeline.figures import coverage_figure
from drrej.pipeline.score import numbered


def expected_accuracy(doubt: Floats, accepted: Booleans) -> ExpectedAccuracy:
    """From the probability of an error in each row."""
    of_accepted = sum((Total.of(doubt[part][accepted[part]]) for part in pieces(doubt.size)), Total())
    means = of_accepted.mean(int(np.count_nonzero(accepted))), Total.of(doubt).mean(doubt.size)
    value, of_all = (None if mean is None else 1.0 - mean for mean in means)
    return ExpectedAccuracy(value=value, all=of_all)


def ratio_figure(sums: RatioSums, rows: int, ratio: Ratio) -> MeanRatio:
    """The mean ratio; no p-value where the loss was fitted to the rows of the ratio, so that its mean need not be 1."""
    fit = None if ratio.variance is None else RatioMoments(ratio.rows, 1.0, ratio.variance, ratio.third)
    shift = {**ratio_shift(sums.moments(rows), fit), "mean": sums.mean(rows)}
    figure = MeanRatio(**shift)
    return figure if ratio.loss.drift_loss is None else replace(figure, p_value=None)


_FAR, _SURE = 0.1, 0.001
"""A distance from the fit's losses, and a p-value, from which on a learned order is in doubt."""


def unsure_order(drift: Drift, ratio: Ratio) -> str | None:
    """The plain loss beneath a learned one, where the rows are so unlike those of the fit that its order may not hold.

    Small drifts, which many rows make certain, do not count.
    """
    base = ratio.loss.drift_loss
    if base is None or drift.distance is None or drift.p_value is None:
        return None
    return base.name if drift.distance >= _FAR and drift.p_value < _SURE else None


def drift_figure(curve: Curve, ratio: Ratio) -> Drift:
    """How far losses have moved since the fit."""
    return Drift(**loss_shift(curve, ratio.drift_reference, ratio.rows))


def group_looks(columns: Mapping[str, Any], doubt: Floats, drift: Floats, ratio: Ratio) -> tuple[GroupLook, ...]:
    """Without labels: coverage, expected accuracy and drift of each group, the largest drift first."""
    numbers, names = numbered(columns["group"])
    order = np.argsort(numbers, kind="stable")
    members = np.split(order, np.searchsorted(numbers[order], np.arange(1, len(names))))
    looks = []
    for name, rows in zip(names, members, strict=True):
        accepted = columns["accepted"][rows]
        shift = drift_figure(curve_of(drift[rows]), ratio)
        if shift.p_value is not None:
            shift = replace(shift, p_value=min(1.0, shift.p_value * len(names)))
        looks.append(
            GroupLook(
                group=name,
                rows=int(rows.size),
                coverage=coverage_figure(int(np.count_nonzero(accepted)), int(rows.size)),
                expected_accuracy=expected_accuracy(doubt[rows], accepted).value,
                drift=shift,
            )
        )
    known = all(look.drift.p_value is not None for look in looks)
    return tuple(sorted(looks, key=attrgetter("drift.p_value", "group") if known else attrgetter("group")))


def where_moved(losses: Floats, ratio: Ratio, by: str | None, looks: Sequence[GroupLook]) -> Where | None:
    """The regions of the loss that hold more or fewer rows than in the fit, and groups that are not like the rest."""
    tables = since_fit(losses, ratio)
    if by is not None and len(looks) > 1:
        every = sum((Tally(look.coverage.accepted, look.rows) for look in looks), Tally())
        groups = []
        for look in looks:
            group = Tally(look.coverage.accepted, look.rows)
            groups.append((look.group, group, Tally(every.events - group.events, every.rows - group.rows)))
        tables.append((f"coverage by {by}, against the rest", groups))
    if not tables:
        return None
    return Where(compared=sum(len(parts) for _, parts in tables), parts=moved_parts(tables, 1 - CONFIDENCE))


# Which of many shares surely moved


class Tally(Stored, frozen=True, omit_defaults=False):
    """Events among rows; adds up in any order.

    >>> Tally(3, 100) + Tally(1, 50)
    Tally(events=4, rows=150)
    """

    events: int = 0
    rows: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.events <= self.rows:
            raise ValueError(f"`events` must be between 0 and `rows`, not {self.events} of {self.rows}")

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.events + other.events, self.rows + other.rows)

    @property
    def rate(self) -> float | None:
        """The share of events; None without rows."""
        return self.events / self.rows if self.rows else None


Compared = tuple[str, Sequence[tuple[str, Tally, Tally]]]
"""A table: what is compared, and of each part its name and its share among new and among old rows."""


def moved_parts(tables: Sequence[Compared], delta: float) -> tuple[MovedPart, ...]:
    """The parts that surely moved, most first; with chance 1 - delta every interval of every table holds.

    >>> table = ("x", [("a", Tally(30, 100), Tally(900, 1000)), ("b", Tally(70, 100), Tally(700, 1000))])
    >>> [(move.part, round(move.at_least, 3)) for move in moved_parts([table], 0.05)]
    [('a', -0.447)]
    """
    found = []
    for what, parts in tables:
        level = delta / len(tables) / (4 * len(parts))
        for name, new, old in parts:
            (new_low, new_high), (old_low, old_high) = _interval(new, level), _interval(old, level)
            low, high = new_low - old_high, new_high - old_low
            at_least = low if low > 0.0 else min(high, 0.0)
            if at_least:
                ends = {"lower": low, "upper": high, "at_least": at_least}
                found.append(MovedPart(what=what, part=name, new=new.rate, old=old.rate, **ends))
    return tuple(sorted(found, key=lambda part: -abs(part.at_least)))


def _interval(tally: Tally, level: float) -> tuple[float, float]:
    """Clopper-Pearson, each end at `level`."""
    others = tally.rows - tally.events
    return lower_bound(tally.events, tally.rows, level), 1.0 - lower_bound(others, tally.rows, level)


def region_names(edges: Sequence[float], regions: Sequence[tuple[int, int]] | None = None) -> list[str]:
    """What regions between these losses are called, given by their first bin and the one after the last; else each bin.

    >>> region_names([0.5, 1.0])
    ['below 0.5', '0.5 to 1', '1 or more']
    """
    names = []
    for first, end in [(first, first + 1) for first in range(len(edges) + 1)] if regions is None else regions:
        above = f"{edges[first - 1]:.4g}" if first else ""
        below = f"{edges[end - 1]:.4g}" if end <= len(edges) else ""
        both = f"{above} to {below}" if above and below else ""
        names.append(both or (f"below {below}" if below else f"{above} or more" if above else "any"))
    return names


def since_fit(losses: Floats, ratio: Ratio) -> list[Compared]:
    """The share of rows in each region of the loss, here and in the fit; nothing where that is not known.

    Regions are single bins, pairs, fours and so on, up to halves: a shift that each bin shows a little of is seen in
    the larger ones.
    """
    edges, counts = stored_bins(ratio.drift_reference, ratio.rows)
    if counts is None or len(counts) < 2:
        return []
    found, bins = bin_counts(losses, edges), len(counts)
    widths = [1 << power for power in range((bins - 1).bit_length())]
    regions = [(first, min(first + width, bins)) for width in widths for first in range(0, bins, width)]
    new = [Tally(sum(found[first:end]), losses.size) for first, end in regions]
    old = [Tally(sum(counts[first:end]), sum(counts)) for first, end in regions]
    return [("share of rows by loss", list(zip(region_names(edges, regions), new, old, strict=True)))]
