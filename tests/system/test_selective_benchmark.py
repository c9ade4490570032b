"""The benchmark of scores: each score, figure and rank by another route, and the whole on a small dump."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax, logsumexp, softmax

from benchmarks.selective import __main__ as command
from benchmarks.selective.divisions import coverages
from benchmarks.selective.dumps import Dump, Part, all_dumps, paper_folds, published
from benchmarks.selective.judge import RISKS, RIVALS, accuracy_at, against_the_best, judge, ordering
from benchmarks.selective.page import contradicted, critical_difference, experiments, page, rankings
from benchmarks.selective.rules import RULES, Fitted, curve_of
from benchmarks.selective.scores import (
    COMMON,
    LOGITS_ONLY,
    SCORES,
    energy,
    entropy,
    logit_margin,
    margin,
    max_probability,
)
from drrej.core.curves import Curve


def outputs(rows: int = 400, classes: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits that are right more often where they are far apart."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes)) * rng.uniform(0.5, 5, (rows, 1))
    chances = np.cumsum(softmax(0.7 * logits, axis=1), axis=1)
    return logits, (rng.random((rows, 1)) > chances).sum(axis=1).clip(0, classes - 1)


def dump(probs: bool, seed: int = 0, name: str = "made") -> Dump:
    parts = []
    for number in (seed, seed + 1):
        logits, labels = outputs(seed=number)
        parts.append(Part(softmax(logits, axis=1) if probs else logits, labels, probs))
    return Dump(name, name, *parts)


def test_scores_of_others_are_what_their_formulas_say() -> None:
    logits, labels = outputs()
    p = softmax(logits, axis=1)
    ordered = np.sort(p, axis=1)[:, ::-1]
    for part in (Part(logits, labels, probs=False), Part(p, labels, probs=True)):
        np.testing.assert_allclose(max_probability(part), 1 - p.max(axis=1), atol=1e-12)
        np.testing.assert_allclose(entropy(part), stats.entropy(p, axis=1), atol=1e-12)
        np.testing.assert_allclose(margin(part), 1 - (ordered[:, 0] - ordered[:, 1]), atol=1e-12)
    part = Part(logits, labels, probs=False)
    top = np.sort(logits, axis=1)
    np.testing.assert_allclose(logit_margin(part), top[:, -2] - top[:, -1])
    np.testing.assert_allclose(np.log(logit_margin(Part(p, labels, probs=True))), logit_margin(part), atol=1e-9)
    np.testing.assert_allclose(energy(part), -logsumexp(logits, axis=1))


def test_sure_rows_do_not_tie() -> None:
    """1 - max p is 0 in floating point from a gap of 37 on; the scores still order such rows."""
    part = Part(np.array([[50.0, 0.0], [60.0, 0.0], [700.0, 0.0]]), np.zeros(3, int), probs=False)
    assert (1 - np.exp(log_softmax(part.outputs, axis=1)).max(axis=1) == 0).all()
    for score in (max_probability, entropy, margin):
        assert (np.diff(score(part)) < 0).all()


def test_pnorm_takes_the_power_with_the_least_area_on_the_rows_of_the_fit() -> None:
    made = dump(probs=False)
    scored = SCORES["pNorm"](made.fit, [made.fit])[0]
    centred = made.fit.outputs - made.fit.outputs.mean(axis=1, keepdims=True)
    tried = [centred.max(axis=1) / (np.abs(centred) ** power).sum(axis=1) ** (1 / power) for power in range(1, 11)]
    areas = [ordering(-values, made.fit.wrong)["augrc"] for values in (centred.max(axis=1), *tried)]
    assert ordering(scored, made.fit.wrong)["augrc"] == pytest.approx(min(areas))


def test_accuracy_at_a_coverage_is_the_mean_over_the_orders_of_ties() -> None:
    losses, wrong = np.array([0.0, 1.0, 1.0, 1.0, 2.0]), np.array([False, True, False, False, True])
    assert accuracy_at(losses, wrong, 0.4) == pytest.approx(1 - (1 / 3) / 2)  # one of the three that tie
    assert accuracy_at(losses, wrong, 1.0) == pytest.approx(0.6)
    rng = np.random.default_rng(0)
    losses, wrong = rng.random(1000), rng.random(1000) < 0.2
    assert accuracy_at(losses, wrong, 0.8) == pytest.approx(1 - wrong[np.argsort(losses)[:800]].mean())


def test_ranks_are_means_over_blocks_and_differences_nemenyis() -> None:
    """The critical values are the q of Demšar's table 5."""
    values = np.random.default_rng(0).random((12, len(COMMON)))
    values[:, 1] = values[:, 0]  # ties share their ranks
    results = {
        str(number): {
            "experiment": str(number),
            "shifted": False,
            "probabilities": True,
            "order": {name: {"augrc": value} for name, value in zip(COMMON, row, strict=True)},
        }
        for number, row in enumerate(values)
    }
    means, enough, blocks = rankings(results, "augrc")["All experiments"]
    assert list(means.values()) == pytest.approx(stats.rankdata(values, axis=1).mean(axis=0))
    assert (enough, blocks) == (critical_difference(len(COMMON), 12), 12)
    for count, q in ((2, 1.960), (5, 2.728), (10, 3.164)):
        assert critical_difference(count, 20) == pytest.approx(q * math.sqrt(count * (count + 1) / 120), rel=1e-3)


