"""The learned loss and the choice of a loss."""

from __future__ import annotations

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
from drrej.core.calibrators import Temperature
from drrej.core.curves import Curve
from drrej.core.learned_loss import (
    FOLDS,
    MANY_ERRORS,
    NOISES,
    SCALES,
    SIMPLEST_FIRST,
    STRENGTHS,
    Learner,
    LearningRows,
    Preferred,
    Trial,
    augrc_trial,
    choose_strength,
    difference_error,
    first_of_the_best,
    folds_of,
    plain_trials,
    predict,
    preferred,
)
from drrej.core.losses import FEATURES, ErrorModel, Feature, LearnedLoss, error_probability, expected_losses
from drrej.core.losses import PLAIN as LOSSES
from drrej.core.ratio import fit_ratio
from drrej.core.softmax import ALL_SUMS, block_sums


def biased_model(rows: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A model whose errors hide in one predicted class, which no plain loss can see."""
    logits, labels = make_model(rows, classes, seed)
    rng = np.random.default_rng(seed + 1)
    fooled = (logits.argmax(axis=1) == 0) & (rng.random(rows) < 0.4)
    labels[fooled] = rng.integers(1, classes, fooled.sum())
    return logits, labels


def learning_rows(logits: np.ndarray, labels: np.ndarray, temperature: float = 2.0) -> LearningRows:
    calibrated, _ = Temperature(temperature).scores(logits, ALL_SUMS, "float64")
    return LearningRows.of(calibrated, labels)


def augrc(losses: np.ndarray, wrong: np.ndarray) -> float:
    return Curve.of(losses[~wrong], losses[wrong]).augrc()


def test_features_are_what_their_names_say() -> None:
    logits, labels = make_model(50, 5, 3)
    rows = learning_rows(logits, labels)
    z = logits.astype(np.float64) / 2
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    top = p.max(axis=1)
    rest = np.sort(p, axis=1)[:, :-1] / (1 - top)[:, None]
    distance = (z.max(axis=1, keepdims=True) - z).sum(axis=1) / 4
    centred = z - z.mean(axis=1, keepdims=True)
    others = np.sort(centred, axis=1)[:, :-1]
    expected = {
        "bend": np.log(1 + 20 * (1 - top) / top),
        "rivals": -(rest * np.log(rest)).sum(axis=1),
        "distance": distance,
        "log_distance": np.log(distance),
        "crowd": np.log(np.abs(others).sum(axis=1) / centred.max(axis=1)),
    }
    sure = 1 - top < 1e-9  # here the comparison itself cancels
    for i, name in enumerate(FEATURES):
        np.testing.assert_allclose(rows.features[i][~sure], expected[name][~sure], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rows.base("zero-one")[~sure], np.log((1 - top) / top)[~sure], rtol=1e-6)


@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize("strength", [None, 300.0, 10.0, 1.0])
def test_the_fit_is_the_minimum_that_a_general_optimiser_finds(strength: float | None, noise: float) -> None:
    logits, labels = biased_model(400, 4, 5)
    rows = learning_rows(logits, flipped(labels, 4, noise * 3 / 4, 6))
    learner = Learner(rows, "zero-one", noise)
    inputs = rows.features if strength is not None else rows.features[:0]
    inputs = (inputs - inputs.mean(axis=1, keepdims=True)) / inputs.std(axis=1, keepdims=True)
    classes = 4 if strength is not None else 0
    one_hot = np.eye(4)[:, rows.prediction][:classes]
    design = np.concatenate([np.ones((1, rows.rows)), rows.base("zero-one")[None], inputs, one_hot])
    penalty = np.array([0.01, 0.01] + [strength or 0.0] * (len(inputs) + classes))
    center = np.array([0.0, 1.0] + [0.0] * (len(inputs) + classes))

    def objective(theta: np.ndarray) -> float:
        wrong, right = (-np.logaddexp(0, sign * (theta @ design)) for sign in (-1, 1))
        if noise:
            chance = (1 - noise) * np.exp(wrong) + noise * 3 / 4
            wrong, right = np.log(chance), np.log(1 - chance)
        logs = np.where(rows.wrong, wrong, right)
        return float(0.5 * np.sum(penalty * (theta - center) ** 2) - np.sum(logs))

    found = minimize(objective, center, method="BFGS", options={"gtol": 1e-6, "maxiter": 2000})
    solved = learner.problem(strength)
    eta = np.empty(400)
    eta[learner.order] = solved.eta(solved.solve())
    np.testing.assert_allclose(eta, found.x @ design, atol=2e-3)
    model = predict(learner.fit(strength), rows)
    (stretch, shift), *_ = np.polyfit(eta, model, 1, full=True)
    np.testing.assert_allclose(model, stretch * eta + shift, atol=1e-8)
    assert (stretch < 0.9) if noise else (stretch, shift) == pytest.approx((1.0, 0.0), abs=1e-9)
    residuals = error_probability(model) - rows.wrong  # those of a fit by labels add up to 0, also along eta
    assert residuals.sum() == pytest.approx(0.0, abs=0.05)
    if noise or strength is None:
        assert (residuals * eta).sum() == pytest.approx(0.0, abs=0.05)


def test_an_infinite_penalty_keeps_the_order_of_the_plain_loss() -> None:
    rows = learning_rows(*biased_model(500, 4, 6))
    for base in LOSSES:
        model = Learner(rows, base).fit(None)
        assert model.slope > 0
        assert (model.features, model.class_intercepts) == ({}, ())
        order = np.argsort(rows.base(base), kind="stable")
        assert np.all(np.diff(predict(model, rows)[order]) >= 0)


def test_tiny_losses_keep_their_precision_and_order() -> None:
    eta = np.array([-700.0, -300.0, -299.0, -40.0, 0.0, 40.0])
    exact = np.exp(eta) / (1 + np.exp(eta))
    np.testing.assert_allclose(error_probability(eta), exact, rtol=1e-14)
    model = ErrorModel("zero-one", None, 0.0, 1.0, {}, ())
    logits = np.array([[0.0, -200.0, -300.0], [0.0, -200.5, -300.0], [0.0, -90.0, -np.inf]])
    sums = block_sums(logits, [1.0], [ALL_SUMS], "float64")
    losses = model.losses(sums.at[0], sums.prediction, 3)
    np.testing.assert_allclose(losses, np.exp([-200.0, -200.5, -90.0]), rtol=1e-12)


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


def test_augrc_of_a_trial_is_that_of_the_metrics_and_its_error_is_that_of_resampling() -> None:
    rng = np.random.default_rng(0)
    losses = rng.random(400).round(2)
    wrong = rng.random(400) < losses
    one_fold = np.zeros(400, np.int64)
    trial = augrc_trial(losses, wrong, one_fold)
    assert trial.augrc == pytest.approx(augrc(losses, wrong), rel=1e-12)
    assert trial.influence.mean() == pytest.approx(0.0, abs=1e-12)
    other = (losses + rng.normal(0, 0.2, 400)).round(2)
    draws = [rng.integers(0, 400, 400) for _ in range(400)]
    differences = [augrc(losses[d], wrong[d]) - augrc(other[d], wrong[d]) for d in draws]
    estimate = difference_error(trial, augrc_trial(other, wrong, one_fold))
    assert estimate == pytest.approx(np.std(differences), rel=0.15)


def test_the_simplest_within_one_standard_error_wins() -> None:
    noise = np.array([1.0, -1.0] * 50)
    simple, better = Trial(0.100, noise), Trial(0.095, np.zeros(100))
    assert difference_error(simple, better) == pytest.approx(0.1)
    assert first_of_the_best([simple, better]) == 0
    assert first_of_the_best([Trial(0.3, noise), better]) == 1
    assert first_of_the_best([Trial(0.1, 1e-3 * noise), better]) == 1


def test_folds_follow_content_and_spread_the_errors() -> None:
    rows = learning_rows(*biased_model(300, 4, 1))
    keys = np.random.default_rng(0).permutation(300).astype(np.uint64)
    keys[1::2] = keys[::2]
    fold = folds_of(rows, keys)
    same = rows.wrong[1::2] == rows.wrong[::2]
    assert np.all((fold[1::2] == fold[::2])[same])
    errors = np.bincount(fold[rows.wrong], minlength=FOLDS)
    assert errors.max() - errors.min() <= 4


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
            assert np.argmax(learned.loss.learned.class_intercepts) == 0
    assert found["learned"] < 0.97 * min(found["log"], found["zero-one"], found["brier"])
    assert found["auto"] == found["learned"]


def test_auto_keeps_a_plain_loss_where_there_is_nothing_to_learn(tmp_path: Path) -> None:
    """Labels drawn from softmax(logits / T): the zero-one loss is the truth."""
    dump = source(write_dump(tmp_path / "v.parquet", *make_model(4000, 5, 2)))
    auto = make_rejector(dump, ratio=drrej.RatioOptions(loss="auto"))
    ratio = auto.need_ratio()
    assert ratio.choice is not None
    assert [row.loss for row in ratio.choice] == [*SIMPLEST_FIRST]
    assert ratio.loss.name == "zero-one"
    plain = make_rejector(dump, ratio=drrej.RatioOptions(loss="zero-one")).need_ratio()
    assert (ratio.log_max_ratio, ratio.min_loss, ratio.fingerprint) == (
        plain.log_max_ratio,
        plain.min_loss,
        plain.fingerprint,
    )
    assert drrej.Rejector.from_json(auto.to_json()) == auto


def test_other_plain_losses_are_candidates_where_the_model_makes_many_errors() -> None:
    logits, labels = make_model(3000, 4, 7)
    for rows, noise, there in ((500, 0.0, False), (3000, 0.0, True), (3000, 0.3, False)):
        found = learning_rows(logits[:rows], labels[:rows])
        first = Preferred("sharp", noise)
        expected_by_chance = rows * noise * 3 / 4
        assert (found.wrong.sum() - expected_by_chance >= MANY_ERRORS) == there
        trials = plain_trials(found, np.arange(rows) % FOLDS, first)
        others = [name for name in SIMPLEST_FIRST if name != "sharp"]
        assert list(trials) == ["sharp", *others * there]


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
def test_the_preferred_temperature_has_the_largest_likelihood(seed: int, share: float) -> None:
    logits, labels = make_model(150, 4, seed)
    noisy = flipped(labels, 4, share, seed)
    rows = learning_rows(logits, noisy)
    table = {}
    for name, scale in SCALES.items():
        p = softmax(logits.astype(np.float64), 2.0 / scale)[np.arange(150), noisy]
        table[name] = {noise: np.log((1 - noise) * p + noise / 4).sum() for noise in NOISES}
    name = max(SCALES, key=lambda name: max(table[name].values()))
    better = max(table[name].values()) > table["zero-one"][0.0] + 2.0
    found = preferred(rows)
    assert found.loss == (name if better else "zero-one")
    assert found.noise == (max(NOISES, key=lambda noise: table[name][noise]) if better else 0.0)


@pytest.mark.parametrize(("rows", "classes"), [(120, 4), (700, 3)])
def test_the_strength_is_that_of_a_plain_search(rows: int, classes: int) -> None:
    """The same rule, with models that are fitted one by one to the rows outside of a fold."""
    found = learning_rows(*biased_model(rows, classes, 21))
    fold = np.arange(rows) % FOLDS
    wide = 1 + 5 / found.wrong.sum()
    logs = {}
    for strength in STRENGTHS:
        logs[strength] = np.empty(rows)
        for k in range(FOLDS):
            learner = Learner(found, "zero-one")
            outside = np.flatnonzero(fold[learner.order] != k)
            model = learner.model(learner.problem(strength, outside).solve(), strength)
            eta = predict(model, found)
            logs[strength][fold == k] = (np.where(found.wrong, eta, 0) - np.logaddexp(0, eta))[fold == k]
    sums = [logs[strength].sum() for strength in STRENGTHS]
    falls = [number for number in range(1, len(sums)) if sums[number] <= sums[number - 1]]
    tried = STRENGTHS[: falls[0] if falls else None]
    best = logs[tried[-1]]
    fitting = [s for s in tried[1:] if (best - logs[s]).sum() <= wide * (best - logs[s]).std() * np.sqrt(rows)]
    chosen, theta = choose_strength(Learner(found, "zero-one"), fold, wide)
    assert chosen == (fitting[0] if fitting else None)
    assert theta.size == (2 if chosen is None else 2 + len(FEATURES) + classes)
    assert chosen is not None or rows == 120


def test_wrong_labels_do_not_lead_a_learned_loss_astray() -> None:
    """A quarter of the labels is drawn at random. The noise explains the errors in rows of which the model is sure."""
    rng = np.random.default_rng(3)
    logits = rng.normal(0, 5, (4000, 10))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    test = learning_rows(logits[2000:], labels[2000:], 1.0)
    plain = augrc(test.base("zero-one"), test.wrong)
    lost = {0.0: 0.0, 0.25: 0.0}
    for first in range(0, 2000, 400):
        part = slice(first, first + 400)
        drawn = np.where(rng.random(400) < 0.25, rng.integers(0, 10, 400), labels[part])
        found = learning_rows(logits[part], drawn, 1.0)
        for noise in lost:
            lost[noise] += augrc(predict(Learner(found, "zero-one", noise).fit(10.0), test), test.wrong) / plain - 1
    assert lost[0.25] < 0.5 * lost[0.0]


def test_models_of_older_documents_have_fewer_features() -> None:
    old = dict.fromkeys(["bend", "rivals", "distance", "log_distance"], Feature(0.1, -1.0, 1.0))
    model = ErrorModel("zero-one", 3.0, 0.0, 1.0, old, (0.0, 0.0, 0.0))
    LearnedLoss(model).check(3)
    assert LearnedLoss(model).needs == frozenset({"moment", "gap_total"})


def test_a_learned_loss_tells_its_formula() -> None:
    features = {"entropy": Feature(0.5, 0.0, 1.0)}
    model = ErrorModel("zero-one", 3.0, -1.5, 0.75, features, (0.25, -0.5, 0.0))
    (line,) = LearnedLoss(model).details()
    assert line == (
        "learned: log-odds of an error = -1.5 +0.75 x 'zero-one', entropy +0.5; "
        "predicted classes from -0.5 to +0.25; penalty 3, by cross-validation"
    )


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


def test_more_rows_than_are_learned_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drrej.pipeline.fit.MOST_ROWS", 1000)
    logits, labels = biased_model(4000, 4, 9)
    dump = source(write_dump(tmp_path / "d.parquet", logits, labels, row_group=900))
    ratio = drrej.fit(dump, drrej.calibrate(dump), drrej.RatioOptions(loss="learned")).need_ratio()
    assert ratio.rows == 4000
    assert ratio.mean_loss == pytest.approx(np.mean(logits.argmax(axis=1) != labels), abs=0.03)


def test_values_of_the_fit_come_from_models_that_had_not_seen_the_row(tmp_path: Path) -> None:
    """On few rows a model flatters itself: its own losses are lower than those the ratio is fitted on."""
    logits, labels = biased_model(200, 10, 12)
    dump = source(write_dump(tmp_path / "d.parquet", logits, labels))
    rejector = make_rejector(dump, ratio=drrej.RatioOptions(loss="learned"))
    own = write_mask(dump, rejector, tmp_path / "m.parquet")["loss"]
    assert float(own.max()) != rejector.need_ratio().max_loss


def test_a_model_that_is_always_right_can_be_learned_from(tmp_path: Path) -> None:
    logits, _ = make_model(100, 3, 1)
    dump = source(write_dump(tmp_path / "d.parquet", logits, logits.argmax(axis=1)))
    start = drrej.fit(dump, drrej.calibrate(dump), drrej.RatioOptions(loss="learned"))
    assert 0 <= start.need_ratio().max_loss < 0.2


def test_labels_are_needed_and_inspect_shows_what_was_learned(tmp_path: Path) -> None:
    logits, labels = biased_model(1200, 4, 3)
    dump = write_dump(tmp_path / "d.parquet", logits, labels)
    bare = write_dump(tmp_path / "bare.parquet", logits)
    assert "no column 'label'" in fail("fit", bare, "--temperature", "2", "--loss", "learned")
    succeed("fit", dump, "--temperature", "2", "--loss", "auto", "-o", tmp_path / "r.json")
    text = succeed("inspect", tmp_path / "r.json").decode()
    assert "* learned   AUGRC" in text
    assert "log-odds of an error" in text
    tree = load_json(tmp_path / "r.json")["ratio"]
    assert len(tree["learned"]["class_intercepts"]) == 4
    assert set(tree["learned"]["features"]) <= set(FEATURES)


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
            assert "unlike" not in command("evaluate", unlike, "-r", place, *more, "--quiet").err
