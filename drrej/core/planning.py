"""How many fresh labelled rows a promise takes, before anyone labels them; and what rows at hand can promise.

A promise is a risk of at most R except with chance delta. The question is how many rows it takes until it is
certified with a given chance, the power, if the error rate among the accepted rows is `error`, below R.

**One look.** k accepted rows pass with up to B(k) errors, where B(k) is the largest number with P(Bin(k, R) <= B) <=
delta. Their power is P(Bin(k, error) <= B(k)), exactly. It is not monotone in k: it rises where B(k) does and falls
in between, so one more row may lower it. The *assured* power of k is the smallest power of any number of rows from k
on; it grows with k. "It takes k rows" means: the assured power of k is at least what was asked for, so no larger
number disappoints. Between two rises the power is least just before the second, and from some number on it is bounded
by Chernoff's inequality: B(k) >= k R - t - 1 with t = sqrt(2 k R ln(1/delta)), and with s = k (R - error) - t > 0 the
power is at least 1 - exp(-s^2 / (2 (k error + s/3))), which grows with k. So finitely many k decide.

**How many rows are accepted.** A cutoff fixed beforehand, of coverage C, accepts Bin(n, C) of n rows. The mean of the
assured power over that grows with n, because the assured power grows with k: the smallest n is found by bisection,
and the true power is never smaller. Where a risk and a coverage are promised together (`drrej.core.joint`) the number
of accepted rows that is looked at is fixed by n, and grows with it.

**Every cutoff.** Where only the risk is promised, see `drrej.core.planning_sequence`.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from drrej.core.curves import RiskCoverage
from drrej.core.errors import Infeasible, OptionError
from drrej.core.guarantees import ErrorTest, any_cutoff_bound, needed_rows
from drrej.core.intervals import exact_decimal, upper_bound
from drrej.core.joint import COVERAGE_SHARE
from drrej.records import dataclass

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

MOST_ROWS = 4 * 10**6
"""Beyond so many accepted rows nobody plans."""
_SPARE = 1e-4
"""Of the chance to fail that is allowed, what may be left to numbers of rows beyond those that are looked at."""


@dataclass(frozen=True)
class Question:
    """A promise (risk, delta), the error rate that is expected at a coverage, and the wanted chance to certify it."""

    risk: float
    delta: float
    error: float
    coverage: float = 1.0
    power: float = 0.8

    def __post_init__(self) -> None:
        if not 0 < self.risk < 1:
            raise OptionError(f"`risk` {self.risk:g}: it must be above 0 and below 1")
        if not 0 <= self.error < 1:
            raise OptionError(f"`error` {self.error:g}: it must be at least 0 and below 1")
        for name in ("delta", "power"):
            if not 0 < getattr(self, name) < 1:
                raise OptionError(f"`{name}` {getattr(self, name):g}: it must be above 0 and below 1")
        if not 0 < self.coverage <= 1:
            raise OptionError(f"`coverage` {self.coverage:g}: it must be above 0 and at most 1")


@dataclass(frozen=True)
class Answer:
    """So many fresh labelled rows, of which about `accepted` are accepted, certify the promise with chance `power`."""

    rows: int
    accepted: int
    power: float


@dataclass(frozen=True)
class Certifiable:
    """What rows at hand can promise at a coverage: observed counts and three risks.

    `asked` is the upper bound if this coverage had been asked for before looking at the rows; `any_cutoff` holds
    even though one looks at all of them first.
    """

    coverage: float
    accepted: int
    errors: int
    risk: float
    asked: float
    any_cutoff: float


def look_power(question: Question, accepted: int) -> float:
    """The chance that so many accepted rows pass in a single look.

    >>> round(look_power(Question(risk=0.05, delta=0.1, error=0.01), 45), 4)  # no error may be among them
    0.6362
    """
    allowed = ErrorTest(question.risk).most_errors(accepted, question.delta)
    return float(_tails(np.array([accepted]), np.array([allowed]), question.error)[0])


def accepted_needed(question: Question) -> int:
    """The fewest accepted rows from which on a single look has the wanted power. Raises Infeasible.

    >>> accepted_needed(Question(risk=0.05, delta=0.1, error=0.01))
    105
    """
    return assured_power(question).first(question.power)


def rows_for_cutoff(question: Question) -> Answer:
    """Rows for a single look at a cutoff that was fixed beforehand and has the question's coverage."""
    guess = _cdiv(assured_power(question).first(question.power), question.coverage)
    rows = _bisect(lambda rows: cutoff_power(question, rows), question.power, guess)
    return Answer(rows, round(rows * question.coverage), cutoff_power(question, rows))


def cutoff_power(question: Question, rows: int) -> float:
    """The assured chance that so many rows certify the risk in a single look at a cutoff fixed beforehand.

    >>> round(cutoff_power(Question(risk=0.05, delta=0.1, error=0.01, coverage=0.8), 200), 3)
    0.951
    """
    return assured_power(question).mean(rows, question.coverage)


def rows_for_both(question: Question) -> Answer:
    """Rows for the risk and the coverage promised together; the error rate is that of the rows that are looked at."""
    guess = _cdiv(assured_power(_risk_share(question)).first(question.power), question.coverage)
    rows = _bisect(lambda rows: both_power(question, rows), question.power, guess)
    return Answer(rows, _looked_at(question, rows), both_power(question, rows))


def both_power(question: Question, rows: int) -> float:
    """The assured chance that so many rows certify the risk and the coverage together."""
    return assured_power(_risk_share(question)).at(_looked_at(question, rows))


def _risk_share(question: Question) -> Question:
    return replace(question, delta=question.delta - COVERAGE_SHARE * question.delta)


