"""Perceptrons with the plain cross-entropy and with smoothed labels: `python -m benchmarks.selective train`.

Smoothing makes logits that say less about which rows are wrong (Xia et al. 2024), so the two are different problems.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.selective.scores import Array

HIDDEN = 128
BATCH = 128
SMOOTHING = {"cross-entropy": 0.0, "smoothed 0.1": 0.1, "smoothed 0.3": 0.3}
LIMITS = {"digits": (899, 449, 449, 60), "HAR": (4000, 2500, 3799, 40), "gas": (2500, 1700, 2497, 60)}
LIMITS |= {"MNIST": (6000, 5000, 20000, 30)}
"""Rows to train, to fit and to test on, and epochs."""


def train(data: Path, work: Path) -> None:
    """Every data set with every smoothing; what is there already is not trained again."""
    torch.set_num_threads(1)
    work.mkdir(parents=True, exist_ok=True)
    for name, (features, labels) in _sets(data).items():
        *sizes, epochs = LIMITS[name]
        order = np.random.default_rng(0).permutation(len(labels))
        rows = dict(zip(("train", "val", "test"), np.split(order, np.cumsum(sizes)), strict=False))
        mean, std = features[rows["train"]].mean(axis=0), features[rows["train"]].std(axis=0)
        inputs = torch.from_numpy(((features - mean) / np.where(std > 0, std, 1)).clip(-10, 10).astype(np.float32))
        for title, smoothing in SMOOTHING.items():
            target = work / f"{name}, MLP, {title}.npz"
            if target.exists():
                continue
            own = rows["train"]
            network = _fitted(inputs[own], torch.from_numpy(labels[own]), epochs, smoothing)
            kept: dict[str, Array] = {}
            for part in ("val", "test"):
                with torch.inference_mode():
                    kept[f"{part} logits"] = network(inputs[rows[part]]).numpy()
                kept[f"{part} labels"] = labels[rows[part]]
            np.savez(target, **kept)


def _fitted(inputs: torch.Tensor, labels: torch.Tensor, epochs: int, smoothing: float) -> nn.Module:
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


def _sets(data: Path) -> dict[str, tuple[Array, Array]]:
    from sklearn.datasets import load_digits

    sets = {"digits": load_digits(return_X_y=True)}
    for name, file in (("HAR", "har"), ("gas", "gas_drift"), ("MNIST", "mnist")):
        if (data / f"{file}.npz").is_file():
            with np.load(data / f"{file}.npz") as arrays:
                sets[name] = arrays["X"].reshape(len(arrays["y"]), -1).astype(np.float64), arrays["y"]
    return {name: (x, np.unique(y, return_inverse=True)[1].astype(np.int64)) for name, (x, y) in sets.items()}
