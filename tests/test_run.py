"""drrej run."""

from __future__ import annotations

import os
from pathlib import Path

from conftest import fail, load_json, read_columns, run_drrej, source, succeed, write_mask

import drrej
from drrej.report import RENDERERS

FILES = ["mask.parquet", "rejector.json", "report.json", "report.txt"]


def test_run_is_the_steps_one_after_the_other(tmp_path: Path, val: str, test: str, rejector_file: str) -> None:
    out = tmp_path / "out"
    text = succeed("run", "--val", val, "--test", test, "--coverage", "0.8", "-o", out).decode()
    assert sorted(os.listdir(out)) == FILES
    assert (out / "rejector.json").read_bytes() == Path(rejector_file).read_bytes()
    rejector = drrej.Rejector.from_json((out / "rejector.json").read_text())
    report = drrej.evaluate(source(test), rejector)
    assert load_json(out / "report.json") == report
    assert (out / "report.txt").read_text() == text == RENDERERS["text"](report)
    mask, expected = read_columns(out / "mask.parquet"), write_mask(source(test), rejector, tmp_path / "m.parquet")
    assert all((mask[name] == expected[name]).all() for name in expected)


def test_options_of_every_step(tmp_path: Path, val: str, test: str) -> None:
    options = ["--risk", "0.01", "--alpha", "3", "--lambda", "2", "--loss", "zero-one", "--precision", "float64"]
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
    done = run_drrej(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith(b"drrej: gate failed: coverage > 0.9: the value is 0.78")
    assert sorted(os.listdir(tmp_path)) == FILES
    assert "it exists already; use --force" in fail(*arguments)
    assert run_drrej(*arguments, "--force").returncode == 1


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
