"""Whether the distribution of the losses has moved since the fit.

The rejector keeps evenly spaced order statistics of the fitted losses. New losses are compared with them by the
two-sample Kolmogorov-Smirnov distance, looked at only in those places. Where losses tie, the fit's distribution is
known only up to its jump there, and the smaller distance is taken, so the test never alarms more often than it says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from drrej.core import special
from drrej.core.curves import Curve
from drrej.core.intervals import skewed_tails
from drrej.core.types import Floats

STEPS = 200
"""Intervals between the order statistics that are kept."""


def ranks(kept: int, rows: int) -> NDArray[np.int64]:
    """Which order statistics (from 0) of `rows` sorted losses the `kept` ones are."""
    return np.arange(kept) * (rows - 1) // max(kept - 1, 1)


def loss_quantiles(ordered: Floats) -> tuple[float, ...]:
    """Evenly spaced order statistics of sorted losses, smallest and largest included; all of them if they are few."""
    kept = min(ordered.size, STEPS + 1)
    return tuple(float(loss) for loss in ordered[ranks(kept, ordered.size)])


def loss_shift(points: Curve, quantiles: Sequence[float], fit_rows: int) -> dict[str, Any]:
    """Distance of new losses from the fitted ones, and the chance of one as large without drift.

    Quantile number i is the fitted loss of rank k_i, so at least k_i + 1 fitted rows are at or below it and at most
    k_i are below it: both hold with ties too.
    """
    known = np.asarray(quantiles, np.float64)
    rank = ranks(known.size, fit_rows)
    below = np.searchsorted(points.ordered, known, "left") / points.rows
    up_to = np.searchsorted(points.ordered, known, "right") / points.rows
    distance = float(max(np.max((rank + 1) / fit_rows - up_to), np.max(below - rank / fit_rows), 0.0))
    scale = math.sqrt(points.rows * fit_rows / (points.rows + fit_rows))
    return {"distance": distance, "p_value": float(special.kolmogorov(distance * scale))}


class RatioMoments(Struct, frozen=True):
    """The ratio on some rows: its mean, variance and third central moment (None: not known, or infinite)."""

    rows: int
    mean: float | None
    variance: float | None
    third: float | None = None


def ratio_moments(parts: Iterable[Floats], rows: int) -> RatioMoments:
    """The moments of the ratio, from ln rho of so many rows in parts.

    They are sums of powers of rho - 1: about 1, which is near the mean, nothing cancels, so that the variance of a
    ratio of 1 +- 1e-9 is not lost. Rows in the order of their losses give the same bits, however they were shuffled.
    """
    sums = np.zeros(3)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for log_ratio in parts:
            apart = np.expm1(log_ratio)
            square = np.square(apart)
            sums += apart.sum(), square.sum(), (square * apart).sum()
        off, square, cube = (sums / rows).tolist()
    if not math.isfinite(square):
        return RatioMoments(rows, 1.0 + off if math.isfinite(off) else None, None)
    third = cube - 3.0 * off * square + 2.0 * off * off * off
    return RatioMoments(rows, 1.0 + off, max(square - off * off, 0.0), third if math.isfinite(third) else None)


def ratio_shift(new: RatioMoments, fit: RatioMoments) -> dict[str, float | None]:
    """The mean ratio on new rows, 1 in expectation without drift, and the chance of one as far from 1 without drift.

    The ratio was normalised on the N fitted rows, so the mean of the M new ones minus 1 is a difference of two means.
    Without drift both samples have one distribution, and its variance v and skewness g are estimated from both: the
    fitted rows alone may hold none of the rare rows that decide. The difference of the means has variance
    v (1/M + 1/N) and skewness g (1/M^2 - 1/N^2) / (1/M + 1/N)^1.5. The p-value is two-sided, that of Student's t
    carried over to a gamma distribution of this skewness, and at least the smallest that a permutation of the rows
    could give, 1 / binomial(M + N, M). Without finite moments there is none.
    """
    if new.mean is None or new.variance is None or fit.variance is None:
        return {"mean": new.mean, "std_error": None, "p_value": None}
    rows, degrees = new.rows + fit.rows, new.rows + fit.rows - 2
    pooled = (new.rows * new.variance + fit.rows * fit.variance) / max(degrees, 1)
    share = 1.0 / new.rows + 1.0 / fit.rows
    error = math.sqrt(pooled * share)
    least = math.exp(math.lgamma(new.rows + 1) + math.lgamma(fit.rows + 1) - math.lgamma(rows + 1))
    if error == 0.0:
        p_value = 1.0 if new.mean == 1.0 else least
    else:
        known = [(part.rows, part.third) for part in (new, fit) if part.third is not None]
        third = sum(count * value for count, value in known) / max(sum(count for count, _ in known), 1)
        unequal = (1.0 / new.rows**2 - 1.0 / fit.rows**2) / share**1.5
        t, skewness = (new.mean - 1.0) / error, third / pooled / math.sqrt(pooled) * unequal
        tail = float(special.stdtr(degrees, -abs(t)))  # if the rows were not skewed
        z = -float(special.ndtri_exp(math.log(tail))) if tail > 0.0 else abs(t)
        p_value = 2.0 * min(skewed_tails(skewness, math.copysign(z, t)))
    return {"mean": new.mean, "std_error": error, "p_value": min(max(p_value, least), 1.0)}


def outside_areas(inside: Curve, outside: Floats, ratio: float) -> dict[str, Any]:
    """AUROC and FPR at 95 % TPR of telling rows of no class, and the joint areas.

    From the ranked losses of rows that have a class and the losses of those that have none.

    >>> ranked = Curve.of(np.array([0.1, 0.2]), np.array([0.3]))
    >>> areas = outside_areas(ranked, np.array([0.4, 0.15]), 1.0)
    >>> areas["auroc"], areas["fpr_at_95_tpr"], round(areas["augrc"], 6)
    (0.6666666666666666, 0.5, 0.22)
    """
    ordered = np.sort(np.concatenate([inside.ordered, outside]))
    errors = Curve(ordered, inside.wrong)
    strange = Curve(ordered, np.sort(outside))
    return {
        "auroc": strange.failure_auroc(),
        "fpr_at_95_tpr": strange.fpr_at_95_tpr(),
        "aurc": errors.aurc() + ratio * strange.aurc(),
        "augrc": errors.augrc() + ratio * strange.augrc(),
    }


BINS = 16


def stored_bins(
    quantiles: Sequence[float], rows: int, bins: int = BINS
) -> tuple[tuple[float, ...], tuple[int, ...] | None]:
    """Edges among the `loss_quantiles` of so many rows, and how many of these are in each bin.

    The counts are None where quantiles tie: how many rows are below an edge is not known then, and the first batch has
    to be other rows.

    >>> stored_bins((0.0, 1.0, 2.0, 3.0, 4.0), 101, 4)
    ((1.0, 2.0, 3.0), (25, 25, 25, 26))
    """
    known = np.asarray(quantiles, np.float64)
    at = np.unique(np.arange(1, bins) * max(known.size - 1, 0) // bins)
    at = at[at > 0]
    if (np.diff(known) > 0).all():
        counts = np.diff(np.concatenate([[0], ranks(known.size, rows)[at], [rows]]))
        return tuple(known[at].tolist()), tuple(counts.tolist())
    edges = np.unique(known[at])
    return tuple(edges[edges > known[0]].tolist()), None


def bin_counts(losses: Floats, edges: Sequence[float]) -> tuple[int, ...]:
    """How many losses are in each bin.

    >>> bin_counts(np.array([0.0, 0.5, 2.0, 7.0]), (0.5, 3.0))
    (1, 2, 1)
    """
    bins = np.searchsorted(np.asarray(edges, np.float64), losses, side="right")
    return tuple(np.bincount(bins, minlength=len(edges) + 1).tolist())
