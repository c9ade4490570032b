"""Every dump at hand: others' networks, models of scikit-learn, and the networks of the paper's table."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.paper.data import DataMissingError, load

Array = np.ndarray[Any, Any]

MEDMNIST = {"octmnist": "OctMNIST", "organsmnist": "OrganSMNIST"}
HALVES = 5
PAPER = {"har": "HAR", "gas_drift": "gas", "mnist": "MNIST", "cifar10": "CIFAR-10"}


@dataclass(frozen=True)
class Part:
    """Outputs of a model (rows x classes), logits or probabilities, and labels (rows,)."""

    outputs: Array
    labels: Array
    probs: bool

    @property
    def wrong(self) -> Array:
        """Which rows are classified wrongly; the first of equal outputs is the prediction."""
        return np.asarray(self.outputs.argmax(axis=1) != self.labels)

    @property
    def sorted(self) -> Array:
        """Each row's outputs as float64, the largest first."""
        return -np.sort(-self.outputs.astype(np.float64), axis=1)

    def take(self, rows: Array) -> Part:
        """Some of the rows."""
        return Part(self.outputs[rows], self.labels[rows], self.probs)

    def joined(self, other: Part) -> Part:
        """Both."""
        outputs, labels = ((self.outputs, other.outputs), (self.labels, other.labels))
        return Part(np.concatenate(outputs), np.concatenate(labels), self.probs)


@dataclass(frozen=True)
class Dump:
    """A model's outputs on rows to fit on and on test rows; dumps of one experiment are its folds or splits."""

    name: str
    experiment: str
    fit: Part
    test: Part
    shifted: bool = False
    """The test rows are known not to be like the others."""


def all_dumps(data: Path, work: Path, paper: Path | None = None, only: str = "") -> Iterator[Dump]:
    """What is there and has `only` in its name; a dump that is missing is left out."""
    found = chain(published(data), sklearn_models(data, work, only), paper_folds(paper) if paper else ())
    return (dump for dump in found if only in dump.name)


def published(data: Path) -> Iterator[Dump]:
    """Outputs that others published. MedMNIST has its official splits, and random halves of the validation rows."""
    for folder, name in (
        ("cifar10_densenet40", "CIFAR-10, DenseNet-40"),
        ("cifar100_densenet_probs", "CIFAR-100, DenseNet-BC-100"),
    ):
        if (data / folder).is_dir():
            yield Dump(name, name, *read_both(data / folder))
    for path in sorted((data / "medmnist_resnet").glob("*_resnet*")):
        dataset, network = path.name.split("_resnet")
        name = f"{MEDMNIST[dataset]}, ResNet-{network}"
        val, test = read_both(path)
        yield Dump(f"{name}, official test rows", f"{name}, official test rows", val, test, shifted=True)
        for number, (fit, rest) in enumerate(halves(val), 1):
            yield Dump(f"{name}, half {number}", f"{name}, halves of validation", fit, rest)


def halves(part: Part, count: int = HALVES) -> Iterator[tuple[Part, Part]]:
    """Random halves: one to fit on, one to test on."""
    for seed in range(count):
        first, second = np.array_split(np.random.default_rng(seed).permutation(len(part.labels)), 2)
        yield part.take(np.sort(first)), part.take(np.sort(second))


def read_both(folder: Path) -> tuple[Part, Part]:
    """Its validation and test rows."""
    val, test = (read(folder / f"{part}.parquet") for part in ("val", "test"))
    return val, test


def read(path: Path) -> Part:
    """Lists of logits or probabilities, or one column for each class."""
    table = pq.read_table(path)
    names, labels = table.column_names, table["label"].to_numpy()
    if column := next((name for name in ("logits", "probs") if name in names), None):
        values = table[column].combine_chunks().flatten().to_numpy().reshape(len(labels), -1)
        return Part(values, labels, column == "probs")
    columns = sorted((name for name in names if name.startswith("prob_")), key=lambda name: int(name[5:]))
    return Part(np.column_stack([table[name].to_numpy() for name in columns]), labels, probs=True)


def paper_folds(work: Path) -> Iterator[Dump]:
    """Folds that `python -m benchmarks.paper train` has left, with logits."""
    for path in sorted(work.glob("*/noise*/fold*/test.parquet")):
        dataset, noise, fold = path.parts[-4:-1]
        if dataset in PAPER and noise in ("noise0", "noise25"):
            name = f"{PAPER[dataset]}, paper's network, {'clean' if noise == 'noise0' else '25 % flipped'}"
            yield Dump(f"{name}, {fold}", name, *read_both(path.parent))


# The models of scikit-learn

SIZES = {"HAR": (2500, 2000, 4000), "gas": (1500, 1500, 3500), "MNIST": (2500, 2000, 4000), "digits": (599, 599, 599)}
"""Rows to train, to fit and to test on."""


def sklearn_models(data: Path, work: Path, only: str = "") -> Iterator[Dump]:
    """Six families of models or more on each data set, with probabilities, which are kept in `work`."""
    work.mkdir(parents=True, exist_ok=True)
    for name in SIZES:
        wanted = [model for model in families(name) if only in f"{name}, {model}"]
        kept = work / f"{name}.npz"
        if wanted and not kept.exists():
            try:
                np.savez(kept, **_predicted(*features(data, name), name))
            except DataMissingError:
                continue
        for model in wanted:
            with np.load(kept) as stored:
                parts = [Part(stored[f"{model} {part}"], stored[f"{part}_labels"], probs=True) for part in PARTS]
            yield Dump(f"{name}, {model}", f"{name}, {model}", *parts)


PARTS = ("calibration", "test")


def features(data: Path, name: str) -> tuple[Array, Array]:
    """A data set's features (rows x columns) and class numbers."""
    if name == "digits":
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        return x, y
    files = {title: file for file, title in PAPER.items()}
    dataset = load(files[name], data)
    scale = 255.0 if name == "MNIST" else 1.0
    return dataset.features.reshape(len(dataset.labels), -1).astype(np.float64) / scale, dataset.labels


def _predicted(x: Array, y: Array, name: str) -> dict[str, Array]:
    order = np.random.default_rng(0).permutation(len(y))
    train, fit, test = np.split(order, np.cumsum(SIZES[name]))[:3]
    out = {"calibration_labels": y[fit], "test_labels": y[test]}
    for label, model in families(name).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a logistic regression stopped early is a model as well
            model.fit(x[train], y[train])
        out |= {f"{label} calibration": model.predict_proba(x[fit]), f"{label} test": model.predict_proba(x[test])}
    return out


def families(name: str) -> dict[str, Any]:
    """Models that are not yet fitted."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB, MultinomialNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    steps = 25 if name in ("MNIST", "HAR") else 60
    models: dict[str, Any] = {
        "kNN 15": make_pipeline(StandardScaler(), KNeighborsClassifier(15)),
        "forest": RandomForestClassifier(100, random_state=0, n_jobs=1),
        "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=150)),
        "boosting": HistGradientBoostingClassifier(max_iter=steps, random_state=0),
        "gaussian NB": GaussianNB(),
        "tree": DecisionTreeClassifier(min_samples_leaf=3, random_state=0),
    }
    if name == "digits":
        models["multinomial NB"] = MultinomialNB()
    if name == "MNIST":
        models["multinomial NB"] = make_pipeline(FunctionTransformer(lambda x: 255 * x), MultinomialNB())
    return models
