"""One decision for every command: whatever the rejector, evaluate counts what reject writes and score_batch returns."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import make_model, source, thorough, write_mask
from msgspec.structs import replace

import drrej
from drrej.core.losses import ColumnLoss, CostLoss
from drrej.pipeline.evaluate import evaluate_regression
from drrej.pipeline.fit import LOSS_NAMES, uncalibrated, without_logits

NAMES = ("ant", "bee", "cat", "dog")
COSTS = CostLoss(tuple(tuple(float(abs(i - j)) for j in range(4)) for i in range(4)))
LOSSES: dict[str, Any] = {name: name for name in LOSS_NAMES}
LOSSES |= {"cost": COSTS, "column": ColumnLoss("own")}
ALPHAS = (1.0, 3.0, -1.0)


@dataclass(frozen=True)
class Kind:
    """A kind of rejector: its loss, groups, whether rows have one score, class names, alpha; or a regression."""

    loss: str
    by: str | None
    binary: bool
    named: bool
    alpha: float
    regression: bool = False

    @property
    def id(self) -> str:
        words = [self.loss, f"by-{self.by}" if self.by else "", "binary" * self.binary, "named" * self.named]
        return "-".join([*filter(None, words), f"{self.alpha:g}", *["regression"] * self.regression])


CLASSIFIERS = [  # each loss with a third of the combinations, another third for the next
    Kind(loss, by, binary, named, ALPHAS[number // 3 % 3])
    for first, loss in enumerate(LOSSES)
    for number, (by, binary, named) in enumerate(
        itertools.product((None, "region", "prediction"), (False, True), (False, True))
    )
    if (first + number) % 3 == 0
    if not (binary and (loss == "cost" or loss.startswith("norm-")))  # those are for more classes
]


def sampled(kinds: list[Kind]) -> list[Any]:
    """Every other kind, so that each loss meets other combinations; the rest in a thorough run."""
    return [kind if number % 2 == 0 else thorough(kind) for number, kind in enumerate(kinds)]


REGRESSIONS = [Kind("column", by, False, False, alpha, True) for by in (None, "region") for alpha in (1.0, 3.0)]


def write(path: Path, kind: Kind, seed: int) -> str:
    """Rows for a kind of rejector."""
    logits, labels = make_model(600, 2 if kind.binary else 4, seed)
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        "own": rng.gamma(1.0, size=600),
        "region": rng.choice(["eu", "us"], 600),
        "predicted": rng.normal(size=600),
        "true": rng.normal(size=600),
    }
    if not kind.regression:
        shown = np.array(NAMES[: logits.shape[1]])
        scores = {"score": logits[:, 1] - logits[:, 0]} if kind.binary else {"logits": list(logits)}
        columns |= {**scores, "label": shown[labels] if kind.named else labels}
    pq.write_table(pa.table(columns), path, row_group_size=170)
    return str(path)


def read(path: str, kind: Kind) -> drrej.Source:
    """The rows as the library reads them."""
    names = NAMES[: 2 if kind.binary else 4] if kind.named else None
    if kind.regression:
        return source(path)
    return source(path, binary=kind.binary, logits="score" if kind.binary else None, classes=names)


def make(dump: drrej.Source, kind: Kind) -> drrej.Rejector:
    """A finished rejector of a kind."""
    start = without_logits("own") if kind.regression else uncalibrated(dump, 2.0)
    options = drrej.RatioOptions(kind.alpha, 5.0, LOSSES[kind.loss])
    fitted = drrej.fit(dump, start, options)
    return drrej.threshold(dump, fitted, drrej.Rule("coverage", 0.6), drrej.ThresholdOptions(by=kind.by))


def applied(tmp_path: Path, kind: Kind) -> tuple[drrej.Source, drrej.Rejector, dict[str, np.ndarray], pa.RecordBatch]:
    """New rows, the rejector as its document is read back, its mask, and what `score_batch` makes of the same rows."""
    rejector = make(read(write(tmp_path / "val.parquet", kind, 1), kind), kind)
    rejector = drrej.Rejector.from_json(rejector.to_json())
    path = write(tmp_path / "test.parquet", kind, 2)
    dump = read(path, kind)
    mask = write_mask(dump, rejector, tmp_path / "mask.parquet")
    (batch,) = pq.read_table(path).combine_chunks().to_batches()
    return dump, rejector, mask, drrej.score_batch(batch, rejector)


def check_batch(mask: dict[str, np.ndarray], batch: pa.RecordBatch) -> None:
    """The mask and the scored batch are the same to the bit."""
    assert batch.schema.names == list(mask)
    for name in ("loss", "ratio", "rejected"):
        np.testing.assert_array_equal(batch.column(name).to_numpy(zero_copy_only=False), mask[name])


@pytest.mark.parametrize("kind", sampled(CLASSIFIERS), ids=lambda kind: kind.id)
def test_evaluate_counts_what_reject_writes(tmp_path: Path, kind: Kind) -> None:
    dump, rejector, mask, batch = applied(tmp_path, kind)
    check_batch(mask, batch)
    accepted = ~mask["rejected"]
    assert 0 < accepted.sum() < accepted.size
    right = mask["prediction"] == mask["label"]
    report = drrej.evaluate(dump, rejector)
    assert report["coverage"]["accepted"] == accepted.sum()
    assert report["accuracy"]["errors"] == (accepted & ~right).sum()
    assert report["base_accuracy"]["errors"] == (~right).sum()
    unlabelled = drrej.evaluate(dump, rejector, options=drrej.EvaluateOptions(labels=False))
    assert unlabelled["coverage"]["accepted"] == accepted.sum()
    if kind.by is not None:
        groups = mask["region"] if kind.by == "region" else mask["prediction"]
        by_group = drrej.evaluate(dump, rejector, options=drrej.EvaluateOptions(by=kind.by))["per_group"]
        counted = {row["group"]: row["coverage"]["accepted"] for row in by_group}
        assert counted == {str(group): int(accepted[groups == group].sum()) for group in np.unique(groups)}


@pytest.mark.parametrize("kind", REGRESSIONS, ids=lambda kind: kind.id)
def test_a_regression_is_judged_on_the_rows_that_reject_accepts(tmp_path: Path, kind: Kind) -> None:
    dump, rejector, mask, batch = applied(tmp_path, kind)
    check_batch(mask, batch)
    accepted = ~mask["rejected"]
    assert 0 < accepted.sum() < accepted.size
    report = evaluate_regression(dump, rejector, "predicted", "true")
    residuals = (mask["predicted"] - mask["true"])[accepted]
    assert report["coverage"]["accepted"] == accepted.sum()
    assert report["mse"]["value"] == pytest.approx(np.mean(residuals**2), rel=1e-12)
    assert report["mae"]["value"] == pytest.approx(np.mean(np.abs(residuals)), rel=1e-12)


def test_the_task_is_remembered_in_the_document() -> None:
    rejector = without_logits("own")
    assert rejector.task == "regression"
    assert '"task": "regression"' in rejector.to_json()
    tree = json.loads(rejector.to_json())
    old = {key: value for key, value in tree.items() if key not in ("task", "digest")} | {"drrej_version": "0.1.0"}
    read = drrej.Rejector.from_json(json.dumps(old))  # as written before there was a task
    assert read == replace(rejector, drrej_version="0.1.0")
