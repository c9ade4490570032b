"""Years of batches with known truth: no more false alarms than promised, and late changes seen soon."""

from __future__ import annotations

import numpy as np
import pytest
import simulate_monitor as sim
from conftest import more_trials, thorough
from scipy import stats
from simulate_monitor import ALPHA, BATCHES, LABELS, LIMIT, NEVER, ROWS, Stream

from drrej.monitor import evidence
from drrej.monitor.evidence import LossDrift, RateMonitor, Tally, confidence_sequence

YEARS = 300


def at_most(alarms: np.ndarray, alpha: float = ALPHA) -> bool:
    """Whether so many alarms are believable at a chance of alpha each."""
    return int(np.sum(alarms)) <= stats.binom.ppf(0.999, alarms.size, alpha)


# The simulation is the library


def test_rate_paths_are_those_of_the_library():
    events = np.random.default_rng(0).binomial(20, 0.1, (3, 30))
    paths = sim.rate_paths(events, 20, 0.05)
    for year, batches in enumerate(events.tolist()):
        monitor = RateMonitor(0.05)
        for batch, errors in enumerate(batches):
            monitor = monitor.update(Tally(errors, 20))
            expected = (monitor.log_e_value, monitor.restarts_log_e_value)
            found = [path[year, batch] for path in (paths.total, paths.restarts)]
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_misses_are_those_of_the_confidence_sequence():
    rng = np.random.default_rng(1)
    truth = np.full((40, 12), 0.2)
    events = rng.binomial(8, 0.35, truth.shape)
    missed = sim.sequence_misses(events, 8, truth, 0.2)
    for year, sums in enumerate(np.cumsum(events, axis=1).tolist()):
        intervals = [confidence_sequence(Tally(s, 8 * (t + 1)), 0.2) for t, s in enumerate(sums)]
        assert missed[year] == any(not low <= 0.2 <= high for low, high in intervals)
    assert 0 < missed.sum() < 40


def test_drift_paths_are_those_of_the_library():
    rng = np.random.default_rng(2)
    pool = rng.multinomial(100, [0.25] * 4, 3)
    batches = rng.multinomial(40, [0.2, 0.2, 0.25, 0.35], (10, 3))
    paths = sim.drift_paths(pool, lambda batch: batches[batch], 10)
    for year in range(3):
        monitor = LossDrift.start(range(1, pool.shape[1]), pool[year].tolist())
        for batch in range(10):
            monitor = monitor.update(batches[batch, year].tolist())
            expected = (monitor.log_e_value, monitor.restarts_log_e_value)
            found = [path[year, batch] for path in (paths.total, paths.restarts)]
            assert found == pytest.approx(expected, rel=1e-8, abs=1e-8)


def test_tails_for_arrays_are_those_of_the_library():
    rng = np.random.default_rng(3)
    k, l, a, b = rng.integers(0, 60, (4, 300))  # noqa: E741
    found = np.stack(sim.fisher_tails(*(x.astype(float) for x in (k, l, a, b))), 1)
    expected = [evidence.fisher_tails(*(int(y) for y in x)) for x in zip(k, l, a, b, strict=True)]
    assert found == pytest.approx(np.array(expected), rel=1e-9, abs=1e-14)


# False alarms


@pytest.mark.parametrize(("limit", "labels"), [(0.05, 100), (0.01, 1000), (0.02, 20)])
def test_risk_at_the_limit_for_a_year(limit, labels):
    events = np.random.default_rng(4).binomial(labels, limit, (YEARS, BATCHES))
    for batch in sim.rate_paths(events, labels, limit).alarms().values():
        assert at_most(batch < NEVER)


def test_batchly_tests_would_fail_here():
    events = np.random.default_rng(5).binomial(LABELS, LIMIT, (100, BATCHES))
    alarms = sim.batchly_tests(events)
    assert alarms["an exact test a batch"].all()
    assert not at_most(alarms["an exact test of all so far"])


def test_confidence_sequences_for_a_year():
    rng = np.random.default_rng(6)
    for truth in (
        np.full((YEARS, BATCHES), LIMIT),
        sim.varying(YEARS, BATCHES, LIMIT, rng),
        np.full((YEARS, BATCHES), 0.8),
    ):
        assert at_most(sim.sequence_misses(rng.binomial(LABELS, truth), LABELS, truth))


@pytest.mark.parametrize("kind", [more_trials("fresh"), "fit", thorough("tied")])
def test_no_drift_for_a_quarter(kind, many):
    paths = Stream(kind, batches=90).paths(many(120), np.random.default_rng(7))
    for batch in paths.alarms(alpha=0.2).values():
        assert at_most(batch < NEVER, 0.2)


def test_batch_scores_against_a_fit_that_stays_the_same_would_fail_here():
    """The simulation can tell: rank sums of all batches so far, tested at every look as if it were one."""
    pool, chances = sim.drift_world("fit", 100, np.random.default_rng(8))
    new = np.cumsum(np.random.default_rng(9).multinomial(ROWS, chances(1.0)[:, None, :], (100, 90)), axis=1)
    scores = [sim.rank_sum_score(new[:, batch], pool) for batch in range(90)]
    assert not at_most((np.abs(scores) > stats.norm.isf(0.1)).any(axis=0), 0.2)


# Delays


@pytest.mark.parametrize(("multiple", "most"), [(1.5, 12), (2.0, 4), (3.0, 2)])
def test_a_risk_too_high_from_the_start(multiple, most):
    paths = sim.rate_paths(sim.changed(100, 0, multiple, np.random.default_rng(11))[:, :60], LABELS, LIMIT)
    assert sim.fixed_sample(multiple) <= np.median(sim.delays(paths.alarms()["all"], 0)) <= most


def test_restarts_see_a_change_after_a_quiet_year_far_sooner():
    events = sim.changed(60, BATCHES, 2.0, np.random.default_rng(12), before=0.5)
    alarms = sim.rate_paths(events, LABELS, LIMIT).alarms()
    late = {name: float(np.median(sim.delays(batch, BATCHES))) for name, batch in alarms.items()}
    assert late["restarts"] <= 10 < 100 < late["all"]


def test_drift_is_seen_soon_after_quiet_batches_and_from_the_start():
    paths = Stream("fit", 60, 1.5, 90).paths(40, np.random.default_rng(13))
    assert np.median(sim.delays(paths.alarms()["restarts"], 60)) <= 8
    paths = Stream("fit", 0, 1.25, 30).paths(40, np.random.default_rng(14))
    assert np.median(sim.delays(paths.alarms()["all"], 0)) <= 15
