"""One row at a time, for services: the sums of `drrej.core.softmax` with the same bits, in few calls of numpy.

A call of numpy costs a microsecond however short the row, and the sums of a block take a hundred of them. Here numpy
does what is done class by class, in the type and with the functions of a block, and Python's floats add up.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from drrej.core.calibrators import Scores, Temperature
from drrej.core.softmax import NOTHING, GapSums, Needs
from drrej.core.types import Precision

MOST_CLASSES = 64
"""From here on a block of one row is as quick."""

_TINY = 2.0**-1022
_MOST = 1e30
"""Larger logits, after the scale, come near the end of float32."""


class Unusual(Exception):  # noqa: N818 - no error: `row_scores` tells that a block is needed
    """A row for the block's way: with NaN, infinities or huge scores, or all the same."""


class RowScores(Scores, frozen=True):
    """The scores of one row: `values` (classes,), and numbers in place of arrays."""

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.values.size)

    def rivals(self, scale: float) -> tuple[Any, Any]:
        """As those of rows."""
        beta, place = self.beta * scale, int(self.prediction)
        others = np.concatenate((self.values[:place], self.values[place + 1 :]))
        _, largest, at = _sums(others, self.precision, beta, frozenset({"moment"}), self.values.size)
        weight = float(at.log_weight)
        return beta * (largest - self.largest) + weight, weight - at.moment / (1.0 + at.odds)


def row_scores(calibrator: Any, logits: Any, needs: Needs, precision: Precision) -> RowScores:
    """`Calibrator.scores` of one row of logits (classes,) after calibration; raises `Unusual` where a block is needed.

    >>> row_scores(Temperature(2.0), np.array([2.0, 0.0]), NOTHING, "float64").sums.odds  # e^-1
    0.36787944117144233
    """
    beta = 1.0
    if isinstance(calibrator, Temperature):
        beta = 1.0 / calibrator.temperature
    else:
        _, largest, before = _sums(logits, precision, 1.0, NOTHING, logits.size)
        weights, biases = _arrays(calibrator.weights, calibrator.biases)
        logits, precision = (logits - np.float64(largest) - before.log_weight) * weights + biases, "float64"
    prediction, largest, sums = _sums(logits, precision, beta, needs, logits.size)
    return RowScores(logits, beta, prediction, largest, sums, precision)  # type: ignore[arg-type]


@lru_cache(8)
def _arrays(*lists: tuple[float, ...]) -> list[Any]:
    return [np.array(each) for each in lists]


def _sums(row: Any, precision: Precision, beta: float, needs: Needs, classes: int) -> tuple[int, float, GapSums]:
    """Prediction, largest logit and gap sums; a row of fewer logits than `classes` lacks some of probability 0."""
    values = row.tolist()
    largest = max(values)
    if not (math.isfinite(sum(values)) and max(largest, -min(values)) * max(beta, 1.0) < _MOST):
        raise Unusual
    if precision == "float64" or row.dtype != np.float64:
        row = row.astype(np.float64 if precision == "float64" else np.float32, copy=False)
    elif (narrow := row.astype(np.float32)).tolist() == values:
        row = narrow
    place = values.index(largest)
    scaled = row - row[place]
    if beta != 1.0:
        scaled *= row.dtype.type(beta)
    powers = np.exp(scaled)
    powers[place] = 0
    single = row.dtype == np.float32
    sums = {"odds": _total(powers.tolist(), single, classes)}
    if "gap_total" in needs:
        sums["gap_total"] = _total(scaled.tolist(), single, classes)
        sums["norm_1"] = _norm_1(scaled, sums["gap_total"], single)
    if "runner_up" in needs:
        sums["runner_up"] = max(powers.tolist())
    if "squares" in needs:
        sums["squares"] = _total((powers * powers).tolist(), single, classes)
    if "moment" in needs:
        sums["moment"] = _total((powers * scaled).tolist(), single, classes)
    return place, largest, GapSums(**sums)  # type: ignore[arg-type]


def _norm_1(scaled: Any, gap_total: float, single: bool) -> float:
    mean = scaled.dtype.type(gap_total) / -scaled.size
    if mean == 0:
        raise Unusual
    parts = np.maximum(scaled + mean, 0)
    return float((scaled.dtype.type(_total(parts.tolist(), single, scaled.size)) - mean) / mean)


def _total(terms: list[float], single: bool, classes: int) -> float:
    """The sum as `softmax._total` rounds it: once, but for 2**-33 of the last place."""
    exact = math.fsum(terms)
    if single:
        low, middle, high = (float(np.float32(exact * (1 + part * 2.0**-50))) for part in (-classes, 0, classes))
        if low != high:  # between two numbers of float32
            ordered = np.sort(np.array([terms + [0.0] * (classes - len(terms))], np.float32), axis=1)
            return float(ordered.sum(axis=1, dtype=np.float64).astype(np.float32)[0])
        return middle
    place, left = math.ulp(exact), abs(math.fsum((*terms, -exact)))
    if abs(left / place - 0.5) > 1e-6 and abs(left / place - 0.25) > 1e-6 and place > _TINY:
        return exact
    bits = classes.bit_length()
    unit = max(math.ulp(max(max(terms), -min(terms))) * (1 << bits), _TINY)
    finer = 2.0 ** (52 - bits)
    whole = [round(term / unit) for term in terms]
    return (sum(whole) + sum(round((t / unit - w) * finer) for t, w in zip(terms, whole, strict=True)) / finer) * unit
