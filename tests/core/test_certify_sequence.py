"""Tests of every cutoff: against a brute force from the definition, and by simulation where the proof is delicate."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from conftest import Many, more_trials, thorough
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from drrej.core.certify import (
    Starts,
    any_cutoff_bound,
    certify_risk,
    error_blocks,
    error_ranks,
    few_levels,
    risk_candidates,
    risk_starts,
    walk,
)
from drrej.core.curves import Curve
from drrej.core.drift import loss_quantiles
from drrej.core.intervals import upper_bound
from drrej.core.ratio import DensityRatio, fit_ratio
from drrej.errors import Infeasible

OPEN = DensityRatio(1.0, 1.0, 0.0, 0.0)
"""A ratio without a flat part: any loss may be accepted."""


def curve(losses: np.ndarray, wrong: np.ndarray) -> Curve:
    return Curve.of(losses[~wrong], losses[wrong])


def brute_force(wrong: list[bool], risk: float, starts: Starts) -> list[tuple[float, bool]]:
    """(level, certifies) of rank 1, 2, ..., from the definition, on rows that do not tie."""
    given = dict(starts)
    found, level = [], 0.0
    for rank in range(1, len(wrong) + 1):
        level += given.get(rank, 0.0)
        passed = level > 0 and stats.binom.cdf(sum(wrong[:rank]), rank, risk) <= level
        found.append((level, passed))
        if not passed:
            level = 0.0
    return found


@given(
    st.lists(st.sampled_from([False] * 9 + [True]), min_size=1, max_size=400),
    st.sampled_from([0.02, 0.05, 0.11, 0.3]),
    st.sampled_from([0.03, 0.1, 0.4]),
)
def test_every_rank_is_tested_as_defined(wrong: list[bool], risk: float, delta: float) -> None:
    rows = len(wrong)
    looks = risk_candidates(curve(np.arange(rows) / rows, np.array(wrong)), OPEN, risk, delta)
    expected = brute_force(wrong, risk, risk_starts(rows, risk, delta))
    np.testing.assert_array_equal(looks.accepted, np.arange(1, rows + 1))
    np.testing.assert_allclose(looks.levels, [level for level, _ in expected], rtol=1e-12)
    np.testing.assert_array_equal(looks.certified, [certified for _, certified in expected])
    np.testing.assert_array_equal(looks.cutoffs, np.append(np.arange(1, rows) / rows, np.inf))


def test_a_later_start_takes_up_a_run_or_opens_its_own() -> None:
    starts = ((3, 0.1), (6, 0.2), (9, 0.3))
    ranks = np.arange(1, 13)
    levels, certified = walk(starts, ranks, lambda first, last, level: 7 if first <= 7 <= last else None)
    assert ranks[certified].tolist() == [3, 4, 5, 6, 9, 10, 11, 12]
    np.testing.assert_allclose(levels, [0, 0, 0.1, 0.1, 0.1, 0.3, 0.3, 0, 0.3, 0.3, 0.3, 0.3])
    # blocks of ties that end at 4, 8 and 12: the second one was tested, and failed within
    levels, _ = walk(starts, np.array([4, 8, 12]), lambda first, last, level: 7 if first <= 7 <= last else None)
    np.testing.assert_allclose(levels, [0.1, 0.3, 0.3])


def test_the_first_rank_of_a_run_certifies_too() -> None:
    _, only = walk(((5, 0.1),), np.array([4, 5]), lambda first, last, level: None)
    assert only.tolist() == [False, True]
    _, fails_next = walk(((5, 0.1),), np.arange(1, 10), lambda first, last, level: 6)
    assert np.flatnonzero(fails_next).tolist() == [4]


@pytest.mark.parametrize("risk", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("delta", [0.05, 0.1])
def test_starts_share_delta_and_can_pass(risk: float, delta: float) -> None:
    fewest = next(n for n in range(1, 1000) if (1 - risk) ** n <= delta)
    for rows in (1, fewest - 1, fewest, 2 * fewest, 5 * fewest, 100 * fewest):
        starts = risk_starts(rows, risk, delta)
        ranks = [rank for rank, _ in starts]
        assert sum(share for _, share in starts) == pytest.approx(delta)
        assert ranks == sorted(set(ranks))
        assert 1 <= ranks[0] <= ranks[-1] <= rows
        if rows < fewest:
            assert ranks == [rows]
            continue
        for rank, share in starts:
            most = int(np.sum(stats.binom.cdf(np.arange(rank), rank, risk) <= share)) - 1
            assert most >= 0
            assert stats.binom.cdf(most, rank - 1, risk) > share  # the first rank with so many allowed errors
    assert risk_starts(fewest, risk, delta) == ((fewest, delta),)
    assert [len(risk_starts(m * fewest, risk, delta)) for m in (2, 4, 100, 400)] == [1, 1, 2, 3]


def test_no_start_can_pass_at_risk_0() -> None:
    assert risk_starts(50, 0.0, 0.1) == ((50, 0.1),)
    assert not risk_candidates(curve(np.arange(50.0), np.zeros(50, bool)), OPEN, 0.0, 0.1).certified.any()


# Ties


def test_errors_lie_where_their_block_is() -> None:
    accepted, errors = np.array([3, 5, 6, 10]), np.array([0, 2, 2, 3])
    ranks = error_ranks(accepted, errors)
    assert ranks[:2].tolist() == [4, 5]
    assert ranks.size == 3
    assert 7 <= ranks[2] <= 10
    assert error_ranks(np.array([4]), np.array([0])).size == 0


def test_tied_rows_have_every_order_equally_often() -> None:
    """3000 blocks of five rows with two errors: each of the ten arrangements is as likely."""
    blocks = np.arange(1, 3001)
    ranks = error_ranks(5 * blocks, 2 * blocks).reshape(3000, 2)
    places = (ranks - 1) % 5
    counts = [int(np.sum((places == pair).all(axis=1))) for pair in combinations(range(5), 2)]
    assert sum(counts) == 3000
    assert stats.chisquare(counts).pvalue > 1e-3


def test_ties_are_certified_as_whole_blocks() -> None:
    rng = np.random.default_rng(0)
    losses = rng.integers(0, 8, 900) / 8
    points = curve(losses, rng.random(900) < 0.2 * losses**3)
    best = certify_risk(risk_candidates(points, OPEN, 0.05, 0.1), 900, 0.05, "risk")
    assert best.cutoff in losses
    assert best.accepted == int(np.sum(losses < best.cutoff))


def test_shuffled_rows_give_the_same_bits() -> None:
    rng = np.random.default_rng(1)
    losses = np.round(rng.random(3000), 2)
    wrong = rng.random(3000) < 0.3 * losses**3
    first = risk_candidates(curve(losses, wrong), OPEN, 0.05, 0.1)
    order = rng.permutation(3000)
    second = risk_candidates(curve(losses[order], wrong[order]), OPEN, 0.05, 0.1)
    np.testing.assert_array_equal(first.levels, second.levels)
    np.testing.assert_array_equal(first.certified, second.certified)


# Few rows, where there was nothing to choose from before


def certified_share(risk_of, rows: int, risk: float, delta: float, trials: int, seed: int) -> float:
    """Mean accepted share; losses are uniform, so that a cutoff is its own coverage."""
    rng = np.random.default_rng(seed)
    shares = []
    for _ in range(trials):
        x = rng.random(rows)
        try:
            looks = risk_candidates(curve(x, rng.random(rows) < risk_of(x)), OPEN, risk, delta)
            shares.append(certify_risk(looks, rows, risk, "risk").accepted / rows)
        except Infeasible:
            shares.append(0.0)
    return float(np.mean(shares))


@pytest.mark.parametrize(("rows", "least"), [(400, 0.85), (700, 0.88), (740, 0.88)])
def test_a_model_without_errors_on_its_safest_nine_tenths_is_certified(rows: int, least: float) -> None:
    assert certified_share(lambda x: 0.3 * (x > 0.9), rows, 0.01, 0.05, 40, rows) > least


def test_errors_among_the_largest_losses_on_100_rows() -> None:
    assert certified_share(lambda x: 0.4 * x**4, 100, 0.05, 0.1, 100, 3) > 0.5


def test_more_looks_than_are_listed_lose_no_certified_cutoff() -> None:
    rng = np.random.default_rng(5)
    x = rng.random(30_000)
    points = curve(x, rng.random(x.size) < 0.4 * x**4)
    looks = risk_candidates(points, OPEN, 0.05, 0.1)
    assert looks.cutoffs.size < 2200
    best = certify_risk(looks, x.size, 0.05, "risk")
    everything = brute_force_last(points, 0.05, risk_starts(x.size, 0.05, 0.1))
    assert best.accepted == everything


def brute_force_last(points: Curve, risk: float, starts: Starts) -> int:
    """The last certified rank, by p-values of every rank at once."""
    chance = np.append(1.0, stats.binom.cdf(points.errors, points.accepted, risk))
    best, level = 0, 0.0
    afters = [*(rank for rank, _ in starts[1:]), points.rows + 1]
    for (first, share), after in zip(starts, afters, strict=True):
        level += share
        failed = np.flatnonzero(chance[first:after] > level)
        best = max(best, (first + int(failed[0]) if failed.size else after) - 1)
        level = 0.0 if failed.size else level
    return best


def test_a_flat_part_ends_the_sequence() -> None:
    losses = np.linspace(0.0, 2.0, 500)
    ratio = fit_ratio(losses, alpha=5.0, lam=0.3)
    looks = risk_candidates(curve(losses, np.zeros(500, bool)), ratio, 0.05, 0.1)
    assert looks.cutoffs[-1] == ratio.flat_start
    assert looks.accepted[-1] == int(np.sum(losses < ratio.flat_start)) < 500
    assert looks.certified[-1]


# The promise, where the proof is delicate: risks that come and go, at ties, with starts everywhere


DELICATE = {
    "always just too risky": (lambda x: np.full(x.shape, 0.2001), 0),
    "too risky in two blocks": (lambda x: np.where(x < 0.3, 0.3, np.where(x < 0.6, 0.11, 0.3)), 3),
    "a rare bad block first": (lambda x: np.where(x < 0.02, 1.0, 0.19), 50),
    "good rows after bad ones": (lambda x: np.where(x < 0.5, 0.402, 0.0), 2),
    "in and out": (lambda x: np.where(np.floor(x * 20) % 2 == 0, 0.41, 0.0), 0),
    "in and out, in blocks": (lambda x: np.where(np.floor(x * 20) % 2 == 0, 0.41, 0.0), 20),
    "just too risky later": (lambda x: np.where(x < 0.4, 0.199, 0.203), 10),
}


@pytest.mark.parametrize("name", DELICATE)
@pytest.mark.parametrize(
    ("rows", "trials"), [(250, 150), thorough(40, 150), more_trials(40, 500), more_trials(250, 500)]
)
def test_no_bad_cutoff_is_certified_more_often_than_promised(name: str, rows: int, trials: int) -> None:
    """Any bad cutoff that is certified counts, not only the chosen one."""
    risk_of, blocks = DELICATE[name]
    risk, delta = 0.2, 0.2
    grid = (np.arange(2000) + 0.5) / 2000
    true_risk = np.append(0.0, np.cumsum(risk_of(grid)) / np.arange(1, 2001))  # up to each of 2000 steps
    rng = np.random.default_rng(rows)
    broken = 0
    for _ in range(trials):
        x = rng.integers(0, 2000, rows)  # a step; blocks of ties are whole steps
        losses = np.floor(x / 2000 * blocks) / blocks if blocks else x / 2000
        looks = risk_candidates(curve(losses, rng.random(rows) < risk_of(grid[x])), OPEN, risk, delta)
        cutoffs = np.minimum(looks.cutoffs[looks.certified], 1.0)
        broken += bool((true_risk[np.rint(cutoffs * 2000).astype(int)] > risk + 1e-9).any())
    assert broken <= stats.binom.ppf(0.9995, trials, delta)


# What more may never do


def reached(points: Curve, risk: float, fitted: Curve | None = None, quantiles: tuple[float, ...] = ()) -> int:
    """The rows that are certified."""
    blocks = None if fitted is None else error_blocks(fitted)
    best = risk_candidates(points, OPEN, risk, 0.1, blocks, quantiles).largest()
    return 0 if best is None else best.accepted


def drawn(rows: int, levels: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Losses, of few levels or of none, and errors."""
    rng = np.random.default_rng(seed)
    x = rng.random(rows)
    x = np.floor(x * levels) / levels if levels else x
    return x, rng.random(rows) < 0.01 + 0.3 * x**2


