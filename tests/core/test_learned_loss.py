"""The learned loss and the choice of a loss."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import fail, load_json, make_model, make_rejector, source, succeed, write_dump, write_mask
from hypothesis import given
from hypothesis import strategies as st
from reference import softmax
from running import drrej as command
from scipy.optimize import minimize

import drrej
from drrej.core.calibrators import Scores, Temperature
from drrej.core.curves import Curve
from drrej.core.learned_loss import (
    FEWEST_ERRORS,
    NOISES,
    SCALES,
    Noise,
    choose_scale,
    class_variance,
    learn,
    solve,
)
from drrej.core.losses import (
    MOST_CORRECTION,
    PLAIN,
    ErrorModel,
    LearnedLoss,
    error_probability,
    expected_losses,
)
from drrej.core.ratio import fit_ratio
from drrej.core.softmax import NOTHING
from drrej.errors import OptionError
from drrej.pipeline.compare import Rivals


def biased_model(rows: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A model whose errors hide in one predicted class, which no plain loss can see."""
    logits, labels = make_model(rows, classes, seed)
    rng = np.random.default_rng(seed + 1)
    fooled = (logits.argmax(axis=1) == 0) & (rng.random(rows) < 0.4)
    labels[fooled] = rng.integers(1, classes, fooled.sum())
    return logits, labels


def calibrated(logits: np.ndarray, temperature: float = 2.0) -> Scores:
    scores, _ = Temperature(temperature).scores(logits, NOTHING, "float64")
    return scores


def augrc(losses: np.ndarray, wrong: np.ndarray) -> float:
    return Curve.of(losses[~wrong], losses[wrong]).augrc()


def test_the_log_odds_are_those_at_the_temperature_to_rank_by() -> None:
    logits, _ = make_model(50, 5, 3)
    top = softmax(logits.astype(np.float64) / 2, 1 / 1.5).max(axis=1)
    sure = 1 - top < 1e-9  # here the comparison itself cancels
    log_odds = calibrated(logits).log_odds(1.5)
    np.testing.assert_allclose(log_odds[~sure], np.log((1 - top) / top)[~sure], rtol=1e-6)


@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize("variance", [0.0, 0.3])
def test_the_fit_is_the_minimum_that_a_general_optimiser_finds(variance: float, noise: float) -> None:
    logits, labels = biased_model(400, 4, 5)
    scores = calibrated(logits)
    wrong = scores.prediction != flipped(labels, 4, noise * 3 / 4, 6)
    base = scores.log_odds(1.0)
    inputs = np.concatenate([np.ones((1, 400)), np.random.default_rng(7).normal(size=(4, 400)) + wrong])
    classes = 4 if variance else 0
    design = np.concatenate([inputs, np.eye(4)[:, scores.prediction][:classes]])
    penalty = np.array([0.01] + [30.0] * 4 + [1 / variance] * 4 if variance else [0.01] + [30.0] * 4)

    def objective(theta: np.ndarray) -> float:
        chance = (1 - noise) / (1 + np.exp(-base - theta @ design)) + noise * 3 / 4
        return float(0.5 * np.sum(penalty * theta**2) - np.sum(np.log(np.where(wrong, chance, 1 - chance))))

    found = minimize(objective, np.zeros(len(design)), method="BFGS", options={"gtol": 1e-6, "maxiter": 2000})
    theta = solve(base, inputs, scores.prediction, wrong, Noise(noise, 4), variance)
    np.testing.assert_allclose(theta @ design, found.x @ design, atol=2e-3)


def test_classes_that_differ_by_chance_only_have_no_terms() -> None:
    """The variance among classes is found where there is one, and is hardly ever above 0 where there is none."""
    rng = np.random.default_rng(1)
    eta, prediction = rng.normal(-2, 1, 4000), rng.integers(0, 20, 4000)
    found = {}
    for spread in (0.0, 0.8):
        terms = rng.normal(0, spread, (100, 20))
        chance = error_probability(eta + terms[:, prediction])
        found[spread] = [class_variance(eta, prediction, rng.random(4000) < row, Noise(0.0, 20)) for row in chance]
    assert np.mean(np.array(found[0.0]) > 1e-3) < 0.25
    assert 0.3 < np.median(found[0.8]) < 1.0


