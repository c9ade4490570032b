"""drrej sweep: the table over alpha, lambda and loss."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from conftest import fail, make_model, source, succeed, write_dump

import drrej
from drrej.data.dump import Block
from drrej.pipeline.score import ScoredBlock, Scoring
from drrej.pipeline.sweep import Grid, sweep


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Labelled rows."""
    return write_dump(tmp_path_factory.mktemp("sweep") / "d.parquet", *make_model(600, 5, 1), row_group=150)


def test_each_row_says_what_fit_and_threshold_would_do(dump: str) -> None:
    start = drrej.calibrate(source(dump))
    table = sweep(source(dump), start, Grid((1.0, 3.0, 5.0), (0.3, 1.0), ("log", "zero-one")))["table"]
    assert len(table) == 12
    for row in table:
        options = drrej.RatioOptions(row["alpha"], row["lambda"], row["loss"])
        fitted = drrej.fit(source(dump), start, options)
        ends = [drrej.threshold(source(dump), fitted, drrej.Rule("tau", tau)) for tau in (1.0, 0.0)]
        coverage = [rejector.need_threshold().coverage for rejector in ends]
        assert [row["lowest_coverage"], row["highest_coverage"]] == coverage
        assert row["flat_part"] == pytest.approx(1 - coverage[1])
        for percent in (80, 90):
            rule = drrej.Rule("coverage", percent / 100)
            try:
                chosen = drrej.threshold(source(dump), fitted, rule)
            except drrej.Infeasible:
                assert row[f"accuracy_at_{percent}"] is None
                continue
            assert row[f"accuracy_at_{percent}"] == drrej.evaluate(source(dump), chosen)["accuracy"]["value"]
            assert row["augrc"] == drrej.evaluate(source(dump), chosen)["augrc"]["value"]
    assert any(row["accuracy_at_90"] is None for row in table)


def test_alpha_and_lambda_do_not_change_the_order(dump: str) -> None:
    table = sweep(source(dump), drrej.calibrate(source(dump)), Grid((0.0, 1.0, 2.0), (0.5, 2.0), ("brier",)))["table"]
    assert len({row["augrc"] for row in table}) == 1


def test_formats_and_missing_labels(dump: str, tmp_path: Path) -> None:
    options = ["--temperature", "2", "--alpha", "1,3", "--lambda", "1,2", "--loss", "log,brier"]
    tree = json.loads(succeed("sweep", dump, *options, "--format", "json"))
    lines = list(csv.DictReader(io.StringIO(succeed("sweep", dump, *options, "--format", "csv").decode())))
    assert [float(line["augrc"]) for line in lines] == [row["augrc"] for row in tree["table"]]
    text = succeed("sweep", dump, *options).decode()
    assert len(text.splitlines()) == 3 + 8
    bare = write_dump(tmp_path / "bare.parquet", make_model(50, 3, 1)[0])
    succeed("sweep", bare, "--temperature", "1", "--no-labels", "--format", "csv", "-o", tmp_path / "t.csv")
    (line, _) = csv.DictReader((tmp_path / "t.csv").read_text().splitlines())
    assert (line["accuracy_at_80"], line["augrc"]) == ("", "")
    assert 0 < float(line["lowest_coverage"]) <= float(line["highest_coverage"]) <= 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--alpha", "1,x"], "numbers separated by commas"),
        (["--lambda", "0"], "above 0"),
        (["--loss", "learned"], "a sweep takes"),
        (["--alpha", "9999"], "between"),
    ],
)
def test_bad_grids_are_refused(dump: str, arguments: list[str], said: str) -> None:
    assert said in fail("sweep", dump, "--temperature", "1", *arguments)


def test_one_pass_over_the_logits(dump: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start = drrej.calibrate(source(dump))
    seen: list[int] = []
    original = Scoring.__call__

    def counting(scoring: Scoring, block: Block) -> ScoredBlock:
        seen.append(block.rows)
        return original(scoring, block)

    monkeypatch.setattr(Scoring, "__call__", counting)
    sweep(source(dump), start, Grid((1.0, 3.0), (1.0, 2.0), ("log", "zero-one", "brier")))
    assert sum(seen) == 600


def test_the_document_names_a_calibrator_that_is_not_a_temperature(dump: str) -> None:
    plain = sweep(source(dump), drrej.calibrate(source(dump)), Grid())
    vector = drrej.calibrate(source(dump), drrej.CalibrateOptions(calibrator="vector"))
    found = sweep(source(dump), vector, Grid())
    assert "calibrator" not in json.loads(plain.to_json())
    assert json.loads(found.to_json())["calibrator"] == "vector"
    assert found["table"] != plain["table"]