@pytest.mark.parametrize("levels", [0, 4])
def test_a_larger_risk_certifies_no_less_on_average(levels: int, many: Many) -> None:
    fit, fit_wrong = drawn(500, levels, 9)
    more = curve(fit, fit_wrong), loss_quantiles(np.sort(fit))
    for known in ((), more):
        rows = [curve(*drawn(400, levels, seed)) for seed in range(many(60))]
        found = [[reached(each, risk, *known) for risk in (0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2)] for each in rows]
        steps = np.diff(np.array(found) / 400, axis=1)
        assert (steps.mean(axis=0) >= -2 * steps.std(axis=0) / np.sqrt(len(steps))).all()


@pytest.mark.parametrize("levels", [0, 4])
def test_more_rows_certify_no_less_on_average(levels: int, many: Many) -> None:
    fit, fit_wrong = drawn(500, levels, 9)
    more = curve(fit, fit_wrong), loss_quantiles(np.sort(fit))
    means, errors = [], []
    for rows in (200, 400, 800, 1600):
        shares = [reached(curve(*drawn(rows, levels, seed)), 0.05, *more) / rows for seed in range(many(60))]
        means.append(np.mean(shares))
        errors.append(np.std(shares) / np.sqrt(len(shares)))
    for step in range(3):
        assert means[step + 1] >= means[step] - 3 * np.hypot(errors[step], errors[step + 1])


