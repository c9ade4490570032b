"""Evidence against "all is well" that may be looked at after every batch: e-values of rates and of drifting losses.

An e-value of 1/α or more has a chance of at most α to be seen at any look, ever, if all is well: proofs in
docs/proofs.md. All values are kept as logarithms; a state is of the same size however many batches it has seen.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from functools import cache
from operator import add

import numpy as np
from msgspec import field
from msgspec.structs import replace

from drrej.core.types import Floats, Stored, Sums


class Tally(Sums, frozen=True, forbid_unknown_fields=True):
    """Events among rows; adds up in any order.

    >>> Tally(3, 100) + Tally(1, 50)
    Tally(events=4, rows=150)
    """

    events: int = 0
    rows: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.events <= self.rows:
            raise ValueError(f"`events` must be between 0 and `rows`, not {self.events} of {self.rows}")

    @property
    def rate(self) -> float | None:
        """The share of events; None without rows."""
        return self.events / self.rows if self.rows else None


# Evidence that starts anew with every batch


def start_share(look: int) -> float:
    """w_j, the capital of the evidence that starts at look j = 1, 2, ...

    The shares are the steps of 1 / (1 + log2 j), so that those from j on sum to exactly that.

    >>> start_share(1), round(start_share(2), 4), round(1 / start_share(365))
    (0.5, 0.1131, 22931)
    """
    return math.log2(1.0 + 1.0 / look) / ((1.0 + math.log2(look)) * (1.0 + math.log2(look + 1)))


def unspent(look: int) -> float:
    """u_t, the capital of all starts after look t."""
    return 1.0 / (1.0 + math.log2(look + 1))


class Restarts(Stored, frozen=True, omit_defaults=False):
    """Evidence from every start on, after some looks: ln A_t(k) of each alternative, none before the first look."""

    looks: int = 0
    log_values: tuple[float, ...] = ()

    def update(self, log_factors: Floats) -> Restarts:
        """After one more look: ln L_t(k) of each alternative."""
        if self.looks and len(self.log_values) != log_factors.size:
            raise ValueError(f"there are {len(self.log_values)} alternatives, not {log_factors.size}")
        share = math.log(start_share(self.looks + 1))
        before = np.logaddexp(np.array(self.log_values), share) if self.looks else share
        return Restarts(self.looks + 1, tuple((before + log_factors).tolist()))

    def log_e_value(self, log_weights: Floats) -> float:
        """The logarithm of E_t, with ln π_k of each alternative; 0 before the first look."""
        if not self.looks:
            return 0.0
        spent = np.logaddexp.reduce(np.array(self.log_values) + log_weights)
        return float(np.logaddexp(spent, math.log(unspent(self.looks))))


# Rates


_RATE_POWERS = np.arange(4, -18, -1)
LOG_ODDS: Floats = np.ldexp(1.0, _RATE_POWERS)
_RATE_WEIGHTS: Floats = 1.0 / (1.0 + np.abs(_RATE_POWERS + 1.0)) ** 2
LOG_WEIGHTS: Floats = np.log(_RATE_WEIGHTS / _RATE_WEIGHTS.sum())
BOTH_LOG_ODDS: Floats = np.concatenate([LOG_ODDS, -LOG_ODDS])
BOTH_LOG_WEIGHTS: Floats = np.tile(LOG_WEIGHTS - math.log(2.0), 2)


def confidence_sequence(tally: Tally, delta: float) -> tuple[float, float]:
    """The interval that holds the average rate so far, at all looks together, except with chance `delta`.

    >>> [round(end, 4) for end in confidence_sequence(Tally(50, 1000), 0.05)]
    [0.0322, 0.0732]
    """
    if not tally.rows:
        return 0.0, 1.0
    return _end(tally, -math.log(delta), 0.0), _end(tally, -math.log(delta), 1.0)


def log_factors(tally: Tally, rate: float, log_odds: Floats) -> Floats:
    """The logarithm of M(θ, rate) for each ln θ.

    Events at a rate are non-events at the other rate with the odds turned over: the same number, and the one with the
    rate up to 1/2 does not cancel.
    """
    events = tally.events
    if rate > 0.5:
        events, rate, log_odds = tally.rows - events, 1.0 - rate, -log_odds
    factors: Floats = events * log_odds - tally.rows * np.log1p(rate * np.expm1(log_odds))
    return factors


def _end(tally: Tally, bar: float, outside: float) -> float:
    """The end of the interval towards the end of the range: the nearest float that the evidence excludes, if any."""
    inside, rate = tally.events / tally.rows, outside
    while True:
        if np.logaddexp.reduce(log_factors(tally, rate, BOTH_LOG_ODDS) + BOTH_LOG_WEIGHTS) >= bar:
            outside = rate
        else:
            inside = rate
        rate = (inside + outside) / 2.0
        if rate in (inside, outside):
            return outside


class RateMonitor(Stored, frozen=True, omit_defaults=False):
    """A rate against a limit, batch after batch; `restarts` see a late change sooner than all rows together.

    >>> monitor = RateMonitor(0.05)
    >>> for batch in range(5):
    ...     monitor = monitor.update(Tally(12, 100))
    >>> round(monitor.log_e_value, 2), round(monitor.restarts_log_e_value, 2)
    (16.7, 16.02)
    """

    limit: float
    total: Tally = Tally()
    restarts: Restarts = field(default_factory=Restarts)

    def update(self, batch: Tally) -> RateMonitor:
        """After one more look; without rows it is none."""
        if not batch.rows:
            return self
        restarts = self.restarts.update(log_factors(batch, self.limit, LOG_ODDS))
        return RateMonitor(self.limit, self.total + batch, restarts)

    @property
    def log_e_value(self) -> float:
        """The logarithm of the e-value of all rows so far: the average rate is at most the limit."""
        return float(np.logaddexp.reduce(log_factors(self.total, self.limit, LOG_ODDS) + LOG_WEIGHTS))

    @property
    def restarts_log_e_value(self) -> float:
        """The logarithm of the e-value over all starts: no batch's rate is above the limit."""
        return self.restarts.log_e_value(LOG_WEIGHTS)


