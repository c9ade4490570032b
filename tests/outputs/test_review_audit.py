"""Audits: a random sample of the accepted rows, and what `evaluate` and `monitor` make of its labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from campaigns.simulate_audits import BATCHES, DAYS, batch_of, first_alarms, interval_misses
from conftest import fail, make_model, make_rejector, source, succeed, write_dump, write_mask

import drrej
from drrej.core.intervals import lower_bound, sampled_share, upper_bound
from drrej.errors import MonitorError, OptionError
from drrej.monitor.step import self_weighting
from drrej.outputs.destinations import OutputFile
from drrej.outputs.review import Audit, ReviewQueue, write_tasks
from drrej.pipeline.evaluate import EvaluateOptions, evaluate

ROWS, CLASSES = 4000, 3
SEEDS = 200


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("audits")
    logits, labels = make_model(ROWS, CLASSES, 5)
    ids = {"id": pa.array(np.arange(ROWS))}
    dump = write_dump(folder / "d.parquet", logits, labels, extra=ids)
    bare = pq.read_table(dump).drop_columns("label")
    pq.write_table(bare, folder / "bare.parquet")
    rejector = make_rejector(source(dump), ("accuracy", 0.9))
    rejector.save(folder / "r.json")
    mask = write_mask(source(dump), rejector, folder / "m.parquet")
    return {"folder": folder, "dump": dump, "rejector": rejector, "labels": labels, "mask": mask}


def draw(world: dict[str, Any], *more: object) -> list[dict[str, Any]]:
    folder = world["folder"]
    asked = ("reject", folder / "bare.parquet", "-r", folder / "r.json", "-o", folder / "m.parquet", "-f")
    succeed(*asked, "--review", folder / "q.jsonl", *more)
    return [json.loads(line) for line in (folder / "q.jsonl").read_text().splitlines()]


def test_the_sample_is_of_accepted_rows_and_says_how_likely_each_was(world: dict[str, Any]) -> None:
    rows = draw(world, "--audit", "0.1")
    drawn = [row for row in rows if row["inclusion"] is not None]
    rejected, predicted = world["mask"]["rejected"], world["mask"]["prediction"]
    assert len(rows) - len(drawn) == rejected.sum()
    assert not any(rejected[row["id"]] for row in drawn)
    assert len({row["id"] for row in drawn}) == len(drawn)
    for number in range(CLASSES):
        mine = [row for row in drawn if row["prediction"] == number]
        size = int((~rejected & (predicted == number)).sum())
        assert {row["inclusion"] for row in mine} == {len(mine) / size}
        assert len(mine) >= 30
    assert draw(world, "--audit", "0.1") == rows  # the seed settles it
    assert draw(world, "--audit", "0.1", "--jobs", "2") == rows
    others = draw(world, "--audit", "0.1", "--seed", "1")
    assert {row["id"] for row in others} != {row["id"] for row in rows}
    assert sum(row["inclusion"] is not None for row in draw(world, "--audit", "100")) <= 100


def test_every_accepted_row_is_drawn_with_the_chance_that_is_said() -> None:
    """Over many seeds, and however the rows are cut into batches."""
    predicted = np.repeat([0, 1], [280, 20])
    batch = pa.record_batch(
        {"prediction": predicted, "loss": np.zeros(300), "rejected": np.arange(300) % 3 == 0},
    )  # fmt: skip
    seen = np.zeros(300)
    for seed in range(SEEDS):
        queue = ReviewQueue(batch.schema, Audit(40, seed))
        cut = 1 + seed % 299
        queue.add(batch.slice(0, cut))
        queue.add(batch.slice(cut))
        drawn = [row for row in queue.rows() if row["inclusion"] is not None]
        seen[[row["mask_row"] for row in drawn]] += 1 / np.array([row["inclusion"] for row in drawn])
    accepted = np.arange(300) % 3 != 0
    assert not seen[~accepted].any()
    error = np.sqrt(200 / 30 * SEEDS)  # of a row that is drawn with a chance of 0.15 or more
    assert np.abs(seen[accepted] - SEEDS).max() < 4.5 * error
    assert abs(seen[accepted].mean() - SEEDS) < 1


@pytest.mark.parametrize("rejected", [False, True])
@pytest.mark.parametrize("ending", ["jsonl", "json", "csv"])
def test_a_queue_of_audited_rows_or_rejected_rows_alone(tmp_path: Path, rejected: bool, ending: str) -> None:
    """Nothing rejected: the audit is the queue. Everything rejected: there is nothing to audit."""
    columns = {"prediction": ["a", "b"] * 50, "loss": np.arange(100.0), "rejected": np.full(100, rejected)}
    batch = pa.record_batch(columns)
    queue = ReviewQueue(batch.schema, Audit(20))
    queue.add(batch)
    rows = list(queue.rows())
    assert len(rows) == (100 if rejected else 20)
    assert {row["inclusion"] for row in rows} == ({None} if rejected else {0.2})
    path = tmp_path / f"q.{ending}"
    with OutputFile(str(path)) as file:
        write_tasks(queue, file, 30)
        file.commit()
    text = path.read_text()
    written = len(text.splitlines()) - 1 if ending == "csv" else text.count("mask_row")
    assert written == (30 if rejected else 20)


def test_an_audit_that_finds_no_error(world: dict[str, Any]) -> None:
    rows, folder = draw(world, "--audit", "300"), world["folder"]
    drawn = [row["id"] for row in rows if row["inclusion"] is not None]
    pq.write_table(pa.table({"id": drawn, "label": world["mask"]["prediction"][drawn]}), folder / "right.parquet")
    asked = ("evaluate", folder / "bare.parquet", "-r", folder / "r.json", "--labels-from", folder / "right.parquet")
    report = drrej.Report.from_json(succeed(*asked, "--join-on", "id", "--audited", "--format", "json").decode())
    assert report.audit is not None
    assert (report.audit.accuracy.value, report.audit.accuracy.upper) == (1.0, 1.0)
    assert 0.9 < report.audit.accuracy.lower < lower_bound(len(drawn), len(drawn), 0.025)


def test_an_audit_judges_the_target_without_most_labels(world: dict[str, Any]) -> None:
    rows, folder = draw(world, "--audit", "900"), world["folder"]
    drawn = [row["id"] for row in rows if row["inclusion"] is not None]
    labels, mask = world["labels"], world["mask"]
    pq.write_table(pa.table({"id": drawn, "label": labels[drawn]}), folder / "answers.parquet")
    asked = ("evaluate", folder / "bare.parquet", "-r", folder / "r.json", "--labels-from", folder / "answers.parquet")
    out = succeed(*asked, "--join-on", "id", "--audited", "--format", "json", "--gate", "audit.accuracy.lower >= 0.5")
    report = drrej.Report.from_json(out.decode())
    assert report.accuracy is None
    assert report.audit is not None
    assert report.audit.labels == len(drawn)
    parts = [mask["prediction"][drawn] == number for number in range(CLASSES)]
    sizes = [int((~mask["rejected"] & (mask["prediction"] == number)).sum()) for number in range(CLASSES)]
    right = [np.mean(labels[drawn][part] == mask["prediction"][drawn][part]) for part in parts]
    assert report.audit.accuracy.value == pytest.approx(np.average(right, weights=sizes), rel=1e-12)
    for row, part, share in zip(report.audit.per_group, parts, right, strict=True):
        hits, size = round(share * part.sum()), int(part.sum())
        assert row.accuracy.lower == pytest.approx(lower_bound(hits, size, 0.025 / CLASSES), rel=1e-9)
    (promise,) = report.target.promises
    assert promise.what == "risk"
    assert promise.value == pytest.approx(1 - report.audit.accuracy.value)
    truth = np.mean(labels[~mask["rejected"]] != mask["prediction"][~mask["rejected"]])
    assert promise.lower <= truth <= promise.upper
    assert fail(*asked, "--join-on", "id", "--gate", "audit.accuracy > 0", code=2)


def test_missed_cases_are_known_from_an_audit_and_all_reviews(world: dict[str, Any]) -> None:
    goals = drrej.Rule("promises", 0.0, promises=(drrej.core.thresholds.Goal("missed", 0.2, "1"),))
    rejector = drrej.threshold(source(world["dump"]), world["rejector"], goals)
    mask = write_mask(source(world["dump"]), rejector, world["folder"] / "n.parquet")
    table, labels = pq.read_table(world["dump"]), world["labels"]
    random = np.random.default_rng(1).random(ROWS) < 0.3
    for known, told in ((random | mask["rejected"], True), (random, False)):
        column = pa.array(np.where(known, labels, 0), mask=~known)
        path = world["folder"] / "part.parquet"
        pq.write_table(table.set_column(table.schema.names.index("label"), "label", column), path)
        report = evaluate(source(path), rejector, (), EvaluateOptions(labels=False, audited=True))
        (promise,) = report.target.promises
        assert (promise.value is not None) == told
        if told:
            mine = labels == 1
            truth = np.mean((~mask["rejected"] & (mask["prediction"] != 1))[mine])
            assert promise.lower <= truth <= promise.upper
            assert promise.value == pytest.approx(truth, abs=0.05)


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Cutoffs by region, of which one is rare and does worse."""
    folder = tmp_path_factory.mktemp("regions")
    logits, labels = make_model(ROWS, CLASSES, 6)
    region = np.where(np.arange(ROWS) % 20 == 0, "rare", np.where(np.arange(ROWS) % 3 == 0, "b", "a"))
    worse = (region == "rare") & (np.random.default_rng(1).random(ROWS) < 0.05)
    labels = np.where(worse, (labels + 1) % CLASSES, labels)
    extra = {"id": pa.array(np.arange(ROWS)), "region": pa.array(region)}
    dump = write_dump(folder / "d.parquet", logits, labels, extra=extra)
    pq.write_table(pq.read_table(dump).drop_columns("label"), folder / "bare.parquet")
    rule = drrej.Rule("accuracy", 0.75)
    by = drrej.ThresholdOptions(by="region")
    rejector = drrej.threshold(source(dump), make_rejector(source(dump), ("accuracy", 0.8)), rule, by)
    rejector.save(folder / "r.json")
    mask = write_mask(source(dump), rejector, folder / "m.parquet")
    return {"folder": folder, "rejector": rejector, "labels": labels, "mask": mask, "region": region}


