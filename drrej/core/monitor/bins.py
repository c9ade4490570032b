"""Bins of the losses: edges that are fixed before the nights come, and counts between them.

Bin i holds the losses from edge i - 1 up to below edge i; the first and the last bin are open to their ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drrej.core.monitor.restarts import Floats

BINS = 16


def choose_edges(ordered: Floats, bins: int = BINS) -> tuple[float, ...]:
    """Distinct order statistics of ascending losses that cut them into bins of about equal counts.

    Where losses tie there are fewer edges.

    >>> choose_edges(np.arange(8.0), 4)
    (2.0, 4.0, 6.0)
    """
    if not ordered.size:
        return ()
    edges = np.unique(ordered[np.arange(1, bins) * ordered.size // bins])
    return tuple(float(edge) for edge in edges if edge > ordered[0])


def stored_bins(
    quantiles: Sequence[float], ranks: NDArray[np.int64], rows: int, bins: int = BINS
) -> tuple[tuple[float, ...], tuple[int, ...] | None]:
    """Edges among stored order statistics, and the bin counts of the rows they come from.

    Quantile i is the loss that has ranks[i] of the `rows` losses before it. The counts are None where stored quantiles
    tie: how many rows are below an edge is not known then, and the first batch has to be other rows.

    >>> stored_bins((0.0, 1.0, 2.0, 3.0, 4.0), np.array([0, 25, 50, 75, 99]), 100, 4)
    ((1.0, 2.0, 3.0), (25, 25, 25, 25))
    """
    known = np.asarray(quantiles, np.float64)
    at = np.unique(np.arange(1, bins) * max(known.size - 1, 0) // bins)
    at = at[at > 0]
    if (np.diff(known) > 0).all():
        counts = np.diff(np.concatenate([[0], np.asarray(ranks, np.int64)[at], [rows]]))
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
