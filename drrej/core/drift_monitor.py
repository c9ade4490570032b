"""Whether the losses drift, without labels: each batch against everything before it, at every look and forever.

The range of the losses is cut into bins at fixed edges; exact tests of the counts on both sides of each split of the
bins become scores that may be multiplied up. The proof is in docs/proofs.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from drrej.core.intervals import lower_bound, upper_bound
from drrej.core.sequential import Restarts, Tally, log_sum
from drrej.core.types import Floats
from drrej.records import dataclass

_POWERS = np.arange(1, -10, -1)
_SHIFTS: Floats = np.ldexp(1.0, _POWERS)
_SHIFT_WEIGHTS: Floats = 1.0 / (1.0 + np.abs(_POWERS + 2.0))
_LOWEST, _HIGHEST = -3.0, 8.0
_MOST_LAMBDA = 4.0
_TAIL = 12.0
"""Standard deviations from the mode beyond which a hypergeometric law is nil: e^-72."""


@dataclass(frozen=True)
class Node:
    """A split of bins [first, end) before bin `middle`."""

    first: int
    middle: int
    end: int
    depth: int


@cache
def nodes(bins: int) -> tuple[Node, ...]:
    """The splits of so many bins, parents first.

    >>> [(node.first, node.middle, node.end) for node in nodes(4)]
    [(0, 2, 4), (0, 1, 2), (2, 3, 4)]
    """

    def split(first: int, end: int, depth: int) -> list[Node]:
        if end - first < 2:
            return []
        middle = (first + end) // 2
        return [Node(first, middle, end, depth), *split(first, middle, depth + 1), *split(middle, end, depth + 1)]

    return tuple(sorted(split(0, bins, 0), key=lambda node: (node.depth, node.first)))


@dataclass(frozen=True)
class LossDrift:
    """Losses against everything before, night after night; plain numbers, of the same size however many nights.

    `pool` are the bin counts of all rows so far, `first_rows` is the size of the first batch. `against_first` are the
    logarithms of the products from the first night on, one per alternative (none before the first look), and `peak` is
    the largest logarithm of their e-value (at least 0).

    >>> monitor = LossDrift.start((500, 500, 500, 500)).update((260, 250, 245, 245))
    >>> monitor.alarm(0.05), monitor.restarts.alarm(0.05)
    (False, False)
    >>> monitor = monitor.update((150, 150, 300, 400))
    >>> monitor.alarm(0.05), monitor.restarts.alarm(0.05)
    (True, True)
    """

    pool: tuple[int, ...]
    first_rows: int
    against_first: tuple[float, ...] = ()
    peak: float = 0.0
    restarts: Restarts = field(default_factory=Restarts)

    @classmethod
    def start(cls, counts: Sequence[int]) -> LossDrift:
        """With the bin counts of the first batch; zeros make the first night the first batch."""
        return cls(tuple(int(count) for count in counts), sum(int(count) for count in counts))

    def update(self, night: Sequence[int]) -> LossDrift:
        """After the bin counts of one more night; a night without rows, or the first batch, is no look."""
        if len(night) != len(self.pool) or min(night, default=0) < 0:
            raise ValueError(f"`night` must have {len(self.pool)} counts from 0 up, as the pool has, not {list(night)}")
        pool = tuple(old + int(new) for old, new in zip(self.pool, night, strict=True))
        rows, before = sum(int(new) for new in night), sum(self.pool)
        if not before:
            return LossDrift.start(pool)
        if len(pool) < 2 or not rows:
            return replace(self, pool=pool)
        tails = np.array([_node_tails(self.pool, night, node) for node in nodes(len(pool))])
        scale, weights = math.sqrt(rows / (rows + before) * before), log_weights(len(pool)).ravel()
        first = log_factors(tails, scale * self.first_rows / before).ravel()
        against_first = first + np.array(self.against_first) if self.against_first else first
        return LossDrift(
            pool,
            self.first_rows,
            tuple(against_first.tolist()),
            max(self.peak, log_sum(against_first + weights)),
            self.restarts.update(log_factors(tails, scale).ravel(), weights),
        )

    @property
    def log_e_value(self) -> float:
        """The logarithm of the e-value of all nights against the first batch; 0 before the first look."""
        weights = log_weights(len(self.pool)).ravel()
        return log_sum(np.array(self.against_first) + weights) if self.against_first else 0.0

    @property
    def restarts_log_e_value(self) -> float:
        """The logarithm of the e-value over all starts."""
        return self.restarts.log_e_value(log_weights(len(self.pool)).ravel())

    def alarm(self, delta: float) -> bool:
        """Whether the e-value against the first batch has ever reached 1 / delta; false with chance at most delta."""
        return self.peak >= -math.log(delta)


def log_factors(tails: Floats, scale: float) -> Floats:
    """The sums of λ z - ψ(λ) over the nodes of each pattern, for each direction and shift.

    `tails` are p_left and p_right of each node, shape (..., B - 1, 2); the result has shape (..., B, 2, shifts). The
    `scale` is sqrt(n N / (n + N)) for whole nights.
    """
    from drrej.core.special import ndtri

    scores = np.clip(-ndtri(tails), _LOWEST, _HIGHEST)
    bins = tails.shape[-2] + 1
    lambdas = np.minimum(np.outer(scale * _spreads(bins), _SHIFTS), _MOST_LAMBDA)[:, None, :]
    single = scores[..., None] * lambdas - _log_mean(lambdas)
    upper = [i for i, node in enumerate(nodes(bins)) if node.end == bins]
    factors: Floats = np.concatenate([single[..., upper, :, :].sum(axis=-3, keepdims=True), single], axis=-3)
    return factors


def _node_tails(old: Sequence[int], new: Sequence[int], node: Node) -> tuple[float, float]:
    """(p_left, p_right) of a node."""
    left, right = slice(node.first, node.middle), slice(node.middle, node.end)
    return fisher_tails(int(sum(new[left])), int(sum(new[right])), sum(old[left]), sum(old[right]))


def fisher_tails(k: int, l: int, a: int, b: int) -> tuple[float, float]:  # noqa: E741 - the letters of the proof
    """(P(H ≥ k), P(H ≤ k)): night rows k left and l right against a and b of the pool.

    The terms of the law relative to that at k follow from each other by exact ratios; those within 12 standard
    deviations of the mode and of k are summed. No logarithm of a factorial cancels, so counts may be large.

    >>> [round(70 * tail, 9) for tail in fisher_tails(3, 1, 1, 3)]
    [17.0, 69.0]
    """
    drawn, left, total = k + l, a + k, a + b + k + l
    if not drawn or not a + b:
        return 1.0, 1.0
    low, high = max(0, drawn - (total - left)), min(drawn, left)
    mode = (drawn + 1) * (left + 1) // (total + 2)
    variance = drawn * (left / total) * ((total - left) / total) * ((total - drawn) / max(total - 1, 1))
    reach = int(_TAIL * math.sqrt(variance) + _TAIL**2)
    low, high = max(low, mode - reach), min(high, mode + reach)
    if k > high:
        return 0.0, 1.0
    if k < low:
        return 1.0, 0.0
    x = np.arange(low, high, dtype=np.float64)
    steps = np.log(((left - x) / (x + 1.0)) * ((drawn - x) / (total - left - drawn + x + 1.0)))
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    terms = np.exp(logs - logs.max())
    whole = float(terms.sum())
    at_least, at_most = float(terms[k - low :].sum()) / whole, float(terms[: k - low + 1].sum()) / whole
    return min(at_least, 1.0), min(at_most, 1.0)


@cache
def _spreads(bins: int) -> Floats:
    """The s / sqrt(n N / (n + N)) of each node, if all bins were equally likely."""
    return np.array(
        [
            math.sqrt((node.middle - node.first) * (node.end - node.middle) / ((node.end - node.first) * bins))
            for node in nodes(bins)
        ]
    )


@cache
def log_weights(bins: int) -> Floats:
    """The logarithm of π of each pattern, direction and shift; see the alternatives in docs/proofs.md."""
    depth = np.array([node.depth for node in nodes(bins)], np.int64)
    level = np.ldexp(1.0, -depth) / np.bincount(depth, minlength=1)[depth]
    patterns = np.concatenate([[0.5], 0.5 * level / level.sum()])
    weights: Floats = np.multiply.outer(np.outer(patterns, [0.5, 0.5]), _SHIFT_WEIGHTS / _SHIFT_WEIGHTS.sum())
    return np.log(weights)


def _log_mean(lambdas: Floats) -> Floats:
    """ψ(λ) = ln E[exp(λ Z)] for a standard normal Z, cut at both ends."""
    from drrej.core.special import ndtr

    inside = ndtr(_HIGHEST - lambdas) - ndtr(_LOWEST - lambdas)
    ends = np.exp(_LOWEST * lambdas) * ndtr(_LOWEST) + np.exp(_HIGHEST * lambdas) * ndtr(-_HIGHEST)
    mean: Floats = np.log(np.exp(lambdas**2 / 2.0) * inside + ends)
    return mean


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
    return [
        (lower_bound(tally.events, tally.rows, level), upper_bound(tally.events, tally.rows, level))
        for tally in tallies
    ]
