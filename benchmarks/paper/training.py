"""Training a network, its checkpoints, and its dumps."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

from benchmarks.paper.data import Floats, Ints
from benchmarks.paper.networks import Settings

TRAINING_SEED = 2
FORWARD_ROWS = 4096

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def be_reproducible() -> None:
    """One thread and no kernels that depend on timing: the order of a sum, and so its last bits, depends on both."""
    torch.use_deterministic_algorithms(True)
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
    """Fit a network with Adam, `fused` in one pass over all parameters (quicker, other last bits).

    With a checkpoint, each epoch is saved there, and training that was interrupted goes on from it to the same
    network; a checkpoint of as many epochs as are asked for, or of more, is taken as it is.
    """
    torch.manual_seed(seed)
    model = build()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=fused
    )
    state = _Checkpoint(checkpoint, model, optimizer)
    while state.epochs < settings.epochs:
        start = time.monotonic()
        model.train()
        for batch in torch.split(torch.randperm(len(labels)), settings.batch):
            optimizer.zero_grad()
            loss(model(inputs[batch]), labels[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        state.epoch_done(time.monotonic() - start)
    return Trained(model.eval(), state.epochs, state.seconds)


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

    def epoch_done(self, seconds: float) -> None:
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


def outputs_of(model: nn.Module, inputs: torch.Tensor) -> Floats:
    """The outputs of a network or a stack, some rows at a time."""
    with torch.inference_mode():
        return torch.cat([model(rows) for rows in torch.split(inputs, FORWARD_ROWS)], dim=-2).numpy()


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
