"""Rates at every look: exact enumeration, mpmath, and the same bits for every split into batches."""

from __future__ import annotations

import functools
import itertools
import json
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins
from scipy import stats

from drrej.monitor.evidence import RateMonitor, Restarts, Tally, confidence_sequence, start_share, unspent

POWERS = range(4, -18, -1)


def mixture(events: int, rows: int, rate: float, both: bool = False) -> mpmath.mpf:
    """Σ π θ^S / (1 + m (θ - 1))^n with many digits, from the words of the module."""
    with mpmath.workdps(60):
        weights = [mpmath.mpf(1) / (1 + abs(k + 1)) ** 2 for k in POWERS]
        total = mpmath.mpf(0)
        for sign in (1, -1) if both else (1,):
            for k, weight in zip(POWERS, weights, strict=True):
                theta = mpmath.exp(sign * mpmath.mpf(2) ** k)
                log_term = events * mpmath.log(theta) - rows * mpmath.log(1 + mpmath.mpf(rate) * (theta - 1))
                total += weight * mpmath.exp(log_term)
        return mpmath.log(total / sum(weights) / (2 if both else 1))


@pytest.mark.parametrize(
    ("events", "rows", "limit"),
    [
        *[(0, 1, 0.05), (1, 1, 0.05), (9, 100, 0.05), (18, 100, 0.05), (0, 10**6, 0.01), (10**6, 10**6, 0.9)],
        *[(10**8 + 10**6, 10**10, 0.01), (10**8 - 10**6, 10**10, 0.01), (9 * 10**9 + 10**5, 10**10, 0.9)],
    ],
)
def test_e_value_is_the_mixture(events, rows, limit):
    expected = float(mixture(events, rows, limit))
    assert RateMonitor(limit, Tally(events, rows)).log_e_value == pytest.approx(expected, rel=1e-9, abs=1e-9)


def expectation(chances: list[float], limit: float) -> float:
    """E[e-value] of independent rows, over all outcomes."""
    total = 0.0
    for outcome in itertools.product((0, 1), repeat=len(chances)):
        chance = math.prod(p if x else 1 - p for p, x in zip(chances, outcome, strict=True))
        total += chance * math.exp(RateMonitor(limit, Tally(sum(outcome), len(chances))).log_e_value)
    return total


def test_expectation_is_one_at_the_limit():
    assert expectation([0.3] * 9, 0.3) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("chances", [[0.29] * 9, [0.1, 0.5] * 4, [0.0, 0.0, 0.9], [0.3, 0.3, 0.3, 0.2, 0.4]])
def test_expectation_is_below_one_under_the_limit_on_average(chances):
    assert expectation(chances, 0.3) < 1.0


def test_expectation_is_above_one_over_the_limit():
    assert expectation([0.3] * 8 + [0.4], 0.3) > 1.0


def test_audit_without_replacement():
    """12 of 40 rows of a batch are wrong, 9 are audited; more rows than that would be more certain still."""
    values = [math.exp(RateMonitor(0.3, Tally(k, 9)).log_e_value) for k in range(10)]
    assert sum(stats.hypergeom.pmf(range(10), 40, 12, 9) * values) < 1.0
    assert sum(stats.binom.pmf(range(10), 9, 0.3) * values) == pytest.approx(1.0)


def chance_ever(stops, chances: list[float]) -> float:
    """P(stops(events, rows) at any row), exactly: the mass on each count of events, row after row."""
    mass, stopped = np.array([1.0]), 0.0
    for rows, chance in enumerate(chances, 1):
        mass = np.append(mass * (1 - chance), 0.0) + np.append(0.0, mass * chance)
        out = np.array([stops(events, rows) for events in range(rows + 1)])
        stopped += mass[out].sum()
        mass = np.where(out, 0.0, mass)
    return stopped


