"""The temperature against a float64 minimisation by scipy."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import reference
from conftest import make_model, source, write_dump
from scipy.special import expit, logsumexp

import drrej
from drrej.core.calibrators import (
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    NllSums,
    Temperature,
    TemperatureFit,
    minimise,
    nll_sums,
)
from drrej.core.losses import expected_losses
from drrej.core.softmax import NOTHING
from drrej.core.types import Total
from drrej.data import dump as dump_module
from drrej.errors import DumpError
from drrej.pipeline import calibrate as step


def fit_arrays(logits: np.ndarray, labels: np.ndarray) -> TemperatureFit:
    return minimise(lambda beta: nll_sums(logits, labels, beta, "float64"))


@pytest.mark.parametrize(
    ("rows", "classes", "true_temperature"),
    [(12, 3, 2.0), (300, 2, 0.2), (2000, 10, 2.9), (3000, 40, 25.0), (400, 200, 1.3)],
)
def test_the_temperature_is_that_of_scipy(rows: int, classes: int, true_temperature: float) -> None:
    logits, labels = make_model(rows, classes, seed=rows, temperature=true_temperature)
    fit = fit_arrays(logits, labels)
    assert fit.converged
    assert fit.temperature == pytest.approx(reference.temperature(logits, labels), rel=1e-7)
    assert fit.passes <= 12


def test_impossible_classes_count_as_probability_zero() -> None:
    logits, labels = make_model(500, 5, seed=1)
    logits[labels != 4, 4] = -np.inf
    assert fit_arrays(logits, labels).temperature == pytest.approx(reference.temperature(logits, labels), rel=1e-7)


def test_two_classes_in_closed_form() -> None:
    """One gap d for every row, a share p of the rows right: the best beta has expit(beta d) = p."""
    logits = np.tile([0.0, 3.0], (250, 1))
    labels = np.array([1] * 200 + [0] * 50)
    beta = 1 / fit_arrays(logits, labels).temperature
    assert expit(3 * beta) == pytest.approx(0.8, rel=1e-8)


@pytest.mark.parametrize("gap", [1e-5, 1.0, 30.0, 1e4])
def test_a_model_that_is_always_right_has_a_temperature_by_its_prior(gap: float) -> None:
    """The likelihood alone would go to the cold end, where every loss is 0."""
    logits = np.zeros((20, 4))
    labels = np.arange(20) % 4
    logits[np.arange(20), labels] = gap
    fit = fit_arrays(logits, labels)
    assert fit.converged
    assert fit.temperature == pytest.approx(reference.temperature(logits, labels), rel=1e-6)
    assert 0.1 < fit.temperature <= 1.0


def test_few_errors_draw_the_temperature_to_one_and_fifty_do_not() -> None:
    logits, labels = make_model(4000, 10, seed=4, temperature=0.4)
    wrong = np.flatnonzero(logits.argmax(axis=1) != labels)
    right = np.flatnonzero(logits.argmax(axis=1) == labels)
    drawn = []
    for errors in (0, 1, 5, 20, 49, 50, 60):
        rows = np.concatenate([right[: 20 * max(errors, 5)], wrong[:errors]])
        fit = fit_arrays(logits[rows], labels[rows])
        gradient = nll_sums(logits[rows], labels[rows], 1.0 / fit.temperature, "float64").gradient.mean(1)
        assert gradient is not None
        drawn.append(abs(gradient / fit.temperature))  # by ln beta: what the prior pulls with
        assert drawn[-1] == pytest.approx(max(0, 1 - errors / 50) * abs(np.log(fit.temperature)), abs=1e-4)
    assert drawn[-2:] == pytest.approx([0.0, 0.0], abs=1e-4)


def test_a_calibration_without_errors_keeps_the_likelihood_of_rows_like_it() -> None:
    """One calibration set in six of a good model with 200 rows has no error."""
    logits, labels = make_model(20000, 10, seed=5, temperature=1.2)
    right = np.flatnonzero(logits.argmax(axis=1) == labels)
    temperature = fit_arrays(logits[right[:200]], labels[right[:200]]).temperature
    assert reference.nll(logits[right[200:]], labels[right[200:]], temperature) < 0.1
    losses = expected_losses(logits, "zero-one", temperature)
    assert np.unique(losses).size > 0.9 * losses.size


def test_a_model_that_is_worse_than_chance_goes_to_the_hot_end() -> None:
    logits, labels = make_model(500, 4, seed=2)
    assert fit_arrays(-logits, labels).temperature == pytest.approx(MAX_TEMPERATURE)
    assert not fit_arrays(-logits, labels).converged


def test_poor_accuracy_alone_does_not_go_to_the_hot_end() -> None:
    """What counts is the label's logit against the row's average, not the accuracy."""
    logits = np.tile([3.0, 2.0, -40.0, -40.0], (50, 1))
    fit = fit_arrays(logits, np.full(50, 1))
    assert fit.converged
    assert fit.temperature == pytest.approx(reference.temperature(logits, np.full(50, 1)), rel=1e-7)


def test_equal_logits_have_no_best_temperature() -> None:
    fit = fit_arrays(np.full((90, 3), 7.5), np.arange(90) % 3)
    assert not fit.converged
    assert fit.temperature == 1.0


def test_the_minimum_just_inside_the_bracket_is_found() -> None:
    for true_temperature in (2e-3, 900.0):
        logits, labels = make_model(4000, 3, seed=3, temperature=1.0, dtype=np.float64)
        logits *= true_temperature
        fit = fit_arrays(logits, labels)
        assert fit.converged
        assert fit.temperature == pytest.approx(reference.temperature(logits, labels), rel=1e-7)


# The step on dumps


@pytest.fixture
def dump(tmp_path: Path) -> str:
    logits, labels = make_model(6000, 7, seed=11)
    return write_dump(tmp_path / "val.parquet", logits, labels, row_group=1000)


def reference_of(path: str) -> tuple[np.ndarray, np.ndarray, float]:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    logits = np.stack(table.column("logits").to_pylist())
    labels = table.column("label").to_numpy()
    return logits, labels, reference.temperature(logits, labels)


def test_calibration_section(dump: str) -> None:
    logits, labels, temperature = reference_of(dump)
    calibration = drrej.calibrate(source(dump)).need_calibration()
    assert calibration.temperature == pytest.approx(temperature, rel=1e-6)
    assert calibration.rows == 6000
    assert calibration.converged
    for figure, route in ((calibration.nll, reference.nll), (calibration.ece, reference.ece)):
        assert figure.before == pytest.approx(route(logits, labels, 1.0), rel=1e-6)
        assert figure.after == pytest.approx(route(logits, labels, temperature), rel=1e-5)
    assert calibration.nll.after <= reference.nll(logits, labels, temperature) * (1 + 1e-6)
    assert reference.nll(logits, labels, calibration.temperature) <= reference.nll(logits, labels, temperature) + 1e-12


@pytest.mark.parametrize("sample", [500, 7000, 20_000])
def test_a_search_that_starts_from_a_sample_ends_at_the_same_temperature(
    dump: str, monkeypatch: pytest.MonkeyPatch, sample: int
) -> None:
    whole = drrej.calibrate(source(dump)).need_calibration()
    monkeypatch.setattr(step, "SAMPLE_LOGITS", sample)
    sampled = drrej.calibrate(source(dump)).need_calibration()
    assert sampled.temperature == pytest.approx(whole.temperature, rel=1e-7)
    assert sampled.temperature == pytest.approx(reference_of(dump)[2], rel=1e-6)
    assert sampled.converged


def test_a_sample_that_is_always_right_does_not_mislead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = make_model(2000, 3, seed=4)
    labels[::50] = logits[::50].argmax(axis=1)
    path = write_dump(tmp_path / "d.parquet", logits, labels)
    monkeypatch.setattr(step, "SAMPLE_LOGITS", 2000 * 3 // 50)
    fitted = drrej.calibrate(source(path)).need_calibration()
    assert fitted.converged
    assert fitted.temperature == pytest.approx(reference.temperature(logits, labels), rel=1e-6)


@pytest.mark.parametrize("sample", [500, 1 << 21])
def test_reading_again_gives_the_same_bytes_as_keeping_rows(
    dump: str, monkeypatch: pytest.MonkeyPatch, sample: int
) -> None:
    monkeypatch.setattr(step, "SAMPLE_LOGITS", sample)
    kept = drrej.calibrate(source(dump)).to_json()
    assert drrej.calibrate(source(dump), drrej.CalibrateOptions(memory=0)).to_json() == kept
    assert drrej.calibrate(source(dump, jobs=3), drrej.CalibrateOptions(memory=0)).to_json() == kept
    assert drrej.calibrate(source(dump, jobs=3)).to_json() == kept


def test_the_document_does_not_depend_on_blocks(dump: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = drrej.calibrate(source(dump)).to_json()
    monkeypatch.setattr(dump_module, "BLOCK_BYTES", 5000)
    assert drrej.calibrate(source(dump)).to_json() == whole


def test_precision_float64_is_used_and_remembered(tmp_path: Path) -> None:
    logits, labels = make_model(500, 10, seed=8)
    path = write_dump(tmp_path / "d.parquet", logits, labels)
    rejector = drrej.calibrate(source(path), drrej.CalibrateOptions(precision="float64"))
    assert rejector.precision == "float64"
    calibration = rejector.need_calibration()
    assert calibration.nll.before == pytest.approx(reference.nll(logits, labels, 1.0), rel=1e-13)
    assert calibration.temperature == pytest.approx(reference.temperature(logits, labels), rel=1e-9)


def test_an_impossible_label_is_an_error(tmp_path: Path) -> None:
    logits, labels = make_model(50, 3, seed=9)
    logits[7, labels[7]] = -math.inf
    logits[7, (labels[7] + 1) % 3] = 5.0
    path = write_dump(tmp_path / "d.parquet", logits, labels)
    with pytest.raises(DumpError, match=r"d\.parquet: column 'logits': 1 row has -inf at the label's class; row 7"):
        drrej.calibrate(source(path))


def test_a_search_does_not_depend_on_the_order_of_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor on blocks and row groups, though it starts from a sample."""
    monkeypatch.setattr(step, "SAMPLE_LOGITS", 4000)
    logits, labels = make_model(5000, 9, seed=21)
    first = write_dump(tmp_path / "a.parquet", logits, labels, row_group=700)
    order = np.random.default_rng(0).permutation(5000)
    second = write_dump(tmp_path / "b.parquet", logits[order], labels[order])
    assert drrej.calibrate(source(first)).to_json() == drrej.calibrate(source(second)).to_json()


