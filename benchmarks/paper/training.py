"""Training networks fold by fold, their checkpoints, and their dumps."""

import dataclasses
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn
from torch.nn import functional

from benchmarks.paper.data import NOISE_SEED, SPLIT_SEED, Dataset, Floats, Fold, Ints, flip, fold_seed, split
from benchmarks.paper.networks import EXPERIMENTS, Experiment, Network, Settings, alone

TRAINING_SEED = 2
MOMENTUM = 0.9
WARM_UP = 0.2
FORWARD_ROWS = 4096

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Views = Callable[[torch.Tensor], Sequence[torch.Tensor]]


def be_reproducible() -> None:
    """One thread and no kernels that depend on timing: the order of a sum, and so its last bits, depends on both."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # nothing reads it, and it takes a tenth of the time
    torch.set_num_threads(1)


def train(
    build: Callable[[], nn.Module],
    inputs: torch.Tensor,
    labels: torch.Tensor,
    settings: Settings,
    loss: Loss,
    seed: int = TRAINING_SEED,
    checkpoint: Path | None = None,
) -> "Training":
    """Fit a network.

    With a checkpoint, each epoch is saved there, and training that was interrupted goes on from it to the same
    network; a checkpoint of as many epochs as are asked for, or of more, is taken as it is.
    """
    torch.manual_seed(seed)
    model = build()
    optimizer = _optimizer(model, settings)
    state = Training(checkpoint, model, optimizer)
    steps = settings.epochs * -(-len(labels) // settings.batch)
    first_mirrored = torch.rand(len(labels), generator=torch.Generator().manual_seed(seed)) < 0.5
    while state.epochs < settings.epochs:
        start = time.process_time()
        model.train()
        batches = torch.split(torch.randperm(len(labels)), settings.batch)
        for number, batch in enumerate(batches, start=state.epochs * -(-len(labels) // settings.batch)):
            if settings.one_cycle:
                optimizer.param_groups[0]["lr"] = settings.learning_rate * one_cycle(number / steps)
            optimizer.zero_grad()
            # Mirrored in every other epoch: left to chance, half of the rows would look as in the epoch before.
            images = moved(inputs[batch], settings.shift, first_mirrored[batch] ^ bool(state.epochs % 2))
            if state.epochs < settings.small:
                images = functional.interpolate(images, scale_factor=0.75, mode="bilinear", antialias=True)
            loss(model(images), labels[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        state.epoch_done(time.process_time() - start)
    model.eval()
    return state


def _optimizer(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    learnt = [parameter for parameter in model.parameters() if parameter.requires_grad]
    given: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    if settings.momentum:
        return torch.optim.SGD(learnt, momentum=MOMENTUM, nesterov=True, **given)
    return torch.optim.Adam(learnt, **given)


def one_cycle(done: float) -> float:
    """Share of the highest learning rate when a share `done` of all steps is done: up for a fifth, then down to 0."""
    return done / WARM_UP if done < WARM_UP else (1 - done) / (1 - WARM_UP)


def moved(images: torch.Tensor, shift: int, mirrored: torch.Tensor) -> torch.Tensor:
    """Each image mirrored if so said and moved by up to `shift` pixels each way, its edge reflected; as it is for 0."""
    if not shift:
        return images
    rows, side = len(images), images.shape[2]
    padded = functional.pad(images, (shift,) * 4, mode="reflect").permute(0, 2, 3, 1)
    corner = torch.randint(2 * shift + 1, (2, rows, 1))
    across = torch.arange(side).expand(rows, side)
    across = torch.where(mirrored[:, None], side - 1 - across, across) + corner[0]
    down = torch.arange(side) + corner[1]
    picked = padded[torch.arange(rows)[:, None, None], down[:, :, None], across[:, None, :]]
    return picked.permute(0, 3, 1, 2)


class Training:
    """A network, its epochs and the processor seconds they took; with a path, a file there to go on from."""

    def __init__(self, path: Path | None, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.path, self.model, self.optimizer = path, model, optimizer
        self.epochs, self.seconds = 0, 0.0
        if path is not None and path.is_file():
            saved = torch.load(path, weights_only=True)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            torch.set_rng_state(saved["random"])
            self.epochs, self.seconds = saved["epochs"], saved["seconds"]

    def epoch_done(self, seconds: float) -> None:
        """Count an epoch, and save it if there is a path."""
        self.epochs += 1
        self.seconds += seconds
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        state: dict[str, Any] = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        state |= {"random": torch.get_rng_state(), "epochs": self.epochs, "seconds": self.seconds}
        torch.save(state, part)
        part.replace(self.path)


def outputs_of(model: nn.Module, inputs: torch.Tensor, views: Views = alone) -> Floats:
    """The outputs of a network or a stack, some rows at a time; the mean over all views of a row."""
    with torch.inference_mode():
        parts = [
            torch.stack([model(view) for view in views(rows)]).mean(dim=0) for rows in torch.split(inputs, FORWARD_ROWS)
        ]
        return torch.cat(parts, dim=-2).numpy()


def write_dump(path: Path, ids: Ints, logits: Floats, labels: Ints, **more: npt.NDArray[np.generic]) -> None:
    """Write one parquet dump with the columns `id`, `logits`, `label` and any more."""
    table = pa.table(
        {
            "id": ids,
            "logits": pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), logits.shape[1]),
            "label": labels,
            **more,
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    # A dictionary of logits would only add to the size: hardly two are equal.
    pq.write_table(table, path, compression="zstd", use_dictionary=["label"])


def accuracy(logits: Floats, labels: Ints) -> float:
    """Share of rows whose largest logit is the label's."""
    return float(np.mean(logits.argmax(axis=1) == labels))


