"""Figures against brute force, published values and naive float64."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import reference
from conftest import make_model, make_rejector, source, write_dump
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, multinomial, norm
from test_curves import every_outcome

import drrej
from drrej.core.curves import Curve
from drrej.core.intervals import (
    at_least,
    at_most,
    lower_bound,
    mean_interval,
    proportion,
    rate_at_most,
    sampled_share,
    upper_bound,
)
from drrej.core.losses import expected_losses

graded = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=40)


def points_of(losses: np.ndarray, wrong: np.ndarray) -> Curve:
    return Curve.of(losses[~wrong], losses[wrong])


def from_pairs(pairs: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([x / 6 for x, _ in pairs]), np.array([w for _, w in pairs])


def test_published_curve_with_ties() -> None:
    confidence = np.array([0.9, 0.7, 0.95, 0.8, 0.6, 0.7, 0.85, 0.8])
    points = points_of(1 - confidence, np.array([0, 1, 0, 1, 0, 0, 0, 0], bool))
    assert (points.accepted / 8).tolist() == [0.125, 0.25, 0.375, 0.625, 0.875, 1]
    np.testing.assert_allclose(points.errors / points.accepted, [0, 0, 0, 0.2, 2 / 7, 0.25])
    assert points.aurc() == pytest.approx(0.1191964, abs=5e-8)
    assert points.augrc() == 0.09375


def test_published_areas() -> None:
    points = points_of(-np.array([0.9, 0.8, 0.7, 0.6, 0.8]), np.array([0, 0, 1, 1, 0], bool))
    assert points.aurc() == pytest.approx(0.09, rel=1e-14)
    assert points.augrc() == pytest.approx(0.08, rel=1e-14)
    everything_ties = points_of(np.full(100, 0.3), np.arange(100) % 2 == 0)
    assert (everything_ties.aurc(), everything_ties.augrc()) == (0.5, 0.25)
    all_wrong = points_of(np.linspace(0, 1, 100), np.ones(100, bool))
    assert (all_wrong.aurc(), all_wrong.augrc(), all_wrong.e_aurc()) == (
        pytest.approx(1),
        0.5,
        pytest.approx(0, abs=1e-14),
    )
    all_right = points_of(np.linspace(0, 1, 100), np.zeros(100, bool))
    assert (all_right.aurc(), all_right.augrc(), all_right.e_aurc()) == (0, 0, 0)


def test_e_aurc_is_negative_where_a_row_by_row_oracle_is_beaten() -> None:
    """Wrong rows that tie lie on a chord below the ideal."""
    points = points_of(np.array([0.0, 1.0, 1.0]), np.array([False, True, True]))
    assert points.e_aurc() == pytest.approx(2 / 9 - (2 / 3 + math.log(1 / 3) / 3), rel=1e-12)
    oracle = points_of(np.array([0.0, 1.0, 2.0]), np.array([False, True, True])).aurc()
    assert points.aurc() - oracle == pytest.approx(-1 / 18)


@given(graded)
def test_areas_agree_with_brute_force(pairs: list[tuple[int, bool]]) -> None:
    losses, wrong = from_pairs(pairs)
    points = points_of(losses, wrong)
    assert list(zip(points.accepted.tolist(), points.errors.tolist(), strict=True)) == reference.curve(losses, wrong)
    assert points.aurc() == pytest.approx(reference.aurc(losses, wrong), rel=1e-12, abs=1e-15)
    assert points.augrc() == pytest.approx(reference.augrc(losses, wrong), rel=1e-12, abs=1e-15)
    right = 1 - wrong.mean()
    ideal = 1.0 if wrong.all() else wrong.mean() + right * math.log(right)
    assert points.e_aurc() == pytest.approx(points.aurc() - ideal, abs=1e-12)


@given(graded)
def test_augrc_follows_from_the_auroc_of_failure_detection(pairs: list[tuple[int, bool]]) -> None:
    losses, wrong = from_pairs(pairs)
    if wrong.all() or not wrong.any():
        return
    differences = losses[wrong][:, None] - losses[~wrong][None, :]
    auroc = np.mean((differences > 0) + 0.5 * (differences == 0))
    accuracy = 1 - wrong.mean()
    expected = (1 - auroc) * accuracy * (1 - accuracy) + (1 - accuracy) ** 2 / 2
    assert points_of(losses, wrong).augrc() == pytest.approx(expected, rel=1e-12)


@given(graded, st.randoms(use_true_random=False))
def test_areas_have_the_same_bits_in_any_order(pairs: list[tuple[int, bool]], random: object) -> None:
    before = points_of(*from_pairs(pairs))
    random.shuffle(pairs)  # type: ignore[attr-defined]
    after = points_of(*from_pairs(pairs))
    assert (before.aurc(), before.augrc(), before.e_aurc()) == (after.aurc(), after.augrc(), after.e_aurc())


@given(graded, st.integers(-1, 7) | st.none())
def test_counts_below_a_cutoff(pairs: list[tuple[int, bool]], cutoff: int | None) -> None:
    losses, wrong = from_pairs(pairs)
    limit = None if cutoff is None else cutoff / 6
    accepted = np.ones(losses.size, bool) if limit is None else losses < limit
    assert points_of(losses, wrong).below(limit) == (accepted.sum(), wrong[accepted].sum())


@pytest.mark.parametrize(
    ("errors", "rows", "delta", "bound"),
    [
        (0, 100, 0.05, 0.0295130496),
        (5, 100, 0.05, 0.1022533776),
        (10, 1000, 0.05, 0.0169031751),
        (20, 1000, 0.001, 0.0376991128),
        (7, 7, 0.05, 1.0),
    ],
)
def test_published_clopper_pearson_bounds(errors: int, rows: int, delta: float, bound: float) -> None:
    assert upper_bound(errors, rows, delta) == pytest.approx(bound, abs=5e-11)
    assert lower_bound(rows - errors, rows, delta) == pytest.approx(1 - bound, abs=5e-11)


@pytest.mark.parametrize(("hits", "rows"), [(0, 10), (3, 10), (10, 10), (977, 1000), (123_456, 1_000_000)])
def test_intervals_are_exact(hits: int, rows: int) -> None:
    interval = proportion(hits, rows)
    exact = binomtest(hits, rows).proportion_ci(0.95, method="exact")
    assert interval["value"] == hits / rows
    assert interval["lower"] == pytest.approx(exact.low, rel=1e-9)
    assert interval["upper"] == pytest.approx(exact.high, rel=1e-9)
    if hits < rows:
        assert binom.cdf(hits, rows, interval["upper"]) == pytest.approx(0.025, rel=1e-6)
    if hits > 0:
        assert binom.sf(hits - 1, rows, interval["lower"]) == pytest.approx(0.025, rel=1e-6)


@pytest.mark.parametrize("rate", [0.0, 1e-9, 0.07, 0.5, 1.0])
def test_tails_are_those_of_the_binomial_distribution(rate: float) -> None:
    """Of numbers and of arrays, and of counts that cannot be."""
    counts, rows = np.array([-1, 0, 1, 3, 9, 10, 11, 700]), np.array([10, 10, 10, 10, 10, 10, 10, 9000])
    assert at_most(counts, rows, rate) == pytest.approx(binom.cdf(counts, rows, rate), rel=1e-9)
    assert at_least(counts, rows, rate) == pytest.approx(binom.sf(counts - 1, rows, rate), rel=1e-9)
    assert float(at_most(3, 10, rate)) == pytest.approx(binom.cdf(3, 10, rate), rel=1e-9)
    assert float(at_least(3, 10, rate)) == pytest.approx(binom.sf(2, 10, rate), rel=1e-9)


def test_a_proportion_of_nothing_is_undefined() -> None:
    assert proportion(0, 0) == {"value": None, "lower": None, "upper": None}


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**6)), min_size=1),
    st.decimals(0, 1, places=4) | st.floats(0, 1),
)
def test_rates_are_compared_exactly(counts: list[tuple[int, int]], limit: object) -> None:
    exact = Fraction(str(limit))
    hits, rows = (np.array(column, np.int64) for column in zip(*counts, strict=True))
    expected = [Fraction(h, r) <= exact for h, r in counts]
    assert rate_at_most(hits, rows, exact).tolist() == expected


def test_rates_on_the_edge_are_compared_exactly() -> None:
    limit = Fraction("0.1000000000000000055511151231257827")  # 64 bits do not hold the products
    hits, rows = np.array([1, 10**6, 10**6 + 1]), np.array([10, 10**7, 10**7])
    assert rate_at_most(hits, rows, limit).tolist() == [True, True, False]
    assert rate_at_most(hits, rows, Fraction("0.1")).tolist() == [True, True, False]
    assert rate_at_most(hits, rows, Fraction("0.0999999999999999999999999999999")).tolist() == [False, False, False]


@pytest.mark.parametrize("prices", [[0.0, 2.0, 50.0], [-3.0, 0.0, 1.0, 10.0]])
def test_the_ends_of_a_mean_miss_with_the_chance_that_was_promised(prices: list[float]) -> None:
    """Every outcome of six rows, whatever the shares of the values: those of two have exact ends, of more a bet."""
    values, level, rng = np.array(prices), 0.1, np.random.default_rng(0)
    outcomes = every_outcome(6, values.size)
    low, high = np.array([mean_interval(values, counts, level) for counts in outcomes]).T
    means = outcomes @ values / 6
    assert ((values.min() <= low) & (low <= means) & (means <= high)).all()
    assert (low > values.min()).any()
    assert (high < values.max()).any()
    for sameness in np.repeat([0.2, 1.0, 5.0], 20):
        shares = rng.dirichlet(np.full(values.size, sameness))
        chances, truth = multinomial.pmf(outcomes, 6, shares), float(shares @ values)
        assert chances[low > truth + 1e-9].sum() <= level
        assert chances[high < truth - 1e-9].sum() <= level


def test_the_ends_of_a_mean_move_with_its_values_and_close_in_with_the_rows() -> None:
    values, counts = np.array([0.0, 1.0, 2.0, 6.0]), np.array([40, 30, 20, 10])
    low, high = mean_interval(values, counts, 0.05)
    assert mean_interval(3.0 * values - 5.0, counts, 0.05) == pytest.approx((3 * low - 5, 3 * high - 5))
    assert mean_interval(-values, counts, 0.05) == pytest.approx((-high, -low))
    widths = [np.diff(mean_interval(values, factor * counts, 0.05))[0] for factor in (1, 100, 10_000)]
    spread = math.sqrt(np.average(values**2, weights=counts) - np.average(values, weights=counts) ** 2)
    normal = [2 * norm.isf(0.05) * spread / math.sqrt(100 * factor) for factor in (1, 100, 10_000)]
    assert all(wide < 2.2 * usual for wide, usual in zip(widths, normal, strict=True))  # a bet costs less than twice
    assert all(wide > usual for wide, usual in zip(widths, normal, strict=True))


@pytest.mark.parametrize("counts", [(985, 5, 5, 5), (5, 5, 5, 985), (250, 250, 250, 250)])
def test_the_ends_of_a_mean_are_near_however_little_the_values_vary(counts: tuple[int, ...]) -> None:
    """Within three times of what a normal distribution has: a small bet alone suits values that vary a lot."""
    values = np.array([0.0, 1.0, 2.0, 6.0])
    low, high = mean_interval(values, np.array(counts), 0.05)
    mean, square = (np.average(powers, weights=counts) for powers in (values, values**2))
    usual = norm.isf(0.05) * math.sqrt((square - mean**2) / 1000)
    assert mean - 3 * usual < low < mean < high < mean + 3 * usual


def test_the_ends_of_a_share_of_drawn_rows_miss_with_the_chance_that_was_promised() -> None:
    """Every outcome of what was drawn of two kinds, and of a third of which nothing was."""
    rows, drawn, level = np.array([700, 200, 100]), np.array([25, 15, 0]), 0.1
    outcomes = [(a, b) for a in range(26) for b in range(16)]
    found = [sampled_share(rows, drawn, np.array([a, b, 0]), level) for a, b in outcomes]
    share, low, high = np.array(found, np.float64).T
    a, b = np.array(outcomes).T
    assert share == pytest.approx((7 * a / 25 + 2 * b / 15) / 9)
    assert high.max() == pytest.approx(1.0)
    assert low.min() == 0.0
    for first in (0.01, 0.1, 0.4, 0.9):
        for second in (0.02, 0.3, 0.8):
            chances = binom.pmf(a, 25, first) * binom.pmf(b, 15, second)
            for third in (0.0, 1.0):
                truth = 0.7 * first + 0.2 * second + 0.1 * third
                assert chances[low > truth].sum() <= level
                assert chances[high < truth].sum() <= level


@pytest.mark.parametrize("kinds", [2, 3, 7])
@pytest.mark.parametrize("drawn", [7, 60, 100])
def test_a_share_of_drawn_rows_of_which_all_or_none_are_hits(kinds: int, drawn: int) -> None:
    """As of one kind: (1 - p)^n = level, which is all that Hoeffding's bound says at the ends."""
    rows, each = np.full(kinds, 500), np.full(kinds, drawn)
    far = 1.0 - 0.025 ** (1 / (kinds * drawn))
    assert sampled_share(rows, each, 0 * each, 0.025) == pytest.approx((0.0, 0.0, far), abs=1e-12)
    assert sampled_share(rows, each, each, 0.025) == pytest.approx((1.0, 1.0 - far, 1.0), abs=1e-12)
    assert sampled_share(np.array([9000, 1000]), np.array([200, 100]), np.array([0, 0]), 0.025)[:2] == (0.0, 0.0)


