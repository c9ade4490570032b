"""The report for people: figures, tables, what is left out."""

from __future__ import annotations

import json

import pytest
from conftest import source
from msgspec.structs import replace

import drrej
from drrej.documents.figures import Accuracy
from drrej.documents.report import ClassRow
from drrej.report import ENDINGS, PLOTS, RENDERERS
from drrej.report.tables import MOST_CLASSES
from drrej.report.text import render_text
from drrej.report.words import figure


@pytest.fixture(scope="module")
def report(rejector_file: str, test: str) -> drrej.Report:
    with open(rejector_file, encoding="utf-8") as stream:
        rejector = drrej.Rejector.from_json(stream.read())
    return drrej.evaluate(source(test), rejector, [drrej.Gate.parse("accuracy >= 0.9"), drrej.Gate.parse("rows < 9")])


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (None, 4, "-"),
        (7, 4, "7"),
        (0.0, 4, "0.0000"),
        (0.97573, 4, "0.9757"),
        (1.0, 4, "1.0000"),
        (0.0099, 4, "9.900e-03"),
        (-0.0012, 4, "-1.200e-03"),
        (0.000957, 6, "0.000957"),
        (0.0000957, 6, "9.57000e-05"),
        (123.4, 4, "123.4000"),
    ],
)
def test_figures(value: float | None, digits: int, text: str) -> None:
    assert figure(value, digits) == text


def test_the_keys_of_the_contract(report: drrej.Report) -> None:
    assert report["format"] == "drrej-report/1"
    assert {
        "drrej_version", "rows", "classes", "tau", "cutoff", "coverage", "accuracy", "base_accuracy", "nll", "ece",
        "brier", "aurc", "e_aurc", "augrc", "ratio", "curve", "per_class", "gates",
    } <= set(report)  # fmt: skip
    assert set(report["coverage"]) == {"value", "lower", "upper", "accepted", "drop"}
    assert set(report["accuracy"]) == set(report["base_accuracy"]) == {"value", "lower", "upper", "errors"}
    for name in ("nll", "ece", "brier"):
        assert set(report[name]) == {"uncalibrated", "all", "accepted"}
    for name in ("aurc", "e_aurc", "augrc"):
        assert {"value", "convention"} <= set(report[name])
    assert {"mean", "std_error"} <= set(report["ratio"])
    assert [point["tau"] for point in report["curve"]] == [step / 50 for step in range(1, 51)]
    assert {"class", "rows", "coverage", "accuracy"} <= set(report["per_class"][0])
    assert report["gates"] == [
        {"gate": "accuracy >= 0.9", "value": report["accuracy"]["value"], "limit": 0.9, "passed": True},
        {"gate": "rows < 9", "value": 2060.0, "limit": 9.0, "passed": False},
    ]


def test_json_is_the_document_itself(report: drrej.Report) -> None:
    assert json.loads(RENDERERS["json"](report)) == report


def test_every_ending_has_a_renderer() -> None:
    assert set(ENDINGS.values()) == {*RENDERERS, *PLOTS} - {"github"}


def test_text_has_the_figures_and_no_wide_lines(report: drrej.Report) -> None:
    text = render_text(report)
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 100
    assert all(line == line.rstrip() for line in text.splitlines())
    accepted = report["coverage"]["accepted"]
    assert f"{accepted} of 2060 accepted" in text
    assert f"{report['accuracy']['value']:.4f}" in text
    assert f"{report['aurc']['value']:.6f}" in text
    assert "PASS  accuracy >= 0.9" in text
    assert "FAIL  rows < 9  (value 2060)" in text


def test_the_curve_has_taus_with_two_decimals(report: drrej.Report) -> None:
    lines = render_text(report).split("tau ", 1)[1].splitlines()[1:11]
    assert [line.split()[0] for line in lines] == [f"{step / 10:.2f}" for step in range(1, 11)]


def test_undefined_figures_are_dashes(report: drrej.Report) -> None:
    nothing = replace(report.coverage, value=0.0, accepted=0)
    empty = Accuracy(value=None, lower=None, upper=None, errors=0)
    text = render_text(replace(report, coverage=nothing, accuracy=empty, tau=None, cutoff=None))
    assert "rejects nothing\n" in text
    (line,) = (line for line in text.splitlines() if line.startswith("accuracy "))
    assert line.split() == ["accuracy", "-", "-", "0", "errors"]


def test_many_classes_show_those_with_the_lowest_accuracy(report: drrej.Report) -> None:
    rows = tuple(
        ClassRow(class_=f"c{i}", rows=5, coverage=1.0, accuracy=None if i % 10 == 3 else i / 100) for i in range(100)
    )
    text = render_text(replace(report, per_class=rows))
    shown = [line.split()[0] for line in text.splitlines() if line.startswith("c") and line.split()[1:2] == ["5"]]
    assert len(shown) == MOST_CLASSES
    assert shown[:11] == [f"c{i}" for i in range(3, 100, 10)] + ["c0"]
    assert "(the 20 of 100 classes with the lowest accuracy)" in text
