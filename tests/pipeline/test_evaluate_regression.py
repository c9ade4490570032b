"""Losses that rows bring themselves, and regression."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import fail, load_json, make_model, read_columns, run_here, source, succeed, write_dump
from hypothesis import given
from hypothesis import strategies as st

import drrej
from drrej.core.curves import Curve, MeanCurve
from drrej.core.losses import ColumnLoss
from drrej.documents.report import RegressionReport
from drrej.errors import DumpError
from drrej.outputs.destinations import OutputFile


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A regression dump with its variance, and a rejector that accepts 70 % of it."""
    folder = tmp_path_factory.mktemp("regression")
    rng = np.random.default_rng(0)
    mean, spread = rng.normal(size=500), rng.uniform(0.1, 2.0, 500)
    truth = mean + spread * rng.normal(size=500)
    table = pa.table({"key": np.arange(500), "prediction": mean, "variance": spread**2, "target": truth})
    pq.write_table(table, folder / "d.parquet", row_group_size=130)
    succeed(*("fit", "d.parquet", "--loss", "column", "--loss-column", "variance", "-o", "fitted.json"), cwd=folder)
    succeed("threshold", "d.parquet", "-r", "fitted.json", "--coverage", "0.7", "-o", "r.json", cwd=folder)
    return folder


def test_the_mask_of_a_regression_rejects_the_largest_variances(folder: Path) -> None:
    succeed("reject", "d.parquet", "-r", "r.json", "-o", "m.parquet", "-f", cwd=folder)
    dump, mask = read_columns(folder / "d.parquet"), read_columns(folder / "m.parquet")
    assert list(mask) == ["key", "prediction", "target", "loss", "ratio", "rejected"]
    assert np.array_equal(mask["loss"], dump["variance"])
    assert np.array_equal(mask["rejected"], dump["variance"] >= np.sort(dump["variance"])[350])


def test_chows_rule_for_regression(folder: Path) -> None:
    """--max-loss c rejects where the variance is c or more (sigma^2 >= 2c with the loss (y - y')^2 / 2)."""
    succeed("threshold", "d.parquet", "-r", "fitted.json", "--max-loss", "1", "-o", "c.json", "-f", cwd=folder)
    succeed("reject", "d.parquet", "-r", "c.json", "-o", "c.parquet", "-f", cwd=folder)
    mask = read_columns(folder / "c.parquet")
    assert np.array_equal(mask["rejected"], mask["loss"] >= 1.0)


def test_the_report_of_a_regression(folder: Path) -> None:
    columns = ["--task", "regression", "--prediction", "prediction", "--target", "target"]
    gate = ["--gate", "mse <= 0.1", "--gate", "coverage >= 0.7", "--gate", "mae.augrc <= 1"]
    done = run_here("evaluate", "d.parquet", "-r", "r.json", *columns, *gate, "-o", "r1.json", "-f", cwd=folder)
    assert done.returncode == 1
    assert b"\ndrrej: gate failed: mse <= 0.1" in done.stderr  # after the warning that these rows were fitted on
    dump, report = read_columns(folder / "d.parquet"), load_json(folder / "r1.json")
    error = dump["prediction"] - dump["target"]
    order = np.argsort(dump["variance"])
    kept = order[:350]
    assert report["coverage"]["accepted"] == 350
    assert report["mse"]["value"] == pytest.approx(np.mean(error[kept] ** 2), rel=1e-12)
    assert report["mse"]["all"] == pytest.approx(np.mean(error**2), rel=1e-12)
    assert report["mae"]["value"] == pytest.approx(np.mean(np.abs(error[kept])), rel=1e-12)
    risk = np.cumsum(error[order] ** 2) / np.arange(1, 501)
    area = (risk[0] + np.sum((risk[1:] + risk[:-1]) / 2)) / 500
    assert report["mse"]["aurc"]["value"] == pytest.approx(area, rel=1e-12)
    assert report["curve"][-1]["tau"] == 1.0
    assert report["ratio"]["mean"] == pytest.approx(1.0, abs=1e-12)


