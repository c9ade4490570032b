"""Class probabilities of real models: kNN, forests, trees, naive Bayes, boosting, logistic regression."""

from __future__ import annotations

import re
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

VOCABULARY, TOPICS, DOCUMENTS = 8000, 20, 500


@dataclass(frozen=True)
class Case:
    """Probabilities of a model on calibration and test rows, as float64."""

    data: str
    model: str
    calibration: Array
    calibration_labels: Array
    test: Array
    test_labels: Array

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"{self.data}, {self.model}"


def cases(data: Path, work: Path) -> Iterator[Case]:
    """Every model on every data set that is there; probabilities are kept in `work`."""
    work.mkdir(parents=True, exist_ok=True)
    for name, load in _loaders(data).items():
        kept = work / f"{name}.npz"
        if not kept.exists():
            np.savez(kept, **_predict(name, *load()))
        arrays = dict(np.load(kept))
        labels = arrays["calibration_labels"], arrays["test_labels"]
        for model in [key.removesuffix(" calibration") for key in arrays if key.endswith(" calibration")]:
            yield Case(name, model, arrays[f"{model} calibration"], labels[0], arrays[f"{model} test"], labels[1])


def _loaders(data: Path) -> dict[str, Any]:
    from sklearn import datasets

    def stored(name: str, scale: float = 1.0) -> tuple[Array, Array]:
        arrays = np.load(data / f"{name}.npz")
        return arrays["X"].reshape(len(arrays["y"]), -1).astype(np.float64) / scale, arrays["y"]

    loaders = {
        "HAR": lambda: (*stored("har"), 2500, 2000, 4000),
        "gas": lambda: (*stored("gas_drift"), 1500, 1500, 3500),
        "MNIST": lambda: (*stored("mnist", 255.0), 2500, 2000, 4000),
        "digits": lambda: (*datasets.load_digits(return_X_y=True), 599, 599, 599),
        "cancer": lambda: (*datasets.load_breast_cancer(return_X_y=True), 189, 189, 191),
        "wine": lambda: (*datasets.load_wine(return_X_y=True), 59, 59, 60),
        "text": lambda: (*_text(), 2500, 2500, 3500),
    }
    files = {"HAR": "har", "gas": "gas_drift", "MNIST": "mnist"}
    return {name: load for name, load in loaders.items() if name not in files or (data / f"{files[name]}.npz").exists()}


def _predict(name: str, x: Any, y: Array, train: int, calibration: int, test: int) -> dict[str, Array]:
    order = np.random.default_rng(0).permutation(len(y))
    y = np.unique(y, return_inverse=True)[1]
    rows = np.split(order, [train, train + calibration, train + calibration + test])[:3]
    out = {"calibration_labels": y[rows[1]], "test_labels": y[rows[2]]}
    for label, model in _models(name).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a logistic regression stopped early is a model as well
            model.fit(x[rows[0]], y[rows[0]])
        out[f"{label} calibration"] = model.predict_proba(x[rows[1]])
        out[f"{label} test"] = model.predict_proba(x[rows[2]])
    return out


def _models(name: str) -> dict[str, Any]:
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB, MultinomialNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    dense = name != "text"
    models: dict[str, Any] = {
        "kNN 15": make_pipeline(StandardScaler(with_mean=dense), KNeighborsClassifier(15)),
        "forest": RandomForestClassifier(100, random_state=0, n_jobs=1),
        "logistic": make_pipeline(StandardScaler(with_mean=dense), LogisticRegression(max_iter=150)),
    }
    if dense:
        steps = 25 if name in ("MNIST", "HAR") else 60
        models["boosting"] = HistGradientBoostingClassifier(max_iter=steps, random_state=0)
        models["gaussian NB"] = GaussianNB()
        models["tree"] = DecisionTreeClassifier(min_samples_leaf=3, random_state=0)
    if name in ("text", "digits"):
        models["multinomial NB"] = MultinomialNB(alpha=0.01 if name == "text" else 1.0)
    if name == "MNIST":
        models["multinomial NB"] = make_pipeline(FunctionTransformer(lambda x: 255 * x), MultinomialNB())
    return models


def _text() -> tuple[Any, Array]:
    """Word counts of real texts, the docstrings of installed packages, and which of 20 packages each is from.

    Naive Bayes counts a repeated word as new evidence each time, so its probabilities of long documents underflow.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    found = {folder.name: _docstrings(folder) for folder in Path(sysconfig.get_paths()["purelib"]).iterdir()}
    topics = sorted(found, key=lambda name: (-len(found[name]), name))[:TOPICS]
    texts = [(text, label) for label, name in enumerate(topics) for text in found[name][:DOCUMENTS]]
    counts = CountVectorizer(max_features=VOCABULARY).fit_transform(text for text, _ in texts)
    return counts.astype(np.float64), np.array([label for _, label in texts])


def _docstrings(folder: Path) -> list[str]:
    """The docstrings of a package with at least 25 words, each once."""
    files = sorted(folder.rglob("*.py"))[:800] if (folder / "__init__.py").exists() else []
    texts = (text for file in files for text in re.findall(r'"""(.*?)"""', file.read_text(errors="ignore"), re.DOTALL))
    return sorted({text for text in texts if len(re.findall("[a-z]{3,}", text)) >= 25})
