"""Intervals of areas and of differences between models: against drawn weights, every outcome, and known truth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import simulate_intervals as simulate
from conftest import Many, fail, make_model, more_trials, source, succeed, thorough, write_dump
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import multinomial
from test_curves import every_outcome

import drrej
from drrej.core.curves import Curve
from drrej.core.intervals import lower_bound, skewed_quantile, skewed_tails, upper_bound
from drrej.core.losses import expected_losses
from drrej.core.paired import (
    FIGURES,
    Results,
    Spread,
    accuracy_difference,
    area_intervals,
    influences,
    order_difference,
    paired_differences,
    proportion_difference,
    with_row,
)

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


@pytest.mark.parametrize("rows", [5, thorough(7)])
def test_the_ends_of_accuracies_of_what_each_accepts_miss_with_the_chance_that_was_promised(rows: int) -> None:
    """Every outcome of a few rows over the nine kinds, for 100 worlds of all sorts."""
    outcomes = every_outcome(rows, 9)
    found = [accuracy_difference(counts.reshape(3, 3)) for counts in outcomes]
    lower, upper = (np.array([getattr(row, end) for row in found], np.float64) for end in ("lower", "upper"))
    rng = np.random.default_rng(0)
    for sameness in np.repeat([0.2, 0.5, 1.0, 3.0], 25):
        chances = rng.dirichlet(np.full(9, sameness)).reshape(3, 3)
        kinds = chances.sum(axis=1), chances.sum(axis=0)
        truth = kinds[0][1] / kinds[0][1:].sum() - kinds[1][1] / kinds[1][1:].sum()
        chance = multinomial.pmf(outcomes, rows, chances.ravel())
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
@pytest.mark.parametrize(("error", "trials"), [(0.01, 40), more_trials(0.01, 200), thorough(0.1, 40)])
def test_intervals_cover_the_truth(name: str, error: float, trials: int) -> None:
    """200 rows, each end within three standard errors of 2.5 %: plain resampling covers 71 to 86 % here."""
    for misses in simulate.paired_misses(simulate.pairs(error)[name], 200, trials).values():
        assert misses.allowed()


CURVE_ROWS = st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=40)
AREAS = ("aurc", "e_aurc", "augrc")


def curve_of(rows: list[tuple[int, bool]]) -> Curve:
    losses, wrong = np.array([float(loss) for loss, _ in rows]), np.array([wrong for _, wrong in rows])
    return Curve.of(losses[~wrong], losses[wrong])


def weighted_areas(losses: np.ndarray, wrong: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(AURC, AUGRC) of rows that count by their weights; a line of weights each, and a line of areas."""
    order = np.argsort(losses)
    ends = np.flatnonzero(np.append(np.diff(losses[order]) > 0, True))
    share = weights[:, order] / weights.sum(axis=1, keepdims=True)
    coverage = np.cumsum(share, axis=1)[:, ends]
    errors = np.cumsum(share * wrong[order], axis=1)[:, ends]
    risk = errors / coverage
    coverage, errors = (np.pad(values, ((0, 0), (1, 0))) for values in (coverage, errors))
    aurc = np.trapezoid(np.hstack([risk[:, :1], risk]), coverage)
    return np.stack([aurc, np.trapezoid(errors, coverage)], axis=1)


# The distribution


@pytest.mark.parametrize("skewness", [-3.0, -0.4, -1e-3, 0.0, 1e-6, 0.02, 1.0, 2.0, 3.0])
def test_the_standardised_gamma_is_pearsons_third_type(skewness: float) -> None:
    known = stats.pearson3(skewness)
    for q in (0.001, 0.025, 0.5, 0.975, 0.999):
        z = skewed_quantile(skewness, q)
        assert z == pytest.approx(known.ppf(q), rel=1e-6, abs=1e-5)
        assert skewed_tails(skewness, z) == pytest.approx((q, 1 - q), rel=1e-4)
    for z in (-5.0, -0.1, 0.0, 0.3, 8.0):
        assert skewed_tails(skewness, z) == pytest.approx((known.cdf(z), known.sf(z)), rel=1e-5, abs=1e-12)


def test_the_moments_are_those_of_weights_uniform_on_the_simplex() -> None:
    rng = np.random.default_rng(0)
    influence = rng.gamma(0.5, 1.0, 30)
    influence -= influence.mean()
    spread = Spread.of(5.0, np.array([np.sum(influence**2), np.sum(influence**3)]), 30)
    drawn = 5.0 + rng.dirichlet(np.ones(30), 400_000) @ influence
    assert spread.mean == 5.0
    assert spread.variance == pytest.approx(drawn.var(), rel=0.02)
    assert spread.third == pytest.approx(np.mean((drawn - 5.0) ** 3), rel=0.05)


