"""The density ratio against mpmath and the printed formulas; worst-case weights against a convex solver."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from conftest import thorough
from hypothesis import given
from hypothesis import strategies as st

from drrej.core.ratio import DensityRatio, fit_ratio

ALPHAS = [1, 1 + 1e-7, 1 - 1e-7, 1.5, 2, 3, 5, 11, 0, -1, -3, -21]
LAMBDAS = [1e-6, 1e-4, 0.1, 1, 1e6]
RNG = np.random.default_rng(1)
LOSSES = {
    "ordinary": RNG.gamma(0.3, 0.5, 16),
    "sure": RNG.gamma(0.3, 1e-4, 16),
    "ties": RNG.integers(0, 4, 16) / 4.0,
    "every size": 10.0 ** RNG.uniform(-30, 0, 16),
}

alphas = st.sampled_from(ALPHAS) | st.floats(-25, 12)
lambdas = st.sampled_from(LAMBDAS) | st.floats(-3, 3).map(lambda x: 10.0**x)
loss_lists = st.lists(st.floats(0, 5) | st.floats(-30, 0).map(lambda x: 10.0**x), min_size=1, max_size=50)


@pytest.mark.parametrize(
    ("alpha", "lam"),
    [
        (alpha, lam) if (i + j) % 4 == 0 else thorough(alpha, lam)
        for i, alpha in enumerate(ALPHAS)
        for j, lam in enumerate(LAMBDAS)
        if (i + j) % 2 == 0
    ],
)
def test_the_ratio_agrees_with_mpmath(alpha: float, lam: float) -> None:
    for losses in LOSSES.values():
        fitted = fit_ratio(losses, alpha, lam)
        g, exact = reference.mp_ratio(losses.tolist(), alpha, lam)
        assert fitted.log_max_ratio == pytest.approx(g, rel=1e-9)
        np.testing.assert_allclose(fitted.ratio(losses), exact, rtol=1e-9, atol=1e-290)
        assert (fitted.min_loss, fitted.alpha, fitted.lam) == (losses.min(), alpha, lam)


@pytest.mark.parametrize("lam", [0.05, 0.1, 1, 10])
def test_the_ratio_agrees_with_the_printed_formulas(lam: float) -> None:
    losses = np.random.default_rng(2).gamma(0.4, 0.5, 3000)
    kl = np.exp(-losses / lam)
    np.testing.assert_allclose(fit_ratio(losses, 1, lam).ratio(losses), kl / kl.mean(), rtol=1e-9)
    np.testing.assert_allclose(
        fit_ratio(losses, 3, lam).ratio(losses), reference.printed_chi2(losses, lam), rtol=1e-9, atol=1e-12
    )
    for alpha in (1.5, 2, 5, 11):
        np.testing.assert_allclose(
            fit_ratio(losses, alpha, lam).ratio(losses),
            reference.printed_alpha(losses, alpha, lam),
            rtol=1e-8,
            atol=1e-8,
        )


def test_chi_squared_in_closed_form() -> None:
    """Corollary 4.8: with lambda > max L' - mean L' the ratio is 1 + (mean L' - L') / lambda."""
    losses = np.random.default_rng(3).gamma(0.4, 0.5, 1000)
    lam = losses.max() - losses.mean() + 0.01
    fitted = fit_ratio(losses, 3, lam)
    np.testing.assert_allclose(fitted.ratio(losses), 1 + (losses.mean() - losses) / lam, rtol=1e-12, atol=1e-12)


def test_three_rows() -> None:
    losses = np.array([0.1, 0.5, 1.0])
    np.testing.assert_allclose(fit_ratio(losses, 1, 1).ratio(losses), np.exp(-losses) / 0.6264158396, rtol=1e-10)
    assert fit_ratio(losses, 1, 1).ratio(losses).mean() == pytest.approx(1, rel=1e-15)
    # chi squared, lambda = 0.2: with the third row clipped, (b - 0.5) + (b - 2.5) = 3
    np.testing.assert_allclose(fit_ratio(losses, 3, 0.2).ratio(losses), [2.5, 0.5, 0], rtol=1e-14)


@pytest.mark.parametrize("alpha", [*ALPHAS, -99, 60, 1000, -1000])
@pytest.mark.parametrize("lam", [*LAMBDAS, 1e16])
def test_a_model_that_is_always_sure_fits_for_every_alpha(alpha: float, lam: float) -> None:
    losses = np.random.default_rng(4).gamma(0.2, 1e-4, 2000).clip(max=9.9e-4)
    fitted = fit_ratio(losses, alpha, lam)
    assert 0 <= fitted.log_max_ratio <= math.log(2000)
    # Beyond alpha = 51 the ratio jumps from 0 between neighbouring floats.
    assert fitted.ratio(losses).mean() == pytest.approx(1, rel=1e-9 if abs(alpha) < 30 else 1e-3)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_large_set_starts_from_quantiles_and_ends_where_it_should(alpha: float) -> None:
    losses = np.random.default_rng(5).gamma(0.3, 0.5, 40_000)
    fitted = fit_ratio(losses, alpha, 0.1)
    assert fitted.ratio(losses).mean() == pytest.approx(1, rel=1e-12)
    assert fit_ratio(losses[::-1], alpha, 0.1) == fitted


@pytest.mark.parametrize("alpha", ALPHAS)
def test_one_row_or_equal_losses_have_ratio_1(alpha: float) -> None:
    for losses in (np.array([0.7]), np.full(50, 0.3), np.zeros(3)):
        for lam in LAMBDAS:
            assert fit_ratio(losses, alpha, lam).ratio(losses).tolist() == [1.0] * losses.size


@given(loss_lists, alphas, lambdas)
def test_the_mean_ratio_on_the_fitted_rows_is_1(values: list[float], alpha: float, lam: float) -> None:
    losses = np.array(values)
    assert fit_ratio(losses, alpha, lam).ratio(losses).mean() == pytest.approx(1, rel=1e-9)


@given(loss_lists, alphas, lambdas, st.randoms(use_true_random=False))
def test_the_fit_does_not_depend_on_the_order_of_rows(
    values: list[float], alpha: float, lam: float, random: object
) -> None:
    fitted = fit_ratio(np.array(values), alpha, lam)
    random.shuffle(values)  # type: ignore[attr-defined]
    assert fit_ratio(np.array(values), alpha, lam) == fitted


@given(loss_lists, alphas, lambdas, st.lists(st.floats(0, 10), min_size=2))
def test_the_ratio_never_rises_with_the_loss(
    values: list[float], alpha: float, lam: float, others: list[float]
) -> None:
    """Also on rows that were not fitted: infinite where they are too easy, 0 from the flat part on."""
    ratio = fit_ratio(np.array(values), alpha, lam)
    rho = ratio.ratio(np.sort(np.array(values + others)))
    assert (rho[1:] <= rho[:-1]).all()
    assert (rho >= 0).all()
    if alpha < 1:
        assert (ratio.log_ratio(np.array(values)) > -np.inf).all()


# tau and cutoff


@given(loss_lists, alphas, lambdas, st.floats(1e-3, 3))
def test_cutoff_and_tau_are_translations_of_each_other(
    values: list[float], alpha: float, lam: float, tau: float
) -> None:
    ratio = fit_ratio(np.array(values), alpha, lam)
    cutoff = ratio.cutoff(tau)
    assert cutoff is not None
    if cutoff > 0 and (cutoff - ratio.min_loss) > 1e-4 * cutoff:  # else tau hangs on the last bits of the cutoff
        back = ratio.tau(cutoff)
        assert back is not None
        slope = 1 + abs(ratio.c) + (abs(math.log(tau)) + cutoff / lam) * tau ** -abs(ratio.c)
        assert math.log(back / tau) == pytest.approx(0, abs=1e-13 * slope) if back > 0 else slope > 1e9


@given(loss_lists, alphas, lambdas, st.floats(1e-3, 3))
def test_rows_well_beside_the_cutoff_lie_on_the_right_side_of_tau(
    values: list[float], alpha: float, lam: float, tau: float
) -> None:
    losses = np.array(values)
    ratio = fit_ratio(losses, alpha, lam)
    cutoff, rho = ratio.cutoff(tau), ratio.ratio(losses)
    assert cutoff is not None
    clear = np.abs(rho - tau) > 1e-6 * tau
    assert ((losses < cutoff) == (rho > tau))[clear].all()


def test_tau_zero_rejects_the_flat_part_only() -> None:
    losses = np.array([0.1, 0.5, 1.0])
    chi2 = fit_ratio(losses, 3, 0.2)
    assert chi2.cutoff(0) == chi2.flat_start == pytest.approx(0.6, rel=1e-14)
    assert fit_ratio(losses, 1, 0.2).cutoff(0) is None
    assert fit_ratio(losses, -1, 0.2).cutoff(0) is None
    assert fit_ratio(losses, 1, 0.2).flat_start is None


def test_a_tau_beyond_every_ratio_rejects_every_row() -> None:
    losses = np.array([0.1, 0.5, 1.0])
    for alpha in ALPHAS:
        for tau in (4.0, 1e6, 1e308):
            cutoff = fit_ratio(losses, alpha, 1.0).cutoff(tau)
            assert cutoff is not None
            assert cutoff < 0.1
            assert math.isfinite(cutoff)


def test_kl_cutoff_is_chow_s_rule_shifted() -> None:
    """Theorem 4.2: for the KL ratio rho <= tau iff L' >= -lambda ln(Z tau)."""
    losses = np.random.default_rng(6).gamma(0.3, 0.5, 200)
    ratio = fit_ratio(losses, 1, 0.7)
    z = np.exp(-losses / 0.7).mean()
    for tau in (0.01, 0.5, 1.0):
        assert ratio.cutoff(tau) == pytest.approx(-0.7 * math.log(z * tau), rel=1e-13)


