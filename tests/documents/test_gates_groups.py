"""Gates on one class or group, limits that are percentages, and the catalogue as a command; the confusion matrix."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import fail, make_model, make_rejector, source, succeed, texts, write_dump, write_mask
from hypothesis import given
from scipy import stats

import drrej
from drrej.documents.document import When
from drrej.documents.gates import catalogue, check_gate, group_metrics, of_member
from drrej.errors import GateError
from drrej.pipeline.figures import MOST_CLASSES, confusion_matrix
from drrej.report import RENDERERS

ROWS = 900
NAMES = ("cat", "a dog", "b]ird")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A dump with named classes and sites, a rejector, its mask and its report."""
    folder = tmp_path_factory.mktemp("groups")
    logits, labels = make_model(ROWS, 3, 8)
    site = np.array(["eu", "us"])[np.arange(ROWS) % 2]
    extra = {"site": pa.array(site)}
    dump = source(write_dump(folder / "d.parquet", logits, labels, extra=extra), classes=NAMES)
    rejector = make_rejector(dump, ("coverage", 0.7))
    (folder / "r.json").write_text(rejector.to_json())
    mask = write_mask(dump, rejector, folder / "mask.parquet")
    report = drrej.evaluate(dump, rejector, (), drrej.EvaluateOptions(by="site"))
    names = np.array(NAMES)
    return {
        "path": folder / "d.parquet", "rejector": folder / "r.json", "dump": dump, "document": rejector,
        "report": report, "label": names[labels], "site": site, "accepted": ~mask["rejected"],
        "prediction": mask["prediction"].astype(str),
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "member"), [("class", "a dog"), ("class", "b]ird"), ("group", "eu")])
def test_figures_of_a_slice_are_those_of_its_rows(world: dict[str, Any], kind: str, member: str) -> None:
    """Counted again from the mask, row by row; intervals by scipy."""
    inside = world["label" if kind == "class" else "site"] == member
    accepted = inside & world["accepted"]
    wrong = int((accepted & (world["prediction"] != world["label"])).sum())
    rows, kept = int(inside.sum()), int(accepted.sum())
    lower = stats.beta.ppf(0.025, kept - wrong, wrong + 1)
    known = {
        "rows": rows, "coverage": kept / rows, "coverage.accepted": kept, "accuracy": (kept - wrong) / kept,
        "accuracy.lower": lower, "accuracy.errors": wrong, "risk": wrong / kept, "errors": wrong,
        "coverage.upper": stats.beta.ppf(0.975, kept + 1, rows - kept),
    }  # fmt: skip
    for path, value in known.items():
        head, dot, part = path.partition(".")
        gate = drrej.Gate.parse(f"{head}[{kind}={member}]{dot}{part} > -1e300")
        assert gate.judge(world["report"]).value == pytest.approx(value, rel=1e-9), path
        quoted = drrej.Gate.parse(f"{head}[{kind}='{member}']{dot}{part} > -1e300")
        assert quoted.judge(world["report"]).value == gate.judge(world["report"]).value


@pytest.mark.parametrize("number", range(3))
def test_figures_of_a_class_are_those_of_scikit_learn(world: dict[str, Any], number: int) -> None:
    """On the accepted rows; intervals by scipy, at a share of the level for 5 figures of 3 classes."""
    from sklearn.metrics import precision_recall_fscore_support

    member, kept = NAMES[number], world["accepted"]
    truth, guess = world["label"] == member, world["prediction"] == member
    found = precision_recall_fscore_support(truth[kept], guess[kept], average="binary")
    missed = int((truth & kept & ~guess).sum())
    others = int((kept & ~guess).sum())
    known = {
        "precision": found[0], "ppv": found[0], "recall": found[1], "sensitivity": found[1], "f1": found[2],
        "npv": 1 - missed / others, "missed": missed / truth.sum(), "reviewed": (truth & ~kept).sum() / truth.sum(),
        "miss_rate.upper": stats.beta.ppf(1 - 0.025 / 15, missed + 1, truth.sum() - missed),
    }  # fmt: skip
    for path, value in known.items():
        head, dot, part = path.partition(".")
        gate = drrej.Gate.parse(f"{head}[class={member}]{dot}{part} >= 0")
        check_gate(gate, [When.LABELS])
        assert gate.judge(world["report"]).value == pytest.approx(value, rel=1e-9), path


