"""A risk and a coverage promised together: the exact conditions, and both promises by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from drrej.core.curves import RiskCoverage
from drrej.core.guarantees import best_look, risk_looks
from drrej.core.joint import JointPromise, certified_both
from drrej.core.ratio import DensityRatio, fit_ratio
from drrej.errors import Infeasible, OptionError

OPEN = DensityRatio(1.0, 1.0, 0.0, 0.0)


def curve(losses: np.ndarray, wrong: np.ndarray) -> RiskCoverage:
    return RiskCoverage.of(losses[~wrong], losses[wrong])


WORLDS = {
    "grows": (lambda x: 0.4 * x**4, 0, 0.75),
    "just too risky": (lambda x: np.full(x.shape, 0.0501), 0, 0.5),
    "risky up to the coverage": (lambda x: np.where(x < 0.6, 0.0502, 0.0), 0, 0.6),
    "ties": (lambda x: 0.3 * x**3, 12, 0.75),
    "in and out": (lambda x: np.where(np.floor(x * 20) % 2 == 0, 0.101, 0.0), 20, 0.3),
}


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("rows", [80, 600])
def test_both_promises_hold_together(name: str, rows: int) -> None:
    risk_of, blocks, coverage = WORLDS[name]
    promise, trials, broken = JointPromise(0.05, coverage, 0.3), 400, 0
    grid = (np.arange(1200) + 0.5) / 1200
    if blocks:
        grid = (np.floor(grid * blocks) + 0.5) / blocks
    true_risk = np.append(0.0, np.cumsum(risk_of(grid)) / np.arange(1, 1201))
    rng = np.random.default_rng(rows)
    for _ in range(trials):
        x = rng.integers(0, 1200, rows)
        losses = np.floor(x / 1200 * blocks) / blocks if blocks else x / 1200
        try:
            found = certified_both(curve(losses, rng.random(rows) < risk_of(grid[x])), OPEN, promise)
        except Infeasible:
            continue
        end = 1200 if found.cutoff is None else round(found.cutoff * 1200)
        broken += true_risk[end] > 0.05 + 1e-9 or end / 1200 < coverage - 1e-9
    assert broken <= stats.binom.ppf(0.9995, trials, 0.3)


def test_the_chosen_cutoff_is_the_end_of_a_run_that_starts_at_the_coverage() -> None:
    rng = np.random.default_rng(1)
    x = rng.random(1000)
    wrong = rng.random(1000) < 0.3 * x**4
    promise = JointPromise(0.05, 0.6, 0.1)
    found = certified_both(curve(x, wrong), OPEN, promise)
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
                    certified_both(points, OPEN, JointPromise(0.05, 0.8, 0.1))
                else:
                    wins["risk"] -= best_look(risk_looks(points, OPEN, 0.05, 0.1), 800, 0.05, 0.9).accepted < 640
                wins[name] += 1
            except Infeasible:
                pass
    assert wins["both"] > wins["risk"] + 10


def test_verdicts_say_which_promise_fails() -> None:
    losses = np.linspace(0, 2, 400)
    wrong = np.arange(400) % 5 == 0
    with pytest.raises(Infeasible, match=r"a risk of 0.05 cannot be certified at a coverage of at least 0.8"):
        certified_both(curve(losses, wrong), OPEN, JointPromise(0.05, 0.8, 0.1))
    flat = fit_ratio(losses, alpha=5.0, lam=0.2)
    with pytest.raises(Infeasible, match=r"a coverage of 0.9 cannot be certified on 400 rows: the ratio is 0"):
        certified_both(curve(losses, wrong), flat, JointPromise(0.5, 0.9, 0.1))
    found = certified_both(curve(losses, wrong), flat, JointPromise(0.5, 0.2, 0.1))
    assert found.cutoff == flat.flat_start


def test_a_coverage_that_only_accepting_all_can_promise() -> None:
    losses = np.arange(60.0)
    found = certified_both(curve(losses, np.zeros(60, bool)), OPEN, JointPromise(0.1, 0.999, 0.1))
    assert (found.cutoff, found.accepted) == (None, 60)
    assert certified_both(curve(losses, np.zeros(60, bool)), OPEN, JointPromise(0.1, 1.0, 0.1)).cutoff is None
    with pytest.raises(Infeasible, match="a risk of"):
        certified_both(curve(losses, np.ones(60, bool)), OPEN, JointPromise(0.1, 1.0, 0.1))


@pytest.mark.parametrize(
    ("numbers", "said"), [((1.0, 0.5, 0.1), "risk"), ((0.1, 0.0, 0.1), "cov"), ((0.1, 1, 1), "delta")]
)
def test_promises_that_make_no_sense(numbers: tuple, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        JointPromise(*numbers)
