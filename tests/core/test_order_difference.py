"""Whether another score orders rows better, and groups by the true class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import fail, make_model, source, succeed, write_dump
from scipy import stats

import drrej
from drrej.core.curves import Curve
from drrej.core.losses import expected_losses
from drrej.core.paired import order_difference


def draw(rows: int, seed: int, noise: float) -> tuple[np.ndarray, np.ndarray, int]:
    """(losses, scores, right rows): both are the difficulty with as much noise, the score's times `noise`."""
    rng = np.random.default_rng(seed)
    x = rng.random(rows)
    wrong = np.sort(rng.random(rows) < 0.4 * x**2)
    x = np.where(wrong, rng.beta(4, 1, rows), rng.beta(1, 1.2, rows))
    return x + 0.3 * rng.normal(size=rows), x + noise * 0.3 * rng.normal(size=rows), int(np.count_nonzero(~wrong))


def test_the_value_is_the_difference_of_two_areas() -> None:
    losses, scores, right = draw(500, 1, 1.0)
    found = order_difference(losses, scores, right)
    mine, yours = (Curve.of(values[:right], values[right:]).augrc() for values in (losses, scores))
    assert found.value == pytest.approx(yours - mine, rel=1e-9)
    rng = np.random.default_rng(0)
    order = np.concatenate([rng.permutation(right), right + rng.permutation(500 - right)])
    again = order_difference(losses[order], scores[order], right)
    assert (again.lower, again.upper) == pytest.approx((found.lower, found.upper), rel=1e-12)
    assert order_difference(losses, scores, right, 5).lower < found.lower


def test_the_interval_is_as_wide_as_resampled_rows_say() -> None:
    losses, scores, right = draw(800, 2, 1.0)
    wrong = np.arange(800) >= right
    rng = np.random.default_rng(3)
    values = []
    for _ in range(400):
        rows = rng.integers(0, 800, 800)
        bad = wrong[rows]
        areas = [Curve.of(v[rows][~bad], v[rows][bad]).augrc() for v in (losses, scores)]
        values.append(areas[1] - areas[0])
    found = order_difference(losses, scores, right)
    assert (found.upper - found.lower) / (2 * 1.96) == pytest.approx(np.std(values), rel=0.15)


def test_scores_that_are_as_good_seldom_look_better() -> None:
    trials = 400
    found = [order_difference(*draw(300, seed, 1.0)) for seed in range(trials)]
    better = sum(difference.upper < 0 for difference in found)
    assert better <= stats.binom.ppf(0.9995, trials, 0.03)
    assert sum(order_difference(*draw(300, seed, 0.3)).upper < 0 for seed in range(50)) > 30


def test_the_report_says_which_score_orders_better(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    logits, labels = make_model(3000, 4, seed=6)
    wrong = logits.argmax(axis=1) != labels
    knows = np.where(wrong, rng.normal(1.0, 0.5, 3000), rng.normal(0.0, 0.5, 3000))
    path = write_dump(tmp_path / "d.parquet", logits, labels, extra={"knows": knows, "noise": rng.random(3000)})
    rejector = drrej.fit(source(path), drrej.calibrate(source(path)), drrej.RatioOptions(loss="zero-one"))
    (tmp_path / "r.json").write_text(drrej.threshold(source(path), rejector, drrej.Rule("coverage", 0.8)).to_json())
    words = [
        "evaluate",
        path,
        "-r",
        tmp_path / "r.json",
        "--score",
        "knows",
        "--score",
        "noise",
        "--score-order",
        "low",
    ]
    text = succeed(*words).decode()
    assert "'knows' orders these rows better than the loss, beyond noise: its AUGRC is lower by 0.0" in text
    report = drrej.Report.from_json(succeed(*words, "--format", "json").decode())
    assert report.scores is not None
    by_name = {row.score: row for row in report.scores}
    assert [name for name, row in by_name.items() if row.is_better] == ["knows"]
    assert by_name["loss"].augrc_difference is None
    difference = by_name["noise"].augrc_difference
    assert difference is not None
    assert difference.value == pytest.approx(
        (by_name["noise"].augrc.value or 0) - (by_name["loss"].augrc.value or 0), rel=1e-9
    )
    same = succeed("evaluate", path, "-r", tmp_path / "r.json", "--score", "noise").decode()
    assert "beyond noise" not in same


def test_by_label_is_the_true_class_wherever_it_is_kept(tmp_path: Path) -> None:
    logits, labels = make_model(600, 3, seed=8)
    names = np.array(["cat", "dog", "eel"])
    path = write_dump(tmp_path / "d.parquet", logits, labels)
    rejector = drrej.fit(source(path), drrej.calibrate(source(path)))
    rejector = drrej.threshold(source(path), rejector, drrej.Rule("coverage", 0.7))
    (tmp_path / "r.json").write_text(rejector.to_json())
    expected = drrej.evaluate(source(path), rejector, options=drrej.EvaluateOptions(by="label"))
    assert expected.per_group is not None
    mask = rejector.need_threshold().accepts(expected_losses(logits, "log", rejector.need_calibration().temperature))
    for number, row in enumerate(expected.per_group):
        inside = labels == number
        assert (row.group, row.rows) == (str(number), inside.sum())
        assert row.accuracy.errors == np.count_nonzero(mask & inside & (logits.argmax(axis=1) != labels))
    bare = write_dump(tmp_path / "bare.parquet", logits, extra={"truth": labels})
    pq.write_table(pa.table({"id": np.arange(600), "label": labels}), tmp_path / "truth.parquet")
    for options in ({"label": "truth"}, {"labels_from": str(tmp_path / "truth.parquet"), "join_on": "id"}):
        found = drrej.evaluate(source(bare, **options), rejector, options=drrej.EvaluateOptions(by="label"))
        assert found.per_group == expected.per_group
    named = write_dump(tmp_path / "named.parquet", logits, extra={"truth": names[labels]})
    found = drrej.evaluate(
        source(named, label="truth", classes=tuple(names)), rejector, options=drrej.EvaluateOptions(by="label")
    )
    assert [row.rows for row in found.per_group or ()] == [row.rows for row in expected.per_group]
    both = write_dump(tmp_path / "both.parquet", logits, labels[::-1].copy(), extra={"truth": labels})
    words = ["evaluate", both, "-r", tmp_path / "r.json", "--report-by", "label", "--label", "truth"]
    assert "--report-by label may be the true class or the column of that name" in fail(*words)
    words = ["threshold", path, "-r", tmp_path / "r.json", "--coverage", "0.7", "--cutoff-by", "label"]
    assert "a row to come has no label, so no cutoff can depend on it; use 'prediction'" in fail(*words)
