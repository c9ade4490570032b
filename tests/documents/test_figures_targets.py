"""The target against the result: the rule and its errors, exactly and by simulation; what reports and commands say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from conftest import Many, fail, make_model, make_rejector, source, succeed, write_dump
from msgspec.structs import replace
from running import drrej as command
from scipy import stats
from simulate_verdicts import CASES, verdicts

import drrej
from drrej.core.thresholds import Rule, judge_share
from drrej.documents.figures import Counts, judge
from drrej.errors import GateError, OptionError, RejectorError
from drrej.report.words import exact_percent, percents_against, target_lines

# The rule


@pytest.mark.parametrize("rows", [1, 7, 60, 400])
@pytest.mark.parametrize("wanted", [0.005, 0.02, 0.3, 0.5, 0.98])
@pytest.mark.parametrize("at_least", [True, False])
def test_each_error_has_a_chance_of_at_most_a_fortieth(rows: int, wanted: float, at_least: bool) -> None:
    """Added up over every count: no simulation. At the limit itself the errors are as likely as they get."""
    found = [judge_share(hits, rows, wanted, at_least).verdict for hits in range(rows + 1)]
    for rate in (wanted, *np.linspace(0.001, 0.999, 40)):
        chances = stats.binom.pmf(np.arange(rows + 1), rows, rate)
        holds = rate >= wanted if at_least else rate <= wanted
        wrong = "missed" if holds else "met"
        assert sum(p for p, verdict in zip(chances, found, strict=True) if verdict == wrong) <= 0.025 + 1e-12


@pytest.mark.parametrize("at_least", [True, False])
def test_missed_is_a_p_value_of_at_most_a_fortieth(at_least: bool) -> None:
    for hits in range(201):
        judged = judge_share(hits, 200, 0.3, at_least)
        tail = stats.binom.cdf(hits, 200, 0.3) if at_least else stats.binom.sf(hits - 1, 200, 0.3)
        assert judged.p_value == pytest.approx(tail, rel=1e-9)
        assert (judged.verdict == "missed") == (tail <= 0.025)


def test_the_simulation_agrees(many: Many) -> None:
    """A sample of `simulate_verdicts`, in both words; of several groups one error in all is allowed as often."""
    for number, case in enumerate(CASES[:4] + CASES[-3:]):
        trials = many(600)
        for word in ("risk", "accuracy"):
            found = verdicts(case, trials, number, word)
            wrong = found["missed" if case.holds else "met"]
            assert wrong <= stats.binom.ppf(0.9999, trials, 0.025)


def test_a_single_error_contradicts_an_accuracy_of_1() -> None:
    assert judge_share(99, 100, 1.0).verdict == "missed"
    assert judge_share(100, 100, 1.0).verdict == "inconclusive"
    assert judge_share(1, 100, 0.0, or_more=False).verdict == "missed"


def test_nothing_accepted_shows_nothing() -> None:
    assert judge(Rule("accuracy", 0.9), [Counts(10, 0, 0)]).verdict == "inconclusive"  # type: ignore[union-attr]
    of_groups = judge(Rule("risk", 0.1), [Counts(10, 0, 0, "a"), Counts(500, 500, 0, "b")])
    assert of_groups is not None
    assert [promise.group for promise in of_groups.promises] == ["b"]
    assert of_groups.verdict == "met"


@pytest.mark.parametrize(
    ("share", "limit", "text"),
    [(0.961, 0.98, "96.1"), (0.97996, 0.98, "97.996"), (0.98, 0.98, "98.0"), (1.0, 0.999, "100.0"), (0.0, 0.02, "0.0")],
)
def test_percentages_that_tell_a_share_from_its_limit(share: float, limit: float, text: str) -> None:
    assert percents_against([share], limit) == [text]


# In people's words


def test_an_accuracy_is_a_risk_in_other_words(val: str) -> None:
    fitted = drrej.fit(source(val), drrej.calibrate(source(val)))
    for accuracy, risk in ((0.98, 0.02), (0.995, 0.005), (0.93, 0.07), (1.0, 0.0)):
        assert Rule("accuracy", accuracy).risk == risk  # to the last bit: 1 - 0.98 is not 0.02 in floats
        said, other = (
            drrej.threshold(source(val), fitted, Rule(*rule)).threshold
            for rule in (("accuracy", accuracy), ("risk", risk))
        )
        assert said is not None
        assert other is not None
        assert (said.cutoff, said.tau, said.accepted) == (other.cutoff, other.tau, other.accepted)
        assert (said.rule.kind, said.rule.target) == ("accuracy", accuracy)


def test_a_certified_accuracy_is_remembered_and_read_again(val: str, test: str) -> None:
    fitted = drrej.fit(source(val), drrej.calibrate(source(val)))
    found, other = (
        drrej.threshold(source(test), fitted, Rule(*rule, confidence=0.9))
        for rule in (("accuracy", 0.98), ("risk", 0.02))
    )
    text = found.to_json()
    assert '"kind": "accuracy"' in text
    assert '"target": 0.98' in text
    again = drrej.Rejector.from_json(text)
    assert again == found
    assert again.threshold is not None
    assert again.threshold.cutoff == other.threshold.cutoff  # type: ignore[union-attr]
    with pytest.raises(RejectorError, match=r"threshold\.rule"):
        drrej.Rejector.from_json(text.replace('"target": 0.98', '"target": 1.98'))
    with pytest.raises(RejectorError, match="it was edited"):
        drrej.Rejector.from_json(text.replace('"target": 0.98', '"target": 0.985'))


def test_what_cannot_be_certified_is_said_in_the_same_words(tmp_path: Path, val: str) -> None:
    logits, labels = make_model(60, 3, 5)
    few = write_dump(tmp_path / "few.parquet", logits, labels)
    fitted = drrej.fit(source(val), drrej.calibrate(source(val)))
    other = drrej.fit(source(few), drrej.calibrate(source(few)))
    assert fitted.classes != other.classes
    with pytest.raises(drrej.Infeasible, match=r"`accuracy=0.999` `confidence=0.95` cannot be certified on 60 rows"):
        drrej.threshold(source(few), other, Rule("accuracy", 0.999, 0.95), drrej.ThresholdOptions(allow_reuse=True))


@pytest.mark.parametrize(
    ("rule", "hint"),
    [
        (("accuracy", 98), "for 98 % write 0.98"),
        (("risk", 2), "for 2 % write 0.02"),
        (("coverage", 80), "for 80 % write 0.8"),
        (("accuracy", 0.98, 95), "for 95 % write 0.95"),
        (("accuracy", 0), "above 0 and at most 1"),
        (("accuracy", -1), "above 0 and at most 1"),
    ],
)
def test_percentages_are_not_shares(rule: tuple[Any, ...], hint: str) -> None:
    with pytest.raises(OptionError, match=hint):
        Rule(*rule)


# What reports say


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A dump, the same with a third of its labels wrong, and a rejector for an accuracy of 0.9."""
    folder = tmp_path_factory.mktemp("targets")
    logits, labels = make_model(3000, 4, 3)
    spoiled = np.where(np.arange(3000) % 3 == 0, (labels + 1) % 4, labels)
    site = {"site": pa.array(["a - b", "c >= d"] * 1500)}
    good = write_dump(folder / "good.parquet", logits, labels, extra=site)
    bad = write_dump(folder / "bad.parquet", logits, spoiled, extra=site)
    fitted = drrej.fit(source(good), drrej.calibrate(source(good)))
    rejector = drrej.threshold(source(good), fitted, Rule("accuracy", 0.9))
    (folder / "r.json").write_text(rejector.to_json())
    return {"folder": folder, "good": good, "bad": bad, "fitted": fitted, "rejector": rejector}


