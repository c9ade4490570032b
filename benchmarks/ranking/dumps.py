"""Dumps of real data: networks with and without label smoothing, tabular models, trained and read under noise.

Half of them, `KEPT`, were not looked at while the losses and the way to choose them were made.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ranking.models import Network

Array = np.ndarray[Any, Any]

NOISE = 0.25


@dataclass(frozen=True)
class Rows:
    """Logits (or probabilities), and labels."""

    scores: Array
    labels: Array

    def take(self, rows: Array) -> Rows:
        """Some of them."""
        return Rows(self.scores[rows], self.labels[rows])

    def flipped(self, share: float, seed: int) -> Rows:
        """With that share of the labels moved to another class."""
        rng = np.random.default_rng(seed)
        labels, classes = self.labels.copy(), self.scores.shape[1]
        moved = rng.random(labels.size) < share
        labels[moved] = (labels[moved] + rng.integers(1, classes, moved.sum())) % classes
        return Rows(self.scores, labels)


@dataclass(frozen=True)
class Task:
    """Rows to fit and to judge on; `shifted` where those to judge on come from elsewhere."""

    rows: Rows
    probabilities: bool = False
    noise: float = 0.0
    shifted: Rows | None = None


class Data:
    """The data sets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def table(self, name: str) -> tuple[Array, Array]:
        """Features and class numbers."""
        if name in ("digits", "cancer"):
            from sklearn import datasets

            x, y = (datasets.load_digits if name == "digits" else datasets.load_breast_cancer)(return_X_y=True)
        else:
            arrays = np.load(self.folder / f"{name}.npz")
            x, y = arrays["X"], arrays["y"]
            x = x.reshape(len(y), -1).astype(np.float64) / (255.0 if name == "mnist" else 1.0)
        return x, np.unique(y, return_inverse=True)[1]

    def parquet(self, name: str, files: tuple[str, ...]) -> Rows:
        """Stored scores."""
        import pyarrow.parquet as pq

        scores, labels = [], []
        for file in files:
            table = pq.read_table(self.folder / name / f"{file}.parquet")
            if "logits" in table.column_names:
                values = table["logits"].combine_chunks()
                scores.append(np.asarray(values.flatten()).reshape(len(table), -1))
            else:
                named = [c for c in table.column_names if c.startswith("prob_")]
                scores.append(np.stack([table[c].to_numpy() for c in named], axis=1))
            labels.append(table["label"].to_numpy())
        return Rows(np.concatenate(scores), np.concatenate(labels))


def _network(data: Data, name: str, train: int, noise: float = 0.0, flipped: float = 0.0, **how: Any) -> Task:
    x, y = data.table(name)
    order = np.random.default_rng(7).permutation(len(y))
    fitted, rest = order[:train], order[train : train + 8000]
    labels = Rows(np.zeros((train, y.max() + 1)), y[fitted]).flipped(flipped, 3).labels if flipped else y[fitted]
    (logits,) = Network(**how).logits(x[fitted], labels, [x[rest]])
    return Task(Rows(logits, y[rest]), noise=noise)


def _sklearn(data: Data, name: str, train: int, model: Any, logits: bool = False) -> Task:
    x, y = data.table(name)
    order = np.random.default_rng(7).permutation(len(y))
    fitted, rest = order[:train], order[train : train + 8000]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x[fitted], y[fitted])
    scores = model.decision_function(x[rest]) if logits else model.predict_proba(x[rest])
    return Task(Rows(scores, y[rest]), probabilities=not logits)


def _batches(data: Data, first: tuple[int, ...], later: int, model: str) -> Task:
    """Gas sensors age: fitted on some batches, judged on a later one. Every other row of the first trains."""
    arrays = np.load(data.folder / "gas_drift.npz")
    x, y, batch = arrays["X"].astype(np.float64), np.unique(arrays["y"], return_inverse=True)[1], arrays["batch"]
    rows = np.flatnonzero(np.isin(batch, first))
    rows = np.random.default_rng(7).permutation(rows)
    train, fit = np.split(rows, [rows.size // 3])
    shifted = np.flatnonzero(batch == later)
    if model == "logistic":
        classifier = _logistic()
        classifier.fit(x[train], y[train])
        # A class that the first batches lack has no logit: rows of it are errors all the same
        fitted, moved = classifier.decision_function(x[fit]), classifier.decision_function(x[shifted])
    else:
        fitted, moved = Network(smoothing=0.1 if model == "smoothed" else 0.0).logits(
            x[train], y[train], [x[fit], x[shifted]]
        )
    return Task(Rows(fitted, y[fit]), shifted=Rows(moved, y[shifted]))


def _corrupted(data: Data, name: str, train: int, noise: float, **how: Any) -> Task:
    """Fitted on clean rows, judged on rows with noise in their features."""
    x, y = data.table(name)
    order = np.random.default_rng(7).permutation(len(y))
    fitted, rest, later = order[:train], order[train : train + 4000], order[train + 4000 : train + 8000]
    noisy = x[later] + np.random.default_rng(8).normal(0, 1, x[later].shape) * noise * x.std(axis=0)
    clean, moved = Network(**how).logits(x[fitted], y[fitted], [x[rest], noisy])
    return Task(Rows(clean, y[rest]), shifted=Rows(moved, y[later]))


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=150))


