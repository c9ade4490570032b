"""How many rows a promise takes: exact powers by enumeration, and the answers against simulated certifications."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from drrej.core.certify import JointPromise, best_look, certified_both, risk_looks
from drrej.core.curves import RiskCoverage
from drrej.core.intervals import upper_bound
from drrej.core.planning import (
    Question,
    Simulation,
    _Errors,
    accepted_needed,
    certifiable,
    look_power,
    rows_for_both,
    rows_for_cutoff,
    rows_for_sequence,
    sequence_power,
)
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
    least = accepted_needed(question)
    expected = powers(question, 4 * least + 50)
    assert (expected[least:] >= question.power).all()
    assert expected[least - 1] < question.power
    for rows in (1, 30, least, 2 * least):
        assert look_power(question, rows) == pytest.approx(expected[rows], abs=1e-12)


def test_the_power_is_not_monotone_and_the_first_number_that_reaches_it_is_not_taken() -> None:
    question = Question(0.05, 0.1, 0.01)
    expected = powers(question, 200)
    first = int(np.argmax(expected >= 0.8))
    assert expected[first + 5 :].min() < 0.8
    assert accepted_needed(question) > first


@pytest.mark.parametrize("question", QUESTIONS)
def test_rows_for_a_cutoff_average_over_how_many_are_accepted(question: Question) -> None:
    answer = rows_for_cutoff(question)
    sure = assured(question, 3 * answer.rows + 200)  # beyond, the power is larger

    def mean(rows: int, power: np.ndarray) -> float:
        return float(stats.binom.pmf(np.arange(rows + 1), rows, question.coverage) @ power[: rows + 1])

    assert answer.power >= question.power
    assert answer.power == pytest.approx(mean(answer.rows, sure), abs=1e-4)
    assert mean(answer.rows - 1, sure) < question.power + 1e-4
    exact = powers(question, 2 * answer.rows + 40)
    assert all(mean(rows, exact) >= question.power for rows in range(answer.rows, answer.rows + 40))


def share_of(trials: int, certified) -> float:
    return sum(certified(seed) for seed in range(trials)) / trials


def test_rows_for_a_cutoff_against_simulated_looks() -> None:
    question = Question(0.05, 0.1, 0.015, coverage=0.7)
    answer = rows_for_cutoff(question)
    rng = np.random.default_rng(0)
    accepted = rng.binomial(answer.rows, 0.7, 3000)
    errors = rng.binomial(accepted, 0.015)
    passed = np.mean([upper_bound(int(e), int(n), 0.1) <= 0.05 for e, n in zip(errors, accepted, strict=True)])
    assert passed >= 0.8 - 3.3 * math.sqrt(0.16 / 3000)
    assert passed <= 0.9


def draw(question: Question, rows: int, growth: float, seed: int) -> RiskCoverage:
    rng = np.random.default_rng([seed, rows])
    x = rng.random(rows)
    wrong = rng.random(rows) < question.error * (1 + growth) * (x / question.coverage) ** growth
    return RiskCoverage.of(x[~wrong], x[wrong])


def test_rows_for_both_against_simulated_certificates() -> None:
    question = Question(0.06, 0.1, 0.02, coverage=0.6)
    answer = rows_for_both(question)

    def certified(seed: int) -> bool:
        try:
            certified_both(draw(question, answer.rows, 0.0, seed), OPEN, JointPromise(0.06, 0.6, 0.1))
        except Infeasible:
            return False
        return True

    share = share_of(600, certified)
    assert share == pytest.approx(
        look_power(Question(0.06, 0.08, 0.02), answer.accepted), abs=4 * math.sqrt(0.16 / 600)
    )
    assert answer.rows > rows_for_cutoff(question).rows


@pytest.mark.parametrize("growth", [0.0, 2.0])
@pytest.mark.parametrize(("rows", "coverage"), [(150, 0.8), (700, 0.6), (700, 0.3)])
def test_the_simulated_power_is_that_of_the_real_tests(growth: float, rows: int, coverage: float) -> None:
    question = Question(0.06, 0.1, 0.02, coverage)

    def certified(seed: int) -> bool:
        try:
            found = best_look(risk_looks(draw(question, rows, growth, seed), OPEN, 0.06, 0.1), rows, 0.06, 0.9)
        except Infeasible:
            return False
        return found.accepted >= math.ceil(coverage * rows)

    real = share_of(400, certified)
    planned = sequence_power(question, rows, Simulation(growth, 2000))
    assert planned == pytest.approx(real, abs=4 * math.sqrt(0.25 / 400 + 0.25 / 2000))


@pytest.mark.parametrize("question", [Question(0.05, 0.1, 0.01, coverage=0.7), Question(0.2, 0.1, 0.1, coverage=0.8)])
def test_rows_for_a_sequence_have_the_power_they_say(question: Question) -> None:
    """By the real tests on other draws; and so have somewhat more rows, but not always somewhat fewer."""
    answer = rows_for_sequence(question)
    assert answer.power >= question.power
    for rows in (answer.rows, math.ceil(1.05 * answer.rows)):

        def certified(seed: int, rows: int = rows) -> bool:
            points = draw(question, rows, 1.0, seed)
            try:
                found = best_look(risk_looks(points, OPEN, question.risk, 0.1), rows, question.risk, 0.9)
            except Infeasible:
                return False
            return found.accepted >= math.ceil(question.coverage * rows)

        assert share_of(500, certified) >= question.power - 3 * math.sqrt(0.16 / 500)
    fewer = [sequence_power(question, int(share * answer.rows)) for share in (0.97, 0.94, 0.91)]
    assert min(fewer) < question.power


def test_simulated_ranks_of_errors_are_those_of_sorted_rows() -> None:
    """Errors are drawn without the rows between them; where an error is certain beyond a place, too."""
    rows, trials = 40, 20000
    errors = _Errors(4.0, 2.0)  # certain from 1/2 on
    rng = np.random.default_rng(0)
    found = errors.ranks(rows, rows, trials, rng)
    place = np.sort(rng.random((trials, rows)), axis=1)
    wrong = rng.random((trials, rows)) < 4.0 * place**2
    expected = np.sort(np.where(wrong, np.arange(1, rows + 1), rows + 1), axis=1)
    assert errors.share == pytest.approx(4.0 * 0.5**3 / 3 + 0.5)
    for error in (0, 1, 5, 15, 25):
        assert stats.ks_2samp(found[:, error], expected[:, error]).pvalue > 1e-4
    gaps = [np.mean((ranks[:, 3] - ranks[:, 1]) ** 2) for ranks in (found, expected)]
    assert gaps[0] == pytest.approx(gaps[1], rel=0.05)


@pytest.mark.parametrize("plan", [accepted_needed, rows_for_cutoff, rows_for_both, rows_for_sequence])
def test_errors_at_or_near_the_risk_cannot_be_certified(plan) -> None:
    with pytest.raises(Infeasible, match="must be lower than the risk"):
        plan(Question(0.05, 0.1, 0.05))
    with pytest.raises(Infeasible, match="too near"):
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


def test_what_rows_at_hand_can_promise() -> None:
    rng = np.random.default_rng(3)
    losses = np.round(rng.random(500), 2)
    wrong = rng.random(500) < 0.3 * losses**2
    table = certifiable(RiskCoverage.of(losses[~wrong], losses[wrong]), 0.05, [0.07, 0.5, 1.0])
    assert [row.accepted >= math.ceil(c * 500) for row, c in zip(table, [0.07, 0.5, 1.0], strict=True)] == [True] * 3
    for row in table:
        below = np.sort(losses)[row.accepted - 1]
        assert (row.accepted, row.errors) == (int(np.sum(losses <= below)), int(np.sum(wrong[losses <= below])))
        assert stats.binom.cdf(row.errors, row.accepted, row.asked) == pytest.approx(0.05)
        assert stats.binom.cdf(row.errors, row.accepted, row.any_cutoff) == pytest.approx(0.0001)
        assert row.risk < row.asked < row.any_cutoff