def test_an_audit_is_drawn_by_the_groups_that_have_cutoffs(regions: dict[str, Any], tmp_path: Path) -> None:
    """The sample, its chances, the weighted report and its verdicts, and the monitor, each counted again."""
    folder, labels, region = regions["folder"], regions["labels"], regions["region"]
    accepted, predicted = ~regions["mask"]["rejected"], regions["mask"]["prediction"]
    drawn = [row for row in draw(regions, "--audit", "400") if row["inclusion"] is not None]
    ids, right, sizes = np.array([row["id"] for row in drawn]), {}, {}
    for name in ("a", "b", "rare"):
        mine = [row for row in drawn if row["region"] == name]
        sizes[name] = int((accepted & (region == name)).sum())
        assert len(mine) >= 30
        assert {row["inclusion"] for row in mine} == {len(mine) / sizes[name]}
        part = ids[region[ids] == name]
        right[name] = int((labels[part] == predicted[part]).sum()), part.size
    pq.write_table(pa.table({"id": ids, "label": labels[ids]}), tmp_path / "answers.parquet")
    answers = ("--labels-from", tmp_path / "answers.parquet", "--join-on", "id", "--audited")
    asked = ("evaluate", folder / "bare.parquet", "-r", folder / "r.json", *answers)
    report = drrej.Report.from_json(succeed(*asked, "--format", "json").decode())
    shares = [hits / rows for hits, rows in right.values()]
    assert report.audit.accuracy.value == pytest.approx(np.average(shares, weights=list(sizes.values())))
    assert [row.group for row in report.audit.per_group] == ["a", "b", "rare"]
    assert {promise.group: promise.value for promise in report.target.promises} == pytest.approx(
        {name: 1 - hits / rows for name, (hits, rows) in right.items()}
    )
    hits, rows = right["rare"]
    assert report.target.promises[2].upper == pytest.approx(1 - lower_bound(hits, rows, 0.025 / 3))
    assert "region  accepted" in succeed(*asked, "--verbose").decode()
    assert "the audit was drawn by 'region'" in fail(*asked, "--report-by", "prediction")
    watched = ("monitor", tmp_path / "s.json", folder / "bare.parquet", "-r", folder / "r.json")
    succeed(*watched, "--max-risk", "0.5", "--no-drift", "--batch", "one")
    succeed(*watched, "--late", "one", *answers)
    (batch,) = json.loads((tmp_path / "s.json").read_text())["batches"]
    share = min(rows / sizes[name] for name, (_, rows) in right.items())
    assert abs(batch["labels"] - share * accepted.sum()) < 3
    without = ("reject", folder / "bare.parquet", "-r", folder / "r.json", "-o", folder / "m.parquet", "-f")
    message = fail(*without, "--review", folder / "q.jsonl", "--audit", "9", "--keep", "id")
    assert "--audit draws rows by 'region', which is not in the mask; name it in --keep" in message


