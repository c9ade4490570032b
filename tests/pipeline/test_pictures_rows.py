"""Rows that a report shows: which ones, with what, and only where asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import fail, make_model, make_rejector, source, succeed, write_dump, write_mask

import drrej
from drrej.pipeline.pictures import MOST_EXAMPLES
from drrej.report import RENDERERS

ROWS = 600


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("rows")
    logits, labels = make_model(ROWS, 3, 14)
    logits[::7] = logits[0]  # ties
    note = pa.array([None if n % 5 == 0 else ("x" * 200 if n % 5 == 1 else f"n{n}") for n in range(ROWS)])
    extra = {"note": note, "blob": pa.array([b"\xff\x00"] * ROWS), "list": pa.array([[1, 2]] * ROWS)}
    path = write_dump(folder / "d.parquet", logits, labels, extra=extra, row_group=100)
    rejector = make_rejector(source(path), ("coverage", 0.6))
    (folder / "r.json").write_text(rejector.to_json())
    mask = write_mask(source(path), rejector, folder / "mask.parquet")
    return {"folder": folder, "path": path, "rejector": rejector, "mask": mask, "labels": labels, "note": note}


def test_the_rows_are_those_of_the_mask(world: dict[str, Any]) -> None:
    options = drrej.EvaluateOptions(examples=["id", "note"])
    found = drrej.evaluate(source(world["path"]), world["rejector"], (), options).examples
    assert found is not None
    assert found.columns == ("id", "note")
    mask, labels = world["mask"], world["labels"]
    rejected = np.flatnonzero(mask["rejected"])
    wrong = np.flatnonzero(~mask["rejected"] & (mask["prediction"] != labels))
    largest = sorted(rejected.tolist(), key=lambda row: (-mask["loss"][row], row))[:MOST_EXAMPLES]
    surest = sorted(wrong.tolist(), key=lambda row: (mask["loss"][row], row))[:MOST_EXAMPLES]
    assert [int(row.values[0]) for row in found.rejected] == largest
    assert [int(row.values[0]) for row in found.wrongly_accepted] == surest
    for row in (*found.rejected, *found.wrongly_accepted):
        number = int(row.values[0])
        assert (row.label, row.prediction) == (str(labels[number]), str(mask["prediction"][number]))
        assert row.loss == mask["loss"][number]
        note = world["note"][number].as_py() or ""
        assert row.values[1] == (note if len(note) <= 60 else note[:57] + "...")


def test_they_do_not_depend_on_blocks_or_threads(world: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    options = drrej.EvaluateOptions(examples=["id", "note", "blob", "list"])
    one = drrej.evaluate(source(world["path"]), world["rejector"], (), options)
    two = drrej.evaluate(source(world["path"], jobs=3), world["rejector"], (), options)
    assert one.examples == two.examples
    assert drrej.Report.from_json(one.to_json()) == one


def test_nothing_is_shown_unless_asked_for(world: dict[str, Any]) -> None:
    report = drrej.evaluate(source(world["path"]), world["rejector"])
    assert report.examples is None
    assert "examples" not in report.tree


def test_they_are_in_text_and_markdown(world: dict[str, Any]) -> None:
    report = drrej.evaluate(source(world["path"]), world["rejector"], (), drrej.EvaluateOptions(examples=["id"]))
    for kind in ("text", "markdown"):
        assert "the most confident errors first" in RENDERERS[kind](report)


def test_what_is_wrong_is_said(world: dict[str, Any], tmp_path: Path) -> None:
    asked = ("evaluate", world["path"], "-r", world["folder"] / "r.json")
    assert "--examples: there is no column 'no'" in fail(*asked, "--examples", "id,no")
    assert "--examples: name the columns" in fail(*asked, "--examples", ",")
    assert "--examples needs labels" in fail(*asked, "--examples", "id", "--no-labels")
    assert "--title is for a page" in fail(*asked, "--title", "T")


def test_a_page_has_a_day_that_can_be_fixed(world: dict[str, Any], tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    asked = ("evaluate", world["path"], "-r", world["folder"] / "r.json", "--model", "resnet", "--title", "Weekly")
    succeed(*asked, "-q", "-o", tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    for part in ("<h1>Weekly</h1>", "<dd>1970-01-02</dd>", "<dd>d.parquet</dd>", "<dd>resnet</dd>", "600 rows"):
        assert part in text
