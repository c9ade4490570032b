"""Evidence that starts anew every night, so that a change after a year of quiet is seen soon.

A monitor bets on alternatives k = 1..K with weights π_k (positive, sum 1). Look t brings one factor per alternative,
L_t(k) ≥ 0, with E[L_t(k) | the past] ≤ 1 as long as nothing is wrong (the null). Evidence that started at look j is
the product Π_{s=j..t} L_s(k). Two sums over all starts j are kept, each in one number per alternative:

    forever:  A_t(k) = (A_{t-1}(k) + w_t) L_t(k)          E_t = Σ_k π_k A_t(k) + u_t
    SR:       S_t(k) = (S_{t-1}(k) + 1) L_t(k)            S_t = Σ_k π_k S_t(k)

`forever` shares a capital of 1 among the starts: w_j = `start_share(j)` with Σ_j w_j = 1, and u_t = Σ_{j>t} w_j is what
is left for later starts. SR is the Shiryaev-Roberts sum, which gives every start a capital of 1.

**E_t is an e-process: P(E_t ≥ 1/α at any look, ever) ≤ α.** Proof. The past fixes A_{t-1}, so E[A_t(k) | past] ≤
A_{t-1}(k) + w_t, and E[E_t | past] ≤ Σ_k π_k A_{t-1}(k) + w_t + u_t = E_{t-1}, for u_{t-1} = w_t + u_t. So E_t is a
nonnegative supermartingale with E_0 = 1, and Ville's inequality is the claim. ∎ Evidence from start j needs to reach
1 / (α w_j): after a year 1/w_j is about 23 000, which is 10 in logarithms; the first start has w_1 = 1/2.

**The first look T with S_t ≥ c has E[T] ≥ c, and P(T ≤ t) ≤ t / c for every t.** Proof. E[S_t | past] ≤ S_{t-1} + 1, so
S_t - t is a supermartingale from 0, and at the bounded time T ∧ t: c P(T ≤ t) ≤ E[S_{T∧t}] ≤ E[T ∧ t] ≤ min(t, E[T]).
The second claim is there. If E[T] is finite, P(T ≤ t) grows to 1, and c ≤ E[T]; else there is nothing to show. ∎
So c is the average run length in looks: c = 365 / 0.05 = 7300 has a false alarm in a given first year of nights with
chance at most 5 %, and on average one in 20 years at the most. This is an e-detector (Shin, Ramdas and Rinaldo 2022).

Both proofs need E[L_t | past] ≤ 1 only for *some* past that holds the factors so far. They also carry over to factors
that are at most such factors (`drift` uses this): both sums grow with every factor.

All values are kept as logarithms; nothing overflows, and a state is as long as the number of alternatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from drrej.records import dataclass

Floats = NDArray[np.float64]


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


@dataclass(frozen=True)
class Restarts:
    """Both sums after some looks, as plain numbers.

    `forever` and `sums` hold ln A_t(k) and ln S_t(k), and are empty before the first look. The peaks are the largest
    ln E_t and ln S_t (but at least 0) so far: an alarm that was once raised stays.
    """

    looks: int = 0
    forever: tuple[float, ...] = ()
    sums: tuple[float, ...] = ()
    forever_peak: float = 0.0
    sums_peak: float = 0.0

    def update(self, log_factors: Floats, log_weights: Floats) -> Restarts:
        """After one more look: ln L_t(k) and ln π_k, arrays of shape (K,)."""
        if log_factors.shape != log_weights.shape or (self.looks and len(self.forever) != log_factors.size):
            raise ValueError(f"`log_factors` has shape {log_factors.shape}, not that of the weights and of the state")
        look = self.looks + 1
        share = math.log(start_share(look))
        if self.looks:
            forever = np.logaddexp(np.array(self.forever), share) + log_factors
            sums = np.logaddexp(np.array(self.sums), 0.0) + log_factors
        else:
            forever, sums = share + log_factors, log_factors
        return Restarts(
            look,
            tuple(forever.tolist()),
            tuple(sums.tolist()),
            max(self.forever_peak, _with_unspent(log_sum(forever + log_weights), look)),
            max(self.sums_peak, log_sum(sums + log_weights)),
        )

    def log_e_value(self, log_weights: Floats) -> float:
        """The logarithm of E_t; 0 before the first look."""
        return _with_unspent(log_sum(np.array(self.forever) + log_weights), self.looks) if self.looks else 0.0

    def log_sum(self, log_weights: Floats) -> float | None:
        """The logarithm of S_t; None before the first look, where S is 0."""
        return log_sum(np.array(self.sums) + log_weights) if self.looks else None

    def alarm(self, delta: float) -> bool:
        """Whether E_t has ever reached 1 / delta; false with chance at most delta, over all looks together."""
        return self.forever_peak >= -math.log(delta)

    def run_length_alarm(self, run_length: float) -> bool:
        """Whether S_t has ever reached `run_length`, the average number of looks to a false alarm."""
        return self.sums_peak >= math.log(run_length)


def log_sum(logs: Floats) -> float:
    """The logarithm of Σ exp(logs) of a nonempty array, without overflow."""
    largest = float(logs.max())
    return largest + math.log(float(np.exp(logs - largest).sum()))


def _with_unspent(log_spent: float, look: int) -> float:
    return float(np.logaddexp(log_spent, math.log(unspent(look))))


_POWERS = np.arange(4, -18, -1)
LOG_ODDS: Floats = np.ldexp(1.0, _POWERS)
_WEIGHTS: Floats = 1.0 / (1.0 + np.abs(_POWERS + 1.0)) ** 2
LOG_WEIGHTS: Floats = np.log(_WEIGHTS / _WEIGHTS.sum())
BOTH_LOG_ODDS: Floats = np.concatenate([LOG_ODDS, -LOG_ODDS])
BOTH_LOG_WEIGHTS: Floats = np.tile(LOG_WEIGHTS - math.log(2.0), 2)


@dataclass(frozen=True)
class Tally:
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


def log_e_value(tally: Tally, limit: float) -> float:
    """The logarithm of the e-value against "the average rate is at most `limit`".

    >>> round(log_e_value(Tally(9, 100), 0.05), 4), round(log_e_value(Tally(18, 100), 0.05), 4)
    (0.9241, 7.8048)
    """
    return log_sum(log_factors(tally, limit, LOG_ODDS) + LOG_WEIGHTS)


def confidence_sequence(tally: Tally, delta: float) -> tuple[float, float]:
    """The interval that holds the average rate so far, at all looks together, except with chance `delta`.

    >>> [round(end, 4) for end in confidence_sequence(Tally(50, 1000), 0.05)]
    [0.0322, 0.0732]
    """
    _check_delta(delta)
    if not tally.rows:
        return 0.0, 1.0
    bar = -math.log(delta)

    def excluded(rate: float) -> bool:
        return log_sum(log_factors(tally, rate, BOTH_LOG_ODDS) + BOTH_LOG_WEIGHTS) >= bar

    found = tally.events / tally.rows
    return _end(excluded, found, 0.0), _end(excluded, found, 1.0)


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


def _end(excluded: Callable[[float], bool], inside: float, outside: float) -> float:
    """The end of an interval from a point inside towards the end of the range; the nearest float outside it."""
    if inside == outside or not excluded(outside):
        return outside
    while True:
        middle = (inside + outside) / 2.0
        if middle in (inside, outside):
            return outside
        if excluded(middle):
            outside = middle
        else:
            inside = middle


def _check_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise ValueError(f"`delta` must be between 0 and 1, not {delta}")


@dataclass(frozen=True)
class RateMonitor:
    """A rate against a limit, night after night; plain numbers, of the same size however many nights.

    `peak` is the largest ln of the e-value of all rows so far (at least 0); `restarts` see a late change sooner.

    >>> monitor = RateMonitor(0.05)
    >>> for night in range(5):
    ...     monitor = monitor.update(Tally(12, 100))
    >>> monitor.alarm(0.05), monitor.restarts.alarm(0.05), monitor.restarts.run_length_alarm(7300)
    (True, True, True)
    """

    limit: float
    total: Tally = Tally()
    peak: float = 0.0
    restarts: Restarts = field(default_factory=Restarts)

    def __post_init__(self) -> None:
        if not 0.0 < self.limit < 1.0:
            raise ValueError(f"`limit` must be between 0 and 1, not {self.limit}")

    def update(self, night: Tally) -> RateMonitor:
        """After one more look; without rows it is none."""
        if not night.rows:
            return self
        total = self.total + night
        return replace(
            self,
            total=total,
            peak=max(self.peak, log_e_value(total, self.limit)),
            restarts=self.restarts.update(log_factors(night, self.limit, LOG_ODDS), LOG_WEIGHTS),
        )

    @property
    def log_e_value(self) -> float:
        """The logarithm of the e-value of all rows so far: the average rate is at most the limit."""
        return log_e_value(self.total, self.limit)

    @property
    def restarts_log_e_value(self) -> float:
        """The logarithm of the e-value over all starts: no night's rate is above the limit."""
        return self.restarts.log_e_value(LOG_WEIGHTS)

    @property
    def log_restart_sum(self) -> float | None:
        """The logarithm of the Shiryaev-Roberts sum, to be compared with a run length; None before the first look."""
        return self.restarts.log_sum(LOG_WEIGHTS)

    def alarm(self, delta: float) -> bool:
        """Whether the e-value of all rows has ever reached 1 / delta; false with chance at most delta, ever."""
        return self.peak >= -math.log(delta)
