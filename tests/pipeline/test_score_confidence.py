"""Rows that bring a score and whether they were right, through every command: as logits with that score, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from conftest import ROOT
from running import drrej, fail, succeed

from drrej import Source, fit_rejector
from drrej.api.rejector import Rejector
from drrej.core.losses import ErrorLoss
from drrej.core.thresholds import Rule
from drrej.data.dump import DumpOptions
from drrej.documents.rejector import Rejector as Document
from drrej.errors import DrrejWarning, DumpError, OptionError
from drrej.pipeline.calibrate import CalibrateOptions, calibrate
from drrej.pipeline.fit import RatioOptions, fit, uncalibrated
from drrej.pipeline.reject import score_batch
from drrej.pipeline.threshold import ThresholdOptions, choose_threshold

SAMPLES = ROOT / "sample_data"
SCORES = SAMPLES / "scores"
HOW = DumpOptions(score="score", correct="correct")


def made_of(name: str) -> tuple[pa.Table, pa.Table]:
    """A sample dump, and its rows with nothing but the largest probability and whether it is right."""
    table = pq.read_table(SAMPLES / name)
    logits = np.array(table["logits"].to_pylist(), np.float64)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    right = logits.argmax(axis=1) == table["label"].to_numpy()
    score = (powers / powers.sum(axis=1, keepdims=True)).max(axis=1)
    number = pa.array(np.arange(table.num_rows))
    whole = pa.table({"number": number, "logits": pa.array(logits.tolist()), "label": table["label"]})
    return whole, pa.table({"number": number, "score": score, "correct": right})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The halves of the validation rows and the test rows: a, b, t; with logits and with scores."""
    folder = tmp_path_factory.mktemp("scores")
    for name, parts in (("val.parquet", ("a", "b")), ("test.parquet", ("t",))):
        for kind, table in zip(("logits", "scores"), made_of(name), strict=True):
            for number, part in enumerate(parts):
                pq.write_table(
                    table.take(np.arange(number, table.num_rows, len(parts))), folder / f"{part}-{kind}.parquet"
                )
    return folder


@pytest.mark.parametrize("calibrator", ["logistic", "beta", "isotonic", "auto"])
@pytest.mark.parametrize("target", [0.99, 0.995])
def test_a_score_decides_as_the_logits_do(files: Path, calibrator: Any, target: float) -> None:
    masks, accepted = [], []
    for kind, options in (("logits", DumpOptions(input="logits")), ("scores", HOW)):
        first, fresh, test = (Source(files / f"{part}-{kind}.parquet", options) for part in "abt")
        if kind == "logits":
            fitted = fit(first, uncalibrated(first, 1.0, "float64"), RatioOptions(loss="zero-one"))
        else:
            fitted = fit(
                first, calibrate(first, CalibrateOptions(calibrator=calibrator)), RatioOptions(loss=ErrorLoss())
            )
        rejector = choose_threshold(
            fresh, fitted, Rule("accuracy", target, 0.9), ThresholdOptions(group="number")
        ).rejector
        accepted.append(rejector.need_threshold().accepted)
        table = pq.read_table(files / f"t-{kind}.parquet")
        masks.append(score_batch(table.to_batches()[0], rejector))
        assert test.open(rejector, labelled=True).rows == table.num_rows
    assert accepted[0] == accepted[1]
    assert 0 < accepted[0] < 824
    assert masks[0]["rejected"] == masks[1]["rejected"]
    losses = [mask["loss"].to_numpy() for mask in masks]
    score = pq.read_table(files / "t-scores.parquet")["score"].to_numpy()
    order = np.argsort(losses[0], kind="stable")
    apart = np.diff(score[order]) < 0  # probabilities that rounding leaves apart, in the order of the logits
    assert (np.diff(losses[1][order])[apart] > 0).all()


def judged(tmp_path: Path, *more: str) -> Path:
    """A finished rejector of the judge."""
    path = tmp_path / "judge.json"
    succeed("calibrate", SCORES / "judge_val.jsonl", "--score", "confidence", "--correct", "correct", "-o", path)
    succeed("fit", SCORES / "judge_val.jsonl", "-r", path, "-o", path, "-f")
    succeed("threshold", SCORES / "judge_fresh.jsonl", "-r", path, "--accuracy", "0.9", *more, "-o", path, "-f")
    return path


