"""How many fresh labelled rows a promise takes, before anyone labels them.

A promise is a risk of at most R except with chance delta. It is to be certified with a given chance, the power, if the
error rate among the accepted rows is `error`, below R. The derivation is in docs/proofs.md.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from drrej.core.certify import COVERAGE_SHARE, first_ranks, needed_rows
from drrej.core.intervals import at_least, at_most
from drrej.core.types import Floats, Integers
from drrej.errors import Infeasible, OptionError

MOST_ROWS = 4 * 10**6
"""Beyond so many accepted rows nobody plans."""
_SPARE = 1e-4
"""Of the chance to fail that is allowed, what may be left to numbers of rows beyond those that are looked at."""


class Question(Struct, frozen=True):
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


def rows_for_cutoff(question: Question) -> int:
    """Rows for a single look at a cutoff that was fixed beforehand and has the question's coverage.

    >>> rows_for_cutoff(Question(risk=0.05, delta=0.1, error=0.01, coverage=0.8))
    132
    """
    power, coverage = assured_power(question), question.coverage
    guess = math.ceil(power.first(question.power) / coverage)
    return _fewest(lambda rows: power.mean(rows, coverage), question.power, guess)


def rows_for_both(question: Question) -> int:
    """Rows for the risk and the coverage promised together; the error rate is that of the rows that are looked at."""
    share = COVERAGE_SHARE * question.delta
    power = assured_power(replace(question, delta=question.delta - share))

    def at(rows: int) -> float:
        return power.at(min(rows, needed_rows(question.coverage, rows, share)))

    return _fewest(at, question.power, math.ceil(power.first(question.power) / question.coverage))


def _fewest(power: Callable[[int], float], wanted: float, guess: int) -> int:
    """The smallest number of rows whose power, which grows with it, reaches what is wanted."""
    high = max(guess, 1)
    while power(high) < wanted:
        high *= 2
        if high > 100 * MOST_ROWS:
            raise Infeasible(f"more than {high} rows are needed; promise a larger `risk` or a larger `coverage`")
    return 1 + bisect.bisect_left(range(1, high + 1), True, key=lambda rows: power(rows) >= wanted)


class AssuredPower(Struct, frozen=True):
    """The smallest power of any number of accepted rows from a number on, in a single look.

    It is `values[i]` for every number in (`ends[i-1]`, `ends[i]`], and `beyond` for more.
    """

    ends: Integers
    values: Floats
    beyond: float

    def at(self, accepted: int) -> float:
        """Of a number of accepted rows."""
        place = int(np.searchsorted(self.ends, accepted))
        return float(self.values[place]) if place < self.ends.size else self.beyond

    def first(self, power: float) -> int:
        """The fewest accepted rows with at least this power."""
        place = int(np.searchsorted(self.values, power))
        return int(self.ends[place - 1]) + 1 if place else 1

    def mean(self, rows: int, coverage: float) -> float:
        """The mean over Bin(rows, coverage) accepted rows: each step of the power, times the chance to be beyond it.

        >>> round(assured_power(Question(risk=0.05, delta=0.1, error=0.01)).mean(200, 0.8), 3)
        0.951
        """
        if coverage == 1.0:
            return self.at(rows)
        steps = np.diff(np.append(self.values, self.beyond))
        return float(self.values[0] + np.sum(steps * at_least(self.ends + 1, rows, coverage)))


@functools.lru_cache(maxsize=32)
def assured_power(question: Question) -> AssuredPower:
    """The assured power of every number of accepted rows; errors with which the last of them pass are enumerated.

    >>> assured_power(Question(risk=0.05, delta=0.1, error=0.01)).first(0.8)
    105
    """
    if question.error >= question.risk:
        raise Infeasible(
            f"a `risk` of {question.risk:g} cannot be certified where the `error` rate is {question.error:g}: "
            "the error rate must be lower than the risk"
        )
    last, beyond = _horizon(question)
    rises = first_ranks(last, question.risk, question.delta)  # where one more error is allowed
    ends = np.append(rises - 1, last)  # with as many allowed errors, the power is least here
    least = at_most(np.arange(-1, rises.size), ends, question.error)
    assured = np.minimum(np.minimum.accumulate(least[::-1])[::-1], beyond)
    return AssuredPower(ends, assured, beyond)


def _horizon(question: Question) -> tuple[int, float]:
    """A number of rows and a lower bound of the power of all larger ones, near enough to 1 (Chernoff)."""
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
                f"an `error` rate of {question.error:g} is too close to a `risk` of {question.risk:g}: "
                "telling them apart takes more rows than anyone labels"
            )
    rows = bisect.bisect_left(range(rows), enough, key=exponent)
    return rows, -math.expm1(-exponent(rows))
