"""The p-value of the mean ratio: against Student's t, permutations, and the share of false alarms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import simulate_intervals as simulate
from conftest import Many
from scipy.stats import ks_2samp, pearson3, skew, ttest_ind

from drrej.core.curves import Curve
from drrej.core.drift import RatioMoments, loss_shift, outside_areas, ratio_moments, ratio_shift


def moments(ratio: np.ndarray) -> RatioMoments:
    return ratio_moments([np.log(ratio)], ratio.size)


def normalised(rng: np.random.Generator, shape: float, rows: int) -> np.ndarray:
    values = rng.gamma(shape, 1.0, rows)
    return values / values.mean()


def test_moments_are_central() -> None:
    ratio = np.random.default_rng(0).gamma(0.5, 2.0, 500)
    found = moments(ratio)
    assert (found.rows, found.mean) == (500, pytest.approx(ratio.mean()))
    assert found.variance == pytest.approx(ratio.var())
    assert found.third == pytest.approx(skew(ratio) * ratio.std() ** 3)


def test_a_ratio_very_near_to_1_keeps_its_variance() -> None:
    apart = 1e-9 * np.random.default_rng(1).normal(0, 1, 400)
    found = ratio_moments([np.log1p(apart)], 400)
    assert found.variance == pytest.approx(apart.var(), rel=1e-12)
    assert found.third == pytest.approx(skew(apart) * apart.std() ** 3, rel=1e-9)
    fit = 1 + 1e-9 * np.random.default_rng(2).normal(0, 1, 400)
    p_value = ratio_shift(found, moments(fit))["p_value"]
    assert p_value is not None
    assert p_value > 0.01


def test_rows_come_in_parts_and_sums_may_be_infinite() -> None:
    log_ratio = np.log(np.random.default_rng(3).gamma(0.5, 2.0, 500))
    found = ratio_moments([log_ratio[:7], log_ratio[7:]], 500)
    assert found.mean == pytest.approx(np.exp(log_ratio).mean())
    assert found.variance == pytest.approx(np.exp(log_ratio).var())
    assert ratio_moments([np.array([0.0, math.inf])], 2) == RatioMoments(2, None, None)
    only_the_mean = ratio_moments([np.array([0.0, 400.0])], 2)
    assert only_the_mean.mean == pytest.approx(math.exp(400) / 2)
    assert only_the_mean.variance is None
    without_third = ratio_moments([np.array([0.0, 300.0])], 2)
    assert without_third.variance is not None
    assert without_third.third is None


def test_without_third_moments_the_test_is_students() -> None:
    rng = np.random.default_rng(4)
    fit, new = normalised(rng, 2.0, 30), rng.gamma(2.0, 0.6, 80)
    expected = ttest_ind(new, fit)
    found = ratio_shift(RatioMoments(80, new.mean(), new.var()), RatioMoments(30, 1.0, fit.var()))
    assert found["mean"] == pytest.approx(new.mean())
    assert found["std_error"] == pytest.approx((new.mean() - 1) / expected.statistic)
    assert found["p_value"] == pytest.approx(expected.pvalue)


@pytest.mark.parametrize(("fit_rows", "new_rows"), [(40, 400), (300, 25)])
@pytest.mark.parametrize("shift", [0.75, 1.3])
def test_the_p_value_is_near_that_of_permutations(fit_rows: int, new_rows: int, shift: float) -> None:
    """Twice the smaller tail of the difference of means, over random splits of the same rows."""
    rng = np.random.default_rng(6)
    fit = normalised(rng, 0.5, fit_rows)
    new = rng.gamma(0.5, 2.0 * shift, new_rows)
    every = np.concatenate([fit, new])
    splits = rng.permuted(np.tile(every, (20_000, 1)), axis=1)
    differences = splits[:, :new_rows].mean(axis=1) - splits[:, new_rows:].mean(axis=1)
    observed = new.mean() - 1
    expected = 2 * min(np.mean(differences <= observed), np.mean(differences >= observed))
    found = ratio_shift(moments(new), moments(fit))["p_value"]
    assert found == pytest.approx(expected, rel=0.3, abs=0.004)


def test_few_rows_cannot_be_sure() -> None:
    """One new row among 30 equal ones is the odd one out in 1 of 31 orders."""
    fit = RatioMoments(30, 1.0, 0.0, 0.0)
    assert ratio_shift(RatioMoments(1, 0.5, 0.0, 0.0), fit)["p_value"] == pytest.approx(1 / 31)
    assert ratio_shift(RatioMoments(1, 1.0, 0.0, 0.0), fit)["p_value"] == 1
    assert ratio_shift(RatioMoments(1, 7.0, 0.0, 0.0), RatioMoments(1, 1.0, 0.0, 0.0))["p_value"] == pytest.approx(0.5)
    sure = ratio_shift(RatioMoments(10**7, 1.2, 0.1, 0.0), RatioMoments(10**7, 1.0, 0.1, 0.0))["p_value"]
    assert sure == 0


def test_without_finite_moments_there_is_no_p_value() -> None:
    fit = RatioMoments(10, 1.0, 0.3)
    for mean in (None, 1e170):
        found = ratio_shift(RatioMoments(10, mean, None), fit)
        assert found == {"mean": mean, "std_error": None, "p_value": None}
    assert ratio_shift(fit, RatioMoments(10, 1.0, None)) == {"mean": 1.0, "std_error": None, "p_value": None}


@pytest.mark.parametrize("losses", ["gamma", "lognormal", "1 % hard"])
def test_no_more_false_alarms_than_the_level_says(losses: str, many: Many) -> None:
    """200 fitted and 5000 new rows, within three standard errors; with 1 % hard rows it was 23 %."""
    trials = many(300)
    for alpha_lambda in ((1.0, 1.0), (3.0, 0.1)):
        p = simulate.drift_p_values(simulate.LOSSES[losses], alpha_lambda, (200, 5000), trials)
        for level in (0.05, 0.01):
            allowed = trials * level + 3 * math.sqrt(trials * level * (1 - level))
            assert (p <= level).sum() <= allowed


@pytest.mark.parametrize("moved", [-0.4, -0.05, 0.0, 0.05, 0.4])
@pytest.mark.parametrize("decimals", [1, 12])
def test_the_distance_is_that_of_scipy_where_every_fitted_loss_is_known(moved: float, decimals: int) -> None:
    rng = np.random.default_rng(5)
    fitted = np.sort(rng.gamma(2.0, 0.2, 60).round(decimals))
    new = np.maximum(rng.gamma(2.0, 0.2, 85) + moved, 0.0).round(decimals)
    found = loss_shift(Curve.of(new, new[:0]), fitted.tolist(), fitted.size)
    assert found["distance"] == pytest.approx(ks_2samp(fitted, new).statistic, abs=1e-12)


@pytest.mark.parametrize(("new_rows", "fit_rows"), [(4000, 900_000), (900_000, 4000)])
@pytest.mark.parametrize("mean", [0.93, 1.08])
def test_the_difference_of_skewed_means_is_skewed(new_rows: int, fit_rows: int, mean: float) -> None:
    """Third moments of means are those of the rows over the squares of their numbers; that of the fit is subtracted."""
    variance, third = 4.0, 90.0
    new, fit = (RatioMoments(rows, at, variance, third) for rows, at in ((new_rows, mean), (fit_rows, 1.0)))
    variance_of_means = variance / new_rows + variance / fit_rows
    skewness = (third / new_rows**2 - third / fit_rows**2) / variance_of_means**1.5
    z = (mean - 1.0) / math.sqrt(variance_of_means)
    expected = 2.0 * min(pearson3.cdf(z, skewness), pearson3.sf(z, skewness))
    assert ratio_shift(new, fit)["p_value"] == pytest.approx(expected, rel=0.01)
    symmetric = ratio_shift(RatioMoments(new_rows, mean, variance, 0.0), RatioMoments(fit_rows, 1.0, variance, 0.0))
    assert symmetric["p_value"] != pytest.approx(expected, rel=0.1)


def test_areas_with_rows_outside_weigh_them() -> None:
    ranked, outside = Curve.of(np.array([0.1, 0.2]), np.array([0.3])), np.array([0.4, 0.15])
    once, thrice = (outside_areas(ranked, outside, ratio) for ratio in (1.0, 3.0))
    none = outside_areas(ranked, outside, 0.0)
    for name in ("aurc", "augrc"):
        assert thrice[name] - none[name] == pytest.approx(3.0 * (once[name] - none[name]))
        assert once[name] > none[name]