def test_every_format_gives_the_same_bits(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (SCORES / "judge_val.jsonl").read_text().splitlines()]
    table = pa.Table.from_pylist([row | {"confidence": int(row["confidence"][:-1]) / 100} for row in rows])
    pq.write_table(table, tmp_path / "a.parquet")
    pacsv.write_csv(table, tmp_path / "a.csv")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    (tmp_path / "a.json").write_text(json.dumps(table.to_pylist()))
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    np.savez(tmp_path / "a.npz", **{name: np.array(table[name].to_pylist()) for name in table.column_names})
    documents = set()
    for ending in ("parquet", "csv", "jsonl", "json", "arrow", "npz"):
        document = succeed("calibrate", tmp_path / f"a.{ending}", "--score", "confidence", "--correct", "correct")
        documents.add(document)
    assert len(documents) == 1
    text = succeed("calibrate", SCORES / "judge_val.jsonl", "--score", "confidence", "--correct", "correct")
    assert documents == {text}


def test_the_guarantee_knows_rows_by_their_id(tmp_path: Path) -> None:
    path = judged(tmp_path, "--confidence", "0.95")
    again = ("threshold", SCORES / "judge_val.jsonl", "-r", path, "--accuracy", "0.9", "--confidence", "0.95")
    assert "'fit' has seen some of these" in fail(*again)
    report = json.loads(succeed("evaluate", SCORES / "judge_test.jsonl", "-r", path, "--format", "json"))
    assert report["target"]["verdict"] == "met"
    assert report["score"] == "confidence"
    assert not report.keys() & {"per_class", "confusion", "seen_by", "below_chance"}
    rows = [json.loads(line) for line in (SCORES / "judge_test.jsonl").read_text().splitlines()]
    sure = [row for row in rows if int(row["confidence"][:-1]) > 95]
    assert report["coverage"]["accepted"] == len(sure)
    assert report["errors"] == sum(not row["correct"] for row in sure)
    words = succeed("inspect", path).decode()
    assert "accepts a row when confidence > 0.95; it rejects" in words
    assert "calibrator: " in words


def test_what_needs_classes_is_refused_plainly(tmp_path: Path) -> None:
    path = judged(tmp_path)
    test = SCORES / "judge_test.jsonl"
    for options, says in (
        (["--compare"], "--compare needs the scores of all classes"),
        (["--classwise"], "--classwise needs the scores of all classes"),
        (["--gate", "accuracy[class=tie] > 0.1"], "there are no classes"),
        (["--report-by", "prediction"], "'prediction': rows that bring a score have none; name a column"),
    ):
        outcome = drrej("evaluate", test, "-r", path, *options)
        assert outcome.code == 2
        assert says in outcome.err, outcome.err
    succeed("evaluate", test, "-r", path, "--report-by", "verdict", "--gate", "worst_group.accuracy > 0.5")
    costs = tmp_path / "c.csv"
    costs.write_text("0,1\n1,0\n")
    how = ("fit", SCORES / "judge_val.jsonl", "-r", path)
    assert "the loss of a score is the probability of being wrong" in fail(*how, "--loss", "log")
    assert "needs logits" in fail(*how, "--loss", "cost", "--cost-matrix", costs)
    assert "the rejector was made for rows with logits" in fail(
        "evaluate", SAMPLES / "test.parquet", "-r", _of_logits(tmp_path), "--score", "id"
    )
    for calibrator, says in (("vector", "is for logits"), ("temperature", "is for logits")):
        assert says in fail("calibrate", test, "--score", "confidence", "--calibrator", calibrator)
    assert "is for scores of any kind" in fail("calibrate", SAMPLES / "val.parquet", "--calibrator", "isotonic")


def _of_logits(tmp_path: Path) -> Path:
    path = tmp_path / "logits.json"
    for step, more in (("calibrate", ()), ("fit", ("-r", path)), ("threshold", ("-r", path, "--coverage", "0.8"))):
        succeed(step, SAMPLES / "val.parquet", *more, "-o", path, "-f")
    return path