def test_the_target_is_a_section_of_the_report(world: dict[str, Any]) -> None:
    report = drrej.evaluate(source(world["bad"]), world["rejector"])
    assert report.target is not None
    (promise,) = report.target.promises
    assert (promise.what, promise.wanted, promise.verdict) == ("accuracy", 0.9, "missed")
    assert report.accuracy is not None
    assert (promise.value, promise.lower, promise.upper) == (
        report.accuracy.value,
        report.accuracy.lower,
        report.accuracy.upper,
    )
    assert report.risk is not None
    assert report.risk.value == report.errors / report.coverage.accepted  # type: ignore[operator]
    assert drrej.Report.from_json(report.to_json()) == report


def test_reports_of_older_versions_are_read(world: dict[str, Any]) -> None:
    tree = json.loads(drrej.evaluate(source(world["bad"]), world["rejector"]).to_json())
    for key in ("target", "risk", "errors"):
        del tree[key]
    assert drrej.Report.from_json(json.dumps(tree), accept_edited=True).target is None


def test_every_format_says_it(world: dict[str, Any]) -> None:
    told = ("evaluate", world["bad"], "-r", world["folder"] / "r.json", "--verbose", "--format")
    assert b"\n\nwanted accuracy >= 90 %: 6" in succeed(*told, "text")
    assert b" %): missed" in succeed(*told, "text")
    assert "**Target missed:** wanted accuracy ≥ 90 %: ".encode() in succeed(*told, "markdown")
    assert "::warning title=drrej target::wanted accuracy ≥ 90 %25: ".encode() in succeed(*told, "github")
    suite = ElementTree.fromstring(succeed(*told, "junit"))
    found = next(each for each in suite.iter("property") if each.attrib["name"] == "target")
    assert found.attrib["value"].startswith("wanted accuracy >= 90 %: 6")


