"""Paired differences: by adding up every outcome, against drawn weights, and against known truth."""

from __future__ import annotations

import numpy as np
import pytest
import simulate_intervals as simulate
from conftest import thorough
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multinomial
from test_area_intervals import weighted_areas
from test_coverage_interval import every_outcome

from drrej.core.curves import Curve
from drrej.core.intervals import lower_bound, upper_bound
from drrej.core.paired import FIGURES, Results, accuracy_difference, paired_differences, proportion_difference

RESULT = st.tuples(st.integers(0, 8), st.booleans(), st.booleans())
ROWS = st.lists(st.tuples(RESULT, RESULT), min_size=1, max_size=40)


def results(rows: list[tuple[int, bool, bool]]) -> Results:
    losses, wrong, accepted = (np.array(column) for column in zip(*rows, strict=True))
    return Results(losses.astype(np.float64), wrong, accepted)


def both(rows: list[tuple[tuple[int, bool, bool], tuple[int, bool, bool]]]) -> tuple[Results, Results]:
    return results([new for new, _ in rows]), results([old for _, old in rows])


def with_errors(only_new: int, only_old: int, rows: int) -> tuple[Results, Results]:
    """Models that accept every row and differ in so many predictions: right in the new one only, or in the old one."""
    wrong = np.zeros((2, rows), bool)
    wrong[1, :only_new] = True
    wrong[0, only_new : only_new + only_old] = True
    losses, accepted = np.arange(float(rows)), np.ones(rows, bool)
    return Results(losses, wrong[0], accepted), Results(losses, wrong[1], accepted)


@given(ROWS)
def test_values_are_differences_of_figures(rows: list) -> None:
    new, old = both(rows)
    found = paired_differences(new, old)
    curves = [Curve.of(r.losses[~r.wrong], r.losses[r.wrong]) for r in (new, old)]
    for name in ("aurc", "e_aurc", "augrc"):
        a, b = (getattr(curve, name)() for curve in curves)
        assert found[name].value == pytest.approx(a - b, abs=1e-12)
    assert found["coverage"].value == pytest.approx(new.accepted.mean() - old.accepted.mean(), abs=1e-12)
    assert found["base_accuracy"].value == pytest.approx(old.wrong.mean() - new.wrong.mean(), abs=1e-12)
    if new.accepted.any() and old.accepted.any():
        errors = [r.wrong[r.accepted].mean() for r in (new, old)]
        assert found["accuracy"].value == pytest.approx(errors[1] - errors[0], abs=1e-12)
    else:
        assert (found["accuracy"].value, found["accuracy"].lower, found["accuracy"].upper) == (None, None, None)


@given(ROWS, st.randoms(use_true_random=False))
def test_intervals_hold_their_value_turn_with_the_sign_and_know_no_order(rows: list, random: object) -> None:
    found = paired_differences(*both(rows))
    turned = paired_differences(*both([(old, new) for new, old in rows]))
    for name in FIGURES:
        if found[name].value is None:
            continue
        most = 1.5 if name == "e_aurc" else 1
        assert -most <= found[name].lower <= found[name].value <= found[name].upper <= most
        assert found[name].lower < found[name].upper
        assert (turned[name].lower, turned[name].upper) == pytest.approx(
            (-found[name].upper, -found[name].lower), abs=1e-12
        )
    random.shuffle(rows)  # type: ignore[attr-defined]
    assert paired_differences(*both(rows)) == found


@pytest.mark.parametrize("rows", [30, 200])
def test_the_ends_of_paired_proportions_miss_with_the_chance_that_was_promised(rows: int) -> None:
    """Every outcome with more than a trifling chance, for true shares of rows that only one model has right."""
    most = 34
    outcomes = [(b, c) for b in range(min(most, rows) + 1) for c in range(min(most, rows - b) + 1)]
    ends = []
    for b, c in outcomes:
        difference = proportion_difference(b, c, rows)
        ends.append((difference.lower, difference.upper))
    lower, upper = np.array(ends).T
    counts = np.array([(b, c, rows - b - c) for b, c in outcomes])
    for only_new in (0, 0.002, 0.01, 0.03, 0.08):
        for only_old in (0, 0.002, 0.01, 0.03, 0.08):
            if only_new + only_old == 0:
                continue
            chances = multinomial.pmf(counts, rows, [only_new, only_old, 1 - only_new - only_old])
            assert chances.sum() > 0.9999
            truth = only_new - only_old
            assert chances[lower > truth + 1e-12].sum() <= 0.025
            assert chances[upper < truth - 1e-12].sum() <= 0.025


def test_the_ends_of_accuracies_of_what_each_accepts_miss_with_the_chance_that_was_promised() -> None:
    """Every outcome of 7 rows over the nine kinds, for 100 worlds of all sorts."""
    outcomes = every_outcome(7, 9)
    found = [accuracy_difference(counts.reshape(3, 3)) for counts in outcomes]
    lower, upper = (np.array([getattr(row, end) for row in found], np.float64) for end in ("lower", "upper"))
    rng = np.random.default_rng(0)
    for sameness in np.repeat([0.2, 0.5, 1.0, 3.0], 25):
        chances = rng.dirichlet(np.full(9, sameness)).reshape(3, 3)
        kinds = chances.sum(axis=1), chances.sum(axis=0)
        truth = kinds[0][1] / kinds[0][1:].sum() - kinds[1][1] / kinds[1][1:].sum()
        chance = multinomial.pmf(outcomes, 7, chances.ravel())
        assert chance[lower > truth + 1e-12].sum() <= 0.025  # NaN, where a model accepts nothing, is no miss
        assert chance[upper < truth - 1e-12].sum() <= 0.025


