"""What is said, or refused, where the labels of a report cannot be what they are taken for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import make_model, make_rejector, source, write_dump
from running import drrej as run

import drrej
from drrej.errors import DrrejWarning, DumpError, OptionError
from drrej.pipeline.compare import BaselineDump
from drrej.pipeline.evaluate import evaluate
from drrej.report import RENDERERS
from drrej.report.brief import render_brief
from drrej.report.words import warnings_of

CLASSES, ROWS = 4, 600


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("world")
    logits, labels = make_model(2000, CLASSES, seed=1)
    rejector = make_rejector(source(write_dump(folder / "val.parquet", 3 * logits, labels)))
    rejector.save(folder / "r.json")
    logits, labels = make_model(ROWS, CLASSES, seed=2)
    sharp = np.where(np.arange(ROWS) % 20, np.argmax(logits, axis=1), labels)  # nearly all right
    return {"folder": folder, "rejector": rejector, "logits": logits, "labels": sharp}


def report_on(world: dict[str, Any], path: Path, labels: np.ndarray, rows: slice = slice(None), **options: Any) -> Any:
    dump = source(write_dump(path, world["logits"][rows], labels[rows]))
    return drrej.evaluate(dump, world["rejector"], options=drrej.EvaluateOptions(**options))


# Below chance


def test_labels_that_are_permuted_are_noticed(world: dict[str, Any], tmp_path: Path) -> None:
    right = report_on(world, tmp_path / "a.parquet", world["labels"])
    assert right.below_chance is None
    swapped = report_on(world, tmp_path / "b.parquet", np.array([1, 0, 3, 2])[world["labels"]])
    assert "below chance (25.0 %); labels or class order may be swapped" in swapped.below_chance
    share = 100 * right.base_accuracy.value
    assert (
        f"{share:.1f} % would be right if the predictions '1', '0', '3', '2' were '0', '1', '2', '3'"
        in swapped.below_chance
    )
    assert swapped.below_chance in RENDERERS["text"](swapped).replace("\n", " ")
    assert swapped.below_chance in RENDERERS["github"](swapped).replace("%25", "%")


def test_a_score_that_is_the_wrong_way_round_is_noticed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    score = rng.uniform(size=1600)
    right = rng.uniform(size=1600) < 0.5 + 0.5 * score
    flags = ["--score", "s", "--correct", "correct"]
    for name, values in {"val": score[:800], "good": score[800:], "turned": 1 - score[800:]}.items():
        table = pa.table({"s": values, "correct": right[800:] if name != "val" else right[:800]})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    made = run("run", "val.parquet", *flags, "--coverage", "0.6", "-o", "out", "-q", cwd=tmp_path)
    assert made.code == 0, made.err
    words = "accepted rows are right less often"
    for name in ("good", "turned"):
        dump = [f"{name}.parquet", "-r", "out/rejector.json"]
        told = run("evaluate", *dump, cwd=tmp_path).err, run("monitor", f"{name}.json", *dump, cwd=tmp_path).err
        assert [words in err for err in told] == [name == "turned"] * 2, told


def test_noise_is_not_below_chance_and_has_no_best_order(world: dict[str, Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    assert report_on(world, tmp_path / "a.parquet", rng.integers(0, CLASSES, ROWS)).below_chance is None
    never = (world["labels"] + rng.integers(1, CLASSES, ROWS)) % CLASSES  # any class but the right one
    said = report_on(world, tmp_path / "b.parquet", never).below_chance
    assert said.endswith("labels or class order may be swapped")


def test_the_command_warns(world: dict[str, Any], tmp_path: Path) -> None:
    write_dump(tmp_path / "d.parquet", world["logits"], (world["labels"] + 1) % CLASSES)
    done = run("evaluate", tmp_path / "d.parquet", "-r", world["folder"] / "r.json")
    assert done.code == 0
    assert "drrej: warning: " in done.err
    assert "labels or class order may be swapped" in done.err


def test_two_of_three_classes_that_are_swapped_are_named(tmp_path: Path) -> None:
    """As many rows are right as by guessing, and other commands than `evaluate` say it too."""
    truth = np.arange(ROWS) % 3
    logits = 5 * np.eye(3)[truth] + np.random.default_rng(1).normal(size=(ROWS, 3))
    dump = write_dump(tmp_path / "d.parquet", logits, np.array([1, 0, 2])[truth])
    words = "33.3 % of the rows are right; labels or class order may be swapped"
    best = "% would be right if the predictions '1', '0' were '0', '1'"
    done = run("calibrate", dump, "-o", tmp_path / "c.json")
    assert done.code == 0
    assert words[4:] in done.err
    assert best in done.err
    with pytest.warns(DrrejWarning, match=words[4:]):
        drrej.calibrate(dump)


def test_below_chance_is_said_where_the_cutoff_is_chosen(world: dict[str, Any], tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "d.parquet", world["logits"], (world["labels"] + 1) % CLASSES)
    for risk, code in (("0.1", 1), ("0.9999", 0)):
        done = run("threshold", dump, "-r", world["folder"] / "r.json", "--risk", risk, "-o", tmp_path / "t.json")
        assert done.code == code
        assert "below chance (25.0 %); labels or class order may be swapped" in done.err
    assert "note: --risk 0.9999: met even without rejection; " in done.err


# A target that asks for nothing


def test_a_target_that_all_rows_meet_is_said(world: dict[str, Any], tmp_path: Path) -> None:
    dump = source(write_dump(tmp_path / "a.parquet", world["logits"], world["labels"]))
    for target, vacuous in ((0.3, True), (0.999, False)):
        rejector = drrej.threshold(dump, world["rejector"], drrej.Rule("accuracy", target))
        text = RENDERERS["text"](drrej.evaluate(dump, rejector))
        assert ("also met without rejection" in text) == vacuous


def test_what_an_accuracy_hides_of_a_rare_class_is_said(tmp_path: Path) -> None:
    """2 % of the rows are of class 1, and half of them look like the others."""
    rng = np.random.default_rng(3)
    labels = (np.arange(6000) % 50 == 0).astype(np.int64)
    seen = np.where(rng.random(6000) < 0.5, labels, 0)
    logits = np.stack([np.zeros(6000), np.where(seen, 6.0, -4.0) + rng.normal(size=6000)], axis=1)
    dump = write_dump(tmp_path / "d.parquet", logits, labels)
    fitted = make_rejector(source(dump), ("accuracy", 0.98))
    report = evaluate(source(dump), fitted)
    missed = report.per_class[1].missed.value
    assert missed == int(((labels == 1) & (logits[:, 1] < 0)).sum()) / 120  # nothing is rejected
    vacuous, hidden = warnings_of(report)[-2:]
    assert vacuous.startswith("accuracy >= 98 %: met even without rejection; 99.10 % of all rows")
    assert hidden.startswith(f"accuracy >= 98 % hides that {100 * missed:.1f} % of the rows of class '1' are accepted")
    assert "`max_missed=1=S`" in hidden
    assert f"Worst    class 1: {100 * missed:.1f} % of its rows are accepted as another class" in render_brief(
        report, ""
    )


def test_a_report_says_what_its_reviews_take(world: dict[str, Any], tmp_path: Path) -> None:
    report = report_on(world, tmp_path / "d.parquet", world["labels"], minutes=3.0)
    rejected = report.rows - report.coverage.accepted
    assert (report.reviews.value, report.reviews.per_1000) == (rejected, 1000 * rejected / ROWS)
    assert report.reviews.hours == pytest.approx(rejected / 20)
    assert drrej.Gate.parse("reviews.hours <= 1e6").judge(report).value == report.reviews.hours
    assert f"{rejected} rows ({1000 * rejected / ROWS:.3g} per 1,000; {rejected / 20:.1f} hours)" in render_brief(
        report, ""
    )
    with pytest.raises(OptionError, match="must be above 0"):
        drrej.EvaluateOptions(minutes=0.0)


# Pairs


def test_a_candidate_without_its_hard_rows_is_refused(world: dict[str, Any], tmp_path: Path) -> None:
    old = write_dump(tmp_path / "old.parquet", world["logits"], world["labels"])
    baseline = BaselineDump(source(old), world["rejector"], "id")
    with pytest.raises(DumpError, match=r"200 of its 600 rows are not among the 400 rows of the dump .*first is 400\)"):
        report_on(world, tmp_path / "new.parquet", world["labels"], slice(400), baseline_dump=baseline)
    write_dump(tmp_path / "new.parquet", world["logits"][:400], world["labels"][:400])
    compare = ("--baseline-dump", old, "--join-on", "id")
    assert run("evaluate", tmp_path / "new.parquet", "-r", world["folder"] / "r.json", *compare).code == 2


def test_pairs_with_other_labels_are_refused(world: dict[str, Any], tmp_path: Path) -> None:
    changed = world["labels"].copy()
    changed[[7, 9]] = (changed[[7, 9]] + 1) % CLASSES
    old = write_dump(tmp_path / "old.parquet", world["logits"], changed)
    baseline = BaselineDump(source(old), world["rejector"], "id")
    with pytest.raises(DumpError, match=r"2 of 600 rows have another label than in the dump .*the first is 7\)"):
        report_on(world, tmp_path / "new.parquet", world["labels"], baseline_dump=baseline)
    same = BaselineDump(
        source(write_dump(tmp_path / "x.parquet", world["logits"], world["labels"])), *baseline_of(world)
    )
    report = report_on(world, tmp_path / "new.parquet", world["labels"], baseline_dump=same)
    assert report.difference.rows == ROWS


def baseline_of(world: dict[str, Any]) -> tuple[Any, str]:
    return world["rejector"], "id"
