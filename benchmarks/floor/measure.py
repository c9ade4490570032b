"""Figures of a case: temperature, NLL, ECE, Brier score, AUGRC; straight from the definitions, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq

from drrej.core.curves import Curve
from drrej.core.inputs import Positives, choose_floor, floored_logits, read_log_probabilities, read_probabilities
from drrej.core.losses import expected_losses

Array = np.ndarray[Any, Any]

STORAGES = ("float64", "float32", "float16", "6 decimals", "3 decimals", "2 decimals", "log float64", "log float32")
CANDIDATES = ("type", "half", "Laplace", "mixed", "chosen")
LOWEST = 2.0**-1074
FOLDS = 5


@dataclass(frozen=True)
class Figures:
    """Calibration figures, and AUGRC of the log and of the zero-one loss."""

    nll: float
    ece: float
    brier: float
    augrc_log: float
    augrc_zero_one: float


@dataclass(frozen=True)
class Outcome:
    """A candidate on a case: its floor, the temperature, figures on calibration and on test rows."""

    floor: float
    temperature: float
    calibration: Figures
    test: Figures


def stored(p: Array, storage: str) -> Array:
    """Rows after a round trip through a storage, as drrej reads them; what rounding has spoilt is normalised."""
    if storage.endswith("decimals"):
        return read_probabilities(np.round(p, int(storage.split()[0])), normalize=True).values
    if storage.startswith("log"):
        with np.errstate(divide="ignore"):
            return read_log_probabilities(np.log(p).astype(storage.split()[1])).values
    return read_probabilities(p.astype(storage)).values


def before(p: Array, labels: Array) -> Figures:
    """Figures of the probabilities as they are."""
    return figures(floored_logits(p, 0.0), labels, 1.0)


def outcome(candidate: str, storage: str, case: Any) -> Outcome:
    """Fit on the calibration rows and apply to both parts."""
    p, test = stored(case.calibration, storage), stored(case.test, storage)
    floor, logits = _choose(candidate, storage, p, case.calibration_labels)
    temperature, _ = best_temperature(logits(p, floor), case.calibration_labels)
    return Outcome(
        floor,
        temperature,
        figures(logits(p, floor), case.calibration_labels, temperature),
        figures(logits(test, floor), case.test_labels, temperature),
    )


Logits = Callable[[Array, float], Array]


def _choose(candidate: str, storage: str, p: Array, labels: Array) -> tuple[float, Logits]:
    rows, classes = p.shape
    smallest = Positives.of(p).smallest
    if candidate == "type":
        narrow = next((kind for kind in ("float32", "float16") if storage == kind), "float64")
        return float(np.finfo(narrow).smallest_subnormal), _at_least
    if candidate == "half":
        return max(smallest / 2, LOWEST), _at_least
    if candidate == "Laplace":
        return 1.0 / (2 * (rows + classes)), _added
    if candidate == "mixed":
        return _cross_validated(p, labels), _added
    floor = choose_floor(lambda f: best_temperature(floored_logits(p, f), labels)[1], rows, classes, smallest)
    return floor, floored_logits


def _at_least(p: Array, floor: float) -> Array:
    return np.log(np.maximum(p, floor))


def _added(p: Array, floor: float) -> Array:
    return np.log(p + floor)


def _cross_validated(p: Array, labels: Array) -> float:
    """The f of log(p + f), that is of (1 - e) p + e / K, with the lowest cross-validated NLL."""
    parts = np.random.default_rng(0).integers(0, FOLDS, len(labels))

    def held_out(floor: float) -> float:
        total = 0.0
        z = _added(p, floor)
        for part in range(FOLDS):
            inside = parts == part
            temperature, _ = best_temperature(z[~inside], labels[~inside])
            total += float(np.sum(_nll(z[inside], labels[inside], temperature)))
        return total

    return min((2.0**-k for k in (*range(3, 16), 18, 20, 24, 28, 32, 48, 64, 96, 128, 256, 512, 1022)), key=held_out)


def best_temperature(z: Array, labels: Array) -> tuple[float, float]:
    """(T, mean NLL) at the minimum of the NLL: the root of its gradient in log beta."""
    d = z - z.max(axis=1, keepdims=True)
    of_labels = d[np.arange(len(labels)), labels]

    def gradient(log_beta: float) -> float:
        weights = np.exp(math.exp(log_beta) * d)
        return float(np.mean((weights * d).sum(axis=1) / weights.sum(axis=1) - of_labels))

    edge = math.log(1e3)
    if gradient(-edge) >= 0:
        root = -edge
    elif gradient(edge) <= 0:
        root = edge
    else:
        root = brentq(gradient, -edge, edge, xtol=1e-9)
    return math.exp(-root), float(np.mean(_nll(z, labels, math.exp(-root))))


def _nll(z: Array, labels: Array, temperature: float) -> Array:
    u = (z - z.max(axis=1, keepdims=True)) / temperature
    return np.log(np.exp(u).sum(axis=1)) - u[np.arange(len(labels)), labels]


def figures(z: Array, labels: Array, temperature: float) -> Figures:
    """Figures of logits at a temperature."""
    with np.errstate(invalid="ignore"):
        p = np.exp((z - z.max(axis=1, keepdims=True)) / temperature)
    p /= p.sum(axis=1, keepdims=True)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == labels
    bins = np.ceil(confidence * 15).astype(int)
    gaps = np.bincount(bins, right, 16) - np.bincount(bins, confidence, 16)
    brier = np.square(p).sum(axis=1) - 2 * p[np.arange(len(labels)), labels] + 1
    return Figures(
        float(np.mean(_nll(z, labels, temperature))),
        float(np.abs(gaps).sum() / len(labels)),
        float(brier.mean()),
        *(_augrc(z, temperature, loss, right) for loss in ("log", "zero-one")),
    )


def _augrc(z: Array, temperature: float, loss: str, right: Array) -> float:
    losses = expected_losses(z, loss, temperature, precision="float64")
    return Curve.of(losses[right], losses[~right]).augrc()