def test_rows_that_differ_by_more_than_the_bound_keep_their_order() -> None:
    """Safe by construction: the terms of the classes are bounded, and the more so the closer the rows are together."""
    rng = np.random.default_rng(2)
    for spread in (4.0, 0.3):
        scores = calibrated(rng.normal(0, spread, (3000, 6)), 1.0)
        odds = scores.log_odds(1.0) + np.where(scores.prediction < 3, 2.0, -2.0)
        wrong = rng.random(3000) < error_probability(odds)
        loss = learn(scores, (scores.prediction + wrong) % 6)
        assert isinstance(loss, LearnedLoss)
        log_odds = scores.log_odds(loss.learned.scale)
        terms, most = np.abs(loss.learned.class_terms), min(MOST_CORRECTION, 0.4 * log_odds.std())
        np.testing.assert_allclose(terms.max(), most, rtol=1e-9)
        order = np.argsort(log_odds)[::10]
        losses = loss.of(scores, {})[1][order]
        apart = log_odds[order][None, :] - log_odds[order][:, None] > 2 * most + 1e-9
        assert apart.sum() > 1000
        assert (losses[None, :] > losses[:, None])[apart].all()


def test_what_the_far_classes_told_of_the_fit_does_not_mislead_after_a_shift() -> None:
    """In the fit errors are more where classes without a chance are far away, in new rows where they are near.

    A loss that looked at their distance was 68 % above the log loss here.
    """
    rng = np.random.default_rng(3)

    def world(rows: int, sign: float) -> tuple[np.ndarray, np.ndarray]:
        far, gap, row = rng.random(rows) < 0.5, rng.uniform(1, 4, rows), np.arange(rows)
        logits = np.repeat(np.where(far, -60.0, -20.0)[:, None], 8, axis=1)
        first = rng.integers(0, 8, rows)
        second = (first + 1 + rng.integers(0, 7, rows)) % 8
        logits[row, first], logits[row, second] = 0.0, -gap
        wrong = rng.random(rows) < error_probability(-gap + sign * np.where(far, 1.5, -1.5))
        return logits, np.where(wrong, second, first)

    logits, labels = world(3000, 1.0)
    loss = learn(calibrated(logits, 1.0), labels)
    new, truth = world(6000, -1.0)
    scores, _ = Temperature(1.0).scores(new, PLAIN["log"].needs, "float64")
    learned, log = (augrc(kind.of(scores, {})[1], scores.prediction != truth) for kind in (loss, PLAIN["log"]))
    assert learned < 1.02 * log


def test_tiny_losses_keep_their_precision_and_order() -> None:
    eta = np.array([-700.0, -300.0, -299.0, -40.0, 0.0, 40.0])
    exact = np.exp(eta) / (1 + np.exp(eta))
    np.testing.assert_allclose(error_probability(eta), exact, rtol=1e-14)
    model = ErrorModel(1.0, 0.0, 1.0, ())
    logits = np.array([[0.0, -200.0, -300.0], [0.0, -200.5, -300.0], [0.0, -90.0, -np.inf]], np.float32)
    scores, _ = Temperature(1.0).scores(logits, NOTHING, "auto")  # e^-200 is no float32
    _, losses = LearnedLoss(model).of(scores, {})
    np.testing.assert_allclose(losses, np.exp([-200.0, -200.5, -90.0]), rtol=1e-6)


def test_rows_without_rivals_and_impossible_classes_are_no_trouble(tmp_path: Path) -> None:
    logits, labels = biased_model(600, 4, 8)
    logits[:40, 3] = -np.inf
    logits[40:60, 1:] = -np.inf
    labels[40:60] = 0
    labels[:40] = np.where(labels[:40] == 3, 0, labels[:40])
    dump = source(write_dump(tmp_path / "d.parquet", logits, labels))
    rejector = make_rejector(dump, ratio=drrej.RatioOptions(loss="learned"))
    mask = write_mask(dump, rejector, tmp_path / "m.parquet")
    assert np.all((mask["loss"] >= 0) & (mask["loss"] < 1))
    assert np.all(mask["loss"][40:60] == 0)


def test_learning_finds_errors_that_plain_losses_cannot_see(tmp_path: Path) -> None:
    val, test = biased_model(3000, 5, 1), biased_model(3000, 5, 11)
    dump = source(write_dump(tmp_path / "v.parquet", *val))
    target = source(write_dump(tmp_path / "t.parquet", *test))
    wrong = test[0].argmax(axis=1) != test[1]
    found = {}
    for loss in ("log", "zero-one", "brier", "learned", "auto"):
        rejector = make_rejector(dump, ratio=drrej.RatioOptions(loss=loss))
        found[loss] = augrc(write_mask(target, rejector, tmp_path / "m.parquet")["loss"], wrong)
        if loss == "learned":
            learned = rejector.need_ratio()
            assert isinstance(learned.loss, LearnedLoss)
            assert np.argmax(learned.loss.learned.class_terms) == 0
    assert found["learned"] < 0.97 * min(found["log"], found["zero-one"], found["brier"])
    assert found["auto"] == found["learned"]