# Drift of the losses: each batch against everything before it


_SHIFT_POWERS = np.arange(1, -10, -1)
_SHIFTS: Floats = np.ldexp(1.0, _SHIFT_POWERS)
_SHIFT_WEIGHTS: Floats = 1.0 / (1.0 + np.abs(_SHIFT_POWERS + 2.0))
_LOWEST, _HIGHEST = -3.0, 8.0
_MOST_LAMBDA = 4.0
_TAIL = 12.0
"""Standard deviations from the mode beyond which a hypergeometric law is nil: e^-72."""


Split = tuple[int, int, int, int]
"""Bins [first, end) are split before bin `middle`: first, middle, end, depth."""


@cache
def splits(bins: int) -> tuple[Split, ...]:
    """The splits of so many bins, parents first.

    >>> splits(4)
    ((0, 2, 4, 0), (0, 1, 2, 1), (2, 3, 4, 1))
    """
    found, waiting = list[Split](), deque([(0, bins, 0)])
    while waiting:
        first, end, depth = waiting.popleft()
        if end - first > 1:
            middle = (first + end) // 2
            found.append((first, middle, end, depth))
            waiting += (first, middle, depth + 1), (middle, end, depth + 1)
    return tuple(found)


class LossDrift(Stored, frozen=True, omit_defaults=False):
    """Losses against everything before, batch after batch, in bins between `edges`.

    `pool` are the bin counts of all rows so far, `new` those of the last batch. The pool began with `first_rows` rows:
    `fit_rows` of the fit, or the first batch where the fit's counts are not known. `against_first` are the logarithms
    of the products from the first batch on, one per alternative (none before the first look).

    >>> monitor = LossDrift.start((0.1, 0.5, 1.0), (500, 500, 500, 500)).update((260, 250, 245, 245))
    >>> monitor.log_e_value < 0 < monitor.update((150, 150, 300, 400)).log_e_value
    True
    """

    edges: tuple[float, ...]
    pool: tuple[int, ...]
    new: tuple[int, ...]
    fit_rows: int
    first_rows: int
    against_first: tuple[float, ...] = ()
    restarts: Restarts = field(default_factory=Restarts)

    @classmethod
    def start(cls, edges: Sequence[float], counts: Sequence[int]) -> LossDrift:
        """With the bin counts of the fit's rows; zeros make the first batch take their place."""
        rows = sum(counts)
        return cls(tuple(edges), tuple(counts), (0,) * len(counts), rows, rows)

    def update(self, batch: Sequence[int]) -> LossDrift:
        """After the bin counts of one more batch; one without rows, or with nothing before it, is no look."""
        if len(batch) != len(self.pool) or min(batch, default=0) < 0:
            raise ValueError(f"`batch` must have {len(self.pool)} counts from 0 up, as the pool has, not {list(batch)}")
        rows, before = sum(batch), sum(self.pool)
        added = replace(self, pool=tuple(map(add, self.pool, batch)), new=tuple(batch))
        if not before:
            return replace(added, first_rows=rows)
        if not self.edges or not rows:
            return added
        sides = []
        for start, middle, end, _ in splits(len(batch)):
            left, right = slice(start, middle), slice(middle, end)
            sides.append((sum(batch[left]), sum(batch[right]), sum(self.pool[left]), sum(self.pool[right])))
        tails = np.array([fisher_tails(*counts) for counts in sides])
        scale = math.sqrt(rows / (rows + before) * before)
        first = drift_factors(tails, scale * self.first_rows / before).ravel()
        against_first = first + np.array(self.against_first) if self.against_first else first
        restarts = self.restarts.update(drift_factors(tails, scale).ravel())
        return replace(added, against_first=tuple(against_first.tolist()), restarts=restarts)

    @property
    def log_e_value(self) -> float:
        """The logarithm of the e-value of all batches against the first rows; 0 before the first look."""
        if not self.against_first:
            return 0.0
        return float(np.logaddexp.reduce(np.array(self.against_first) + log_weights(len(self.pool)).ravel()))

    @property
    def restarts_log_e_value(self) -> float:
        """The logarithm of the e-value over all starts."""
        return self.restarts.log_e_value(log_weights(len(self.pool)).ravel())


