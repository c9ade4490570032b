"""Calibrators with numbers for each class, against scipy on the same convex problem."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
import scipy.optimize
from conftest import fail, make_model, make_rejector, source, succeed, write_dump, write_mask
from scipy.special import expit, log_softmax, softmax

import drrej
from drrej.core import calibrators as calibrator_choice
from drrej.core.calibration import ClasswiseTally
from drrej.core.calibrators import (
    STRENGTH,
    Temperature,
    Vector,
    fit_vector,
    minimise,
    nll_sums,
)
from drrej.core.reuse import content_keys
from drrej.core.softmax import NOTHING
from drrej.data import dump as dump_module
from drrej.errors import GateError, OptionError, RejectorError
from drrej.pipeline import calibrate as step


def skewed(rows: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a model that favours some classes, and is too sure of others."""
    logits, labels = make_model(rows, classes, seed)
    rng = np.random.default_rng(seed)
    return (logits * rng.uniform(0.5, 2.0, classes) + rng.normal(0.0, 1.0, classes)).astype(np.float32), labels


def fitted(logits: np.ndarray, labels: np.ndarray) -> tuple[Vector, float]:
    beta = 1.0 / minimise(lambda beta: nll_sums(logits, labels, beta, "float64")).temperature
    calibrator, converged = fit_vector(
        lambda function: function(logits, labels), None, 1.0 / beta, logits.shape[1], "float64"
    )
    assert converged
    return calibrator, beta


def penalised(parameters: np.ndarray, logits: np.ndarray, labels: np.ndarray, beta: float) -> tuple[float, np.ndarray]:
    """The objective and its gradient as the module's text has them, in another arrangement."""
    weights, biases = np.split(parameters, 2)
    with np.errstate(invalid="ignore"):
        x = log_softmax(logits.astype(np.float64), axis=1)
        scores = np.where(np.isneginf(x), -np.inf, weights * x + biases)
    logs = log_softmax(scores, axis=1)
    rows = np.arange(labels.size)
    value = -logs[rows, labels].sum() + STRENGTH / 2 * (((weights / beta - 1) ** 2).sum() + (biases**2).sum())
    rest = np.exp(logs) - np.eye(logits.shape[1])[labels]
    of_weights = (rest * np.where(np.isneginf(x), 0.0, x)).sum(axis=0) + STRENGTH * (weights / beta - 1) / beta
    return value, np.concatenate([of_weights, rest.sum(axis=0) + STRENGTH * biases])


def by_scipy(logits: np.ndarray, labels: np.ndarray, beta: float) -> np.ndarray:
    classes = logits.shape[1]
    found = scipy.optimize.minimize(
        penalised,
        np.repeat([beta, 0.0], classes),
        args=(logits, labels, beta),
        jac=True,
        bounds=[(0.0, None)] * classes + [(None, None)] * classes,
        options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-7},
    )
    return np.asarray(found.x)


@pytest.mark.parametrize(("rows", "classes"), [(40, 2), (900, 3), (2000, 10), (1500, 40)])
def test_vector_scaling_is_that_of_scipy(rows: int, classes: int) -> None:
    logits, labels = skewed(rows, classes, seed=rows)
    calibrator, beta = fitted(logits, labels)
    ours = np.array([*calibrator.weights, *calibrator.biases])
    theirs = by_scipy(logits, labels, beta)
    assert ours == pytest.approx(theirs, abs=2e-4)
    mine, gradient = penalised(ours, logits, labels, beta)
    assert mine <= penalised(theirs, logits, labels, beta)[0] + 1e-9
    assert np.abs(gradient).max() < 1e-4 * rows**0.5  # float32 sums of ln p


def test_impossible_classes_stay_impossible() -> None:
    logits, labels = skewed(600, 4, seed=5)
    logits[labels != 3, 3] = -np.inf
    calibrator, beta = fitted(logits, labels)
    assert [*calibrator.weights, *calibrator.biases] == pytest.approx(by_scipy(logits, labels, beta), abs=2e-4)
    rows, _ = Vector((0.0, 1.0), (5.0, 0.0)).scores(np.array([[-np.inf, 2.0]]), NOTHING, "auto")
    assert rows.prediction.tolist() == [1]
    assert rows.sums.odds.tolist() == [0.0]


