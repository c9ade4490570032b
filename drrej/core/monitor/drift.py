"""Whether the losses drift, without labels: each night against everything before it, at every look and forever.

The range of the losses is cut into bins at fixed edges. The pool is how many rows of the first batch (the fit's rows,
or others) and of all nights since then lie in each bin. The null is that all rows, from the first batch on, are
exchangeable: in particular, independent draws from one distribution, whichever it is.

**Nodes.** The bins are halved, and the halves again, down to single bins: B bins have B - 1 nodes. At a node, the night
has k rows in the left half and l in the right one, the pool has a and b. Let H be hypergeometric: the number of night
rows among the a + k in the left half, when k + l of the a + b + k + l rows are picked at random. The exact one-sided
tests of Fisher are

    p_left = P(H ≥ k): more of the night on the left,      p_right = P(H ≤ k): more on the right,

and each becomes a normal score z = Φ⁻¹(1 - p). Scores are cut at -3 and 8.

**Why the scores may be multiplied up.** Let p̃ = P(H > k) + U P(H = k) with U uniform and drawn anew for each night and
node. It is never computed; p_left ≥ p̃ and p_right ≥ 1 - p̃ for every U.

*Claim: under the null all p̃, of all nodes and nights, are independent and uniform on [0, 1].* Two cases.

1. *The edges do not depend on the rows of the first batch or of the nights* (they may come from other rows), and
   losses may tie in any way. Let c_t be the bin counts of the pool and night t together: the pool of night t + 1. Given
   c_t, the rows of night t are a random subset of those in c_t. So the left count at the first node is
   hypergeometric given c_t; given it, so is that of each child; and so on. Hence, given c_t, the p̃ of night t are
   independent and uniform, node by node, *whatever c_t is*. The pool c_{t-1} is c_t without night t. Given c_{t-1}, how
   it was put together from earlier nights does not depend on the rows after it. So the p̃ of night t - 1 are
   independent and uniform given c_{t-1} and everything after, whatever that is. Going back to the first night
   gives the claim. (That H has this law given c_t is not enough: the past does tell something about c_t. It is that the
   law of p̃ is the same for every c_t that makes the p̃ independent. This is why scores are used, not likelihood ratios.)

2. *The edges are order statistics of the first batch*, counted in the bin to the right of the edge, and losses do not
   tie. The chances of the bins are then Dirichlet distributed given the edges, with the numbers of gaps between order
   statistics as parameters: the counts of the first batch, and one more in the first bin (the known law of the
   coverages of order statistics). Given everything before night t, the left count of a node is beta-binomial:
   BB(k + l; a', b') with b' = b, and a' = a + 1 if the node has the first bin, else a. Take p̃ from this law: the claim
   holds, with the true past. And p_left ≥ p̃, p_right ≥ 1 - p̃ as before, because for positive whole a and b

       P(H ≥ k) = P(BB(k + l; a + 1, b) ≥ k),      P(H ≤ k) = P(BB(k + l; a, b + 1) ≤ k)

   (both sides count the orders of old and new rows in which enough new ones come before an old one), and a
   beta-binomial grows with its first parameter and falls with its second.
   With ties at the edges neither case applies exactly; a first batch of rows that did not make the edges is exact then.

Let Z̃ = Φ⁻¹(1 - p̃), cut in the same way, and ψ(λ) = ln E[exp(λ Z)] for a standard normal Z cut so. Then exp(λ Z̃ - ψ(λ))
has expectation 1 given the p̃ of the nights before, for λ fixed by the *sizes* of the nights alone; so does the same
with 1 - p̃ in the place of p̃. The factors exp(λ z - ψ(λ)) that are computed are at most these, for every
U, and the sums of `restarts` grow with each factor. So those sums are at most sums for which its proofs hold, and
alarms are no more frequent. Nothing is random, and the verdict depends on the bin counts alone. What the exact tests
give away is P(H = k), little as soon as a node gets some hundred rows a night.

The sizes of the nights, and when one ends, must not depend on their losses.

**Alternatives.** One node each, one direction each, and a shift δ of the log-odds of left against right: 2, 1, 1/2,
..., 2^-9. If such a shift is there the score has mean δ s with s² = p (1 - p) n N / (n + N), about, for n new and N
pooled rows at the node; so λ = δ s, at most 4. The first node, which sees harder against easier, has the most weight;
each level of nodes has together half the weight of the level above.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from drrej.core.monitor.restarts import Floats, Restarts, log_sum

_SHIFTS: Floats = np.ldexp(1.0, np.arange(1, -10, -1))
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

    `pool` are the bin counts of all rows so far, to begin with those of the first batch. Without a first batch (zeros)
    the first night is it.

    >>> monitor = LossDrift((500, 500, 500, 500))
    >>> monitor = monitor.update((260, 250, 245, 245))
    >>> round(monitor.log_e_value, 2)
    -0.25
    >>> monitor = monitor.update((150, 150, 300, 400))
    >>> monitor.restarts.alarm(0.05), monitor.regions()[0].direction
    (True, 'right')
    """

    pool: tuple[int, ...]
    restarts: Restarts = field(default_factory=Restarts)

    def update(self, night: Sequence[int]) -> LossDrift:
        """After the bin counts of one more night; a night without rows, or the first batch, is no look."""
        if len(night) != len(self.pool) or min(night, default=0) < 0:
            raise ValueError(f"`night` must have {len(self.pool)} counts from 0 up, as the pool has, not {list(night)}")
        pool = tuple(old + int(new) for old, new in zip(self.pool, night, strict=True))
        if len(pool) < 2 or not any(night) or not any(self.pool):
            return LossDrift(pool, self.restarts)
        old, new = np.array(self.pool, np.int64), np.array(night, np.int64)
        tails = np.array([_node_tails(old, new, node) for node in nodes(len(pool))])
        factors = log_factors(tails, int(new.sum()), int(old.sum()))
        return LossDrift(pool, self.restarts.update(factors.ravel(), log_weights(len(pool)).ravel()))

    @property
    def log_e_value(self) -> float:
        """The logarithm of the e-value over all starts, nodes, directions and shifts."""
        return self.restarts.log_e_value(log_weights(len(self.pool)).ravel())

    @property
    def log_restart_sum(self) -> float | None:
        """The logarithm of the Shiryaev-Roberts sum, to be compared with a run length; None before the first look."""
        return self.restarts.log_sum(log_weights(len(self.pool)).ravel())

    def regions(self) -> tuple[Region, ...]:
        """Where the evidence is: each node and direction with its part of the e-value, largest first."""
        if not self.restarts.looks:
            return ()
        weights = log_weights(len(self.pool))
        parts = np.array(self.restarts.forever).reshape(weights.shape) + weights
        found = [
            Region(node.first, node.middle, node.end, direction, log_sum(parts[i, j]))
            for i, node in enumerate(nodes(len(self.pool)))
            for j, direction in enumerate(("left", "right"))
        ]
        return tuple(sorted(found, key=lambda region: -region.log_e_value))


