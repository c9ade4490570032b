"""The bound of the ratio's error, from the fitted rows, for every alpha."""

from __future__ import annotations

import math

import numpy as np
import pytest
from conftest import Many, thorough
from scipy import stats

from drrej.core.ratio import DensityRatio, _Interval, fit_ratio, fitted_bound

ALPHAS = (-3.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 5.0)


def population(kind: str) -> np.ndarray:
    """1000 equally likely losses: the whole distribution."""
    rng = np.random.default_rng(7)
    if kind == "sure":  # most losses near 0, as of a good network with ten classes
        return np.minimum(rng.gamma(0.3, 0.5, 1000), math.log(10))
    return rng.uniform(0.0, math.log(10), 1000)


def ratio_at(alpha: float, lam: float, shift: float, losses: np.ndarray) -> np.ndarray:
    """exp_c(k - L'/lambda) as it is written down."""
    c, w = (alpha - 1) / 2, shift - losses / lam
    if c == 0:
        return np.exp(w)
    with np.errstate(divide="ignore"):
        return np.maximum(1 + c * w, 0.0) ** (1 / c)


def normaliser(alpha: float, lam: float, losses: np.ndarray) -> float:
    """The k for which the mean ratio is 1, by plain bisection."""
    c = (alpha - 1) / 2
    low = -200.0
    high = losses.min() / lam + (-1 / c if c < 0 else 50.0)
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if ratio_at(alpha, lam, middle, losses).mean() < 1 else (low, middle)
    return low


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kind", ["sure", "spread"])
@pytest.mark.parametrize("rows", [150, thorough(1000)])
def test_it_holds_at_every_loss_and_says_something(alpha: float, kind: str, rows: int, many: Many) -> None:
    everything, delta, trials = population(kind), 0.2, many(60)
    truth = normaliser(alpha, 1.0, everything)
    grid = np.linspace(0.0, math.log(10), 400)
    rng = np.random.default_rng([rows, int(alpha * 2) + 50])
    broken, errors, values = 0, [], []
    for trial in range(trials):
        losses = rng.choice(everything, rows)
        value, lower, upper = fitted_bound(losses, fit_ratio(losses, alpha), delta, None if trial % 2 else math.log(10))
        here = normaliser(alpha, 1.0, losses)
        flats = np.array([1 / ((alpha - 1) / 2) + k for k in (truth, here)]) if alpha > 1 else np.empty(0)
        at = np.append(grid, flats[(flats >= 0) & (flats <= math.log(10))])
        with np.errstate(invalid="ignore"):
            apart = np.abs(ratio_at(alpha, 1.0, truth, at) - ratio_at(alpha, 1.0, here, at)).max()
        smallest = ratio_at(alpha, 1.0, truth, losses.min(keepdims=True))[0]
        inside = lower <= math.log(smallest) <= upper
        if value is not None:
            values.append(value)
            errors.append(apart)
            inside &= apart <= value * (1 + 1e-9)
        broken += not inside
    assert broken <= stats.binom.ppf(0.999, trials, delta)
    if alpha == -3.0 and kind == "spread":  # the ratio of a loss of 0 is infinite
        assert not values
    elif alpha >= 0 or rows == 1000:
        assert len(values) == trials
        assert np.median(values) < (5.5 if trials == 60 else 8) * np.quantile(errors, 1 - delta)


def test_the_interval_holds_as_often_as_promised_where_the_tests_are_sharpest() -> None:
    """Two losses, one look at the ends themselves: k* is inside in all but delta of the trials."""
    everything = np.repeat([0.0, 2.0], [900, 100])
    truth = normaliser(1.0, 1.0, everything)
    rng = np.random.default_rng(3)
    outside, trials = 0, 400
    for _ in range(trials):
        losses = rng.choice(everything, 300)
        _, lower, upper = fitted_bound(losses, fit_ratio(losses), 0.5)
        outside += not lower - losses.min() <= truth - losses.min() <= upper
    assert outside <= stats.binom.ppf(0.999, trials, 0.5)
    assert outside > 0  # it is not all that wide


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("largest", [None, 2.5])
def test_the_sums_bound_the_capital_of_the_bets_from_below(alpha: float, side: int, largest: float | None) -> None:
    """Where the test rejects by its sums, the mean of the products itself, by the definition, is as large."""
    losses = np.sort(population("sure")[:300])
    fit = fit_ratio(losses, alpha)
    interval = _Interval(losses, fit, 0.1, largest)
    end = interval.end(side)
    assert math.isfinite(end)
    shift = normaliser(alpha, 1.0, losses)
    for factor in (1.0, 1.3, 2.0):
        g = fit.log_max_ratio + factor * (end - fit.log_max_ratio)
        if not interval.rejects(g, side):
            continue
        c = (alpha - 1) / 2
        moved = shift + (g - fit.log_max_ratio if c == 0 else (math.exp(c * g) - math.exp(c * fit.log_max_ratio)) / c)
        x = ratio_at(alpha, 1.0, moved, losses)
        low = 0.0 if largest is None else ratio_at(alpha, 1.0, moved, np.array([largest]))[0]
        high = ratio_at(alpha, 1.0, moved, np.array([0.0]))[0]
        allowed = [m for m in interval.bets if m * (1 - low if side > 0 else high - 1) < 1]
        capital = sum(np.prod(1 + side * m * (x - 1)) for m in allowed) / interval.bets.size
        assert capital >= 2 / 0.1 * (1 - 1e-6)
    assert interval.rejects(end, side)