def test_nothing_is_lost_where_there_is_nothing_to_learn() -> None:
    """Labels drawn from softmax(logits / T): the zero-one loss is the truth."""
    logits, labels = make_model(6000, 5, 2)
    loss = learn(calibrated(logits[:3000]), labels[:3000])
    test = calibrated(logits[3000:])
    wrong = test.prediction != labels[3000:]
    found, best = (augrc(kind.of(test, {})[1], wrong) for kind in (loss, PLAIN["zero-one"]))
    assert found < 1.01 * best


@pytest.mark.parametrize("errors", [FEWEST_ERRORS - 1, FEWEST_ERRORS])
def test_a_few_errors_teach_nothing(errors: int) -> None:
    logits, _ = make_model(300, 4, 7)
    labels = logits.argmax(axis=1)
    labels[:errors] = (labels[:errors] + 1) % 4
    loss = learn(calibrated(logits), labels)
    assert (loss == PLAIN["zero-one"]) == (errors < FEWEST_ERRORS)


def flipped(labels: np.ndarray, classes: int, share: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    moved = rng.random(labels.size) < share
    return np.where(moved, (labels + rng.integers(1, classes, labels.size)) % classes, labels)


@pytest.mark.parametrize("rows", [200, 2000])
def test_wrong_labels_do_not_change_which_rows_are_sure(tmp_path: Path, rows: int) -> None:
    """A quarter of the labels is wrong: the temperature of least NLL is far too high to rank by, and `auto` knows."""
    logits, labels = make_model(6000, 10, 2)
    logits = logits * 3
    noisy = flipped(labels[:rows], 10, 0.25, 4)
    dump = source(write_dump(tmp_path / "v.parquet", logits[:rows], noisy))
    wrong = logits[2000:].argmax(axis=1) != labels[2000:]
    true = drrej.calibrate(source(write_dump(tmp_path / "t.parquet", logits, labels))).calibration
    assert true is not None
    best = augrc(expected_losses(logits[2000:], "zero-one", true.temperature), wrong)
    auto = make_rejector(dump, ratio=drrej.RatioOptions(loss="auto"))
    assert auto.calibration is not None
    assert auto.calibration.temperature > 1.5 * true.temperature
    plain = augrc(expected_losses(logits[2000:], "zero-one", auto.calibration.temperature), wrong)
    found = augrc(drrej.Rejector.of(auto).score(logits[2000:]).loss, wrong)
    assert found < best + 0.3 * (plain - best)


@given(st.integers(0, 1000), st.sampled_from([0.0, 0.1, 0.4]))
def test_the_temperature_to_rank_by_is_an_average_by_likelihood(seed: int, share: float) -> None:
    logits, labels = make_model(150, 4, seed)
    noisy = flipped(labels, 4, share, seed)
    logs = np.empty((len(SCALES), len(NOISES)))
    for row, scale in enumerate(SCALES):
        p = softmax(logits.astype(np.float64), 2.0 / scale)[np.arange(150), noisy]
        with np.errstate(divide="ignore"):
            logs[row] = [np.log((1 - noise) * p + noise / 4).sum() - (noise > 0) for noise in NOISES]
    best = logs.max(axis=1)
    average = np.average(np.log(SCALES), weights=np.exp(best - best.max()))
    scale, noise = choose_scale(logits, 0.5, noisy, "float64")
    assert np.log(scale) == pytest.approx(average, abs=1e-6)
    assert noise == NOISES[np.unravel_index(logs.argmax(), logs.shape)[1]]


def test_a_loss_is_the_chance_of_an_error_by_the_labels() -> None:
    for share in (0.0, 0.2):
        logits, labels = make_model(3000, 5, 3)
        noisy = flipped(labels, 5, share, 4)
        scores = calibrated(logits)
        _, losses = learn(scores, noisy).of(scores, {})
        wrong = scores.prediction != noisy
        assert losses.mean() == pytest.approx(wrong.mean(), abs=0.01)
        sure = losses < np.median(losses)
        assert losses[sure].mean() == pytest.approx(wrong[sure].mean(), abs=0.01 + 0.2 * share)  # noise is no line


def test_a_learned_loss_tells_its_formula() -> None:
    model = ErrorModel(1.5, -1.5, 0.75, (0.25, -0.5, 0.0))
    (line,) = LearnedLoss(model).details()
    assert line == (
        "learned: rows are ranked at the temperature divided by 1.5; log-odds are corrected by -0.5 to +0.25 "
        "(predicted class), then -1.5 +0.75 x"
    )


def test_a_learned_loss_of_an_older_version_has_to_be_fitted_again(tmp_path: Path) -> None:
    logits, labels = biased_model(500, 4, 3)
    dump = source(write_dump(tmp_path / "d.parquet", logits, labels))
    tree = json.loads(drrej.fit(dump, drrej.calibrate(dump), drrej.RatioOptions(loss="auto")).to_json())
    tree["ratio"]["choice"] = []
    drrej.Rejector.from_json(json.dumps(tree), accept_edited=True)
    older = {**tree["ratio"]["learned"], "features": {}}
    for model in ({"base": "zero-one", "strength": None, "intercept": 0.0, "slope": 1.0}, older):
        tree["ratio"]["learned"] = model
        with pytest.raises(drrej.errors.RejectorError, match="run 'drrej fit' again"):
            drrej.Rejector.from_json(json.dumps(tree), accept_edited=True)


@pytest.mark.parametrize("loss", ["learned", "auto"])
def test_the_document_does_not_depend_on_order_blocks_or_layout(tmp_path: Path, loss: str) -> None:
    logits, labels = biased_model(1500, 4, 4)
    order = np.random.default_rng(0).permutation(1500)
    plain = write_dump(tmp_path / "a.parquet", logits, labels)
    shuffled = write_dump(tmp_path / "b.parquet", logits[order], labels[order], layout="fixed", row_group=170)
    texts = set()
    for path, jobs in ((plain, 1), (shuffled, 2)):
        dump = source(path, jobs=jobs)
        texts.add(drrej.fit(dump, drrej.calibrate(dump), drrej.RatioOptions(loss=loss)).to_json())
    assert len(texts) == 1
    wide = source(write_dump(tmp_path / "c.parquet", logits.astype(np.float64), labels, layout="wide"))
    rejector = drrej.threshold(source(plain), drrej.Rejector.from_json(texts.pop()), drrej.Rule("coverage", 0.8))
    tree = rejector.to_json().replace('"logits": "logits"', '"logits": "logit_*"')
    other = drrej.Rejector.from_json(tree, accept_edited=True)
    mask = write_mask(source(plain), rejector, tmp_path / "m.parquet")
    assert np.array_equal(mask["loss"], write_mask(wide, other, tmp_path / "n.parquet")["loss"])


def test_rows_that_differ_only_where_keys_do_not_look_have_an_order_too(tmp_path: Path) -> None:
    logits, labels = biased_model(900, 10, 5)
    logits[:, [0, 2, 5, 7]] = [9.0, 0.0, 0.0, 0.0]  # the largest, and the columns that keys are made of
    texts = set()
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(900)
        dump = source(write_dump(tmp_path / f"{seed}.parquet", logits[order], labels[order]))
        rejector = drrej.fit(dump, drrej.calibrate(dump), drrej.RatioOptions(loss="learned"))
        texts.add(json.dumps(json.loads(rejector.to_json())["ratio"]["learned"]))
    assert len(texts) == 1


def test_more_rows_than_are_learned_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drrej.pipeline.fit.MOST_ROWS", 1000)
    logits, labels = biased_model(4000, 4, 9)
    dump = source(write_dump(tmp_path / "d.parquet", logits, labels, row_group=900))
    ratio = drrej.fit(dump, drrej.calibrate(dump), drrej.RatioOptions(loss="learned")).need_ratio()
    assert ratio.rows == 4000
    assert ratio.mean_loss == pytest.approx(np.mean(logits.argmax(axis=1) != labels), abs=0.03)


def test_a_model_that_is_always_right_can_be_learned_from(tmp_path: Path) -> None:
    logits, _ = make_model(100, 3, 1)
    dump = source(write_dump(tmp_path / "d.parquet", logits, logits.argmax(axis=1)))
    start = drrej.fit(dump, drrej.calibrate(dump), drrej.RatioOptions(loss="learned"))
    assert 0 <= start.need_ratio().max_loss < 0.5


def test_labels_are_needed_and_inspect_shows_what_was_learned(tmp_path: Path) -> None:
    logits, labels = biased_model(1200, 4, 3)
    dump = write_dump(tmp_path / "d.parquet", logits, labels)
    bare = write_dump(tmp_path / "bare.parquet", logits)
    assert "no column 'label'" in fail("fit", bare, "--temperature", "2", "--loss", "learned")
    succeed("fit", dump, "--temperature", "2", "--loss", "auto", "-o", tmp_path / "r.json")
    text = succeed("inspect", tmp_path / "r.json").decode()
    assert "learned: rows are ranked at the temperature divided by" in text
    tree = load_json(tmp_path / "r.json")["ratio"]
    assert len(tree["learned"]["class_terms"]) == 4


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 0.6), st.integers(2, 6))
def test_max_loss_with_the_zero_one_loss_is_chows_rule(seed: int, cost: float, classes: int) -> None:
    """Rejected exactly where max p <= 1 - c, p in 50 digits; the row at the cutoff itself is rejected."""
    import mpmath

    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (12, classes)).round(3)
    losses = expected_losses(logits, "zero-one", precision="float64")
    density = fit_ratio(losses)
    points = Curve.of(losses, losses[:0])
    from drrej.core.thresholds import choose_cutoff

    cutoff = choose_cutoff(drrej.Rule("max-loss", cost), density, points)
    assert cutoff == cost
    with mpmath.workdps(50):
        for row, loss in zip(logits, losses, strict=True):
            powers = [mpmath.exp(mpmath.mpf(float(z))) for z in row]
            top = max(powers) / sum(powers)
            margin = 1 - mpmath.mpf(cost) - top
            if abs(margin) > 1e-14:
                assert (loss >= cutoff) == (margin >= 0)
    at = float(losses[0])
    assert choose_cutoff(drrej.Rule("max-loss", at), density, points) == at
    assert not losses[0] < at


