"""Choosing the cutoff: counts by brute force, ties, the flat part, what is infeasible."""

from __future__ import annotations

import contextlib
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drrej import Infeasible, Rule
from drrej.core.curves import Curve, MeanCurve
from drrej.core.ratio import DensityRatio, fit_ratio
from drrej.core.thresholds import FIXED, RULES, Goal, as_share, choose_cutoff, mean_cutoff, risk_of, with_reviewers
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


@pytest.mark.parametrize(
    ("given", "allowed"),
    [  # at each edge of what a user may ask for
        ({"kind": "tau", "target": 0.0}, True),
        ({"kind": "coverage", "target": 1.0}, True),
        ({"kind": "accuracy", "target": 1.0}, True),
        ({"kind": "accuracy", "target": 0.0}, False),
        ({"kind": "risk", "target": 0.0}, True),
        ({"kind": "cost", "target": 0.0}, False),
        ({"kind": "mse", "target": 0.0}, True),
        ({"kind": "mean-cost", "target": -0.1}, False),
        ({"kind": "mae", "target": math.inf}, False),
        ({"kind": "risk", "target": 0.1, "confidence": 0.0}, False),
        ({"kind": "risk", "target": 0.1, "confidence": 1.0}, False),
        ({"kind": "tau", "target": 0.1, "confidence": 0.9}, False),
        ({"kind": "max-loss", "target": 0.1, "confidence": 0.9}, False),
        ({"kind": "cost", "target": 0.1, "confidence": 0.9}, False),
        ({"kind": "risk", "target": 0.1, "coverage": 1.0}, True),
        ({"kind": "accuracy", "target": 0.9, "coverage": 0.0}, False),
        ({"kind": "accuracy", "target": 0.9, "coverage": 1.1}, False),
        ({"kind": "tau", "target": 0.9, "coverage": 0.5}, False),
        ({"kind": "cost", "target": 1.0, "error_cost": 1.0}, False),
        ({"kind": "cost", "target": 1.0, "error_cost": 1.1}, True),
        ({"kind": "cost", "target": 1.0, "error_cost": math.inf}, False),
        ({"kind": "risk", "target": 0.1, "error_cost": 5.0}, False),
        ({"kind": "mse", "target": 1.0, "confidence": 0.9}, False),
        ({"kind": "mse", "target": 1.0, "confidence": 0.9, "clip": 1.0}, False),
        ({"kind": "mae", "target": 1.0, "confidence": 0.9, "clip": 1.1}, True),
        ({"kind": "mae", "target": 1.0, "clip": math.inf}, False),
        ({"kind": "mean-cost", "target": 1.0, "confidence": 0.9}, True),
        ({"kind": "mean-cost", "target": 1.0, "clip": 2.0}, False),
        ({"kind": "promises", "target": 0.0}, False),
        ({"kind": "promises", "target": 0.0, "promises": (Goal("missed", 0.1, "a"),)}, True),
        ({"kind": "risk", "target": 0.1, "promises": (Goal("missed", 0.1, "a"),)}, False),
    ],
    ids=repr,
)
def test_what_a_rule_may_ask_for(given: dict[str, Any], allowed: bool) -> None:
    with contextlib.nullcontext() if allowed else pytest.raises(OptionError):
        Rule(**given)


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ({"what": "accuracy", "limit": 1.0}, True),
        ({"what": "accuracy", "limit": 0.0}, False),
        ({"what": "coverage", "limit": 1.0}, True),
        ({"what": "coverage", "limit": 0.0}, False),
        ({"what": "risk", "limit": 0.0}, True),
        ({"what": "missed", "limit": 1.0}, False),
        ({"what": "overall-risk", "limit": 0.0}, True),
        ({"what": "overall-risk", "limit": 0.1, "reviewer_accuracy": 0.0}, False),
        ({"what": "overall-risk", "limit": 0.1, "reviewer_accuracy": 1.0}, True),
        ({"what": "overall-risk", "limit": 0.1, "reviewer_accuracy": 1.1}, False),
        ({"what": "reviews", "limit": 1}, False),
        ({"what": "reviews", "limit": 0, "per": 0}, False),
        ({"what": "reviews", "limit": 0, "per": 1}, True),
        ({"what": "reviews", "limit": 1, "per": 1}, True),
        ({"what": "reviews", "limit": 2, "per": 1}, False),
        ({"what": "reviews", "limit": -1, "per": 9}, False),
        ({"what": "reviews", "limit": 1.5, "per": 9}, False),
    ],
    ids=repr,
)
def test_what_a_promise_may_limit(given: dict[str, Any], allowed: bool) -> None:
    with contextlib.nullcontext() if allowed else pytest.raises(OptionError):
        Goal(**given)


@pytest.mark.parametrize(
    ("given", "method"),
    [
        ({"kind": "risk", "target": 0.1}, "fixed-sequence"),
        ({"kind": "accuracy", "target": 0.9, "coverage": 0.5}, "joint"),
        ({"kind": "promises", "target": 0.0, "promises": (Goal("missed", 0.1, "a"),)}, "joint"),
        ({"kind": "coverage", "target": 0.9}, "order-statistic"),
        ({"kind": "mae", "target": 0.1, "clip": 1.0}, "betting"),
        ({"kind": "mean-cost", "target": 0.1}, "betting"),
    ],
    ids=repr,
)
def test_a_confidence_has_one_method(given: dict[str, Any], method: str) -> None:
    assert Rule(**given).certified_by is None
    assert Rule(**given, confidence=0.9).certified_by == method
    assert Rule(**given, confidence=0.9, method=method).method == method
    for other in {"fixed-sequence", "joint", "order-statistic", "betting", "sgr"} - {method}:
        with pytest.raises(OptionError, match="leave out `method`"):
            Rule(**given, confidence=0.9, method=other)


def test_which_rules_need_labels_and_rows() -> None:
    """A coverage and a number of reviews are known without labels, a tau and a largest loss without rows."""
    targets = {"max-loss": 1.0, "cost": 1.0, "promises": 0.0}
    missed, reviews = Goal("missed", 0.1, "a"), Goal("reviews", 3, per=9)
    rules = {kind: Rule(kind, targets.get(kind, 0.5)) for kind in RULES if kind != "promises"}
    assert set(FIXED) == {"tau", "max-loss"}
    needed = {kind for kind, rule in rules.items() if rule.needs_labels}
    assert needed == {"accuracy", "risk", "cost", "mean-cost"}
    assert [Rule("promises", 0.0, promises=goals).needs_labels for goals in ((reviews,), (reviews, missed))] == [
        False,
        True,
    ]


def test_reviewers_who_err_leave_less_for_accepted_rows() -> None:
    """0.04 of what they see: with a promised coverage of 0.9 that is 0.004 of all rows."""
    goals = with_reviewers([Goal("overall-risk", 0.01, reviewer_accuracy=0.96), Goal("coverage", 0.9)])
    assert [goal.asked for goal in goals] == ["`overall_risk=0.006`", "`coverage=0.9`"]
    (alone,) = with_reviewers([Goal("overall-risk", 0.1, reviewer_accuracy=0.96)])  # they may see every row
    assert alone.limit == 0.06
    same = [Goal("overall-risk", 0.01), Goal("missed", 0.1, "a")]
    assert with_reviewers(same) == same
    with pytest.raises(OptionError, match="reviewers alone make more errors"):
        with_reviewers([Goal("overall-risk", 0.01, reviewer_accuracy=0.9), Goal("coverage", 0.9)])


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