def theorem(alpha: float, lam: float, rows: int) -> float:
    """Theorems 4.3 and 4.9 of the paper for ten classes, as many points as rows and confidence 0.95."""
    scaled = math.log(10) / lam
    factor = math.exp(3 * scaled) * math.sinh(scaled) if alpha == 1.0 else scaled
    return factor * math.sqrt(2 / rows * math.log(2 * rows / 0.05))


def test_where_the_theorem_says_nothing() -> None:
    """KL, ten classes, lambda 1: Theorem 4.3 says 721, 251 and 86, as docs/theory.md has it."""
    rng = np.random.default_rng(5)
    for rows, worst, most in ((1000, 721, 0.05), (10_000, 251, 0.012), (100_000, 86, 0.004)):
        losses = np.minimum(rng.gamma(0.3, 0.5, rows), math.log(10))
        fit = fit_ratio(losses)
        found = fitted_bound(losses, fit, 0.05, math.log(10))[0]
        assert theorem(1.0, 1.0, rows) == pytest.approx(worst, rel=0.01)
        assert found is not None
        assert found < most
        assert abs(fit.log_max_ratio) > 0.01  # the ratio is not 1 everywhere


def test_it_shrinks_with_the_rows_and_with_lambda() -> None:
    losses = population("spread")
    values = [fitted_bound(np.tile(losses, n), fit_ratio(losses))[0] for n in (1, 4, 16)]
    assert values[0] / values[1] == pytest.approx(2.0, rel=0.25)
    assert values[1] / values[2] == pytest.approx(2.0, rel=0.15)
    for lam in (5.0, 100.0, 1e4):  # Theorem 4.9 holds here; the bound is smaller
        fit = fit_ratio(losses, 3.0, lam)
        assert fitted_bound(losses, fit, 0.05, math.log(10))[0] < 0.5 * theorem(3.0, lam, 1000)


def test_shuffled_rows_give_the_same_bits() -> None:
    losses = population("sure")
    fit = fit_ratio(losses, 2.0)
    assert fitted_bound(losses, fit) == fitted_bound(losses[::-1].copy(), fit)


def test_equal_losses_few_rows_and_ratios_without_a_bound() -> None:
    equal = np.full(500, 0.4)
    value, _, _ = fitted_bound(equal, fit_ratio(equal), 0.05, 1.0)
    assert value is not None
    assert value < 0.1
    few, _, _ = fitted_bound(np.array([0.1, 0.5, 1.0]), fit_ratio(np.array([0.1, 0.5, 1.0])))
    assert few is None or few > 0.5
    hard = population("spread") + 5.0  # for alpha = -3 the ratio of a loss of 0 is infinite
    assert fitted_bound(hard, fit_ratio(hard, -3.0))[0] is None


def test_c_above_1_is_worst_where_the_ratio_becomes_0() -> None:
    losses = population("sure")
    fit = fit_ratio(losses, 5.0)
    value, lower, upper = fitted_bound(losses, fit, 0.05)
    other = DensityRatio(5.0, 1.0, lower, fit.min_loss)
    grid = np.linspace(0, 3, 200_001)
    largest = max(
        np.abs(fit.ratio(grid) - DensityRatio(5.0, 1.0, g, fit.min_loss).ratio(grid)).max() for g in (lower, upper)
    )
    assert value == pytest.approx(largest, rel=1e-2)
    assert value >= largest
    assert other.flat_start < fit.flat_start