@pytest.mark.parametrize(
    ("errors", "rows"), [(0, 20), (0, 5000), (1, 50), (7, 100), (50, 100), (3, 10_000), (400, 500)]
)
def test_for_a_proportion_the_ends_are_those_of_clopper_and_pearson(errors: int, rows: int) -> None:
    def end(ones: int, q: float) -> float:
        mean = ones / (rows + 1)
        zeros = rows + 1 - ones
        powers = np.array([ones * (1 - mean) ** k + zeros * (-mean) ** k for k in (2, 3)])
        return Spread.of(mean, powers, rows + 1).quantile(q)

    width = upper_bound(errors, rows, 0.025) - lower_bound(errors, rows, 0.025)
    assert end(errors + 1, 0.975) == pytest.approx(upper_bound(errors, rows, 0.025), abs=0.012 * width)
    assert end(errors, 0.025) == pytest.approx(lower_bound(errors, rows, 0.025), abs=0.012 * width)


# Influences


@given(CURVE_ROWS)
def test_influences_are_derivatives_in_the_weights(rows: list[tuple[int, bool]]) -> None:
    losses, wrong = np.array([float(loss) for loss, _ in rows]), np.array([wrong for _, wrong in rows])
    found = influences(curve_of(rows))
    step, n = 1e-5, losses.size
    more, less = (weighted_areas(losses, wrong, 1.0 + sign * step * np.eye(n)) for sign in (1, -1))
    for row, slope in enumerate(n * (more - less) / (2 * step)):
        place, kind = np.unique(losses).tolist().index(losses[row]), int(wrong[row])
        areas = found["aurc"][kind][place], found["augrc"][kind][place]
        np.testing.assert_allclose(areas, slope, rtol=1e-6, atol=1e-7)
    for of_right, of_wrong in found.values():
        place = np.searchsorted(np.unique(losses), losses)
        assert np.where(wrong, of_wrong[place], of_right[place]).sum() == pytest.approx(0, abs=1e-9)


# Intervals


def drawn_ends(losses: np.ndarray, wrong: np.ndarray, draws: int = 4000) -> dict[str, tuple[float, float]]:
    """The 2.5 % and 97.5 % quantiles over drawn weights, with one row more that ties with the smallest loss."""
    rng = np.random.default_rng(7)
    ends = []
    for extreme, q in ((False, 0.025), (True, 0.975)):
        all_losses, all_wrong = np.append(losses, losses.min()), np.append(wrong, extreme)
        weights = rng.dirichlet(np.ones(all_losses.size), draws)
        aurc, augrc = weighted_areas(all_losses, all_wrong, weights).T
        right = 1 - weights[:, all_wrong].sum(axis=1)
        above = aurc - (1 - right + right * np.log(right))
        ends.append([np.quantile(values, q) for values in (aurc, above, augrc)])
    return dict(zip(("aurc", "e_aurc", "augrc"), zip(*ends, strict=True), strict=True))


@pytest.mark.parametrize(("levels", "rate"), [(4, 0.1), (12, 0.3), (40, 0.5)])
def test_intervals_of_areas_are_those_of_drawn_weights(levels: int, rate: float) -> None:
    rng = np.random.default_rng(levels)
    losses = rng.integers(0, levels, 150).astype(np.float64)
    wrong = rng.random(150) < rate * (0.3 + losses / levels)
    found = area_intervals(Curve.of(losses[~wrong], losses[wrong]))
    for name, (lower, upper) in drawn_ends(losses, wrong).items():
        near = 0.1 if name == "e_aurc" else 0.08  # its ideal is not linear in the error rate
        assert found[name] == pytest.approx((lower, upper), abs=near * (upper - lower)), name


def test_no_error_says_how_many_may_have_been_missed() -> None:
    """A share p of errors is missed with chance (1 - p)^n; if confident, AUGRC = p - p^2/2 and AURC = p - p ln p."""
    for rows in (50, 1000, 20_000):
        intervals = area_intervals(Curve.of(np.arange(float(rows)), np.empty(0)))
        missed = 1 - 0.025 ** (1 / rows)
        assert intervals["augrc"] == (0, pytest.approx(missed - missed**2 / 2, rel=0.01))
        assert intervals["aurc"] == (0, pytest.approx(missed - missed * np.log(missed), rel=0.12))


def test_only_errors() -> None:
    intervals = area_intervals(Curve.of(np.empty(0), np.arange(100.0)))
    missed = 1 - 0.025 ** (1 / 100)
    assert intervals["augrc"] == (pytest.approx((1 - missed) ** 2 / 2, rel=0.02), 0.5)
    assert intervals["aurc"][1] == 1
    assert 0 < intervals["aurc"][0] < 1 - missed
    assert intervals["e_aurc"] == (-0.5, 1)