def test_scores_of_the_wrong_kind(tmp_path: Path) -> None:
    path = judged(tmp_path)
    rows = {"confidence": [85.0, 0.5], "correct": [True, False]}
    pq.write_table(pa.table(rows), tmp_path / "odd.parquet")
    message = fail("reject", tmp_path / "odd.parquet", "-r", path, "-o", tmp_path / "m.parquet")
    assert "1 row has a score outside [0, 1]; row 0, counted from 0 ([85.0])" in message
    mask = tmp_path / "m.csv"
    assert drrej("reject", tmp_path / "odd.parquet", "-r", path, "-o", mask, "--on-bad-row", "reject").code == 0
    assert mask.read_text().splitlines()[1] == "85,true,,,true"
    val = SCORES / "judge_val.jsonl"
    message = fail("calibrate", val, "--score", "confidence", "--lower-is-better")
    assert "it is the wrong way round; leave out --lower-is-better" in message
    message = fail("fit", val, "-r", path, "--lower-is-better")
    assert "the rejector was made without it" in message


def test_a_threshold_for_each_field_and_costs(tmp_path: Path) -> None:
    val, test, path = SCORES / "fields_val.csv", SCORES / "fields_test.csv", tmp_path / "r.json"
    succeed("calibrate", val, "--score", "score", "--correct", "correct", "-o", path)
    succeed("fit", val, "-r", path, "-o", path, "-f")
    succeed("threshold", val, "-r", path, "--accuracy", "0.95", "--cutoff-by", "field", "-o", path, "-f")
    groups = Document.from_json(path.read_text(), "r").need_threshold().groups
    assert groups is not None
    assert [group.group for group in groups] == ["date", "supplier", "total"]
    report = json.loads(succeed("evaluate", test, "-r", path, "--format", "json"))
    assert all(0.9 < row["accuracy"]["value"] < 1.0 for row in report["per_group"])
    succeed("threshold", val, "-r", path, "--review-cost", "1", "--error-cost", "8", "-o", tmp_path / "cost.json")
    found = Document.from_json((tmp_path / "cost.json").read_text(), "r").need_threshold()
    assert found.cutoff == pytest.approx(1 / 8, abs=0.03)  # as Chow has it, where probabilities are right


def test_a_router_between_two_models(tmp_path: Path) -> None:
    stages = [f"--stage={name}={SCORES / name}.csv:{cost}" for name, cost in (("small", 1), ("large", 20))]
    how = ("--score", "mean_logprob", "--prediction", "answer", "--label", "truth", "--join-on", "id")
    succeed("cascade", *stages, *how, "--accuracy", "0.9", "--confidence", "0.95", "-o", tmp_path / "out")
    routing = pq.read_table(tmp_path / "out" / "routing.parquet")
    assert routing.column_names == ["id", "stage", "loss", "cost"]
    right = {}
    for name in ("small", "large"):
        rows = pacsv.read_csv(SCORES / f"{name}.csv").to_pylist()
        right |= {(name, row["id"]): row["answer"] == row["truth"] for row in rows}
    found = np.mean([right[row["stage"], row["id"]] for row in routing.to_pylist()])
    report = json.loads((tmp_path / "out" / "cascade.json").read_text())
    assert report["chosen"]["accuracy"] == pytest.approx(found)
    assert found >= 0.9


def test_monitor_and_run(tmp_path: Path) -> None:
    path, state = judged(tmp_path), tmp_path / "state.json"
    for part in ("fresh", "test"):
        succeed("monitor", state, SCORES / f"judge_{part}.jsonl", "-r", path, "--max-risk", "0.2")
    assert "by_prediction" not in json.loads(state.read_text())
    how = ("--score", "confidence", "--correct", "correct", "--accuracy", "0.85")
    outcome = drrej("run", SCORES / "judge_val.jsonl", *how, "-o", tmp_path / "out")
    assert outcome.code in (0, 1), outcome.err
    assert "divided by their place" in outcome.err