def test_rows_that_bring_a_score_are_drawn_from_all_accepted_ones(tmp_path: Path) -> None:
    """A column of the file that is called "prediction" has nothing to do with it."""
    rng = np.random.default_rng(2)
    score = rng.random(3000)
    right = rng.random(3000) < 0.4 + 0.6 * score
    table = pa.table({"id": np.arange(3000), "score": score, "prediction": ["x", "y", "z"] * 1000, "correct": right})
    pq.write_table(table, tmp_path / "d.parquet")
    pq.write_table(table.drop_columns("correct"), tmp_path / "bare.parquet")
    scores = ("--score", "score", "--correct", "correct")
    succeed("calibrate", tmp_path / "d.parquet", *scores, "-o", tmp_path / "c.json")
    succeed("fit", tmp_path / "d.parquet", *scores, "-r", tmp_path / "c.json", "-o", tmp_path / "f.json")
    rule = ("-r", tmp_path / "f.json", "--accuracy", "0.85", "-o", tmp_path / "r.json")
    succeed("threshold", tmp_path / "d.parquet", *scores, *rule)
    drawn = [row for row in draw({"folder": tmp_path}, "--audit", "200") if row["inclusion"] is not None]
    assert len({row["inclusion"] for row in drawn}) == 1
    ids = np.array([row["id"] for row in drawn])
    pq.write_table(pa.table({"id": ids, "correct": right[ids]}), tmp_path / "answers.parquet")
    asked = ("evaluate", tmp_path / "bare.parquet", "-r", tmp_path / "r.json", "--correct", "correct")
    answers = ("--labels-from", tmp_path / "answers.parquet", "--join-on", "id", "--audited", "--format", "json")
    report = drrej.Report.from_json(succeed(*asked, *answers).decode())
    assert report.audit.accuracy.value == pytest.approx(right[ids].mean())
    assert report.audit.accuracy.lower == pytest.approx(lower_bound(int(right[ids].sum()), 200, 0.025))