def test_the_worst_class_is_a_gate_too(world: dict[str, Any]) -> None:
    report = world["report"]
    for name, choose in (("precision", min), ("recall", min), ("missed", max), ("reviewed", max)):
        worst = choose(report.per_class, key=lambda row: getattr(row, name).value)
        assert report["worst_class"][name]["group"] == worst.class_
        assert drrej.Gate.parse(f"worst_class.{name} >= 0").judge(report).value == getattr(worst, name).value
    assert drrej.Gate.parse("worst_class.ppv.lower > 0").judge(report).value == report.worst_class.precision.lower
    listed = succeed("metrics", "ppv").decode()
    assert "precision[class=NAME]" in listed
    assert "worst_class.precision" in listed


def test_the_catalogue_has_what_classes_and_groups_can_name(world: dict[str, Any]) -> None:
    for kind, member, when in (("class", "cat", When.LABELS), ("group", "us", When.GROUPS)):
        for metric in group_metrics(kind, member):
            gate = drrej.Gate.parse(f"{metric.name} > -0")
            check_gate(gate, [when])
            assert gate.judge(world["report"]).limit == 0


def test_gates_on_classes_and_groups_end_to_end(world: dict[str, Any]) -> None:
    asked = ("evaluate", world["path"], "-r", world["rejector"], "--verbose", "--report-by", "site")
    out = succeed(*asked, "--gate", "accuracy[class=cat] >= 0.1", "--gate", "risk[group=eu].upper<0.9")
    assert b"PASS  accuracy[class=cat] >= 0.1" in out
    report = drrej.evaluate(
        world["dump"], world["document"], [drrej.Gate.parse("errors[class=a dog] <= 1000")],
    )  # fmt: skip
    assert drrej.Report.from_json(report.to_json()) == report


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ("accuracy[class=cet] > 0", "there is no class 'cet'; did you mean cat?"),
        ("accuracy[class=7] > 0", "there is no class '7'; there are cat, a dog, b]ird"),
        ("acuracy[class=cat] > 0", "did you mean accuracy"),
        ("accuracy.lower[class=cat] > 0", "there is no metric"),
        ("accuracy[klass=cat] > 0", "cannot be read"),
        ("base_accuracy[class=cat] > 0", "there is no metric"),
        ("accuracy@coverage=0.9[class=cat] > 0", "not a point of the curve"),
        ("accuracy[group=eu] > 0", "it needs --report-by COL"),
        ("accuracy >= 99", "accuracy is a share from 0 to 1; for 99 % write 0.99"),
        ("accuracy[class=cat] >= 97.5", "for 97.5 % write 0.975"),
        ("risk.upper <= 5", "for 5 % write 0.05"),
        ("coverage@accuracy=0.98 >= 80", "for 80 % write 0.8"),
        ("coverage@accuracy=98 >= 0.8", "for 98 % write 0.98"),
        ("accuracy >= -0.5", "is a share from 0 to 1; the gate would always pass or always fail"),
        ("drift.p_value >= 5", "is a p-value from 0 to 1; for 5 % write 0.05"),
        ("acuracy >= 0.9", "did you mean accuracy"),
        ("coverage@precision=0.9 > 0", "not a point of the curve"),
        ("ppv > 0", "of all rows; write precision[class=NAME] for one class, or worst_class.precision"),
        ("recall.lower > 0", "write recall[class=NAME].lower for one class, or worst_class.recall.lower"),
        ("recall[group=eu] > 0", "it needs --report-by COL"),
    ],
)
def test_gates_that_are_refused(world: dict[str, Any], gate: str, said: str) -> None:
    assert said in fail("evaluate", world["path"], "-r", world["rejector"], "--gate", gate)


@pytest.mark.parametrize(("gate", "end"), [("f1 > 0", "f1[class=NAME]"), ("npv.lower > 0", "npv[class=NAME].lower")])
def test_no_metric_is_proposed_that_does_not_exist(world: dict[str, Any], gate: str, end: str) -> None:
    """The worst class is named for figures that have one."""
    message = fail("evaluate", world["path"], "-r", world["rejector"], "--gate", gate)
    assert message.endswith(f"of all rows; write {end} for one class")


