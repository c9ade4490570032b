"""Training a network, its checkpoints, and its dumps."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn
from torch.nn import functional

from benchmarks.paper.data import Floats, Ints
from benchmarks.paper.networks import Settings, alone

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


@dataclass(frozen=True)
class Trained:
    """A trained network, its epochs and the seconds they took."""

    model: nn.Module
    epochs: int
    seconds: float


def train(
    build: Callable[[], nn.Module],
    inputs: torch.Tensor,
    labels: torch.Tensor,
    settings: Settings,
    loss: Loss,
    seed: int = TRAINING_SEED,
    checkpoint: Path | None = None,
    fused: bool = False,
) -> Trained:
    """Fit a network, with an optimizer that is `fused` in one pass over all parameters (quicker, other last bits).

    With a checkpoint, each epoch is saved there, and training that was interrupted goes on from it to the same
    network; a checkpoint of as many epochs as are asked for, or of more, is taken as it is.
    """
    torch.manual_seed(seed)
    model = build()
    optimizer = _optimizer(model, settings, fused)
    state = _Checkpoint(checkpoint, model, optimizer)
    steps = settings.epochs * -(-len(labels) // settings.batch)
    first_mirrored = torch.rand(len(labels), generator=torch.Generator().manual_seed(seed)) < 0.5
    while state.epochs < settings.epochs:
        start, processor, losses = time.monotonic(), time.process_time(), 0.0
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
            value = loss(model(images), labels[batch])
            value.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses += value.item() * len(batch) / len(labels)
        state.epoch_done(Epoch(time.monotonic() - start, time.process_time() - processor, losses))
    return Trained(model.eval(), state.epochs, state.seconds)


def _optimizer(model: nn.Module, settings: Settings, fused: bool) -> torch.optim.Optimizer:
    learnt = [parameter for parameter in model.parameters() if parameter.requires_grad]
    given: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay, "fused": fused}
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


class Epoch(NamedTuple):
    """Seconds by the clock and of the processor, and the mean loss of the training rows."""

    seconds: float
    processor: float
    loss: float


class _Checkpoint:
    """What is needed to go on after an epoch, in a file if there is a path."""

    def __init__(self, path: Path | None, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.path, self.model, self.optimizer = path, model, optimizer
        self.epochs, self.seconds = 0, 0.0
        if path is not None and path.is_file():
            saved = torch.load(path, weights_only=True)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            torch.set_rng_state(saved["random"])
            self.epochs, self.seconds = saved["epochs"], saved["seconds"]

    def epoch_done(self, epoch: Epoch) -> None:
        self.epochs += 1
        self.seconds += epoch.seconds
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        state: dict[str, Any] = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        state |= {"random": torch.get_rng_state(), "epochs": self.epochs, "seconds": self.seconds}
        torch.save(state, part)
        part.replace(self.path)
        with self.path.with_name("epochs.jsonl").open("a") as log:
            log.write(json.dumps({"epoch": self.epochs, **epoch._asdict()}) + "\n")


def outputs_of(model: nn.Module, inputs: torch.Tensor, views: Views = alone) -> Floats:
    """The outputs of a network or a stack, some rows at a time; the mean over all views of a row."""
    with torch.inference_mode():
        parts = [
            torch.stack([model(view) for view in views(rows)]).mean(dim=0) for rows in torch.split(inputs, FORWARD_ROWS)
        ]
        return torch.cat(parts, dim=-2).numpy()


def write_dump(
    path: Path, ids: Ints, logits: Floats, labels: Ints, more: Mapping[str, npt.NDArray[np.generic]] | None = None
) -> None:
    """Write one parquet dump with the columns `id`, `logits`, `label` and any more."""
    table = pa.table(
        {
            "id": ids,
            "logits": pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), logits.shape[1]),
            "label": labels,
            **(more or {}),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    # A dictionary of logits would only add to the size: hardly two are equal.
    pq.write_table(table, path, compression="zstd", use_dictionary=["label"])


def accuracy(logits: Floats, labels: Ints) -> float:
    """Share of rows whose largest logit is the label's."""
    return float(np.mean(logits.argmax(axis=1) == labels))
