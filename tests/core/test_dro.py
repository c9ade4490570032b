"""Worst-case weights: against a convex solver, a brute force, and closed forms."""

from __future__ import annotations

import math
import warnings

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drrej.core.ratio import largest_divergence, phi, worst_case, worst_case_in_ball
from drrej.errors import Infeasible

ALPHAS = (-3.0, -1.0, 0.0, 1.0, 2.0, 3.0, 5.0)


def losses_of(rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).exponential(0.7, rows)


def definition(alpha: float, z: float) -> float:
    """phi_alpha as Definition 4.4 states it, its sign corrected, with 60 digits."""
    with mpmath.workdps(60):
        a, z = mpmath.mpf(alpha), mpmath.mpf(z)
        if alpha == 1:
            return float(z * mpmath.log(z) - z + 1)
        if alpha == -1:
            return float(-mpmath.log(z) + z - 1)
        return float(4 / (1 - a * a) * (1 - z ** ((1 + a) / 2)) + 2 / (1 - a) * (z - 1))


@pytest.mark.parametrize("alpha", [*ALPHAS, 1 + 1e-7, -1 + 1e-7, -7.5, 11.0])
@pytest.mark.parametrize("z", [1e-3, 0.4, 0.9999, 1.0 + 1e-6, 1.02, 3.0, 50.0])
def test_the_generator_is_that_of_the_definition(alpha: float, z: float) -> None:
    value = float(phi((alpha - 1) / 2, np.array([math.log(z)]))[0])
    assert value == pytest.approx(definition(alpha, math.exp(math.log(z))), rel=2e-9)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("radius", [1e-4, 0.05, 0.3])
def test_weights_are_a_distribution_on_the_sphere_of_the_radius(alpha: float, radius: float) -> None:
    losses = losses_of(200, 1)
    worst = worst_case_in_ball(losses, alpha, radius)
    weights = worst.weights(losses)
    assert weights.mean() == pytest.approx(1.0, abs=1e-12)
    assert np.all(weights >= 0)
    positive = weights[weights > 0]
    apart = [definition(alpha, float(w)) for w in positive]
    zeros = (weights.size - positive.size) * (2 / (1 + alpha) if alpha > -1 else math.inf if alpha <= -1 else 0)
    apart_in_all = (sum(apart) + (zeros if positive.size < weights.size else 0)) / weights.size
    assert apart_in_all == pytest.approx(radius, rel=1e-8)
    assert np.all(np.diff(weights[np.argsort(losses)]) >= 0)
    assert worst.worst_risk == pytest.approx(float(np.mean(weights * losses)), rel=1e-12)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_no_distribution_in_the_ball_has_a_higher_risk(alpha: float) -> None:
    """Brute force: every distribution of a grid over three rows, and random ones over six."""
    losses = np.array([0.1, 0.5, 1.0])
    radius = 0.2
    worst = worst_case_in_ball(losses, alpha, radius)
    steps = 200
    best = 0.0
    for i in range(1, steps):
        for j in range(1, steps - i):
            q = np.array([i, j, steps - i - j]) / steps
            if np.mean([definition_fast(alpha, z) for z in 3 * q]) <= radius:
                best = max(best, float(q @ losses))
    assert worst.worst_risk is not None
    assert best <= worst.worst_risk + 1e-9
    assert best >= worst.worst_risk - 0.01


def definition_fast(alpha: float, z: float) -> float:
    if alpha == 1:
        return z * math.log(z) - z + 1
    if alpha == -1:
        return -math.log(z) + z - 1
    return 4 / (1 - alpha**2) * (1 - z ** ((1 + alpha) / 2)) + 2 / (1 - alpha) * (z - 1)


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


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("radius", [0.02, 0.2])
def test_agrees_with_a_convex_solver_on_a_ball(alpha: float, radius: float) -> None:
    losses = losses_of(30, 3)
    cp, rho, divergence = solver_problem(alpha, losses.size)
    ball = [cp.sum(rho) == losses.size, divergence <= radius * losses.size]
    risk = solve(cp, losses @ rho / losses.size, ball)
    worst = worst_case_in_ball(losses, alpha, radius)
    assert worst.worst_risk == pytest.approx(risk, abs=1e-6)
    np.testing.assert_allclose(worst.weights(losses), rho.value, atol=1e-4)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("lam", [0.5, 2.0])
def test_weights_agree_with_a_convex_solver_at_a_lambda(alpha: float, lam: float) -> None:
    """The penalised problem is strongly concave, so the solver's weights themselves are sharp."""
    losses = losses_of(30, 3)
    cp, rho, divergence = solver_problem(alpha, losses.size)
    solve(cp, (losses @ rho - lam * divergence) / losses.size, [cp.sum(rho) == losses.size])
    np.testing.assert_allclose(worst_case(losses, alpha, lam).weights(losses), rho.value, atol=1e-6)


def test_closed_forms_at_a_given_lambda() -> None:
    losses = losses_of(100, 4)
    kl = worst_case(losses, 1.0, 0.8).weights(losses)
    np.testing.assert_allclose(kl, np.exp(losses / 0.8) / np.mean(np.exp(losses / 0.8)), rtol=1e-12)
    chi2 = worst_case(losses, 3.0, 10.0).weights(losses)
    np.testing.assert_allclose(chi2, 1 + (losses - losses.mean()) / 10.0, rtol=1e-12)


def test_the_largest_divergence_is_that_of_all_mass_on_the_worst_rows() -> None:
    losses = np.array([0.0, 1.0, 2.0, 2.0])
    assert largest_divergence(losses, 1.0) == pytest.approx(math.log(2))
    assert largest_divergence(losses, 3.0) == pytest.approx(0.5)  # half the usual chi squared: mean of (z - 1)^2 / 2
    assert largest_divergence(losses, -1.0) == math.inf
    assert largest_divergence(losses_of(50, 0), 1.0) == pytest.approx(math.log(50))


@pytest.mark.parametrize("alpha", [0.0, 1.0, 3.0])
def test_a_radius_that_reaches_the_worst_rows_is_infeasible(alpha: float) -> None:
    losses = losses_of(50, 5)
    limit = largest_divergence(losses, alpha)
    with pytest.raises(Infeasible, match="must be below"):
        worst_case_in_ball(losses, alpha, limit)
    near = worst_case_in_ball(losses, alpha, 0.999 * limit)
    assert near.worst_risk == pytest.approx(losses.max(), rel=0.02)
    with pytest.raises(Infeasible, match="same risk"):
        worst_case_in_ball(np.full(10, 0.3), alpha, 0.1)


@given(st.permutations(range(12)), st.sampled_from(ALPHAS))
def test_the_order_of_rows_does_not_matter(order: list[int], alpha: float) -> None:
    losses = losses_of(12, 6)
    shuffled = worst_case_in_ball(losses[order], alpha, 0.1)
    assert shuffled == worst_case_in_ball(losses, alpha, 0.1)