@pytest.mark.parametrize(("limit", "alpha"), [(0.05, 0.05), (0.3, 0.1), (0.01, 0.2)])
def test_chance_of_a_false_alarm_at_any_row(limit, alpha):
    chance = chance_ever(lambda e, n: RateMonitor(limit, Tally(e, n)).log_e_value >= -math.log(alpha), [limit] * 150)
    assert alpha / 20 < chance <= alpha


def test_a_pointwise_test_would_fail_here():
    """The enumeration can tell: an exact test at every row is false far more often."""
    assert chance_ever(lambda e, n: stats.binom.sf(e - 1, n, 0.3) <= 0.1, [0.3] * 100) > 0.25


cached_sequence = functools.cache(confidence_sequence)


@pytest.mark.parametrize("chances", [[0.3] * 40, [0.05, 0.55] * 20, [0.6] * 10 + [0.2] * 30, [0.0] * 13 + [0.4] * 27])
def test_confidence_sequence_holds_the_average_so_far(chances):
    """The rate may differ from row to row; what is covered is the average of the true rates so far."""
    average = np.cumsum(chances) / np.arange(1, len(chances) + 1)

    def misses(events: int, rows: int) -> bool:
        low, high = cached_sequence(Tally(events, rows), 0.1)
        return not low <= average[rows - 1] <= high

    assert chance_ever(misses, chances) <= 0.1


def test_alarm_says_that_the_average_is_too_high():
    """Rows above and below the limit: alarms where the average is at most the limit have chance alpha at most."""
    chances = [0.25, 0.45, 0.05, 0.4, 0.3] * 40
    average = np.cumsum(chances) / np.arange(1, 201)

    def false_alarm(events: int, rows: int) -> bool:
        return average[rows - 1] <= 0.3 and RateMonitor(0.3, Tally(events, rows)).log_e_value >= math.log(10)

    assert 0.0 < chance_ever(false_alarm, chances) <= 0.1


# Confidence sequences


@pytest.mark.parametrize(
    ("events", "rows", "delta"),
    [
        *[(3, 10, 0.05), (50, 1000, 0.05), (50, 1000, 0.001), (999, 1000, 0.05), (1, 10**6, 0.05)],
        *[(10**8, 10**10, 0.05), (8 * 10**9, 10**10, 0.01)],
    ],
)
def test_ends_are_where_the_mixture_reaches_the_bar(events, rows, delta):
    low, high = confidence_sequence(Tally(events, rows), delta)
    assert 0.0 < low < events / rows < high < 1.0
    bar = -math.log(delta)
    for end in (low, high):
        assert float(mixture(events, rows, end, both=True)) == pytest.approx(bar, abs=2e-4 if rows > 10**9 else 1e-8)
    inside = [low + (events / rows - low) * 1e-3, high - (high - events / rows) * 1e-3]
    assert all(mixture(events, rows, m, both=True) < bar for m in inside)


def test_ends_without_events_and_without_rows():
    assert confidence_sequence(Tally(), 0.05) == (0.0, 1.0)
    low, high = confidence_sequence(Tally(0, 1000), 0.05)
    assert low == 0.0
    assert float(mixture(0, 1000, high, both=True)) == pytest.approx(math.log(20), abs=1e-9)
    assert confidence_sequence(Tally(1000, 1000), 0.05) == pytest.approx((1 - high, 1.0), rel=1e-12)


@given(st.integers(1, 5000), st.floats(0, 1), st.floats(0.001, 0.5))
def test_sequence_is_symmetric_and_nested(rows, share, delta):
    events = round(share * rows)
    low, high = confidence_sequence(Tally(events, rows), delta)
    assert low <= events / rows <= high
    other_low, other_high = confidence_sequence(Tally(rows - events, rows), delta)
    assert (1 - other_high, 1 - other_low) == pytest.approx((low, high), abs=1e-12)
    wider_low, wider_high = confidence_sequence(Tally(events, rows), delta / 2)
    assert wider_low <= low
    assert high <= wider_high


