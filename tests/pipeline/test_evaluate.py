"""drrej evaluate."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from conftest import fail, load_json, make_model, run_here, succeed, write_dump

import drrej
from drrej.report import RENDERERS


def test_text_on_standard_output_and_files_by_their_ending(tmp_path: Path, test: str, rejector_file: str) -> None:
    as_json, as_text = tmp_path / "report.json", tmp_path / "report.txt"
    text = succeed("evaluate", test, "-r", rejector_file, "--verbose", "-o", as_json, "-o", as_text)
    report = drrej.Report.from_json(as_json.read_text())
    assert text.decode() == as_text.read_text() == RENDERERS["text"](report)
    assert as_json.read_text() == RENDERERS["json"](report)
    assert "it exists already" in fail("evaluate", test, "-r", rejector_file, "-o", as_json)
    again = succeed("evaluate", test, "-r", rejector_file, "-f", "-o", as_json, "--format", "json", "--jobs", "1")
    assert again == as_json.read_bytes()


def test_a_dash_is_standard_output_in_the_chosen_format(test: str, rejector_file: str) -> None:
    text = succeed("evaluate", test, "-r", "-", "-o", "-", stdin=Path(rejector_file).read_bytes())
    assert text.decode().startswith("2060 rows, 6 classes; rejects rows with a loss of")


def test_failed_gates_exit_1_and_still_write(tmp_path: Path, test: str, rejector_file: str) -> None:
    target = tmp_path / "report.json"
    gates = ["--gate", "coverage >= 0.99", "--gate", "base_accuracy > 0.9", "--gate", "rows<10"]
    done = run_here("evaluate", test, "-r", rejector_file, *gates, "--verbose", "-o", target)
    assert done.returncode == 1
    report = drrej.Report.from_json(target.read_text())
    assert [gate["passed"] for gate in report["gates"]] == [False, True, False]
    assert done.stdout.decode() == RENDERERS["text"](report)
    coverage, rows = done.stderr.decode().splitlines()
    assert coverage.startswith("drrej: gate failed: coverage >= 0.99: the value is 0.78")
    assert rows == "drrej: gate failed: rows < 10: the value is 2060"


def test_a_gate_is_not_rounded(test: str, rejector_file: str) -> None:
    report = json.loads(succeed("evaluate", test, "-r", rejector_file, "--format", "json"))
    value = report["base_accuracy"]["value"]
    assert run_here("evaluate", test, "-r", rejector_file, "--gate", f"base_accuracy >= {value!r}").returncode == 0
    done = run_here("evaluate", test, "-r", rejector_file, "--gate", f"base_accuracy > {value!r}")
    assert done.returncode == 1
    assert done.stderr.decode() == f"drrej: gate failed: base_accuracy > {value!r}: the value is {value!r}\n"


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ("acuracy > 0.9", "there is no metric 'acuracy'"),
        ("accuracy", "quote the gate"),
        ("accuracy.convention > 1", "there is no metric 'accuracy.convention'"),
        ("curve > 1", "there is no metric 'curve'"),
    ],
)
def test_gates_that_can_say_nothing_are_refused_before_any_work(tmp_path: Path, gate: str, message: str) -> None:
    assert message in fail(
        "evaluate", "missing.parquet", "-r", "missing.json", "--gate", gate, "-o", tmp_path / "r.json"
    )
    assert os.listdir(tmp_path) == []


def test_a_gate_on_an_undefined_figure_is_exit_2(tmp_path: Path, val: str, test: str, documents: Path) -> None:
    strict = tmp_path / "strict.json"
    succeed("threshold", val, "-r", documents / "fitted.json", "--tau", "1000", "-o", strict)
    message = fail("evaluate", test, "-r", strict, "--gate", "accuracy >= 0.5")
    assert message.startswith("gate 'accuracy >= 0.5': accuracy is undefined on these rows")
    assert run_here("evaluate", test, "-r", strict, "--gate", "coverage <= 0").returncode == 0


def test_an_ending_without_a_format_is_an_error(test: str, rejector_file: str, tmp_path: Path) -> None:
    message = fail("evaluate", test, "-r", rejector_file, "-o", tmp_path / "report.docx")
    assert "the ending determines the format; use one of .txt, .json" in message


def test_a_missing_section_names_the_command_to_run(test: str, documents: Path) -> None:
    assert "run 'drrej threshold' first" in fail("evaluate", test, "-r", documents / "fitted.json")


@pytest.mark.parametrize("sure", [1.0, 0.9, 0.3])
def test_a_coverage_is_not_met_by_rows_that_all_tie(tmp_path: Path, sure: float) -> None:
    """Scores that say the same of most rows: accepting them all together is no decision."""
    logits, labels = make_model(1000, 4, seed=5)
    logits[: int(1000 * sure)] = [9.5, -0.5, -1.5, -2.5]
    labels[: int(1000 * sure)] = 0
    dump = write_dump(tmp_path / "d.parquet", logits, labels)
    succeed("fit", dump, "--temperature", "1", "--loss", "zero-one", "-o", tmp_path / "f.json")
    succeed("threshold", dump, "-r", tmp_path / "f.json", "--coverage", "0.8", "-o", tmp_path / "r.json")
    done = run_here("evaluate", dump, "-r", tmp_path / "r.json", "-o", tmp_path / "report.json")
    report = load_json(tmp_path / "report.json")
    assert report["target"]["verdict"] == "inconclusive"  # of few ties, because the interval contains 80 %
    assert report.get("tied_rows") == (1000 * sure if sure > 0.5 else None)
    assert ("rows have the same loss" in done.stderr.decode()) == (sure > 0.5)
    assert ("most rows have the same loss" in done.stdout.decode()) == (sure > 0.5)
