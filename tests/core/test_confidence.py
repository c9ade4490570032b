"""Scores of any kind: the maps against scikit-learn, their order and ties, and what is said of odd scores."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import more_trials
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from drrej.core.calibrators import FOLDS
from drrej.core.confidence import (
    FLAT,
    SCORE_CALIBRATORS,
    ScoreMap,
    ScoreTerm,
    auroc,
    choose_score_map,
    doubts_about,
    fit_scores,
    forms_of,
)
from drrej.core.losses import ErrorLoss, error_probability
from drrej.core.softmax import block_sums


def rows(count: int, seed: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Shares that are too sure by `scale`, and which rows are wrong."""
    rng = np.random.default_rng(seed)
    sure = rng.normal(1.8, 1.5, count)
    return 1 / (1 + np.exp(-scale * sure)), rng.random(count) > 1 / (1 + np.exp(-sure))


def nll(odds: np.ndarray, wrong: np.ndarray) -> float:
    return float(np.logaddexp(0.0, np.where(wrong, -odds, odds)).mean())


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("name", ["logistic", "beta"])
def test_lines_are_those_of_scikit_learn(name: str, lower: bool) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    p, wrong = rows(5000, 1, scale=1.7)
    inputs = p[:, None] if name == "logistic" else np.stack([np.log(p), -np.log1p(-p)], axis=1)
    theirs = linear_model.LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(inputs, wrong)
    score = (1.0 - p if name == "beta" else -p) if lower else p
    ours = fit_scores(score[:, None], wrong, lower, name)
    expected = theirs.decision_function(inputs)
    assert np.abs(ours.log_odds(score[:, None]) - expected).max() < 0.05  # the ridge is as one row
    assert nll(ours.log_odds(score[:, None]), wrong) == pytest.approx(nll(expected, wrong), abs=1e-5)


def test_steps_are_those_of_scikit_learn() -> None:
    isotonic = pytest.importorskip("sklearn.isotonic")
    p, wrong = rows(3000, 2, scale=2.0)
    p = np.round(p, 2)
    ours = fit_scores(p[:, None], wrong, False, "isotonic")
    line = ScoreMap(ours.forms, ours.floors, ours.lower, ours.intercept, ours.terms)
    odds = line.log_odds(p[:, None])
    theirs = isotonic.IsotonicRegression().fit(odds, wrong)
    told = 1 / (1 + np.exp(-np.array([value for _, value in ours.knots])))
    blocks = np.unique(theirs.predict(odds))
    assert told.size == blocks.size
    inside = (blocks > 0) & (blocks < 1)
    assert told[inside] == pytest.approx(blocks[inside], abs=1e-12)


@pytest.mark.parametrize(
    ("counts", "errors", "expected"),
    [
        ((3, 40, 40, 9), (0, 2, 20, 9), (0.025, 0.05, 0.5, 0.95)),  # of (1/8, half of 1/20), (19/20, 3/4)
        ((99, 40, 2), (0, 8, 2), (1 / 200, 0.2, 5 / 6)),  # of (1/200, half of 1/5), (5/6, half-way from 1/5)
        ((30, 9), (0, 9), (1 / 62, 0.95)),
        ((3, 40), (0, 2), (0.025, 0.05)),
        ((40, 3), (38, 3), (0.95, 0.975)),
        ((7,), (0,), (1 / 16,)),
        ((7,), (7,), (15 / 16,)),
    ],
)
def test_blocks_without_errors_or_right_rows_tell_as_much_as_their_size(
    counts: tuple[int, ...], errors: tuple[int, ...], expected: tuple[float, ...]
) -> None:
    """Of n rows without errors half an error in n + 1, or half of the next block's rate: the map stays finite."""
    place = np.repeat(-np.arange(len(counts), dtype=float), counts)
    wrong = np.concatenate([np.arange(n) < e for n, e in zip(counts, errors, strict=True)])
    fitted = fit_scores(place[:, None], wrong, False, "isotonic")
    told = error_probability(np.array([odds for _, odds in fitted.knots]))
    assert told == pytest.approx(expected, rel=1e-9)
    assert error_probability(fitted.log_odds(place[:, None])) == pytest.approx(np.repeat(expected, counts), rel=1e-9)


def test_beyond_the_outermost_steps_the_map_is_nearly_flat() -> None:
    term = (ScoreTerm(1.0, 0.0),)
    stepped = ScoreMap(("plain",), ((0.0, 0.0),), False, 0.0, term, ((-2.0, -3.0), (0.0, -1.0), (1.0, 4.0)))
    found = stepped.log_odds(np.array([[10.0], [2.0], [1.0], [0.0], [-0.5], [-1.0], [-41.0]]))
    assert found == pytest.approx([-3.0 - 8 * FLAT, -3.0, -2.0, -1.0, 1.5, 4.0, 4.0 + 40 * FLAT], abs=1e-12)