def drift_factors(tails: Floats, scale: float) -> Floats:
    """The sums of λ z - ψ(λ) over the splits of each pattern, for each direction and shift.

    `tails` are p_left and p_right of each split, shape (..., B - 1, 2); the result has shape (..., B, 2, shifts). The
    `scale` is sqrt(n N / (n + N)) for whole batches.
    """
    from drrej.core.special import ndtri

    scores = np.clip(-ndtri(tails), _LOWEST, _HIGHEST)
    bins = tails.shape[-2] + 1
    first, middle, end, _ = np.array(splits(bins)).T
    spreads = np.sqrt((middle - first) * (end - middle) / ((end - first) * bins))  # if all bins were equally likely
    lambdas = np.minimum(np.outer(scale * spreads, _SHIFTS), _MOST_LAMBDA)[:, None, :]
    single = scores[..., None] * lambdas - _log_mean(lambdas)
    upper = single[..., end == bins, :, :].sum(axis=-3, keepdims=True)
    factors: Floats = np.concatenate([upper, single], axis=-3)
    return factors


def fisher_tails(k: int, l: int, a: int, b: int) -> tuple[float, float]:  # noqa: E741 - the letters of the proof
    """(P(H ≥ k), P(H ≤ k)): new rows k left and l right against a and b of the pool.

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
def log_weights(bins: int) -> Floats:
    """The logarithm of π of each pattern, direction and shift; see docs/proofs.md."""
    depth = np.array([depth for *_, depth in splits(bins)], np.int64)
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
