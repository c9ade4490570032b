"""`train`: base networks, and their dumps fold by fold."""

import dataclasses
import json
import platform
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.paper.baselines import BASELINES
from benchmarks.paper.data import NOISE_RATE, NOISE_SEED, SPLIT_SEED, Dataset, Fold, Ints, flip, fold_seed, split
from benchmarks.paper.networks import EXPERIMENTS, Experiment, Settings, Single, Stacked
from benchmarks.paper.training import TRAINING_SEED, Trained, accuracy, outputs_of, train, write_dump

NOISES = ("clean", "noisy")
PARTS = ("val", "test", "train")


@dataclass(frozen=True)
class Task:
    """One network to train: a dataset, with or without label noise, and a fold."""

    dataset: Dataset
    noise: str
    fold: int
    limit: int | None = None  # use only this many rows, for a quick look

    def folder(self, work: Path) -> Path:
        """Where its dumps are."""
        return work / self.dataset.name / self.noise / f"fold{self.fold}"

    @property
    def experiment(self) -> Experiment:
        """Network and settings."""
        return EXPERIMENTS[self.dataset.name]

    def rows(self) -> Fold:
        """Rows of the fold."""
        rows = min(self.limit or len(self.dataset.labels), len(self.dataset.labels))
        return split(rows, self.fold, self.experiment.validation)

    def inputs(self) -> torch.Tensor:
        """Scaled features of all rows."""
        used = self.dataset.features[: self.limit]
        return torch.from_numpy(self.experiment.scaled(used, self.rows().train))

    def training_labels(self) -> Ints:
        """Labels of the training rows, a quarter of them flipped if noisy."""
        labels = self.dataset.labels[self.rows().train]
        return labels if self.noise == "clean" else flip(labels, self.dataset.classes, self.fold)

    def network(self, inputs: torch.Tensor, outputs: int, normalised: bool = False) -> nn.Module:
        """A network that is not yet trained."""
        network = self.experiment.network(inputs.shape[1], outputs, normalised)
        self.experiment.prepare(network, inputs[self.rows().train])
        return network

    def stack(self, inputs: torch.Tensor, outputs: int, normalised: bool, copies: int) -> nn.Module:
        """The same network, not yet trained, as many times as there are copies."""
        network = self.network(inputs, outputs, normalised)
        return Stacked(network, copies) if self.experiment.stacked else Single(network)

    def seeds(self) -> dict[str, int]:
        """All that is random."""
        training, noise = fold_seed(TRAINING_SEED, self.fold), fold_seed(NOISE_SEED, self.fold)
        return {"split": SPLIT_SEED, "training": training} | ({"noise": noise} if self.noise != "clean" else {})


def train_base(task: Task, settings: Settings, work: Path, parts: Collection[str] = PARTS) -> dict[str, Any]:
    """Train the base network of a fold; write the dumps of its parts and a record of how they were made.

    Labels in the dumps are clean; the record says what the network was shown.
    """
    folder, rows, inputs = task.folder(work), task.rows(), task.inputs()
    trained = fit_base(task, settings, inputs, work)
    accuracies = {}
    for name in parts:
        part = rows.parts()[name]
        logits, labels = outputs_of(trained.model, inputs[part], task.experiment.views), task.dataset.labels[part]
        write_dump(folder / f"{name}.parquet", part, logits, labels)
        accuracies[name] = accuracy(logits, labels)
    record = {
        "dataset": task.dataset.name,
        "noise": NOISE_RATE if task.noise == "noisy" else 0.0,
        "fold": task.fold,
        "rows": {name: len(part) for name, part in rows.parts().items()},
        "settings": dataclasses.asdict(settings) | {"epochs": trained.epochs},
        "seeds": task.seeds(),
        "accuracy": accuracies,
        "seconds": round(trained.seconds, 1),
        "versions": versions(),
    }
    (folder / "training.json").write_text(json.dumps(record, indent=1) + "\n")
    return record


def fit_base(task: Task, settings: Settings, inputs: torch.Tensor, work: Path | None = None) -> Trained:
    """The base network; one with a checkpoint of enough epochs is not trained again."""
    return train(
        partial(task.network, inputs, task.dataset.classes),
        inputs[task.rows().train],
        torch.from_numpy(task.training_labels()),
        settings,
        nn.CrossEntropyLoss(),
        fold_seed(TRAINING_SEED, task.fold),
        None if work is None else task.folder(work) / "checkpoint.pt",
    )


def train_baseline(
    task: Task, name: str, costs: Sequence[float], settings: Settings, work: Path
) -> Iterator[dict[str, Any]]:
    """Train a baseline, one network per cost, write the `test` dump of each, and yield its record.

    The column `logits` holds the scores of the K classes and `rejected` the baseline's own decision.
    """
    method, rows, inputs = BASELINES[name], task.rows(), task.inputs()
    labels, base = torch.from_numpy(task.training_labels()), None
    if method.two_stage:
        base = fit_base(task, settings, inputs, work).model
        predicted = torch.from_numpy(outputs_of(base, inputs[rows.train]).argmax(axis=1))
        labels = (predicted != labels).float()
    outputs = method.more_outputs + (0 if base else task.dataset.classes)
    for together in [costs] if task.experiment.stacked else [[cost] for cost in costs]:
        trained = train(
            partial(task.stack, inputs, outputs, method.normalised, len(together)),
            inputs[rows.train],
            labels,
            settings,
            method.training_loss(together),
            fold_seed(TRAINING_SEED, task.fold),
            fused=True,
        )
        scores = outputs_of(trained.model, inputs[rows.test], task.experiment.views)
        base_logits = None if base is None else outputs_of(base, inputs[rows.test], task.experiment.views)
        for cost, own in zip(together, scores, strict=True):
            logits = own[:, : task.dataset.classes] if base_logits is None else base_logits
            rejected = method.rejects(own)
            folder = baseline_folder(task, name, cost, work)
            write_dump(
                folder / "test.parquet", rows.test, logits, task.dataset.labels[rows.test], {"rejected": rejected}
            )
            record = {
                "method": name,
                "fold": task.fold,
                "cost": cost,
                "coverage": float(np.mean(~rejected)),
                "settings": dataclasses.asdict(settings),
                "seeds": task.seeds(),
                "seconds": round(trained.seconds / len(together), 1),
                "versions": versions(),
            }
            (folder / "training.json").write_text(json.dumps(record, indent=1) + "\n")
            yield record


def baseline_folder(task: Task, name: str, cost: float, work: Path) -> Path:
    """Where the dumps of a baseline are."""
    return task.folder(work) / name / f"cost-{cost:.4f}"


def versions() -> dict[str, str]:
    """What the figures depend on."""
    return {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}


def tasks(dataset: Dataset, noises: Sequence[str], folds: Sequence[int], limit: int | None = None) -> list[Task]:
    """One task per noise and fold."""
    return [Task(dataset, noise, fold, limit) for fold in folds for noise in noises]
