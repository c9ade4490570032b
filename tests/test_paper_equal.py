"""The paper's cells at equal coverage: counts by hand, and the interval against the paper by another route."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from benchmarks.paper.__main__ import main
from benchmarks.paper.equal import FoldRows, against_paper, gain, verdict


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
    assert (tmp_path / "results" / "equal.md").read_text().count("HAR, noisy") == 4