@pytest.mark.parametrize("name", SCORE_CALIBRATORS)
@pytest.mark.parametrize("lower", [False, True])
@given(st.integers(0, 10_000), st.sampled_from([0, 3, 20]), st.booleans())
def test_order_and_ties_are_those_of_the_score(name: str, lower: bool, seed: int, levels: int, shares: bool) -> None:
    p, wrong = rows(200, seed)
    p = np.round(p * levels) / levels if levels else p
    score = (-p if lower else p) if not shares else (1.0 - p if lower else p)
    fitted = fit_scores(score[:, None], wrong, lower, name)
    loss = error_probability(fitted.log_odds(score[:, None]))
    order = np.argsort(score if lower else -score, kind="stable")
    steps, losses = np.diff(score[order]), np.diff(loss[order])
    assert ((steps == 0) == (losses == 0)).all()
    assert (losses >= 0).all()


@pytest.mark.parametrize("name", SCORE_CALIBRATORS)
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_rows_that_are_all_right_or_all_wrong(name: str, share: float) -> None:
    p, _ = rows(300, 3)
    fitted = fit_scores(p[:, None], np.full(300, share == 1.0), False, name)
    loss = error_probability(fitted.log_odds(p[:, None]))
    assert np.isfinite(loss).all()
    assert ((loss > 0.9) if share else (loss < 0.1)).mean() > 0.9


def test_auto_takes_what_fits() -> None:
    p, wrong = rows(4000, 4, scale=2.0)
    assert choose_score_map(p[:, None], wrong, False, "auto")[0] == "beta"
    rng = np.random.default_rng(5)
    place = rng.random(6000)
    bad = rng.random(6000) < np.where(place < 0.5, 0.5, 0.02)
    assert choose_score_map(100 * place[:, None], bad, False, "auto")[0] == "isotonic"


def test_auto_takes_the_simplest_that_is_not_clearly_worse_on_rows_left_out() -> None:
    """By the likelihood of each fifth under a map that was fitted to the others."""
    taken = set()
    for seed in range(12, 24):
        p, wrong = rows(100, seed, scale=2.0)
        fold, losses = np.arange(100) % FOLDS, np.empty((2, 100))
        for number in range(FOLDS):
            out = fold == number
            for name, loss in zip(("logistic", "beta"), losses, strict=True):
                odds = fit_scores(p[~out, None], wrong[~out], False, name).log_odds(p[out, None])
                loss[out] = -np.log(expit(np.where(wrong[out], odds, -odds)))
        worse = losses[0] - losses[1]
        expected = "logistic" if worse.mean() <= worse.std() / 10 else "beta"
        assert choose_score_map(p[:, None], wrong, False, "auto")[0] == expected
        taken.add(expected)
    assert taken == {"logistic", "beta"}


def test_several_scores_are_better_than_each() -> None:
    rng = np.random.default_rng(6)
    parts = rng.normal(size=(2, 4000))
    wrong = rng.random(4000) > 1 / (1 + np.exp(-1.0 - parts[0] + parts[1]))
    both = np.stack([parts[0], 30 * parts[1] + 5], axis=1)
    fitted = fit_scores(both, wrong, False, "auto")
    assert [round(term.weight, 1) for term in fitted.terms] == [1.0, -0.0]
    area = auroc(-fitted.log_odds(both), wrong)[0]
    assert area > max(auroc(parts[0], wrong)[0], auroc(-parts[1], wrong)[0]) + 0.03


def test_auroc_counts_pairs() -> None:
    rng = np.random.default_rng(7)
    score, wrong = rng.integers(0, 5, 60).astype(float), rng.random(60) < 0.4
    pairs = score[~wrong][:, None] - score[wrong][None, :]
    assert auroc(score, wrong)[0] == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean())
    shuffled = [auroc(score, rng.permutation(wrong))[0] for _ in range(4000)]
    assert auroc(score, wrong)[1] == pytest.approx(np.std(shuffled), rel=0.05)


def test_what_is_said_of_odd_scores() -> None:
    p, wrong = rows(2000, 8)
    assert doubts_about(p[:, None], wrong, False, ["c"]) == (None, [])
    doubt, _ = doubts_about(p[:, None], wrong, True, ["c"])
    assert "the wrong way round; leave out `lower_is_better`" in str(doubt)
    doubt, _ = doubts_about(-p[:, None], wrong, False, ["c"])
    assert "pass `lower_is_better=True`" in str(doubt)
    noise = np.random.default_rng(9).random((2000, 1))
    assert "carries no information" in doubts_about(noise, wrong, False, ["c"])[1][0]
    assert "every row is right" in doubts_about(p[:, None], np.zeros(2000, bool), False, ["c"])[1][0]
    three = np.round(p * 2)[:, None] / 2
    assert "'c' has 3 distinct values (0, 0.5, 1)" in doubts_about(three, wrong, False, ["c"])[1][0]