# The networks of a fold


@dataclass(frozen=True)
class Task:
    """One network to train: a dataset, the share of training labels that are flipped, and a fold."""

    dataset: Dataset
    noise: float
    fold: int

    def folder(self, work: Path) -> Path:
        """Where its dumps are."""
        return work / self.dataset.name / f"noise{round(100 * self.noise)}" / f"fold{self.fold}"

    @property
    def experiment(self) -> Experiment:
        """Network and settings."""
        return EXPERIMENTS[self.dataset.name]

    def rows(self) -> Fold:
        """Rows of the fold."""
        return split(len(self.dataset.labels), self.fold, self.experiment.validation)

    def inputs(self) -> torch.Tensor:
        """Scaled features of all rows."""
        return torch.from_numpy(self.experiment.scaled(self.dataset.features, self.rows().train))

    def training_labels(self) -> Ints:
        """Labels of the training rows, a share of them flipped."""
        labels = self.dataset.labels[self.rows().train]
        return flip(labels, self.dataset.classes, self.noise, self.fold) if self.noise else labels

    def network(
        self, inputs: torch.Tensor, outputs: int, normalised: bool = False, kind: Network | None = None
    ) -> nn.Module:
        """A network that is not yet trained, of the experiment's kind or another."""
        network = (kind or self.experiment.network)(inputs.shape[1], outputs, normalised)
        self.experiment.prepare(network, inputs[self.rows().train])
        return network

    def seeds(self) -> dict[str, int]:
        """All that is random."""
        training, noise = fold_seed(TRAINING_SEED, self.fold), fold_seed(NOISE_SEED, self.fold)
        return {"split": SPLIT_SEED, "training": training} | ({"noise": noise} if self.noise else {})


def train_base(task: Task, settings: Settings, work: Path) -> dict[str, Any]:
    """Train the base network of a fold; write the dumps of its validation and test rows and a record of their making.

    Labels in the dumps are clean; the record says what the network was shown.
    """
    folder, rows, inputs = task.folder(work), task.rows(), task.inputs()
    trained = fit_base(task, settings, inputs, work)
    accuracies = {}
    for name, part in (("val", rows.val), ("test", rows.test)):
        logits, labels = outputs_of(trained.model, inputs[part], task.experiment.views), task.dataset.labels[part]
        write_dump(folder / f"{name}.parquet", part, logits, labels)
        accuracies[name] = accuracy(logits, labels)
    return write_record(folder, task, settings, trained, accuracy=accuracies)


def write_record(folder: Path, task: Task, settings: Settings, trained: Training, **more: Any) -> dict[str, Any]:
    """How a dump was made, in `training.json`."""
    record = {
        "dataset": task.dataset.name,
        "noise": task.noise,
        "fold": task.fold,
        "settings": dataclasses.asdict(settings) | {"epochs": trained.epochs},
        "seeds": task.seeds(),
        "seconds": round(trained.seconds, 1),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
        **more,
    }
    (folder / "training.json").write_text(json.dumps(record, indent=1) + "\n")
    return record


def fit_base(task: Task, settings: Settings, inputs: torch.Tensor, work: Path, kind: Network | None = None) -> Training:
    """The base network, or one of another kind; one with a checkpoint of enough epochs is not trained again."""
    return train(
        partial(task.network, inputs, task.dataset.classes, kind=kind),
        inputs[task.rows().train],
        torch.from_numpy(task.training_labels()),
        settings,
        nn.CrossEntropyLoss(),
        task.seeds()["training"],
        task.folder(work) / "checkpoint.pt",
    )
