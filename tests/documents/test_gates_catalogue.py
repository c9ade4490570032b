"""The catalogue of metrics: what gates know is what reports have."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import make_model, make_rejector, source, thorough, write_dump

import drrej
from drrej.core.losses import ColumnLoss, CostLoss
from drrej.documents.document import When, entries, schema_of
from drrej.documents.figures import DEFAULT_POINTS
from drrej.documents.gates import Metric, catalogue
from drrej.documents.report import RegressionReport, Report
from drrej.errors import ReportError
from drrej.pipeline.compare import BaselineDump, Rivals
from drrej.pipeline.evaluate import evaluate_regression

KINDS = ("by", "intervals", "baseline", "baseline with intervals", "baseline dump", "costs", "compare", "pictures")
ROWS = 300


_NOT_FOR_GATES = ("pictures", "target", "confusion", "examples", "left_out")


def numeric_paths(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every path of a report to a number, but for lists and pictures; a section with a number as value is one too."""
    for key, node in tree.items():
        if isinstance(node, Mapping) and key not in (
            "pictures",
            "target",
            "confusion",
            "examples",
            "left_out",
        ):
            if _is_number(node.get("value")):
                yield prefix + key
            yield from numeric_paths(node, f"{prefix}{key}.")
        elif _is_number(node):
            yield prefix + key


def _is_number(node: Any) -> bool:
    return isinstance(node, int | float) and not isinstance(node, bool)


