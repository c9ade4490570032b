"""Rows that belong to no class: figures by brute force, layouts, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import fail, load_json, make_model, make_rejector, source, succeed, write_dump
from hypothesis import given
from hypothesis import strategies as st

import drrej
from drrej.core.curves import Curve
from drrej.core.drift import outside_areas
from drrej.core.losses import expected_losses
from drrej.pipeline.compare import Rivals

CLASSES = 4


def brute_force(losses: np.ndarray, costs: np.ndarray) -> tuple[float, float]:
    """AURC and AUGRC of costs: a point after each distinct loss, trapezoids, the first risk extended to coverage 0."""
    coverage, risk, general = [0.0], [], [0.0]
    for cutoff in np.unique(losses):
        kept = losses <= cutoff
        coverage.append(kept.mean())
        risk.append(costs[kept].mean())
        general.append(costs[kept].sum() / losses.size)
    return float(np.trapezoid([risk[0], *risk], coverage)), float(np.trapezoid(general, coverage))


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.5, 1.0, 7.0]))
def test_areas_are_those_of_the_costs_of_single_rows(seed: int, ratio: float) -> None:
    rng = np.random.default_rng(seed)
    right, wrong, outside = (rng.integers(0, 9, rng.integers(1, 15)) / 10.0 for _ in range(3))
    found = outside_areas(Curve.of(right, wrong), outside, ratio)
    losses = np.concatenate([right, wrong, outside])
    costs = np.repeat([0.0, 1.0, ratio], [right.size, wrong.size, outside.size])
    assert (found["aurc"], found["augrc"]) == pytest.approx(brute_force(losses, costs), rel=1e-12, abs=1e-15)
    inside = np.concatenate([right, wrong])
    pairs = outside[:, None] - inside[None]
    assert found["auroc"] == pytest.approx((pairs > 0).mean() + 0.5 * (pairs == 0).mean())
    cutoff = next(value for value in np.sort(inside) if 100 * (inside <= value).sum() >= 95 * inside.size)
    assert found["fpr_at_95_tpr"] == pytest.approx((outside <= cutoff).mean())


class World:
    """A dump in which every fifth row belongs to no class, and has no label."""

    def __init__(self, folder: Path) -> None:
        self.logits, labels = make_model(2000, CLASSES, 5)
        self.outside = np.arange(2000) % 5 == 0
        self.logits[self.outside] *= 0.4
        self.labels = labels
        fit = source(write_dump(folder / "v.parquet", *make_model(1500, CLASSES, 6)))
        self.rejector = make_rejector(fit)
        (folder / "r.json").write_text(self.rejector.to_json())
        self.path = Path(write_dump(folder / "d.parquet", self.logits, labels))
        table = pq.read_table(self.path)
        marks = pa.array([None if out else int(label) for out, label in zip(self.outside, labels, strict=True)])
        table = table.set_column(table.schema.get_field_index("label"), "label", marks)
        table = table.append_column("strange", pa.array(self.outside))
        pq.write_table(table, self.path, row_group_size=300)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("outside"))


def test_the_section_is_right_and_the_rest_is_about_rows_of_a_class(world: World, tmp_path: Path) -> None:
    out, folder = tmp_path / "r.json", world.path.parent
    succeed(
        *("evaluate", world.path, "-r", folder / "r.json", "--ood", "strange", "--ood-cost", "3", "--compare"),
        *("-o", out, "--gate", "ood.auroc >= 0.1"),
    )
    report = load_json(out)
    alone = write_dump(tmp_path / "a.parquet", world.logits[~world.outside], world.labels[~world.outside])
    succeed("evaluate", alone, "-r", folder / "r.json", "--compare", "-o", tmp_path / "alone.json")
    without = load_json(tmp_path / "alone.json")
    found = report.pop("ood")
    assert {**report, "gates": [], "digest": ""} == {**without, "gates": [], "digest": ""}
    assert world.rejector.calibration is not None
    assert world.rejector.threshold is not None
    losses = expected_losses(world.logits, "log", world.rejector.calibration.temperature)
    wrong = (world.logits.argmax(axis=1) != world.labels) & ~world.outside
    accepted = losses < world.rejector.threshold.cutoff
    assert (found["column"], found["cost_ratio"], found["rows"]) == ("strange", 3.0, 400)
    assert found["accepted"]["value"] == pytest.approx(accepted[world.outside].mean())
    costs = wrong + 3.0 * world.outside
    assert found["joint_risk"] == pytest.approx(costs[accepted].mean())
    assert found["joint_risk_all"] == pytest.approx(costs.mean())
    assert (found["aurc"], found["augrc"]) == pytest.approx(brute_force(losses, costs), rel=1e-9)
    assert list(found["scores"]) == [row["score"] for row in report["scores"]]
    assert found["scores"]["loss"]["aurc"] == found["aurc"]
    top = -world.logits.max(axis=1).astype(np.float64)
    assert found["scores"]["max_logit"]["augrc"] == pytest.approx(brute_force(top, costs)[1], rel=1e-9)


def test_blocks_and_layouts_do_not_matter(world: World, tmp_path: Path) -> None:
    table = pq.read_table(world.path)
    order = np.random.default_rng(1).permutation(2000)
    pq.write_table(table.take(pa.array(order)), tmp_path / "s.parquet", row_group_size=77)
    whole = table.set_column(
        table.schema.get_field_index("strange"), "strange", pa.array(world.outside.astype(np.int8))
    )
    pq.write_table(whole, tmp_path / "w.parquet")
    found = []
    for path in (world.path, tmp_path / "s.parquet", tmp_path / "w.parquet"):
        options = drrej.EvaluateOptions(ood="strange", rivals=Rivals(usual=True))
        found.append(drrej.evaluate(source(path), world.rejector, options=options).ood)
    assert found[0] == found[1] == found[2]


def test_the_page_and_the_text_show_it(world: World, tmp_path: Path) -> None:
    place = world.path.parent / "r.json"
    text = succeed("evaluate", world.path, "-r", place, "--ood", "strange", "--verbose").decode()
    assert "Rows of no class" in text or "FPR at 95 % TPR" in text
    page = succeed(
        "evaluate", world.path, "-r", place, "--ood", "strange", "--compare", "--format", "markdown"
    ).decode()
    assert "FPR at 95 % TPR" in page


def test_what_cannot_be_is_refused(world: World, tmp_path: Path) -> None:
    place, here = world.path.parent / "r.json", ("evaluate", world.path, "-r", world.path.parent / "r.json")
    assert "there is no such column" in fail(*here, "--ood", "absent")
    assert "boolean (or 0 and 1)" in fail(*here, "--ood", "logits")
    assert "--ood-cost requires --ood" in fail(*here, "--ood-cost", "2")
    assert "from 0 on" in fail(*here, "--ood", "strange", "--ood-cost", "-1")
    assert "--no-labels" in fail(*here, "--ood", "strange", "--no-labels")
    table = pq.read_table(world.path)
    number = table.schema.get_field_index("strange")
    cases = {
        "is 2 in row 1 ": pa.array([0, 2] + [0] * 1998),
        "has no value (null) in row 1 ": pa.array([True, None] + [False] * 1998),
        "no row of the dump is without a class": pa.array([False] * 2000),
        "no row has a label": pa.array([True] * 2000),
    }
    for words, column in cases.items():
        labels = pa.array(world.labels)
        other = table.set_column(number, "strange", column)
        other = other.set_column(other.schema.get_field_index("label"), "label", labels)
        pq.write_table(other, tmp_path / "o.parquet")
        assert words in fail("evaluate", tmp_path / "o.parquet", "-r", place, "--ood", "strange"), words