# Levels


@pytest.mark.parametrize("name", BATCHES)
def test_the_intervals_of_an_audit_hold_at_their_level(name: str) -> None:
    """Kinds of very different sizes and rates, of which the small ones are drawn more often, without replacement."""
    high, low, any_class, _ = interval_misses(name, 2000)
    assert max(high, low) <= 0.025 + 3 * np.sqrt(0.025 / 2000)
    assert any_class <= 0.05 + 3 * np.sqrt(0.05 / 2000)


@pytest.mark.parametrize("name", ["three, one rare", "less than a row counts"])
def test_audits_raise_few_false_alarms_in_a_monitor(name: str) -> None:
    assert np.mean(first_alarms(name, 200) < DAYS) <= 0.05 + 3 * np.sqrt(0.05 / 200)
    assert np.mean(first_alarms(name, 50, limit=0.5) < DAYS) > 0.9


def test_fractions_of_a_row_are_settled_anew_for_each_batch() -> None:
    """As often as it says, over batches of one size: else the evidence of a rare class is wrong every day."""
    rows, _, drawn = batch_of("less than a row counts")
    accepted, sample = (np.repeat(np.arange(3), sizes) for sizes in (rows, drawn))
    counts = [np.bincount(sample[self_weighting(accepted, sample, "abc", seed)], minlength=3) for seed in range(600)]
    expected = (drawn / rows).min() * rows
    assert np.abs(np.mean(counts, axis=0) - expected).max() < 4.5 * np.sqrt(0.25 / 600)
    assert set(np.unique(counts, axis=0)[:, 2]) == {0, 1}


