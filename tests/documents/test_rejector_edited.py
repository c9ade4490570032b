"""Documents that were edited or cannot be used are refused, whatever was changed; those that drrej writes never are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, Many, examples, source, write_dump
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from mutate_documents import Original, case, originals, used
from running import fail, succeed

import drrej
from drrej.core.losses import ColumnLoss, CostLoss
from drrej.core.reuse import Sketch
from drrej.documents.rejector import Threshold
from drrej.errors import Infeasible, RejectorError
from drrej.pipeline.fit import ratio_of, without_logits
from drrej.pipeline.threshold import decide

OLD = ROOT / "tests" / "files" / "old"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutated")


@pytest.fixture(scope="module")
def kinds(folder: Path) -> list[Original]:
    return originals(folder)


def test_what_drrej_writes_is_read_back_and_used(kinds: list[Original], folder: Path, many: Many) -> None:
    """All kinds by the library; every 18th through the commands, or every sixth."""
    every = 18 // many(3)
    for number, original in enumerate(kinds):
        kind = drrej.Report if original.is_report else drrej.Rejector
        assert kind.from_json(original.text).to_json() == original.text
        if number % every == 0:
            (folder / "own.json").write_text(original.text, encoding="utf-8")
            assert used(original, folder / "own.json", folder) == "used"


def test_mutated_documents_are_refused(kinds: list[Original], folder: Path, many: Many) -> None:
    ends = [case(number, 0, kinds, folder)[1] for number in range(many(150))]
    assert set(ends) <= {"refused", "unchanged"}


def test_mutated_documents_that_are_accepted_on_purpose(kinds: list[Original], folder: Path, many: Many) -> None:
    """They end in figures, a verdict or one line, and the mask agrees with the report."""
    ends = [case(number, 0, kinds, folder, accept_edited=True)[1] for number in range(many(150))]
    assert ends.count("refused") > len(ends) / 4
    assert ends.count("used") > 0


def test_an_edited_document_is_refused_unless_that_is_accepted(
    tmp_path: Path, documents: Path, test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = json.loads((documents / "rejector.json").read_text(encoding="utf-8"))
    tree["threshold"]["accepted"] += 1
    edited = tmp_path / "edited.json"
    edited.write_text(json.dumps(tree))
    for command in (["inspect", edited], ["evaluate", test, "-r", edited]):
        message = fail(*command)
        assert "edited.json: it was edited after drrej wrote it" in message
        assert "--accept-edited" in message
        succeed("--accept-edited", *command)
        fail(*command)
    with pytest.raises(RejectorError, match="`accept_edited=True`"):
        drrej.Rejector.load(edited)
    assert drrej.Rejector.load(edited, accept_edited=True).threshold.accepted == tree["threshold"]["accepted"]
    monkeypatch.setenv("DRREJ_ACCEPT_EDITED", "1")
    succeed("inspect", edited)


def test_spacing_order_and_whole_numbers_are_no_edit(documents: Path) -> None:
    tree = json.loads((documents / "rejector.json").read_text(encoding="utf-8"))
    text = json.dumps(dict(reversed(tree.items())), indent=7).replace('"target": 0.8', '"target": 8e-1')
    assert drrej.Rejector.from_json(text) == drrej.Rejector.load(documents / "rejector.json")


def test_a_later_version_writes_digests(documents: Path) -> None:
    """Only documents of the first version may be without."""
    tree = json.loads((documents / "rejector.json").read_text(encoding="utf-8"))
    del tree["digest"]
    drrej.Rejector.from_json(json.dumps(tree | {"drrej_version": "0.1.0"}))
    with pytest.raises(RejectorError, match="edited"):
        drrej.Rejector.from_json(json.dumps(tree))


@pytest.mark.parametrize("name", ["rejector", "probabilities", "auto"])
def test_documents_of_the_first_version_are_read(name: str) -> None:
    """With their short fingerprints, without a floor or drift quantiles; what is no longer kept is left out."""
    text = (OLD / f"{name}.json").read_text()
    tree = json.loads(drrej.Rejector.from_json(text).to_json())
    del tree["digest"]
    expected = json.loads(text)
    for key in ("choice", "bounds", "normalizer"):
        expected["ratio"].pop(key, None)
    assert tree == expected


def test_reports_of_the_first_version_are_refused() -> None:
    with pytest.raises(drrej.DrrejError, match=r"a report of drrej 0\.1\.0; make it again"):
        drrej.Report.from_json((OLD / "report.json").read_text())


# One thing after another


@pytest.fixture(scope="module")
def documents_(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Finished rejectors by what is special about them; 150 rows, so that every loss is kept."""
    place = tmp_path_factory.mktemp("kinds")
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(450, 3)) * 3
    labels = np.where(rng.random(450) < 0.85, logits.argmax(axis=1), 0)
    region = np.where(rng.random(450) < 0.7, "eu", "us")
    val, fresh = (
        source(write_dump(place / f"{name}.parquet", logits[part], labels[part], extra={"region": region[part]}))
        for name, part in (("val", slice(0, 150)), ("fresh", slice(150, 450)))
    )
    start = drrej.calibrate(val)
    kl, chi2, cost, learned = (
        drrej.fit(val, start, drrej.RatioOptions(alpha, 1.0, loss))
        for alpha, loss in (
            (1.0, "log"),
            (3.0, "log"),
            (1.0, CostLoss(((0.0, 1.0, 2.0), (1.0, 0.0, 1.0), (2.0, 1.0, 0.0)))),
            (1.0, "learned"),
        )
    )
    by = drrej.ThresholdOptions(by="region")
    made = {
        "coverage": drrej.threshold(fresh, kl, drrej.Rule("coverage", 0.8)),
        "tau": drrej.threshold(fresh, chi2, drrej.Rule("tau", 0.5)),
        "max-loss": drrej.threshold(fresh, kl, drrej.Rule("max-loss", 0.3)),
        "risk": drrej.threshold(fresh, kl, drrej.Rule("risk", 0.3, 0.9)),
        "sure": drrej.threshold(fresh, kl, drrej.Rule("coverage", 0.7, 0.9)),
        "groups": drrej.threshold(fresh, kl, drrej.Rule("risk", 0.1), by),
        "cost": drrej.threshold(fresh, cost, drrej.Rule("coverage", 0.5)),
        "learned": drrej.threshold(fresh, learned, drrej.Rule("coverage", 0.5)),
    }
    return {name: json.loads(rejector.to_json()) for name, rejector in made.items()}


