"""The benchmark of scores: each score, figure and rank by another route, and the whole on a small dump."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax, logsumexp, softmax

from benchmarks.selective import __main__ as command
from benchmarks.selective.dumps import PAPER, Dump, paper, shared
from benchmarks.selective.judge import RISKS, accuracy_at, against_the_best, judge, ordering
from benchmarks.selective.page import ahead, easier, errors_to_learn_from, groups, kinds, page, rankings, worse
from benchmarks.selective.ranks import critical_difference, ranking
from benchmarks.selective.scores import (
    LOGITS_ONLY,
    SCORES,
    Part,
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


def test_ranks_are_those_of_friedman_and_nemenyi() -> None:
    """Without ties the p-value is scipy's; the critical values are the q of Demšar's table 5."""
    values = np.random.default_rng(0).random((12, 5))
    found = ranking(list("abcde"), values)
    assert found.p_value == pytest.approx(stats.friedmanchisquare(*values.T).pvalue)
    assert found.mean == pytest.approx(stats.rankdata(values, axis=1).mean(axis=0))
    for count, q in ((2, 1.960), (5, 2.728), (10, 3.164)):
        assert critical_difference(count, 20) == pytest.approx(q * math.sqrt(count * (count + 1) / 120), rel=1e-3)
    tied = np.round(4 * values)
    assert ranking(list("abcde"), tied).p_value == pytest.approx(stats.friedmanchisquare(*tied.T).pvalue)


def test_the_verdict_can_be_no() -> None:
    """A score that knows the errors is significantly better than `auto`, and the page says so."""
    rng = np.random.default_rng(0)
    wrong = rng.random(800) < 0.1
    order = {"auto": rng.random(800), "max probability": wrong + rng.random(800), "entropy": rng.random(800)}
    figures = {name: ordering(losses, wrong) for name, losses in order.items()}
    found = against_the_best(order, wrong, figures, compared=800)
    assert found["augrc"]["best"] == found["aurc"]["best"] == "max probability"
    curves = [Curve.of(order[name][~wrong], order[name][wrong]) for name in ("auto", "max probability")]
    assert found["augrc"]["difference"] == pytest.approx(curves[0].augrc() - curves[1].augrc())
    assert found["aurc"]["difference"] == pytest.approx(curves[0].aurc() - curves[1].aurc())
    assert found["augrc"]["interval of all"][0] > 0
    assert all(names == ["made"] for names in worse({"made": {"auto": found}}).values())


def test_dumps_are_named_where_auto_is_ahead_and_where_validation_rows_are_easier() -> None:
    order = {name: {"augrc": area} for name, area in (("log", 0.3), ("auto", 0.2), ("learned", 0.2))}
    behind = order | {"entropy": {"augrc": 0.2}}
    assert ahead({"a": {"order": order}, "b": {"order": behind}}) == ["a"]
    rows, base = [5000, 10000], 0.9242
    both = {
        name: {"validation accuracy": v, "base accuracy": base, "rows": rows}
        for name, v in (("a", 0.9382), ("b", 0.93))
    }
    assert easier(both) == ["a"]  # 3.2 and 1.4 standard errors
    assert [errors_to_learn_from(both[name]) for name in "ab"] == [309, 350]


def test_every_score_is_judged_and_put_on_the_page() -> None:
    pytest.importorskip("mapie", reason="the benchmark compares with it")
    results = {}
    for number, probs in enumerate((False, True, False)):
        made = dump(probs, 2 * number, name=f"made {number}")
        found = judge(made, compared=30)
        results[made.name] = {"group": "folds" if not probs else "probabilities", **found}
        names = [name for name in SCORES if not (probs and name in LOGITS_ONLY)]
        assert list(found["order"]) == names
        accepted = found["certified"]["auto"]["5 %"]
        assert 0 <= accepted[0] <= 1
        shares = [found["certified"]["log"][f"{100 * risk:g} %"][0] for risk in RISKS]
        assert shares == sorted(shares)
    assert {name: len(folds) for name, folds in groups(results).items()} == {"folds": 2, "probabilities": 1}
    ranked = rankings(results, "augrc")
    assert (ranked["all dumps"].blocks, ranked["dumps with logits"].blocks) == (2, 1)
    text = page(results)
    for name in SCORES:
        assert f"{name}" in text
    assert "3 dumps of 2 experiments" in text
    assert "3 of scikit-learn's models" in text
    assert "none yet of perceptrons" in text


def test_results_are_kept_and_the_page_is_written(tmp_path, monkeypatch) -> None:
    """`judge` adds what is missing, `write` needs the results alone."""
    pytest.importorskip("mapie", reason="the benchmark compares with it")
    pytest.importorskip("matplotlib", reason="the benchmark draws a figure: pip install 'drrej[plot]'")
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "paper" / "har" / "noisy" / "fold2"
    folder.mkdir(parents=True)
    for number, part in enumerate(("val", "test")):
        logits, labels = outputs(seed=number)
        pq.write_table(pa.table({"logits": list(logits), "label": labels}), folder / f"{part}.parquet")
    (found,) = paper(tmp_path / "paper")
    assert found.name == "HAR, paper's network, noisy, fold 2"
    names = dict.fromkeys([found.name, *(f"{name}, clean" for name in PAPER.values()), "HAR, MLP, plain"])
    assert kinds(names) == (
        "0 of scikit-learn's models on real data, none yet of networks of others, 1 of perceptrons, "
        "7 of networks of the paper's table"
    )
    np.testing.assert_array_equal(found.fit.outputs, outputs(seed=0)[0])
    assert not list(shared(tmp_path))
    monkeypatch.setattr("benchmarks.selective.dumps.sklearn_models", lambda data, work: iter(()))
    options = [
        "--results",
        str(tmp_path / "r.json"),
        "--docs",
        str(tmp_path / "docs"),
        "--paper",
        str(tmp_path / "paper"),
    ]
    (tmp_path / "docs").mkdir()
    for name in ("judge", "write"):
        monkeypatch.setattr(
            sys, "argv", ["selective", name, *options, "--data", str(tmp_path), "--work", str(tmp_path)]
        )
        command.main()
    results = json.loads((tmp_path / "r.json").read_text())
    assert results[found.name]["rows"] == [400, 400]
    assert "<svg" in (tmp_path / "docs" / "figures" / "selective.svg").read_text()
    assert "1 dumps of 1 experiments" in (tmp_path / "docs" / "selective.md").read_text()


def test_only_dumps_that_are_named_are_judged_again(tmp_path, monkeypatch) -> None:
    def dumps(*_: object) -> Iterator[Dump]:
        part = Part(*outputs(seed=0), probs=False)
        for name in ("a", "b"):
            yield Dump(name, name, part, part)

    monkeypatch.setattr("benchmarks.selective.dumps.paper", dumps)
    monkeypatch.setattr("benchmarks.selective.dumps.sklearn_models", lambda *_: pytest.fail("not asked for"))
    monkeypatch.setattr("benchmarks.selective.judge.judge", lambda dump, compared: {"new": dump.name})
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"a": {"old": 1}, "other": {"old": 2}}))
    words = ["selective", "judge", "--results", str(path), "--paper", str(tmp_path), "--only", "paper"]
    monkeypatch.setattr(sys, "argv", words)
    command.main()
    expected = {"a": {"old": 1}, "b": {"group": "b", "new": "b"}, "other": {"old": 2}}
    assert json.loads(path.read_text()) == expected
    monkeypatch.setattr(sys, "argv", [*words, "--again"])
    command.main()
    assert json.loads(path.read_text()) == expected | {"a": {"group": "a", "new": "a"}}
