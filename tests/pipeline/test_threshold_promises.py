"""drrej threshold, evaluate, run and plan with several promises; each figure is counted again from the mask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import fail, read_columns, run_here, succeed
from scipy import stats

import drrej
from drrej.core.thresholds import one_rule
from drrej.errors import DrrejWarning, Infeasible, OptionError
from drrej.pipeline.threshold import ThresholdOptions, choose_threshold

NAMES = np.array(["legit", "fraud"])
VALUES = ("--accuracy", "0.98", "--accuracy", "fraud=0.8")


def rows_of(seed: int, rows: int, strength: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    label = (rng.random(rows) < 0.1).astype(int)
    x = rng.normal(size=rows) + 3.0 * label
    logit = np.log(0.1 / 0.9) + strength * x - 4.5
    return np.stack([0 * logit, logit], axis=1), label


def write(path: Path, seed: int, rows: int, **more: Any) -> str:
    logits, label = rows_of(seed, rows, **more)
    pq.write_table(pa.table({"logits": logits.tolist(), "label": NAMES[label], "site": ["x"] * rows}), path)
    return str(path)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("promises")
    found = {name: write(folder / f"{name}.parquet", seed, 3000) for seed, name in enumerate(("fit", "fresh", "test"))}
    found["fitted"] = str(folder / "fitted.json")
    source = drrej.Source(found["fit"], options=drrej.DumpOptions(classes=tuple(NAMES.tolist())))
    Path(found["fitted"]).write_text(drrej.fit(source, drrej.calibrate(source)).to_json())
    return found


def counts(mask: Path) -> dict[str, np.ndarray]:
    columns = read_columns(mask)
    return columns | {"accepted": ~columns["rejected"], "wrong": columns["prediction"] != columns["label"]}


def test_several_promises_from_the_rule_to_the_gate(world: dict[str, str], tmp_path: Path) -> None:
    rejector, mask = tmp_path / "r.json", tmp_path / "mask.parquet"
    rule = [*VALUES, "--max-missed", "fraud=0.2", "--reviews", "900", "--per", "1000", "--confidence", "0.9"]
    succeed("threshold", world["fresh"], "-r", world["fitted"], *rule, "-o", rejector, "--mask", mask)
    threshold = json.loads(rejector.read_text())["threshold"]
    assert threshold["by"] == "prediction"
    assert [goal["what"] for goal in threshold["rule"]["promises"]] == ["accuracy", "accuracy", "missed", "reviews"]
    rows = counts(mask)
    cutoffs = {group["group"]: group.get("cutoff") for group in threshold["groups"]}
    assert list(cutoffs) == NAMES.tolist()
    limits = np.array([np.inf if cutoffs[name] is None else cutoffs[name] for name in rows["prediction"]])
    assert (rows["accepted"] == (rows["loss"] < limits)).all()
    assert threshold["accepted"] == rows["accepted"].sum()
    for group in threshold["groups"]:
        mine = rows["accepted"] & (rows["prediction"] == group["group"])
        assert group["accepted"] == mine.sum()
        assert group["accuracy"] == 1 - (mine & rows["wrong"]).sum() / mine.sum()
    said = succeed("inspect", rejector).decode()
    assert "of the rows of class 'fraud' at most 0.2 are accepted as another class" in said
    report = json.loads(succeed("evaluate", world["test"], "-r", rejector, "--format", "json", "--gate", "target"))
    test = tmp_path / "test.parquet"
    succeed("reject", world["test"], "-r", rejector, "-o", test)
    seen = counts(test)
    promises = {(each["what"], each.get("group")): each for each in report["target"]["promises"]}
    fraud = seen["label"] == "fraud"
    expected = {("missed", "fraud"): (seen["accepted"] & seen["wrong"] & fraud).sum() / fraud.sum()}
    for name in NAMES:
        mine = seen["accepted"] & (seen["prediction"] == name)
        expected["accuracy", name] = 1 - (mine & seen["wrong"]).sum() / mine.sum()
    expected["reviews", None] = 1 - seen["accepted"].mean()
    assert {key: each["value"] for key, each in promises.items()} == pytest.approx(expected)
    assert report["target"]["verdict"] in ("met", "inconclusive")


def test_a_gate_takes_every_promise_into_account(world: dict[str, str], tmp_path: Path) -> None:
    """Rows whose frauds look legitimate break the missed share alone."""
    rejector, worse = tmp_path / "r.json", tmp_path / "worse.parquet"
    rule = ["--accuracy", "legit=0.8", "--max-missed", "fraud=0.3"]
    succeed("threshold", world["fresh"], "-r", world["fitted"], *rule, "-o", rejector)
    table = pq.read_table(world["test"])
    logits = np.stack(table["logits"].to_pylist())
    fraud = np.array(table["label"]) == "fraud"
    logits[fraud, 1] = -8.0
    pq.write_table(table.set_column(0, "logits", [logits.tolist()]), worse)
    done = run_here("evaluate", worse, "-r", rejector, "--gate", "target", "-q")
    assert done.returncode == 1
    assert "gate failed: wanted missed cases <= 30 % where the label is 'fraud': 100.0 %" in done.stderr.decode()
    succeed("evaluate", world["test"], "-r", rejector, "--gate", "target")


def test_of_all_cutoffs_that_keep_the_promises_the_cheapest_are_taken(world: dict[str, str], tmp_path: Path) -> None:
    """The cost in the report is that of the mask, and no more than that of the largest coverage; gates know it."""
    rule, costs, found = ["--max-missed", "fraud=0.2", "--confidence", "0.9"], [], []
    for number, prices in enumerate(([], ["--review-cost", "2", "--error-cost", "200"])):
        rejector, mask = tmp_path / f"{number}.json", tmp_path / f"{number}.parquet"
        succeed("threshold", world["fresh"], "-r", world["fitted"], *rule, *prices, "-o", rejector, "--mask", mask)
        rows = counts(mask)
        costs.append(200 * (rows["accepted"] & rows["wrong"]).sum() + 2 * (~rows["accepted"]).sum())
        fraud = rows["label"] == "fraud"
        found.append((rows["accepted"] & rows["wrong"] & fraud).sum() / fraud.sum())
    assert costs[1] < costs[0]
    assert found[1] <= found[0] <= 0.2
    assert "--review-cost 2 --error-cost 200" in succeed("inspect", rejector).decode()
    report = json.loads(
        succeed("evaluate", world["fresh"], "-r", rejector, "--format", "json", "--gate", "total_cost <= 2000")
    )
    assert report["total_cost"]["value"] == pytest.approx(1000 * costs[1] / 3000)
    assert [promise["what"] for promise in report["target"]["promises"]] == ["missed"]
    assert run_here("evaluate", world["fresh"], "-r", rejector, "--gate", "total_cost <= 1").returncode == 1


def test_promises_with_a_cost_matrix(world: dict[str, str], tmp_path: Path) -> None:
    """A missed fraud costs 100 and a false alarm 4: brute force over all pairs of cutoffs on these rows."""
    (tmp_path / "costs.csv").write_text("0,4\n100,0\n")
    fitted, mask = tmp_path / "fitted.json", tmp_path / "mask.parquet"
    fit = ["fit", world["fit"], "-r", world["fitted"], "--loss", "cost", "--cost-matrix", tmp_path / "costs.csv"]
    succeed(*fit, "-o", fitted)
    asked = ["threshold", world["fresh"], "-r", fitted, "--accuracy", "fraud=0.7", "--review-cost", "1.5"]
    assert "leave out --error-cost" in fail(*asked, "--error-cost", "5")
    succeed(*asked, "--mask", mask)
    rows = counts(mask)
    cost = np.where(rows["wrong"], np.where(rows["label"] == "fraud", 100.0, 4.0), 0.0)
    best = 0.0
    for name in NAMES:
        mine = rows["prediction"] == name
        order = np.argsort(rows["loss"][mine])
        errors, saved = np.cumsum(rows["wrong"][mine][order]), np.cumsum(1.5 - cost[mine][order])
        allowed = errors <= 0.3 * np.arange(1, order.size + 1) if name == "fraud" else np.ones(order.size, bool)
        best += max(0.0, *saved[allowed])
    assert np.where(rows["accepted"], 1.5 - cost, 0.0).sum() == pytest.approx(best)


def test_infeasible_is_exit_1_and_writes_nothing(world: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    rule = ["--overall-risk", "0.001", "--coverage", "0.99", "--confidence", "0.9"]
    message = fail("threshold", world["fresh"], "-r", world["fitted"], *rule, "-o", out, code=1)
    assert "--coverage 0.99 cannot be kept: --overall-risk 0.001 allows" in message
    assert not out.exists()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (["--max-missed", "frued=0.1"], "there is no class 'frued'; did you mean fraud?"),
        (["--max-missed", "0.1"], "--max-missed is for a class"),
        (["--accuracy", "x"], "write a number, or CLASS=NUMBER"),
        (["--accuracy", "0.9", "--accuracy", "0.8"], "it was given twice"),
        (["--reviews", "5"], "--reviews B requires --per N"),
        (["--overall-risk", "0.1", "--cutoff-by", "site"], "cutoffs by 'site' cannot be combined with"),
        (["--overall-risk", "0.1", "--table", "t.csv"], "lists the cutoffs of a single target"),
        (["--overall-risk", "0.1", "--tau", "1"], "--tau cannot be combined with --overall-risk"),
    ],
)
def test_rules_that_make_no_sense(world: dict[str, str], rule: list[str], message: str) -> None:
    assert message in fail("threshold", world["fresh"], "-r", world["fitted"], *rule)


def test_a_budget_needs_no_labels(world: dict[str, str], tmp_path: Path) -> None:
    bare = tmp_path / "bare.parquet"
    pq.write_table(pq.read_table(world["fresh"]).drop_columns(["label"]), bare)
    rule = ["--reviews", "100", "--per", "1000", "--confidence", "0.9"]
    threshold = json.loads(succeed("threshold", bare, "-r", world["fitted"], *rule))["threshold"]
    assert "groups" not in threshold
    assert 0.9 < threshold["coverage"] < 0.93


def test_a_class_that_cannot_be_certified_is_rejected_and_named(world: dict[str, str], tmp_path: Path) -> None:
    source = drrej.Source(world["fresh"])
    rule = one_rule({"accuracy": {"legit": 0.95, "fraud": 0.999}}, confidence=0.9)
    found = choose_threshold(source, drrej.Rejector.from_json(Path(world["fitted"]).read_text()), rule)
    assert "all rows predicted 'fraud' are rejected: the best upper bound of its error rate is" in (found.caution or "")
    assert [group.cutoff for group in found.rejector.need_threshold().groups or ()][1] == -1.0
    assert drrej.Rejector.from_json(found.rejector.to_json()).threshold == found.rejector.threshold
    report = drrej.evaluate(drrej.Source(world["test"]), found.rejector)
    assert report.target is not None
    assert [promise.group for promise in report.target.promises] == ["legit"]  # the other has no accepted rows


def test_confusions_of_the_fit(world: dict[str, str]) -> None:
    ratio = drrej.Rejector.from_json(Path(world["fitted"]).read_text()).need_ratio()
    assert sum(count for _, _, count in ratio.confusions or ()) == 3000
    wrong = sum(count for guess, truth, count in ratio.confusions or () if guess != truth)
    assert wrong == sum(errors for _, errors in ratio.error_blocks or ())


def test_arrays_and_files_choose_the_same(world: dict[str, str]) -> None:
    (logits, label), (new_logits, new_label) = (rows_of(seed, 3000) for seed in (0, 1))
    rejector = drrej.fit_rejector(
        logits,
        NAMES[label],
        classes=NAMES.tolist(),
        fresh=(new_logits, NAMES[new_label]),
        accuracy={"": 0.98, "fraud": 0.8},
        max_missed={"fraud": 0.2},
        confidence=0.9,
    )
    rule = one_rule({"accuracy": {"": 0.98, "fraud": 0.8}, "max_missed": {"fraud": 0.2}}, confidence=0.9)
    fitted = drrej.Rejector.from_json(Path(world["fitted"]).read_text())
    chosen = choose_threshold(drrej.Source(world["fresh"]), fitted, rule, ThresholdOptions()).rejector
    assert rejector.threshold is not None
    assert rejector.threshold.groups == chosen.need_threshold().groups
    with pytest.raises(OptionError, match="`max_missed=fraud='a lot'`: it must be a number"):
        drrej.fit_rejector(logits, label, max_missed={"fraud": "a lot"})  # type: ignore[dict-item]
    with pytest.raises(Infeasible, match="cannot be certified on"):
        drrej.fit_rejector(logits[:200], label[:200], max_missed={"1": 0.01}, confidence=0.9)


def test_an_estimator_knows_its_own_classes() -> None:
    from sklearn.linear_model import LogisticRegression

    from drrej.sklearn import RejectingClassifier

    logits, label = rows_of(3, 4000)
    model = RejectingClassifier(
        LogisticRegression(), accuracy={"": 0.98, 7: 0.8}, promises={"max_missed": {7: 0.5}}, confidence=0.9
    ).fit(logits[:, 1:], np.where(label, 7, 3))
    groups = [goal.group for goal in model.rejector_.need_threshold().rule.promises]
    assert groups == [None, "1", "1"]
    assert 0.3 < model.coverage_ < 1.0


def test_run_and_plan(world: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    rule = ["--accuracy", "legit=0.95", "--max-missed", "fraud=0.4"]
    succeed("run", world["fresh"], "--classes", "legit,fraud", *rule, "-o", out, "-q")
    report = json.loads((out / "report.json").read_text())
    assert report["target"]["confidence"] == 0.95
    assert {promise["what"] for promise in report["target"]["promises"]} == {"accuracy", "missed"}
    plan = succeed("plan", "--max-missed", "fraud=0.05", "--class-share", "fraud=0.02", "--format", "json")
    assert json.loads(plan)["promises"][0]["least"] == 59  # ln 0.05 / ln 0.95
    rows = json.loads(plan)["promises"][0]["needed"][0]["fixed_cutoff"]  # the fewest that hold 59 frauds in 80 of 100
    assert stats.binom.sf(58, rows, 0.02) >= 0.8 > stats.binom.sf(58, rows - 1, 0.02)
    assert "how many rows are of class 'fraud'" in fail("plan", "--max-missed", "fraud=0.05")
    said = succeed("plan", world["fresh"], "-r", world["fitted"], "--overall-risk", "0.02").decode()
    assert "These rows certify all promises at a coverage of" in said
    said = succeed("plan", world["fresh"], "-r", world["fitted"], "--max-missed", "fraud=0.001").decode()
    assert "These rows do not certify all promises: --max-missed fraud=0.001" in said


def test_a_configured_accuracy_is_a_number_or_a_list(world: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    for text, kind in [("accuracy = 0.9", "accuracy"), ('accuracy = ["0.9", "fraud=0.8"]', "promises")]:
        config.write_text(text)
        made = succeed("--config", config, "threshold", world["fresh"], "-r", world["fitted"])
        assert json.loads(made)["threshold"]["rule"]["kind"] == kind


def test_reviewers_count_in_the_verdict(world: dict[str, str]) -> None:
    fitted = drrej.Rejector.from_json(Path(world["fitted"]).read_text())
    rule = one_rule({"overall_risk": 0.05}, reviewer_accuracy=0.9)
    rejector = choose_threshold(drrej.Source(world["fresh"]), fitted, rule).rejector
    report = drrej.evaluate(drrej.Source(world["test"]), rejector)
    assert report.target is not None
    assert report.accuracy is not None
    (promise,) = report.target.promises
    rejected = report.rows - report.coverage.accepted
    assert promise.value == pytest.approx((report.accuracy.errors + 0.1 * rejected) / report.rows)
    assert promise.lower is not None
    assert promise.lower < (promise.value or 0.0) < (promise.upper or 0.0)


def test_warnings_reach_python(world: dict[str, str]) -> None:
    logits, label = rows_of(4, 3000)
    with pytest.warns(DrrejWarning, match="all rows predicted '1' are rejected"):
        drrej.fit_rejector(logits, label, accuracy={"0": 0.95, "1": 0.999}, confidence=0.9)
