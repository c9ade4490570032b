"""Ensembles against the same mean by numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import fail, make_model, source, succeed, write_dump
from scipy.special import log_softmax, softmax

import drrej
from drrej.pipeline.ensemble import Member, ensemble


@pytest.fixture
def models(tmp_path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two models on the same rows (a, b and their labels), written to a.parquet and b.parquet in different orders."""
    first, labels = make_model(400, 4, seed=3)
    rng = np.random.default_rng(30)
    second = (first + rng.normal(0.0, 4.0, first.shape)).astype(np.float32)
    for name, logits, order in (("a", first, np.arange(400)), ("b", second, rng.permutation(400))):
        path = write_dump(tmp_path / f"{name}.parquet", logits[order], labels[order], row_group=150)
        table = pq.read_table(path)
        kept = table.drop_columns([column for column in ("id", "key") if column in table.column_names])
        pq.write_table(kept.append_column("key", pa.array(order)), path)
    return first, second, labels


def logits_of(table: pa.Table) -> np.ndarray:
    return np.stack(table["logits"].to_numpy(zero_copy_only=False))


def test_the_mean_is_that_of_numpy(tmp_path: Path, models: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    first, second, labels = models
    members = [Member(source(tmp_path / name)) for name in ("a.parquet", "b.parquet")]
    both = [softmax(logits.astype(np.float64), axis=1) for logits in (first, second)]
    found = ensemble(members, "key")
    assert found["key"].to_pylist() == list(range(400))
    assert (found["label"].to_numpy() == labels).all()
    assert np.exp(logits_of(found)) == pytest.approx((both[0] + both[1]) / 2, rel=1e-5, abs=1e-12)
    logs = logits_of(ensemble(members, "key", "log"))
    expected = softmax((np.log(both[0]) + np.log(both[1])) / 2, axis=1)
    assert softmax(logs, axis=1) == pytest.approx(expected, rel=1e-4, abs=1e-12)
    assert ensemble(members, "key", labelled=False).column_names == ["key", "logits"]


def test_members_are_calibrated_by_their_rejectors(
    tmp_path: Path, models: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> None:
    first, second, _ = models
    succeed("calibrate", "a.parquet", "-o", "a.json", cwd=tmp_path)
    succeed("calibrate", "b.parquet", "--calibrator", "vector", "-o", "b.json", cwd=tmp_path)
    given = ["--member", "a.parquet:a.json", "--member", "b.parquet:b.json", "--join-on", "key"]
    succeed("ensemble", *given, "-o", "both.parquet", cwd=tmp_path)
    cooled, scaled = (
        drrej.Rejector.from_json((tmp_path / name).read_text()).need_calibration() for name in ("a.json", "b.json")
    )
    x = log_softmax(second.astype(np.float64), axis=1)
    p = softmax(first.astype(np.float64) / cooled.temperature, axis=1)
    q = softmax(x * np.array(scaled.vector.weights) + np.array(scaled.vector.biases), axis=1)
    found = logits_of(pq.read_table(tmp_path / "both.parquet"))
    assert np.exp(found) == pytest.approx((p + q) / 2, rel=1e-4, abs=1e-9)
    succeed("run", "both.parquet", "--coverage", "0.8", "-q", "-o", "out", cwd=tmp_path)  # a dump like any other


def test_a_class_of_probability_zero(tmp_path: Path) -> None:
    for name, logits in (("a", [[0.0, -np.inf, 1.0]]), ("b", [[0.0, 1.0, -np.inf]]), ("c", [[-np.inf, 1.0, -np.inf]])):
        write_dump(tmp_path / f"{name}.parquet", np.array(logits, np.float32), np.array([0]))
    members = {name: Member(source(tmp_path / f"{name}.parquet")) for name in "abc"}
    assert np.isneginf(logits_of(ensemble([members["a"], members["b"]], "id", "log"))).tolist() == [[False, True, True]]
    assert np.isfinite(logits_of(ensemble([members["a"], members["b"]], "id"))).all()
    with pytest.raises(drrej.DumpError, match="1 rows have no class that all members give a probability above 0"):
        ensemble([members["a"], members["c"]], "id", "log")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("--member a.parquet", "an ensemble needs two members or more; give another --member"),
        ("--member a.parquet --member short.parquet", "--member short.parquet: 1 rows are without a partner"),
        ("--member a.parquet --member other.parquet", "its classes are not those of the first member"),
        ("--member a.parquet --member b.parquet:none.json", "none.json"),
        ("--member a.parquet --member b.parquet --mean median", "median"),
        ("--member a.parquet --member b.parquet -o x.csv", "-o x.csv: the ensemble is written as .parquet"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, models: tuple[np.ndarray, np.ndarray, np.ndarray], given: str, says: str
) -> None:
    table = pq.read_table(tmp_path / "b.parquet")
    pq.write_table(table.slice(1), tmp_path / "short.parquet")
    fewer = pa.array([row[:3] for row in table["logits"].to_pylist()])
    other = table.set_column(table.column_names.index("logits"), "logits", fewer)
    pq.write_table(
        other.set_column(other.column_names.index("label"), "label", pa.array([0] * 400)), tmp_path / "other.parquet"
    )
    assert models
    assert says in fail("ensemble", "-o", "new.parquet", *given.split(), "--join-on", "key", cwd=tmp_path)
    assert not (tmp_path / "new.parquet").exists()
