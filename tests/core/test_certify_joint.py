"""A risk and a coverage promised together: the exact conditions, and both promises by simulation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import LOG, fail, make_model, more_trials, read_columns, source, succeed, thorough, write_dump
from scipy import stats

import drrej
from drrej.core.certify import Certificate, certify_both, joint_candidates, risk_candidates
from drrej.core.curves import Curve
from drrej.core.losses import expected_losses
from drrej.core.ratio import DensityRatio, fit_ratio
from drrej.errors import Infeasible, OptionError

OPEN = DensityRatio(1.0, 1.0, 0.0, 0.0)


def curve(losses: np.ndarray, wrong: np.ndarray) -> Curve:
    return Curve.of(losses[~wrong], losses[wrong])


def certified_both(points: Curve, ratio: DensityRatio, risk: float, coverage: float, delta: float) -> Certificate:
    return certify_both(points, joint_candidates(points, ratio, risk, coverage, delta), risk, coverage)


WORLDS = {
    "grows": (lambda x: 0.4 * x**4, 0, 0.75),
    "just too risky": (lambda x: np.full(x.shape, 0.0501), 0, 0.5),
    "risky up to the coverage": (lambda x: np.where(x < 0.6, 0.0502, 0.0), 0, 0.6),
    "ties": (lambda x: 0.3 * x**3, 12, 0.75),
    "in and out": (lambda x: np.where(np.floor(x * 20) % 2 == 0, 0.101, 0.0), 20, 0.3),
}


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize(
    ("rows", "trials"), [(600, 100), thorough(80, 100), more_trials(80, 400), more_trials(600, 400)]
)
def test_both_promises_hold_together(name: str, rows: int, trials: int) -> None:
    risk_of, blocks, coverage = WORLDS[name]
    broken = 0
    grid = (np.arange(1200) + 0.5) / 1200
    if blocks:
        grid = (np.floor(grid * blocks) + 0.5) / blocks
    true_risk = np.append(0.0, np.cumsum(risk_of(grid)) / np.arange(1, 1201))
    rng = np.random.default_rng(rows)
    for _ in range(trials):
        x = rng.integers(0, 1200, rows)
        losses = np.floor(x / 1200 * blocks) / blocks if blocks else x / 1200
        try:
            found = certified_both(curve(losses, rng.random(rows) < risk_of(grid[x])), OPEN, 0.05, coverage, 0.3)
        except Infeasible:
            continue
        end = 1200 if found.cutoff is None else round(found.cutoff * 1200)
        broken += true_risk[end] > 0.05 + 1e-9 or end / 1200 < coverage - 1e-9
    assert broken <= stats.binom.ppf(0.9995, trials, 0.3)


def test_the_chosen_cutoff_is_the_end_of_a_run_that_starts_at_the_coverage() -> None:
    rng = np.random.default_rng(1)
    x = rng.random(1000)
    wrong = rng.random(1000) < 0.3 * x**4
    found = certified_both(curve(x, wrong), OPEN, 0.05, 0.6, 0.1)
    order = np.argsort(x)
    chance = stats.binom.cdf(np.cumsum(wrong[order]), np.arange(1, 1001), 0.05)
    least = next(r for r in range(1, 1001) if stats.binom.sf(r - 1, 1000, 0.6) <= 0.02)
    failed = least + int(np.argmax(chance[least - 1 :] > 0.08))
    assert found.accepted == failed - 1
    assert found.cutoff == x[order][found.accepted]
    assert found.errors == wrong[order][: found.accepted].sum()


def test_it_finds_what_a_risk_alone_would_miss() -> None:
    """The safest rows are wrong too often, so that a sequence from the safe end fails; at the coverage it passes."""
    wins = {"both": 0, "risk": 0}
    rng = np.random.default_rng(2)
    for _ in range(60):
        x = rng.random(800)
        points = curve(x, rng.random(800) < np.where(x < 0.4, 0.05, 0.01))
        for name in wins:
            try:
                if name == "both":
                    certified_both(points, OPEN, 0.05, 0.8, 0.1)
                else:
                    best = risk_candidates(points, OPEN, 0.05, 0.1).largest()
                    wins["risk"] -= best is None or best.accepted < 640
                wins[name] += 1
            except Infeasible:
                pass
    assert wins["both"] > wins["risk"] + 10


def test_verdicts_say_which_promise_fails() -> None:
    losses = np.linspace(0, 2, 400)
    wrong = np.arange(400) % 5 == 0
    with pytest.raises(Infeasible, match=r"a risk of 0.05 cannot be certified at a coverage of at least 0.8"):
        certified_both(curve(losses, wrong), OPEN, 0.05, 0.8, 0.1)
    flat = fit_ratio(losses, alpha=5.0, lam=0.2)
    with pytest.raises(Infeasible, match=r"a coverage of 0.9 cannot be certified on 400 rows: the ratio is 0"):
        certified_both(curve(losses, wrong), flat, 0.5, 0.9, 0.1)
    found = certified_both(curve(losses, wrong), flat, 0.5, 0.2, 0.1)
    assert found.cutoff == flat.flat_start


def test_a_coverage_that_only_accepting_all_can_promise() -> None:
    losses = np.arange(60.0)
    found = certified_both(curve(losses, np.zeros(60, bool)), OPEN, 0.1, 0.999, 0.1)
    assert (found.cutoff, found.accepted) == (None, 60)
    assert certified_both(curve(losses, np.zeros(60, bool)), OPEN, 0.1, 1.0, 0.1).cutoff is None
    with pytest.raises(Infeasible, match="a risk of"):
        certified_both(curve(losses, np.ones(60, bool)), OPEN, 0.1, 1.0, 0.1)


# By threshold, run and fit_rejector


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows to fit, and fresh ones."""
    folder = tmp_path_factory.mktemp("joint")
    write_dump(folder / "val.parquet", *make_model(500, 3, seed=1))
    write_dump(folder / "new.parquet", *make_model(2000, 3, seed=2))
    val = source(folder / "val.parquet")
    (folder / "fit.json").write_text(drrej.fit(val, drrej.calibrate(val), LOG).to_json())
    return folder