def test_easier_rows_than_the_fit_allows_are_infinitely_good_for_alpha_below_1() -> None:
    ratio = DensityRatio(alpha=-3.0, lam=0.1, log_max_ratio=1.0, min_loss=0.5)
    assert ratio.ratio(np.array([0.0])).tolist() == [math.inf]
    assert ratio.tau(0.0) is None


def test_even_powers_are_clipped_first() -> None:
    """The authors' code squares a negative number at alpha = 2, which accepts the worst rows."""
    losses = np.linspace(0, 6, 100)
    rho = fit_ratio(losses, 2, 0.5).ratio(losses)
    assert rho[-1] == 0
    assert (np.diff(rho) <= 0).all()


WORST_CASE_ALPHAS = (-3.0, -1.0, 0.0, 1.0, 2.0, 3.0, 5.0)


def losses_of(rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).exponential(0.7, rows)


def solver_problem(alpha: float, rows: int):  # type: ignore[no-untyped-def]
    """cvxpy, the ratios as a variable, and n times their divergence from 1."""
    cp = pytest.importorskip("cvxpy")
    rho = cp.Variable(rows, nonneg=True)
    if alpha == 1:
        return cp, rho, cp.sum(cp.kl_div(rho, np.ones(rows)))
    if alpha == -1:
        return cp, rho, cp.sum(-cp.log(rho) + rho - 1)
    if alpha == 3:
        return cp, rho, 0.5 * cp.sum_squares(rho - 1)
    power = cp.power(rho, (1 + alpha) / 2)
    return cp, rho, cp.sum(4 / (1 - alpha**2) * (1 - power) + 2 / (1 - alpha) * (rho - 1))