# Few levels: fixed cutoffs between those of other rows


def test_levels_are_tested_by_their_exact_p_values() -> None:
    """Three levels, of which the fit says nothing but their shares: at least what Bonferroni's correction certifies."""
    rng = np.random.default_rng(4)
    levels, rates = np.array([0.1, 0.4, 0.9]), np.array([0.02, 0.08, 0.3])
    quantiles = tuple(np.repeat(levels, 67))
    np.testing.assert_array_equal(few_levels(quantiles), [0.4, 0.9, np.inf])
    more = 0
    for _ in range(60):
        which = rng.integers(0, 3, 300)
        points = curve(levels[which], rng.random(300) < rates[which])
        p = stats.binom.cdf(points.errors, points.accepted, 0.06)
        bonferroni = points.accepted[p <= 0.1 / 3].max(initial=0)
        found = reached(points, 0.06, None, quantiles)
        assert found >= bonferroni
        more += found > reached(points, 0.06)
    assert more > 5  # every rank, as without levels, certifies less


def test_losses_that_seldom_repeat_have_no_levels() -> None:
    assert few_levels(()) is None
    assert few_levels(tuple(np.arange(20.0))) is None
    assert few_levels((1.0,) * 201) == np.inf
    np.testing.assert_array_equal(few_levels((0.0,) * 6 + (1.0,) * 6), [1.0, np.inf])