@given(CURVE_ROWS, st.randoms(use_true_random=False))
def test_an_interval_holds_its_figure_and_knows_no_order_of_rows(rows: list[tuple[int, bool]], random: object) -> None:
    points = curve_of(rows)
    intervals = area_intervals(points)
    for name in AREAS:
        area: Callable[[Curve], float] = getattr(Curve, name)
        assert intervals[name][0] <= area(points) <= intervals[name][1]
        assert -0.5 <= intervals[name][0] < intervals[name][1] <= 1
    random.shuffle(rows)  # type: ignore[attr-defined]
    assert area_intervals(curve_of(rows)) == intervals


def test_a_confident_row_joins_the_first_tie_block() -> None:
    points = curve_of([(2, False), (2, True), (5, False)])
    more = with_row(points, wrong=True)
    assert (more.accepted.tolist(), more.errors.tolist(), more.losses.tolist()) == ([3, 4], [2, 2], [2, 5])


@pytest.mark.parametrize("name", ["informative", "weak", "flat", "confidently wrong", "ties"])
@pytest.mark.parametrize(("error", "trials"), [(0.01, 40), (0.2, 40), more_trials(0.01, 250), more_trials(0.2, 250)])
def test_intervals_of_areas_cover_the_truth(name: str, error: float, trials: int) -> None:
    """100 rows, each end within three standard errors of 2.5 %: plain resampling misses 43 % at 1 % errors."""
    for misses in simulate.area_misses(simulate.worlds(error)[name], 100, trials).values():
        assert misses.allowed()


def draw(rows: int, seed: int, noise: float) -> tuple[np.ndarray, np.ndarray, int]:
    """(losses, scores, right rows): both are the difficulty with as much noise, the score's times `noise`."""
    rng = np.random.default_rng(seed)
    x = rng.random(rows)
    wrong = np.sort(rng.random(rows) < 0.4 * x**2)
    x = np.where(wrong, rng.beta(4, 1, rows), rng.beta(1, 1.2, rows))
    return x + 0.3 * rng.normal(size=rows), x + noise * 0.3 * rng.normal(size=rows), int(np.count_nonzero(~wrong))


def test_the_value_is_the_difference_of_two_areas() -> None:
    losses, scores, right = draw(500, 1, 1.0)
    found = order_difference(losses, scores, right)
    mine, yours = (Curve.of(values[:right], values[right:]).augrc() for values in (losses, scores))
    assert found.value == pytest.approx(yours - mine, rel=1e-9)
    rng = np.random.default_rng(0)
    order = np.concatenate([rng.permutation(right), right + rng.permutation(500 - right)])
    again = order_difference(losses[order], scores[order], right)
    assert (again.lower, again.upper) == pytest.approx((found.lower, found.upper), rel=1e-12)
    assert order_difference(losses, scores, right, 5).lower < found.lower


def test_the_interval_is_as_wide_as_resampled_rows_say() -> None:
    losses, scores, right = draw(800, 2, 1.0)
    wrong = np.arange(800) >= right
    rng = np.random.default_rng(3)
    values = []
    for _ in range(400):
        rows = rng.integers(0, 800, 800)
        bad = wrong[rows]
        areas = [Curve.of(v[rows][~bad], v[rows][bad]).augrc() for v in (losses, scores)]
        values.append(areas[1] - areas[0])
    found = order_difference(losses, scores, right)
    assert (found.upper - found.lower) / (2 * 1.96) == pytest.approx(np.std(values), rel=0.15)


def test_scores_that_are_as_good_seldom_look_better(many: Many) -> None:
    trials = many(400)
    found = [order_difference(*draw(300, seed, 1.0)) for seed in range(trials)]
    better = sum(difference.upper < 0 for difference in found)
    assert better <= stats.binom.ppf(0.9995, trials, 0.03)
    assert sum(order_difference(*draw(300, seed, 0.3)).upper < 0 for seed in range(50)) > 30


