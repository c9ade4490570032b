"""The document: round trip, sections that build on each other, messages about damage."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import texts
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from drrej import Rejector
from drrej.core.losses import PLAIN
from drrej.documents.rejector import BeforeAfter, Calibration, Columns, Ratio, Rule, Threshold
from drrej.errors import RejectorError

finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(1e-300, 1e300)
maybe = st.none() | finite


@st.composite
def rejectors(draw: st.DrawFn) -> Rejector:
    names = draw(st.none() | st.just(("a", "ü", "c, d")))
    rejector = Rejector(3, "probs", Columns(draw(texts(1)), draw(st.none() | texts())), class_names=names)
    before_after = BeforeAfter(draw(maybe), draw(maybe))
    sections: list[Any] = [
        Calibration("temperature", draw(positive), draw(st.booleans()), 10, "ab.cd", before_after, before_after)
    ]
    if draw(st.booleans()):
        numbers = {name: draw(finite) for name in ("log_max_ratio", "min_loss", "mean_loss", "max_loss")}
        loss = draw(st.sampled_from(list(PLAIN)))
        sections.append(
            Ratio(
                alpha=draw(finite),
                lam=draw(positive),
                loss_name=loss,
                **numbers,
                variance=draw(maybe),
                rows=10,
                fingerprint="ab.cd",
                loss_quantiles=(0.5, draw(finite)),
            )
        )
        if draw(st.booleans()):
            rule = Rule("tau", draw(positive))
            sections.append(Threshold(draw(maybe), draw(maybe), rule, 10, 5, 0.5, draw(maybe)))
    return rejector.with_sections(*sections)


@given(rejectors())
def test_documents_read_back_to_the_same_floats(rejector: Rejector) -> None:
    """Any numbers; whether they go together is checked after that."""
    text = rejector.to_json()
    again = Rejector.read(text, "r.json")
    assert again == rejector
    assert again.to_json() == text
    assert 'lam"' not in text


@pytest.fixture
def tree(rejector_file: str) -> dict[str, Any]:
    return json.loads(Path(rejector_file).read_text())


def test_the_keys_of_the_contract(tree: dict[str, Any]) -> None:
    assert tree["format"] == "drrej-rejector/1"
    assert {"drrej_version", "classes", "input", "columns", "calibration", "ratio", "threshold"} <= set(tree)
    assert set(tree["columns"]) == {"logits", "label"}
    assert set(tree["calibration"]) == {
        "method",
        "temperature",
        "converged",
        "rows",
        "fingerprint",
        "nll",
        "ece",
        "brier",
    }
    assert {
        "alpha", "lambda", "loss", "log_max_ratio", "min_loss", "mean_loss", "max_loss", "rows",
        "fingerprint",
    } <= set(tree["ratio"])  # fmt: skip
    assert {"tau", "cutoff", "rule", "rows", "accepted", "coverage"} <= set(tree["threshold"])
    assert tree["threshold"]["rule"] == {"kind": "coverage", "target": 0.8}


def change(tree: dict[str, Any], path: str, value: Any) -> str:
    *parents, last = path.split(".")
    node = tree
    for key in parents:
        node = node[key]
    if value is KeyError:
        del node[last]
    else:
        node[last] = value
    return json.dumps(tree)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format", KeyError, "not a rejector: its 'format' should be 'drrej-rejector/1'"),
        ("format", "drrej-report/1", "not a rejector: its 'format'"),
        ("format", "drrej-rejector/2", "format 'drrej-rejector/2' is not known to drrej .*; update drrej"),
        ("classes", KeyError, "the key 'classes' is missing"),
        ("classes", 1, "the value of 'classes' is out of range"),
        ("classes", 3.0, "the value of 'classes' should be a whole number, not a decimal number"),
        ("classes", True, "the value of 'classes' should be a whole number, not true or false"),
        ("input", "marks", "the value of 'input' should be"),
        ("columns", [], "the value of 'columns' should be an object, not a list"),
        ("columns.logits", 3, "the value of 'columns.logits' should be text, not a whole number"),
        ("calibration.temperature", 0, "the value of 'calibration.temperature' is out of range"),
        ("calibration.temperature", "2", "the value of 'calibration.temperature' should be a number, not text"),
        ("classes", 10**30, "the value of 'classes' should be a whole number, not a decimal number"),
        ("calibration.temperature", 10**400, "the value of 'calibration.temperature' is out of range"),
        ("calibration.nll.before", KeyError, "the key 'calibration.nll.before' is missing"),
        ("calibration", None, "the value of 'ratio' is there, but a section is missing"),
        ("ratio", KeyError, "the value of 'threshold' is there, but a section is missing"),
        ("ratio.lambda", -1, "the value of 'ratio.lambda' is out of range"),
        ("ratio.loss", "hinge", "the value of 'ratio.loss' is unknown"),
        ("ratio.costs", [[0, 1], [1, 0]], "the value of 'ratio.costs' contradicts 'ratio.loss'"),
        ("ratio.loss", "cost", "the value of 'ratio.costs' contradicts 'ratio.loss'"),
        ("threshold.cutoff", KeyError, "the key 'threshold.cutoff' is missing"),
        ("threshold.rule", None, "the value of 'threshold.rule' should be an object, not null"),
        ("class_names", ["a", "b"], "the value of 'class_names' is out of range"),
        ("class_names", ["a", "b", "c", "d", "e", "a"], "the value of 'class_names' names a class twice"),
        ("class_names", "abc", "the value of 'class_names' should be"),
    ],
)
def test_damage_is_named_by_its_key(tree: dict[str, Any], path: str, value: Any, message: str) -> None:
    with pytest.raises(RejectorError, match=f"r.json: ({message})") as caught:
        Rejector.from_json(change(tree, path, value), "r.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '{"a": NaN}', "[" * 100_000, '{"format": 1}'])
def test_what_is_not_a_document_at_all(text: str) -> None:
    with pytest.raises(RejectorError, match=r"^r\.json: not a") as caught:
        Rejector.from_json(text, "r.json")
    assert "\n" not in str(caught.value)


def test_infinite_numbers_are_refused(tree: dict[str, Any]) -> None:
    text = json.dumps(tree).replace(json.dumps(tree["threshold"]["cutoff"]), "1e999")
    with pytest.raises(RejectorError, match=r"'threshold.cutoff' is out of range"):
        Rejector.from_json(text)


@pytest.mark.parametrize("path", ["novelty", "columns.novelty", "calibration.nll.novelty", "ratio.name"])
def test_keys_that_are_not_known_are_refused(tree: dict[str, Any], path: str) -> None:
    with pytest.raises(RejectorError, match=f"^r.json: the key '{path}' is not known to drrej "):
        Rejector.from_json(change(tree, path, 1), "r.json")


def test_a_step_drops_the_sections_after_it(tree: dict[str, Any]) -> None:
    done = Rejector.from_json(json.dumps(tree))
    fitted = done.with_sections(done.calibration, done.ratio)
    assert fitted.threshold is None
    calibrated = done.with_sections(done.calibration)
    assert (calibrated.ratio, calibrated.threshold) == (None, None)


def test_a_missing_section_names_the_command_to_run() -> None:
    empty = Rejector(2, "logits", Columns("logits"))
    calibrated = empty.with_sections(Calibration("given", 1.0))
    for need, command in (
        (empty.need_calibration, "calibrate"),
        (empty.need_threshold, "calibrate"),  # the first that is missing
        (calibrated.need_ratio, "fit"),
        (calibrated.need_threshold, "fit"),
    ):
        with pytest.raises(RejectorError, match=f"run 'drrej {command}' first"):
            need()


def test_rows_at_the_cutoff_are_rejected_and_a_null_cutoff_rejects_nothing() -> None:
    threshold = Threshold(0.5, 0.3, Rule("tau", 0.5), 3, 1, 1 / 3)
    losses = np.array([math.nextafter(0.3, 0), 0.3, 0.4])
    assert threshold.accepts(losses).tolist() == [True, False, False]
    assert replace(threshold, cutoff=None).accepts(losses).all()
