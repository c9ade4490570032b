"""Where the runs of a certified threshold start, planned on the rows of the fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import Many, make_model, source, write_dump
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.isotonic import isotonic_regression

import drrej
from drrej.core.certify import error_blocks, first_ranks, planned_starts, risk_candidates, risk_starts
from drrej.core.curves import Curve
from drrej.core.ratio import DensityRatio

OPEN = DensityRatio(1.0, 1.0, 0.0, 0.0)


def curve(losses: np.ndarray, wrong: np.ndarray) -> Curve:
    return Curve.of(losses[~wrong], losses[wrong])


def dead_zone(rows: int, seed: int) -> Curve:
    """A third of the rows is nearly free of errors; the others are beyond a risk of 0.02."""
    rng = np.random.default_rng(seed)
    place = rng.random(rows)
    return curve(place, rng.random(rows) < np.where(place < 0.35, 0.004, 0.08))


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_blocks_are_those_of_an_isotonic_regression(wrong: list[bool]) -> None:
    blocks = error_blocks(curve(np.arange(len(wrong), dtype=float), np.array(wrong)))
    found = np.concatenate([np.full(rows, errors / rows) for rows, errors in blocks])
    np.testing.assert_allclose(found, isotonic_regression(np.array(wrong, float)), atol=1e-12)
    assert sum(errors for _, errors in blocks) == sum(wrong)


def test_rows_that_tie_are_in_one_block() -> None:
    losses = np.array([0.1, 0.1, 0.1, 0.1, 0.5])
    assert error_blocks(curve(losses, np.array([True, False, False, False, False]))) == ((5, 1),)
    assert error_blocks(curve(losses, np.array([True, False, False, False, True]))) == ((4, 1), (1, 1))


@pytest.mark.parametrize("level", [0.1, 0.05])
@pytest.mark.parametrize("rows", [30, 400])
def test_first_ranks_pass_with_so_many_errors_and_the_rank_before_does_not(rows: int, level: float) -> None:
    ranks = first_ranks(rows, 0.05, level)
    for errors, rank in enumerate(ranks):
        assert stats.binom.cdf(errors, rank, 0.05) <= level
        assert stats.binom.cdf(errors, rank - 1, 0.05) > level
    assert stats.binom.cdf(len(ranks), rows, 0.05) > level


def test_starts_are_the_usual_ones_where_nothing_is_known_or_to_be_gained() -> None:
    usual = risk_starts(1000, 0.02, 0.1)
    assert planned_starts((), 1000, 0.02, 0.1) == usual
    assert planned_starts(((1000, 900),), 1000, 0.02, 0.1) == usual
    assert planned_starts(((990, 0), (10, 10)), 1000, 0.02, 0.1) == usual
    assert planned_starts(error_blocks(dead_zone(1000, 1)), 10**6, 0.02, 0.1) == risk_starts(10**6, 0.02, 0.1)


def test_a_plan_finds_the_safe_third_where_the_usual_start_is_at_half_of_the_rows() -> None:
    blocks = error_blocks(dead_zone(1000, 1))
    found: dict[str, list[float]] = {"usual": [], "planned": []}
    for seed in range(40):
        rows = dead_zone(1500, 100 + seed)
        for name, known in (("usual", None), ("planned", blocks)):
            best = risk_candidates(rows, OPEN, 0.02, 0.1, known).largest()
            found[name].append(0.0 if best is None else best.accepted / 1500)
    assert np.mean(found["usual"]) < 0.1
    assert np.mean(found["planned"]) > 0.25


def graded(rows: int, seed: int) -> Curve:
    """As many classes and a network make them: two fifths of the rows keep a risk of 0.02, half of them do not."""
    rng = np.random.default_rng(seed)
    place = rng.random(rows)
    rate = np.interp(place, [0, 0.2, 0.4, 0.6, 0.8, 1], [0.006, 0.01, 0.05, 0.15, 0.4, 0.75])
    return curve(place, rng.random(rows) < rate)


@pytest.mark.parametrize(("rows", "risk", "least"), [(2500, 0.02, 0.2), (2500, 0.03, 0.4)])
def test_a_plan_is_for_one_risk_whatever_a_larger_one_certifies(rows: int, risk: float, least: float) -> None:
    found = []
    for seed in range(20):
        best = risk_candidates(graded(rows, 1000 + seed), OPEN, risk, 0.1, error_blocks(graded(rows, seed))).largest()
        found.append(0.0 if best is None else best.accepted / rows)
    assert np.mean(found) > least


@pytest.mark.parametrize("fitted", ["alike", "easy", "hard", "reversed"])
def test_a_plan_keeps_the_promise_whatever_the_rows_of_the_fit_were_like(fitted: str, many: Many) -> None:
    """The risk is at the limit everywhere, so that every certified cutoff is one too many."""
    rng = np.random.default_rng(3)
    risk, broken, trials = 0.05, 0, many(600)
    rate = {"alike": lambda u: u * 0 + risk, "easy": lambda u: u * 0.01, "hard": lambda u: u * 0 + 0.3,
            "reversed": lambda u: 0.1 * (1 - u)}[fitted]  # fmt: skip
    for trial in range(trials):
        if trial % 30 == 0:
            place = rng.random(500)
            blocks = error_blocks(curve(place, rng.random(500) < rate(place)))
        rows = curve(rng.random(300), rng.random(300) < risk * 1.0001)
        broken += risk_candidates(rows, OPEN, risk, 0.1, blocks).largest() is not None
    assert broken <= stats.binom.ppf(0.999, trials, 0.1)


def test_the_fit_keeps_what_a_plan_needs(tmp_path: Path) -> None:
    logits, labels = make_model(800, 4, seed=2)
    dump = source(write_dump(tmp_path / "d.parquet", logits, labels))
    start = drrej.calibrate(dump)
    learned, plain = (drrej.fit(dump, start, drrej.RatioOptions(loss=loss)).need_ratio() for loss in ("auto", "log"))
    assert plain.error_blocks is None
    assert learned.error_blocks is not None
    rows, errors = np.sum(learned.error_blocks, axis=0)
    assert (rows, errors) == (800, np.sum(logits.argmax(axis=1) != labels))
    rates = [wrong / count for count, wrong in learned.error_blocks]
    assert rates == sorted(rates)
    rejector = drrej.fit(dump, start, drrej.RatioOptions(loss="auto"))
    assert drrej.Rejector.from_json(rejector.to_json()) == rejector


def test_starts_are_planned_on_two_hundred_rows_too() -> None:
    """Where half of the rows are too risky for the limit, a start at fewer certifies what the usual one cannot."""
    blocks = ((80, 0), (60, 4), (60, 30))
    for rows in (800, 1000, 1500):
        ((usual, _),), ((planned, _),) = risk_starts(rows, 0.02, 0.1), planned_starts(blocks, rows, 0.02, 0.1)
        assert planned < usual
