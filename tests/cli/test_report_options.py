"""What CI reads of a report: errors, warnings and the gate on fresh rows, in every format."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from conftest import succeed
from running import Outcome, drrej


@pytest.fixture(scope="module")
def rejector(tmp_path_factory: pytest.TempPathFactory, val: str) -> str:
    folder = tmp_path_factory.mktemp("report")
    succeed("calibrate", val, "-o", "c.json", cwd=folder)
    succeed("fit", val, "-r", "c.json", "-o", "f.json", cwd=folder)
    succeed("threshold", val, "-r", "f.json", "--coverage", "0.8", "-o", "r.json", cwd=folder)
    return str(folder / "r.json")


def evaluate(*words: str, cwd: Path) -> Outcome:
    return drrej("evaluate", *words, cwd=cwd)


def test_an_error_replaces_the_junit_file_of_an_earlier_run(tmp_path: Path, test: str, rejector: str) -> None:
    words = ["-r", rejector, "--gate", "coverage >= 0.5", "-o", "gates.xml", "--force"]
    assert evaluate(test, *words, cwd=tmp_path).code == 0
    assert evaluate("missing.parquet", *words, cwd=tmp_path).code == 2
    root = ElementTree.parse(tmp_path / "gates.xml").getroot()
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("1", "0", "1")
    error = root.find("testsuite/testcase/error")
    assert error is not None
    assert "missing.parquet: no such file or directory" in str(error.get("message"))


def test_an_error_without_force_leaves_the_file_as_it_was(tmp_path: Path, rejector: str) -> None:
    (tmp_path / "gates.xml").write_text("mine")
    assert evaluate("missing.parquet", "-r", rejector, "-o", "gates.xml", cwd=tmp_path).code == 2
    assert (tmp_path / "gates.xml").read_text() == "mine"


@pytest.mark.parametrize("command", ["evaluate", "monitor", "run"])
def test_an_error_is_an_annotation_of_github(tmp_path: Path, rejector: str, command: str) -> None:
    words = {
        "evaluate": ["missing.parquet", "-r", rejector],
        "monitor": ["state.json", "missing.parquet", "-r", rejector, "--max-risk", "0.1"],
        "run": ["missing.parquet", "--coverage", "0.8", "-o", "out"],
    }[command]
    outcome = drrej(command, *words, "--format", "github", cwd=tmp_path)
    assert outcome.code == 2
    assert outcome.out.decode() == "::error title=drrej::missing.parquet: no such file or directory\n"


@pytest.mark.parametrize("words", ["-ogates.xml", "--output=gates.xml", "-fo gates.xml", "-qfogates.xml"])
def test_an_error_is_in_the_junit_file_however_it_is_named(tmp_path: Path, rejector: str, words: str) -> None:
    assert evaluate("missing.parquet", "-r", rejector, *words.split(), cwd=tmp_path).code == 2
    assert ElementTree.parse(tmp_path / "gates.xml").getroot().get("errors") == "1"
    assert drrej("convert", "missing.parquet", "-o", "other.xml", cwd=tmp_path).code == 2
    assert not (tmp_path / "other.xml").exists()


def test_an_error_has_the_format_that_is_configured(
    tmp_path: Path, rejector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRREJ_FORMAT", "github")
    outcome = evaluate("missing.parquet", "-r", rejector, cwd=tmp_path)
    assert outcome.out.decode() == "::error title=drrej::missing.parquet: no such file or directory\n"
    outcome = evaluate("missing.parquet", "-r", rejector, "--format=junit", cwd=tmp_path)
    assert ElementTree.fromstring(outcome.out).get("errors") == "1"


def test_an_error_is_junit_on_standard_output(tmp_path: Path, rejector: str) -> None:
    outcome = evaluate("missing.parquet", "-r", rejector, "--format", "junit", cwd=tmp_path)
    assert (outcome.code, ElementTree.fromstring(outcome.out).get("errors")) == (2, "1")


def test_warnings_are_in_every_format_also_when_quiet(tmp_path: Path, val: str, rejector: str) -> None:
    said = "some of these rows were used by calibrate, fit and threshold"
    outcome = evaluate(val, "-r", rejector, "-q", "--format", "github", "-o", "g.xml", "-o", "g.json", cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert f"::warning title=drrej::{said}" in outcome.out.decode()
    found = ElementTree.parse(tmp_path / "g.xml").findall("testsuite/properties/property[@name='warning']")
    assert [str(each.get("value")).startswith(said) for each in found] == [True]
    assert json.loads((tmp_path / "g.json").read_text())["seen_by"] == ["calibrate", "fit", "threshold"]


def test_the_gate_fresh(tmp_path: Path, val: str, test: str, rejector: str) -> None:
    seen = evaluate(val, "-r", rejector, "--verbose", "--gate", "fresh", cwd=tmp_path)
    assert seen.code == 1
    assert "FAIL  fresh  (used by calibrate, fit and threshold)" in seen.out.decode()
    assert "drrej: gate failed: fresh: some of these rows were used by calibrate, fit and threshold" in seen.err
    fresh = evaluate(test, "-r", rejector, "--verbose", "--gate", "fresh", cwd=tmp_path)
    assert (fresh.code, fresh.err) == (0, "")
    assert "PASS  fresh  (no step has used these rows)" in fresh.out.decode()
    refused = drrej("monitor", "s.json", test, "-r", rejector, "--max-risk", "0.1", "--gate", "fresh", cwd=tmp_path)
    assert refused.code == 2
    assert "gate 'fresh'" in refused.err
