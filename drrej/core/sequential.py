"""Whether a rate is above its limit, at every look and forever; and evidence that starts anew with every batch.

The e-values, and why alarms may be looked at as often as one likes, are derived in docs/proofs.md. Values are kept as
logarithms, so nothing overflows, and a state is as long as the number of alternatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field, replace

import numpy as np

from drrej.core.types import Floats
from drrej.records import dataclass


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
    """Evidence over all starts after some looks: ln A_t(k) of each alternative, empty before the first look.

    The peak is the largest ln E_t (but at least 0) so far: an alarm that was once raised stays.
    """

    looks: int = 0
    forever: tuple[float, ...] = ()
    forever_peak: float = 0.0

    def update(self, log_factors: Floats, log_weights: Floats) -> Restarts:
        """After one more look: ln L_t(k) and ln π_k, arrays of shape (K,)."""
        if log_factors.shape != log_weights.shape or (self.looks and len(self.forever) != log_factors.size):
            raise ValueError(f"`log_factors` has shape {log_factors.shape}, not that of the weights and of the state")
        look = self.looks + 1
        share = math.log(start_share(look))
        before = np.logaddexp(np.array(self.forever), share) if self.looks else share
        forever = before + log_factors
        peak = max(self.forever_peak, _with_unspent(log_sum(forever + log_weights), look))
        return Restarts(look, tuple(forever.tolist()), peak)

    def log_e_value(self, log_weights: Floats) -> float:
        """The logarithm of E_t; 0 before the first look."""
        return _with_unspent(log_sum(np.array(self.forever) + log_weights), self.looks) if self.looks else 0.0

    def alarm(self, delta: float) -> bool:
        """Whether E_t has ever reached 1 / delta; false with chance at most delta, over all looks together."""
        return self.forever_peak >= -math.log(delta)


def log_sum(logs: Floats) -> float:
    """The logarithm of Σ exp(logs) of a nonempty array, without overflow."""
    return float(np.logaddexp.reduce(logs))


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
    >>> monitor.alarm(0.05), monitor.restarts.alarm(0.05)
    (True, True)
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

    def alarm(self, delta: float) -> bool:
        """Whether the e-value of all rows has ever reached 1 / delta; false with chance at most delta, ever."""
        return self.peak >= -math.log(delta)
