"""A scikit-learn classifier that may say "I don't know" (extra `sklearn`)."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import ShuffleSplit, check_cv, cross_validate
from sklearn.utils import column_or_1d, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from drrej.api.fitting import ClassTarget, Target, fit_rejector, rule_of
from drrej.core.calibrators import CalibratorName
from drrej.core.reuse import content_keys
from drrej.errors import DrrejWarning, DumpError

__all__ = ["RejectingClassifier", "coverage_score"]

_MANY = 50
"""Rows that a model is hardly right in all of, unless it was trained on them."""

HELD_OUT = 0.4
"""Share of the rows that a guarantee takes from the model."""


def _like_training(scores: Any, y: Any, classes: Any, probabilities: bool) -> str:
    """What a model does on its training rows as a rule, and on others hardly ever, if it does so on these.

    Most models that are fitted by likelihood, and trees, give each class there the probability that it has, on average:
    on others one model in 200 comes as near to it by chance.
    """
    if len(y) < _MANY:
        return ""
    if (classes[scores.argmax(axis=1)] == y).all():
        return f"is right in all {len(y)} rows"
    if not probabilities:
        return ""
    off = np.abs(scores.mean(axis=0) - (y[:, None] == classes).mean(axis=0))
    error = np.sqrt((scores * (1 - scores)).mean(axis=0) / len(y))
    near = min(0.25, 1.25 * 0.005 ** (1 / (classes.size - 1)))
    return "expects as many rows of each class as there are" if (off <= near * error).all() else ""


class RejectingClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier with a reject option: the model, calibrated, with a threshold on its expected loss.

    Parameters
    ----------
    estimator : classifier with `predict_proba` or `decision_function`
    accuracy, risk, coverage : float
        The target, exactly one of these. It holds on the rows that the threshold is chosen on, see
        `drrej.fit_rejector`. An accuracy or a risk may be a dictionary from classes to targets.
    promises : dict, optional
        Other targets of `drrej.fit_rejector`: `max_missed`, `overall_risk`, `reviewer_accuracy`, `reviews` and `per`,
        which hold together, such as `{"max_missed": {"fraud": 0.05}}`, and `review_cost` and `error_cost` beside them;
        or `max_loss` alone.
    confidence : float, optional
        Makes accuracy, risk or coverage a guarantee for new rows like these. It is about the fitted model itself, so it
        needs rows that this model has not seen: a prefit model, or a split into training and held-out rows.
        `drrej.Infeasible` is raised if nothing can be certified.
    loss, calibrator
        As in `drrej.fit_rejector`. (Its `alpha`, `lam` and `tau` do not change the order of rows, which is all that
        matters here.)
    cv : int, splitter, iterable of (train, test), "prefit", or None
        Where held-out scores come from. Folds (None: 5): each fold is scored by a model that was fitted on the others,
        and `estimator_` is then fitted on all rows. One split: `estimator_` is fitted on its training rows and
        calibrated on the others; None with `confidence` holds out 40 % at random. "prefit", or a `FrozenEstimator`:
        the model is used as it is, and all rows calibrate. (`clone` forgets a fit, so grids and cross-validation
        need a `FrozenEstimator`.)
    reject_label : label, default "auto"
        What `predict` returns for a rejected row. "auto": -1 for numbers (or the smallest class minus one, if -1 is a
        class), "rejected" for text.
    response_method : {"auto", "predict_proba", "decision_function"}
        Which scores of the model to use; "auto" takes probabilities if there are any.

    Attributes
    ----------
    estimator_ : the fitted model
    rejector_ : drrej.Rejector, which the command line reads too
    classes_ : labels (classes,)
    coverage_ : share of accepted rows among those that the threshold was chosen on
    reject_label_ : what `predict` returns for a rejected row

    Fit parameters such as `sample_weight` are passed to the model only.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = RejectingClassifier(LogisticRegression(max_iter=500), accuracy=0.99).fit(X, y)
    >>> model.predict(X[[0, 70]])  # the second is between two species
    array([ 0, -1])
    >>> round(model.coverage_, 2), round(model.score(X, y), 2)
    (0.92, 0.99)

    """

    def __init__(
        self,
        estimator: Any,
        *,
        accuracy: ClassTarget = None,
        risk: ClassTarget = None,
        coverage: float | None = None,
        promises: Mapping[str, Any] | None = None,
        confidence: float | None = None,
        loss: str = "auto",
        calibrator: CalibratorName = "temperature",
        cv: Any = None,
        reject_label: Any = "auto",
        response_method: str = "auto",
    ) -> None:
        self.estimator = estimator
        self.accuracy = accuracy
        self.risk = risk
        self.coverage = coverage
        self.promises = promises
        self.confidence = confidence
        self.loss = loss
        self.calibrator = calibrator
        self.cv = cv
        self.reject_label = reject_label
        self.response_method = response_method

    def fit(self, X: Any, y: Any, **params: Any) -> RejectingClassifier:
        """Fit the model, then calibrate it and choose the threshold on held-out scores."""
        X, y = indexable(X, y)
        if y is None:
            raise ValueError("RejectingClassifier requires y to be passed, but the target y is None")
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if get_config()["enable_metadata_routing"]:
            params = process_routing(self, "fit", **params).estimator.fit
        rules = {name: getattr(self, name) for name in ("accuracy", "risk", "coverage")}
        rules |= self.promises or {}
        rule_of(cast(Target, rules | {"confidence": self.confidence}))  # raises before any work
        self.estimator_, self.classes_, held_out = self._held_out(X, y, params)
        self.reject_label_ = self._label_of_rejected()
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        scores, true, inputs = zip(*held_out, strict=True)
        labels = np.concatenate(true)
        numbers = np.searchsorted(self.classes_, labels).clip(max=self.classes_.size - 1)
        unknown = labels[self.classes_[numbers] != labels]
        if unknown.size:
            raise ValueError(f"y holds the label {unknown[0]!r}, which is not among the classes of the model")
        text = self.classes_.dtype.kind in "OU" and all(isinstance(name, str) for name in self.classes_)
        with _own_advice():
            self.rejector_ = fit_rejector(
                np.concatenate(scores),
                numbers,
                **{name: self._by_name(target, text) for name, target in rules.items()},
                confidence=self.confidence,
                loss=self.loss,
                calibrator=self.calibrator,
                groups=None if self.confidence is None else np.concatenate([_examples(rows) for rows in inputs]),
                input="probs" if self._method(self.estimator_) == "predict_proba" else "logits",
                classes=[str(name) for name in self.classes_] if text else None,
            )
        self.coverage_ = self.rejector_.need_threshold().coverage
        return self

    def _by_name(self, target: Any, text: bool) -> Any:
        """A target by classes, with these as the rejector calls them: by their numbers unless they are texts."""
        if not isinstance(target, Mapping) or text:
            return target
        known = {name: str(number) for number, name in enumerate(self.classes_.tolist())} | {"": ""}
        return {known.get(name, str(name)): each for name, each in target.items()}

    def _held_out(self, X: Any, y: Any, params: dict[str, Any]) -> tuple[Any, Any, list[tuple[Any, Any, Any]]]:
        """The model, its classes, and rows that were not used to fit what scored them: scores, labels and inputs."""
        if isinstance(self.estimator, FrozenEstimator) or (isinstance(self.cv, str) and self.cv == "prefit"):
            check_is_fitted(self.estimator)
            classes = np.asarray(self.estimator.classes_)
            scores = self._response(self.estimator, X, classes)
            reason = _like_training(scores, y, classes, self._method(self.estimator) == "predict_proba")
            if reason:
                words = "are these the rows that it was trained on? It needs others to be calibrated"
                warnings.warn(f"the prefit model {reason}; {words}", DrrejWarning, stacklevel=3)
            return self.estimator, classes, [(scores, y, X)]
        classes = np.unique(y)
        if classes.size < 2:
            raise ValueError(
                f"a classifier needs rows of two classes or more, but the labels hold {classes.size} class"
            )
        cv = check_cv(self.cv, y, classifier=True)
        if self.cv is None and self.confidence is not None:
            cv = ShuffleSplit(1, test_size=HELD_OUT, random_state=0)
        splits = list(cv.split(X, y))
        if self.confidence is not None and len(splits) != 1:
            raise ValueError(
                f"confidence={self.confidence:g} requires one model, but cv gives {len(splits)}; leave cv out to hold "
                f"out {HELD_OUT:.0%} of the rows, or pass one split, or a prefit model with rows that it has not seen"
            )
        held_out: list[tuple[Any, Any, Any]] = []

        def keep(model: Any, rows: Any, true: Any) -> float:
            held_out.append((self._response(model, rows, classes), np.asarray(true), rows))
            return 0.0

        done = cross_validate(
            clone(self.estimator),
            X,
            y,
            cv=splits,
            scoring=keep,
            params=params,
            return_estimator=True,
            error_score="raise",
        )
        model = done["estimator"][0] if len(splits) == 1 else clone(self.estimator).fit(X, y, **params)
        return model, classes, held_out

    def _method(self, model: Any) -> str:
        """The method of a model that gives the scores."""
        method = self.response_method
        if method not in ("auto", "predict_proba", "decision_function"):
            raise ValueError(f"response_method={method!r}: it must be auto, predict_proba or decision_function")
        if method == "auto":
            method = "predict_proba" if hasattr(model, "predict_proba") else "decision_function"
        return method

    def _response(self, model: Any, X: Any, classes: Any) -> Any:
        """Scores of a model in the order of all classes: those that it has not seen have the lowest."""
        method = self._method(model)
        scores = np.asarray(getattr(model, method)(X))
        if scores.ndim == 1:  # of the second class
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        seen = np.searchsorted(classes, model.classes_)
        if scores.ndim != 2 or scores.shape[1] != seen.size:
            raise ValueError(
                f"{method} gives scores of the shape {scores.shape} for {seen.size} classes; one score per class is "
                "needed (such as decision_function_shape='ovr')"
            )
        lowest = 0 if method == "predict_proba" else scores.min(axis=1, keepdims=True)
        complete = np.full((len(scores), classes.size), lowest, scores.dtype)
        complete[:, seen] = scores
        return complete

    def _label_of_rejected(self) -> Any:
        classes, label = self.classes_, self.reject_label
        if isinstance(label, str) and label == "auto":
            if classes.dtype.kind not in "biuf":
                label = "rejected"
            else:
                label = -1 if -1 not in classes else classes.min() - 1
        if any(label == known for known in classes.tolist()):
            raise ValueError(f"reject_label={label!r} is one of the classes; choose another label")
        return label

    def _decided(self, X: Any) -> tuple[Any, Any]:
        """Labels (rows,) of all rows, and which are rejected."""
        check_is_fitted(self)
        with _own_advice():
            predicted, rejected = self.rejector_.predict(self._response(self.estimator_, X, self.classes_))
        return (predicted if self.rejector_.class_names is not None else self.classes_[predicted]), rejected

    def reject(self, X: Any) -> Any:
        """Which rows are rejected (rows,)."""
        return self._decided(X)[1]

    def predict(self, X: Any) -> Any:
        """Labels (rows,), and the reject label for rejected rows."""
        labels, rejected = self._decided(X)
        if not rejected.any():
            return labels.astype(self.classes_.dtype, copy=False)
        label = self.reject_label_
        text = labels.dtype.kind == "U" and isinstance(label, str)
        number = isinstance(label, int | float | np.number) and not isinstance(label, bool)
        if text or (number and labels.dtype.kind in "iuf"):  # one type holds both
            return np.where(rejected, np.array(label), labels)
        labels = labels.astype(object)
        labels[rejected] = label
        return labels

    def predict_all(self, X: Any) -> Any:
        """Labels (rows,) of all rows, as if nothing were rejected."""
        return self._decided(X)[0].astype(self.classes_.dtype, copy=False)

    def predict_proba(self, X: Any) -> Any:
        """Calibrated probabilities (rows x classes) of all rows, rejected or not."""
        check_is_fitted(self)
        return self.rejector_.probabilities(self._response(self.estimator_, X, self.classes_))

    def decision_function(self, X: Any) -> Any:
        """Calibrated log-odds: ln p (rows x classes), or of two classes ln p₁ / p₀ (rows,)."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.predict_proba(X))
        return logs[:, 1] - logs[:, 0] if self.classes_.size == 2 else logs

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy of the accepted rows; NaN if none is accepted."""
        labels, rejected = self._decided(X)
        weight = ~rejected if sample_weight is None else ~rejected * np.asarray(sample_weight)
        if not weight.sum():
            return float("nan")
        return float(np.average(labels == np.asarray(y), weights=weight))

    def get_metadata_routing(self) -> MetadataRouter:
        """What `fit` is given goes to the `fit` of the model."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=type(self).__name__).add(estimator=self.estimator, method_mapping=mapping)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator).input_tags
        tags.input_tags.sparse, tags.input_tags.pairwise = inner.sparse, inner.pairwise
        tags.input_tags.allow_nan = inner.allow_nan
        return tags


def coverage_score(estimator: RejectingClassifier, X: Any, y: Any = None) -> float:  # noqa: ARG001 - as scorers are called
    """Share of the rows that are accepted: `scoring=coverage_score` of a search, for models of a given accuracy.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> coverage_score(RejectingClassifier(LogisticRegression(max_iter=500), coverage=1.0).fit(X, y), X)
    1.0
    """
    return float(1.0 - np.mean(estimator.reject(X)))


@contextlib.contextmanager
def _own_advice() -> Iterator[None]:
    """What is wrong with the scores of a model, without advice on parameters that only arrays have."""
    try:
        yield
    except DumpError as error:
        advice = "; is `response_method` the one that gives the model's scores?"
        raise type(error)(re.sub(r"; [^;]*`(?:input|normalize)=.*", advice, str(error))) from None


def _examples(X: Any) -> Any:
    """A number for each row of X, the same for equal rows."""
    if hasattr(X, "toarray"):  # sparse
        X = X @ np.random.default_rng(0).normal(size=(X.shape[1], 2))
    rows = np.asarray(X)
    if rows.dtype.kind in "biuf":
        return content_keys(rows.reshape(len(rows), -1).astype(np.float64)).view(np.int64)
    known: dict[str, int] = {}
    return np.array([known.setdefault(repr(row), len(known)) for row in rows.tolist()], np.int64)