def test_labels_that_come_later(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (SCORES / "judge_val.jsonl").read_text().splitlines()]
    table = pa.Table.from_pylist(rows)
    pq.write_table(table.drop_columns(["correct"]), tmp_path / "answers.parquet")
    verdicts = pa.table(
        {"id": table["id"].take(np.arange(1000)[::-1]), "hit": table["correct"].take(np.arange(1000)[::-1])}
    )
    pq.write_table(verdicts, tmp_path / "verdicts.parquet")
    late = ("--labels-from", tmp_path / "verdicts.parquet", "--join-on", "id", "--correct", "hit")
    apart = json.loads(succeed("calibrate", tmp_path / "answers.parquet", "--score", "confidence", *late))
    whole = json.loads(succeed("calibrate", SCORES / "judge_val.jsonl", "--score", "confidence"))
    assert apart["calibration"] == whole["calibration"]
    assert (apart["columns"], whole["columns"]) == (
        {"logits": "confidence", "correct": "hit"},
        {"logits": "confidence", "correct": "correct"},
    )


def test_arrays_have_the_bits_of_files(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (SCORES / "judge_val.jsonl").read_text().splitlines()]
    score, correct = np.array([int(row["confidence"][:-1]) / 100 for row in rows]), [row["correct"] for row in rows]
    made = fit_rejector(scores=score, correct=correct, accuracy=0.9)
    pq.write_table(pa.table({"score": score, "correct": correct}), tmp_path / "a.parquet")
    source = Source(tmp_path / "a.parquet", HOW)
    document = choose_threshold(source, fit(source, calibrate(source)), Rule("accuracy", 0.9)).rejector
    assert made.to_json() == document.to_json()
    assert repr(made).startswith("<drrej.Rejector: score 'score' by ")
    assert made.reject([0.99, 0.2]).tolist() == [False, True]
    assert made.reject([]).tolist() == []
    report = made.evaluate(score, correct)
    assert report.errors == int(np.count_nonzero(~made.reject(score) & ~np.array(correct)))
    path = tmp_path / "r.json"
    made.save(path)
    assert Rejector.load(path) == made
    both = fit_rejector(scores=np.stack([score, -score], axis=1), correct=correct, accuracy=0.9)
    assert both.score(np.array([[0.9, -0.9]])).loss.shape == (1,)
    certain = fit_rejector(scores=1 - score, correct=correct, accuracy=0.85, confidence=0.9, lower_is_better=True)
    assert certain.threshold is not None
    with pytest.raises(OptionError, match="give either `labels` or"):
        fit_rejector(score, accuracy=0.9)
    with pytest.raises(OptionError, match="`lower_is_better` requires `correct`"):
        fit_rejector(score, correct, accuracy=0.9, lower_is_better=True)
    with pytest.raises(DumpError, match="there are 2 scores per row, but the rejector was made for 1"):
        made.reject(np.zeros((3, 2)))


def test_inspect_prints_a_command_that_works(tmp_path: Path) -> None:
    for name in ("judge_val.jsonl", "fields_val.csv", "small.csv"):
        words = succeed("inspect", SCORES / name).decode().splitlines()
        command = words[-1].split()
        assert command[:2] == ["drrej", "calibrate"]
        assert "no classes: a row is right or wrong" in "\n".join(words)
        succeed(*command[1:-1], tmp_path / f"{name}.json")