def test_a_learned_order_is_in_doubt_where_rows_are_unlike_those_of_the_fit(tmp_path: Path) -> None:
    logits, labels = biased_model(4000, 4, 3)
    fit = write_dump(tmp_path / "v.parquet", logits[:2000], labels[:2000])
    alike = write_dump(tmp_path / "a.parquet", logits[2000:], labels[2000:])
    unlike = write_dump(tmp_path / "u.parquet", logits[2000:] * 0.3, labels[2000:])
    for loss, warned in (("learned", True), ("zero-one", False)):
        rejector = make_rejector(source(fit), ratio=drrej.RatioOptions(loss=loss))
        place = tmp_path / f"{loss}.json"
        place.write_text(rejector.to_json())
        base = rejector.need_ratio().loss.drift_loss
        for more in ([], ["--no-labels"]):
            assert "unlike" not in command("evaluate", alike, "-r", place, *more).err
            moved = command("evaluate", unlike, "-r", place, *more, "-o", tmp_path / "r.json", "-f")
            assert moved.code == 0
            assert ("unlike those that the loss was learned from" in moved.err) == warned
            report = drrej.Report.from_json((tmp_path / "r.json").read_text())
            assert report.unsure_order == (base.name if warned and base is not None else None)
            beside = [row.score for row in report.scores or ()]
            assert beside == (["loss", "max_probability"] if warned and not more else [])
            assert ("that of max probability" in moved.err) == bool(beside)
            assert "unlike" not in command("evaluate", unlike, "-r", place, *more, "--quiet").err


