"""How many rows it takes to certify a risk alone, where every cutoff of the rows is tested (`drrej.core.sequence`).

The power to reach a coverage C depends on how the errors lie below it. The risk up to coverage c is taken to be
error * (c / C)^growth, and the power is simulated.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from drrej.core.errors import Infeasible
from drrej.core.guarantees import risk_starts
from drrej.core.planning import MOST_ROWS, Answer, Counts, Floats, Question, assured_power, rises
from drrej.core.sequence import Starts
from drrej.records import dataclass

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