def test_the_summary_tells_the_guarantee_from_the_check(tmp_path: Path) -> None:
    how = ("--score", "score", "--correct", "correct", "--accuracy", "0.9")
    outcome = drrej("run", SCORES / "fields_val.csv", *how, "-o", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    text = outcome.out.decode()
    assert "  A row is accepted when score > 0." in text
    assert "CERTIFIED     for new rows, with confidence 95 %" in text
    assert "accuracy \N{GREATER-THAN OR EQUAL TO} 90 % on these rows" in text
    assert "drrej reject NEW.csv -r " in text
    assert "NLL undefined" not in succeed("inspect", tmp_path / "out" / "rejector.json").decode()
    report = (tmp_path / "out" / "report.txt").read_text()
    assert "; accepts score > 0." in report
    assert "accuracy >= 90 % is certified for new rows with confidence 95 %; on these rows: " in report


def test_the_cutoff_on_the_score_decides_as_the_rejector_does(tmp_path: Path) -> None:
    how = (
        "--score",
        "score",
        "--correct",
        "correct",
        "--accuracy",
        "0.95",
        "--cutoff-by",
        "field",
        "-o",
        tmp_path / "o",
    )
    assert drrej("run", SCORES / "fields_val.csv", *how).code == 0
    told = json.loads((tmp_path / "o" / "report.json").read_text())["accepts"]
    cutoffs = dict(each.split(": ") for each in told.split("; "))
    mask = tmp_path / "mask.parquet"
    succeed("reject", SCORES / "fields_test.csv", "-r", tmp_path / "o" / "rejector.json", "-o", mask)
    for row in pq.read_table(mask).to_pylist():
        words = cutoffs[row["field"]]
        accepted = words != "none" and float(row["score"]) > float(words.removeprefix("score > "))
        assert accepted == (not row["rejected"]), row


def test_a_score_without_its_option_is_suggested(tmp_path: Path) -> None:
    message = fail("run", SCORES / "judge_val.jsonl", "--accuracy", "0.9", "-o", tmp_path / "out")
    assert message.endswith("'confidence' looks like a score; pass --score confidence --correct correct")
    message = fail("calibrate", SCORES / "small.csv")
    assert message.endswith("pass --score mean_logprob --prediction answer --label truth")


def test_arrays_of_texts_and_frames() -> None:
    rows = [json.loads(line) for line in (SCORES / "judge_val.jsonl").read_text().splitlines()]
    texts, right = [row["confidence"] for row in rows], [row["correct"] for row in rows]
    numbers = [int(text[:-1]) / 100 for text in texts]
    first, second = (fit_rejector(scores=scores, correct=right, accuracy=0.9) for scores in (texts, numbers))
    assert first.calibration == second.calibration
    assert first.reject(texts).tolist() == second.reject(numbers).tolist()
    assert second.evaluate(numbers, correct=right) == second.evaluate(numbers, right)
    with pytest.raises(OptionError, match="`correct` takes the place of `labels`"):
        second.evaluate(numbers, right, correct=right)
    words = ["high" if number > 0.8 else "low" for number in numbers]
    with pytest.warns(DrrejWarning, match="2 distinct values \\(low, high\\)"):
        level = fit_rejector(scores=words, correct=right, coverage=0.3)
    assert level.reject(["high", "low"]).tolist() == [False, True]
    assert level.reject([]).size == 0
    with pytest.raises(DumpError, match="is double, not words"):
        level.reject([0.9])
    with pytest.raises(DumpError, match="one number per row is needed, or a few, or texts"):
        fit_rejector(scores=np.array([0.3, "a"] * 10, object), correct=[0, 1] * 10, coverage=0.5)


def test_names_of_frames_are_kept() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    frame = pandas.DataFrame({"conf": rng.random(300), "margin": rng.random(300)})
    right = rng.random(300) < frame["conf"]
    assert fit_rejector(scores=frame["conf"], correct=right, coverage=0.5).columns.logits == "conf"
    both = fit_rejector(scores=frame, correct=right, coverage=0.5)
    assert both.columns.logits == "conf,margin"
    plain = both.reject(frame.to_numpy())
    assert (both.reject(frame[["margin", "conf"]]) == plain).all()


def test_a_review_queue_in_csv(tmp_path: Path) -> None:
    path = judged(tmp_path)
    for ending in ("csv", "jsonl"):
        review = ("--review", tmp_path / f"q.{ending}", "-o", tmp_path / "m.csv", "-f")
        succeed("reject", SCORES / "judge_test.jsonl", "-r", path, *review)
    listed = [json.loads(line) for line in (tmp_path / "q.jsonl").read_text().splitlines()]
    table = pacsv.read_csv(tmp_path / "q.csv").to_pylist()
    assert [row["mask_row"] for row in table] == [row["mask_row"] for row in listed]
    assert [row["loss"] for row in table] == [row["loss"] for row in listed]
    succeed("threshold", SCORES / "judge_val.jsonl", "-r", path, "--coverage", "1", "-o", path, "-f")
    succeed("reject", SCORES / "judge_test.jsonl", "-r", path, *review[2:], "--review", tmp_path / "none.csv")
    assert (tmp_path / "none.csv").read_text() == (tmp_path / "q.csv").read_text().splitlines(keepends=True)[0]
