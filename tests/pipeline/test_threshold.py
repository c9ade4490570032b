"""drrej threshold."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from conftest import fail, make_model, read_columns, succeed, write_dump

import drrej


def choose(val: str, documents: Path, *rule: str) -> dict[str, object]:
    threshold: dict[str, object] = json.loads(succeed("threshold", val, "-r", documents / "fitted.json", *rule))[
        "threshold"
    ]
    return threshold


def test_coverage(val: str, documents: Path) -> None:
    fitted, done = documents / "fitted.json", (documents / "rejector.json").read_bytes()
    assert succeed("threshold", val, "-r", "-", "--coverage", "0.8", stdin=fitted.read_bytes()) == done
    assert succeed("threshold", val, "-r", documents / "rejector.json", "--coverage", "0.8") == done
    threshold = json.loads(done)["threshold"]
    assert (threshold["rows"], threshold["accepted"]) == (1648, 1319)  # the smallest whole number above 0.8 * 1648
    assert threshold["coverage"] == 1319 / 1648
    assert "accuracy" not in threshold


def test_full_coverage_has_no_cutoff(val: str, documents: Path) -> None:
    threshold = choose(val, documents, "--coverage", "1")
    assert (threshold["cutoff"], threshold["tau"], threshold["coverage"]) == (None, 0.0, 1.0)


def test_tau(val: str, documents: Path) -> None:
    threshold = choose(val, documents, "--tau", "0.5")
    assert threshold["tau"] == 0.5
    assert threshold["rule"] == {"kind": "tau", "target": 0.5}
    above_one = choose(val, documents, "--tau", "1.02")
    assert above_one["coverage"] < choose(val, documents, "--tau", "1")["coverage"]


def test_max_loss(val: str, documents: Path) -> None:
    threshold = choose(val, documents, "--max-loss", "0.25")
    assert threshold["cutoff"] == 0.25
    assert threshold["rule"] == {"kind": "max-loss", "target": 0.25}


def test_risk_and_mask(tmp_path: Path, val: str, documents: Path) -> None:
    target, mask = tmp_path / "r.json", tmp_path / "mask.parquet"
    command = ["threshold", val, "-r", documents / "fitted.json", "--risk", "0.005", "-o", target, "--mask", mask]
    assert succeed(*command).startswith(b"Accepts ")
    threshold = json.loads(target.read_text())["threshold"]
    columns = read_columns(mask)
    accepted = ~columns["rejected"]
    wrong = (columns["prediction"] != columns["label"])[accepted].sum()
    assert threshold["accepted"] == accepted.sum()
    assert threshold["accuracy"] == (accepted.sum() - wrong) / accepted.sum()
    assert wrong / accepted.sum() <= 0.005
    following = columns["loss"] <= threshold["cutoff"]
    assert (columns["prediction"] != columns["label"])[following].mean() > 0.005
    assert "it exists already" in fail(*command)
    succeed(*command, "--force")


@pytest.mark.parametrize("rule", [["--risk", "0"], ["--coverage", "0.99"]])
def test_an_infeasible_target_writes_nothing(tmp_path: Path, rule: list[str]) -> None:
    logits, labels = make_model(200, 3, seed=1)
    sure = logits.argmax(axis=1) == labels
    logits[sure] = 0.1 * logits[sure]  # the surest rows are wrong
    path = write_dump(tmp_path / "d.parquet", logits, labels)
    succeed("fit", path, "--temperature", "1", "--alpha", "5", "--lambda", "0.05", "-o", tmp_path / "r.json")
    message = fail("threshold", path, "-r", tmp_path / "r.json", *rule, "-o", tmp_path / "out.json", code=1)
    assert "cannot be reached" in message
    assert sorted(os.listdir(tmp_path)) == ["d.parquet", "r.json"]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ([], "give exactly one rule"),
        (["--tau", "1", "--coverage", "0.5"], "(found: --coverage and --tau)"),
        (["--coverage", "1.5"], "--coverage 1.5: it must be above 0 and at most 1"),
    ],
)
def test_rules_that_make_no_sense(val: str, documents: Path, rule: list[str], message: str) -> None:
    assert message in fail("threshold", val, "-r", documents / "fitted.json", *rule)


def test_a_missing_section_names_the_command_to_run(val: str, documents: Path) -> None:
    assert "run 'drrej fit' first" in fail("threshold", val, "-r", documents / "calibrated.json", "--tau", "1")


def test_remembered_columns_serve_later_steps(tmp_path: Path) -> None:
    logits, labels = make_model(120, 3, seed=5)
    path = write_dump(tmp_path / "d.parquet", logits, None, "wide", extra={"truth": labels, "x": np.zeros(120)})
    document = tmp_path / "r.json"
    succeed("calibrate", path, "--logits", "logit_*", "--label", "truth", "-o", document)
    succeed("fit", path, "-r", document, "-o", document)
    succeed("threshold", path, "-r", document, "-o", document, "--risk", "0.3")
    report = json.loads(succeed("evaluate", path, "-r", document, "--format", "json"))
    assert report["coverage"]["accepted"] == drrej.Rejector.from_json(document.read_text()).need_threshold().accepted