def test_a_weight_that_would_turn_a_class_around_is_held_at_zero() -> None:
    """Rows of class 2 have the lowest scores of class 2."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 3000)
    logits = rng.normal(0.0, 1.0, (3000, 3)) + 2.0 * np.eye(3)[labels]
    logits[:, 2] = -logits[:, 2]
    calibrator, beta = fitted(logits, labels)
    assert calibrator.weights[2] == 0.0
    assert min(calibrator.weights) == 0.0
    assert [*calibrator.weights, *calibrator.biases] == pytest.approx(by_scipy(logits, labels, beta), abs=2e-4)


def test_two_classes_are_beta_calibration() -> None:
    """The log-odds are linear in ln p and ln(1 - p): the model of Kull et al., with the penalty written out."""
    logits, labels = skewed(700, 2, seed=9)
    calibrator, beta = fitted(logits, labels)
    odds = logits[:, 1].astype(np.float64) - logits[:, 0]
    ln_p, ln_other = -np.logaddexp(0.0, -odds), -np.logaddexp(0.0, odds)
    signs = 2.0 * labels - 1.0

    def objective(parameters: np.ndarray) -> float:
        a, b, c = parameters
        odds = a * ln_p - b * ln_other + c
        spread = (a / beta - 1) ** 2 + (b / beta - 1) ** 2 + c * c / 2  # biases of -c / 2 and c / 2 are cheapest
        return float(np.logaddexp(0.0, -signs * odds).sum() + STRENGTH / 2 * spread)

    found = scipy.optimize.minimize(
        objective, [beta, beta, 0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000}
    )
    (first, second), (low, high) = calibrator.weights, calibrator.biases
    assert [second, first, high - low] == pytest.approx(found.x, abs=1e-4)


def test_equal_weights_are_a_temperature() -> None:
    logits, _ = make_model(50, 6, seed=1)
    vector = Vector((0.5,) * 6, (0.0,) * 6).scores(logits, frozenset({"moment", "squares"}), "float64")[0]
    cooled = Temperature(2.0).scores(logits, frozenset({"moment", "squares"}), "float64")[0]
    assert (vector.prediction == cooled.prediction).all()
    for name in ("odds", "moment", "squares"):
        assert getattr(vector.sums, name) == pytest.approx(getattr(cooled.sums, name), rel=1e-12)


# The step on dumps


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray]:
    return skewed(4000, 5, seed=21)


def calibration(dump: drrej.Source, name: str = "vector") -> Any:
    return drrej.calibrate(dump, drrej.CalibrateOptions(calibrator=name)).need_calibration()


@pytest.mark.parametrize("sample", [1 << 21, 3000])
def test_the_same_bits_in_every_arrangement(
    tmp_path: Path, rows: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch, sample: int
) -> None:
    monkeypatch.setattr(step, "SAMPLE_LOGITS", sample)
    logits, labels = rows
    order = np.random.default_rng(1).permutation(labels.size)
    whole = write_dump(tmp_path / "a.parquet", logits, labels)
    found = calibration(source(whole))
    rejector = drrej.fit_rejector(logits, labels, coverage=0.8, calibrator="vector")
    turned = write_dump(tmp_path / "b.parquet", logits[order], labels[order], row_group=300)
    wide = write_dump(tmp_path / "c.parquet", logits, labels, layout="wide", row_group=999)
    monkeypatch.setattr(dump_module, "BLOCK_BYTES", 1 << 12)
    assert calibration(source(turned, jobs=3)) == found
    assert calibration(source(wide, jobs=2)) == found
    assert calibration(source(whole)) == found
    masks = [write_mask(source(path), rejector, tmp_path / "mask.parquet") for path in (whole, turned)]
    assert (masks[0]["loss"][order] == masks[1]["loss"]).all()
    assert (masks[0]["loss"] == rejector.score(logits).loss).all()
    assert masks[0]["loss"][17] == rejector.score(logits[17:18]).loss[0]


def test_a_search_that_starts_from_a_sample_ends_at_the_same_place(
    tmp_path: Path, rows: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = write_dump(tmp_path / "a.parquet", *rows)
    whole = calibration(source(dump)).vector
    monkeypatch.setattr(step, "SAMPLE_LOGITS", 3000)
    sampled = calibration(source(dump)).vector
    assert sampled.weights == pytest.approx(whole.weights, rel=1e-6)
    assert sampled.biases == pytest.approx(whole.biases, abs=1e-6)


def test_figures_masks_and_probabilities_are_those_of_the_calibrated_scores(
    tmp_path: Path, rows: tuple[np.ndarray, np.ndarray]
) -> None:
    logits, labels = rows
    half = labels.size // 2
    val = write_dump(tmp_path / "val.parquet", logits[:half], labels[:half])
    test = write_dump(tmp_path / "test.parquet", logits[half:], labels[half:])
    start = drrej.calibrate(source(val), drrej.CalibrateOptions(calibrator="vector"))
    rejector = drrej.threshold(
        val, drrej.fit(val, start, drrej.RatioOptions(loss="zero-one")), drrej.Rule("coverage", 0.7)
    )
    rejector = drrej.Rejector.from_json(rejector.to_json())
    vector = rejector.need_calibration().vector
    x = log_softmax(logits[half:].astype(np.float64), axis=1)
    p = softmax(x * np.array(vector.weights) + np.array(vector.biases), axis=1)
    report = drrej.evaluate(test, rejector)
    truth = labels[half:]
    assert report.nll.all == pytest.approx(-np.log(p[np.arange(half), truth]).mean(), rel=1e-6)
    assert report.nll.uncalibrated == pytest.approx(-x[np.arange(half), truth].mean(), rel=1e-5)
    assert report.nll.all < report.nll.uncalibrated
    mask = write_mask(source(test), rejector, tmp_path / "mask.parquet")
    assert (mask["prediction"] == p.argmax(axis=1)).all()
    assert (mask["prediction"] != x.argmax(axis=1)).any()  # the likeliest class may change
    assert mask["loss"] == pytest.approx(1 - p.max(axis=1), rel=1e-5, abs=1e-9)
    assert int(mask["rejected"].sum()) == report.rows - report.coverage.accepted
    again = drrej.Rejector.of(rejector)
    assert again.probabilities(logits[half:]) == pytest.approx(p, rel=1e-5, abs=1e-9)
    assert (again.reject(logits[half:]) == mask["rejected"]).all()


def test_arrays_and_files_agree(tmp_path: Path, rows: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = rows
    dump = write_dump(tmp_path / "val.parquet", logits, labels)
    arrays = drrej.fit_rejector(logits, labels, coverage=0.8, calibrator="vector")
    assert arrays.calibration.vector == calibration(source(dump)).vector
    with pytest.raises(OptionError, match="it must be one of temperature, vector, beta, logistic, isotonic, auto"):
        drrej.fit_rejector(logits, labels, coverage=0.8, calibrator="dirichlet")


def test_probabilities_and_one_score_per_row() -> None:
    logits, labels = skewed(1500, 2, seed=4)
    odds = (logits[:, 1].astype(np.float64) - logits[:, 0]).astype(np.float32)
    two = drrej.fit_rejector(np.stack([np.zeros_like(odds), odds], axis=1), labels, coverage=0.8, calibrator="beta")
    one = drrej.fit_rejector(odds, labels, coverage=0.8, calibrator="beta")
    assert one.calibration.vector == two.calibration.vector
    probs = drrej.fit_rejector(expit(odds.astype(np.float64)), labels, coverage=0.8, calibrator="beta", input="probs")
    assert probs.calibration.vector.weights == pytest.approx(one.calibration.vector.weights, rel=1e-4)


def test_too_many_classes_are_refused() -> None:
    logits = np.zeros((300, 257), np.float32)
    with pytest.raises(OptionError, match="`calibrator=vector` is for at most 256 classes, here are 257"):
        drrej.fit_rejector(logits, np.arange(300) % 257, coverage=0.8, calibrator="vector")


PLAIN = {"weights": [1.0] * 5, "biases": [0.0] * 5}


def damaged(tree: dict[str, Any], **changes: Any) -> str:
    return json.dumps({**tree, "calibration": {**tree["calibration"], **changes}})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"method": "temperature"}, "'calibration.vector' contradicts 'calibration.method'"),
        ({"vector": {"weights": [1.0, 1.0], "biases": [0.0] * 5}}, "'calibration.vector' is out of range"),
        ({"vector": {"weights": [1.0, 1.0, 1.0, 1.0, -1.0], "biases": [0.0] * 5}}, "none may be below 0"),
        ({"vector": {"weights": [1.0] * 5, "biases": [0.0] * 4}}, "'calibration.vector' is out of range"),
        ({"vector": {"weights": [1.0] * 5}}, "'calibration.vector.biases' is missing"),
        ({"method": "dirichlet", "vector": {**PLAIN, "mixing": [[0.0] * 5] * 4}}, "mixing' is not known"),
        ({"method": "dirichlet"}, "run 'drrej calibrate' again"),
        ({"matrix": 1}, "'calibration.matrix' is not known"),
    ],
)
def test_documents_that_contradict_themselves(
    tmp_path: Path, rows: tuple[np.ndarray, np.ndarray], changes: dict[str, Any], says: str
) -> None:
    document = drrej.calibrate(write_dump(tmp_path / "val.parquet", *rows), drrej.CalibrateOptions(calibrator="vector"))
    tree = json.loads(document.to_json())
    assert drrej.Rejector.from_json(json.dumps(tree)) == document
    with pytest.raises(RejectorError, match=says):
        drrej.Rejector.from_json(damaged(tree, **changes), accept_edited=True)


def test_the_command_line(tmp_path: Path, rows: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = rows
    write_dump(tmp_path / "all.parquet", logits, labels)
    succeed("run", "all.parquet", "--coverage", "0.8", "--calibrator", "vector", "-o", "out", "-q", cwd=tmp_path)
    written = drrej.Rejector.from_json((tmp_path / "out" / "rejector.json").read_text())
    assert written.need_calibration().method == "vector"
    said = succeed("inspect", "out/rejector.json", cwd=tmp_path).decode()
    assert "calibrator: vector scaling, weights of ln p from" in said
    wrong = fail("calibrate", "all.parquet", "--calibrator", "beta", cwd=tmp_path)
    assert "--calibrator beta is for two classes, here are 5; use --calibrator vector" in wrong


def test_documents_of_before_read_on(val: str) -> None:
    """A temperature is written as ever: without a key that older versions do not know."""
    text = make_rejector(source(val)).to_json()
    assert "vector" not in json.loads(text)["calibration"]
    assert drrej.Rejector.from_json(text).calibrator == Temperature(json.loads(text)["calibration"]["temperature"])


# The choice


def test_auto_takes_the_simplest_within_one_standard_error(rows: tuple[np.ndarray, np.ndarray]) -> None:
    """Folds by another route: the NLLs from scipy's minima, with the folds that the content of rows settles."""
    logits, labels = rows
    found = drrej.fit_rejector(logits, labels, coverage=0.8, calibrator="auto").calibration
    assert found.method == "vector"
    fold = content_keys(logits) % np.uint64(5)
    nll: dict[str, list[np.ndarray]] = {"temperature": [], "vector": []}
    for number in range(5):
        inside, others = fold == number, fold != number
        beta = 1.0 / reference.temperature(logits[others], labels[others])
        weights, biases = np.split(by_scipy(logits[others], labels[others], beta), 2)
        x = log_softmax(logits[inside].astype(np.float64), axis=1)
        for name, scores in (("temperature", beta * x), ("vector", weights * x + biases)):
            nll[name].append(-log_softmax(scores, axis=1)[np.arange(inside.sum()), labels[inside]])
    per_row = {name: np.concatenate(values) for name, values in nll.items()}
    above = per_row["temperature"] - per_row["vector"]
    held_out = calibrator_choice.held_out_nll(logits, labels, "auto")
    assert list(held_out) == ["temperature", "vector"]
    for name, values in held_out.items():
        assert values.mean() == pytest.approx(per_row[name].mean(), rel=1e-6)
    assert above.mean() > above.std() / np.sqrt(above.size)


