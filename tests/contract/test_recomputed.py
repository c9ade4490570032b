"""Every number of a report, computed again from the rows of the mask: plain counts, scipy's distributions, brute force.

The second route shares no code with the first. `UNCHECKED` names the few figures that it leaves out, with their tests;
a new figure of the report fails here until it is either computed again or named there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from conftest import make_model, read_columns, write_dump
from running import drrej
from scipy.stats import beta, binom, mannwhitneyu

UNCHECKED = (
    "target.promises[[]0[]].more_rows",  # tests/core/test_planning.py
    "ratio.std_error",  # with the ratios of the fitted rows: tests/pipeline/test_pipeline.py
    "ratio.p_value",
    "drift.*",  # tests/core/test_drift.py
    "*aurc.lower", "*aurc.upper", "augrc.lower", "augrc.upper",  # tests/core/test_intervals.py
    "points.coverage@risk=*.lower", "points.coverage@risk=*.upper",
)  # fmt: skip
RATES = ("precision", "recall", "npv", "missed", "reviewed")


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a document by their paths."""
    if isinstance(value, dict):
        for key, held in value.items():
            yield from numbers(held, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for place, held in enumerate(value):
            yield from numbers(held, f"{path}[{place}]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def interval(hits: int, rows: int, level: float = 0.05) -> tuple[float, float]:
    """Clopper and Pearson's, from quantiles of the beta distribution."""
    lower = beta.ppf(level / 2, hits, rows - hits + 1) if hits else 0.0
    upper = beta.ppf(1 - level / 2, hits + 1, rows - hits) if hits < rows else 1.0
    return float(lower), float(upper)


def rate(hits: int, rows: int, level: float = 0.05) -> dict[str, float]:
    """A share with its interval."""
    lower, upper = interval(hits, rows, level)
    return {"value": hits / rows, "lower": lower, "upper": upper}


def accepted_at_most(losses: np.ndarray, wrong: np.ndarray, risk: float) -> tuple[int, int]:
    """The most rows, and their errors, that some cutoff accepts at an error rate of at most `risk`."""
    found = [((losses <= cut).sum(), wrong[losses <= cut].sum()) for cut in np.unique(losses)]
    return max(((int(n), int(e)) for n, e in found if e <= risk * n), default=(0, 0))


class Recomputed:
    """A report from columns: what a row's mask says, its label, and its probabilities before and after calibration."""

    def __init__(
        self, mask: dict[str, np.ndarray], labels: np.ndarray, before: np.ndarray, after: np.ndarray, learned: bool
    ) -> None:
        self.loss, self.ratio = mask["loss"], mask["ratio"]
        self.accepted, self.prediction = ~mask["rejected"].astype(bool), mask["prediction"]
        self.labels, self.before, self.after = labels, before, after
        self.wrong = self.prediction != labels
        self.rows, self.classes = len(labels), before.shape[1]
        self.expected = 1 - self.loss if learned else after.max(axis=1)

    def figures(self) -> dict[str, Any]:
        """The whole report, without what only names something."""
        kept, wrong, rows = self.accepted, self.wrong, self.rows
        accepted, errors = int(kept.sum()), int(wrong[kept].sum())
        risk = rate(errors, accepted)
        ideal = (err := wrong.mean()) + (1 - err) * math.log1p(-err)
        aurc = reference.aurc(self.loss, wrong)
        per_class = [self.of_class(c) for c in range(self.classes)]
        return {
            "rows": rows,
            "classes": self.classes,
            "coverage": {**rate(accepted, rows), "accepted": accepted},
            "accuracy": {**rate(accepted - errors, accepted), "errors": errors},
            "risk": risk,
            "errors": errors,
            "base_accuracy": {**rate(rows - int(wrong.sum()), rows), "errors": int(wrong.sum())},
            "expected_accuracy": {"value": self.expected[kept].mean(), "all": self.expected.mean()},
            **self.calibration(),
            "aurc": {"value": aurc},
            "e_aurc": {"value": aurc - ideal},
            "augrc": {"value": reference.augrc(self.loss, wrong)},
            "naurc": {"value": (aurc - ideal) / (err - ideal)},
            "failure_auroc": {
                "value": mannwhitneyu(self.loss[wrong], self.loss[~wrong]).statistic / (wrong.sum() * (~wrong).sum())
            },
            "fpr_at_95_tpr": {"value": self.wrong_where_most_right_are_accepted()},
            "points": self.points(),
            "ratio": {"mean": self.ratio.mean()},
            "reviews": {"value": rows - accepted, "per_1000": 1000 * (rows - accepted) / rows},
            "per_class": per_class,
            "worst_class": {
                name: {key: worst[name][key] for key in ("value", "lower", "upper")}
                for name, choose in (("precision", min), ("recall", min), ("missed", max), ("reviewed", max))
                for worst in [choose(per_class, key=lambda row, name=name: row[name]["value"])]
            },
            "confusion": {"rows": [self.confused(c) for c in range(self.classes)], "others": 0},
        }

    def confused(self, c: int) -> dict[str, Any]:
        """What the rows of a class were accepted as."""
        mine = self.labels == c
        accepted = [int((mine & self.accepted & (self.prediction == other)).sum()) for other in range(self.classes)]
        return {"predicted": accepted, "rejected": int((mine & ~self.accepted).sum())}

    def calibration(self) -> dict[str, dict[str, float]]:
        """Log loss, calibration error in 15 bins and Brier score: before, after, and after on the accepted rows."""
        everything = np.ones(self.rows, bool)
        found: dict[str, dict[str, float]] = {"nll": {}, "ece": {}, "brier": {}}
        for name, p, where in (
            ("uncalibrated", self.before, everything),
            ("all", self.after, everything),
            ("accepted", self.after, self.accepted),
        ):
            of_rows, labels, right = p[where], self.labels[where], ~self.wrong[where]
            found["nll"][name] = -np.log(of_rows[np.arange(len(labels)), labels]).mean()
            onehot = np.eye(self.classes)[labels]
            found["brier"][name] = ((of_rows - onehot) ** 2).sum(axis=1).mean()
            top = of_rows.max(axis=1)
            bins = [np.flatnonzero((top > low / 15) & (top <= (low + 1) / 15)) for low in range(15)]
            found["ece"][name] = sum(abs(right[b].sum() - top[b].sum()) for b in bins) / len(labels)
        return found

    def points(self) -> dict[str, dict[str, float]]:
        """The usual points of the curve, by looking at every cutoff."""
        found: dict[str, dict[str, float]] = {}
        ranked = np.sort(self.loss)
        for coverage in (0.5, 0.8, 0.9, 0.95):
            kept = self.loss <= ranked[math.ceil(round(coverage * self.rows, 9)) - 1]
            n, errors = int(kept.sum()), int(self.wrong[kept].sum())
            found[f"accuracy@coverage={coverage}"] = {**rate(n - errors, n), "accepted": n, "errors": errors}
        for risk in (0.01, 0.05):
            n, errors = accepted_at_most(self.loss, self.wrong, risk)
            found[f"coverage@risk={risk}"] = {"value": n / self.rows, "accepted": n, "errors": errors}
        return found

    def along(self, curve: list[dict[str, float]], by: str) -> list[dict[str, float]]:
        """The points of a curve at the same cutoffs: by tau, or by the share of rows with the smallest losses."""
        points, ranked = [], np.sort(self.loss)
        for point in curve:
            place = round(point[by] * self.rows) - 1
            kept = self.ratio > point[by] if by == "tau" else self.loss <= ranked[place]
            n, errors = int(kept.sum()), int(self.wrong[kept].sum())
            accuracy = rate(n - errors, n) if n else {}
            points.append({**point, **accuracy, "accuracy": accuracy.get("value"), "coverage": n / self.rows})
        return [
            {key: point[key] for key in ("tau", "coverage", "accuracy", "lower", "upper") if key in point}
            for point in points
        ]

    def wrong_where_most_right_are_accepted(self) -> float:
        """The share of wrong rows at the first cutoff that accepts 95 % of the right ones."""
        right = np.sort(self.loss[~self.wrong])
        cut = right[math.ceil(round(0.95 * right.size, 9)) - 1]
        return float((self.loss[self.wrong] <= cut).mean())

    def of_class(self, c: int) -> dict[str, Any]:
        """The row of a class; the intervals of all classes hold at once."""
        level = 0.05 / (len(RATES) * self.classes)
        kept, mine = self.accepted, self.labels == c
        called = kept & (self.prediction == c)
        hits, accepted = int((called & mine).sum()), int((kept & mine).sum())
        others = kept & (self.prediction != c)
        precision, recall = rate(hits, int(called.sum()), level), rate(hits, accepted, level)
        return {
            "class": c,
            "rows": int(mine.sum()),
            "coverage": accepted / mine.sum(),
            "accuracy": hits / accepted,
            "precision": precision,
            "recall": recall,
            "npv": rate(int((others & ~mine).sum()), int(others.sum()), level),
            "f1": 2 / (1 / precision["value"] + 1 / recall["value"]),
            "missed": rate(int((others & mine).sum()), int(mine.sum()), level),
            "reviewed": rate(int((mine & ~kept).sum()), int(mine.sum()), level),
        }


@pytest.fixture(scope="module", params=["sample", "10 classes", "ties"])
def dumps(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, val: str, test: str) -> list[str]:
    """A file to fit on and one to evaluate; in the last, each row twice, its classes moved by one."""
    if request.param == "sample":
        return [val, test]
    folder, made = tmp_path_factory.mktemp("recomputed"), []
    for name, seed in (("val", 1), ("test", 2)):
        logits, labels = make_model(1000, 10, seed)
        if request.param == "ties":
            logits, labels = np.concatenate([logits, np.roll(logits, 1, axis=1)]), np.r_[labels, (labels + 1) % 10]
        made.append(write_dump(folder / f"{name}.parquet", logits, labels, row_group=700))
    return made


@pytest.mark.parametrize("loss", ["log", "auto"])
def test_every_number_of_a_report(dumps: list[str], loss: str, tmp_path: Path) -> None:
    """From the mask, the labels and the softmax alone."""
    val, test = dumps
    for words in (
        ("calibrate", val, "-o", "c.json"),
        ("fit", val, "-r", "c.json", "--loss", loss, "-o", "f.json"),
        ("threshold", val, "-r", "f.json", "--coverage", "0.85", "-o", "r.json"),
        ("reject", test, "-r", "r.json", "-o", "mask.parquet"),
        ("evaluate", test, "-r", "r.json", "-o", "report.json"),
    ):
        outcome = drrej(*words, "-q", cwd=tmp_path)
        assert outcome.code == 0, outcome.err
    report = json.loads((tmp_path / "report.json").read_text())
    rejector = json.loads((tmp_path / "r.json").read_text())
    columns = read_columns(test)
    logits = np.stack(columns["logits"]).astype(np.float64)
    probabilities = [reference.softmax(logits, t) for t in (1.0, rejector["calibration"]["temperature"])]
    second = Recomputed(
        read_columns(str(tmp_path / "mask.parquet")), columns["label"], *probabilities, learned=loss == "auto"
    )
    again = second.figures()
    again["curve"] = second.along(report["curve"], "tau")
    again["coverage_curve"] = second.along(report["coverage_curve"], "coverage")
    again |= {"tau": rejector["threshold"]["tau"], "cutoff": rejector["threshold"]["cutoff"]}
    again["coverage"]["drop"] = rejector["threshold"]["coverage"] - again["coverage"]["value"]
    hits, rows = again["coverage"]["accepted"], again["rows"]
    again["target"] = {"promises": [{"wanted": 0.85, **rate(hits, rows), "p_value": binom.cdf(hits, rows, 0.85)}]}
    expected = dict(numbers(again))
    found = {path: value for path, value in numbers(report) if not any(fnmatch(path, one) for one in UNCHECKED)}
    assert sorted(found.keys() - expected.keys()) == []
    assert sorted(expected.keys() - found.keys()) == []
    for path, value in found.items():
        assert value == pytest.approx(expected[path], rel=1e-5, abs=1e-7), path