def _looked_at(question: Question, rows: int) -> int:
    """How many accepted rows the coverage takes."""
    if question.coverage == 1:
        return rows
    return min(rows, needed_rows(question.coverage, rows, COVERAGE_SHARE * question.delta))


def _cdiv(rows: int, share: float) -> int:
    return math.ceil(rows / share)


def _bisect(power: Callable[[int], float], wanted: float, guess: int) -> int:
    """The smallest number of rows whose power, which grows with it, reaches what is wanted."""
    high = max(guess, 1)
    while power(high) < wanted:
        high *= 2
        if high > 100 * MOST_ROWS:
            raise Infeasible(f"more than {high} rows are needed; promise a larger `risk` or a larger `coverage`")
    return 1 + bisect.bisect_left(range(1, high + 1), True, key=lambda rows: power(rows) >= wanted)


# One look


@dataclass(frozen=True)
class _Assured:
    """The assured power: `values[i]` for every number of rows in (`ends[i-1]`, `ends[i]`], `beyond` for more."""

    ends: Counts
    values: Floats
    beyond: float

    def at(self, accepted: int) -> float:
        place = int(np.searchsorted(self.ends, accepted))
        return float(self.values[place]) if place < self.ends.size else self.beyond

    def first(self, power: float) -> int:
        """The fewest rows with at least this power."""
        place = int(np.searchsorted(self.values, power))
        return int(self.ends[place - 1]) + 1 if place else 1

    def mean(self, rows: int, coverage: float) -> float:
        """The mean over Bin(rows, coverage) accepted rows: each step of the power, times the chance to be beyond it."""
        from drrej.core.special import betainc

        if coverage == 1.0:
            return self.at(rows)
        steps = np.diff(np.append(self.values, self.beyond))
        inside = self.ends < rows
        more = betainc(self.ends[inside] + 1.0, (rows - self.ends[inside]).astype(np.float64), coverage)
        return float(self.values[0] + np.sum(steps[inside] * more))


@functools.lru_cache(maxsize=32)
def assured_power(question: Question) -> _Assured:
    """The assured power of every number of accepted rows; errors with which the last of them pass are enumerated."""
    if question.error >= question.risk:
        raise Infeasible(
            f"a `risk` of {question.risk:g} cannot be certified where the `error` rate is {question.error:g}: "
            "the error rate must be lower than the risk"
        )
    last, beyond = _horizon(question)
    at = rises(last, question.risk, question.delta)  # where one more error is allowed
    ends = np.append(at - 1, last)  # with as many allowed errors, the power is least here
    least = _tails(ends, np.arange(-1, at.size), question.error)
    assured = np.minimum(np.minimum.accumulate(least[::-1])[::-1], beyond)
    return _Assured(ends, assured, beyond)


def _horizon(question: Question) -> tuple[int, float]:
    """A number of rows and a lower bound of the power of all larger ones, near enough to 1."""
    enough = -math.log(_SPARE * (1.0 - question.power))

    def exponent(rows: int) -> float:
        slack = math.sqrt(2.0 * rows * question.risk * math.log(1.0 / question.delta))
        spare = rows * (question.risk - question.error) - slack
        return spare**2 / (2.0 * (rows * question.error + spare / 3.0)) if spare > 0 else 0.0

    rows = 1
    while exponent(rows) < enough:
        rows *= 2
        if rows > MOST_ROWS:
            raise Infeasible(
                f"an `error` rate of {question.error:g} is too near to a `risk` of {question.risk:g}: "
                "it takes more rows than anyone labels to tell them apart"
            )
    rows = bisect.bisect_left(range(rows), enough, key=exponent)
    return rows, -math.expm1(-exponent(rows))


def _tails(rows: Counts, errors: Counts, rate: float) -> Floats:
    """P(Bin(rows, rate) <= errors)."""
    from drrej.core.special import betainc

    inside = (errors >= 0) & (errors < rows)
    tails: Floats = np.where(errors < 0, 0.0, 1.0)
    tails[inside] = betainc(rows[inside] - errors[inside], errors[inside] + 1, 1.0 - rate)
    return tails


def rises(rows: int, risk: float, level: float) -> Counts:
    """The fewest rows that pass with 0, 1, ... errors, as long as they are not more than `rows`."""
    errors = np.arange(ErrorTest(risk).most_errors(rows, level) + 1)
    low, high = errors, np.full(errors.size, rows)
    while (low + 1 < high).any():  # high passes
        middle = (low + high) // 2
        passes = _tails(middle, errors, risk) <= level
        low, high = np.where(passes, low, middle), np.where(passes, middle, high)
    return high


# Rows at hand


def certifiable(points: RiskCoverage, delta: float, coverages: Sequence[float]) -> list[Certifiable]:
    """What labelled rows can promise at best at each coverage, the smallest that is reached with ties kept together.

    >>> losses = np.arange(200) / 200
    >>> wrong = losses > 0.95
    >>> half, _ = certifiable(RiskCoverage.of(losses[~wrong], losses[wrong]), 0.05, [0.5, 1.0])
    >>> half.errors, round(half.asked, 4), round(half.any_cutoff, 4)
    (0, 0.0295, 0.0796)
    """
    found = []
    for coverage in coverages:
        accepted, errors = points.reaching(max(1, math.ceil(exact_decimal(coverage) * points.rows)))
        asked = upper_bound(errors, accepted, delta)
        anyway = any_cutoff_bound(accepted, errors, points.rows, delta)
        found.append(Certifiable(accepted / points.rows, accepted, errors, errors / accepted, asked, anyway))
    return found
