"""drrej run."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from conftest import fail, load_json, make_model, read_columns, run_here, source, succeed, write_dump, write_mask
from running import drrej as drrej_here

import drrej
from drrej.report import RENDERERS

FILES = ["mask.parquet", "rejector.json", "report.html", "report.json", "report.txt"]


def test_run_is_the_steps_one_after_the_other(tmp_path: Path, val: str, test: str, rejector_file: str) -> None:
    out = tmp_path / "out"
    words = ["run", "--val", val, "--test", test, "--coverage", "0.8", "--loss", "log", "--verbose", "-o", out]
    text = succeed(*words).decode()
    assert sorted(os.listdir(out)) == FILES
    assert (out / "rejector.json").read_bytes() == Path(rejector_file).read_bytes()
    rejector = drrej.Rejector.from_json((out / "rejector.json").read_text())
    report = drrej.evaluate(source(test), rejector)
    assert load_json(out / "report.json") == report
    assert (out / "report.txt").read_text() == text == RENDERERS["text"](report)
    mask, expected = read_columns(out / "mask.parquet"), write_mask(source(test), rejector, tmp_path / "m.parquet")
    assert all((mask[name] == expected[name]).all() for name in expected)


def test_options_of_every_step(tmp_path: Path, val: str, test: str) -> None:
    options = [
        "--quiet",
        "--risk",
        "0.01",
        "--alpha",
        "3",
        "--lambda",
        "2",
        "--loss",
        "zero-one",
        "--precision",
        "float64",
    ]
    out = tmp_path / "out"
    succeed(
        "run", "--val", val, "--test", test, *options, "--memory", "0", "--jobs", "1", "--format", "json", "-o", out
    )
    document = load_json(out / "rejector.json")
    assert document["precision"] == "float64"
    assert [document["ratio"][key] for key in ("alpha", "lambda", "loss")] == [3.0, 2.0, "zero-one"]
    assert document["threshold"]["rule"] == {"kind": "risk", "target": 0.01}


def test_a_failed_gate_still_writes(tmp_path: Path, val: str, test: str) -> None:
    arguments = ["run", "--val", val, "--test", test, "--coverage", "0.8", "--gate", "coverage > 0.9", "-o", tmp_path]
    done = run_here(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith(b"drrej: gate failed: coverage > 0.9: the value is 0.78")
    assert sorted(os.listdir(tmp_path)) == FILES
    assert "it exists already; use --force" in fail(*arguments)
    assert run_here(*arguments, "--force").returncode == 1


def test_an_infeasible_target_writes_nothing(tmp_path: Path, val: str, test: str) -> None:
    options = ["--coverage", "0.999", "--alpha", "9", "--lambda", "0.1"]
    message = fail("run", "--val", val, "--test", test, *options, "-o", tmp_path / "o", code=1)
    assert "--coverage 0.999 cannot be reached: the ratio is 0 on" in message
    assert os.listdir(tmp_path) == []


def test_what_is_wrong_is_said_before_any_work(tmp_path: Path) -> None:
    files = ["--val", "missing", "--test", "missing", "-o", tmp_path / "o"]
    assert "give exactly one rule" in fail("run", *files)
    assert "no metric 'nonsense'" in fail("run", *files, "--tau", "1", "--gate", "nonsense > 1")
    assert "missing: no such file" in fail("run", *files, "--tau", "1")
    assert os.listdir(tmp_path) == []


def test_options_of_the_mask_and_of_the_threshold(tmp_path: Path, val: str, test: str) -> None:
    """--keep, --temperature and --table do what they do in reject, fit and threshold."""
    out, table = tmp_path / "out", tmp_path / "t.csv"
    words = ["--keep", "id", "--temperature", "0.5", "--table", table, "--loss", "log"]
    succeed("run", "--val", val, "--test", test, "--coverage", "0.8", *words, "-o", out)
    assert list(read_columns(out / "mask.parquet")) == ["id", "prediction", "loss", "ratio", "rejected"]
    steps = tmp_path / "steps"
    steps.mkdir()
    succeed("fit", val, "--temperature", "0.5", "--loss", "log", "-o", steps / "f.json")
    succeed(
        "threshold",
        val,
        "-r",
        steps / "f.json",
        "--coverage",
        "0.8",
        "--table",
        steps / "t.csv",
        "-o",
        steps / "r.json",
    )
    assert (out / "rejector.json").read_bytes() == (steps / "r.json").read_bytes()
    assert table.read_bytes() == (steps / "t.csv").read_bytes()
    assert load_json(out / "rejector.json")["calibration"] == {"method": "given", "temperature": 0.5}


def test_rows_without_usable_scores(tmp_path: Path) -> None:
    """The mask rejects them, the report is that of the other rows, and a warning says so."""
    val = write_dump(tmp_path / "val.parquet", *make_model(200, 3, seed=1))
    logits, labels = make_model(100, 3, seed=2)
    good = np.ones(100, bool)
    good[[3, 50, 51]] = False
    broken = np.where(good[:, None], logits, np.nan).astype(np.float32)
    test = write_dump(tmp_path / "test.parquet", broken, labels, row_group=30)
    words = ["run", "--val", val, "--test", test, "--coverage", "0.8", "-o", tmp_path / "out"]
    assert "3 rows have NaN among the scores; the first is row 3" in fail(*words)
    outcome = drrej_here(*words, "--on-bad-row", "reject")
    assert outcome.code == 0
    said = "drrej: warning: 3 of 100 rows have no usable scores and were rejected; the report leaves them out"
    assert said in outcome.lines
    mask, rejector = read_columns(tmp_path / "out" / "mask.parquet"), tmp_path / "out" / "rejector.json"
    assert mask["rejected"][~good].all()
    others = write_dump(tmp_path / "others.parquet", logits[good], labels[good])
    succeed("evaluate", others, "-r", rejector, "-o", tmp_path / "others.json")
    report = load_json(tmp_path / "out" / "report.json")
    del report["left_out"]
    assert report | {"digest": ""} == load_json(tmp_path / "others.json") | {"digest": ""}
    assert report["coverage"]["accepted"] == np.count_nonzero(~mask["rejected"])
    labels[60] = 7
    write_dump(tmp_path / "test.parquet", broken, labels, row_group=30)
    words[-1] = tmp_path / "again"
    assert "column 'label': 1 row has a label outside 0 to 2; row 60" in fail(*words, "--on-bad-row", "reject")
    write_dump(tmp_path / "test.parquet", np.full_like(logits, np.nan), labels * 0)
    assert "100 rows have NaN among the scores" in fail(*words, "--on-bad-row", "reject")
