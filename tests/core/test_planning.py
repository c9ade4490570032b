"""How many rows a promise takes: exact powers by enumeration, and the answers against simulated certifications."""

from __future__ import annotations

import math

import numpy as np
import pytest
from conftest import more_trials
from scipy import stats

from drrej.core.certify import joint_candidates, needed_rows
from drrej.core.curves import Curve
from drrej.core.intervals import upper_bound
from drrej.core.planning import Question, assured_power, rows_for_both, rows_for_cutoff
from drrej.core.ratio import DensityRatio
from drrej.errors import Infeasible, OptionError

OPEN = DensityRatio(1.0, 1.0, 0.0, 0.0)
QUESTIONS = [
    Question(0.05, 0.1, 0.01),
    Question(0.05, 0.05, 0.02, coverage=0.8, power=0.9),
    Question(0.02, 0.05, 0.0, coverage=0.5),
    Question(0.2, 0.3, 0.1, coverage=0.9, power=0.5),
    Question(0.3, 0.6, 0.2, coverage=0.7, power=0.95),
]


def powers(question: Question, most: int) -> np.ndarray:
    """The power of a single look at 0, 1, ..., `most` rows, by enumeration."""
    found = []
    for rows in range(most + 1):
        allowed = int(np.sum(stats.binom.cdf(np.arange(rows + 1), rows, question.risk) <= question.delta)) - 1
        found.append(stats.binom.cdf(allowed, rows, question.error) if allowed >= 0 else 0.0)
    return np.array(found)


def assured(question: Question, most: int) -> np.ndarray:
    return np.minimum.accumulate(powers(question, most)[::-1])[::-1]


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_larger_number_of_rows_has_less_power(question: Question) -> None:
    least = assured_power(question).first(question.power)
    expected = powers(question, 4 * least + 50)
    assert (expected[least:] >= question.power).all()
    assert expected[least - 1] < question.power


def test_the_power_is_not_monotone_and_the_first_number_that_reaches_it_is_not_taken() -> None:
    question = Question(0.05, 0.1, 0.01)
    expected = powers(question, 200)
    first = int(np.argmax(expected >= 0.8))
    assert expected[first + 5 :].min() < 0.8
    assert assured_power(question).first(0.8) > first


@pytest.mark.parametrize("question", [more_trials(QUESTIONS[0]), *QUESTIONS[1:3], *map(more_trials, QUESTIONS[3:])])
def test_rows_for_a_cutoff_average_over_how_many_are_accepted(question: Question) -> None:
    needed = rows_for_cutoff(question)
    sure = assured(question, 3 * needed + 200)  # beyond, the power is larger

    def mean(rows: int, power: np.ndarray) -> float:
        return float(stats.binom.pmf(np.arange(rows + 1), rows, question.coverage) @ power[: rows + 1])

    power = assured_power(question).mean(needed, question.coverage)
    assert power >= question.power
    assert power == pytest.approx(mean(needed, sure), abs=1e-4)
    assert mean(needed - 1, sure) < question.power + 1e-4
    exact = powers(question, 2 * needed + 40)
    assert all(mean(rows, exact) >= question.power for rows in range(needed, needed + 40))


def share_of(trials: int, certified) -> float:
    return sum(certified(seed) for seed in range(trials)) / trials


def test_rows_for_a_cutoff_against_simulated_looks() -> None:
    question = Question(0.05, 0.1, 0.015, coverage=0.7)
    rng = np.random.default_rng(0)
    accepted = rng.binomial(rows_for_cutoff(question), 0.7, 3000)
    errors = rng.binomial(accepted, 0.015)
    passed = np.mean([upper_bound(int(e), int(n), 0.1) <= 0.05 for e, n in zip(errors, accepted, strict=True)])
    assert passed >= 0.8 - 3.3 * math.sqrt(0.16 / 3000)
    assert passed <= 0.9


def draw(question: Question, rows: int, growth: float, seed: int) -> Curve:
    rng = np.random.default_rng([seed, rows])
    x = rng.random(rows)
    wrong = rng.random(rows) < question.error * (1 + growth) * (x / question.coverage) ** growth
    return Curve.of(x[~wrong], x[wrong])


def test_rows_for_both_against_simulated_certificates() -> None:
    question = Question(0.06, 0.1, 0.02, coverage=0.6)
    rows = rows_for_both(question)

    def certified(seed: int) -> bool:
        return joint_candidates(draw(question, rows, 0.0, seed), OPEN, 0.06, 0.6, 0.1).largest() is not None

    accepted = needed_rows(0.6, rows, 0.02)
    expected = powers(Question(0.06, 0.08, 0.02), accepted)[accepted]
    assert share_of(600, certified) == pytest.approx(expected, abs=4 * math.sqrt(0.16 / 600))
    assert rows > rows_for_cutoff(question)


@pytest.mark.parametrize("plan", [assured_power, rows_for_cutoff, rows_for_both])
def test_errors_at_or_near_the_risk_cannot_be_certified(plan) -> None:
    with pytest.raises(Infeasible, match="must be lower than the risk"):
        plan(Question(0.05, 0.1, 0.05))
    with pytest.raises(Infeasible, match="too close"):
        plan(Question(0.05, 0.1, 0.0499999))


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((0.0, 0.1, 0.0), "`risk`"),
        ((0.1, 0.0, 0.0), "`delta`"),
        ((0.1, 0.1, 1.0), "`error`"),
        ((0.1, 0.1, 0.0, 0.0), "`coverage`"),
        ((0.1, 0.1, 0.0, 0.5, 1.0), "`power`"),
    ],
)
def test_questions_that_make_no_sense(numbers: tuple, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Question(*numbers)
