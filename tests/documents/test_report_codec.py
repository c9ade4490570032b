"""Reports as documents: what is written is read back, and what is damaged or contradicts itself is refused."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from conftest import fail, make_model, make_rejector, source, succeed, texts, write_dump
from hypothesis import given
from hypothesis import strategies as st

import drrej
from drrej.documents.document import schema_of
from drrej.errors import OptionError, ReportError
from drrej.pipeline.compare import Rivals

OPTIONS = drrej.EvaluateOptions(intervals=True, by="prediction", rivals=Rivals(usual=True), pictures=True)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> drrej.Report:
    dump = source(write_dump(tmp_path_factory.mktemp("codec") / "d.parquet", *make_model(200, 3, 1)))
    return drrej.evaluate(dump, make_rejector(dump), [drrej.Gate.parse("accuracy >= 0.5")], OPTIONS)


def changed(report: drrej.Report, path: str, value: Any) -> str:
    """The document with another value at a place; KeyError takes the key away."""
    tree = copy.deepcopy(report.tree)
    node: Any = tree
    *parents, last = [int(key) if key.isdigit() else key for key in path.split("/")]
    for key in parents:
        node = node[key]
    if value is KeyError:
        del node[last]
    else:
        node[last] = value
    return json.dumps(tree)


def test_a_report_is_read_back_with_every_digit(report: drrej.Report) -> None:
    again = drrej.Report.from_json(report.to_json())
    assert again == report
    assert again.to_json() == report.to_json()
    assert again.coverage == report.coverage
    assert again.pictures == report.pictures
    assert isinstance(again.rows, int)


def test_a_report_is_its_tree(report: drrej.Report) -> None:
    assert report["coverage"]["value"] == report.coverage.value
    assert "cost" not in report
    assert report.get("cost") is None
    assert list(report)[:3] == ["format", "drrej_version", "rows"]
    assert dict(report) == json.loads(report.to_json()) == report
    with pytest.raises(KeyError):
        report["cost"]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format", "drrej-report/2", "format 'drrej-report/2' is not known to drrej .*; update drrej"),
        (
            "format",
            "drrej-regression-report/1",
            "not a report: its 'format' should be 'drrej-report/1', not 'drrej-regression-report/1'",
        ),
        ("rows", KeyError, "the key 'rows' is missing"),
        ("rows", 0, "the value of 'rows' is out of range"),
        ("rows", 2.5, "the value of 'rows' should be a whole number, not a decimal number"),
        ("rows", 10**400, "the value of 'rows' is out of range"),
        ("rows", 2**63, "the value of 'rows' should be a whole number, not a decimal number"),
        ("classes", 1, "the value of 'classes' is out of range"),
        ("accuracy/value", 17, "the value of 'accuracy.value' is out of range"),
        ("accuracy/value", 0.123, "it was edited after drrej wrote it"),
        ("accuracy/errors", -1, "the value of 'accuracy.errors' is out of range"),
        ("accuracy/errors", 10**6, "it was edited after drrej wrote it"),
        ("coverage/accepted", 201, "it was edited after drrej wrote it"),
        ("base_accuracy/value", None, "it was edited after drrej wrote it"),
        ("accuracy/lower", 1.0, "'accuracy': the lower end of an interval is above its upper end"),
        ("aurc/upper", None, "'aurc': an interval has two ends or none"),
        ("curve/7/lower", 1, r"'curve\[7\]': the lower end of an interval is above its upper end"),
        ("curve/7/accuracy", "much", r"the value of 'curve\[7\].accuracy' should be a number, not text"),
        ("points/accuracy@coverage=0.9/value", 2, r"the value of 'points\[\.\.\.\]\.value' is out of range"),
        ("per_class/0/class", None, r"the value of 'per_class\[0\].class' should be"),
        ("per_group", {}, "the value of 'per_group' should be a list"),
        ("coverage", 1.0, "the value of 'coverage' should be an object"),
        ("gates/0/passed", 1, r"the value of 'gates\[0\].passed' should be true or false, not a whole number"),
        ("drift/p_value", 1.5, "the value of 'drift.p_value' is out of range"),
        ("pictures/losses/scale", "cubic", "it was edited after drrej wrote it"),
    ],
)
def test_damage_is_named_by_its_key(report: drrej.Report, path: str, value: Any, message: str) -> None:
    with pytest.raises(ReportError, match=rf"^r\.json: ('document': )?{message}") as caught:
        drrej.Report.from_json(changed(report, path, value), "r.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "null", "[" * 100_000, '{"rows": NaN}', '{"a": 1, "a": 2}', '{"format": 1}', "1" * 9999],
)
def test_what_is_not_a_report_at_all(text: str) -> None:
    with pytest.raises(ReportError, match=r"^r\.json: not a ") as caught:
        drrej.Report.from_json(text, "r.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["novelty", "coverage/novelty", "curve/3/novelty"])
def test_keys_that_are_not_known_are_refused(report: drrej.Report, path: str) -> None:
    said = path.replace("/3", "[3]").replace("/", ".")
    with pytest.raises(ReportError, match=re.escape(f"r.json: the key '{said}' is not known to drrej ")):
        drrej.Report.from_json(changed(report, path, 1), "r.json")


def leaves(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a tree but the root."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    below = [place for key, value in items for place in leaves(value, (*path, key))]
    return ([path] if path else []) + below


_VALIDATOR = jsonschema.Draft202012Validator(schema_of(drrej.Report))

JUNK = (
    st.none()
    | st.booleans()
    | st.integers(-3, 10**20)
    | st.floats(-2, 3)
    | texts(max_size=3)
    | st.just([])
    | st.just({})
)


@given(st.integers(0, 10**6), JUNK)
def test_what_is_read_follows_the_schema(report: drrej.Report, place: int, junk: Any) -> None:
    """A change anywhere is refused, or the schema takes it too. Null is read as a section that is not there."""
    tree = copy.deepcopy(report.tree)
    places = leaves(tree)
    *parents, last = places[place % len(places)]
    node: Any = tree
    for key in parents:
        node = node[key]
    node[last] = junk
    valid = _VALIDATOR.is_valid(tree)
    try:
        drrej.Report.from_json(json.dumps(tree))
    except ReportError:
        return
    assert valid or node[last] is None


# As a baseline


@pytest.fixture(scope="module")
def old(documents: Path, test: str) -> dict[str, Any]:
    return json.loads(succeed("evaluate", test, "-r", documents / "rejector.json", "--format", "json"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"accuracy": {"value": 17, "lower": 0.1, "upper": 0.2, "errors": 0}}, "'accuracy.value' is out of range"),
        ({"coverage": {"value": 1.0, "lower": 0.9, "upper": 0.2, "accepted": 2060}}, "above its upper end"),
        ({"classes": 7, "confusion": None}, "a report on 7 classes; the rejector has 6"),
        ({"format": "drrej-regression-report/1"}, "not a report: its 'format'"),
        ({"rows": float("nan")}, "NaN is not a JSON number"),
    ],
)
def test_baselines_that_contradict_themselves_or_are_of_something_else(
    tmp_path: Path, documents: Path, test: str, old: dict[str, Any], change: dict[str, Any], said: str
) -> None:
    (tmp_path / "old.json").write_text(json.dumps(old | change))
    words = "--accept-edited", "evaluate", test, "-r", documents / "rejector.json", "--baseline", tmp_path / "old.json"
    message = fail(*words)
    assert said in message
    assert "--baseline" in message


def test_a_baseline_of_other_class_names(tmp_path: Path) -> None:
    logits, labels = make_model(100, 2, 1)
    dump = write_dump(tmp_path / "d.parquet", logits, labels)
    cats, birds = (source(dump, classes=names) for names in (("cat", "dog"), ("bird", "dog")))
    then = drrej.evaluate(cats, make_rejector(cats))
    assert np.unique(labels).size == 2
    with pytest.raises(OptionError, match="other classes; the rejector has no class 'cat'"):
        drrej.evaluate(birds, make_rejector(birds), (), drrej.EvaluateOptions(baseline=then))
    plain = source(dump)
    report = drrej.evaluate(plain, make_rejector(plain), (), drrej.EvaluateOptions(baseline=then))  # numbers now
    assert report["difference"]["accuracy"]["value"] == 0