def test_levels_end_where_the_ratio_is_0_and_may_be_other_than_those_at_hand() -> None:
    losses = np.repeat([0.0, 0.5, 1.0, 2.0], 100)
    ratio = fit_ratio(losses, alpha=5.0, lam=0.3)
    assert ratio.flat_start is not None
    quantiles = tuple(np.repeat([0.0, 0.5, 2.0], 50))
    looks = risk_candidates(curve(losses, np.zeros(400, bool)), ratio, 0.05, 0.1, None, quantiles)
    assert looks.cutoffs.tolist() == [cut for cut in (0.5, 2.0) if cut < ratio.flat_start] + [ratio.flat_start]
    np.testing.assert_array_equal(looks.accepted, [int(np.sum(losses < cut)) for cut in looks.cutoffs])


# Bounds for whichever cutoff was chosen


def test_any_cutoff_bound_is_exact_at_a_share_of_delta() -> None:
    assert any_cutoff_bound(800, 4, 1000, 0.05) == upper_bound(4, 800, 0.05 / 1000)
    assert stats.binom.cdf(4, 800, any_cutoff_bound(800, 4, 1000, 0.05)) == pytest.approx(0.05 / 1000)


def test_any_cutoff_bound_holds_for_the_luckiest_cutoff_where_a_pointwise_one_does_not(many: Many) -> None:
    rng = np.random.default_rng(8)
    trials, rows, delta = many(300), 120, 0.2
    broken = {"any": 0, "pointwise": 0}
    for _ in range(trials):
        errors = np.cumsum(rng.random(rows) < 0.1)  # the risk of every cutoff is 0.1
        bounds = {
            "any": [any_cutoff_bound(n + 1, int(e), rows, delta) for n, e in enumerate(errors)],
            "pointwise": [upper_bound(int(e), n + 1, delta) for n, e in enumerate(errors)],
        }
        for name, values in bounds.items():
            broken[name] += min(values) < 0.1
    assert broken["any"] <= stats.binom.ppf(0.999, trials, delta)
    assert broken["pointwise"] > stats.binom.ppf(0.999, trials, delta)