def test_the_threshold_keeps_both(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(rows)
    words = ["threshold", "new.parquet", "-r", "fit.json", "--accuracy", "0.9", "--coverage", "0.5"]
    succeed(*words, "--confidence", "0.9", "-o", "r.json", "--table", "t.parquet")
    rejector = drrej.Rejector.from_json(Path("r.json").read_text())
    found = rejector.need_threshold()
    logits, labels = make_model(2000, 3, seed=2)
    losses = expected_losses(logits, "log", rejector.need_calibration().temperature)
    both = certified_both(curve(losses, logits.argmax(axis=1) != labels), OPEN, 0.1, 0.5, 0.1)
    assert (found.cutoff, found.accepted) == (both.cutoff, both.accepted)
    assert (found.rule.kind, found.rule.coverage, found.rule.method) == ("accuracy", 0.5, "joint")
    table = read_columns("t.parquet")
    assert table["accepted"][table["certified"]].max() == both.accepted
    report = drrej.evaluate(source("new.parquet"), rejector)
    assert report.target is not None
    promises = [(promise.what, promise.wanted) for promise in report.target.promises]
    assert promises == [("accuracy", 0.9), ("coverage", 0.5)]
    assert "with confidence 0.9 for both together (joint)" in succeed("inspect", "r.json").decode()
    succeed(*words, "-o", "plain.json")
    plain = drrej.Rejector.from_json(Path("plain.json").read_text()).need_threshold()
    assert plain.accepted > found.accepted
    assert plain.rule.method is None


def test_both_for_each_group(rows: Path) -> None:
    rejector = drrej.Rejector.from_json((rows / "fit.json").read_text())
    new, by = source(rows / "new.parquet"), drrej.ThresholdOptions(by="prediction")
    rule = drrej.Rule("risk", 0.15, 0.9, coverage=0.4)
    found = drrej.threshold(new, rejector, rule, by).need_threshold()
    assert found.groups is not None
    assert all(group.coverage > 0.4 for group in found.groups)
    with pytest.raises(Infeasible, match=r"group '\d': `risk=0.05` `coverage=0.9` `confidence=0.9`: a risk of 0.05"):
        drrej.threshold(new, rejector, drrej.Rule("risk", 0.05, 0.9, coverage=0.9), by)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--risk 0.001 --coverage 0.9 --confidence 0.9", 1, "a risk of 0.001 cannot be certified at a coverage of"),
        ("--risk 0.05 --coverage 0.99", 1, "--risk 0.05 --coverage 0.99 cannot be reached: the error rate allows a"),
        ("--risk 0.05 --coverage 70", 2, "--coverage 70: it must be above 0 and at most 1; for 70 % write 0.7"),
        ("--risk 0.05 --accuracy 0.9 --coverage 0.5", 2, "give exactly one rule"),
        ("--tau 1 --coverage 0.5", 2, "only --coverage can be combined with --accuracy or --risk"),
    ],
)
def test_what_cannot_be_promised(rows: Path, words: str, code: int, said: str) -> None:
    assert said in fail("threshold", rows / "new.parquet", "-r", rows / "fit.json", *words.split(), code=code)


def test_both_from_arrays() -> None:
    found = drrej.fit_rejector(*make_model(2000, 3, seed=3), accuracy=0.85, coverage=0.5, confidence=0.9)
    assert found.need_threshold().rule.coverage == 0.5
    with pytest.raises(OptionError, match="only `coverage` can be combined with"):
        drrej.fit_rejector(*make_model(100, 3, seed=3), tau=0.9, coverage=0.5)