Change = Callable[[Any], Any]


def nudge(value: float) -> float:
    return value * (1 + 1e-6)


def more(value: float) -> float:
    return value + 1


CONTRADICTIONS: list[tuple[str, str, Any, str]] = [
    ("coverage", "threshold/tau", nudge, "'threshold.tau' does not match 'threshold.cutoff'"),
    ("coverage", "threshold/cutoff", nudge, "'threshold.tau' does not match 'threshold.cutoff'"),
    ("coverage", "threshold/accepted", 301, "'threshold.accepted' is out of range"),
    ("coverage", "threshold/rule/kind", "luck", "'threshold.rule': unknown rule"),
    ("coverage", "threshold/rule/confidence", 0.9, "'threshold.rule.confidence' contradicts"),
    ("coverage", "ratio/log_max_ratio", -0.1, "'ratio.log_max_ratio' is out of range"),
    ("coverage", "ratio/log_max_ratio", 5.1, "'ratio.log_max_ratio' is out of range"),
    ("coverage", "ratio/min_loss", more, "'ratio.loss_quantiles' does not run from"),
    ("coverage", "ratio/max_loss", more, "'ratio.loss_quantiles' does not run from"),
    ("coverage", "ratio/rows", more, "'ratio.loss_quantiles' does not have the number"),
    ("coverage", "ratio/loss_quantiles", lambda values: values[::-1], "'ratio.loss_quantiles' is not in ascending"),
    ("coverage", "ratio/loss_quantiles", lambda values: values[1:], "'ratio.loss_quantiles' does not have the number"),
    ("coverage", "ratio/fingerprint", "ab.cd.ef", "'ratio.fingerprint' is not a fingerprint"),
    ("coverage", "calibration/method", "platt", "'calibration.method' is unknown|'task' contradicts"),
    ("coverage", "calibration/fingerprint", "none", "'calibration.fingerprint' is not a fingerprint"),
    ("coverage", "calibration/rows", more, "'calibration.fingerprint' is not a fingerprint: it describes 150 rows"),
    ("coverage", "calibration/floor", 0.1, "'calibration.floor' contradicts 'input'"),
    ("coverage", "binary", True, "'classes' contradicts 'binary'"),
    ("coverage", "task", "regression", "'task' contradicts"),
    ("coverage", "normalize", True, "'normalize' contradicts 'input'"),
    ("coverage", "class_names", ["a", "b", "a"], "'class_names' names a class twice"),
    ("risk", "threshold/rule/confidence", 1.5, "'threshold.rule': `confidence=1.5`"),
    ("risk", "threshold/rule/method", "luck", "'threshold.rule': .*there is no choice|'threshold.rule': unknown rule"),
    ("groups", "threshold/tau", 0.5, "'threshold.cutoff' is there, but each group has its own"),
    ("groups", "threshold/by", None, "'threshold.groups' and 'threshold.by' require"),
    ("groups", "threshold/groups", [], "'threshold.groups' names no group"),
    ("groups", "threshold/groups/1/group", "eu", "'threshold.groups' names no group, or one group twice"),
    ("groups", "threshold/groups/0/tau", nudge, r"'threshold.groups\[0\].tau' does not match"),
    ("cost", "ratio/costs/0/1", -1.0, "'ratio.loss' is out of range: .*not negative"),
    ("cost", "ratio/costs/0", [1.0], "'ratio.loss' is out of range"),
    ("learned", "ratio/learned/scale", 0.0, "'ratio.loss' is out of range"),
    ("learned", "ratio/learned/slope", -1.0, "'ratio.loss' is out of range"),
    ("learned", "ratio/learned/class_terms", [0.0, 0.1], "'ratio.loss' is out of range: .*not one for 3 classes"),
    ("learned", "ratio/learned/class_terms", [0.0, 0.1, -0.8], "'ratio.loss' is out of range"),
    (
        "learned",
        "ratio/drift_quantiles",
        lambda values: values[:-1],
        "'ratio.drift_quantiles' does not have the number",
    ),
]