def gate_names(report: Mapping[str, Any]) -> set[str]:
    """The same as gates spell them: points of the curve by their own name."""
    return {path.removeprefix("points.") for path in numeric_paths(report)}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A dump with groups, scores and a mask; rejectors with and without costs; reports to compare with."""
    folder = tmp_path_factory.mktemp("catalogue")
    logits, labels = make_model(ROWS, 3, 2)
    rng = np.random.default_rng(0)
    extra = {"site": pa.array(["a", "b"] * (ROWS // 2)), "mask": pa.array(rng.random(ROWS) < 0.3)}
    dump = source(write_dump(folder / "d.parquet", logits, labels, extra=extra))
    costs = drrej.RatioOptions(loss=CostLoss(((0.0, 1.0, 2.0), (1.0, 0.0, 1.0), (3.0, 1.0, 0.0))))
    plain = make_rejector(dump)
    return {
        "dump": dump,
        "plain": plain,
        "costs": make_rejector(dump, ratio=costs),
        "report": drrej.evaluate(dump, plain),
        "with intervals": drrej.evaluate(dump, plain, (), drrej.EvaluateOptions(intervals=True)),
    }


def made(world: dict[str, Any], asked: set[str]) -> tuple[Report, drrej.EvaluateOptions, drrej.Rejector]:
    rejector = world["costs" if "costs" in asked else "plain"]
    then = world["report"] if "baseline" in asked else None
    options = drrej.EvaluateOptions(
        by="site" if "by" in asked else None,
        intervals="intervals" in asked,
        baseline=world["with intervals"] if "baseline with intervals" in asked else then,
        baseline_dump=BaselineDump(world["dump"], rejector, "id") if "baseline dump" in asked else None,
        rivals=Rivals(True, {"mask": "low"}) if "compare" in asked else Rivals(),
        pictures="pictures" in asked,
    )
    return drrej.evaluate(world["dump"], rejector, (), options), options, rejector


BASELINES = {kind for kind in KINDS if "baseline" in kind}


def combinations(size: int) -> Iterator[set[str]]:
    """As many kinds, in every combination; with 0 none, and everything with each of the baselines."""
    yield from (set(kinds) for kinds in itertools.combinations(KINDS, size) if len(BASELINES & set(kinds)) < 2)
    if size == 0:
        yield from ((set(KINDS) - BASELINES) | {baseline} for baseline in sorted(BASELINES))


@pytest.mark.parametrize("size", [0, 1, thorough(2)])
def test_gates_know_exactly_the_numbers_that_reports_have(world: dict[str, Any], size: int) -> None:
    for asked in combinations(size):
        report, options, rejector = made(world, asked)
        known = {metric.name for metric in catalogue(options.conditions(rejector))}
        assert known == gate_names(report), asked
        for name in known:
            assert drrej.Gate.parse(f"{name} < 1e300").judge(report).passed


def test_the_same_without_labels(world: dict[str, Any]) -> None:
    for name, pictures in itertools.product(("plain", "costs"), (False, True)):
        options = drrej.EvaluateOptions(labels=False, pictures=pictures)
        report = drrej.evaluate(world["dump"], world[name], (), options)
        assert {metric.name for metric in catalogue(options.conditions(world[name]))} == gate_names(report)


def test_the_same_for_a_regression(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    spread = rng.uniform(0.1, 2.0, 50)
    pq.write_table(pa.table({"p": np.zeros(50), "v": spread, "t": rng.normal(size=50)}), tmp_path / "d.parquet")
    dump = source(tmp_path / "d.parquet")
    from drrej.pipeline.fit import without_logits

    fitted = drrej.fit(dump, without_logits("v"), drrej.RatioOptions(loss=ColumnLoss("v")))
    report = evaluate_regression(dump, drrej.threshold(dump, fitted, drrej.Rule("coverage", 0.7)), "p", "t")
    assert {metric.name for metric in catalogue((), RegressionReport)} == gate_names(report)


def test_a_figure_that_no_group_has_is_still_counted(world: dict[str, Any]) -> None:
    """When every row is rejected, the worst group has no accuracy, but no errors either."""
    nothing = drrej.threshold(world["dump"], world["plain"], drrej.Rule("tau", 1e6))
    gate = drrej.Gate.parse("worst_group.accuracy.errors <= 0")
    report = drrej.evaluate(world["dump"], nothing, [gate], drrej.EvaluateOptions(by="site"))
    assert report.worst_group is not None
    assert (report.worst_group.accuracy.group, report.worst_group.accuracy.value) == (None, None)
    assert report.failed_gates == ()


@pytest.mark.parametrize("kind", [Report, RegressionReport])
def test_every_metric_says_what_it_is_in_one_plain_sentence(kind: type) -> None:
    everything = catalogue(of=kind)
    assert len({metric.name for metric in everything}) == len(everything)
    for metric in everything:
        assert re.fullmatch(r"[A-Z][^\n]{10,120}[^.]\.", metric.meaning), metric
        assert metric.unit
        assert metric.better in ("higher", "lower", "neither")
        assert metric.interval


def by_name(name: str) -> Metric:
    return next(metric for metric in catalogue() if metric.name == name)


@pytest.mark.parametrize(
    ("name", "unit", "better", "interval", "needs"),
    [
        ("coverage", "share", "higher", "exact (Clopper-Pearson)", ""),
        ("accuracy.errors", "count", "lower", "none", "labels"),
        ("nll.all", "nats", "lower", "none", "labels"),
        ("aurc", "share", "lower", "random weights of the rows", "labels"),
        ("aurc.lower", "share", "lower", "random weights of the rows", "`intervals=True`"),
        ("coverage@risk=0.01.lower", "share", "higher", "exact tests of every cutoff", "`intervals=True`"),
        ("drift.p_value", "p-value", "higher", "none", ""),
        ("cutoff", "loss", "neither", "none", ""),
        ("cost", "cost", "lower", "exact bounds of what can happen to a row, or betting", "`loss=cost` in 'drrej fit'"),
        ("worst_group.accuracy.errors", "count", "lower", "none", "`by=COL`"),
    ],
)
def test_what_is_declared_is_what_the_catalogue_says(
    name: str, unit: str, better: str, interval: str, needs: str
) -> None:
    metric = by_name(name)
    assert (metric.unit, metric.better, metric.interval, metric.needs) == (unit, better, interval, needs)


def test_exact_intervals_are_there_without_being_asked_for(world: dict[str, Any]) -> None:
    """Of every metric that has an interval by the catalogue, the report has its ends, exactly when it says so."""
    _, options, rejector = made(world, {"by", "baseline"})
    known = {metric.name: metric for metric in catalogue(options.conditions(rejector))}
    for name, metric in known.items():
        if name.endswith(".value"):
            has_ends = name.replace(".value", ".lower") in known
            asked_for = name.rpartition(".")[0].endswith(("aurc", "augrc")) or "coverage@risk" in name
            assert has_ends == (metric.interval != "none" and not asked_for)


def test_every_section_that_may_be_missing_says_when_it_is_there() -> None:
    for entry in entries(Report):
        if not entry.required and entry.section is not None and entry.about.gate:
            assert isinstance(entry.about.when, When), entry.key


def test_the_default_points_are_in_the_catalogue() -> None:
    assert set(DEFAULT_POINTS) <= {metric.name for metric in catalogue()}


def test_a_new_field_is_a_metric_a_key_and_part_of_the_schema(world: dict[str, Any]) -> None:
    """The three cannot drift: all of them are read off the class."""
    from typing import Annotated

    from drrej.documents.document import NONE, Count, about

    declared = about("rows that nobody has asked for", "lower", NONE)
    wider: Any = msgspec.defstruct(
        "Wider", [("novelty", Annotated[Count, declared])], bases=(Report,), frozen=True, kw_only=True
    )
    report = wider(**msgspec.structs.asdict(world["report"]), novelty=7)
    assert "novelty" in {metric.name for metric in catalogue((), wider)}
    assert report["novelty"] == 7
    schema = schema_of(wider)["properties"]["novelty"]
    assert schema == {"description": "rows that nobody has asked for.", "type": "integer", "minimum": 0}
    with pytest.raises(ReportError, match="'novelty' is out of range"):
        wider.from_json(report.to_json().replace('"novelty": 7', '"novelty": -7'))