def test_a_group_without_rows(world: dict[str, Any]) -> None:
    asked = ("evaluate", world["path"], "-r", world["rejector"], "--report-by", "site", "--gate")
    assert "no row belongs to group 'ue'; there are eu, us" in fail(*asked, "accuracy[group=ue] > 0")


def test_differences_are_no_percentages_either() -> None:
    check_gate(drrej.Gate.parse("difference.accuracy.lower >= -0.005"), [When.BASELINE])
    with pytest.raises(GateError, match=r"for -2 % write -0\.02"):
        check_gate(drrej.Gate.parse("difference.accuracy.lower >= -2"), [When.BASELINE])


@given(texts(1).filter(lambda name: "\n" not in name))
def test_any_name_of_a_class_can_be_written(name: str) -> None:
    assert of_member(f"accuracy[class='{name}'].lower") == ("accuracy.lower", "class", name)


def test_a_coverage_at_an_accuracy_is_one_at_a_risk(world: dict[str, Any]) -> None:
    gates = [drrej.Gate.parse(text) for text in ("coverage@accuracy=0.93 >= 0", "coverage@risk=0.07 >= 0")]
    report = drrej.evaluate(world["dump"], world["document"], gates)
    assert report.gates[0].value == report.gates[1].value
    assert drrej.Report.from_json(report.to_json()) == report


# drrej metrics


def test_the_command_lists_the_catalogue() -> None:
    listed = json.loads(succeed("metrics", "--format", "json"))
    assert [row["name"] for row in listed[: len(catalogue())]] == [metric.name for metric in catalogue()]
    text = succeed("metrics").decode()
    for metric in catalogue():
        head = metric.name.rpartition(".")[0]
        assert metric.name in text or f"{head} " in text or head.rpartition(".")[0] in text
    assert "\naccuracy                   Share of the accepted rows whose prediction is right.\n" in text
    assert "needs --report-by COL" in text
    assert "accuracy[class=NAME]" in text


def test_words_narrow_the_list() -> None:
    text = succeed("metrics", "naurc").decode()
    assert text.startswith("naurc ")
    assert len(text.splitlines()) == 2
    assert "no metric has nonsense in its name" in fail("metrics", "nonsense")
    assert "\nmse  " in succeed("metrics", "--regression").decode()


# The confusion matrix


def test_the_matrix_is_counted_from_the_mask(world: dict[str, Any]) -> None:
    matrix = world["report"].confusion
    pairs = Counter(zip(world["label"][world["accepted"]], world["prediction"][world["accepted"]], strict=True))
    assert matrix.others == 0
    for row in matrix.rows:
        assert row.predicted == tuple(pairs[row.class_, name] for name in NAMES)
        assert row.rejected == int(((world["label"] == row.class_) & ~world["accepted"]).sum())


def test_the_matrix_of_many_classes_adds_up() -> None:
    rng = np.random.default_rng(4)
    classes, rows = 40, 5000
    labels, right, accepted = rng.integers(0, classes, rows), rng.random(rows) < 0.7, rng.random(rows) < 0.8
    prediction = np.where(right, labels, (labels + 1 + (labels % 3)) % classes)
    counts = np.bincount(labels * 4 + accepted * 2 + right, minlength=4 * classes).reshape(-1, 4)
    wrong = accepted & ~right
    matrix = confusion_matrix(counts, labels[wrong] * classes + prediction[wrong], list(map(str, range(classes))))
    assert len(matrix.rows) == MOST_CLASSES
    assert matrix.others == classes - MOST_CLASSES + 1
    shown = [int(row.class_) for row in matrix.rows[:-1]]
    for row, number in zip(matrix.rows, shown, strict=False):
        mine = accepted & (labels == number)
        expected = [int((mine & (prediction == other)).sum()) for other in shown]
        assert list(row.predicted) == [*expected, int((mine & ~np.isin(prediction, shown)).sum())]
    assert sum(sum(row.predicted) + row.rejected for row in matrix.rows) == rows
    involved = np.bincount(labels[wrong], minlength=classes) + np.bincount(prediction[wrong], minlength=classes)
    assert min(involved[shown]) >= max(np.delete(involved, shown))


def test_every_format_has_the_matrix(world: dict[str, Any], tmp_path: Path) -> None:
    for kind in ("text", "markdown"):
        assert "true class" in RENDERERS[kind](world["report"])
        assert "rejected" in RENDERERS[kind](world["report"])
