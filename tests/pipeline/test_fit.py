"""drrej fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import LOG, fail, make_model, read_columns, source, succeed, write_dump

import drrej
from drrej.core.losses import expected_losses
from drrej.core.ratio import fit_ratio


def test_a_ratio_is_added_and_the_threshold_dropped(val: str, documents: Path) -> None:
    expected = (documents / "fitted.json").read_bytes()
    assert succeed("fit", val, "-r", documents / "calibrated.json", "--loss", "log") == expected
    assert succeed("fit", val, "-r", documents / "rejector.json", "--loss", "log") == expected


def test_the_same_file_may_be_read_and_written(tmp_path: Path, val: str, documents: Path) -> None:
    target = tmp_path / "r.json"
    target.write_bytes((documents / "calibrated.json").read_bytes())
    succeed("fit", val, "-r", target, "--loss", "log", "-o", f"{tmp_path}/./r.json")
    assert target.read_bytes() == (documents / "fitted.json").read_bytes()
    other = tmp_path / "other.json"
    other.write_text("precious")
    assert "it exists already" in fail("fit", val, "-r", target, "-o", other)
    assert other.read_text() == "precious"


def test_the_loss_is_auto_where_there_are_labels_and_log_where_there_are_none(tmp_path: Path) -> None:
    """In every front door; labels of another file count."""
    logits, labels = make_model(400, 3, seed=4)
    with_labels, without = (
        write_dump(tmp_path / "l.parquet", logits, labels),
        write_dump(tmp_path / "u.parquet", logits),
    )
    start, join = drrej.calibrate(source(with_labels)), ["--labels-from", with_labels, "--join-on", "id"]
    (tmp_path / "c.json").write_text(start.to_json())
    for words, loss in (([with_labels], "auto"), ([without, *join], "auto"), ([without], "log")):
        made = ["fit", *words, "-r", tmp_path / "c.json"]
        assert succeed(*made) == succeed(*made, "--loss", loss)
        assert json.loads(succeed(*made))["ratio"]["loss"] == {"auto": "learned"}.get(loss, loss)
    assert drrej.fit(source(without), start) == drrej.fit(source(with_labels), start, LOG)
    fitted = drrej.fit(source(with_labels), start)
    assert drrej.fit_rejector(logits, labels, coverage=0.8).need_ratio().loss == fitted.need_ratio().loss


@pytest.mark.parametrize(
    ("options", "alpha", "lam", "loss"),
    [
        (["--divergence", "chi2", "--loss", "log"], 3.0, 1.0, "log"),
        (["--alpha", "-1", "--lambda", "0.5", "--loss", "brier"], -1.0, 0.5, "brier"),
        (["--alpha", "3", "--divergence", "chi2", "--loss", "zero-one"], 3.0, 1.0, "zero-one"),
    ],
)
def test_options(val: str, documents: Path, options: list[str], alpha: float, lam: float, loss: str) -> None:
    calibrated = documents / "calibrated.json"
    ratio = json.loads(succeed("fit", val, "-r", calibrated, *options))["ratio"]
    assert (ratio["alpha"], ratio["lambda"], ratio["loss"]) == (alpha, lam, loss)
    logits = np.stack(read_columns(val)["logits"])
    temperature = json.loads(calibrated.read_text())["calibration"]["temperature"]
    losses = expected_losses(logits, loss, temperature)
    assert ratio["log_max_ratio"] == fit_ratio(losses, alpha, lam).log_max_ratio
    assert ratio["min_loss"] == losses.min()


def test_labels_are_not_needed_and_a_temperature_may_be_given(tmp_path: Path) -> None:
    logits, _ = make_model(100, 4, seed=1)
    path = write_dump(tmp_path / "d.parquet", logits)
    document = json.loads(succeed("fit", path, "--temperature", "2.5"))
    assert document["calibration"] == {"method": "given", "temperature": 2.5}
    assert document["ratio"]["min_loss"] == expected_losses(logits, "log", 2.5).min()
    double = json.loads(succeed("fit", path, "--temperature", "2.5", "--precision", "float64"))
    assert double["precision"] == "float64"
    assert double["ratio"]["min_loss"] == expected_losses(logits, "log", 2.5, "float64").min()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give either -r REJECTOR"),
        (["-r", "x.json", "--temperature", "1"], "give either -r REJECTOR"),
        (["-r", "x.json", "--precision", "float64"], "--precision is stored in the rejector"),
        (["--temperature", "0"], "--temperature 0: it must be a finite number above 0"),
        (["--temperature", "nan"], "--temperature nan: it must be"),
        (["--temperature", "1", "--alpha", "2", "--divergence", "kl"], "contradicts --alpha 2"),
        (["--temperature", "1", "--alpha", "inf"], "--alpha inf: it must be a number between"),
        (["--temperature", "1", "--lambda", "0"], "--lambda 0: it must be a finite number above 0"),
        (["--temperature", "1", "--loss", "hinge"], "--loss hinge: it must be one of log, zero-one, brier"),
    ],
)
def test_options_that_make_no_sense(val: str, options: list[str], message: str) -> None:
    assert message in fail("fit", val, *options)


def test_another_number_of_classes_is_an_error(tmp_path: Path, documents: Path) -> None:
    path = write_dump(tmp_path / "d.parquet", make_model(10, 5, seed=0)[0])
    assert "5 scores per row but the rejector was made for 6 classes" in fail(
        "fit", path, "-r", documents / "calibrated.json"
    )


def test_a_model_that_is_always_sure_fits_for_every_alpha(tmp_path: Path) -> None:
    """Every L' below 1e-3."""
    rng = np.random.default_rng(0)
    logits = np.zeros((300, 5), np.float32)
    logits[:, 2] = rng.uniform(12, 60, 300)
    path = write_dump(tmp_path / "d.parquet", logits, np.full(300, 2))
    start = drrej.Rejector(5, "logits", drrej.calibrate(source(path)).columns)
    for alpha in (1, 1 + 1e-7, 1 - 1e-7, 1.5, 2, 3, 5, 11, 0, -1, -3, -21):
        for lam in (1e-4, 1.0, 1e6):
            from drrej.documents.rejector import Calibration

            given = start.with_sections(Calibration("given", 1.0))
            ratio = drrej.fit(source(path), given, drrej.RatioOptions(alpha, lam, "log")).need_ratio()
            assert ratio.max_loss < 1e-3
            losses = expected_losses(logits, "log", 1.0)
            assert ratio.density.ratio(losses).mean() == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("lam", [0.05, 20.0])
@pytest.mark.parametrize("alpha", [-1.0, 1.0, 3.0])
def test_the_order_of_rows_does_not_depend_on_alpha_and_lambda(alpha: float, lam: float) -> None:
    logits, labels = make_model(300, 4, seed=1)
    plain = drrej.fit_rejector(logits, labels, loss="log", coverage=0.2)
    other = drrej.fit_rejector(logits, labels, loss="log", coverage=0.2, alpha=alpha, lam=lam)
    np.testing.assert_array_equal(plain.reject(logits), other.reject(logits))
