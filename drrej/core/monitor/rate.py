"""Whether a rate is above its limit, and where it lies, at every look and forever.

The rate is the risk of the accepted rows (errors among labelled accepted rows), or the coverage (accepted among all
rows), or any other share of rows. A night brings n_t rows with e_t events; S and n are the sums so far.

**What is assumed.** Before the events of night t are looked at, its rows have an average chance p_t of an event, which
may depend on everything before, may differ from row to row and from night to night, and need not be known; and for
every θ > 0

    E[θ^{e_t} | before] ≤ (1 + p_t (θ - 1))^{n_t}.                                                             (1)

(1) holds if, given the past, the rows of a night are independent with chances that average p_t: the left side is the
product of 1 + p_i (θ - 1) then, and the geometric mean is at most the arithmetic one. It holds if the n_t rows are a
random subset, without replacement, of a night with a share p_t of events, as in an audit: θ^x is convex, and Hoeffding
(1963, theorem 4) bounds sampling without replacement by sampling with it. Where rows of a night depend on each other,
take each row as a night of its own, with p_t its chance given all rows before it: (1) is an equality then, and the
looks at the ends of the real nights are some of all looks. (1) does not hold if rows are chosen by their outcome:
errors that are reported sooner than right answers, say.

**The e-value.** For a limit m and an odds ratio θ let

    M(θ, m) = θ^S / (1 + m (θ - 1))^n.

Let p̄ be the average of the p_t so far, each weighted with n_t. By (1), L(θ) = Π_t θ^{e_t} / (1 + p_t (θ - 1))^{n_t} is
a nonnegative supermartingale that starts at 1. As ln(1 + p (θ - 1)) is concave in p, the product of the denominators
is at most (1 + p̄ (θ - 1))^n, hence M(θ, p̄) ≤ L(θ) at every look, for every θ, however p_t varies. With fixed weights
π_k, Σ_k π_k L(θ_k) is such a supermartingale too, so by Ville's inequality, with chance at least 1 - α,

    Σ_k π_k M(θ_k, p̄) < 1/α    at all looks together.                                                          (2)

- *Limit.* With all θ_k > 1, M falls as m grows, so while p̄ ≤ R the sum at m = R is at most that at p̄: it reaches 1/α at
  a look where the average risk so far is at most R with chance at most α, ever. If every night has p_t ≤ R, the sum is
  itself a supermartingale night by night, which is what the restarts need (`restarts`).
- *Confidence sequence.* All m with Σ_k π_k M(θ_k, m) < 1/α, with θ_k on both sides of 1, contain p̄ at all looks
  together with chance 1 - α. ln M is convex in m, and so is the logarithm of the sum, so this is an interval; it
  contains S/n, where every M is at most 1 (θ^x ≤ 1 + x (θ - 1) for 0 ≤ x ≤ 1). The ends are found by bisection.

Both depend on S and n alone: any split of the same rows into nights gives the same bits. That the weights are on odds
ratios, the same for each m, is what makes (2) hold for rates that vary; weights on rates (the beta-binomial mixture)
cover a constant rate only.

**The alternatives.** ln θ_k = 2^4, 2^3, ..., 2^-17: the best θ for a given truth is met within a factor 2^(1/2) of its
logarithm, which costs at most 11 % of the evidence. The weights fall as 1/(1 + |log2 ln θ + 1|)²: most on 1/2, where
odds are 1.6 times those allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field, replace

import numpy as np

from drrej.core.monitor.restarts import Floats, Restarts, log_sum
from drrej.records import dataclass

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