# The state


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12), st.randoms())
def test_any_split_into_batches_gives_the_same_bits(batches, random):
    tallies = [Tally(a, a + b) for a, b in batches]
    whole = RateMonitor(0.05).update(sum(tallies, Tally()))
    random.shuffle(tallies)
    monitor = RateMonitor(0.05)
    for tally in tallies:
        monitor = monitor.update(tally)
    assert (monitor.total, monitor.log_e_value) == (whole.total, whole.log_e_value)
    assert monitor.restarts.looks == sum(tally.rows > 0 for tally in tallies)


def revived(monitor: RateMonitor) -> RateMonitor:
    """Through JSON and back."""
    read = json.loads(json.dumps(to_builtins(monitor), allow_nan=False))
    restarts = Restarts(read["restarts"]["looks"], tuple(read["restarts"]["log_values"]))
    return RateMonitor(read["limit"], Tally(**read["total"]), restarts)


def alarms(monitor: RateMonitor, delta: float) -> tuple[bool, bool]:
    """Whether all rows together, and the restarts, have reached 1 / delta."""
    return monitor.log_e_value >= -math.log(delta), monitor.restarts_log_e_value >= -math.log(delta)


def test_a_thousand_large_batches_stay_small_and_finite():
    rng = np.random.default_rng(0)
    monitor = RateMonitor(0.01)
    for events in rng.binomial(10**10, 0.01, 1000):
        monitor = revived(monitor).update(Tally(int(events), 10**10))
    assert revived(monitor) == monitor
    assert monitor.restarts.looks == 1000
    assert len(json.dumps(to_builtins(monitor), allow_nan=False)) < 2000
    assert alarms(monitor, 0.05)[0] is False
    for _ in range(1000):  # all wrong
        monitor = monitor.update(Tally(10**10, 10**10))
    assert revived(monitor) == monitor
    assert math.isfinite(monitor.log_e_value)
    assert alarms(monitor, 1e-300) == (True, True)


def test_restarts_see_a_late_change_that_all_rows_hide():
    monitor = RateMonitor(0.05)
    for _ in range(365):
        monitor = monitor.update(Tally(3, 100))
    for _ in range(4):
        monitor = monitor.update(Tally(15, 100))
    assert monitor.log_e_value < 0.0
    assert alarms(monitor, 0.05) == (False, True)


@pytest.mark.parametrize("counts", [(-1, 5), (6, 5)])
def test_counts_that_cannot_be(counts):
    with pytest.raises(ValueError, match="`events`"):
        Tally(*counts)


# Restarts


def test_shares_of_all_starts_are_one():
    for look in (1, 2, 10, 1000):
        assert sum(start_share(j) for j in range(1, look + 1)) + unspent(look) == pytest.approx(1.0, rel=1e-12)


def test_restarts_are_the_sum_over_all_starts():
    rng = np.random.default_rng(1)
    factors, weights = rng.normal(0, 2, (20, 5)), np.log(rng.dirichlet(np.ones(5)))
    state = Restarts()
    assert state.log_e_value(weights) == 0.0
    for look, more in enumerate(factors, 1):
        state = state.update(more)
        products = [np.exp(factors[j:look].sum(axis=0)) @ np.exp(weights) for j in range(look)]
        value = sum(start_share(j + 1) * x for j, x in enumerate(products)) + unspent(look)
        assert math.exp(state.log_e_value(weights)) == pytest.approx(value, rel=1e-12)


def test_expectation_of_the_restarts_at_the_limit():
    """Over all outcomes of five batches of two rows: E of the e-value is 1."""
    value = 0.0
    for outcome in itertools.product(range(3), repeat=5):
        chance = math.prod(stats.binom.pmf(outcome, 2, 0.2))
        monitor = RateMonitor(0.2)
        for events in outcome:
            monitor = monitor.update(Tally(events, 2))
        value += chance * math.exp(monitor.restarts_log_e_value)
    assert value == pytest.approx(1.0, rel=1e-12)


def test_another_number_of_alternatives_is_refused():
    state = Restarts().update(np.zeros(3))
    with pytest.raises(ValueError, match="alternatives"):
        state.update(np.zeros(4))
