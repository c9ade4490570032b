"""A small network with label smoothing, in numpy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Network:
    """Two hidden layers of ReLU, trained by Adam on cross-entropy with smoothed labels."""

    width: int = 128
    smoothing: float = 0.0
    epochs: int = 30
    rate: float = 1e-3
    decay: float = 0.3
    seed: int = 0

    def logits(self, x: Array, y: Array, others: list[Array]) -> list[Array]:
        """Train on x and y; the logits of other rows."""
        rng = np.random.default_rng(self.seed)
        center, spread = x.mean(axis=0), x.std(axis=0) + 1e-3

        def scaled(values: Array) -> Array:
            return np.clip((values - center) / spread, -4.0, 4.0).astype(np.float32)

        x = scaled(x)
        classes = int(y.max()) + 1
        sizes = [x.shape[1], self.width, self.width, classes]
        weights = [rng.normal(0, np.sqrt(2 / a), (a, b)).astype(np.float32) for a, b in pairwise(sizes)]
        biases = [np.zeros(b, np.float32) for b in sizes[1:]]
        target = np.full((len(y), classes), self.smoothing / classes, np.float32)
        target[np.arange(len(y)), y] += 1 - self.smoothing
        parameters = [*weights, *biases]
        first, second = [np.zeros_like(p) for p in parameters], [np.zeros_like(p) for p in parameters]
        step = 0
        for epoch in range(self.epochs):
            rate = self.rate * 0.5 * (1 + np.cos(np.pi * epoch / self.epochs))
            for rows in np.array_split(rng.permutation(len(y)), max(1, len(y) // 64)):
                step += 1
                gradients = _gradients(x[rows], target[rows], weights, biases)
                for p, g, m, v in zip(parameters, gradients, first, second, strict=True):
                    m += 0.1 * (g - m)
                    v += 0.001 * (g * g - v)
                    p *= 1 - rate * self.decay
                    p -= rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        return [_forward(scaled(o), weights, biases)[-1] for o in others]


def _forward(x: Array, weights: list[Array], biases: list[Array]) -> list[Array]:
    layers = [x]
    for number, (w, b) in enumerate(zip(weights, biases, strict=True)):
        x = x @ w + b
        layers.append(x if number == len(weights) - 1 else np.maximum(x, 0))
    return layers


def _gradients(x: Array, target: Array, weights: list[Array], biases: list[Array]) -> list[Array]:
    layers = _forward(x, weights, biases)
    scores = layers[-1] - layers[-1].max(axis=1, keepdims=True)
    powers = np.exp(scores)
    delta = (powers / powers.sum(axis=1, keepdims=True) - target) / len(x)
    by_weight, by_bias = [], []
    for number in range(len(weights) - 1, -1, -1):
        by_weight.insert(0, layers[number].T @ delta)
        by_bias.insert(0, delta.sum(axis=0))
        if number:
            delta = (delta @ weights[number].T) * (layers[number] > 0)
    return [*by_weight, *by_bias]
