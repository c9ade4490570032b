"""The paper's cells at equal coverage: counts by hand, and the interval against the paper by another route."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from benchmarks.paper.__main__ import main
from benchmarks.paper.judge import Rows, against_paper, costs_of, mean_coverages, paired, states
from benchmarks.paper.tables import judged, markdown, published, summary
from benchmarks.selective.dumps import read_both


def fold() -> Rows:
    wrong = np.array([False, True, False, False, True, False, False, False, True, True])
    test = {"log": np.arange(10.0), "auto": np.array([0.0, 7.0, 1.0, 2.0, 8.0, 3.0, 4.0, 5.0, 9.0, 6.0])}
    return Rows(wrong, test, {"log": np.arange(0.5, 20.5, 2), "auto": np.arange(10.0)})


def test_both_thresholds_accept_what_they_should() -> None:
    own = fold()
    assert own.accepted("log", 0.5).tolist() == [True] * 5 + [False] * 5
    assert own.point("log", 0.5) == (60.0, 50.0)
    assert own.point("auto", 0.5) == (100.0, 50.0)
    # validation losses 0.5, 2.5, ...: half of them lie below 10.5, as do all test rows
    assert own.point("log", 0.5, "validation") == (60.0, 100.0)
    assert own.accepted("log", 1.0, "validation").all()


def test_a_paired_difference_is_that_of_the_two_accuracies_over_all_folds() -> None:
    own = fold()
    new, old = (states(own.accepted(loss, 0.5), own.wrong) for loss in ("auto", "log"))
    value, lower, upper = paired([(new, old)] * 40)
    assert value == pytest.approx(40.0)
    assert 0 < lower < 40 < upper
    value, lower, upper = paired([(old, old)] * 40)
    assert value == 0.0
    assert lower < 0 < upper


def test_the_interval_against_the_paper_is_welchs() -> None:
    ours, theirs = [99.1, 99.4, 98.9, 99.6, 99.2], [98.8, 99.0, 98.4, 99.3, 98.9]
    paper = {"accuracy": float(np.mean(theirs)), "accuracy_std": float(np.std(theirs, ddof=1))}
    expected = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    assert against_paper(ours, paper)[1:] == pytest.approx([expected.low, expected.high], abs=1e-4)
    assert against_paper([90.0], paper)[1:] == [None, None]


def write_fold(folder: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("val", "test"):
        logits = rng.normal(size=(400, 6)) * 3
        labels = np.where(rng.random(400) < 0.9, logits.argmax(axis=1), rng.integers(0, 6, 400))
        table = pa.table({"id": np.arange(400), "logits": list(logits), "label": labels})
        pq.write_table(table, folder / f"{part}.parquet")


def write_baseline(folder: Path, cost: float, rejected_rows: int, seed: int, first_id: int = 0) -> None:
    rng, own = np.random.default_rng(seed), folder / "gce" / f"cost-{cost:.4f}"
    own.mkdir(parents=True)
    labels = pq.read_table(folder / "test.parquet")["label"].to_numpy()
    scores, rejected = np.eye(6)[np.where(rng.random(400) < 0.8, labels, 0)], rng.permutation(400) < rejected_rows
    table = {"id": np.arange(400) + first_id, "logits": list(scores), "label": labels, "rejected": rejected}
    pq.write_table(pa.table(table), own / "test.parquet")
    (own / "training.json").write_text(json.dumps({"cost": cost, "coverage": 1 - rejected_rows / 400}))


def test_the_command_writes_a_row_for_each_cell_with_folds(tmp_path) -> None:
    """At the paper's own coverages; what the work directory lacks keeps its figures."""
    pytest.importorskip("matplotlib", reason="the command draws a figure: pip install 'drrej[plot]'")
    for number in (1, 2):
        write_fold(tmp_path / "har" / "noise25" / f"fold{number}", number)
    out = tmp_path / "results"
    assert main(["table", "--work", str(tmp_path), "--out", str(out)]) == 0
    (row,) = json.loads((out / "results.json").read_text())
    assert (row["dataset"], row["noise"], row["folds"], row["paper base"]) == ("har", 25, 2, 96.51)
    cells = row["cells"]
    assert [(cell["target"], cell["method"]) for cell in cells] == [
        (80, "kl"),
        (80, "alpha3"),
        (90, "kl"),
        (90, "alpha3"),
    ]
    for cell in cells:
        assert cell["log, test"][1] == pytest.approx(cell["paper"]["coverage"], abs=100 / 400)
    assert "| HAR, 25 % flipped | 2 | 96.51 → " in summary([row])
    assert "Other noise rates" not in summary([row])
    noisy = summary([row, row | {"noise": 40, "cells": []}])
    assert [line.split(" | ")[0] for line in noisy.splitlines()[-2:]] == ["| HAR, 25 % flipped", "| HAR, 40 % flipped"]
    assert "<svg" in (out / "paper.svg").read_text()
    (tmp_path / "empty").mkdir()
    assert judged(tmp_path / "empty", None, out / "results.json") == [row]


