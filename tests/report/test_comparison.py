"""Several reports side by side."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import pytest
from conftest import SAMPLE
from running import drrej as run_main

from drrej.documents.report import Report
from drrej.pipeline.compare import difference_from


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models' reports, the second also as one that is paired with the first."""
    here = tmp_path_factory.mktemp("compare")
    for name, loss in (("first", "log"), ("second", "zero-one")):
        options = [
            "--val",
            SAMPLE / "val.parquet",
            "--test",
            SAMPLE / "test.parquet",
            "--coverage",
            "0.8",
            "--loss",
            loss,
        ]
        assert run_main("run", *options, "-o", here / name).code == 0
    paired = ["--baseline-dump", SAMPLE / "test.parquet", "--baseline-rejector", here / "first" / "rejector.json"]
    done = run_main(
        "evaluate", SAMPLE / "test.parquet", "-r", here / "second" / "rejector.json", *paired, "--join-on", "id",
        "-o", here / "paired.json",
    )  # fmt: skip
    assert done.code == 0, done.err
    return here


def reports_of(folder: Path, *names: str) -> list[Path]:
    return [folder / name for name in names]


def test_each_model_has_a_row_named_after_its_folder(folder: Path) -> None:
    done = run_main("compare", *reports_of(folder, "first/report.json", "second/report.json"))
    assert done.code == 0, done.err
    lines = done.out.decode().splitlines()
    report = Report.from_json((folder / "first" / "report.json").read_text(), "report")
    assert [line.split()[0] for line in lines[1:3]] == ["first", "second"]
    assert f"{100 * report.coverage.value:.1f} %" in lines[1]
    assert "not paired" in done.out.decode()


def test_values_and_intervals_of_the_csv_are_those_of_the_reports(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    assert run_main("compare", *reports_of(folder, "first/report.json", "second/report.json"), "-o", out).code == 0
    rows = {(row["model"], row["figure"]): row for row in csv.DictReader(io.StringIO(out.read_text()))}
    first, second = (
        Report.from_json((folder / name / "report.json").read_text(), "report") for name in ("first", "second")
    )
    for name, report in (("first", first), ("second", second)):
        for figure in ("coverage", "accuracy", "base_accuracy", "augrc"):
            assert float(rows[name, figure]["value"]) == getattr(report, figure).value
    assert float(rows["second", "accuracy"]["lower"]) == second.accuracy.lower
    gap = second.accuracy.value - first.accuracy.value
    assert float(rows["second", "accuracy"]["difference_value"]) == pytest.approx(gap, abs=1e-15)
    assert rows["first", "accuracy"]["difference_value"] == ""


def test_a_paired_difference_is_used_only_if_it_is_to_the_first_report(folder: Path) -> None:
    first, second, paired = (
        Report.from_json((folder / name).read_text(), "report")
        for name in ("first/report.json", "second/report.json", "paired.json")
    )
    assert difference_from(paired, first) is paired.difference
    apart = difference_from(paired, second)
    assert apart.kind == "reports"
    assert apart.coverage.value == 0.0
    narrow, wide = difference_from(paired, first).accuracy, difference_from(second, first).accuracy
    assert narrow.upper - narrow.lower < wide.upper - wide.lower


@pytest.mark.parametrize("ending", ["md", "tex", "html", "txt", "png", "svg"])
def test_every_format_is_written(folder: Path, tmp_path: Path, ending: str) -> None:
    if ending in ("html", "png", "svg"):
        pytest.importorskip("matplotlib")
    out = tmp_path / f"t.{ending}"
    done = run_main("compare", *reports_of(folder, "first/report.json", "second/report.json"), "-o", out)
    assert done.code == 0, done.err
    content = out.read_bytes()
    assert b"first" in content if ending not in ("png",) else content.startswith(b"\x89PNG")
    assert run_main("compare", *reports_of(folder, "first/report.json", "second/report.json"), "-o", out).code == 2


def test_names_are_escaped_in_tex_and_html(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    outs = [tmp_path / "t.tex", tmp_path / "t.html"]
    named = [f"a_b&<i>={folder / 'first' / 'report.json'}", f"c={folder / 'second' / 'report.json'}"]
    assert run_main("compare", *named, "-o", outs[0], "-o", outs[1]).code == 0
    assert r"a\_b\&<i>" in outs[0].read_text()
    assert "a_b&amp;&lt;i&gt;" in outs[1].read_text()
    assert "<i>" not in outs[1].read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["first/report.json"], "at least two"),
        (["x=first/report.json", "x=second/report.json"], "two reports are called 'x'"),
        (["first/report.json", "first/rejector.json"], "rejector.json"),
        (["first/report.json", "missing.json"], "missing.json"),
        (["first/report.json", "second/report.json", "-o", "t.docx"], "the ending must be one of"),
    ],
)
def test_what_cannot_be_compared_is_said(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    shutil.copytree(folder, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    done = run_main("compare", *words)
    assert done.code == 2
    assert said in done.err
