"""Every dump at hand: others' networks, models of scikit-learn, perceptrons, and the networks of the paper's table."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

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


def all_dumps(data: Path, work: Path, paper: Path | None = None) -> Iterator[Dump]:
    """What is there: a dump that is missing is left out, and the page counts what it is made of."""
    yield from published(data)
    yield from sklearn_models(data, work / "sklearn")
    yield from perceptrons(work / "networks")
    if paper is not None:
        yield from paper_folds(paper)


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


# Features, and the models of scikit-learn


def features(data: Path, name: str) -> tuple[Array, Array]:
    """A data set's features (rows x columns) and class numbers."""
    if name == "digits":
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
    else:
        with np.load(data / f"{FILES[name]}.npz") as arrays:
            x, y = arrays["X"], arrays["y"]
        x = x.reshape(len(y), -1).astype(np.float64) / (255.0 if name == "MNIST" else 1.0)
    return x, np.unique(y, return_inverse=True)[1].astype(np.int64)


FILES = {"HAR": "har", "gas": "gas_drift", "MNIST": "mnist"}
SIZES = {"HAR": (2500, 2000, 4000), "gas": (1500, 1500, 3500), "MNIST": (2500, 2000, 4000), "digits": (599, 599, 599)}
"""Rows to train, to fit and to test on."""


def sklearn_models(data: Path, work: Path) -> Iterator[Dump]:
    """Six families of models or more on each data set, with probabilities, which are kept in `work`."""
    work.mkdir(parents=True, exist_ok=True)
    for name in SIZES:
        if name in FILES and not (data / f"{FILES[name]}.npz").is_file():
            continue
        kept = work / f"{name}.npz"
        if not kept.exists():
            np.savez(kept, **_predicted(data, name))
        with np.load(kept) as stored:
            arrays = dict(stored)
        for key in (key for key in arrays if key.endswith(" calibration")):
            model = key.removesuffix(" calibration")
            parts = (
                Part(arrays[f"{model} {part}"], arrays[f"{part}_labels"], probs=True)
                for part in ("calibration", "test")
            )
            yield Dump(f"{name}, {model}", f"{name}, {model}", *parts)


def _predicted(data: Path, name: str) -> dict[str, Array]:
    x, y = features(data, name)
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


# Perceptrons with the plain cross-entropy and with smoothed labels, which say less about which rows are wrong

HIDDEN, BATCH = 128, 128
SMOOTHING = {"cross-entropy": 0.0, "smoothed 0.1": 0.1, "smoothed 0.3": 0.3}
TRAINED = {"digits": (899, 449, 449, 60), "HAR": (4000, 2500, 3799, 40), "gas": (2500, 1700, 2497, 60)}
TRAINED |= {"MNIST": (6000, 5000, 20000, 30)}
"""Rows to train, to fit and to test on, and epochs."""


def perceptrons(work: Path) -> Iterator[Dump]:
    """Those that `train_perceptrons` has left, with logits."""
    for path in sorted(work.glob("*.npz")):
        with np.load(path) as arrays:
            parts = [Part(arrays[f"{part} logits"], arrays[f"{part} labels"], probs=False) for part in ("val", "test")]
        yield Dump(path.stem, path.stem, *parts)


def train_perceptrons(data: Path, work: Path, say: Callable[[str], object] = lambda _: None) -> None:
    """Every data set with every smoothing; what is there already is not trained again."""
    import torch

    torch.set_num_threads(1)
    work.mkdir(parents=True, exist_ok=True)
    for name in (name for name in TRAINED if name not in FILES or (data / f"{FILES[name]}.npz").is_file()):
        missing = [title for title in SMOOTHING if not (work / f"{name}, MLP, {title}.npz").exists()]
        if not missing:
            continue
        x, labels = features(data, name)
        *sizes, epochs = TRAINED[name]
        order = np.random.default_rng(0).permutation(len(labels))
        rows = dict(zip(("train", "val", "test"), np.split(order, np.cumsum(sizes)), strict=False))
        mean, std = x[rows["train"]].mean(axis=0), x[rows["train"]].std(axis=0)
        inputs = torch.from_numpy(((x - mean) / np.where(std > 0, std, 1)).clip(-10, 10).astype(np.float32))
        for title in missing:
            own = rows["train"]
            network = _perceptron(inputs[own], torch.from_numpy(labels[own]), epochs, SMOOTHING[title])
            kept: dict[str, Array] = {}
            for part in ("val", "test"):
                with torch.inference_mode():
                    kept[f"{part} logits"] = network(inputs[rows[part]]).numpy()
                kept[f"{part} labels"] = labels[rows[part]]
            np.savez(work / f"{name}, MLP, {title}.npz", **kept)
            say(f"{name}, MLP, {title}")


def _perceptron(inputs: Any, labels: Any, epochs: int, smoothing: float) -> Any:
    import torch
    from torch import nn

    torch.manual_seed(0)
    hidden = (nn.Linear(inputs.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
    network = nn.Sequential(*hidden, nn.Linear(HIDDEN, int(labels.max()) + 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-5)
    loss = nn.CrossEntropyLoss(label_smoothing=smoothing)
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(labels)), BATCH):
            optimizer.zero_grad()
            loss(network(inputs[batch]), labels[batch]).backward()
            optimizer.step()
    return network.eval()
