"""Documents that contradict themselves are refused, whatever was changed; those that drrej writes never are."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, source, write_dump
from hypothesis import given, settings
from hypothesis import strategies as st
from mutate_documents import Original, case, originals, used
from running import fail

import drrej
from drrej.core.curves import Curve
from drrej.core.drift import ranks
from drrej.core.intervals import lower_bound, upper_bound
from drrej.core.recompute import binomial_tail, is_binomial_level, mean_bracket, supports_rate
from drrej.core.reuse import Sketch
from drrej.documents.rejector import RuleRecord, Threshold
from drrej.errors import Infeasible
from drrej.pipeline.fit import FittedLoss, ratio_of, without_logits
from drrej.pipeline.threshold import _Picker

OLD = ROOT / "tests" / "data" / "old"
CASES = 150


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutated")


@pytest.fixture(scope="module")
def kinds(folder: Path) -> list[Original]:
    return originals(folder)


def test_what_drrej_writes_is_read_back_and_used(kinds: list[Original], folder: Path) -> None:
    """Every fourth kind through the commands; all of them by the library."""
    for number, original in enumerate(kinds):
        kind = drrej.Report if original.is_report else drrej.Rejector
        assert kind.from_json(original.text).to_json() == original.text
        if number % 4 == 0:
            (folder / "own.json").write_text(original.text, encoding="utf-8")
            assert used(original, folder / "own.json", folder) == "used"


def test_mutated_documents_are_refused_or_consistent(kinds: list[Original], folder: Path) -> None:
    ends = [case(number, 0, kinds, folder)[1] for number in range(CASES)]
    assert ends.count("refused") > CASES / 2
    assert ends.count("used") > 0


@pytest.mark.parametrize("name", ["rejector", "probabilities", "auto"])
def test_documents_of_the_first_version_are_read(name: str) -> None:
    """With their short fingerprints, without a floor, drift quantiles or margins among the candidates."""
    text = (OLD / f"{name}.json").read_text()
    tree = json.loads(drrej.Rejector.from_json(text).to_json())
    tree["drrej_version"] = json.loads(text)["drrej_version"]
    assert tree == json.loads(text)


def test_reports_of_the_first_version_are_read() -> None:
    text = (OLD / "report.json").read_text()
    assert drrej.Report.from_json(text) == json.loads(text)


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
            (1.0, drrej.CostLoss(((0.0, 1.0, 2.0), (1.0, 0.0, 1.0), (2.0, 1.0, 0.0)))),
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
    ("coverage", "threshold/tau", nudge, "'threshold.tau' does not belong to 'threshold.cutoff'"),
    ("coverage", "threshold/cutoff", nudge, "'threshold.tau' does not belong to 'threshold.cutoff'"),
    ("coverage", "threshold/cutoff", None, "'threshold.accepted' contradicts 'threshold.cutoff'"),
    ("coverage", "threshold/cutoff", -1, "'threshold.accepted' contradicts 'threshold.cutoff'"),
    ("coverage", "threshold/coverage", -3, "'threshold.coverage' is not"),
    ("coverage", "threshold/accepted", 301, "'threshold.accepted' is out of range"),
    ("coverage", "threshold/rule/kind", "luck", "'threshold.rule' is out of range"),
    ("coverage", "threshold/rule/target", 0.9, "'threshold.accepted' is below"),
    ("coverage", "threshold/rule/method", "sgr", "'threshold.rule.method' is out of range"),
    ("coverage", "threshold/rule/confidence", 0.9, "'threshold.rule.method' is out of range"),
    ("coverage", "threshold/accuracy", 0.5, "'threshold.accuracy' (contradicts|is no share)"),
    ("coverage", "ratio/alpha", 1.001, "'ratio.log_max_ratio' contradicts"),
    ("coverage", "ratio/lambda", nudge, "'ratio.log_max_ratio' contradicts"),
    ("coverage", "ratio/log_max_ratio", nudge, "'ratio.log_max_ratio' contradicts"),
    ("coverage", "ratio/log_max_ratio", -0.1, "'ratio.log_max_ratio' is out of range"),
    ("coverage", "ratio/log_max_ratio", 5.1, "'ratio.log_max_ratio' is out of range"),
    ("coverage", "ratio/min_loss", more, "'ratio.min_loss' is not the first"),
    ("coverage", "ratio/max_loss", more, "'ratio.max_loss' is not the last"),
    ("coverage", "ratio/mean_loss", nudge, "'ratio.mean_loss' contradicts"),
    ("coverage", "ratio/variance", lambda value: value * 1.01, "'ratio.variance' contradicts"),
    ("coverage", "ratio/variance", -0.1, "'ratio.variance' contradicts"),
    ("coverage", "ratio/normalizer/Z", nudge, "'ratio.normalizer' contradicts"),
    ("coverage", "ratio/normalizer", {"b": 1.0}, "'ratio.normalizer' contradicts"),
    ("coverage", "ratio/rows", more, "'ratio.loss_quantiles' has another number"),
    ("coverage", "ratio/loss_quantiles", lambda values: values[::-1], "'ratio.loss_quantiles' is not in ascending"),
    ("coverage", "ratio/loss_quantiles", lambda values: values[1:], "'ratio.loss_quantiles' has another number"),
    ("coverage", "ratio/loss", "zero-one", "'ratio.loss_quantiles' is out of range: the loss is at most 0.66"),
    ("coverage", "ratio/fingerprint", "ab.cd", "'ratio.fingerprint' is no fingerprint"),
    ("coverage", "ratio/bounds/1/value", nudge, "'ratio.bounds' contradicts"),
    ("coverage", "ratio/bounds/0/points", more, "'ratio.bounds' contradicts"),
    ("coverage", "ratio/drift_quantiles", [0.1] * 150, "'ratio.drift_quantiles' contradicts"),
    ("coverage", "calibration/method", "platt", "'calibration.method' is not known|'task' contradicts"),
    ("coverage", "calibration/method", "given", "'calibration.converged' contradicts"),
    ("coverage", "calibration/temperature", 1e9, "'calibration.temperature' is out of range"),
    ("coverage", "calibration/fingerprint", "none", "'calibration.fingerprint' is no fingerprint"),
    ("coverage", "calibration/rows", more, "'calibration.fingerprint' is no fingerprint: it is of 150 rows"),
    ("coverage", "calibration/floor", 0.1, "'calibration.floor' contradicts 'input'"),
    ("coverage", "calibration/ece/before", 1.5, "'calibration.ece.before' is out of range"),
    ("coverage", "calibration/nll/after", more, "'calibration.nll' is higher after than before"),
    ("coverage", "binary", True, "'classes' contradicts 'binary'"),
    ("coverage", "task", "regression", "'task' contradicts"),
    ("coverage", "normalize", True, "'normalize' contradicts 'input'"),
    ("coverage", "class_names", ["a", "b", "a"], "'class_names' names a class twice"),
    ("tau", "threshold/cutoff", nudge, "'threshold.cutoff' does not belong to 'threshold.tau'"),
    ("tau", "threshold/tau", nudge, "'threshold.tau' is not 'threshold.rule.target'"),
    ("tau", "ratio/normalizer/b", nudge, "'ratio.normalizer' contradicts"),
    ("max-loss", "threshold/rule/target", nudge, "'threshold.cutoff' is out of range for such a rule"),
    ("risk", "threshold/bound/value", nudge, "'threshold.bound.value' is"),
    ("risk", "threshold/bound/delta", lambda value: value / 2, "'threshold.bound.value' is not the bound"),
    ("risk", "threshold/bound/delta", 0.11, "'threshold.bound.delta' is out of range"),
    ("risk", "threshold/bound/errors", more, "'threshold.bound.errors' contradicts"),
    ("risk", "threshold/bound/rows", more, "'threshold.bound.rows' is not"),
    ("risk", "threshold/bound", None, "'threshold.bound' goes with a confidence"),
    ("risk", "threshold/rule/target", 0.01, "'threshold.bound.value' is above"),
    ("risk", "threshold/rule/confidence", 1.5, "'threshold.rule' is out of range"),
    ("risk", "threshold/rule/method", "luck", "'threshold.rule' is out of range"),
    ("risk", "threshold/rule/reused", None, "'threshold.rule.reused' goes with"),
    ("risk", "threshold/accuracy", nudge, "'threshold.accuracy' is no share"),
    ("sure", "threshold/bound/value", 0.999, "'threshold.bound.value' is not the bound"),
    ("sure", "threshold/bound/value", 0.69, "'threshold.bound.value' is below"),
    ("sure", "threshold/rule/confidence", 0.95, "'threshold.bound.delta' is"),
    ("groups", "threshold/tau", 0.5, "'threshold.tau' is there, but each group has its own"),
    ("groups", "threshold/by", None, "'threshold.groups' goes with"),
    ("groups", "threshold/groups", [], "'threshold.groups' names no group"),
    ("groups", "threshold/groups/1/group", "eu", "'threshold.groups' names no group or one twice"),
    ("groups", "threshold/groups/0/rows", more, r"'threshold.groups\[0\].coverage' is not"),
    ("groups", "threshold/groups/0/tau", nudge, r"'threshold.groups\[0\].tau' does not belong"),
    ("groups", "threshold/rule/target", 0.001, r"'threshold.groups\[0\].accuracy' is below"),
    ("groups", "threshold/accuracy", None, "'threshold.accuracy' is not that of the groups"),
    ("cost", "ratio/costs/0/1", -1.0, "'ratio.loss' is out of range: .*not negative"),
    ("cost", "ratio/costs/0", [1.0], "'ratio.loss' is out of range"),
    ("learned", "ratio/learned/base", "hinge", "'ratio.loss' is out of range"),
    ("learned", "ratio/learned/slope", -1.0, "'ratio.loss' is out of range"),
    ("learned", "ratio/learned/features", {"wind": {"weight": 1, "low": 0, "high": 1}}, "'ratio.loss' is out of range"),
    ("learned", "ratio/drift_quantiles", lambda values: values[:-1], "'ratio.drift_quantiles' has another number"),
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
    with pytest.raises(drrej.RejectorError, match=f"^r.json: the value of ({said})") as caught:
        drrej.Rejector.from_json(json.dumps(tree), "r.json")
    assert "\n" not in str(caught.value)


def test_rounding_is_no_contradiction(documents_: dict[str, dict[str, Any]]) -> None:
    """Another processor may compute the last digits otherwise."""
    for tree in documents_.values():
        rng = random.Random(1)
        other = json.loads(json.dumps(tree))
        for section, keys in (("ratio", ["log_max_ratio", "mean_loss", "variance"]), ("threshold", ["tau", "cutoff"])):
            for key in keys:
                value = other[section][key]
                is_given = key == "tau" and other["threshold"]["rule"]["kind"] == "tau"
                if value is not None and not is_given:
                    other[section][key] = value * (1 + rng.choice([-4, 4]) * 2.0**-53)
        drrej.Rejector.from_json(json.dumps(other))


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
        ("risk", 0.6, 0.7, "sgr"),
    ]
)


@settings(max_examples=150)
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
    loss = drrej.ColumnLoss("own")
    keys = np.arange(1, values.size + 1, dtype=np.uint64) << np.uint64(40)
    options = drrej.RatioOptions(alpha, 10.0**log_lam, loss)
    ratio = ratio_of(FittedLoss(loss, np.sort(values), Sketch.of(keys)), options, 2)
    fitted = without_logits("own").with_ratio(ratio)
    assert drrej.Rejector.from_json(fitted.to_json()) == fitted
    if rule[0] == "risk":  # only with classes
        calibration = drrej.Rejector(2, "logits", fitted.columns).with_calibration
        fitted = calibration(type(fitted.need_calibration())("given", 1.0)).with_ratio(ratio)
    wrong = np.arange(values.size) % 3 == 0
    asked = drrej.Rule(*rule)
    picker = _Picker(asked, ratio, 1, True)
    try:
        found = picker.pick("", Curve.of(values[~wrong], values[wrong]), must=True).decision
    except Infeasible:
        return
    record = RuleRecord(asked.kind, asked.target, asked.confidence, picker.method, asked.confidence and False)
    counts = found.rows, found.accepted, found.coverage, found.accuracy, found.bound
    done = fitted.with_threshold(Threshold(found.tau, found.cutoff, record, *counts))
    assert drrej.Rejector.from_json(done.to_json()) == done


# What the checks are made of


def test_the_mean_lies_in_its_bracket() -> None:
    rng = np.random.default_rng(1)
    for rows in (1, 2, 5, 201, 202, 1000):
        ordered = np.sort(rng.gamma(1.0, size=rows))
        kept = ordered[ranks(min(rows, 201), rows)]
        low, high = mean_bracket(kept, rows)
        assert low <= ordered.mean() * (1 + 1e-12)
        assert high >= ordered.mean() * (1 - 1e-12)
        assert rows > 201 or math.isclose(low, high)


@pytest.mark.parametrize("delta", [0.5, 0.1, 0.01, 1e-6])
@pytest.mark.parametrize(("events", "rows"), [(0, 1), (0, 50), (3, 50), (49, 50), (400, 1000), (12_345, 1_000_000)])
def test_binomial_bounds_belong_to_their_counts(events: int, rows: int, delta: float) -> None:
    from scipy.special import bdtr

    bound = upper_bound(events, rows, delta)
    assert binomial_tail(events, rows, bound) == pytest.approx(float(bdtr(events, rows, bound)), rel=1e-6)
    assert is_binomial_level(delta, events, rows, bound)
    assert not is_binomial_level(delta, events, rows, bound * 0.999)
    least = rows - events
    lower = lower_bound(least, rows, delta)
    assert supports_rate(delta, least, rows, lower)
    assert not supports_rate(delta, least, rows, lower + 0.001 * (1 - lower))


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
