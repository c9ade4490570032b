"""One row at a time, for services: the sums of `drrej.core.softmax` with the same bits, in few calls of numpy.

A call of numpy costs a microsecond however short the row, and the sums of a block take a hundred of them. Here numpy
does what is done class by class, in the type and with the functions of a block, and Python's floats add up.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from drrej.core.calibrators import SMALL_ODDS, Scores, Temperature
from drrej.core.softmax import NOTHING, NUDGE, ROW_MAJOR, GapSums, Needs
from drrej.core.types import Precision

MOST_CLASSES = 64
"""From here on a block of one row is as quick."""

_TINY = 2.0**-900
_MOST = 1e30
"""Larger logits, after the scale, come near the end of float32."""


class Unusual(Exception):  # noqa: N818 - no error: `row_scores` tells that a block is needed
    """A row for the block's way: with NaN, infinities or huge scores."""


class RowScores(Scores, frozen=True):
    """The scores of one row: `values` (classes,), and numbers in place of arrays."""

    def log_odds(self, scale: float) -> Any:
        """As those of rows."""
        beta, place = self.beta * scale, int(self.prediction)
        ranked = self.ranked or GapSums(**_sums(self.values, self.precision, beta, NOTHING)[2])
        if ranked.odds >= SMALL_ODDS:
            return float(np.log(ranked.odds))
        others = self.values.copy()
        others[place] = others[place - 1]  # any number will do: it is left out of the sums
        _, largest, at = _sums(others, self.precision, beta, NOTHING, place)
        return beta * (largest - self.largest) + at["log_weight"]


def row_scores(
    calibrator: Any, logits: Any, needs: Needs, precision: Precision, scale: float | None = None
) -> tuple[RowScores, float]:
    """`Calibrator.scores` of one row of logits (classes,) after calibration, and the largest logit before it.

    With `scale` only the sums at the temperature that a learned loss ranks by. Raises `Unusual` where a block is
    needed.

    >>> row_scores(Temperature(2.0), np.array([2.0, 0.0]), NOTHING, "float64")[0].sums.odds  # e^-1
    0.36787944117144233
    """
    beta, scaled = 1.0, isinstance(calibrator, Temperature)
    if scaled:
        beta = 1.0 / calibrator.temperature
    by = beta if scale is None else beta * scale
    place, before, sums = _sums(logits, precision, by if scaled else 1.0, needs if scaled else NOTHING)
    largest = before
    if not scaled:
        parts, weight = zip(logits.tolist(), calibrator.weights, calibrator.biases, strict=True), sums["log_weight"]
        logits, precision = (
            np.array([(logit - before - weight) * slope + bias for logit, slope, bias in parts]),
            "float64",
        )
        place, largest, sums = _sums(logits, precision, by, needs)
    found = GapSums(**sums)
    ranked = None if scale is None else found
    return RowScores(logits, beta, place, largest, found, precision, ranked), before  # type: ignore[arg-type]


def _sums(
    row: Any, precision: Precision, beta: float, needs: Needs, left_out: int | None = None
) -> tuple[int, float, dict[str, Any]]:
    """Prediction, largest logit and gap sums, to which the class `left_out` adds nothing."""
    values = row.tolist()
    largest, bound = max(values), _MOST / beta if beta > 1.0 else _MOST
    if not (math.isfinite(sum(values)) and -bound < min(values) and largest < bound):
        raise Unusual
    single = precision != "float64"
    if row.dtype != np.float64:
        row = row.astype(np.float32 if single else np.float64, copy=False)
    elif single := single and _single(largest) == largest and (narrow := row.astype(np.float32)).tolist() == values:
        row = narrow
    place = values.index(largest)
    if place == left_out:
        place = values.index(largest, place + 1)
    scaled = row - largest
    if beta != 1.0:
        scaled *= beta
    powers = np.exp(scaled)
    powers[place] = 0
    if left_out is not None:
        powers[left_out] = 0
    if len(values) >= ROW_MAJOR:
        powers, scaled = powers.astype(np.float64), scaled.astype(np.float64)
    terms = powers.tolist()
    odds = _total(terms, single)
    sums = {"odds": odds, "log_weight": float(np.log1p(odds))}
    if "runner_up" in needs:
        sums["runner_up"] = max(terms)
    if "squares" in needs:
        sums["squares"] = _total((powers * powers).tolist(), single)
    if "moment" in needs:
        sums["moment"] = _total((powers * scaled).tolist(), single)
    return place, largest, sums


_FLOAT32 = struct.Struct("f")


def _single(number: float) -> float:
    """The nearest float32."""
    return _FLOAT32.unpack(_FLOAT32.pack(number))[0]  # type: ignore[no-any-return]


def _total(terms: list[float], single: bool) -> float:
    """The sum as `softmax` rounds it: once, of float64 what it keeps of small terms."""
    exact, classes = math.fsum(terms), len(terms)
    if single:
        slack = classes * 2.0**-50
        low = _single(exact * (NUDGE - slack))
        if low != _single(exact * (NUDGE + slack)):  # between two numbers of float32
            return _single(float(np.sort(np.array([terms]), axis=1).sum(axis=1)[0]) * NUDGE)
        return low
    left = abs(math.fsum((*terms, -exact))) / math.ulp(exact)
    if not -1e-6 < left - 0.5 < 1e-6 and not -1e-6 < left - 0.25 < 1e-6 and abs(exact) > _TINY:
        return exact
    largest = max(max(terms), -min(terms))  # near a tie the block's sum may round otherwise: it cuts small terms
    if 0.0 < largest < _TINY:
        raise Unusual
    small = math.ulp(largest) * 4.0 ** classes.bit_length() / 2.0
    return math.fsum([(term + 3.0 * small) - 3.0 * small if abs(term) < small else term for term in terms])
