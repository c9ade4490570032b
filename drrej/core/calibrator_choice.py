"""Choosing a calibrator by cross-validated NLL: the simplest within one standard error of the best.

A calibrator with more numbers always has the lower NLL on the rows it was fitted to. On rows that it has not seen the
difference of two NLLs, row by row, is a mean with a standard error, and that is far smaller than that of either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from drrej.core.calibrators import Calibrator, CalibratorTrial, Temperature
from drrej.core.exact import Total
from drrej.core.kernels import Need
from drrej.core.row_keys import content_keys, key_limit
from drrej.core.scaling import MOST_CLASSES, MOST_MIXED, fit_vector
from drrej.core.temperature import fit_temperature
from drrej.core.types import AnyFloats, Floats, Integers, Precision

FOLDS = 5
MOST_VALUES = 1 << 19
"""Logits that the choice looks at."""


def candidates(classes: int) -> tuple[str, ...]:
    """The calibrators for so many classes, the simplest first.

    >>> candidates(2), candidates(10), candidates(100), candidates(1000)
    (('temperature', 'beta'), ('temperature', 'vector', 'dirichlet'), ('temperature', 'vector'), ('temperature',))
    """
    if classes == 2:
        return "temperature", "beta"
    if classes <= MOST_MIXED:
        return "temperature", "vector", "dirichlet"
    return ("temperature", "vector") if classes <= MOST_CLASSES else ("temperature",)


def fit_calibrator(name: str, logits: AnyFloats, labels: Integers, precision: Precision) -> Calibrator:
    """One of the `candidates`, fitted to rows in memory."""
    temperature = fit_temperature(lambda function: function(logits, labels), None, precision).temperature
    if name == "temperature":
        return Temperature(temperature)
    classes, mixed = logits.shape[1], name == "dirichlet"
    fit = fit_vector(lambda function: function(logits, labels), None, temperature, classes, precision, mixed)
    return fit.calibrator


def held_out_nll(logits: AnyFloats, labels: Integers, precision: Precision) -> dict[str, Floats]:
    """The NLL of rows (rows x classes) under each candidate, fitted to the rows of the other folds.

    Folds and, where there are too many rows, those that are looked at are settled by what the rows hold. None at all
    where there are too few rows to divide.
    """
    keys = content_keys(logits)
    fold = (keys % np.uint64(FOLDS)).astype(np.int64)
    chosen = keys <= key_limit(MOST_VALUES / logits.size)
    parts = [np.flatnonzero(chosen & (fold == number)) for number in range(FOLDS)]
    parts = [part for part in parts if part.size]
    if len(parts) < 2:
        return {}
    names = candidates(logits.shape[1])
    found: dict[str, list[Floats]] = {name: [] for name in names}
    for number, part in enumerate(parts):
        others = np.concatenate([other for place, other in enumerate(parts) if place != number])
        for name in names:
            calibrator = fit_calibrator(name, logits[others], labels[others], precision)
            view = calibrator.rows(logits[part], Need.NOTHING, precision).calibrated
            rows = view.labelled(labels[part])
            found[name].append(rows.sums.log_weight - rows.label_gap)
    return {name: np.concatenate(values) for name, values in found.items()}


def choose_calibrator(nll: Mapping[str, Floats]) -> tuple[str, tuple[CalibratorTrial, ...]]:
    """The first calibrator whose NLL is within one standard error of the best, and the table it was chosen from.

    `nll` has the values of the same rows under each calibrator, the simplest first.

    >>> rows = np.array([1.0, 0.5, 0.2, 0.4])
    >>> choose_calibrator({"temperature": rows, "vector": rows - 0.1 + np.array([0.3, -0.2, 0.2, -0.2])})[0]
    'temperature'
    >>> choose_calibrator({"temperature": rows, "vector": rows - 0.1})[0]
    'vector'
    """
    means = {name: Total.of(values).mean(values.size) for name, values in nll.items()}
    finite = {name: mean for name, mean in means.items() if mean is not None}
    best = min(finite, key=lambda name: finite[name])
    table = tuple(
        CalibratorTrial(name, mean, mean - finite[best], _std_error(nll[name] - nll[best]))
        for name, mean in finite.items()
    )
    chosen = next(trial for trial in table if trial.above_best <= trial.std_error)
    return chosen.calibrator, table


def _std_error(differences: Floats) -> float:
    """Of their mean."""
    rows = differences.size
    mean = Total.of(differences).mean(rows) or 0.0
    variance = Total.of(np.square(differences - mean)).mean(rows) or 0.0
    return math.sqrt(variance / rows)
