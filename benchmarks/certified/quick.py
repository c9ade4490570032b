"""The same methods on many trials at once: allowed errors from tables instead of p-values, one look-up for each rank.

`tests/core/test_certify_quick.py` holds them to the methods one by one. Losses must not tie.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from benchmarks.certified.methods import candidates
from drrej.core.certify import risk_starts
from drrej.core.drift import loss_quantiles


@dataclass(frozen=True)
class Trials:
    """A row for each trial: sorted losses, the errors among the first 0, 1, ..., n of them, and the fit's losses."""

    losses: np.ndarray
    errors: np.ndarray
    fits: np.ndarray

    @property
    def rows(self) -> int:
        """Rows of a trial."""
        return int(self.losses.shape[1])

    def cutoffs(self, accepted: np.ndarray) -> np.ndarray:
        """The cutoff that accepts so many rows: the next larger loss; infinite for all rows, -infinite for none."""
        more = np.column_stack([self.losses, np.full(len(self.losses), np.inf)])
        return np.where(accepted > 0, more[np.arange(len(accepted)), accepted], -np.inf)


@functools.lru_cache(maxsize=512)
def allowed(rows: int, risk: float, level: float) -> np.ndarray:
    """The most errors with which 0, 1, ..., rows rows pass at a level; -1: none."""
    ranks = np.arange(rows + 1)
    most = binom.ppf(level, ranks, risk).astype(np.int64)
    most -= binom.cdf(most, ranks, risk) > level  # ppf is the first that reaches the level
    return np.where(ranks > 0, most, -1)


Passes = Callable[[np.ndarray, slice, float], np.ndarray]
"""Whether places pass in some trials, at a level."""


def _runs(passes: Passes, shape: tuple[int, int], starts: Sequence[tuple[int, float]], opening: bool) -> np.ndarray:
    """The last place that is certified in each trial, -1 if none.

    A place is tested at the share of its start and what a run that got there brings along. With `opening` the first
    place of a run only opens it, unless it is the last of all.
    """
    trials, places = shape
    best, opened, level = np.full(trials, -1), np.full(trials, -1), np.zeros(trials)
    for (first, share), (last, _) in zip(starts, [*starts[1:], (places, 0.0)], strict=True):
        opened = np.where(level > 0, opened, first)
        level = level + share
        for value in np.unique(level):
            rows = np.flatnonzero(level == value)
            failed = ~passes(rows, slice(first, last), float(value))
            stop = np.where(failed.any(axis=1), failed.argmax(axis=1), last - first)
            reached = first + stop - 1
            held = (reached > opened[rows]) | ((reached == opened[rows]) & ((reached == places - 1) | (not opening)))
            best[rows] = np.where(held, np.maximum(best[rows], reached), best[rows])
            level[rows[stop < last - first]] = 0.0
    return best


def every_rank(of: Trials, risk: float, delta: float) -> np.ndarray:
    """Drrej: the cutoff of each trial."""
    starts = risk_starts(of.rows, risk, delta)

    def passes(trials: np.ndarray, places: slice, level: float) -> np.ndarray:
        return of.errors[trials, places] <= allowed(of.rows, risk, level)[places]

    found = _runs(passes, of.errors.shape, list(starts), opening=True)
    return of.cutoffs(np.maximum(found, 0))


def binary_search(of: Trials, risk: float, delta: float) -> np.ndarray:
    """SGR."""
    trials = np.arange(len(of.errors))
    looks = max(1, math.ceil(math.log2(of.rows)))
    most = allowed(of.rows, risk, delta / looks)
    low, high = np.zeros(trials.size, np.int64), np.full(trials.size, of.rows)
    for _ in range(looks):
        middle = -(-(low + high) // 2)
        passed = (of.errors[trials, middle] <= most[middle]) & (low < high)
        failed = ~passed & (low < high)
        low, high = np.where(passed, middle, low), np.where(failed, middle - 1, high)
    return of.cutoffs(low)


def _at_candidates(of: Trials, cutoffs: np.ndarray, starts: Sequence[tuple[int, float]], risk: float) -> np.ndarray:
    """The largest candidate that a run certifies; `cutoffs` has a row for each trial."""
    accepted = np.stack([np.searchsorted(losses, row) for losses, row in zip(of.losses, cutoffs, strict=True)])
    errors = np.take_along_axis(of.errors, accepted, axis=1)

    def passes(trials: np.ndarray, places: slice, level: float) -> np.ndarray:
        return errors[trials, places] <= allowed(of.rows, risk, level)[accepted[trials, places]]

    found = _runs(passes, accepted.shape, starts, opening=False)
    return np.where(found >= 0, cutoffs[np.arange(len(found)), found], -np.inf)


def halves(of: Trials, risk: float, delta: float) -> np.ndarray:
    """Drrej before: candidates from the fit's quantiles, runs from coverages 1, 1/2, 1/4, ..., equal shares."""
    made = [candidates(fit) for fit in of.fits]
    coverage = made[0][1]  # the same for all fits of as many losses
    wanted = sorted(2.0**-k for k in range(41))
    while len(wanted) > 1 and wanted[0] * of.rows * math.log1p(-risk) > math.log(delta / len(wanted)):
        wanted.pop(0)
    at = [min(int(np.searchsorted(coverage, start)), coverage.size - 1) for start in wanted]
    shares = [(place, delta * at.count(place) / len(wanted)) for place in sorted(set(at))]
    return _at_candidates(of, np.stack([cutoffs for cutoffs, _ in made]), shares, risk)


def one_start(of: Trials, risk: float, delta: float) -> np.ndarray:
    """Learn then Test: the fit's quantiles from the first that most likely can pass."""
    fewest = math.log(delta) / math.log1p(-risk)
    share = min(1.0, (fewest + 2 * math.sqrt(fewest)) / of.rows)
    known = np.stack([np.append(loss_quantiles(fit), np.inf) for fit in of.fits])
    start = math.ceil(share * (known.shape[1] - 2))
    return _at_candidates(of, known, [(start, delta)], risk)


METHODS: dict[str, Callable[[Trials, float, float], np.ndarray]] = {
    "drrej": every_rank,
    "before": halves,
    "SGR": binary_search,
    "LTT": one_start,
}
