"""Guarantees for means of bounded values: the tests from their definitions, and the promises by simulation."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from drrej.core.certify import risk_candidates, tie_order
from drrej.core.certify_mean import _log_p, _log_p_of_ranks, certify_mean, mean_upper_bound
from drrej.core.curves import Curve
from drrej.core.intervals import upper_bound
from drrej.core.ratio import DensityRatio
from drrej.errors import Infeasible, OptionError

OPEN = DensityRatio(1.0, 1.0, 0.0, 0.0)


def betting_by_definition(values: np.ndarray, risk: float, delta: float) -> float:
    """1 / the mean capital of all bets of at least the least one, with 50 digits."""
    with mpmath.workdps(50):
        least = mpmath.sqrt(8 * mpmath.log(1 / mpmath.mpf(delta)) / len(values))
        bets = [mpmath.mpf(1)]
        while bets[-1] / mpmath.mpf(1.6) >= least:
            bets.append(bets[-1] / mpmath.mpf(1.6))
        capital = [mpmath.fprod(1 + g * (mpmath.mpf(risk) - x) / (1 - mpmath.mpf(risk)) for x in values) for g in bets]
        return float(min(1, len(bets) / mpmath.fsum(capital)))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.floats(0.01, 0.95), st.sampled_from([0.05, 0.3]))
def test_p_values_are_those_of_the_definition(rows: list[float], risk: float, delta: float) -> None:
    values = np.array(rows)
    for repeat in (1, 12):  # more rows, more bets
        repeated = np.tile(values, repeat)
        expected = betting_by_definition(repeated, risk, delta)
        assert math.exp(_log_p(repeated, risk, delta)) == pytest.approx(expected, rel=1e-9, abs=1e-300)
        assert math.exp(_log_p_of_ranks(repeated, risk, delta)[-1]) == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_first_ranks_are_those_of_each_rank_alone() -> None:
    values = np.random.default_rng(0).beta(0.5, 6.0, 300)
    at_once = _log_p_of_ranks(values, 0.12, 0.1)
    one_by_one = [_log_p(values[:rank], 0.12, 0.1) for rank in range(1, 301)]
    np.testing.assert_allclose(at_once, one_by_one, rtol=1e-9, atol=1e-12)


def test_zeros_pass_as_soon_as_they_say() -> None:
    for rows in (1, 40, 500):
        assert _log_p(np.zeros(1), 0.05, 0.1, rows) == pytest.approx(_log_p(np.zeros(rows), 0.05, 0.1), rel=1e-9)


# Bounds of a mean


DRAWS = {
    "errors": lambda rng, n: (rng.random(n) < 0.1).astype(float),
    "seldom": lambda rng, n: (rng.random(n) < 0.02) * rng.random(n),
    "narrow": lambda rng, n: rng.beta(20, 60, n),
    "wide": lambda rng, n: rng.beta(0.3, 0.6, n),
    "different means": lambda rng, n: np.where(np.arange(n) % 2, rng.beta(4, 12, n), rng.random(n) < 0.25) * 1.0,
}
MEANS = {"errors": 0.1, "seldom": 0.01, "narrow": 0.25, "wide": 1 / 3, "different means": 0.25}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("rows", [30, 300])
def test_the_bound_lies_below_the_mean_no_more_often_than_promised(name: str, rows: int) -> None:
    """The bound is below the mean exactly when a test of the mean itself rejects, which is quick."""
    rng = np.random.default_rng(rows)
    delta, trials = 0.2, 1000
    rejected = sum(_log_p(DRAWS[name](rng, rows), MEANS[name], delta) <= math.log(delta) for _ in range(trials))
    assert rejected <= stats.binom.ppf(0.9995, trials, delta)


def test_the_bound_is_where_the_test_begins_to_reject() -> None:
    rng = np.random.default_rng(3)
    values = 5.0 * rng.beta(2, 8, 200)
    bound = mean_upper_bound(values, 5.0, 0.05)
    assert values.mean() < bound < 5.0
    for factor in (0.2, 0.9, 0.999999, 1.000001, 1.1, 2.0):
        assert (_log_p(values / 5, bound / 5 * factor, 0.05) <= math.log(0.05)) == (factor > 1)
    assert mean_upper_bound(rng.permutation(values), 5.0, 0.05) == bound


def test_little_variance_pays() -> None:
    values = np.random.default_rng(4).beta(50, 450, 1000)
    assert mean_upper_bound(values, 1.0, 0.05) < 0.105


def test_of_errors_the_exact_bound_is_the_smallest() -> None:
    for errors, rows in ((0, 50), (3, 100), (20, 1000)):
        values = np.zeros(rows)
        values[:errors] = 1.0
        exact = upper_bound(errors, rows, 0.05)
        assert exact < mean_upper_bound(values, 1.0, 0.05) < 1.6 * exact


def test_bounds_at_the_ends() -> None:
    assert mean_upper_bound(np.empty(0), 3.0, 0.1) == 3.0
    assert mean_upper_bound(np.full(10, 3.0), 3.0, 0.1) == 3.0
    assert mean_upper_bound(np.zeros(1), 1.0, 0.05) <= 1.0


# Cutoffs


def test_of_errors_no_more_is_certified_than_by_the_exact_test() -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        x = rng.random(800)
        wrong = rng.random(800) < 0.3 * x**3
        exact = risk_candidates(Curve.of(x[~wrong], x[wrong]), OPEN, 0.05, 0.1).largest(0.05)
        assert exact is not None
        found = certify_mean(x, wrong.astype(float), 0.05, 1.0, 0.1)
        assert 0.6 * exact.accepted < found.accepted <= exact.accepted + 1


def test_a_certified_cutoff_accepts_what_it_says_in_any_order() -> None:
    rng = np.random.default_rng(7)
    losses = np.round(rng.random(2000), 2)
    values = 10.0 * rng.beta(1, 9, 2000) * losses
    found = certify_mean(losses, values, 0.35, 10.0, 0.1)
    assert found.cutoff in losses
    below = losses < found.cutoff
    assert found.accepted == below.sum()
    assert values[below].mean() < found.bound == 0.35
    order = rng.permutation(2000)
    assert certify_mean(losses[order], values[order], 0.35, 10.0, 0.1) == found


def test_everything_may_be_accepted_or_up_to_the_last_cutoff() -> None:
    rng = np.random.default_rng(8)
    losses, values = rng.random(500), rng.random(500) * 0.1
    assert certify_mean(losses, values, 0.1, 1.0, 0.05).cutoff is None
    found = certify_mean(losses, values, 0.1, 1.0, 0.05, last=0.7)
    assert (found.cutoff, found.accepted) == (0.7, int(np.sum(losses < 0.7)))


WORLDS = {
    "just too much": (lambda x: np.full(x.shape, 0.2002), 0),
    "in and out": (lambda x: np.where(np.floor(x * 20) % 2 == 0, 0.41, 0.0), 20),
    "grows": (lambda x: 0.4 * x, 0),
}


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("narrow", [False, True])
def test_promises_hold(name: str, narrow: bool) -> None:
    """Values with the mean that the world says, all or nothing or close to it."""
    mean_of, blocks = WORLDS[name]
    rng = np.random.default_rng(9)
    delta, trials, broken = 0.2, 250, 0
    grid = (np.arange(2000) + 0.5) / 2000
    true_mean = np.append(0.0, np.cumsum(mean_of(grid)) / np.arange(1, 2001))
    for _ in range(trials):
        x = rng.integers(0, 2000, 200)
        mean = mean_of(grid[x])
        values = mean * rng.uniform(0.5, 1.5, 200) if narrow else (rng.random(200) < mean).astype(float)
        losses = np.floor(x / 2000 * blocks) / blocks if blocks else x / 2000
        try:
            found = certify_mean(losses, values, 0.2, 1.0, delta)
        except Infeasible:
            continue
        end = 2000 if found.cutoff is None else round(found.cutoff * 2000)
        broken += true_mean[end] > 0.2 + 1e-9
    assert broken <= stats.binom.ppf(0.9995, trials, delta)


def test_nothing_to_certify_says_how_near_it_came() -> None:
    losses, values = np.linspace(0, 1, 300), np.full(300, 0.5)
    with pytest.raises(Infeasible, match=r"cannot be certified on 300 rows: the upper bound over the .* is 0.5"):
        certify_mean(losses, values, 0.3, 1.0, 0.1)
    with pytest.raises(Infeasible, match="no number of rows"):
        certify_mean(losses, values, 0.0, 1.0, 0.1)
    with pytest.raises(Infeasible, match="every row"):
        certify_mean(losses, values, 0.3, 1.0, 0.1, last=0.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((1.0, 1.0, 0.1), "`mean`"),
        ((0.1, math.inf, 0.1), "`limit`"),
        ((0.1, 1.0, 0.0), "`delta`"),
    ],
)
def test_promises_that_make_no_sense(arguments: tuple, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        certify_mean(np.zeros(3), np.zeros(3), *arguments)


def test_values_beyond_the_limit_are_refused() -> None:
    for bad in (np.array([0.1, 1.2]), np.array([-0.1]), np.array([math.nan])):
        with pytest.raises(OptionError, match="between 0 and"):
            mean_upper_bound(bad, 1.0, 0.1)


def test_ties_are_ordered_without_looking_at_the_values() -> None:
    """In 2000 blocks of three the largest value comes first as often as second and last."""
    losses, values = np.repeat(np.arange(2000.0), 3), np.tile([0.0, 0.5, 1.0], 2000)
    order = tie_order(losses, values)
    np.testing.assert_array_equal(losses[order], losses)
    places = np.flatnonzero(values[order] == 1.0) % 3
    assert stats.chisquare(np.bincount(places)).pvalue > 1e-3
