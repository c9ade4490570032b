"""Tests of every cutoff of the rows at hand, from the safest up: where they start, and why they hold.

A cutoff c accepts the rows whose loss L' is below it. Each row also has something bad about it, X in [0, 1]: an error
(0 or 1) or a bounded cost. The true risk of c is r(c) = E[X | L' < c], and c is *bad* when r(c) > R. L' is a fixed
function, and the n rows are independent draws from the distribution of the rows to come.

**Order.** Rows are ordered by L'; rows that tie are ordered at random, without looking at X. Rank k stands for the
first k rows of that order. Its p-value p_k comes from a test of "the k values X are independent and the mean of each
is at least R" that passes with chance at most a when its level is a: for errors P(Bin(k, R) <= errors), which is
exact.

**Levels.** Starts are ranks k_1 < k_2 < ... with shares d_1, d_2, ... of delta that depend on n, R and delta alone.
Rank k is tested at the level

    a_k = (d_s if k is the start k_s) + (a_{k-1} if rank k-1 passed, else 0)

and passes if p_k <= a_k. Ranks that pass one after the other are a run. A cutoff is certified if its rank passed: the
cutoff of rank k is the loss of row k+1 when that is larger than the loss of row k, and "accept all" for k = n. The
first rank of a run only opens it and certifies nothing, unless it is n.

**Claim.** With chance at least 1 - delta, no bad cutoff is certified, whatever the distribution of the losses (ties
included) and however the risk depends on the cutoff.

**Proof.** Let W in [0, 1] be the row's place in the order of the whole distribution: uniform, ties spread at random.
A cutoff c is the point P(L' < c) on this scale, W_(k) is the k-th smallest W at hand, N(w) the number of rows up to
w. r(w) = E[X | W < w] is continuous, so the bad points are open intervals (u_i, v_i) with r(u_i) = r(v_i) = R, but
for u_i = 0 and v_i = 1. Take finitely many of them; the claim for all follows in the limit.

(a) Let C be the counts N(u_i), N(v_i) of all i. Given C the rows between two neighbouring end points are independent
draws from there, and the mean of X there is R, because it is R up to either end point. So given C, all rows up to u_i
have mean R, and the chance that rank N(u_i) passes at a level that C determines is at most that level.

(b) Call a start *inside* if N(u_i) < k_s < N(v_i) for some i (with v_i = 1: N(u_i) < k_s). Given W_(k_s + 1) = w in
(u_i, v_i) and N(u_i), the rows up to u_i have mean R and those from u_i to w a larger one, because r(w) > R. So the
chance that the start is inside and its rank passes at level d_s is at most d_s times the chance that it is inside.

(c) Suppose that a bad cutoff is certified, of rank k, at a point w in (u_i, v_i), by a run that starts at s. Either
N(u_i) < k_s: then the start is inside. For k = k_s = n this is the definition. Otherwise k_s < k, and u_i < W_(k_s +
1) <= W_(k) <= w < v_i; hence N(u_i) < k_s < N(v_i). As the first rank of its run, k_s passed at the level d_s alone.
Or N(u_i) >= k_s: let u be the first of the u_i with this property. The run contains rank N(u), because k_s <= N(u) <=
N(u_i) <= k. If s is inside, its rank has passed at level d_s, as before. If it is not, the level at rank N(u) is at
most the sum of the shares of those starts that are not inside and for which u is the first end point with N(u) >=
k_t: this holds for every start t from k_s to N(u), since one of them inside (u_j, v_j) would have N(u_j) < k_s <= k_t
< N(v_j), and s would be inside.

(d) C determines which starts are inside and which belong to which u, and each start counts once. By (a) and (b) the
chance of a bad certified cutoff is at most the sum of all shares, delta.

Where the ratio is 0 from a loss f on, no cutoff lies above f. Given the number of rows below f they are independent
draws from there, so everything holds for them, with "accept all" meaning the cutoff f.

This is the fallback procedure (Wiens 2003) on a continuum of hypotheses. Taking candidates from the rows at hand
costs nothing because no rank is skipped: a run cannot step over the point where the risk exceeds R. It would not hold
for a coarser set of ranks.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from drrej.records import dataclass

Ranks = NDArray[np.int64]

_TOP = 2
"""The last run starts at one in so many rows."""
_RATIO = 6
"""Each start below it has one in so many of the rows of the next."""
_FALL = 0.7
"""Its share of delta, relative to that of the next."""
_SEED = 20240


@dataclass(frozen=True)
class Starts:
    """Where runs start, in ascending order, and the share of delta each start has."""

    ranks: tuple[int, ...]
    shares: tuple[float, ...]


def spread(rows: int, delta: float, can_pass: Callable[[int, float], bool]) -> Starts:
    """Starts at 1/2, 1/12, 1/72, ... of the rows, as many as can pass there at their share.

    `can_pass` says whether so many rows with nothing wrong about them pass at a level. If half of the rows cannot, all
    of delta goes to the first rank that can.

    The figures are a compromise. A start at few rows finds a small safe part; one at many rows still passes where the
    safest rows are not free of errors. They were chosen by simulation of a dozen worlds, with 1 to 300 times the
    fewest rows that can pass, and the optimum is flat.
    """
    found = Starts((max(1, _first(rows, delta, can_pass)),), (delta,))
    for count in range(1, 20):
        weights = [_FALL**i for i in range(count)]
        shares = [delta * weight / sum(weights) for weight in weights]
        ranks = [rows // (_TOP * _RATIO**i) for i in range(count)]
        if not all(can_pass(rank, share) for rank, share in zip(ranks, shares, strict=True)):
            break
        found = Starts(tuple(reversed(ranks)), tuple(reversed(shares)))
    return found


def _first(rows: int, level: float, can_pass: Callable[[int, float], bool]) -> int:
    """The first rank that can pass, or the last one if none can."""
    return min(rows, bisect.bisect_left(range(rows + 1), True, key=lambda rank: can_pass(rank, level)))


@dataclass(frozen=True)
class Stretch:
    """Neighbouring ranks tested at one level; all passed, but the last may have `failed`. The first may open a run."""

    first: int
    last: int
    level: float
    failed: bool
    opens: bool

    @property
    def least(self) -> int:
        """The first rank that can certify a cutoff."""
        return self.first + self.opens

    @property
    def most(self) -> int:
        """The last rank that passed."""
        return self.last - self.failed


def walk(starts: Starts, rows: int, first_failure: Callable[[int, int, float], int | None]) -> list[Stretch]:
    """Test all ranks from the first start on; `first_failure(first, last, level)` is a rank that fails, or None."""
    stretches: list[Stretch] = []
    level = 0.0
    ends = [rank - 1 for rank in starts.ranks[1:]] + [rows]
    for first, last, share in zip(starts.ranks, ends, starts.shares, strict=True):
        opens = level == 0.0
        level += share
        failure = first_failure(first, last, level)
        stretches.append(Stretch(first, last if failure is None else failure, level, failure is not None, opens))
        if failure is not None:
            level = 0.0
    return stretches


def certified_ranks(stretches: list[Stretch], ranks: Ranks, rows: int) -> NDArray[np.bool_]:
    """Which of some ranks certify their cutoff."""
    certified = np.zeros(ranks.size, bool)
    for stretch in stretches:
        certified |= (ranks >= stretch.least) & (ranks <= stretch.most)
        certified |= (ranks == rows) & (stretch.most == rows)
    return certified


def levels(stretches: list[Stretch], ends: Ranks) -> NDArray[np.float64]:
    """The level at which blocks of ties that end at these ranks were last tested; 0 where they were not."""
    found = np.zeros(ends.size)
    for stretch in stretches:
        first, last = np.searchsorted(ends, [stretch.first, stretch.last])
        found[first : last + 1] = stretch.level
    return found


def tie_order(losses: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.intp]:
    """The order of the rows by loss; ties in a random but fixed order that does not depend on the order at hand."""
    order = np.lexsort((values, losses))
    ordered = losses[order]
    if not (ordered[1:] == ordered[:-1]).any():
        return order
    return order[np.lexsort((np.random.default_rng(_SEED).random(order.size), ordered))]


def error_ranks(accepted: Ranks, errors: Ranks) -> Ranks:
    """The rank of each error, ascending, from the counts after each distinct loss; ties in a random but fixed order."""
    rows, wrong = (np.diff(counts, prepend=0) for counts in (accepted, errors))
    mixed = (wrong > 0) & (wrong < rows)
    plain = np.flatnonzero(~mixed & (wrong > 0))  # blocks of errors only: nothing to order
    ranks = np.repeat(accepted[plain] - rows[plain], rows[plain]) + _within(rows[plain])
    if mixed.any():
        size, bad = rows[mixed], wrong[mixed]
        place = _within(size)
        block = np.repeat(np.arange(size.size), size)
        order = np.lexsort((np.random.default_rng(_SEED).random(place.size), block))
        placed = np.repeat(accepted[mixed] - size, size) + place
        ranks = np.sort(np.concatenate([ranks, placed[(place <= np.repeat(bad, size))[order]]]))
    return ranks


def _within(sizes: Ranks) -> Ranks:
    """1, 2, ... in each block."""
    ends = np.cumsum(sizes)
    return np.arange(1, int(sizes.sum()) + 1) - np.repeat(ends - sizes, sizes)