def test_the_verdict_can_be_no() -> None:
    """A score that knows the errors is significantly better than `auto`, and the page says so."""
    rng = np.random.default_rng(0)
    wrong = rng.random(800) < 0.1
    order = {"auto": rng.random(800), "max probability": wrong + rng.random(800), "entropy": rng.random(800)}
    figures = {name: ordering(losses, wrong) for name, losses in order.items()}
    found = against_the_best(order, wrong, figures)
    assert found["best"] == "max probability"
    curves = [Curve.of(order[name][~wrong], order[name][wrong]) for name in ("auto", "max probability")]
    assert found["difference"] == pytest.approx(curves[0].augrc() - curves[1].augrc())
    assert found["interval"][0] > 0


def test_a_promise_is_contradicted_by_a_binomial_test() -> None:
    own = {"rows": [100, 1000], "certified": {"auto": {"2 %": [0.5, 0.032]}}}  # 16 errors of 500, 10 expected
    assert contradicted(own, "auto", 0.02) == (stats.binom.sf(15, 500, 0.02) < 0.05)
    own["certified"]["auto"]["2 %"] = [0.5, 0.04]
    assert contradicted(own, "auto", 0.02)
    assert not contradicted({**own, "certified": {"auto": {"2 %": [0.0, 0.0]}}}, "auto", 0.02)


def test_every_rule_certifies_what_is_safe_and_nothing_of_what_is_not() -> None:
    pytest.importorskip("mapie", reason="the benchmark compares with it")
    rng = np.random.default_rng(0)
    losses, fitted = rng.random(2000), rng.random(2000)
    for chance, expected in ((lambda u: np.where(u < 0.8, 0.0, 0.5), (0.7, 0.9)), (lambda u: 0.5 + 0 * u, (0.0, 0.0))):
        wrong, fit = rng.random(2000) < chance(losses), Fitted(fitted, rng.random(2000) < chance(fitted))
        for name, rule in RULES.items():
            coverage = float(np.mean(losses < rule(curve_of(losses, wrong), fit, 0.02, 0.1)))
            assert expected[0] <= coverage <= expected[1], name


def test_every_score_is_judged_and_put_on_the_page() -> None:
    """Folds of one experiment count once; an experiment that is known to have shifted is told apart."""
    pytest.importorskip("mapie", reason="the benchmark compares with it")
    results = {}
    for number, probs in enumerate((False, True, False, True)):
        made = dump(probs, 2 * number, name=f"made {number}")
        found = judge(made)
        name = {0: "folds", 1: "probabilities", 2: "folds", 3: "other, official test rows"}[number]
        results[made.name] = {"experiment": name, **found, "shifted": number == 3}
        assert list(found["order"]) == [name for name in SCORES if not (probs and name in LOGITS_ONLY)]
        assert list(found["certified"]) == [*found["order"], *RIVALS]
        shares = [found["certified"]["log"][f"{100 * risk:g} %"][0] for risk in RISKS]
        assert shares == sorted(shares)
    assert {name: len(folds) for name, folds in experiments(results).items()} == {"folds": 2, "probabilities": 1}
    assert {title: own[-1] for title, own in rankings(results, "augrc").items()} == {"All experiments": 2}
    several = {
        f"{name} {number}": {**own, "experiment": f"{name} {number}"}
        for name, own in results.items()
        for number in range(3)
    }
    assert rankings(several, "augrc")["Experiments with logits"][-1] == 6
    text = page(results)
    assert "learned" not in SCORES
    for name in (*found["order"], *RIVALS):
        assert name in text
    assert "4 predictions files of 3 experiments" in text
    assert "| folds (2) |" in text
    mean = np.mean([results[f"made {number}"]["certified"]["auto"]["5 %"][0] for number in (0, 2)])
    whole = (mean + results["made 1"]["certified"]["auto"]["5 %"][0]) / 2
    line = next(line for line in text.splitlines() if line.startswith("| drrej: `auto` |"))
    assert f" {100 * whole:.1f} (" in line.split("|")[4]


