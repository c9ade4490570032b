"""Intervals of the areas: against drawn weights, against Clopper-Pearson, and against known truth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import simulate_intervals as simulate
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from drrej.core.curves import Curve
from drrej.core.intervals import lower_bound, skewed_quantile, skewed_tails, upper_bound
from drrej.core.paired import Spread, area_intervals, influences, with_row

ROWS = st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=40)
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
    spread = Spread.of(5.0, float(np.sum(influence**2)), float(np.sum(influence**3)), 30)
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
        squares, cubes = (ones * (1 - mean) ** k + zeros * (-mean) ** k for k in (2, 3))
        return Spread.of(mean, squares, cubes, rows + 1).quantile(q)

    width = upper_bound(errors, rows, 0.025) - lower_bound(errors, rows, 0.025)
    assert end(errors + 1, 0.975) == pytest.approx(upper_bound(errors, rows, 0.025), abs=0.012 * width)
    assert end(errors, 0.025) == pytest.approx(lower_bound(errors, rows, 0.025), abs=0.012 * width)


# Influences


@given(ROWS)
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
def test_intervals_are_those_of_drawn_weights(levels: int, rate: float) -> None:
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


@given(ROWS, st.randoms(use_true_random=False))
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
@pytest.mark.parametrize(("rows", "error"), [(100, 0.01), (100, 0.2)])
def test_intervals_cover_the_truth(name: str, rows: int, error: float) -> None:
    """250 trials, each end within three standard errors of 2.5 %: plain resampling misses 43 % at 1 % errors."""
    for misses in simulate.area_misses(simulate.worlds(error)[name], rows, 250).values():
        assert misses.allowed()
