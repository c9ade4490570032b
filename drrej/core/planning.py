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
and the true power is never smaller. Where a risk and a coverage are promised together (`drrej.core.certify`) the number
of accepted rows that is looked at is fixed by n, and grows with it.

**Every cutoff.** Where only the risk is promised, see `drrej.core.planning`.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from drrej.core.certify import COVERAGE_SHARE, ErrorTest, any_cutoff_bound, needed_rows, risk_starts
from drrej.core.curves import RiskCoverage
from drrej.core.intervals import exact_decimal, upper_bound
from drrej.core.sequence import Starts
from drrej.errors import Infeasible, OptionError
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


_MATRIX = 1 << 22
"""Errors that are simulated at once."""
_ROUGH = 1000
"""Trials of a simulation that only looks where to look."""
_CONFIRMED = 6
"""Numbers of rows in succession, in steps of two per cent, that must reach a simulated power."""


@dataclass(frozen=True)
class Simulation:
    """How errors lie: the risk up to coverage c is error * (c / coverage)^growth. How often and how it is simulated."""

    growth: float = 1.0
    trials: int = 4000
    seed: int = 0

    def std_error(self, power: float) -> float:
        """Of a simulated power."""
        return math.sqrt(power * (1.0 - power) / self.trials)


def sequence_power(question: Question, rows: int, simulation: Simulation | None = None) -> float:
    """The chance that a risk alone is certified on so many rows with at least the question's share of them accepted.

    Simulated. Only the ranks of the errors decide, and errors are few, so these are drawn and not the rows: their
    places are independent, and the right rows between two of them are binomial.
    """
    simulation = simulation or Simulation()
    rng = np.random.default_rng(simulation.seed)
    starts = risk_starts(rows, question.risk, question.delta)
    wanted = math.ceil(question.coverage * rows)
    runs = [_run(starts, number, rows, wanted, question.risk) for number in range(len(starts.ranks))]
    last = max(last for _, last, _ in runs)
    errors = _Errors.of(question, simulation.growth)
    reached = 0
    step = max(1, _MATRIX // math.ceil(1 + 2 * rows * errors.share))
    for begin in range(0, simulation.trials, step):
        ranks = errors.ranks(rows, last, min(step, simulation.trials - begin), rng)
        reached += int(np.any([_passes(ranks, *run) for run in runs], axis=0).sum())
    return reached / simulation.trials


@dataclass(frozen=True)
class _Errors:
    """A row at place u of [0, 1] is wrong with chance min(factor u^growth, 1), which is 1 from `certain` on."""

    factor: float
    growth: float

    @classmethod
    def of(cls, question: Question, growth: float) -> _Errors:
        return cls(question.error * (1.0 + growth) / question.coverage**growth, growth)

    @property
    def certain(self) -> float:
        return 1.0 if self.factor <= 1.0 or not self.growth else self.factor ** (-1.0 / self.growth)

    @property
    def share(self) -> float:
        """Of all rows, those that are wrong."""
        return float(self.below(np.ones(1))[0])

    def below(self, place: Floats) -> Floats:
        """The share of all rows that are wrong and lie below a place."""
        power = 1.0 + self.growth
        below: Floats = self.factor * np.minimum(place, self.certain) ** power / power
        below += np.maximum(place - self.certain, 0.0)
        return below

    def place(self, below: Floats) -> Floats:
        """Where so many of all rows are wrong below."""
        power = 1.0 + self.growth
        turn = self.factor * self.certain**power / power
        place: Floats = (power * np.minimum(below, turn) / self.factor) ** (1.0 / power)
        place += np.maximum(below - turn, 0.0)
        return place

    def ranks(self, rows: int, last: int, trials: int, rng: np.random.Generator) -> Counts:
        """The ranks of the errors up to rank `last`, ascending: trial x error; `rows` + 1 where there are fewer."""
        if not self.factor:
            return np.full((trials, 1), rows + 1)
        count = rng.binomial(rows, self.share, trials)
        most = max(1, int(count.max()))
        missing = np.arange(most) >= count[:, None]
        quantile = np.sort(np.where(missing, 1.0, rng.random((trials, most))), axis=1)
        place = self.place(self.share * quantile)
        right = np.where(missing, 1.0, (place - self.below(place)) / max(1.0 - self.share, np.finfo(float).tiny))
        ranks = np.full((trials, most), rows + 1)
        left, before = rows - count, np.zeros(trials)
        for error in range(most):
            chance = np.clip((right[:, error] - before) / np.maximum(1.0 - before, np.finfo(float).tiny), 0.0, 1.0)
            left, before = left - rng.binomial(left, chance), right[:, error]
            ranks[:, error] = rows - count - left + error + 1
            if (ranks[:, error] > last).all():
                break
        return np.where(missing, rows + 1, ranks)


def _passes(ranks: Counts, first: int, last: int, allowed: Counts) -> NDArray[np.bool_]:
    """Whether no rank from `first` to `last` has more errors than allowed.

    As the allowed number never falls, it is enough to look where errors are, those before `first` at `first`.
    """
    seen = np.maximum(ranks, first)
    inside = seen <= last
    most = allowed[np.minimum(seen, last) - first]
    failed = (inside & (np.arange(1, ranks.shape[1] + 1) > most)).any(axis=1)
    passed: NDArray[np.bool_] = ~failed if allowed[0] >= 0 else np.zeros(failed.size, bool)
    return passed


def _run(starts: Starts, number: int, rows: int, wanted: int, risk: float) -> tuple[int, int, Counts]:
    """The ranks that the run from a start must pass to certify `wanted` rows, and the errors that each may have."""
    first = starts.ranks[number]
    last = min(max(wanted, first + 1), rows)
    allowed = np.empty(last - first + 1, np.int64)
    level = 0.0
    for begin, share in zip(starts.ranks[number:], starts.shares[number:], strict=True):
        level += share
        ranks = np.arange(begin, last + 1)
        if ranks.size:
            allowed[begin - first :] = np.searchsorted(rises(rows, risk, level), ranks, side="right") - 1
    return first, last, allowed


def rows_for_sequence(question: Question, simulation: Simulation | None = None) -> Answer:
    """Rows for a risk alone, every cutoff of them tested; simulated, and found to within two per cent.

    The power is not monotone in the rows, and a simulated one is noisy: the first number that seems to reach it would
    be too small. So a number counts only if its power, less two standard errors, is enough, and so is that of the
    next ones up to a tenth more rows. The answer's power is that, on the safe side.
    """
    simulation = simulation or Simulation()
    assured_power(question)  # raises where no number of rows is enough
    rough = replace(simulation, trials=min(simulation.trials, _ROUGH))

    def power(rows: int, simulation: Simulation) -> float:
        found = sequence_power(question, rows, simulation)
        return found - 2.0 * simulation.std_error(found)

    low, high = 0, math.ceil(math.log(question.delta) / math.log1p(-question.risk) / question.coverage)
    while power(high, rough) < question.power:
        low, high = high, 2 * high
        if high > MOST_ROWS:
            raise Infeasible(f"more than {low} rows are needed for tests of every cutoff to reach `coverage`")
    while high - low > max(1, high // 50):
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle, rough) >= question.power else (middle, high)
    rows, held = low, 0
    first, at_first = rows, 0.0
    while held < _CONFIRMED:
        rows += max(1, rows // 50)
        if rows > MOST_ROWS:
            raise Infeasible(f"more than {low} rows are needed for tests of every cutoff to reach `coverage`")
        found = power(rows, simulation)
        held = held + 1 if found >= question.power else 0
        if held == 1:
            first, at_first = rows, found
    return Answer(first, math.ceil(first * question.coverage), at_first)