def test_medmnist_has_official_rows_and_halves_of_the_validation_rows(tmp_path) -> None:
    rng = np.random.default_rng(0)
    folder = tmp_path / "medmnist_resnet" / "octmnist_resnet18"
    folder.mkdir(parents=True)
    for part, rows in (("val", 600), ("test", 200)):
        shares = rng.dirichlet(np.full(4, 0.2), rows)
        labels = np.where(rng.random(rows) < 0.9, shares.argmax(axis=1), rng.integers(0, 4, rows))
        pq.write_table(pa.table({"label": labels, "probs": list(shares)}), folder / f"{part}.parquet")
    rows = judged(tmp_path, tmp_path, tmp_path / "none.json")
    assert [(row["network"], row["folds"]) for row in rows] == [
        ("ResNet-18 of others, halves of validation", 5),
        ("ResNet-18 of others, official test rows", 1),
    ]
    _, test = read_both(folder)
    assert rows[1]["base"] == [pytest.approx(100 * (1 - test.wrong.mean()), abs=1e-3)]
    assert all(row["cells"][0]["paper"] == published()["80"]["clean"]["octmnist"]["kl"] for row in rows)
    assert "OctMNIST, clean, ResNet-18 of others, official test rows" in markdown(rows)


def test_baselines_are_compared_at_their_own_coverage_of_the_same_rows(tmp_path) -> None:
    """Counts by hand from the dumps: the baseline's, and ours at as many accepted rows of each fold."""
    folders = [tmp_path / "har" / "noise0" / f"fold{number}" for number in (1, 2)]
    for number, folder in enumerate(folders):
        write_fold(folder, number)
        write_baseline(folder, 0.2, 120 + number, number)  # 70 %: farther from 80 % than the next
        write_baseline(folder, 0.3, 61 + number, number)
    (row,) = judged(tmp_path, None, tmp_path / "none.json")
    rivals = row["rivals"]
    assert [(one["target"], one["method"], one["cost"], one["folds"]) for one in rivals] == [
        (80, "gce", 0.3, 2),
        (90, "gce", 0.3, 2),
    ]
    assert (rivals[0]["costs"], rivals[0]["most"]) == (2, pytest.approx(100 * 338.5 / 400))
    theirs, ours = [], []
    for number, folder in enumerate(folders):
        dump = pq.read_table(folder / "gce" / "cost-0.3000" / "test.parquet")
        right = np.array(dump["logits"].to_pylist()).argmax(axis=1) == dump["label"].to_numpy()
        theirs.append(right[~dump["rejected"].to_numpy()])
        base = Rows.of(*read_both(folder))
        ours.append(~base.wrong[np.argsort(base.test["log"], kind="stable")[: 339 - number]])
    for name, own in (("baseline", theirs), ("log", ours)):
        assert rivals[0][name][0] == pytest.approx(100 * np.mean([one.mean() for one in own]), abs=1e-3)
        assert rivals[0][name][1] == pytest.approx(100 * 338.5 / 400)
    value, lower, upper = rivals[0]["difference"]
    assert value == pytest.approx(100 * (np.concatenate(ours).mean() - np.concatenate(theirs).mean()), abs=1e-3)
    assert lower < value < upper
    assert "| HAR, clean | 2 | 80 % | GCE | 0.30 | 84.6 (2) |" in markdown([row])


def test_a_cost_that_accepts_no_row_of_a_fold_is_not_chosen(tmp_path) -> None:
    write_fold(tmp_path, 0)
    write_baseline(tmp_path, 0.2, 400, 0)
    assert mean_coverages([costs_of(tmp_path / "gce")]) == {}
    write_baseline(tmp_path, 0.3, 300, 0)
    assert mean_coverages([costs_of(tmp_path / "gce")]) == {30: 25.0}


def test_other_rows_than_those_of_the_base_network_are_refused(tmp_path) -> None:
    folder = tmp_path / "har" / "noise0" / "fold1"
    write_fold(folder, 0)
    write_baseline(folder, 0.2, 50, 0, first_id=1)
    with pytest.raises(ValueError, match="the test rows of gce are not those of the base network"):
        judged(tmp_path, None, tmp_path / "none.json")