def solve(cp, objective, constraints) -> float:  # type: ignore[no-untyped-def]
    """The optimum, as near as the solver comes: asked for more than it can give, it warns and returns its best."""
    problem = cp.Problem(cp.Maximize(objective), constraints)
    limits = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-14)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate")
        return float(problem.solve(solver=cp.CLARABEL, **limits))


@pytest.mark.parametrize("alpha", WORST_CASE_ALPHAS)
@pytest.mark.parametrize("lam", [0.5, 2.0])
def test_weights_agree_with_a_convex_solver_at_a_lambda(alpha: float, lam: float) -> None:
    """The penalised problem is strongly concave, so the solver's weights themselves are sharp."""
    losses = losses_of(30, 3)
    cp, rho, divergence = solver_problem(alpha, losses.size)
    solve(cp, (losses @ rho - lam * divergence) / losses.size, [cp.sum(rho) == losses.size])
    np.testing.assert_allclose(fit_ratio(-losses, alpha, lam).ratio(-losses), rho.value, atol=1e-6)


def test_closed_forms_at_a_given_lambda() -> None:
    losses = losses_of(100, 4)
    kl = fit_ratio(-losses, 1.0, 0.8).ratio(-losses)
    np.testing.assert_allclose(kl, np.exp(losses / 0.8) / np.mean(np.exp(losses / 0.8)), rtol=1e-12)
    chi2 = fit_ratio(-losses, 3.0, 10.0).ratio(-losses)
    np.testing.assert_allclose(chi2, 1 + (losses - losses.mean()) / 10.0, rtol=1e-12)


def test_the_recipe_of_the_docs_finds_the_worst_case_in_a_ball() -> None:
    """The block of docs/proofs.md, against a convex solver."""
    text = (Path(__file__).parents[2] / "docs" / "proofs.md").read_text("utf-8")
    found: dict[str, Any] = {}
    exec(text.partition("## Worst-case weights")[2].split("```")[1].removeprefix("python"), found)
    losses = found["losses"]
    cp, rho, divergence = solver_problem(1.0, losses.size)
    ball = [cp.sum(rho) == losses.size, divergence <= found["radius"] * losses.size]
    risk = solve(cp, losses @ rho / losses.size, ball)
    assert found["worst_risk"] == pytest.approx(risk, abs=1e-6)
    np.testing.assert_allclose(found["weights"], rho.value, atol=1e-4)