def test_auto_keeps_the_temperature_where_it_is_right() -> None:
    logits, labels = make_model(1500, 4, seed=2, temperature=1.7)
    found = drrej.fit_rejector(logits, labels, coverage=0.8, calibrator="auto")
    plain = drrej.fit_rejector(logits, labels, coverage=0.8)
    assert found.calibration.method == "temperature"
    assert found.calibration.vector is None
    assert found.threshold == plain.threshold
    assert drrej.Rejector.from_json(found.to_json()) == found


def test_auto_on_two_classes_many_classes_and_few_rows() -> None:
    logits, labels = skewed(3000, 2, seed=8)
    assert drrej.fit_rejector(logits, labels, coverage=0.8, calibrator="auto").calibration.method == "beta"
    many = np.random.default_rng(0).normal(size=(600, 300)).astype(np.float32)
    found = drrej.fit_rejector(many, np.arange(600) % 300, coverage=0.8, calibrator="auto").calibration
    assert found.method == "temperature"
    few = drrej.fit_rejector([[3.0, 0.0, 1.0]] * 4, [0, 0, 1, 2], coverage=1.0, calibrator="auto").calibration
    assert few.method == "temperature"


def test_the_choice_has_the_same_bits_in_every_arrangement(
    tmp_path: Path, rows: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, labels = rows
    order = np.random.default_rng(1).permutation(labels.size)
    whole = write_dump(tmp_path / "a.parquet", logits, labels)
    monkeypatch.setattr(calibrator_choice, "MOST_VALUES", 9000)
    found = calibration(source(whole), "auto")
    turned = write_dump(tmp_path / "b.parquet", logits[order], labels[order], row_group=300)
    monkeypatch.setattr(dump_module, "BLOCK_BYTES", 1 << 12)
    assert calibration(source(turned, jobs=2), "auto") == found


# The classwise calibration error


def classwise(p: np.ndarray, labels: np.ndarray) -> float:
    """Class by class, bin by bin."""
    total = 0.0
    for number in range(p.shape[1]):
        for low in range(15):
            inside = (p[:, number] > low / 15) & (p[:, number] <= (low + 1) / 15)
            if inside.any():
                total += inside.mean() * abs(p[inside, number].mean() - (labels[inside] == number).mean())
    return total / p.shape[1]


def test_the_classwise_error_is_that_of_a_loop(tmp_path: Path, rows: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = rows
    dump = write_dump(tmp_path / "val.parquet", logits, labels, row_group=700)
    rejector = drrej.fit_rejector(logits, labels, coverage=0.6, calibrator="vector")
    report = drrej.evaluate(dump, rejector, options=drrej.EvaluateOptions(classwise=True))
    p, raw = rejector.probabilities(logits), softmax(logits.astype(np.float64), axis=1)
    kept = ~rejector.reject(logits)
    found = report.classwise_ece
    assert found.all == pytest.approx(classwise(p, labels), abs=1e-6)
    assert found.uncalibrated == pytest.approx(classwise(raw, labels), abs=1e-6)
    assert found.accepted == pytest.approx(classwise(p[kept], labels[kept]), abs=1e-6)
    assert found.all < found.uncalibrated
    assert drrej.evaluate(dump, rejector).classwise_ece is None
    judged = drrej.evaluate(dump, rejector, ["classwise_ece.all <= 0.0001"], drrej.EvaluateOptions(classwise=True))
    assert judged.failed_gates[0].value == found.all
    with pytest.raises(GateError, match="classwise"):
        drrej.evaluate(dump, rejector, ["classwise_ece.all <= 1"])


def test_sums_by_class_add_up(rows: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = rows
    p = softmax(logits.astype(np.float64), axis=1)
    whole = ClasswiseTally.of(p, labels)
    parts = ClasswiseTally.of(p[:9], labels[:9]) + ClasswiseTally.of(p[9:], labels[9:])
    assert (whole.gaps == parts.gaps).all()
    assert whole.ece == parts.ece
    assert ClasswiseTally.of(p[:0], labels[:0]).ece is None
