"""The paper's cells at equal coverage: counts by hand, and the interval against the paper by another route."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks.paper.__main__ import main
from benchmarks.paper.equal import FoldRows, against_paper, errors_left, gain, sentences, verdict
from benchmarks.paper.refine import FIRST, LAST, WITHIN, next_costs
from benchmarks.paper.results import recorded
from benchmarks.paper.rivals import chosen
from benchmarks.paper.rivals import sentences as rival_sentences


def fold() -> FoldRows:
    wrong = np.array([False, True, False, False, True, False, False, False, True, True])
    test = {"log": np.arange(10.0), "auto": np.array([0.0, 7.0, 1.0, 2.0, 8.0, 3.0, 4.0, 5.0, 9.0, 6.0])}
    return FoldRows(wrong, test, {"log": np.arange(0.5, 20.5, 2), "auto": np.arange(10.0)})


def test_both_thresholds_accept_what_they_should() -> None:
    own = fold()
    assert own.accepted("log", 0.5, "test").tolist() == [True] * 5 + [False] * 5
    assert own.point("log", 0.5, "test") == {"coverage": 50.0, "accuracy": 60.0}
    assert own.accepted("auto", 0.5, "test").sum() == 5
    assert own.point("auto", 0.5, "test")["accuracy"] == 100.0
    # validation losses 0.5, 2.5, ...: half of them lie below 10.5, as do all test rows
    assert own.point("log", 0.5, "validation") == {"coverage": 100.0, "accuracy": 60.0}
    assert own.accepted("log", 1.0, "validation").all()


def test_the_gain_is_the_difference_of_the_two_accuracies_over_all_folds() -> None:
    found = gain([fold()] * 40, 0.5)
    assert found["value"] == 40.0
    lower, upper = found["interval"]
    assert 0 < lower < 40 < upper
    same = FoldRows(fold().wrong, {"log": fold().test["log"], "auto": fold().test["log"]}, fold().val)
    none = gain([same] * 40, 0.5)
    assert none["value"] == 0.0
    assert none["interval"][0] < 0 < none["interval"][1]


def test_the_interval_against_the_paper_is_welchs() -> None:
    ours, theirs = [99.1, 99.4, 98.9, 99.6, 99.2], [98.8, 99.0, 98.4, 99.3, 98.9]
    paper = {"accuracy": float(np.mean(theirs)), "accuracy_std": float(np.std(theirs, ddof=1))}
    expected = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    found = against_paper(ours, paper)
    assert found["interval"] == pytest.approx([expected.low, expected.high])
    assert verdict(found) == ("better" if expected.low > 0 else "not told apart")
    assert verdict(against_paper([90.0, 90.1, 89.9], paper)) == "worse"
    assert verdict(against_paper([90.0], paper)) == "one fold: cannot be said"


def test_the_command_writes_a_row_for_each_cell_with_folds(tmp_path) -> None:
    rng = np.random.default_rng(0)
    for number in (1, 2):
        folder = tmp_path / "har" / "noisy" / f"fold{number}"
        folder.mkdir(parents=True)
        for part in ("val", "test"):
            logits = rng.normal(size=(300, 6)) * 3
            labels = np.where(rng.random(300) < 0.9, logits.argmax(axis=1), rng.integers(0, 6, 300))
            pq.write_table(pa.table({"logits": list(logits), "label": labels}), folder / f"{part}.parquet")
    assert main(["equal", "--work", str(tmp_path), "--out", str(tmp_path / "results")]) == 0
    rows = json.loads((tmp_path / "results" / "equal.json").read_text())["rows"]
    assert [(row["target"], row["method"]) for row in rows] == [(80, "kl"), (80, "alpha3"), (90, "kl"), (90, "alpha3")]
    for row in rows:
        assert row["log, test"]["coverage"] == pytest.approx(row["paper"]["coverage"], abs=100 / 300)
    assert (tmp_path / "results" / "equal.md").read_text().count("| HAR, noisy") == 4


def test_what_the_work_directory_lacks_keeps_its_figures(tmp_path) -> None:
    record = [("har", "clean", 1), ("har", "noisy", 1), ("har", "noisy", 2), ("cifar10", "clean", 1)]
    path = tmp_path / "folds.json"
    rows = [{"dataset": dataset, "noise": noise, "fold": fold, "old": True} for dataset, noise, fold in record]
    path.write_text(json.dumps({"folds": rows}))
    now = [{"dataset": "mnist", "noise": "clean", "fold": 3}, {"dataset": "har", "noise": "noisy", "fold": 2}]
    found = [(*list(row.values())[:3], "old" in row) for row in recorded(path, "folds", now)]
    assert found == [
        ("har", "clean", 1, True),
        ("har", "noisy", 2, False),  # alone: the other fold may be of another network
        ("mnist", "clean", 3, False),
        ("cifar10", "clean", 1, True),
    ]
    assert recorded(tmp_path / "none.json", "folds", now[:1]) == now[:1]


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


def test_baselines_are_compared_at_their_own_coverage_of_the_same_rows(tmp_path) -> None:
    """Counts by hand from the dumps: the baseline's, and ours at as many accepted rows of each fold."""
    folders = [tmp_path / "har" / "clean" / f"fold{number}" for number in (1, 2)]
    for number, folder in enumerate(folders):
        write_fold(folder, number)
        write_baseline(folder, 0.2, 120 + number, number)  # 70 %: farther from 80 % than the next
        write_baseline(folder, 0.3, 61 + number, number)
    assert main(["equal", "--work", str(tmp_path), "--out", str(tmp_path / "results")]) == 0
    rows = json.loads((tmp_path / "results" / "rivals.json").read_text())["rows"]
    assert [(row["target"], row["method"], row["cost"], row["folds"]) for row in rows] == [
        (80, "gce", 0.3, 2),
        (90, "gce", 0.3, 2),
    ]
    theirs, ours = [], []
    for number, folder in enumerate(folders):
        dump = pq.read_table(folder / "gce" / "cost-0.3000" / "test.parquet")
        right = np.array(dump["logits"].to_pylist()).argmax(axis=1) == dump["label"].to_numpy()
        theirs.append(right[~dump["rejected"].to_numpy()])
        base = FoldRows.read(folder)
        ours.append(~base.wrong[np.argsort(base.test["log"], kind="stable")[: 339 - number]])
    assert rows[0]["baseline"]["accuracy"] == pytest.approx(100 * np.mean([own.mean() for own in theirs]), abs=1e-3)
    assert rows[0]["log"]["accuracy"] == pytest.approx(100 * np.mean([own.mean() for own in ours]), abs=1e-3)
    assert rows[0]["log"]["coverage"] == rows[0]["baseline"]["coverage"] == pytest.approx(100 * 338.5 / 400)
    found = rows[0]["log less baseline"]
    pooled = np.concatenate(ours).mean() - np.concatenate(theirs).mean()
    assert found["value"] == pytest.approx(100 * pooled, abs=1e-3)
    assert found["interval"][0] < found["value"] < found["interval"][1]
    said = (tmp_path / "results" / "equal.md").read_text()
    assert "- **HAR, clean**: KL is better than the baseline in 1 of 1 cells, worse in none;" in said
    assert "More than 5 points off their target: GCE at 90 % [84.6]." in said