def test_equal_rows_need_no_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are sampled by content, so of equal rows all are taken or none."""
    for gap in (1.5, 2.0, 3.0, 4.0):
        monkeypatch.setattr(step, "SAMPLE_LOGITS", 100)
        path = write_dump(tmp_path / f"{gap}.parquet", np.tile([-gap, 0.0], (300, 1)), np.array([1, 1, 0] * 100))
        fitted = drrej.calibrate(source(path)).need_calibration()
        assert fitted.converged
        assert expit(gap / fitted.temperature) == pytest.approx(2 / 3, rel=1e-7)


@pytest.mark.parametrize("power", [-2.5, -1.0, 0.0, 3.0])
def test_a_curvature_that_is_a_power_of_beta_is_solved_in_few_passes(power: float) -> None:
    """With the power known, the first step ends at the root, here 2."""

    def sums(beta: float) -> NllSums:
        gradient = math.log(beta / 2) if power == -1 else (beta ** (power + 1) - 2 ** (power + 1)) / (power + 1)
        return NllSums(1, 50, Total.of(np.array([gradient])), Total.of(np.array([beta**power])))

    known = minimise(sums, 1.9, power)
    assert known.temperature == pytest.approx(0.5, rel=1e-9)
    assert known.passes == 2
    unknown = minimise(sums, 1.9)
    assert unknown.temperature == pytest.approx(0.5, rel=1e-8)
    assert unknown.passes <= 3
    assert unknown.bend == pytest.approx(power, abs=0.2)


@pytest.mark.parametrize("wrong_by", [None, 0.01])
@pytest.mark.parametrize("classes", [2, 10])
def test_a_model_that_is_always_right_by_a_margin_needs_few_passes(classes: int, wrong_by: float | None) -> None:
    """The gradient falls like e^-beta, down to nothing or to one row that is nearly a tie: Newton took 750 passes."""
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(2000, classes))
    labels = rng.integers(classes, size=2000)
    logits[np.arange(2000), labels] = logits.max(axis=1) + 1.0
    if wrong_by is not None:
        logits[0], logits[1] = -5.0, -5.0
        logits[0, labels[0]], logits[0, labels[0] - 1] = 0.0, wrong_by
        logits[1, labels[1]], logits[1, labels[1] - 1] = 2.1 * wrong_by, 0.0
    fit = minimise(lambda beta: nll_sums(logits, labels, beta, "float64"))
    assert fit.passes <= 25
    assert fit.converged
    for factor, side in ((0.9999, -1), (1.0001, 1)):
        beta = factor / fit.temperature
        gradient, _ = nll_sums(logits, labels, beta, "float64").derivatives(beta)
        assert side * gradient > 0


def test_a_long_step_after_many_short_ones_stays_in_the_bracket() -> None:
    """Lengthened a thousandfold it would be beyond what floats hold."""
    steps = iter([1e-3] * 9 + [300.0])

    def evaluate(beta: float) -> NllSums:
        return NllSums(1, 50, Total.of(np.array([-next(steps, 0.0) * beta])), Total.of(np.ones(1)))

    fit = minimise(evaluate)
    assert fit.converged
    assert MIN_TEMPERATURE < fit.temperature < 1.0


@pytest.mark.parametrize("ranked", [None, 0.4])
def test_log_odds_at_another_scale_are_those_of_other_logits(ranked: float | None) -> None:
    """ln((1 - p) / p) of the likeliest class by its rivals, whose sum does not underflow: down to e^-960."""
    logits = np.array([[1.0, 0.5, -2.0, 0.0], [3.0, -7.0, 3.0, 1.0], [-90.0, 60.0, 0.0, -40.0], [0.0, 1e4, 0.0, 4e3]])
    after, _ = Temperature(2.5).scores(logits, NOTHING, "float64", scale=ranked)
    scaled = 0.4 / 2.5 * logits
    rivals = [np.delete(row, row.argmax()) for row in scaled]
    expected = [logsumexp(others) - row.max() for others, row in zip(rivals, scaled, strict=True)]
    assert after.log_odds(0.4) == pytest.approx(expected, rel=1e-13)
    assert after.log_odds(0.4)[3] == pytest.approx(-960.0)