def test_cutoffs_of_groups_decide_in_the_report_as_in_the_mask(tmp_path: Path) -> None:
    """One site has become noisy and is rejected whole: the report must not say that nothing is."""
    rng = np.random.default_rng(3)
    site = np.array(["noisy", "quiet"])[np.arange(400) % 2]
    before = rng.uniform(0.1, 0.5, 400)
    spread = np.where(site == "noisy", rng.uniform(1.0, 2.0, 400), before)
    residual = spread * rng.normal(size=400)
    columns = {"prediction": np.zeros(400), "variance": before**2, "target": residual, "site": site}
    pq.write_table(pa.table(columns), tmp_path / "before.parquet", row_group_size=70)
    pq.write_table(pa.table({**columns, "variance": spread**2}), tmp_path / "d.parquet", row_group_size=70)
    succeed(*("fit", "before.parquet", "--loss", "column", "--loss-column", "variance", "-o", "f.json"), cwd=tmp_path)
    rule = ["--coverage", "0.5", "--cutoff-by", "site"]
    succeed("threshold", "before.parquet", "-r", "f.json", *rule, "-o", "r.json", cwd=tmp_path)
    succeed("reject", "d.parquet", "-r", "r.json", "-o", "m.parquet", cwd=tmp_path)
    names = ["--task", "regression", "--prediction", "prediction", "--target", "target"]
    outputs = ["-o", "report.json", "-o", "report.txt", "-o", "report.md", "-o", "report.xml"]
    succeed("evaluate", "d.parquet", "-r", "r.json", *names, *outputs, cwd=tmp_path)
    report = RegressionReport.from_json((tmp_path / "report.json").read_text())
    accepted = ~read_columns(tmp_path / "m.parquet")["rejected"].astype(bool)
    assert accepted.sum() == 100
    assert not accepted[site == "noisy"].any()
    assert report.coverage.accepted == 100
    assert report.coverage.value == 0.25
    assert report.mse.value == pytest.approx(np.mean(residual[accepted] ** 2), rel=1e-12)
    assert report.mae.value == pytest.approx(np.mean(np.abs(residual[accepted])), rel=1e-12)
    assert (report.tau, report.cutoff, report.cutoff_by) == (None, None, "site")
    first = (tmp_path / "report.txt").read_text().splitlines()[0]
    assert first == "400 rows, regression; each group by site has its own cutoff"
    assert "each group by site has its own cutoff" in (tmp_path / "report.md").read_text()


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30), st.randoms())
def test_areas_are_those_of_counted_errors_and_do_not_depend_on_the_order(rows: list[tuple[int, bool]], random) -> None:  # type: ignore[no-untyped-def]
    def both(rows: list[tuple[int, bool]]) -> tuple[MeanCurve, Curve]:
        losses, wrong = np.array([r[0] for r in rows], float), np.array([r[1] for r in rows])
        return MeanCurve.of(losses, wrong.astype(float)), Curve.of(losses[~wrong], losses[wrong])

    real, counted = both(rows)
    assert real.aurc() == pytest.approx(counted.aurc(), abs=1e-12)
    assert real.augrc() == pytest.approx(counted.augrc(), abs=1e-12)
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert both(shuffled)[0].aurc() == real.aurc()


def test_a_loss_column_beside_logits(tmp_path: Path) -> None:
    logits, labels = make_model(300, 4, 1)
    own = np.random.default_rng(1).random(300).astype(np.float32)
    dump = source(write_dump(tmp_path / "d.parquet", logits, labels, extra={"loss": pa.array(own)}))
    options = drrej.RatioOptions(loss=ColumnLoss("loss"))
    rejector = drrej.threshold(dump, drrej.fit(dump, drrej.calibrate(dump), options), drrej.Rule("coverage", 0.5))
    report = drrej.evaluate(dump, rejector)
    kept = own < np.sort(own)[150]
    right = logits.argmax(axis=1) == labels
    assert report["coverage"]["accepted"] == 150
    assert report["accuracy"]["value"] == pytest.approx(right[kept].mean())
    with OutputFile(str(tmp_path / "m.parquet")) as file:
        drrej.reject(dump, rejector, file)
        file.commit()
    mask = read_columns(tmp_path / "m.parquet")
    assert list(mask) == ["id", "label", "prediction", "loss", "ratio", "rejected"]
    assert np.array_equal(mask["loss"], own.astype(np.float64))
    assert np.array_equal(mask["prediction"], logits.argmax(axis=1))


@pytest.mark.parametrize(
    ("value", "said"),
    [(-1.0, "negative loss"), (float("nan"), "not finite"), (float("inf"), "not finite"), (None, "null")],
)
def test_bad_losses_are_named(tmp_path: Path, value: float | None, said: str) -> None:
    logits, _ = make_model(5, 3, 1)
    own = pa.array([0.1, 0.2, value, 0.4, 0.5], pa.float64())
    dump = source(write_dump(tmp_path / "d.parquet", logits, extra={"mine": own}))
    start = drrej.calibrate(source(write_dump(tmp_path / "v.parquet", *make_model(50, 3, 2))))
    with pytest.raises(DumpError, match=rf"'mine'.*{said}|{said}.*'mine'"):
        drrej.fit(dump, start, drrej.RatioOptions(loss=ColumnLoss("mine")))


def test_what_is_configured_for_classifications_does_not_stop_a_regression(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "drrej.toml").write_text('label = "kind"\nreport-by = "site"\n')
    names = ["--prediction", "prediction", "--target", "target"]
    succeed("evaluate", folder / "d.parquet", "-r", folder / "r.json", *names, cwd=tmp_path)


def test_what_a_regression_cannot_have_is_refused(folder: Path) -> None:
    assert "--prediction COL" in fail("evaluate", "d.parquet", "-r", "r.json", cwd=folder)
    wrong = ["--task", "classification"]
    assert "the rejector is for a regression" in fail("evaluate", "d.parquet", "-r", "r.json", *wrong, cwd=folder)
    assert "rows without logits" in fail("threshold", "d.parquet", "-r", "fitted.json", "--risk", "0.1", cwd=folder)
    columns = ["--prediction", "prediction", "--target", "nothing"]
    assert "'nothing'" in fail("evaluate", "d.parquet", "-r", "r.json", "--task", "regression", *columns, cwd=folder)
    assert "require each other" in fail("fit", "d.parquet", "--loss-column", "variance", cwd=folder)
    assert "rows without logits" in succeed("inspect", "r.json", cwd=folder).decode()
