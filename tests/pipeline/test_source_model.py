"""The model that a rejector was made for: kept everywhere, and said where predictions are of another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import fail, make_model, more_trials, succeed
from running import drrej as command

import drrej
from drrej.errors import DrrejWarning, OptionError

SAMPLE = Path(__file__).parents[2] / "sample_data"
VAL, TEST = SAMPLE / "val.parquet", SAMPLE / "test.parquet"
SAID = "these predictions are of fraud@8, but the rejector was made for fraud@7"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    found: Path = tmp_path_factory.mktemp("model")
    succeed("calibrate", VAL, "--model", "fraud@7", "-o", found / "c.json")
    succeed("fit", VAL, "-r", found / "c.json", "-o", found / "f.json")
    succeed("threshold", VAL, "-r", found / "f.json", "--coverage", "0.8", "-o", found / "r.json")
    return found


def test_steps_keep_the_model_and_refuse_another(folder: Path, tmp_path: Path) -> None:
    for name in ("c", "f", "r"):
        assert json.loads((folder / f"{name}.json").read_text())["model"] == "fraud@7"
    told = fail("fit", VAL, "-r", folder / "c.json", "--model", "fraud@8")
    assert "--model fraud@8: the rejector was started on predictions of fraud@7" in told
    assert "--model: name the model" in fail("calibrate", VAL, "--model", " ")
    succeed("calibrate", VAL, "-o", tmp_path / "c.json")
    succeed("fit", VAL, "-r", tmp_path / "c.json", "--model", "net", "-o", tmp_path / "f.json")
    assert json.loads((tmp_path / "f.json").read_text())["model"] == "net"


@pytest.mark.parametrize(
    "format", ["text", more_trials("markdown"), "github", "junit", more_trials("prometheus"), "json"]
)
def test_every_format_names_both_versions(folder: Path, format: str) -> None:
    asked = ("evaluate", TEST, "-r", folder / "r.json", "--verbose", "--format", format)
    other = command(*asked, "--model", "fraud@8")
    assert (other.code, SAID in other.err, b"fraud@8" in other.out, b"fraud@7" in other.out) == (0, True, True, True)
    same = command(*asked, "--model", "fraud@7")
    assert (same.code, "was made for" in same.err, b"fraud@8" in same.out) == (0, False, False)


def test_the_summary_and_the_page_name_them_too(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    asked = ("evaluate", TEST, "-r", folder / "r.json", "--model", "fraud@8")
    done = command(*asked, "-o", tmp_path / "r.html", "--title", "T")
    assert (done.code, SAID in done.err) == (0, True)
    assert b"predictions of fraud@8; the rejector was made for fraud@7" in done.out
    page = (tmp_path / "r.html").read_text()
    assert "<dt>Model</dt><dd>fraud@8</dd>" in page
    assert SAID[1:] in page


def test_masks_have_it_in_their_metadata(folder: Path, tmp_path: Path) -> None:
    done = command(
        *("reject", TEST, "-r", folder / "r.json", "--model", "fraud@8"),
        *("-o", tmp_path / "m.parquet", "--summary", tmp_path / "s.json"),
    )
    assert SAID in done.err
    assert pq.read_schema(tmp_path / "m.parquet").metadata[b"drrej.model"] == b"fraud@8"
    summary = json.loads((tmp_path / "s.json").read_text())
    assert (summary["model"], summary["rejector_model"]) == ("fraud@8", "fraud@7")
    succeed("reject", TEST, "-r", folder / "r.json", "-o", tmp_path / "n.parquet")
    assert pq.read_schema(tmp_path / "n.parquet").metadata[b"drrej.model"] == b"fraud@7"


GATES = ("--gate", "drift", "--gate", "target", "--gate", "coverage.drop <= 0.05")


def test_gates_tell_whether_a_locked_rejector_still_fits(folder: Path, tmp_path: Path) -> None:
    asked = ("-r", folder / "r.json", "--model", "fraud@8", *GATES, "--verbose")
    same = command("evaluate", TEST, *asked)
    assert same.code == 0
    assert b"PASS  drift  (not detected since the fit (p = " in same.out
    table = pq.read_table(TEST)
    logits = np.array(table["logits"].to_pylist()) * 0.5  # a version that is half as sure
    path = tmp_path / "new.parquet"
    pq.write_table(table.set_column(table.column_names.index("logits"), "logits", [list(logits)]), path)
    moved = command("evaluate", path, *asked, "-o", tmp_path / "r.json")
    report = json.loads((tmp_path / "r.json").read_text())
    assert moved.code == 1
    assert [gate["passed"] for gate in report["gates"]] == [False, False, False]
    chosen = json.loads((folder / "r.json").read_text())["threshold"]
    expected = chosen["accepted"] / chosen["rows"] - report["coverage"]["accepted"] / report["rows"]
    assert abs(report["coverage"]["drop"] - expected) < 1e-12
    assert b"FAIL  drift  (detected since the fit" in moved.out


def test_a_drop_is_not_that_of_a_class(folder: Path) -> None:
    told = fail("evaluate", TEST, "-r", folder / "r.json", "--gate", "coverage[class=1].drop <= 0.1")
    assert "there is no metric" in told


def test_arrays_have_models_too() -> None:
    logits, labels = make_model(500, 3, 5)
    rejector = drrej.fit_rejector(logits, labels, coverage=0.8, model="net@1")
    assert rejector.model == "net@1"
    assert rejector.evaluate(logits, labels).model == "net@1"
    with pytest.warns(DrrejWarning, match="of net@2, but the rejector was made for net@1"):
        report = rejector.evaluate(logits, labels, ["coverage.drop <= 0.01"], model="net@2")
    assert (report.model, report.rejector_model, report.failed_gates) == ("net@2", "net@1", ())
    with pytest.raises(OptionError, match="`model`: name the model"):
        drrej.fit_rejector(logits, labels, coverage=0.8, model="")