def test_a_single_kind_has_the_exact_interval() -> None:
    found = sampled_share(np.array([500]), np.array([60]), np.array([4]), 0.025)
    assert found == (4 / 60, lower_bound(4, 60, 0.025), upper_bound(4, 60, 0.025))
    assert sampled_share(np.array([500]), np.array([0]), np.array([0]), 0.025) == (None, 0.0, 1.0)
    share, low, high = sampled_share(np.array([500, 500]), np.array([60, 0]), np.array([0, 0]), 0.025)
    assert (share, low) == (0.0, 0.0)
    assert high == pytest.approx(0.5 * upper_bound(0, 60, 0.025) + 0.5)


def test_rows_that_count_in_a_monitor_have_the_shares_of_all() -> None:
    accepted, drawn = np.repeat([0, 1, 2], [900, 90, 10]), np.repeat([0, 1, 2], [60, 30, 9])
    chosen = self_weighting(accepted, drawn, "abc", 0)
    counts = np.bincount(drawn[chosen], minlength=3)
    assert counts[0] == 60
    assert counts[1] == 6
    assert counts[2] in (0, 1)
    assert self_weighting(accepted, accepted, "abc", 0).all()
    with pytest.raises(MonitorError, match="no accepted row of 'c' has a label"):
        self_weighting(accepted, drawn[:90], "abc", 0)


def test_late_labels_of_an_audit_in_a_monitor(world: dict[str, Any], tmp_path: Path) -> None:
    rows, folder = draw(world, "--audit", "600"), world["folder"]
    drawn = [row["id"] for row in rows if row["inclusion"] is not None]
    pq.write_table(pa.table({"id": drawn, "label": world["labels"][drawn]}), tmp_path / "late.parquet")
    asked = ("monitor", tmp_path / "s.json", folder / "bare.parquet", "-r", folder / "r.json")
    succeed(*asked, "--max-risk", "0.3", "--no-drift", "--batch", "one")
    told = ("--late", "one", "--labels-from", tmp_path / "late.parquet", "--join-on", "id", "--audited")
    succeed(*asked, *told)
    (batch,) = json.loads((tmp_path / "s.json").read_text())["batches"]
    assert 300 <= batch["labels"] <= len(drawn)
    accepted = ~world["mask"]["rejected"]
    wrong = np.mean(world["labels"][accepted] != world["mask"]["prediction"][accepted])
    assert abs(batch["errors"] / batch["labels"] - wrong) < 4 * np.sqrt(wrong / batch["labels"])


@pytest.mark.parametrize("size", [0, -1, 1.5, float("nan")])
def test_sizes_that_are_neither_a_share_nor_a_number(size: float) -> None:
    with pytest.raises(OptionError, match="must be a share between 0 and 1, or a number of rows"):
        Audit(size)
    with pytest.raises(OptionError, match="at least one row of each of 3 predicted classes"):
        Audit(2).allotted([5, 5, 5])