def test_the_target_as_a_gate(world: dict[str, Any]) -> None:
    rejector = ("-r", world["folder"] / "r.json", "--verbose", "--gate", "target")
    assert b"OPEN  target  (inconclusive)" in succeed("evaluate", world["good"], *rejector)
    failed = command("evaluate", world["bad"], *rejector)
    assert failed.code == 1
    assert b"FAIL  target  (missed)" in failed.out
    assert "drrej: gate failed: wanted accuracy >= 90 %: " in failed.err
    suite = ElementTree.fromstring(command("evaluate", world["bad"], *rejector, "--format", "junit").out)
    assert suite.attrib["failures"] == "1"


def test_run_holds_its_target_to_be_a_gate(world: dict[str, Any], tmp_path: Path) -> None:
    asked = ("run", "--val", world["good"], "--accuracy", "0.9", "-o", tmp_path / "out", "--test")
    assert command(*asked, world["good"]).code == 0
    done = command(*asked, world["bad"], "--force")
    assert done.code == 1
    assert "drrej: target missed: wanted accuracy >= 90 %: " in done.err
    assert drrej.Report.from_json((tmp_path / "out" / "report.json").read_text()).target is not None


def test_a_certificate_that_rows_contradict(world: dict[str, Any]) -> None:
    chosen = drrej.threshold(
        source(world["good"]),
        world["fitted"],
        Rule("risk", 0.1, 0.95),
        drrej.ThresholdOptions(allow_reuse=True),
    )
    assert target_lines(drrej.evaluate(source(world["bad"]), chosen))[0].startswith("wanted risk <= 10 %: ")  # void
    text = chosen.to_json().replace('"reused": true', '"reused": false')
    (line,) = target_lines(drrej.evaluate(source(world["bad"]), drrej.Rejector.from_json(text, accept_edited=True)))
    assert line.startswith("risk <= 10 % is certified for new rows with confidence 95 %; on these rows: ")
    assert line.endswith("); are they like the rows it was chosen on?")
    assert ": these rows contradict it (p " in line


