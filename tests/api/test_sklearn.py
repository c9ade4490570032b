"""The scikit-learn estimator: conventions, where its scores come from, and the same bits as the command line."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import read_columns, succeed, thorough

import drrej

sklearn = pytest.importorskip("sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin, clone  # noqa: E402
from sklearn.datasets import load_breast_cancer, load_digits  # noqa: E402
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier  # noqa: E402
from sklearn.frozen import FrozenEstimator  # noqa: E402
from sklearn.linear_model import LogisticRegression, RidgeClassifier  # noqa: E402
from sklearn.model_selection import (  # noqa: E402
    GridSearchCV,
    ShuffleSplit,
    cross_val_predict,
    cross_validate,
    train_test_split,
)
from sklearn.naive_bayes import GaussianNB  # noqa: E402
from sklearn.neighbors import KNeighborsClassifier  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.tree import DecisionTreeClassifier  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

from drrej.errors import DrrejWarning, DumpError  # noqa: E402
from drrej.sklearn import HELD_OUT, RejectingClassifier, coverage_score  # noqa: E402

X, Y = load_digits(return_X_y=True)
X_TRAIN, X_TEST, Y_TRAIN, Y_TEST = train_test_split(X, Y, test_size=0.5, random_state=0)
BINARY = load_breast_cancer(return_X_y=True)
LOGISTIC = make_pipeline(StandardScaler(), LogisticRegression())


@pytest.fixture(scope="module")
def fitted() -> RejectingClassifier:
    return RejectingClassifier(KNeighborsClassifier(), accuracy=0.99).fit(X_TRAIN, Y_TRAIN)


# Conventions

WHAT_CANNOT_PASS = {"check_classifiers_train": "it wants `predict` to agree with `decision_function` on every row"}


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        thorough(RejectingClassifier(GaussianNB(), coverage=1.0, cv=2), {}),
        thorough(RejectingClassifier(RidgeClassifier(), coverage=1.0, cv=2), {}),
        (RejectingClassifier(GaussianNB(), coverage=0.9, cv=2), WHAT_CANNOT_PASS),
    ],
    ids=["probabilities", "decisions", "rejecting"],
)
def test_the_conventions_of_scikit_learn(estimator: Any, expected: dict[str, str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, expected_failed_checks=expected, on_fail=None, on_skip=None)
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert not failed
    assert {result["check_name"] for result in results if result["status"] == "xfail"} == expected.keys()
    assert len(results) > 40


def test_it_is_cloned_with_its_parameters_and_pickled_with_its_fit(fitted: RejectingClassifier) -> None:
    again = clone(fitted)
    assert again.get_params(deep=False).keys() == fitted.get_params(deep=False).keys()
    assert not hasattr(again, "rejector_")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(X_TEST), fitted.predict(X_TEST))


def test_it_works_in_searches_and_cross_validation() -> None:
    model = RejectingClassifier(LOGISTIC, accuracy=0.98, cv=3)
    grid = {"estimator__logisticregression__C": [0.01, 1.0]}
    search = GridSearchCV(model, grid, scoring=coverage_score, cv=2).fit(X_TRAIN, Y_TRAIN)
    coverages = search.cv_results_["mean_test_score"]
    assert search.best_score_ == coverages.max() > coverages.min() > 0
    found = cross_validate(search.best_estimator_, X_TRAIN, Y_TRAIN, cv=2)  # its own `score`
    assert found["test_score"].min() > 0.96
    piped = make_pipeline(StandardScaler(), RejectingClassifier(LogisticRegression(), accuracy=0.98, cv=3))
    assert piped.fit(X_TRAIN, Y_TRAIN).score(X_TEST, Y_TEST) > 0.96


def test_frames_keep_their_names() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(BINARY[0][:, :4], columns=list("abcd"))
    model = RejectingClassifier(GaussianNB(), coverage=0.8).fit(frame, pandas.Series(BINARY[1]))
    assert model.feature_names_in_.tolist() == list("abcd")
    assert model.n_features_in_ == 4
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[list("bacd")])


# Where held-out scores come from


def by_hand(scores: np.ndarray, labels: np.ndarray, **rule: Any) -> drrej.Rejector:
    return drrej.fit_rejector(scores, labels, input="probs", **rule)


def test_folds_calibrate_and_the_model_is_fitted_on_all_rows(fitted: RejectingClassifier) -> None:
    scores = cross_val_predict(KNeighborsClassifier(), X_TRAIN, Y_TRAIN, cv=5, method="predict_proba")
    expected = by_hand(scores, Y_TRAIN, accuracy=0.99)
    assert fitted.rejector_ == expected
    assert fitted.coverage_ == expected.need_threshold().coverage
    whole = KNeighborsClassifier().fit(X_TRAIN, Y_TRAIN).predict_proba(X_TEST)
    np.testing.assert_array_equal(fitted.reject(X_TEST), expected.reject(whole))
    np.testing.assert_array_equal(fitted.predict_proba(X_TEST), expected.probabilities(whole))


@pytest.mark.parametrize("wrap", [lambda model: (model, "prefit"), lambda model: (FrozenEstimator(model), None)])
def test_a_prefit_model_is_used_as_it_is(wrap: Any) -> None:
    first, last = slice(None, 500), slice(500, None)
    model = KNeighborsClassifier().fit(X_TRAIN[first], Y_TRAIN[first])
    inner, cv = wrap(model)
    rejecting = RejectingClassifier(inner, coverage=0.8, cv=cv).fit(X_TRAIN[last], Y_TRAIN[last])
    assert rejecting.rejector_ == by_hand(model.predict_proba(X_TRAIN[last]), Y_TRAIN[last], coverage=0.8)
    np.testing.assert_array_equal(rejecting.estimator_.predict(X_TEST), model.predict(X_TEST))


def test_a_guarantee_holds_rows_out_of_the_model() -> None:
    model = RejectingClassifier(RandomForestClassifier(20, random_state=0), accuracy=0.9, confidence=0.9).fit(X, Y)
    rule, held = model.rejector_.need_threshold(), round(HELD_OUT * len(Y))
    assert (rule.rule.confidence, rule.rule.reused) == (0.9, False)
    assert rule.rows == held - round(held / 5)  # a fifth fits
    assert model.rejector_.need_calibration().rows == round(held / 5)
    one = ShuffleSplit(1, test_size=540, random_state=1)
    forest = RejectingClassifier(RandomForestClassifier(20, random_state=0), risk=0.1, confidence=0.9, cv=one)
    assert forest.fit(X, Y).rejector_.need_threshold().rows == 432
    with pytest.raises(ValueError, match="requires one model, but cv gives 5"):
        RejectingClassifier(KNeighborsClassifier(), accuracy=0.9, confidence=0.9, cv=5).fit(X, Y)
    with pytest.raises(drrej.Infeasible, match="cannot be certified"):
        RejectingClassifier(KNeighborsClassifier(), accuracy=0.9999, confidence=0.95).fit(X, Y)


def test_a_class_that_a_fold_does_not_know_has_the_lowest_score() -> None:
    few = np.concatenate([np.flatnonzero(Y_TRAIN < 3)[:120], np.flatnonzero(Y_TRAIN == 9)[:1]])
    with pytest.warns(UserWarning, match="least populated class"):
        model = RejectingClassifier(KNeighborsClassifier(), coverage=0.9, cv=3).fit(X_TRAIN[few], Y_TRAIN[few])
    assert model.classes_.tolist() == [0, 1, 2, 9]
    assert model.predict_proba(X_TEST).shape == (len(X_TEST), 4)


def test_weights_go_to_the_model_alone() -> None:
    few, labels = X_TRAIN[:300], Y_TRAIN[:300]
    weight = np.where(labels == 3, 5.0, 1.0)
    model = RejectingClassifier(LogisticRegression(max_iter=3000), coverage=0.9, cv=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weighted = clone(model).fit(few, labels, sample_weight=weight)
        plain = LogisticRegression(max_iter=3000).fit(few, labels, sample_weight=weight)
        with sklearn.config_context(enable_metadata_routing=True):
            asked = LogisticRegression(max_iter=3000).set_fit_request(sample_weight=True)
            routed = RejectingClassifier(asked, coverage=0.9, cv=3).fit(few, labels, sample_weight=weight)
    np.testing.assert_array_equal(weighted.estimator_.coef_, plain.coef_)
    np.testing.assert_array_equal(routed.estimator_.coef_, plain.coef_)
    assert routed.rejector_ == weighted.rejector_


# What it answers


@pytest.mark.parametrize(
    ("classes", "label", "expected"),
    [
        (np.array([0, 1]), "auto", -1),
        (np.array([-1, 1]), "auto", -2),
        (np.array([0.0, 1.0]), "auto", -1),
        (np.array(["benign", "malign"]), "auto", "rejected"),
        (np.array(["benign", "malign"], object), "unknown", "unknown"),
        (np.array([0, 1]), "ask", "ask"),
        (np.array([False, True]), None, None),
        (np.array([0, 1]), 99, 99),
    ],
)
def test_the_label_of_rejected_rows(classes: np.ndarray, label: Any, expected: Any) -> None:
    model = RejectingClassifier(GaussianNB(), coverage=0.8, cv=3, reject_label=label).fit(BINARY[0], classes[BINARY[1]])
    assert model.reject_label_ == expected
    rejected, predicted = model.reject(BINARY[0]), model.predict(BINARY[0])
    assert 0 < rejected.sum() < len(rejected)
    assert all(value == expected for value in predicted[rejected])
    assert set(predicted[~rejected].tolist()) == set(classes.tolist())
    np.testing.assert_array_equal(predicted[~rejected], model.predict_all(BINARY[0])[~rejected])
    if isinstance(expected, str) == isinstance(classes[0], str) and classes.dtype.kind in "ifU":
        assert predicted.dtype.kind == classes.dtype.kind


def test_the_score_is_the_accuracy_of_the_accepted(fitted: RejectingClassifier) -> None:
    accepted = ~fitted.reject(X_TEST)
    right = fitted.predict_all(X_TEST) == Y_TEST
    assert fitted.score(X_TEST, Y_TEST) == right[accepted].mean()
    weight = np.arange(len(Y_TEST))
    assert fitted.score(X_TEST, Y_TEST, weight) == np.average(right[accepted], weights=weight[accepted])
    assert coverage_score(fitted, X_TEST) == pytest.approx(accepted.mean(), abs=1e-12)
    none = RejectingClassifier(GaussianNB(), promises={"max_loss": 1e-300}).fit(X_TRAIN[:200], Y_TRAIN[:200])
    doubtful = np.argsort(none.predict_proba(X_TEST).max(axis=1))[:3]
    assert np.isnan(none.score(X_TEST[doubtful], Y_TEST[doubtful]))


def test_decisions_are_log_odds(fitted: RejectingClassifier) -> None:
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(fitted.decision_function(X_TEST), np.log(fitted.predict_proba(X_TEST)))
    binary = RejectingClassifier(LOGISTIC, coverage=0.9).fit(*BINARY)
    p = binary.predict_proba(BINARY[0])
    np.testing.assert_allclose(binary.decision_function(BINARY[0]), np.log(p[:, 1]) - np.log(p[:, 0]))


class Pairs(ClassifierMixin, BaseEstimator):
    """A classifier whose decisions are for pairs of classes."""

    def fit(self, X: Any, y: Any) -> Pairs:  # noqa: ARG002, N803
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X: Any) -> np.ndarray:  # noqa: N803
        return np.zeros((len(X), 45))


@pytest.mark.parametrize(
    ("model", "error", "said"),
    [
        (RejectingClassifier(GaussianNB()), drrej.DrrejError, "exactly one rule"),
        (
            RejectingClassifier(GaussianNB(), promises={"max_loss": 0.9}, coverage=0.9),
            drrej.DrrejError,
            "exactly one rule",
        ),
        (RejectingClassifier(GaussianNB(), coverage=0.9, reject_label=3), ValueError, "is one of the classes"),
        (RejectingClassifier(GaussianNB(), coverage=0.9, response_method="x"), ValueError, "response_method='x'"),
        (RejectingClassifier(GaussianNB(), coverage=0.9, cv="prefit"), ValueError, "not fitted"),
        (RejectingClassifier(Pairs(), coverage=0.9), ValueError, r"shape \(\d+, 45\) for 10 classes"),
    ],
)
def test_what_cannot_be_fitted(model: RejectingClassifier, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        model.fit(X_TRAIN, Y_TRAIN)


@pytest.mark.parametrize(
    ("promises", "asked"),
    [
        ({"reviews": 300, "per": 1000}, "`reviews=300` `per=1000`"),
        ({"overall_risk": 0.1, "reviewer_accuracy": 0.97}, "`overall_risk=0.1`"),
        ({"max_missed": {3: 0.2}, "review_cost": 1.0, "error_cost": 20.0}, "`max_missed=3=0.2` `review_cost=1`"),
    ],
)
def test_promises_take_what_belongs_to_them(promises: dict[str, Any], asked: str) -> None:
    model = RejectingClassifier(GaussianNB(), promises=promises).fit(X_TRAIN, Y_TRAIN)
    rule = model.rejector_.need_threshold().rule
    assert rule.asked.startswith(asked)
    assert rule.promises[0].reviewer_accuracy == promises.get("reviewer_accuracy")
    assert (rule.review_cost, rule.error_cost) == (promises.get("review_cost"), promises.get("error_cost"))
    assert 0 < model.coverage_ < 1


def test_labels_that_a_prefit_model_does_not_know() -> None:
    known = KNeighborsClassifier().fit(X_TRAIN[Y_TRAIN < 5], Y_TRAIN[Y_TRAIN < 5])
    with pytest.raises(ValueError, match="not among the classes of the model"):
        RejectingClassifier(known, coverage=0.9, cv="prefit").fit(X_TEST, Y_TEST)


# A model of each kind, on real data, to the end

MODELS = {
    "knn": KNeighborsClassifier(),
    "forest": RandomForestClassifier(30, random_state=0),
    "logistic": make_pipeline(StandardScaler(), LogisticRegression()),
    "bayes": GaussianNB(),
    "boosting": GradientBoostingClassifier(n_estimators=8, max_depth=2, random_state=0),
}


@pytest.mark.parametrize("kind", [kind if kind in ("knn", "logistic") else thorough(kind) for kind in MODELS])
def test_a_model_of_each_kind_to_the_end(kind: str, tmp_path: Path) -> None:
    """Probabilities of digits, exact zeros among them, have the same decisions by estimator and by command line."""
    model = RejectingClassifier(MODELS[kind], coverage=0.8, cv=3).fit(X_TRAIN, Y_TRAIN)
    p = model.estimator_.predict_proba(X_TEST)
    assert (p == 0).any() == (kind in ("knn", "forest", "bayes"))
    held = cross_val_predict(MODELS[kind], X_TRAIN, Y_TRAIN, cv=3, method="predict_proba")
    for name, scores, labels in (("val", held, Y_TRAIN), ("test", p, Y_TEST)):
        pq.write_table(pa.table({"probs": list(scores), "label": labels}), tmp_path / f"{name}.parquet")
    at = {name: str(tmp_path / name) for name in ("val.parquet", "test.parquet", "r.json", "m.parquet")}
    succeed("calibrate", at["val.parquet"], "--input", "probs", "-q", "-o", at["r.json"])
    succeed("fit", at["val.parquet"], "-r", at["r.json"], "-q", "-o", at["r.json"])
    succeed("threshold", at["val.parquet"], "-r", at["r.json"], "--coverage", "0.8", "-q", "-o", at["r.json"])
    succeed("reject", at["test.parquet"], "-r", at["r.json"], "-q", "-o", at["m.parquet"])
    mask = read_columns(at["m.parquet"])
    np.testing.assert_array_equal(model.reject(X_TEST), mask["rejected"])
    np.testing.assert_array_equal(model.predict_all(X_TEST), mask["prediction"])
    np.testing.assert_array_equal(model.rejector_.score(p).loss, mask["loss"])
    assert np.isfinite(model.predict_proba(X_TEST)).all()
    assert model.score(X_TEST, Y_TEST) > (MODELS[kind].fit(X_TRAIN, Y_TRAIN).score(X_TEST, Y_TEST))


def test_a_prefit_model_that_is_always_right_is_asked_about() -> None:
    from sklearn.tree import DecisionTreeClassifier

    model = DecisionTreeClassifier(random_state=0).fit(X_TRAIN, Y_TRAIN)
    with pytest.warns(DrrejWarning, match="are these the rows that it was trained on"):
        RejectingClassifier(model, coverage=0.9, cv="prefit").fit(X_TRAIN, Y_TRAIN)


@pytest.mark.parametrize("model", [LogisticRegression(max_iter=500), DecisionTreeClassifier(max_depth=3)])
def test_training_rows_of_a_prefit_model_are_asked_about(model: Any) -> None:
    """The classes are as frequent as the model expects, to many digits; on rows that are new to it they are not."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, 900)
    rows = rng.normal(size=(900, 3)) + labels[:, None]
    model.fit(rows[:400], labels[:400])
    with pytest.warns(DrrejWarning, match="expects as many rows of each class as there are"):
        RejectingClassifier(model, coverage=0.8, cv="prefit").fit(rows[:400], labels[:400])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RejectingClassifier(model, coverage=0.8, cv="prefit").fit(rows[400:], labels[400:])


def test_advice_names_parameters_that_it_has() -> None:
    class Odd(LogisticRegression):  # type: ignore[misc]
        def predict_proba(self, rows: Any) -> Any:
            return super().predict_proba(rows) * np.where(np.arange(len(rows)) == 3, -1, 1)[:, None]

    rows, labels = load_breast_cancer(return_X_y=True)
    model = Odd(max_iter=5000).fit(rows, labels)
    with pytest.raises(DumpError, match=r"a negative probability; .*; is `response_method` the one") as raised:
        RejectingClassifier(model, coverage=0.8, cv="prefit").fit(rows, labels)
    assert "input=" not in str(raised.value)