def test_the_plain_order_beside_a_learned_one_is_no_rival(tmp_path: Path) -> None:
    """A rival of that name had the figures of the plain order where the learned one was in doubt."""
    logits, labels = biased_model(4000, 4, 3)
    fit = write_dump(tmp_path / "v.parquet", logits[:2000], labels[:2000])
    other = {"max_probability": np.random.default_rng(1).random(2000)}
    unlike = write_dump(tmp_path / "u.parquet", logits[2000:] * 0.3, labels[2000:], extra=other)
    options = drrej.EvaluateOptions(rivals=Rivals(scores={"max_probability": "high"}))
    learned = make_rejector(source(fit), ratio=drrej.RatioOptions(loss="learned"))
    with pytest.raises(OptionError, match="`rival=max_probability`: the report has another score of that name; rename"):
        drrej.evaluate(source(unlike), learned, options=options)
    plain = make_rejector(source(fit), ratio=drrej.RatioOptions(loss="zero-one"))
    report = drrej.evaluate(source(unlike), plain, options=options)
    assert [row.score for row in report.scores or ()] == ["loss", "max_probability"]


def test_an_impossible_class_leaves_a_loss_in_every_type() -> None:
    """As if the class were not there."""
    wide = np.array([[2.0, 0.3, -np.inf, 0.1]]) * 1.1
    for rows in (wide, wide.astype(np.float32)):
        for precision in ("auto", "float64"):
            scores, _ = Temperature(1.0).scores(rows, NOTHING, precision)
            assert scores.log_odds(1.5) == pytest.approx(np.log(np.exp(-2.805) + np.exp(-3.135)))