# Calibration figures of a report


@pytest.mark.parametrize(("classes", "dtype"), [(2, np.float32), (10, np.float64), (50, np.float32), (10, np.float16)])
def test_calibration_figures_agree_with_naive_float64(tmp_path: Path, classes: int, dtype: type) -> None:
    logits, labels = make_model(1500, classes, seed=classes, dtype=dtype)
    path = write_dump(tmp_path / "d.parquet", logits, labels)
    rejector = make_rejector(source(path), ("coverage", 0.7))
    report = drrej.evaluate(source(path), rejector)
    temperature = rejector.need_calibration().temperature
    mask = expected_losses(logits, "log", temperature) < rejector.need_threshold().cutoff
    tolerance = 1e-11 if dtype is np.float64 else 2e-6
    for name, route in {"nll": reference.nll, "brier": reference.brier, "ece": reference.ece}.items():
        for part, rows, t in (
            ("uncalibrated", slice(None), 1.0),
            ("all", slice(None), temperature),
            ("accepted", mask, temperature),
        ):
            expected = route(logits[rows], labels[rows], t)
            assert report[name][part] == pytest.approx(expected, rel=tolerance, abs=1e-9), (name, part)


def test_ece_bins_are_closed_on_the_right(tmp_path: Path) -> None:
    """Three equal logits: a confidence of 1/3 = 5/15 belongs to the bin (4/15, 5/15]."""
    logits = np.zeros((30, 3), np.float32)
    logits[15:] = np.log([0.34, 0.33, 0.33])  # in (5/15, 6/15]
    labels = np.repeat([0, 1], 15)
    path = write_dump(tmp_path / "d.parquet", logits, labels)
    report = drrej.evaluate(source(path), make_rejector(source(path), ("coverage", 1.0)))
    # one bin: |mean right - mean confidence|; two bins: both gaps count
    assert report["ece"]["uncalibrated"] == pytest.approx(0.5 * (1 - 1 / 3) + 0.5 * 0.34, rel=1e-6)


def test_figures_of_sure_and_wrong_rows_do_not_cancel(tmp_path: Path) -> None:
    logits = np.array([[50.0, 0, 0], [0, 60.0, 0], [0, 0, 70.0], [80.0, 0, 0]], np.float32)
    path = write_dump(tmp_path / "d.parquet", logits, np.array([0, 1, 2, 1]))
    report = drrej.evaluate(source(path), make_rejector(source(path), ("coverage", 1.0)))
    assert report["nll"]["uncalibrated"] == pytest.approx(80 / 4, rel=1e-12)
    assert report["brier"]["uncalibrated"] == pytest.approx(2 / 4, rel=1e-12)
    assert report["ece"]["uncalibrated"] == pytest.approx(0.25, rel=1e-9)


def test_the_interval_of_a_mean_stays_among_the_values() -> None:
    """Each value has a bound of its own, and their sum could exceed all of them."""
    values = np.array([1.0, 50.0])
    for counts in ([1, 40], [40, 1], [1, 0], [0, 1]):
        low, high = mean_interval(values, np.array(counts), 0.025)
        assert 1.0 <= low <= high <= 50.0
