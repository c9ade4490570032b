"""The numbers behind the report's pictures, against brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import make_model, read_columns, succeed, write_dump

import drrej
from drrej.core.curves import Curve
from drrej.engines.local import LocalEngine
from drrej.pipeline.evaluate import EvaluateOptions
from drrej.pipeline.pictures import ideal_curve, loss_histogram

CLASSES = 40


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A dump, its rejector, its mask, and the report with pictures."""
    folder = tmp_path_factory.mktemp("pictures")
    logits, labels = make_model(3000, CLASSES, 5)
    site = pa.array([f"site {number % 3}" for number in range(3000)])
    dump = write_dump(folder / "dump.parquet", logits, labels, row_group=500, extra={"site": site})
    source = drrej.Source([dump], engine=LocalEngine(2))
    rejector = drrej.fit(source, drrej.calibrate(source))
    rejector = drrej.threshold(source, rejector, drrej.Rule("coverage", 0.7))
    (folder / "r.json").write_text(rejector.to_json())
    succeed("reject", dump, "-r", folder / "r.json", "-o", folder / "mask.parquet")
    report = drrej.evaluate(source, rejector, [], EvaluateOptions(pictures=True, by="site"))
    mask = read_columns(folder / "mask.parquet")
    return {"logits": logits, "mask": mask, "rejector": rejector, "report": report, "dump": dump}


def test_the_ideal_order_accepts_right_rows_first() -> None:
    wrong = np.array([0] * 7 + [1] * 3)
    for point in ideal_curve(3, 10):
        kept = round(point["coverage"] * 10)
        assert point["accuracy"] == pytest.approx(1 - wrong[:kept].mean())
    assert ideal_curve(3, 10)[0] == {"coverage": 0.7, "accuracy": 1.0}
    assert ideal_curve(10, 10)[-1] == {"coverage": 1.0, "accuracy": 0.0}


def test_reliability_is_accuracy_and_confidence_in_each_bin(world: dict[str, Any]) -> None:
    logits = world["logits"].astype(np.float64)
    mask = world["mask"]
    right = mask["prediction"] == mask["label"]
    temperature = world["rejector"].need_calibration().temperature
    for kind, t in (("uncalibrated", 1.0), ("calibrated", temperature)):
        p = np.exp((logits - logits.max(axis=1, keepdims=True)) / t)
        confidence = (p / p.sum(axis=1, keepdims=True)).max(axis=1)
        bins = world["report"]["pictures"]["reliability"][kind]
        assert sum(row["rows"] for row in bins) == 3000
        for row in bins:
            inside = (confidence > row["lower"]) & (confidence <= row["upper"])
            assert abs(row["rows"] - inside.sum()) <= 1  # float32 sums may move a row over an edge
            assert row["confidence"] == pytest.approx(confidence[inside].mean(), abs=1e-3)
            assert row["accuracy"] == pytest.approx(right[inside].mean(), abs=2e-2)
            assert row["share"] == row["rows"] / 3000


def test_the_histogram_counts_every_row_once(world: dict[str, Any]) -> None:
    mask, drawn = world["mask"], world["report"]["pictures"]["losses"]
    edges = np.array(drawn["edges"])
    right = mask["prediction"] == mask["label"]
    for kind, rows in (("right", right), ("wrong", ~right)):
        losses = np.maximum(mask["loss"][rows], edges[0])
        assert drawn[kind] == np.histogram(losses, edges)[0].tolist()
        assert sum(drawn[kind]) == rows.sum()


@pytest.mark.parametrize(
    ("losses", "scale"),
    [([0.5, 0.6, 0.7], "linear"), ([-3.0, 0.0, 1e6], "linear"), ([0.0], "linear"), ([1e-9, 1e-3, 1.0], "log")],
)
def test_losses_of_any_range_have_a_scale(losses: list[float], scale: str) -> None:
    drawn = loss_histogram(Curve.of(np.array(losses), np.empty(0)), labelled=False)
    assert drawn["scale"] == scale
    assert sum(drawn["rows"]) == len(losses)
    assert np.all(np.diff(drawn["edges"]) > 0)


def test_pictures_do_not_depend_on_threads(world: dict[str, Any]) -> None:
    source = drrej.Source([world["dump"]], engine=LocalEngine(1))
    again = drrej.evaluate(source, world["rejector"], [], EvaluateOptions(pictures=True, by="site"))
    assert again.to_json() == world["report"].to_json()


def test_the_report_without_pictures_has_none(world: dict[str, Any]) -> None:
    source = drrej.Source([world["dump"]], engine=LocalEngine(1))
    plain = drrej.evaluate(source, world["rejector"], [], EvaluateOptions(by="site"))
    with_pictures = dict(world["report"])
    with_pictures.pop("pictures")
    assert dict(plain) | {"digest": ""} == with_pictures | {"digest": ""}
