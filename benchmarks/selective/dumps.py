"""Every dump at hand: others' networks, models of scikit-learn, and networks trained by this repository."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.floor.models import cases
from benchmarks.selective.scores import Array, Part

PAPER = {
    "har": "HAR, paper's network",
    "gas_drift": "gas, paper's network",
    "mnist": "MNIST, convolutional network",
    "cifar10": "CIFAR-10, residual network",
    "organsmnist": "OrganMNIST, paper's network",
    "octmnist": "OctMNIST, paper's network",
}


@dataclass(frozen=True)
class Dump:
    """A model's outputs on rows to fit on and on test rows; dumps of one group are folds of one experiment."""

    name: str
    group: str
    fit: Part
    test: Part


def shared(data: Path) -> Iterator[Dump]:
    """Outputs that others published."""
    for folder, name in (
        ("cifar10_densenet40", "CIFAR-10, DenseNet"),
        ("cifar100_densenet_probs", "CIFAR-100, DenseNet"),
    ):
        if (data / folder / "val.parquet").is_file():
            yield Dump(name, name, *(_read(data / folder / f"{part}.parquet") for part in ("val", "test")))


def _read(path: Path) -> Part:
    table = pq.read_table(path)
    labels = table["label"].to_numpy()
    if "logits" in table.column_names:
        return Part(stacked(table["logits"].combine_chunks()), labels, probs=False)
    columns = sorted((name for name in table.column_names if name.startswith("prob_")), key=lambda name: int(name[5:]))
    return Part(np.column_stack([table[name].to_numpy() for name in columns]), labels, probs=True)


def stacked(column: object) -> Array:
    """A column of lists of one length as rows x classes."""
    values = column.flatten().to_numpy()  # type: ignore[attr-defined]
    return np.asarray(values.reshape(len(column), -1))  # type: ignore[arg-type]


def sklearn_models(data: Path, work: Path) -> Iterator[Dump]:
    """Six families of models or more on each data set, with probabilities."""
    for case in cases(data, work):
        fit = Part(case.calibration, case.calibration_labels, probs=True)
        yield Dump(case.name, case.name, fit, Part(case.test, case.test_labels, probs=True))


def networks(work: Path) -> Iterator[Dump]:
    """Perceptrons that `python -m benchmarks.selective train` has left, with logits."""
    for path in sorted(work.glob("*.npz")):
        with np.load(path) as arrays:
            parts = [Part(arrays[f"{part} logits"], arrays[f"{part} labels"], probs=False) for part in ("val", "test")]
        yield Dump(path.stem, path.stem, *parts)


def paper(work: Path) -> Iterator[Dump]:
    """Folds that `python -m benchmarks.paper train` has left, with logits."""
    for path in sorted(work.glob("*/*/fold*/test.parquet")):
        dataset, noise, fold = path.parts[-4:-1]
        group = f"{PAPER[dataset]}, {noise}"
        yield Dump(f"{group}, fold {fold[4:]}", group, _read(path.with_name("val.parquet")), _read(path))
