"""Lambda from a share of the effective sample: the share comes out, and what cannot be reached is said."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drrej.core.effective import effective_sample, lambda_for_effective_sample
from drrej.core.ratio import fit_ratio
from drrej.errors import Infeasible, OptionError

ALPHAS = (-3.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 5.0)


def losses_of(rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).gamma(0.5, 0.7, rows)


def by_definition(weights: np.ndarray) -> float:
    """Kish's effective sample, as a share: the weights need not have a mean of 1."""
    return weights.sum() ** 2 / (weights.size * np.sum(weights**2))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("share", [0.02, 0.5, 0.9, 1 - 1e-9])
def test_the_share_comes_out(alpha: float, share: float) -> None:
    losses = losses_of(800, 3)
    lam = lambda_for_effective_sample(losses, share, alpha)
    density = fit_ratio(losses, alpha, lam)
    assert by_definition(density.ratio(losses)) == pytest.approx(share, rel=1e-9)
    assert 1 - effective_sample(losses, density) == pytest.approx(1 - share, rel=1e-6)
    assert lambda_for_effective_sample(losses[::-1].copy(), share, alpha) == lam


def test_kl_weights_without_the_fit() -> None:
    """The KL ratio is proportional to e^(-L'/lambda)."""
    losses = losses_of(300, 4)
    lam = lambda_for_effective_sample(losses, 0.4)
    assert by_definition(np.exp(-losses / lam)) == pytest.approx(0.4, rel=1e-10)


@given(
    st.lists(st.floats(0, 3), min_size=2, max_size=30),
    st.sampled_from(ALPHAS),
    st.floats(-2, 2),
    st.floats(0.05, 2),
)
def test_it_grows_with_lambda(values: list[float], alpha: float, log_lambda: float, step: float) -> None:
    losses = np.array(values)
    shares = [effective_sample(losses, fit_ratio(losses, alpha, np.exp(log_lambda + s))) for s in (0, step)]
    assert shares[1] >= shares[0] * (1 - 1e-9)
    assert 1 / losses.size - 1e-9 <= shares[0] <= 1


def test_units_of_the_loss_are_units_of_lambda() -> None:
    losses = losses_of(300, 5)
    assert lambda_for_effective_sample(1e6 * losses, 0.5) == pytest.approx(
        1e6 * lambda_for_effective_sample(losses, 0.5)
    )


@pytest.mark.parametrize("alpha", ALPHAS)
def test_just_above_the_rows_of_the_smallest_loss(alpha: float) -> None:
    """Two losses: the share is a known function of the weights of both."""
    losses = np.repeat([0.3, 1.0], [40, 60])
    lam = lambda_for_effective_sample(losses, 0.45, alpha)
    small, large = fit_ratio(losses, alpha, lam).ratio(np.array([0.3, 1.0]))
    assert 0.4 * small + 0.6 * large == pytest.approx(1.0)
    assert 0.4 * small**2 + 0.6 * large**2 == pytest.approx(1 / 0.45)
    with pytest.raises(Infeasible, match="40 of 100 rows have the smallest loss"):
        lambda_for_effective_sample(losses, 0.4, alpha)


def test_equal_losses_and_shares_that_make_no_sense() -> None:
    with pytest.raises(Infeasible, match=r"every loss is 0\.2"):
        lambda_for_effective_sample(np.full(5, 0.2), 0.5)
    for share in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(OptionError, match="`effective_sample`"):
            lambda_for_effective_sample(losses_of(5, 1), share)