def test_the_report_says_which_score_orders_better(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    logits, labels = make_model(3000, 4, seed=6)
    wrong = logits.argmax(axis=1) != labels
    knows = np.where(wrong, rng.normal(1.0, 0.5, 3000), rng.normal(0.0, 0.5, 3000))
    path = write_dump(tmp_path / "d.parquet", logits, labels, extra={"knows": knows, "noise": rng.random(3000)})
    rejector = drrej.fit(source(path), drrej.calibrate(source(path)), drrej.RatioOptions(loss="zero-one"))
    (tmp_path / "r.json").write_text(drrej.threshold(source(path), rejector, drrej.Rule("coverage", 0.8)).to_json())
    words = [
        "evaluate",
        path,
        "-r",
        tmp_path / "r.json",
        "--rival",
        "knows",
        "--rival",
        "noise",
        "--rival-order",
        "low",
        "--verbose",
    ]
    text = succeed(*words).decode()
    assert "significantly better than the loss at ordering these rows: knows)" in text
    report = drrej.Report.from_json(succeed(*words, "--format", "json").decode())
    assert report.scores is not None
    by_name = {row.score: row for row in report.scores}
    assert [name for name, row in by_name.items() if row.is_better] == ["knows"]
    assert by_name["loss"].augrc_difference is None
    difference = by_name["noise"].augrc_difference
    assert difference is not None
    assert difference.value == pytest.approx(
        (by_name["noise"].augrc.value or 0) - (by_name["loss"].augrc.value or 0), rel=1e-9
    )
    same = succeed("evaluate", path, "-r", tmp_path / "r.json", "--rival", "noise", "--verbose").decode()
    assert "significantly better" not in same


def test_by_label_is_the_true_class_wherever_it_is_kept(tmp_path: Path) -> None:
    logits, labels = make_model(600, 3, seed=8)
    names = np.array(["cat", "dog", "eel"])
    path = write_dump(tmp_path / "d.parquet", logits, labels)
    rejector = drrej.fit(source(path), drrej.calibrate(source(path)), drrej.RatioOptions(loss="log"))
    rejector = drrej.threshold(source(path), rejector, drrej.Rule("coverage", 0.7))
    (tmp_path / "r.json").write_text(rejector.to_json())
    expected = drrej.evaluate(source(path), rejector, options=drrej.EvaluateOptions(by="label"))
    assert expected.per_group is not None
    mask = rejector.need_threshold().accepts(expected_losses(logits, "log", rejector.need_calibration().temperature))
    for number, row in enumerate(expected.per_group):
        inside = labels == number
        assert (row.group, row.rows) == (str(number), inside.sum())
        assert row.accuracy.errors == np.count_nonzero(mask & inside & (logits.argmax(axis=1) != labels))
    bare = write_dump(tmp_path / "bare.parquet", logits, extra={"truth": labels})
    pq.write_table(pa.table({"id": np.arange(600), "label": labels}), tmp_path / "truth.parquet")
    for options in ({"label": "truth"}, {"labels_from": str(tmp_path / "truth.parquet"), "join_on": "id"}):
        found = drrej.evaluate(source(bare, **options), rejector, options=drrej.EvaluateOptions(by="label"))
        assert found.per_group == expected.per_group
    named = write_dump(tmp_path / "named.parquet", logits, extra={"truth": names[labels]})
    found = drrej.evaluate(
        source(named, label="truth", classes=tuple(names)), rejector, options=drrej.EvaluateOptions(by="label")
    )
    assert [row.rows for row in found.per_group or ()] == [row.rows for row in expected.per_group]
    both = write_dump(tmp_path / "both.parquet", logits, labels[::-1].copy(), extra={"truth": labels})
    words = ["evaluate", both, "-r", tmp_path / "r.json", "--report-by", "label", "--label", "truth"]
    assert "--report-by label may be the true class or the column of that name" in fail(*words)
    words = ["threshold", path, "-r", tmp_path / "r.json", "--coverage", "0.7", "--cutoff-by", "label"]
    assert "a new row has no label, so no cutoff can depend on it; use 'prediction'" in fail(*words)


def test_a_better_order_is_seen_and_an_equal_one_is_not_called_better() -> None:
    """The intervals allow for unseen errors and are wide; a sign is ruled out by the rows that are there."""
    rng = np.random.default_rng(0)

    def signs(noise: float, trials: int) -> dict[str, list[bool]]:
        found: dict[str, list[bool]] = {"aurc": [], "augrc": []}
        for _ in range(trials):
            hard, all_ = rng.normal(size=600), np.ones(600, bool)
            wrong = rng.random(600) < 1 / (1 + np.exp(3.0 - 1.5 * hard))
            new, old = (Results(hard + scale * rng.normal(size=600), wrong, all_) for scale in (noise, 1.5))
            for name, difference in paired_differences(new, old).items():
                if name in found:
                    found[name].append(difference.upper <= 0 or difference.lower >= 0)
        return found

    for name, seen in signs(0.2, 40).items():
        assert np.mean(seen) > 0.6, name
    for name, seen in signs(1.5, 150).items():
        assert np.mean(seen) < 0.1, name