def test_where_one_model_alone_errs_the_end_is_that_of_clopper_and_pearson() -> None:
    for errors, rows in ((0, 100), (3, 100), (12, 1000)):
        difference = proportion_difference(errors, 0, rows)
        assert difference.upper == pytest.approx(upper_bound(errors, rows, 0.025), rel=0.01)
        # on the other side rows that only the old one has right may have been missed
        assert lower_bound(errors, rows, 0.025) - 3.7 / rows < difference.lower < lower_bound(errors, rows, 0.025)
        assert paired_differences(*with_errors(errors, 0, rows))["base_accuracy"] == difference


def test_accuracies_of_all_rows_are_paired_proportions() -> None:
    """Where both accept every row the ratios have one denominator."""
    states = np.array([[0, 0, 0], [0, 80, 9], [0, 4, 7]])
    ratio, proportion = accuracy_difference(states), proportion_difference(9, 4, 100)
    assert (ratio.value, ratio.lower, ratio.upper) == pytest.approx(
        (proportion.value, proportion.lower, proportion.upper)
    )


def test_where_only_one_model_accepts_the_rows_the_ends_meld_those_of_each() -> None:
    """Accuracies of independent rows: quantiles of Beta(R + 1, W) - Beta(R, W + 1), as Fay and others meld them."""
    states = np.array([[500, 60, 12], [150, 0, 0], [9, 0, 0]])
    rng = np.random.default_rng(0)
    upper = np.quantile(rng.beta(151, 9, 200_000) - rng.beta(60, 13, 200_000), 0.975)
    lower = np.quantile(rng.beta(150, 10, 200_000) - rng.beta(61, 12, 200_000), 0.025)
    found = accuracy_difference(states)
    assert (found.lower, found.upper) == pytest.approx((lower, upper), abs=0.03 * (upper - lower))


def test_no_difference_in_the_rows_is_not_none_at_all() -> None:
    new, old = with_errors(0, 0, 200)
    for name, difference in paired_differences(new, old).items():
        assert difference.value == 0
        assert difference.lower == pytest.approx(-difference.upper)
        assert difference.upper >= 0.99 * (1 - 0.025 ** (1 / 200)) * (0.98 if name == "augrc" else 1)


def test_intervals_are_those_of_drawn_weights() -> None:
    """Accuracies of what each accepts and the areas, by brute force; rows have both their results."""
    rng = np.random.default_rng(3)
    hard = rng.random(160)
    models = []
    for shift in (0.0, 0.1):
        losses = np.round(hard + rng.normal(0, 0.1, 160), 1)
        models.append(Results(losses, rng.random(160) < 0.05 + 0.4 * hard + shift, losses < 0.7 - shift))
    found = paired_differences(*models)
    ends: dict[str, list[float]] = {name: [] for name in ("accuracy", "aurc", "e_aurc", "augrc")}
    for raised, q in ((False, 0.025), (True, 0.975)):
        weights = rng.dirichlet(np.ones(161), 8000)
        figures = []
        for model, up in ((models[0], raised), (models[1], not raised)):
            accepted, wrong = np.append(model.accepted, True), np.append(model.wrong, not up)
            accuracy = weights @ (accepted & ~wrong) / (weights @ accepted)
            losses, wrong = np.append(model.losses, model.losses.min()), np.append(model.wrong, up)
            aurc, augrc = weighted_areas(losses, wrong, weights).T
            figures.append(
                [accuracy, aurc, aurc - (weights @ wrong + weights @ ~wrong * np.log(weights @ ~wrong)), augrc]
            )
        for name, new, old in zip(ends, *figures, strict=True):
            ends[name].append(float(np.quantile(new - old, q)))
    for name, (lower, upper) in ends.items():
        assert (found[name].lower, found[name].upper) == pytest.approx((lower, upper), abs=0.06 * (upper - lower)), name


def test_only_errors_leave_the_ideal_order_open() -> None:
    losses, wrong = np.arange(50.0), np.ones(50, bool)
    hopeless = Results(losses, wrong, wrong)
    difference = paired_differences(hopeless, hopeless)["e_aurc"]
    assert (difference.value, difference.lower, difference.upper) == (0, -1.5, 1.5)


@pytest.mark.parametrize("name", ["better", "weaker order", "other rows", "nearly the same", "ties"])
@pytest.mark.parametrize(("rows", "error"), [(200, 0.01), thorough(200, 0.1)])
def test_intervals_cover_the_truth(name: str, rows: int, error: float) -> None:
    """200 trials, each end within three standard errors of 2.5 %: plain resampling covers 71 to 86 % here."""
    for misses in simulate.paired_misses(simulate.pairs(error)[name], rows, 200).values():
        assert misses.allowed()