@dataclass(frozen=True)
class Region:
    """Rows of bins [first, end) moved to the left (lower losses, before `middle`) or to the right.

    `log_e_value` is the part of the monitor's e-value, with its weight, that this node and direction contribute.
    """

    first: int
    middle: int
    end: int
    direction: str
    log_e_value: float


def log_factors(tails: Floats, rows: int, before: int) -> Floats:
    """λ z - ψ(λ) of each node, direction and shift, for a night of `rows` rows and a pool of `before`.

    `tails` are p_left and p_right of each node, shape (..., B - 1, 2); the result has shape (..., B - 1, 2, shifts).
    """
    from scipy.special import ndtri

    scores = np.clip(-ndtri(tails), _LOWEST, _HIGHEST)
    scale = math.sqrt(rows / (rows + before) * before)
    lambdas = np.minimum(np.outer(scale * _spreads(tails.shape[-2] + 1), _SHIFTS), _MOST_LAMBDA)[:, None, :]
    factors: Floats = scores[..., None] * lambdas - _log_mean(lambdas)
    return factors


def _node_tails(old: NDArray[np.int64], new: NDArray[np.int64], node: Node) -> tuple[float, float]:
    """(p_left, p_right) of a node."""
    left, right = slice(node.first, node.middle), slice(node.middle, node.end)
    k, night_right = int(new[left].sum()), int(new[right].sum())
    return fisher_tails(k, night_right, int(old[left].sum()), int(old[right].sum()))


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
    """The logarithm of π of each node, direction and shift; each level has half the weight of that above."""
    depth = np.array([node.depth for node in nodes(bins)], np.int64)
    level = np.exp2(-depth.astype(np.float64))
    weights = level / np.bincount(depth, minlength=1)[depth]
    each = np.log(weights / weights.sum() / (2 * _SHIFTS.size))
    return np.broadcast_to(each[:, None, None], (depth.size, 2, _SHIFTS.size))


def _log_mean(lambdas: Floats) -> Floats:
    """ψ(λ) = ln E[exp(λ Z)] for a standard normal Z, cut at both ends."""
    from scipy.special import ndtr

    inside = ndtr(_HIGHEST - lambdas) - ndtr(_LOWEST - lambdas)
    ends = np.exp(_LOWEST * lambdas) * ndtr(_LOWEST) + np.exp(_HIGHEST * lambdas) * ndtr(-_HIGHEST)
    mean: Floats = np.log(np.exp(lambdas**2 / 2.0) * inside + ends)
    return mean
