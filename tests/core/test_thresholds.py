"""Choosing the cutoff: counts by brute force, ties, the flat part, what is infeasible."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drrej import Infeasible, Rule
from drrej.core.curves import Curve, MeanCurve
from drrej.core.ratio import DensityRatio, fit_ratio
from drrej.core.thresholds import as_share, choose_cutoff, mean_cutoff, risk_of
from drrej.errors import OptionError

graded = st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=40)


def choose(kind: str, target: float, losses: np.ndarray, wrong: np.ndarray | None = None, **fit: float) -> float | None:
    wrong = np.zeros(losses.size, bool) if wrong is None else wrong
    ratio = fit_ratio(losses, fit.get("alpha", 1.0), fit.get("lam", 1.0))
    return choose_cutoff(Rule(kind, target), ratio, Curve.of(losses[~wrong], losses[wrong]))


def accepts(cutoff: float | None, losses: np.ndarray) -> np.ndarray:
    return np.ones(losses.size, bool) if cutoff is None else losses < cutoff


def test_seven_percent_of_a_hundred_rows_are_seven_rows() -> None:
    """ceil(.07 * 100) is 8."""
    losses = np.arange(100) / 100
    for percent in range(1, 101):
        cutoff = choose("coverage", percent / 100, losses)
        assert accepts(cutoff, losses).sum() == percent


@given(graded, st.sampled_from([0.01, 0.07, 0.1, 1 / 3, 0.5, 0.8, 0.999, 1.0]) | st.floats(0.001, 1))
def test_coverage_is_the_smallest_that_the_data_can_give(pairs: list[tuple[int, bool]], target: float) -> None:
    losses = np.array([x / 8 for x, _ in pairs])
    cutoff = choose("coverage", target, losses)
    possible = [int((losses <= x).sum()) for x in sorted(set(losses))]
    wanted = min(n for n in possible if Fraction(n, losses.size) >= Fraction(repr(target)))
    assert accepts(cutoff, losses).sum() == wanted
    assert cutoff is None or cutoff in losses  # the smallest rejected loss


@given(graded, st.sampled_from([0.0, 0.05, 0.1, 0.2, 1 / 3, 0.5, 0.999]))
def test_risk_is_the_largest_coverage_within_the_target(pairs: list[tuple[int, bool]], target: float) -> None:
    losses, wrong = np.array([x / 8 for x, _ in pairs]), np.array([w for _, w in pairs])
    counts = [(int((losses <= x).sum()), int(wrong[losses <= x].sum())) for x in sorted(set(losses))]
    good = [n for n, e in counts if Fraction(e, n) <= Fraction(repr(target))]
    if not good:
        with pytest.raises(Infeasible, match=r"`risk=.*` cannot be reached: the lowest error rate"):
            choose("risk", target, losses, wrong)
        return
    cutoff = choose("risk", target, losses, wrong)
    assert accepts(cutoff, losses).sum() == max(good)
    assert cutoff is None or cutoff in losses


def test_an_infeasible_risk_says_how_near_it_came() -> None:
    losses, wrong = np.array([0.1, 0.1, 0.2, 0.3]), np.array([True, False, False, False])
    with pytest.raises(Infeasible, match=r"lowest error rate among accepted rows is 0\.25, at coverage 1") as caught:
        choose("risk", 0.1, losses, wrong)
    assert caught.value.exit_code == 1


def test_full_coverage_rejects_nothing() -> None:
    losses = np.array([0.1, 0.2, 0.3])
    assert choose("coverage", 1.0, losses) is None
    assert choose("risk", 0.0, losses) is None


def test_tied_rows_stay_together() -> None:
    losses = np.array([0.1, 0.2, 0.2, 0.2, 0.3])
    for target in (0.3, 0.4, 0.6, 0.8):
        assert choose("coverage", target, losses) == 0.3
    assert choose("coverage", 0.2, losses) == 0.2


@pytest.mark.parametrize("alpha", [3.0, 5.0])
def test_the_flat_part_is_rejected_by_every_rule(alpha: float) -> None:
    losses = np.linspace(0, 3, 100)
    fit = {"alpha": alpha, "lam": 0.2}
    ratio = fit_ratio(losses, **fit)
    flat = losses >= ratio.flat_start
    assert (flat == (ratio.ratio(losses) == 0)).all()
    assert 0 < flat.sum() < 90
    reachable = (~flat).mean()
    with pytest.raises(
        Infeasible,
        match=rf"the ratio is 0 on {flat.sum()} of 100 rows, so coverage ends at {reachable:.6g}; lower alpha",
    ):
        choose("coverage", 0.99, losses, **fit)
    at_the_end = choose("coverage", reachable, losses, **fit)
    assert (accepts(at_the_end, losses) == ~flat).all()
    assert (accepts(choose("risk", 0.5, losses, **fit), losses) == ~flat).all()
    assert (accepts(choose("max-loss", 100.0, losses, **fit), losses) == ~flat).all()
    assert (accepts(choose("tau", 0.0, losses, **fit), losses) == ~flat).all()


def test_max_loss_is_the_cutoff() -> None:
    losses = np.array([0.1, 0.2, 0.3])
    assert choose("max-loss", 0.25, losses) == 0.25
    assert choose("max-loss", 0.2, losses) == 0.2


def test_a_tau_above_1_goes_below_the_share_of_good_rows() -> None:
    losses = np.random.default_rng(0).gamma(0.3, 0.5, 500)
    rho = fit_ratio(losses, 1.0, 1.0).ratio(losses)
    tau = float(np.quantile(rho, 0.95))
    assert tau > 1
    assert accepts(choose("tau", tau, losses), losses).sum() == (rho > tau).sum() < (rho > 1).sum()


@given(graded, st.floats(-3, 3), st.sampled_from([0.5, 1.0, 3.0]))
def test_alpha_and_lambda_never_change_which_rows_a_coverage_accepts(
    pairs: list[tuple[int, bool]], log_lambda: float, alpha: float
) -> None:
    losses = np.array([x / 8 for x, _ in pairs])
    expected = accepts(choose("coverage", 0.6, losses), losses)
    try:
        cutoff = choose("coverage", 0.6, losses, alpha=alpha, lam=10.0**log_lambda)
    except Infeasible:
        assert alpha == 3.0
    else:
        assert (accepts(cutoff, losses) == expected).all()


@pytest.mark.parametrize(
    ("kind", "target", "allowed"),
    [
        ("tau", -0.1, "0 or more"),
        ("tau", math.inf, "0 or more"),
        ("coverage", 0.0, "above 0 and at most 1"),
        ("coverage", 1.1, "above 0 and at most 1"),
        ("coverage", math.nan, "above 0 and at most 1"),
        ("risk", 1.0, "at least 0 and below 1"),
        ("risk", -0.1, "at least 0 and below 1"),
        ("max-loss", 0.0, "above 0"),
        ("max-loss", math.inf, "above 0"),
    ],
)
def test_targets_out_of_range(kind: str, target: float, allowed: str) -> None:
    with pytest.raises(OptionError, match=rf"`{kind}={target:g}`: it must be {allowed}"):
        Rule(kind, target)


def test_an_unknown_rule() -> None:
    with pytest.raises(OptionError, match="unknown rule 'precision'"):
        Rule("precision", 0.9)


def test_a_cutoff_that_no_row_is_below_accepts_nothing() -> None:
    losses = np.array([0.5, 0.6])
    ratio = DensityRatio(1.0, 1.0, 0.05, 0.5)
    points = Curve.of(losses, losses[:0])
    cutoff = choose_cutoff(Rule("tau", 5.0), ratio, points)
    assert points.below(cutoff) == (0, 0)


def test_percentages_are_told_from_shares() -> None:
    """1 is a share, the whole; above 100 nothing can be meant."""
    assert [as_share(number) for number in (0.98, 1.0, -5.0, 100.5)] == [""] * 4
    assert as_share(1.5) == "; for 1.5 % write 0.015"
    assert as_share(100.0) == "; for 100 % write 1"


def test_an_accuracy_allows_the_rest_in_decimals() -> None:
    assert [risk_of("accuracy", target) for target in (0.9, 0.98, 0.995, 1.0)] == [0.1, 0.02, 0.005, 0.0]
    assert risk_of("risk", 0.07) == 0.07


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=30),
    st.sampled_from([0.125, 0.3, 0.5, 0.75]),
    st.none() | st.sampled_from([0.0, 2.5, 4.0, 8.0, 20.0]),
)
def test_a_mean_is_the_largest_coverage_within_the_target(
    pairs: list[tuple[int, int]], target: float, last: float | None
) -> None:
    losses, values = (np.array(column, float) for column in zip(*pairs, strict=True))
    values /= 8
    ends = [loss for loss in np.unique(losses) if last is None or loss < last]
    held = [loss for loss in ends if values[losses <= loss].mean() <= target]
    curve = MeanCurve.of(losses, values)
    if not held:
        with pytest.raises(Infeasible, match="the lowest mean of accepted rows" if ends else "0 on every row"):
            mean_cutoff(Rule("mae", target), curve, last)
        return
    cutoff = mean_cutoff(Rule("mae", target), curve, last)
    np.testing.assert_array_equal(accepts(cutoff, losses), losses <= max(held))
