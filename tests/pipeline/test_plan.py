"""drrej plan: the tables against the numbers they stand for, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from conftest import LOG, Many, fail, load_json, make_model, source, succeed, write_dump
from running import drrej as run
from scipy import stats
from simulate_promises import ORDERS, joint_trial, mean_trial, planned, split_trial

import drrej
from drrej.core.losses import expected_losses
from drrej.core.planning import Question, rows_for_both, rows_for_cutoff
from drrej.documents.summaries import Plan
from drrej.pipeline.plan import plan, plan_from


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows to fit, and fresh ones."""
    folder = tmp_path_factory.mktemp("plan")
    write_dump(folder / "val.parquet", *make_model(400, 3, seed=1))
    write_dump(folder / "new.parquet", *make_model(1500, 3, seed=2))
    val = source(folder / "val.parquet")
    (folder / "fit.json").write_text(drrej.fit(val, drrej.calibrate(val), LOG).to_json())
    return folder


def test_a_plan_without_rows_is_that_of_each_question() -> None:
    found = plan(risk=0.04, confidence=0.9, coverage=0.7, power=0.9, errors=[0.01, 0.05])
    question = Question(0.04, 0.1, 0.01, 0.7, 0.9)
    assert found.needed is not None
    first, hopeless = found.needed
    assert (first.fixed_cutoff, first.risk_and_coverage) == (
        rows_for_cutoff(question),
        rows_for_both(question),
    )
    assert (hopeless.fixed_cutoff, hopeless.risk_and_coverage) == (None, None)
    assert found.question is not None
    assert 0.96**found.question.least_accepted <= 0.1 < 0.96 ** (found.question.least_accepted - 1)
    assert Plan.from_json(found.to_json()) == found


def test_what_rows_at_hand_promise_is_counted_from_them(folder: Path) -> None:
    rejector = drrej.Rejector.from_json((folder / "fit.json").read_text())
    found, caution = plan_from(source(folder / "new.parquet"), rejector, risk=0.1)
    assert caution is None
    logits, labels = make_model(1500, 3, seed=2)
    losses = expected_losses(logits, "log", rejector.need_calibration().temperature)
    wrong = logits.argmax(axis=1) != labels
    assert (found.rows, found.errors) == (1500, int(wrong.sum()))
    assert found.at_hand is not None
    assert len(found.at_hand) == 20
    order = np.argsort(losses)
    for row in found.at_hand:
        errors = int(wrong[order][: row.accepted].sum())
        assert row.errors == errors
        assert stats.binom.cdf(errors, row.accepted, row.asked) == pytest.approx(0.05)
        if row.needed is not None:
            question = Question(0.1, 0.05, errors / row.accepted, row.accepted / 1500, 0.8)
            assert row.needed == rows_for_both(question)
        else:
            assert errors / row.accepted > 0.09
    certified = drrej.threshold(
        source(folder / "new.parquet"), rejector, drrej.Rule("risk", 0.1, 0.95)
    ).need_threshold()
    assert found.certified is not None
    assert (found.certified.accepted, found.certified.coverage) == (certified.accepted, certified.coverage)
    _, caution = plan_from(source(folder / "val.parquet"), rejector)
    assert caution == "'calibrate' or 'fit' has seen some of these rows, so fresh ones will look worse"


def test_the_command_writes_tables(folder: Path, tmp_path: Path) -> None:
    names = ["p.txt", "p.json", "p.md"]
    words = [word for name in names for word in ("-o", tmp_path / name)]
    text = succeed("plan", "--risk", "0.05", "--error", "0.02", "--coverage", "0.6", *words).decode()
    assert (tmp_path / "p.txt").read_text() == text
    assert "expected error rate  fixed cutoff  risk and coverage" in text
    tree = load_json(tmp_path / "p.json")
    assert f"{tree['needed'][0]['fixed_cutoff']:,}" in text
    assert "| 0.02 |" in (tmp_path / "p.md").read_text()
    dump = ["plan", folder / "new.parquet", "-r", folder / "fit.json"]
    text = succeed(*dump, "--risk", "0.1").decode()
    assert text.startswith("These rows certify a risk of at most 10 % at a coverage of")
    assert len(succeed(*dump).decode().splitlines()) == 24
    narrow = succeed(*dump, "--coverage", "0.5", "--format", "json")
    assert narrow.count(b'"any_cutoff"') == 1
    text = succeed(*dump, "--risk", "0.001", "--confidence", "0.99").decode()
    said = (
        "These rows do not certify a risk of at most 0.1 %: --risk 0.001 --confidence 0.99 cannot be certified on 1500"
    )
    assert text.startswith(said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "--risk R or --accuracy A is needed"),
        ("--risk 1.5", "--risk 1.5: it must be at least 0 and below 1"),
        ("--risk 0.1 --power 1", "--power 1: it must be above 0 and below 1"),
        ("--risk 0.1 --confidence 95", "--confidence 95: it must be above 0 and below 1"),
        ("--risk 0.1 --coverage 0", "--coverage 0: it must be above 0"),
        ("--risk 0.1 --label y", "require a DUMP"),
        ("--risk 0.1 -r fit.json", "require a DUMP"),
        ("--risk 0.1 -o plan.doc", "-o plan.doc: the ending determines the format"),
        ("new.parquet --risk 0.1", "DUMP requires -r REJECTOR"),
        ("new.parquet -r fit.json --error 0.1", "whose rows show the error rate"),
        ("new.parquet -r fit.json --power 0.9", "--power requires --risk R"),
        ("new.parquet -r fit.json --coverage 2", "--coverage 2: it must be above 0"),
    ],
)
def test_what_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str) -> None:
    monkeypatch.chdir(folder)
    assert said in fail("plan", *words.split())


def test_a_risk_that_the_error_rate_exceeds_is_a_verdict(folder: Path) -> None:
    outcome = run("plan", "--risk", "0.02", "--error", "0.03")
    assert outcome.code == 1
    assert "the error rate must be lower than the risk" in outcome.err


# A few trials of the simulations of docs/promises.md


@pytest.mark.parametrize("name", ORDERS)
def test_promises_are_kept_as_often_as_they_say(name: str, many: Many) -> None:
    order, delta, trials = ORDERS[name], 0.1, many(90)
    most = stats.binom.ppf(0.9995, trials, delta)
    coverage = round(0.9 * order.best(0.05), 2) or 0.5
    assert sum(joint_trial(order, 400, coverage, delta, seed)[1] for seed in range(trials)) <= most
    divided = [split_trial(order, 1500, 0.05, delta, seed) for seed in range(trials)]
    assert sum(broken for _, broken, _ in divided) <= most
    assert sum(missed for _, _, missed in divided) <= stats.binom.ppf(0.9995, trials, 0.05)
    assert sum(mean_trial(order, 300, delta, True, seed)[1] for seed in range(trials)) <= most


@pytest.mark.parametrize("kind", ["cutoff", "both"])
def test_a_plan_has_the_power_that_it_says(kind: str, many: Many) -> None:
    trials = many(300)
    _, found = planned(Question(0.05, 0.1, 0.02, 0.8, 0.8), kind, trials)
    assert found > 0.8 - 4 * math.sqrt(0.16 / trials) - 0.03
    assert found < 0.95