def test_a_cost_that_accepts_no_row_of_a_fold_is_not_chosen(tmp_path) -> None:
    write_fold(tmp_path, 0)
    write_baseline(tmp_path, 0.2, 400, 0)
    assert chosen([tmp_path / "gce"], 80) is None
    write_baseline(tmp_path, 0.3, 300, 0)
    assert chosen([tmp_path / "gce"], 80) == 0.3
    assert chosen([tmp_path / "css"], 80) is None


def test_other_rows_than_those_of_the_base_network_are_refused(tmp_path) -> None:
    folder = tmp_path / "har" / "clean" / "fold1"
    write_fold(folder, 0)
    write_baseline(folder, 0.2, 50, 0, first_id=1)
    with pytest.raises(ValueError, match="the test rows of gce are not those of the base network"):
        main(["equal", "--work", str(tmp_path), "--out", str(tmp_path / "results")])


def test_a_row_that_differs_has_a_sentence() -> None:
    row = {"dataset": "har", "noise": "clean", "target": 80, "method": "kl", "base": 98.0, "paper base": 96.0}
    row |= {"less paper": {"value": 0.5, "interval": [0.2, 0.8]}, "paper": {"accuracy": 99.0, "coverage": 80.0}}
    row |= {"log, test": {"accuracy": 99.5, "coverage": 80.0}}
    assert errors_left(row["log, test"], 98.0) == pytest.approx(20.0)
    (said,) = sentences([row, row | {"less paper": {"value": 0.1, "interval": [-0.2, 0.4]}}])
    assert said.startswith("- **HAR, clean, 80 %, KL**: better by +0.50 (+0.20 to +0.80) points.")
    assert said.endswith("20.0 % are left among accepted rows, of the paper's 20.0 %.")
    assert sentences([]) == ["- No row is told apart from the paper."]


def test_a_lost_cell_is_named() -> None:
    won, lost = {"value": 1.0, "interval": [0.5, 1.5]}, {"value": -1.0, "interval": [-1.5, -0.5]}
    row = {
        "dataset": "mnist",
        "noise": "noisy",
        "target": 90,
        "method": "css",
        "cost": 0.2,
        "baseline": {"coverage": 91.0},
    }
    (said,) = rival_sentences([row | {"log less baseline": lost, "auto less baseline": won}])
    assert said == (
        "- **MNIST, noisy**: KL is better than the baseline in 0 of 1 cells, worse in 1: CSS at 90 % "
        "(-1.00 (-1.50 to -0.50)); `auto` is better than the baseline in 1 of 1 cells, worse in none."
    )


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0, 100), min_size=49, max_size=49), st.sets(st.integers(1, 49), min_size=1, max_size=9))
def test_costs_are_added_until_each_target_is_met_or_cannot_be(coverages, start) -> None:
    """Any coverages, rising with the cost or not: the search ends, stays on the grid, and gives up for a reason."""
    known = {number: coverages[number - 1] for number in start}
    while more := next_costs(known):
        assert not known.keys() & set(more)
        assert set(more) <= set(range(FIRST, LAST + 1))
        known |= {number: coverages[number - 1] for number in more}
    for target in (80, 90):
        if any(abs(value - target) <= WITHIN for value in known.values()):
            continue
        crossings = {b - a for a, b in pairwise(sorted(known)) if (known[a] < target) != (known[b] < target)}
        assert crossings == {1} if crossings else {FIRST, LAST} <= known.keys()


def test_rising_coverages_meet_their_targets_in_few_steps() -> None:
    known = {number: 60 + 0.8 * number for number in (12, 25, 38)}
    steps = 0
    while more := next_costs(known):
        known |= {number: 60 + 0.8 * number for number in more}
        steps += 1
    assert steps <= 2
    assert all(min(abs(value - target) for value in known.values()) <= WITHIN for target in (80, 90))