def test_each_group_with_its_own_cutoff_is_judged(world: dict[str, Any]) -> None:
    chosen = drrej.threshold(
        source(world["good"]), world["fitted"], Rule("accuracy", 0.9), drrej.ThresholdOptions("site")
    )
    report = drrej.evaluate(source(world["bad"]), chosen)
    assert report.target is not None
    assert report.by == "site"
    for promise, row in zip(report.target.promises, report.per_group or (), strict=True):
        right = row.coverage.accepted - row.accuracy.errors
        ends = stats.beta.ppf([0.0125, 0.9875], [right, right + 1], [row.accuracy.errors + 1, row.accuracy.errors])
        assert (promise.lower, promise.upper) == pytest.approx(tuple(ends), rel=1e-9)  # 97.5 % each, 95 % together
        assert promise.verdict == "missed"
    assert "where site is 'a - b': " in target_lines(report)[0]
    assert drrej.Report.from_json(report.to_json()) == report
    whole = drrej.evaluate(source(world["bad"]), chosen, (), drrej.EvaluateOptions(by="prediction"))
    assert whole.target is not None
    assert [promise.group for promise in whole.target.promises] == [None]


def test_many_groups_are_summed_up(world: dict[str, Any]) -> None:
    target = judge(Rule("risk", 0.1), [Counts(100, 100, 50 if n < 7 else 0, f"g{n}") for n in range(12)])
    report = drrej.evaluate(source(world["good"]), world["rejector"], (), drrej.EvaluateOptions(by="site"))
    lines = target_lines(replace(report, target=target))
    assert lines[0] == "wanted risk <= 10 % in each of 12 groups: met in 5, inconclusive in 0, missed in 7"
    assert len(lines) == 6
    assert lines[1].startswith("wanted risk <= 10 % where site is 'g0': 50.0 %")


def test_coverage_needs_no_labels_and_errors_do(world: dict[str, Any]) -> None:
    covering = make_rejector(source(world["good"]), ("coverage", 0.7))
    without = drrej.EvaluateOptions(labels=False)
    report = drrej.evaluate(source(world["good"]), covering, [drrej.Gate.parse("target")], without)
    assert report.target is not None
    assert report.target.verdict == "inconclusive"
    assert target_lines(report)[0].startswith("wanted coverage >= 70 %: 70.0 % (")
    report = drrej.evaluate(source(world["good"]), world["rejector"], (), without)
    assert target_lines(report) == ["wanted accuracy >= 90 %: inconclusive, there are no labels"]
    with pytest.raises(GateError, match="undefined on these rows"):
        drrej.Gate.parse("target").judge(report)


def test_accepting_every_row_covers_them_for_sure(world: dict[str, Any]) -> None:
    everything = drrej.threshold(source(world["good"]), world["fitted"], Rule("coverage", 1.0))
    report = drrej.evaluate(source(world["good"]), everything)
    assert report.target is not None
    assert report.target.verdict == "met"
    assert drrej.Report.from_json(report.to_json()) == report


def test_a_tau_promises_nothing(world: dict[str, Any], tmp_path: Path) -> None:
    chosen = drrej.threshold(source(world["good"]), world["fitted"], Rule("tau", 0.5))
    report = drrej.evaluate(source(world["good"]), chosen)
    assert report.target is None
    assert target_lines(report) == []
    (tmp_path / "r.json").write_text(chosen.to_json())
    said = fail("evaluate", world["good"], "-r", tmp_path / "r.json", "--gate", "target")
    assert "sets no target; choose it by --accuracy, --risk or --coverage" in said


def test_exact_percentages() -> None:
    shares = (0.98, 0.07, 1e-7, 1.0, 0.5)
    assert [exact_percent(share) for share in shares] == ["98 %", "7 %", "0.00001 %", "100 %", "50 %"]