@pytest.mark.parametrize(("kind", "path", "value", "said"), CONTRADICTIONS)
def test_contradictions_are_named(
    documents_: dict[str, dict[str, Any]], kind: str, path: str, value: Any, said: str
) -> None:
    tree = json.loads(json.dumps(documents_[kind]))
    *parents, last = [int(key) if key.isdigit() else key for key in path.split("/")]
    node: Any = tree
    for key in parents:
        node = node[key]
    drrej.Rejector.from_json(json.dumps(tree))
    node[last] = value(node[last]) if callable(value) else value
    with pytest.raises(RejectorError, match=f"^r.json: (the value of )?({said})") as caught:
        drrej.Rejector.from_json(json.dumps(tree), "r.json", accept_edited=True)
    assert "\n" not in str(caught.value)


# Every ratio and threshold that can be fitted


LOSSES = st.lists(
    st.floats(0, 1e300) | st.sampled_from([0.0, 1e-300, 0.1, 0.5, 1.0]) | st.floats(0, 1), min_size=1, max_size=30
)
RULES = st.sampled_from(
    [
        ("tau", 0.0),
        ("tau", 0.5),
        ("tau", 7.0),
        ("max-loss", 0.5),
        ("coverage", 0.6),
        ("coverage", 0.5, 0.9),
        ("risk", 0.4),
        ("risk", 0.6, 0.7),
    ]
)


@examples(3)
@given(
    LOSSES,
    st.integers(1, 40),
    st.sampled_from([1.0, 3.0, -1.0, 0.0, 2.0, 5.0, 1 + 1e-7, 11.0, 51.0, 1000.0, -99.0]),
    st.floats(-6, 16),
    RULES,
)
def test_every_fit_and_threshold_reads_back(
    losses: list[float], times: int, alpha: float, log_lam: float, rule: tuple[Any, ...]
) -> None:
    values = np.repeat(np.array(losses), times) * np.linspace(1, 1.5, len(losses) * times)
    loss = ColumnLoss("own")
    keys = np.arange(1, values.size + 1, dtype=np.uint64) << np.uint64(40)
    options = drrej.RatioOptions(alpha, 10.0**log_lam, loss)
    ratio = ratio_of(loss, {"loss": values.copy(), "sketch": Sketch.of(keys)}, options, 2)
    start = without_logits("own")
    fitted = start.with_sections(start.calibration, ratio)
    assert drrej.Rejector.from_json(fitted.to_json()) == fitted
    if rule[0] == "risk":  # only with classes
        calibration = type(fitted.need_calibration())("given", 1.0)
        fitted = drrej.Rejector(2, "logits", fitted.columns).with_sections(calibration, ratio)
    wrong = np.arange(values.size) % 3 == 0
    asked = drrej.Rule(*rule)
    columns = {"loss": values, "wrong": wrong, "once": np.ones(values.size, bool)}
    try:
        found = decide(asked, ratio, columns)
    except Infeasible:
        return
    record = replace(asked, method=asked.certified_by, reused=asked.confidence and False)
    counts = found.rows, found.accepted, found.coverage, found.accuracy
    done = fitted.with_sections(fitted.calibration, ratio, Threshold(found.tau, found.cutoff, record, *counts))
    assert drrej.Rejector.from_json(done.to_json()) == done


# Other JSON


@pytest.mark.parametrize("command", [["inspect", "FILE"], ["reject", "DUMP", "-r", "FILE", "-o", "-"]])
@pytest.mark.parametrize(
    "text", ['{"a":' * 100_000, '{"format": "drrej-rejector/1", "classes": ' + "1" * 100_000 + "}"]
)
def test_endless_documents_are_refused_at_once(tmp_path: Path, test: str, command: list[str], text: str) -> None:
    (tmp_path / "d.json").write_text(text)
    names = {"FILE": tmp_path / "d.json", "DUMP": test}
    message = fail(*(names.get(word, word) for word in command))
    assert "not a JSON document (it is nested too deeply)" in message or "a number of 100000 digits" in message