def test_a_score_is_found_for_a_loss() -> None:
    p, wrong = rows(3000, 10)
    for name in SCORE_CALIBRATORS:
        for score, lower in ((p, False), (1.0 - p, True), (100 * p, False), (-5 * p, True)):
            fitted = fit_scores(score[:, None], wrong, lower, name)
            wanted = float(np.quantile(error_probability(fitted.log_odds(score[:, None])), 0.3))
            at = fitted.score_at(wanted)
            assert at is not None
            assert error_probability(fitted.log_odds(np.array([[at]])))[0] == pytest.approx(wanted, rel=1e-6)


def test_no_score_is_found_where_there_is_none_or_several() -> None:
    p, wrong = rows(300, 12)
    single, several = (fit_scores(each, wrong, False, "logistic") for each in (p[:, None], np.stack([p, p**2], axis=1)))
    assert [single.score_at(loss) is None for loss in (0.0, 0.2, 1.0)] == [True, False, True]
    assert [several.score_at(loss) for loss in (0.0, 0.2, 1.0)] == [None, None, None]


def test_scores_that_are_no_shares_are_outside_where_shares_were_fitted() -> None:
    p, wrong = rows(300, 13)
    fitted = fit_scores(np.stack([p, 5 * p], axis=1), wrong, False, "logistic")
    assert fitted.forms == ("share", "plain")
    new = np.array([[0.0, 0.5], [1.0, 7.0], [-0.1, 0.5], [1.1, 0.5], [0.5, -3.0]])
    assert fitted.outside(new).tolist() == [False, False, True, True, False]


def test_the_sums_are_those_of_two_classes() -> None:
    """As if "right" and "wrong" were the classes of logits."""
    p, wrong = rows(500, 14)
    after, before = fit_scores(p[:, None], wrong, False, "beta").scores(p[:, None])
    for scores in (after, before):
        usual = scores.values[:, 1] < 0.0  # logits never predict the unlikelier class
        _, _, (expected,) = block_sums(scores.values[usual], [1.0], [frozenset({"squares", "moment", "runner_up"})])
        assert usual.sum() > 300
        for name in ("odds", "squares", "moment", "runner_up"):
            assert getattr(scores.sums, name)[usual] == pytest.approx(getattr(expected, name), rel=1e-12), name


def test_the_loss_is_the_probability_of_being_wrong() -> None:
    p, wrong = rows(500, 11)
    fitted = fit_scores(p[:, None], wrong, False, "beta")
    after, before = fitted.scores(p[:, None])
    prediction, loss = ErrorLoss().of(after, {})
    assert not prediction.any()
    for scores, right in ((after, 1 - loss), (before, p)):
        powers = scores.powers(slice(None))
        assert powers[:, 0] / powers.sum(axis=1) == pytest.approx(right)
    assert loss.max() > 0.5  # a prediction of logits is never that unlikely
    assert forms_of(p[:, None]) == ("share",)


@pytest.mark.parametrize("levels", [more_trials(0), 5])
def test_guarantees_hold(levels: int) -> None:
    from simulate_scores import simulate

    broken, coverage = simulate(levels, 0, 200)
    assert broken <= 34  # 20 are allowed on average; more than 34 have a chance of 1 in 1000
    assert coverage > 0.2


@pytest.mark.parametrize("rows", [200, 1000])
def test_scores_without_information_do_not_hurt_beyond_noise(rows: int) -> None:
    rng, losses, noise = np.random.default_rng(rows), [], []
    for _ in range(20):
        sure = rng.beta(4, 1.5, 20_000)
        wrong = rng.random(20_000) > sure**1.5
        useless = np.stack([rng.integers(5, 300, 20_000), rng.random(20_000), rng.normal(size=20_000)], axis=1)
        together = np.column_stack([sure, useless])
        odds = fit_scores(together[:rows], wrong[:rows], False, "logistic").log_odds(together[rows:])
        (area, error), (best, _) = auroc(-odds, wrong[rows:]), auroc(sure[rows:], wrong[rows:])
        losses.append(best - area)
        noise.append(error * np.sqrt(20_000 / rows))  # as rows of the fit could tell it
    assert np.mean(losses) < np.mean(noise)
    assert np.mean(losses) < 0.02