def _forest() -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(100, random_state=0, n_jobs=1)


def _boosting() -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(max_iter=25, random_state=0)


Make = Callable[[Data], Task]

SEEN: dict[str, Make] = {
    "cifar10 densenet": lambda d: Task(d.parquet("cifar10_densenet40", ("val", "test"))),
    "har network": lambda d: _network(d, "har", 400),
    "mnist smoothed network": lambda d: _network(d, "mnist", 1500, smoothing=0.1),
    "digits logistic": lambda d: _sklearn(d, "digits", 150, _logistic(), logits=True),
    "gas boosting": lambda d: _sklearn(d, "gas_drift", 400, _boosting()),
    "har forest": lambda d: _sklearn(d, "har", 1000, _forest()),
    "mnist trained on noisy labels": lambda d: _network(d, "mnist", 3000, flipped=0.2),
    "har strongly smoothed network": lambda d: _network(d, "har", 600, smoothing=0.3, seed=2),
    "noise: cifar10 densenet": lambda d: Task(d.parquet("cifar10_densenet40", ("val", "test")), noise=NOISE),
    "noise: har network": lambda d: _network(d, "har", 400, noise=NOISE),
    "shift: gas 1-2 to 4, network": lambda d: _batches(d, (1, 2), 4, "network"),
    "shift: gas 1-2 to 8, network": lambda d: _batches(d, (1, 2), 8, "network"),
    "shift: mnist + noise": lambda d: _corrupted(d, "mnist", 1500, 0.7),
}
KEPT: dict[str, Make] = {
    "cifar100 densenet (probs)": lambda d: Task(
        d.parquet("cifar100_densenet_probs", ("val", "test")), probabilities=True
    ),
    "mnist network": lambda d: _network(d, "mnist", 1500, seed=1),
    "har smoothed network": lambda d: _network(d, "har", 400, smoothing=0.1, seed=1),
    "digits smoothed network": lambda d: _network(d, "digits", 200, smoothing=0.1, seed=1),
    "gas smoothed network": lambda d: _network(d, "gas_drift", 400, smoothing=0.1, seed=1),
    "mnist logistic": lambda d: _sklearn(d, "mnist", 1000, _logistic(), logits=True),
    "har boosting": lambda d: _sklearn(d, "har", 300, _boosting()),
    "gas forest": lambda d: _sklearn(d, "gas_drift", 300, _forest()),
    "gas trained on noisy labels": lambda d: _network(d, "gas_drift", 1500, flipped=0.2, seed=1),
    "noise: cifar100 densenet": lambda d: Task(
        d.parquet("cifar100_densenet_probs", ("val", "test")), probabilities=True, noise=NOISE
    ),
    "noise: mnist smoothed network": lambda d: _network(d, "mnist", 1500, smoothing=0.1, noise=NOISE, seed=1),
    "noise: gas network": lambda d: _network(d, "gas_drift", 400, noise=NOISE, seed=1),
    "shift: gas 1-2 to 4, smoothed": lambda d: _batches(d, (1, 2), 4, "smoothed"),
    "shift: gas 1-2 to 8, smoothed": lambda d: _batches(d, (1, 2), 8, "smoothed"),
    "shift: gas 1-2 to 8, logistic": lambda d: _batches(d, (1, 2), 8, "logistic"),
    "shift: har + noise": lambda d: _corrupted(d, "har", 400, 0.7, seed=1),
}


def task(name: str, data: Path, work: Path) -> Task:
    """A task by its name; what takes time to make is kept in `work`."""
    work.mkdir(parents=True, exist_ok=True)
    kept = work / f"{name.replace(' ', '_').replace(':', '').replace(',', '')}.npz"
    if not kept.exists():
        made = {**SEEN, **KEPT}[name](Data(data))
        later = {} if made.shifted is None else {"later": made.shifted.scores, "later_labels": made.shifted.labels}
        about = np.array([made.probabilities, made.noise])
        np.savez(kept, scores=made.rows.scores, labels=made.rows.labels, about=about, **later)
    a = np.load(kept)
    shifted = Rows(a["later"], a["later_labels"]) if "later" in a else None
    return Task(Rows(a["scores"], a["labels"]), bool(a["about"][0]), float(a["about"][1]), shifted)
