"""Batches in a row through the real command and the library: what counts, what is refused, what stays whole."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import (
    Many,
    environment,
    load_json,
    make_model,
    make_rejector,
    more_trials,
    source,
    write_dump,
    write_mask,
)
from running import drrej, fail, run_drrej, succeed

from drrej.core.drift import bin_counts
from drrej.core.reuse import Sketch
from drrej.data import dump as dump_module
from drrej.documents.document import schema_of
from drrej.documents.gates import Gate, catalogue
from drrej.documents.rejector import Rejector
from drrej.errors import MonitorError, OptionError
from drrej.monitor import step
from drrej.monitor.evidence import LOG_ODDS, LOG_WEIGHTS, LossDrift, start_share, unspent
from drrej.monitor.report import MonitorReport
from drrej.monitor.state import KEPT_BATCHES, Batch, MonitorState, Settings
from drrej.monitor.step import MonitorOptions, monitor
from drrej.outputs.destinations import locked_state

CLASSES = 4
RISK = 0.35
"""Above the risk of the generated model on the rows that the rejector accepts."""


def batch_rows(seed: int, rows: int = 300, harder: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a batch; `harder` below 1 makes the model less sure, and as wrong as it says."""
    logits, _ = make_model(rows, CLASSES, seed)
    logits = (logits * harder).astype(np.float32)
    scaled = logits.astype(np.float64) / 2.0
    p = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    draws = np.random.default_rng(seed + 10**6).random((rows, 1))
    return logits, (p.cumsum(axis=1) < draws).sum(axis=1).clip(max=CLASSES - 1)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rejector, another one, and twelve batches with labels."""
    folder = tmp_path_factory.mktemp("world")
    logits, labels = batch_rows(1, 4000)
    val = write_dump(folder / "val.parquet", logits, labels)
    (folder / "r.json").write_text(make_rejector(source(val)).to_json())
    (folder / "other.json").write_text(make_rejector(source(val), ("coverage", 0.7)).to_json())
    for number in range(12):
        write_dump(folder / f"n{number}.parquet", *batch_rows(100 + number))
    return folder


def rejector_of(world: Path) -> Rejector:
    return Rejector.from_json((world / "r.json").read_text())


def run_batches(world: Path, count: int, **options: Any) -> tuple[MonitorState, MonitorReport]:
    state = None
    for number in range(count):
        wanted = MonitorOptions(max_risk=RISK, min_coverage=0.7, **options)
        state, report = monitor(source(world / f"n{number}.parquet"), rejector_of(world), state, wanted)
        assert MonitorState.from_json(state.to_json()) == state
    assert state is not None
    return state, report


# What counts


def test_counts_are_those_of_the_mask(world: Path, tmp_path: Path) -> None:
    state, report = run_batches(world, 3)
    rejector = rejector_of(world)
    for number, batch in enumerate(state.batches):
        path = world / f"n{number}.parquet"
        mask, labels = write_mask(source(path), rejector, tmp_path / "mask.parquet"), batch_rows(100 + number)[1]
        accepted = ~mask["rejected"]
        wrong = accepted & (mask["prediction"] != labels)
        assert (batch.name, batch.rows, batch.labels) == (f"n{number}", 300, batch.accepted)
        assert (batch.accepted, batch.errors) == (accepted.sum(), wrong.sum())
    assert state.drift is not None
    assert state.drift.new == bin_counts(mask["loss"], state.drift.edges)
    assert state.by_prediction is not None
    new_rows, new_accepted, old_rows, _ = zip(*state.by_prediction.values(), strict=True)
    assert list(new_rows) == np.bincount(mask["prediction"], minlength=CLASSES).tolist()
    assert list(new_accepted) == np.bincount(mask["prediction"][accepted], minlength=CLASSES).tolist()
    assert sum(old_rows) == 600
    assert (report.coverage.value, report.rows) == (state.total.accepted / 900, 900)


def exact_rate_e_value(counts: list[tuple[int, int]], limit: float) -> float:
    """Both e-values of a rate and their mean, with all starts written out, in 40 digits."""
    with mpmath.workdps(40):
        weights = [mpmath.e ** mpmath.mpf(w) for w in LOG_WEIGHTS]
        odds = [mpmath.e ** mpmath.mpf(o) for o in LOG_ODDS]

        def product(batches: list[tuple[int, int]]) -> Any:
            events, rows = sum(e for e, _ in batches), sum(n for _, n in batches)
            return [theta**events / (1 + mpmath.mpf(limit) * (theta - 1)) ** rows for theta in odds]

        def mixed(batches: list[tuple[int, int]]) -> Any:
            return sum(w * m for w, m in zip(weights, product(batches), strict=True))

        looks = [batch for batch in counts if batch[1]]
        restarts = sum(start_share(j + 1) * mixed(looks[j:]) for j in range(len(looks)))
        return float(mpmath.log((mixed(looks) + restarts + unspent(len(looks))) / 2))


def test_e_values_by_another_route(world: Path, tmp_path: Path) -> None:
    state, _ = run_batches(world, 5)
    values = state.log_e_values
    risk = exact_rate_e_value([(batch.errors, batch.labels) for batch in state.batches], RISK)
    rejected = exact_rate_e_value([(batch.rows - batch.accepted, batch.rows) for batch in state.batches], 1 - 0.7)
    assert values["risk"] == pytest.approx(risk, abs=1e-9)
    assert values["coverage"] == pytest.approx(rejected, abs=1e-9)
    first = np.subtract(state.drift.pool, counted_bins(state, world, tmp_path)).tolist()
    drift = LossDrift.start(state.drift.edges, first)
    assert drift.first_rows == 4000
    for number in range(5):
        drift = drift.update(bins_of_batch(state, world, tmp_path, number))
    both = np.logaddexp(drift.log_e_value, drift.restarts_log_e_value) - math.log(2)
    assert values["drift"] == pytest.approx(both, abs=1e-12)
    assert state.batches[-1].log_e == values


def bins_of_batch(state: MonitorState, world: Path, tmp_path: Path, number: int) -> tuple[int, ...]:
    mask = write_mask(source(world / f"n{number}.parquet"), rejector_of(world), tmp_path / "mask.parquet")
    assert state.drift is not None
    return bin_counts(mask["loss"], state.drift.edges)


def counted_bins(state: MonitorState, world: Path, tmp_path: Path) -> np.ndarray:
    return np.sum([bins_of_batch(state, world, tmp_path, number) for number in range(5)], axis=0)


def test_the_state_does_not_depend_on_blocks_threads_files_or_the_order_of_rows(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, labels = batch_rows(7, 2000)
    group = np.array(["a", "b", "c"])[np.arange(2000) % 3]
    order = np.random.default_rng(0).permutation(2000)

    def state(folder: str, jobs: int, pieces: int, rows: np.ndarray, row_group: int) -> str:
        (tmp_path / folder).mkdir()
        for piece, part in enumerate(np.array_split(rows, pieces)):
            path = tmp_path / folder / f"{piece}.parquet"
            write_dump(path, logits[part], labels[part], row_group=row_group, extra={"group": pa.array(group[part])})
        wanted = MonitorOptions(max_risk=RISK, by="group", batch="x")
        return monitor(source(tmp_path / folder, jobs=jobs), rejector_of(world), None, wanted)[0].to_json()

    one = state("one", 1, 1, np.arange(2000), 2000)
    assert state("threads", 4, 3, order, 170) == one
    monkeypatch.setattr(dump_module, "MAX_BLOCK_ROWS", 37)
    assert state("blocks", 2, 2, order, 900) == one


def test_labels_that_are_swapped_are_said(world: Path, tmp_path: Path) -> None:
    """A batch below chance is counted, with a warning that says why that may be."""
    logits, labels = batch_rows(77)
    swapped = np.array([1, 2, 0, *range(3, logits.shape[1])])[labels]
    dump = write_dump(tmp_path / "batch.parquet", logits, swapped)
    words = (dump, "-r", world / "r.json", "--max-risk", "0.2")
    said = "labels or class order may be swapped"
    assert said in drrej("monitor", tmp_path / "a.json", *words).err
    assert said not in drrej("monitor", tmp_path / "b.json", *words, "-q").err


def test_the_order_of_batches_does_not_change_the_totals(world: Path) -> None:
    forward, _ = run_batches(world, 4)
    backward = None
    for number in reversed(range(4)):
        wanted = MonitorOptions(max_risk=RISK, min_coverage=0.7)
        backward, _ = monitor(source(world / f"n{number}.parquet"), rejector_of(world), backward, wanted)
    assert backward is not None
    for counted in ("rows", "accepted", "labels", "errors", "batches"):
        assert getattr(backward.total, counted) == getattr(forward.total, counted)
    for ours, theirs in ((forward.risk, backward.risk), (forward.coverage, backward.coverage)):
        assert ours is not None
        assert theirs is not None
        assert ours.log_e_value == theirs.log_e_value
    assert forward.drift.pool == backward.drift.pool
    assert [batch.name for batch in backward.batches] == ["n3", "n2", "n1", "n0"]


def test_drift_of_a_learned_loss_is_looked_for_by_its_plain_base(world: Path, tmp_path: Path) -> None:
    import drrej as package

    val = source(world / "val.parquet")
    rejector = make_rejector(val, ratio=package.RatioOptions(loss="learned"))
    assert rejector.ratio is not None
    assert rejector.ratio.drift_quantiles is not None
    state, _ = monitor(source(world / "n0.parquet"), rejector)
    plain = make_rejector(val, ratio=package.RatioOptions(loss=rejector.ratio.loss.drift_loss.name))
    mask = write_mask(source(world / "n0.parquet"), plain, tmp_path / "m.parquet")
    assert state.drift.new == bin_counts(mask["loss"], state.drift.edges)
    assert set(state.drift.edges) <= set(rejector.ratio.drift_quantiles)


def test_tied_losses_make_the_first_batch_the_first_batch(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def dump(name: str) -> str:
        return write_dump(
            tmp_path / name, 3 * np.eye(3, dtype=np.float32)[rng.integers(0, 3, 400)] - 1, rng.integers(0, 3, 400)
        )

    rejector = make_rejector(source(dump("val.parquet")), ("coverage", 1.0))
    state, report = monitor(source(dump("a.parquet")), rejector)
    assert (state.drift.fit_rows, state.drift.first_rows) == (0, 400)
    assert "the rows of all batches" in report.drift.promise
    monitor(source(dump("b.parquet")), rejector, state)


# The same rows twice


def test_a_batch_counts_once(world: Path, tmp_path: Path) -> None:
    batch = ("monitor", "s.json", world / "n0.parquet", "-r", world / "r.json")
    succeed(*batch, "--max-risk", RISK, cwd=tmp_path)
    before = (tmp_path / "s.json").read_bytes()
    assert "already been counted, as the batch 'n0'" in fail(*batch, cwd=tmp_path)
    assert "already been counted" in fail(*batch, "--batch", "another", cwd=tmp_path)
    table = pq.ParquetFile(world / "n0.parquet").read()
    (tmp_path / "again").mkdir()
    turned = table.take(pa.array(np.arange(300)[::-1]))
    for part in range(2):
        pq.write_table(turned.slice(150 * part, 150), tmp_path / "again" / f"{part}.parquet")
    assert "already been counted" in fail("monitor", "s.json", "again", "-r", world / "r.json", cwd=tmp_path)
    pq.write_table(table.slice(0, 0), tmp_path / "empty.parquet")
    assert "zero rows" in fail("monitor", "s.json", "empty.parquet", "-r", world / "r.json", cwd=tmp_path)
    assert (tmp_path / "s.json").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again", "empty.parquet", "s.json"]


def test_a_directory_that_grows_is_noticed(world: Path, tmp_path: Path) -> None:
    days = tmp_path / "days"
    days.mkdir()
    shutil.copy(world / "n0.parquet", days)
    batch = ("monitor", tmp_path / "s.json", days, "-r", world / "r.json")
    succeed(*batch)
    shutil.copy(world / "n1.parquet", days)
    message = fail(*batch)
    assert "'batch 2' holds about 100% of the rows of the batch before, 'days'" in message
    assert "give the files of this batch alone" in message


def test_batches_have_names_of_their_own(world: Path, tmp_path: Path) -> None:
    state = tmp_path / "s.json"
    for number, (name, path) in enumerate({"n0": "n0.parquet", "batch 2": "n1.parquet n2.parquet"}.items()):
        succeed("monitor", state, *(world / part for part in path.split()), "-r", world / "r.json")
        assert load_json(state)["batches"][number]["name"] == name
    succeed("monitor", state, world / "n3.parquet", "-r", world / "r.json", "--batch", "2026-03-01")
    succeed("monitor", state, "-", "-r", world / "r.json", stdin=(world / "n4.parquet").read_bytes())
    assert [batch["name"] for batch in load_json(state)["batches"]] == ["n0", "batch 2", "2026-03-01", "batch 4"]
    assert "already" in fail("monitor", state, world / "n5.parquet", "-r", world / "r.json", "--batch", "n0")
    assert "one line" in fail("monitor", state, world / "n5.parquet", "-r", world / "r.json", "--batch", "a\nb")


# Settings, rejectors, resets


def test_another_rejector_is_refused(world: Path, tmp_path: Path) -> None:
    state = tmp_path / "s.json"
    succeed("monitor", state, world / "n0.parquet", "-r", world / "r.json")
    assert "another rejector" in fail("monitor", state, world / "n1.parquet", "-r", world / "other.json")
    told = ("monitor", state, world / "n1.parquet", "-r", world / "other.json", "--reset", "a new threshold")
    succeed(*told, "--min-coverage", "0.5")
    tree = load_json(state)
    assert [(reset["why"], reset["batches"], reset["last"]) for reset in tree["resets"]] == [
        ("a new threshold", 1, "n0")
    ]
    assert (tree["settings"]["min_coverage"], len(tree["batches"]), len(tree["seen"])) == (0.5, 1, 2)
    assert "already been counted" in fail("monitor", state, world / "n0.parquet", "-r", world / "other.json")


def test_a_newer_version_that_wrote_the_same_rejector_is_no_other_rejector(world: Path) -> None:
    from msgspec.structs import replace

    state, _ = run_batches(world, 1)
    newer = replace(rejector_of(world), drrej_version="99.0")
    monitor(source(world / "n1.parquet"), newer, state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-risk", "0.2"], "--max-risk 0.2: the monitor was started with 0.35 there"),
        (["--min-coverage", "0.2"], "--min-coverage 0.2: the monitor was started with nothing there"),
        (["--no-drift"], "--no-drift: the monitor was started with True there"),
        (["--confidence", "0.9"], "--confidence 0.9: the monitor was started with 0.95 there"),
        (["--report-by", "id"], "--report-by id: the monitor was started with nothing there"),
        (["--late", "n7"], "--late n7: there is no such batch among the last 1, which end with 'n0'"),
        (["--late", "n0", "--batch", "x"], "--late cannot be combined with --batch"),
        (["--reset", " "], "--reset: write one line"),
        (["--gate", "accuracy >= 0.9"], "there is no metric 'accuracy'"),
        (["-o", "x.png"], "-o x.png: the ending determines the format; use one of .html, .json, .md, .prom, .txt"),
        (["--label", "nothing"], "there is no label column 'nothing'"),
    ],
)
def test_what_does_not_go_together(world: Path, tmp_path: Path, options: list[str], message: str) -> None:
    state = tmp_path / "s.json"
    succeed("monitor", state, world / "n0.parquet", "-r", world / "r.json", "--max-risk", RISK)
    before = state.read_bytes()
    assert message in fail("monitor", state, world / "n1.parquet", "-r", world / "r.json", *options, cwd=tmp_path)
    assert state.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["n0.parquet"], "-r REJECTOR is required"),
        (["n0.parquet", "-r", "r.json", "--no-drift"], "nothing is watched"),
        (["n0.parquet", "-r", "r.json", "--max-risk", "1"], "--max-risk 1: it must be above 0 and below 1"),
        (["n0.parquet", "-r", "r.json", "--reset", "why"], "--reset: there is no monitor to reset yet"),
        (["n0.parquet", "-r", "r.json", "--late", "n0"], "--late n0: there is no monitor yet"),
        ([], "no such file; name the file of the first batch"),
        (["--max-risk", "0.1"], "--max-risk requires the DUMP of a batch"),
    ],
)
def test_what_a_first_batch_needs(world: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    assert message in fail("monitor", tmp_path / "s.json", *arguments, cwd=world)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("state", ["-", "s3://bucket/state.json", "/dev/null"])
def test_a_state_is_a_file_here(world: Path, state: str) -> None:
    assert "must be a file on this machine" in fail("monitor", state, world / "n0.parquet", "-r", world / "r.json")


def test_a_regression_has_no_monitor(tmp_path: Path) -> None:
    pq.write_table(pa.table({"variance": np.random.default_rng(0).random(60)}), tmp_path / "f.parquet")
    succeed("fit", "f.parquet", "--loss", "column", "--loss-column", "variance", "-o", "f.json", cwd=tmp_path)
    succeed("threshold", "f.parquet", "-r", "f.json", "--coverage", "0.8", "-o", "r.json", cwd=tmp_path)
    assert "for a regression" in fail("monitor", "s.json", "f.parquet", "-r", "r.json", cwd=tmp_path)


# Alarms


def test_an_alarm_stays_until_it_is_reset(world: Path, tmp_path: Path) -> None:
    state, rejector = tmp_path / "s.json", world / "r.json"
    succeed("monitor", state, world / "n0.parquet", "-r", rejector, "--min-coverage", "0.7", "--no-drift")
    for number in range(6):
        write_dump(tmp_path / f"hard{number}.parquet", *batch_rows(500 + number, harder=0.3))
        outcome = drrej("monitor", state, tmp_path / f"hard{number}.parquet", "-r", rejector)
        if outcome.code:
            break
    assert (outcome.code, load_json(state)["alarms"][0]["monitor"]) == (1, "coverage")
    since = f"hard{number}"
    assert outcome.lines[0].startswith(f"drrej: alarm: coverage since '{since}' (e-value ")
    assert outcome.out.decode().startswith(f"Alarm: coverage since '{since}'")
    for later in range(1, 6):
        outcome = drrej("monitor", state, world / f"n{later}.parquet", "-r", rejector, "-q")
        assert (outcome.code, outcome.out.decode(), outcome.err) == (1, f"alarm: coverage since '{since}'\n", "")
    assert drrej("monitor", state, "-q").code == 1
    reset = drrej("monitor", state, world / "n6.parquet", "-r", rejector, "-q", "--reset", "the camera was cleaned")
    assert (reset.code, reset.out) == (0, b"ok\n")
    tree = load_json(state)
    assert (tree["alarms"], tree["settings"]["min_coverage"]) == ([], 0.7)
    assert tree["resets"][0]["alarms"][0]["batch"] == since


@pytest.mark.parametrize(("harder", "alarms"), [(1.0, set()), (0.6, {"drift", "coverage"})])
def test_sixty_batches(world: Path, tmp_path: Path, harder: float, alarms: set[str], many: Many) -> None:
    """Through the command: quiet for all batches (20, or 60), or changed after two thirds and seen within a few."""
    state, batches = tmp_path / "s.json", many(60)
    changed = 2 * batches // 3
    seen: dict[str, int] = {}
    limits = ("--max-risk", RISK, "--min-coverage", 0.75)
    for batch in range(batches):
        path = write_dump(
            tmp_path / "batch.parquet", *batch_rows(1000 + batch, harder=harder if batch >= changed else 1.0)
        )
        outcome = drrej("monitor", state, path, "-r", world / "r.json", *limits, "--format", "json", "--batch", batch)
        report = json.loads(outcome.out)
        assert outcome.code == (1 if report["alarms"] else 0)
        seen |= {name: batch for name in report["alarms"] if name not in seen}
    assert seen.keys() == alarms
    assert all(changed <= batch <= changed + 10 for batch in seen.values()), seen
    low, high = report["risk"]["lower"], report["risk"]["upper"]
    assert low < report["risk"]["value"] < high < RISK
    assert MonitorState.from_json(state.read_text()).total.batches == batches


def test_gates_on_its_figures(world: Path, tmp_path: Path) -> None:
    state = tmp_path / "s.json"
    batch = ("-r", world / "r.json", "--max-risk", RISK)
    outcome = drrej("monitor", state, world / "n0.parquet", *batch, "--gate", "coverage.lower >= 0.99")
    assert outcome.code == 1
    assert outcome.lines[0].startswith("drrej: gate failed: coverage.lower >= 0.99: the value is ")
    assert load_json(state)["alarms"] == []  # it was counted, and a gate is no alarm
    assert drrej("monitor", state, "--gate", "risk.watch.log10_e_value < 1", "--gate", "risk <= 0.35").code == 0
    assert "undefined" in fail("monitor", state, "--gate", "coverage.watch.limit > 0")


def test_each_number_that_a_gate_can_name_is_there(world: Path) -> None:
    _, report = run_batches(world, 2)
    for metric in catalogue(of=MonitorReport):
        assert Gate.parse(f"{metric.name} < 1e9").judge(report).passed


# Labels


def without_labels(path: Path, target: Path, kept: np.ndarray | None = None) -> str:
    """A copy without its labels, or with those of some rows alone."""
    table = pq.ParquetFile(path).read()
    labels = table.column("label").to_numpy()
    table = table.drop_columns(["label"])
    if kept is not None:
        table = table.append_column("label", pa.array(labels, mask=~kept))
    pq.write_table(table, target)
    return str(target)


def test_late_labels_count_once(world: Path, tmp_path: Path) -> None:
    """As if they had been there from the start, but for the looks of the restarts."""
    state, rejector = tmp_path / "s.json", world / "r.json"
    tables = []
    for number in range(3):
        table = pq.ParquetFile(world / f"n{number}.parquet").read()
        ids = pa.array(np.arange(300) + 1000 * number)
        table = table.set_column(table.schema.get_field_index("id"), "id", ids)
        tables.append(table.select(["id", "label"]))
        pq.write_table(table.drop_columns(["label"]), tmp_path / f"n{number}.parquet")
        succeed("monitor", state, tmp_path / f"n{number}.parquet", "-r", rejector, "--max-risk", RISK)
    pq.write_table(pa.concat_tables(tables), tmp_path / "labels.parquet")
    assert load_json(state)["risk"]["total"] == {"events": 0, "rows": 0}
    late = ("-r", rejector, "--labels-from", tmp_path / "labels.parquet", "--join-on", "id", "--late")
    assert "not the rows of that batch" in fail("monitor", state, tmp_path / "n0.parquet", *late, "n1")
    before = state.read_bytes()
    assert "no accepted row" in fail("monitor", state, tmp_path / "n1.parquet", "-r", rejector, "--late", "n1")
    assert state.read_bytes() == before
    for number in (1, 0, 2):
        succeed("monitor", state, tmp_path / f"n{number}.parquet", *late, f"n{number}")
    message = fail("monitor", state, tmp_path / "n1.parquet", *late, "n1")
    assert "labels of this batch have already been counted" in message
    direct = None
    for number in (1, 0, 2):
        direct, _ = monitor(source(world / f"n{number}.parquet"), rejector_of(world), direct, MonitorOptions(RISK))
    tree = load_json(state)
    assert [batch["labels_after"] for batch in tree["batches"]] == ["n2", "n2", "n2"]
    assert tree["risk"] == direct["risk"]  # the same looks in the same order


def test_late_labels_can_raise_the_alarm(world: Path, tmp_path: Path) -> None:
    logits, labels = batch_rows(9, 3000)
    wrong = (labels + 1) % CLASSES
    bare = write_dump(tmp_path / "a.parquet", logits)
    state, report = monitor(source(bare), rejector_of(world), None, MonitorOptions(max_risk=RISK))
    assert (report.risk.value, report.risk.labels, report.state) == (None, 0, "ok")
    told = write_dump(tmp_path / "b.parquet", logits, wrong)
    state, report = monitor(source(told), rejector_of(world), state, MonitorOptions(late="a"))
    assert [(alarm.monitor, alarm.batch) for alarm in state.alarms] == [("risk", "a")]
    assert MonitorState.from_json(state.to_json()) == state


def test_audits_of_some_accepted_rows(world: Path, tmp_path: Path) -> None:
    kept = np.random.default_rng(3).random(300) < 0.2
    path = without_labels(world / "n0.parquet", tmp_path / "n0.parquet", kept)
    rejector = rejector_of(world)
    mask = write_mask(source(path), rejector, tmp_path / "mask.parquet")
    labels = batch_rows(100)[1]
    audited = kept & ~mask["rejected"]
    message = fail("monitor", tmp_path / "s.json", path, "-r", world / "r.json")
    assert "no label (null)" in message
    assert "--on-missing-label skip" in message
    state, _ = monitor(source(path, on_missing_label="skip"), rejector)
    batch = state.batches[0]
    assert (batch.rows, batch.labels) == (300, audited.sum())
    assert batch.errors == (audited & (mask["prediction"] != labels)).sum()
    succeed("monitor", tmp_path / "s.json", path, "-r", world / "r.json", "--on-missing-label", "skip")
    assert MonitorState.from_json((tmp_path / "s.json").read_text()) == state
    pq.write_table(pa.table({"id": np.flatnonzero(kept), "label": labels[kept]}), tmp_path / "labels.parquet")
    joined = source(path, labels_from=str(tmp_path / "labels.parquet"), join_on="id", on_missing_label="skip")
    assert monitor(joined, rejector)[0] == state
    refused = source(path, labels_from=str(tmp_path / "labels.parquet"), join_on="id")
    with pytest.raises(Exception, match="no label in"):
        monitor(refused, rejector)


def test_a_key_that_occurs_twice_is_refused(world: Path, tmp_path: Path) -> None:
    logits, labels = batch_rows(5)
    path = write_dump(tmp_path / "a.parquet", logits, extra={"key": np.arange(300) // 2})
    pq.write_table(pa.table({"key": np.arange(150), "label": labels[:150]}), tmp_path / "labels.parquet")
    joined = source(path, labels_from=str(tmp_path / "labels.parquet"), join_on="key", on_missing_label="skip")
    with pytest.raises(Exception, match="a key that occurred before"):
        monitor(joined, rejector_of(world))


def test_labels_that_are_null_throughout_are_none(world: Path, tmp_path: Path) -> None:
    table = pq.ParquetFile(world / "n0.parquet").read().drop_columns(["label"])
    pq.write_table(table.append_column("label", pa.nulls(300)), tmp_path / "a.parquet")
    state, _ = monitor(source(tmp_path / "a.parquet"), rejector_of(world))
    assert state.batches[0].labels == 0
    pq.write_table(table.append_column("label", pa.array(["x"] * 300)), tmp_path / "b.parquet")
    with pytest.raises(Exception, match="labels are text"):
        monitor(source(tmp_path / "b.parquet"), rejector_of(world))


# What moved


def test_the_group_that_moved_is_named(world: Path, tmp_path: Path) -> None:
    state = None
    for number, harder in ((0, 1.0), (1, 1.0), (2, 0.2)):
        logits, labels = batch_rows(700 + number, 3000)
        group = np.array(["day", "dusk", "dark"])[np.arange(3000) % 3]
        logits[group == "dark"] *= harder
        extra = {"light": pa.array(group)}
        path = write_dump(tmp_path / f"{number}.parquet", logits, labels, extra=extra)
        wanted = MonitorOptions(by="light") if state is None else MonitorOptions()
        state, report = monitor(source(path), rejector_of(world), state, wanted)
        if number == 1:
            assert not report.moved
    assert report.state == "alarm"
    by_group = [move for move in report.moved if move.what.endswith("light")]
    assert [(move.what, move.part) for move in by_group] == [("coverage by light", "dark")]
    assert by_group[0].at_least < -0.2
    old_rows = {name: rows for name, (_, _, rows, _) in state.by_group.items()}
    assert old_rows == {"day": 2000, "dusk": 2000, "dark": 2000}


def test_too_many_groups_are_refused(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drrej.monitor.step.MOST_PARTS", 100)
    with pytest.raises(OptionError, match=r"`by=id`: there are 300 groups"):
        monitor(source(world / "n0.parquet"), rejector_of(world), None, MonitorOptions(by="id"))


# Reports


def test_every_format(world: Path, tmp_path: Path) -> None:
    state = tmp_path / "s.json"
    names = ["<b>first", "second"]
    for number, name in enumerate(names):
        batch = ("monitor", state, world / f"n{number}.parquet", "-r", world / "r.json", "--batch", name)
        succeed(*batch, "--min-coverage", "0.5", *(["-o", tmp_path / "p.html"] if number else []))
    page = (tmp_path / "p.html").read_text()
    assert page.count("<svg") == 3
    assert "&lt;b&gt;first" in page
    assert "<b>first" not in page
    tree = json.loads(succeed("monitor", state, "--format", "json"))
    assert (tree["format"], tree["state"], tree["batches"]) == ("drrej-monitor-report/2", "ok", 2)
    assert succeed("monitor", state, "--format", "github").startswith(
        b"::notice title=drrej monitor::No alarm; 2 batches, 600 rows; the last batch is 'second'"
    )
    markdown = succeed("monitor", state, "--format", "markdown").decode()
    assert "| coverage | below 0.5 |" in markdown
    assert "&lt;b&gt;first" in markdown
    text = succeed("monitor", state).decode()
    assert "- drift: it ever raises an alarm with probability at most 0.025 if all rows, including" in text
    succeed("monitor", state, "-o", tmp_path / "r.json", "-o", tmp_path / "r.txt", "-o", tmp_path / "r.md")
    assert (tmp_path / "r.txt").read_text() == text
    assert load_json(tmp_path / "r.json") == tree
    assert "exists already" in fail("monitor", state, "-o", tmp_path / "r.json")


def test_documents_follow_their_schemas(world: Path) -> None:
    import jsonschema

    state, report = run_batches(world, 3, by="id")
    for document in (state, report):
        schema = schema_of(type(document))
        jsonschema.Draft202012Validator(schema).validate(json.loads(document.to_json()))
        assert type(document).from_json(document.to_json()) == document
    assert json.loads(succeed("schema", "monitor"))["title"] == "drrej state of a monitor"


def test_a_reset_needs_no_batch(world: Path, tmp_path: Path) -> None:
    state = tmp_path / "s.json"
    batch = ("monitor", state, world / "n0.parquet", "-r", world / "r.json")
    assert drrej(*batch, "--max-risk", "0.0001").code == 1
    assert drrej("monitor", state).code == 1
    assert (
        succeed("monitor", state, "--reset", "relabelled")
        .decode()
        .startswith("Reset: relabelled; the last batch is 'n0'")
    )
    tree = load_json(state)
    assert (tree["alarms"], tree["ended"]) == ([], "relabelled")
    assert [(reset["why"], reset["alarms"][0]["monitor"]) for reset in tree["resets"]] == [("relabelled", "risk")]
    assert "was reset already ('relabelled')" in fail("monitor", state, "--reset", "again")
    assert "the monitor was reset" in fail(*batch, "--late", "n0")
    assert "already been counted" in fail(*batch)
    succeed("monitor", state, world / "n1.parquet", "-r", world / "other.json", "--max-risk", "0.9")
    tree = load_json(state)
    assert (len(tree["batches"]), len(tree["resets"]), "ended" in tree) == (1, 1, False)
    assert tree["settings"]["max_risk"] == 0.9
    assert "requires the DUMP" in fail("monitor", state, "--batch", "x")


def test_partitions_name_their_batch(world: Path, tmp_path: Path) -> None:
    state = tmp_path / "s.json"
    for number, day in enumerate(("dt=2026-10-01", "dt=2026-10-02", "dt=2026-10-02")):
        (tmp_path / day).mkdir(exist_ok=True)
        part = tmp_path / day / f"part-{number}.parquet"
        shutil.copy(world / f"n{number}.parquet", part)
        succeed("monitor", state, part, "-r", world / "r.json")
    names = [batch["name"] for batch in load_json(state)["batches"]]
    assert names == ["dt=2026-10-01", "dt=2026-10-02", "batch 3"]


def test_prometheus_reads_the_figures(world: Path, tmp_path: Path) -> None:
    state = tmp_path / "s.json"
    batch = ("monitor", state, world / "n0.parquet", "-r", world / "r.json", "--max-risk", RISK)
    succeed(*batch, "-o", tmp_path / "drrej.prom", "--gate", "coverage >= 0.1")
    lines = (tmp_path / "drrej.prom").read_text().splitlines()
    report = json.loads(succeed("monitor", state, "--format", "json"))
    figures = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(figures["drrej_monitor_coverage_value"]) == report["coverage"]["value"]
    assert float(figures["drrej_monitor_risk_watch_limit"]) == RISK
    assert [figures[f'drrej_monitor_alarm{{monitor="{name}"}}'] for name in ("risk", "coverage", "drift")] == ["0"] * 3
    assert figures['drrej_monitor_gate_passed{gate="coverage >= 0.1"}'] == "1"
    assert sum(line.startswith("# TYPE") for line in lines) == len(figures) - 2


# The state


DAMAGES: dict[str, Any] = {
    "a row more": lambda tree: tree["batches"][1].update(rows=301),
    "more accepted than rows": lambda tree: tree["batches"][1].update(accepted=999),
    "a fingerprint changed": lambda tree: tree["batches"][0].update(fingerprint="12c.0000000000000000"),
    "a fingerprint lost": lambda tree: tree["seen"].pop(),
    "no batches": lambda tree: tree.update(batches=[]),
    "a name twice": lambda tree: tree["batches"][1].update(name="n0"),
    "no limit": lambda tree: tree["settings"].pop("max_risk"),
    "a limit of 2": lambda tree: tree["settings"].update(max_risk=2),
    "nothing watched": lambda tree: tree["settings"].update(max_risk=None, min_coverage=None, drift=False),
    "evidence cut": lambda tree: tree["risk"]["restarts"]["log_values"].pop(),
    "edges": lambda tree: tree["drift"]["edges"].reverse(),
    "an unknown alarm": lambda tree: tree.update(alarms=[{"monitor": "weather", "batch": "n0"}]),
    "a part cut": lambda tree: tree["by_prediction"]["0"].pop(),
    "a part with more accepted than rows": lambda tree: tree["by_prediction"].update({"0": [1, 2, 3, 4]}),
    "a negative bin": lambda tree: tree["drift"]["pool"].__setitem__(0, -1),
    "sketch": lambda tree: tree.update(last="2.0.0.0.AAAA"),
    "another format": lambda tree: tree.update(format="drrej-monitor/3"),
    "a report": lambda tree: tree.update(format="drrej-report/1"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_refused_and_left(world: Path, tmp_path: Path, damage: str) -> None:
    state, _ = run_batches(world, 2)
    tree = json.loads(state.to_json())
    DAMAGES[damage](tree)
    path = tmp_path / "s.json"
    path.write_text(json.dumps(tree))
    before = path.read_bytes()
    message = fail("monitor", path, world / "n2.parquet", "-r", world / "r.json")
    assert message.startswith(f"{path}: ")
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"PAR1"])
def test_what_is_no_state_is_refused_and_left(world: Path, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(content)
    assert str(path) in fail("monitor", path, world / "n2.parquet", "-r", world / "r.json")
    assert path.read_bytes() == content


def test_a_cut_state_is_refused_wherever_it_is_cut(world: Path) -> None:
    text = run_batches(world, 2)[0].to_json()
    for end in range(0, len(text) - 2, 211):
        with pytest.raises(MonitorError):
            MonitorState.from_json(text[:end])


def fake_batch(rng: np.random.Generator, rows: int = 5000, classes: int = 100) -> tuple[Batch, dict[str, Any]]:
    """A batch as the pass would bring it."""
    accepted = rng.random(rows) < 0.8
    count = int(accepted.sum())
    columns = {
        "accepted": accepted,
        "prediction": rng.integers(0, classes, rows),
        "drift": rng.exponential(size=rows),
        "sketch": Sketch.of(rng.integers(0, 2**63, rows).astype(np.uint64)),
    }
    batch = Batch(
        rows=rows,
        accepted=count,
        labels=count,
        errors=int(rng.binomial(count, 0.05)),
        name="",
        fingerprint=rng.bytes(8).hex(),
        log_e={},
    )
    return batch, columns


@pytest.mark.parametrize("number_of_batches", [300, more_trials(1000)])
def test_many_batches_stay_small(world: Path, monkeypatch: pytest.MonkeyPatch, number_of_batches: int) -> None:
    """And nothing is lost by adding up old ones: the totals, and the monitors, know every row."""
    from msgspec.structs import replace

    rng, counted = np.random.default_rng(0), []

    def count(*_: Any) -> tuple[Batch, dict[str, Any]]:
        counted.append(fake_batch(rng))
        return counted[-1]

    monkeypatch.setattr(step, "count_batch", count)
    monkeypatch.setattr(step, "monitor_report", lambda *_: None)
    rejector = replace(rejector_of(world), classes=100, class_names=None)
    state = None
    for number in range(number_of_batches):
        wanted = MonitorOptions(max_risk=0.06, min_coverage=0.7, batch=f"batch of number {number}")
        state, _ = monitor(source("x"), rejector, state, wanted)
    assert state is not None
    assert len(state.to_json()) < 200_000
    assert MonitorState.from_json(state.to_json()) == state
    assert len(state.batches) == KEPT_BATCHES
    assert state.earlier is not None
    assert state.total.batches == len(state.seen) == number_of_batches
    assert state.total.errors == sum(batch.errors for batch, _ in counted)
    assert state.total.rows == 5000 * number_of_batches
    last = number_of_batches - KEPT_BATCHES - 1
    assert (state.earlier.first, state.earlier.name) == ("batch of number 0", f"batch of number {last}")
    assert state.earlier.batches == last + 1
    assert state.earlier.rows == 5000 * (last + 1)
    monkeypatch.setattr(step, "count_batch", lambda *_: counted[0])
    with pytest.raises(MonitorError, match="as an older batch"):
        monitor(source("x"), rejector, state)


# Runs at the same time, and runs that are killed


def test_who_comes_second_is_told_so(world: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    with locked_state(str(path)):
        message = fail("monitor", path, world / "n0.parquet", "-r", world / "r.json")
        assert message == f"{path}: it is locked by another run; try again when that is done"
        link = tmp_path / "link.json"
        link.symlink_to(path)
        assert "another run" in fail("monitor", link, world / "n0.parquet", "-r", world / "r.json")
    succeed("monitor", path, world / "n0.parquet", "-r", world / "r.json")
    with locked_state(str(path)):
        succeed("monitor", path)  # looking needs no lock
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.json", "s.json"]


def start(state: Path, batch: Path, rejector: Path) -> subprocess.Popen[bytes]:
    arguments = ["monitor", str(state), str(batch), "-r", str(rejector), "-q"]
    return subprocess.Popen(
        [sys.executable, "-m", "drrej", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )


@pytest.mark.system
def test_runs_at_the_same_time_lose_nothing(world: Path, tmp_path: Path) -> None:
    state = tmp_path / "s.json"
    left = {f"n{number}" for number in range(6)}
    rounds = 0
    while left and rounds < 20:
        rounds += 1
        runs = {name: start(state, world / f"{name}.parquet", world / "r.json") for name in sorted(left)}
        for name, run in runs.items():
            _, err = run.communicate(timeout=120)
            assert run.returncode == 0 or b"it is locked by another run" in err, err
            left -= {name} if run.returncode == 0 else set()
        known = MonitorState.from_json(state.read_text())
        assert {batch.name for batch in known.batches} == {f"n{number}" for number in range(6)} - left
    assert not left
    assert [p.name for p in tmp_path.iterdir()] == ["s.json"]


def killed_batches(world: Path, folder: Path, kills: int, seed: int) -> int:
    """Start batches and kill them at random moments; after each, the state is one of the two. How many were counted."""
    state, draw = folder / "s.json", random.Random(seed)
    began = time.monotonic()
    first = start(folder / "first.json", world / "n0.parquet", world / "r.json")
    assert first.communicate(timeout=120)
    assert first.returncode == 0
    patience = 1.2 * (time.monotonic() - began)
    (folder / "first.json").unlink()
    counted: list[str] = []
    for kill in range(kills):
        if len(counted) == 12:
            state.unlink()
            counted = []
        name = f"n{len(counted)}"
        run = start(state, world / f"{name}.parquet", world / "r.json")
        time.sleep(draw.random() * patience)
        with contextlib.suppress(ProcessLookupError):
            os.kill(run.pid, signal.SIGKILL)
        run.communicate(timeout=60)
        known = [] if not state.exists() else [n.name for n in MonitorState.from_json(state.read_text()).batches]
        assert known in (counted, [*counted, name]), (kill, known, counted)
        counted = known
    return len(counted)


@pytest.mark.system
def test_killed_runs_leave_a_whole_state(world: Path, tmp_path: Path) -> None:
    counted = killed_batches(world, tmp_path, kills=6, seed=1)
    for number in range(counted, 7):
        done = run_drrej("monitor", tmp_path / "s.json", world / f"n{number}.parquet", "-r", world / "r.json")
        assert done.returncode == 0, done.stderr
    whole = None
    for number in range(7):
        whole, _ = monitor(source(world / f"n{number}.parquet"), rejector_of(world), whole)
    assert (tmp_path / "s.json").read_text() == whole.to_json()
    assert [p.name for p in tmp_path.iterdir()] == ["s.json"]  # what killed runs left is cleared away


@pytest.mark.parametrize("moment", ["replace", "fsync"])
def test_a_write_that_fails_leaves_the_old_state(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    state = tmp_path / "s.json"
    succeed("monitor", state, world / "n0.parquet", "-r", world / "r.json")
    before = state.read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, moment, full)
        message = fail("monitor", state, world / "n1.parquet", "-r", world / "r.json", "-o", tmp_path / "r.txt")
    assert "No space left on device" in message
    assert state.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["s.json"]
    succeed("monitor", state, world / "n1.parquet", "-r", world / "r.json")


# Documents on their own


def test_settings_share_the_chance_of_a_false_alarm() -> None:
    one = Settings(confidence=0.95, drift=True)
    three = Settings(confidence=0.95, drift=True, max_risk=0.1, min_coverage=0.5)
    assert (one.watched, three.watched) == (("drift",), ("risk", "coverage", "drift"))
    assert one.level == pytest.approx(0.05)
    assert math.exp(three.bar) == pytest.approx(60)
