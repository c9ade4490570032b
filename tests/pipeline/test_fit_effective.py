"""Lambda from a share of the effective sample: the share comes out, and what cannot be reached is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import fail, make_model, succeed, write_dump
from hypothesis import given
from hypothesis import strategies as st

import drrej
from drrej.core.losses import expected_losses
from drrej.core.ratio import DensityRatio, _variance, choose_lambda, fit_ratio, share_of_delta
from drrej.errors import Infeasible, OptionError, RejectorError
from drrej.pipeline.fit import uncalibrated

ALPHAS = (-3.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 5.0)


def effective_sample(losses: np.ndarray, ratio: DensityRatio) -> float:
    """1 / mean(rho^2), with all digits where that is near 1."""
    return 1.0 / (1.0 + _variance(losses, ratio))


def losses_of(rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).gamma(0.5, 0.7, rows)


def by_definition(weights: np.ndarray) -> float:
    """Kish's effective sample, as a share: the weights need not have a mean of 1."""
    return weights.sum() ** 2 / (weights.size * np.sum(weights**2))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("share", [0.02, 0.5, 0.9, 1 - 1e-9])
def test_the_share_comes_out(alpha: float, share: float) -> None:
    losses = losses_of(800, 3)
    lam = choose_lambda(losses, share, alpha)
    density = fit_ratio(losses, alpha, lam)
    assert by_definition(density.ratio(losses)) == pytest.approx(share, rel=1e-9)
    assert 1 - effective_sample(losses, density) == pytest.approx(1 - share, rel=1e-6)
    assert choose_lambda(losses[::-1].copy(), share, alpha) == lam


def test_kl_weights_without_the_fit() -> None:
    """The KL ratio is proportional to e^(-L'/lambda)."""
    losses = losses_of(300, 4)
    lam = choose_lambda(losses, 0.4)
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
    assert choose_lambda(1e6 * losses, 0.5) == pytest.approx(1e6 * choose_lambda(losses, 0.5))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_just_above_the_rows_of_the_smallest_loss(alpha: float) -> None:
    """Two losses: the share is a known function of the weights of both."""
    losses = np.repeat([0.3, 1.0], [40, 60])
    lam = choose_lambda(losses, 0.45, alpha)
    small, large = fit_ratio(losses, alpha, lam).ratio(np.array([0.3, 1.0]))
    assert 0.4 * small + 0.6 * large == pytest.approx(1.0)
    assert 0.4 * small**2 + 0.6 * large**2 == pytest.approx(1 / 0.45)
    with pytest.raises(Infeasible, match="40 of 100 rows have the smallest loss"):
        choose_lambda(losses, 0.4, alpha)


def test_equal_losses_and_shares_that_make_no_sense() -> None:
    with pytest.raises(Infeasible, match=r"every loss is 0\.2"):
        choose_lambda(np.full(5, 0.2), 0.5)
    for share in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(OptionError, match="`effective_sample="):
            choose_lambda(losses_of(5, 1), share)


# Through fit


def fitted(folder: Path, options: drrej.RatioOptions) -> drrej.Rejector:
    dump = drrej.Source([write_dump(folder / "d.parquet", *make_model(800, 5, seed=3))])
    return drrej.fit(dump, uncalibrated(dump, 2.0), options)


@pytest.mark.parametrize("alpha", [-1.0, 1.0, 3.0])
def test_fit_solves_for_lambda_and_rounds_it(tmp_path: Path, alpha: float) -> None:
    logits, _ = make_model(800, 5, seed=3)
    losses = expected_losses(logits, "log", 2.0)
    ratio = fitted(tmp_path, drrej.RatioOptions(alpha, loss="log", effective_sample=0.6)).need_ratio()
    assert ratio.effective_sample == 0.6
    assert ratio.lam == float(f"{choose_lambda(losses, 0.6, alpha):.3e}")
    assert by_definition(fit_ratio(losses, alpha, ratio.lam).ratio(losses)) == pytest.approx(0.6, rel=2e-3)
    plain = fitted(tmp_path, drrej.RatioOptions(alpha, ratio.lam, "log")).need_ratio()
    assert (ratio.log_max_ratio, ratio.variance) == (plain.log_max_ratio, plain.variance)
    # lambda was chosen from the rows: the bound that they give pays for that, and the paper's do not apply
    assert [bound.holds for bound in ratio.bounds or ()][1:] == [False] * (2 if alpha in (1.0, 3.0) else 0)
    chosen, given_ = ((each.bounds or ())[0].value for each in (ratio, plain))
    assert chosen is not None
    assert given_ is not None
    assert given_ < chosen < 3 * given_


def test_the_order_of_rows_does_not_depend_on_it() -> None:
    logits, labels = make_model(300, 4, seed=1)
    accepted = {
        share: drrej.fit_rejector(logits, labels, coverage=0.7, effective_sample=share).reject(logits).tobytes()
        for share in (None, 0.3, 0.9)
    }
    assert len(set(accepted.values())) == 1


def test_shares_of_delta_of_all_lambdas_sum_to_less_than_1() -> None:
    shares = [9000 * share_of_delta(float(f"1e{exponent}")) for exponent in range(-300, 300)]
    assert 0.98 < sum(shares) < 1
    assert share_of_delta(9.999e-3) == share_of_delta(1e-3)


def test_contradictions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="give one of them"):
        drrej.RatioOptions(lam=2.0, effective_sample=0.5)
    with pytest.raises(OptionError, match="above 0 and below 1"):
        drrej.RatioOptions(effective_sample=1.0)
    logits, labels = make_model(50, 3, seed=1)
    path = write_dump(tmp_path / "d.parquet", logits, labels)
    assert "--effective-sample chooses --lambda; give one of them" in fail(
        "fit", path, "--temperature", 1, "--effective-sample", 0.5, "--lambda", 1
    )
    assert "--effective-sample 0.01 cannot be reached: 1 of 50 rows" in fail(
        "fit", path, "--temperature", 1, "--loss", "log", "--effective-sample", 0.01, code=1
    )


def test_it_is_told(tmp_path: Path) -> None:
    logits, labels = make_model(200, 3, seed=2)
    path = write_dump(tmp_path / "d.parquet", logits, labels)
    succeed("fit", path, "--temperature", 2, "--loss", "log", "--effective-sample", 0.4, "-o", tmp_path / "f.json")
    said = succeed("inspect", tmp_path / "f.json").decode()
    assert "the idealized distribution keeps 40 % of it" in said or "keeps 39.9" in said or "keeps 40.0" in said
    assert "needs a lambda that was not chosen from these rows" in said
    rejector = drrej.Rejector.from_json((tmp_path / "f.json").read_text())
    with pytest.raises(RejectorError, match="it was edited since drrej wrote it"):
        drrej.Rejector.from_json(rejector.to_json().replace('"effective_sample": 0.4', '"effective_sample": 0.7'))