def test_dumps_of_others_and_of_the_paper_are_found(tmp_path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "paper" / "har" / "noise25" / "fold2"
    others = tmp_path / "medmnist_resnet" / "octmnist_resnet18"
    for place, column in ((folder, "logits"), (others, "probs")):
        place.mkdir(parents=True)
        for number, part in enumerate(("val", "test")):
            logits, labels = outputs(seed=number)
            values = softmax(logits, axis=1) if column == "probs" else logits
            pq.write_table(pa.table({column: list(values), "label": labels}), place / f"{part}.parquet")
    (found,) = paper_folds(tmp_path / "paper")
    assert found.name == "HAR, paper's network, 25 % flipped, fold2"
    np.testing.assert_array_equal(found.fit.outputs, outputs(seed=0)[0])
    official, *halves = published(tmp_path)
    assert official.shifted
    assert official.test.probs
    assert [len(half.fit.labels) for half in halves] == [200] * 5
    assert {half.experiment for half in halves} == {"OctMNIST, ResNet-18, halves of validation"}
    rows = np.concatenate([halves[0].fit.outputs, halves[0].test.outputs])
    np.testing.assert_array_equal(np.unique(rows, axis=0), np.unique(official.fit.outputs, axis=0))


def test_results_are_kept_and_the_page_is_written(tmp_path, monkeypatch, capsys) -> None:
    """`judge` adds what is missing, or judges again what is named; `write` needs the results alone."""
    pytest.importorskip("mapie", reason="the benchmark compares with it")
    pytest.importorskip("matplotlib", reason="the benchmark draws a figure: pip install 'drrej[plot]'")
    made = [dump(probs=False, seed=0, name="a"), dump(probs=True, seed=2, name="b")]
    monkeypatch.setattr("benchmarks.selective.dumps.published", lambda _: iter(made))
    monkeypatch.setattr("benchmarks.selective.dumps.SIZES", {})
    (tmp_path / "docs").mkdir()
    options = ["--results", str(tmp_path / "r.json"), "--docs", str(tmp_path / "docs")]
    for words in (["judge", "--only", "a"], ["judge"], ["write"]):
        monkeypatch.setattr(sys, "argv", ["selective", *words, *options])
        command.main()
    assert list(json.loads((tmp_path / "r.json").read_text())) == ["a", "b"]
    assert "<svg" in (tmp_path / "docs" / "figures" / "selective.svg").read_text()
    assert "2 predictions files of 2 experiments" in (tmp_path / "docs" / "selective.md").read_text()
    first = json.loads((tmp_path / "r.json").read_text())
    monkeypatch.setattr("benchmarks.selective.judge.judge", lambda _: first["a"] | {"experiment": "b", "rows": [1, 2]})
    monkeypatch.setattr(sys, "argv", ["selective", "judge", *options, "--only", "b"])
    command.main()
    results = json.loads((tmp_path / "r.json").read_text())
    assert results["b"]["rows"] == [1, 2]
    assert results["a"] == first["a"]
    assert "| b |" in capsys.readouterr().out


def test_divisions_are_random_and_the_means_of_experiments_are_printed(tmp_path, monkeypatch, capsys) -> None:
    """Each rule has the same divisions; dumps whose test rows differ are left out."""
    pytest.importorskip("mapie", reason="the benchmark compares with it")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 1200)
    whole = Part(rng.normal(0, 1, (1200, 3)) + 3 * np.eye(3)[labels], labels, probs=False)
    made = Dump("a", "a", whole.take(np.arange(800)), whole.take(np.arange(800, 1200)))
    first, second = (coverages(made, seed) for seed in (0, 1))
    np.testing.assert_array_equal(coverages(made, 0), first)
    assert (first != second).any()
    shifted = Dump("b", "b", made.fit, made.test, shifted=True)
    monkeypatch.setattr("benchmarks.selective.dumps.published", lambda _: iter([made, shifted]))
    monkeypatch.setattr("benchmarks.selective.dumps.SIZES", {})
    monkeypatch.setattr(sys, "argv", ["selective", "divisions", "--trials", "2", "--work", str(tmp_path)])
    command.main()
    lines = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if " % | " in line]
    assert [line[1:3] for line in lines] == [["1 %", "2"], ["2 %", "2"], ["5 %", "2"]]
    printed = [[float(cell) for cell in line[3:6]] for line in lines]
    np.testing.assert_allclose(printed, (first + second) / 2, atol=0.0006)


def test_nothing_is_judged_where_nothing_is_there(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("benchmarks.selective.dumps.SIZES", {"HAR": (1, 1, 1)})
    assert not list(all_dumps(tmp_path, tmp_path / "work", tmp_path / "paper"))
