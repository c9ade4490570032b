"""Calibrators: from the logits of a row to the scores that its probabilities are made of.

What the other rooms see of a calibrator are `Rows`: predictions, gap sums, and the few further figures that losses,
scores and reports are computed from. How the scores came about, by a temperature or otherwise, stays in here.
"""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np

from drrej.core.calibration import LabelledRows
from drrej.core.kernels import ROW_MAJOR, GapSums, Need, block_sums, label_gaps
from drrej.core.types import AnyFloats, Booleans, Floats, Integers, Precision
from drrej.records import dataclass

CalibratorName = Literal["temperature", "vector", "beta", "dirichlet", "auto"]
"""What may be asked for."""


@dataclass(frozen=True)
class View:
    """Rows of scores at one scale; a class has the probability softmax(beta * scores).

    `largest` is the largest score of a row, `prediction` its class (the first of equals).
    """

    scores: AnyFloats
    beta: float
    prediction: Integers
    largest: Floats
    known_sums: GapSums | None
    negative: Booleans | None = None
    """Whether a row has a score below 0, where that is known."""

    @property
    def sums(self) -> GapSums:
        """The gap sums, where they were asked for."""
        assert self.known_sums is not None
        return self.known_sums

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.scores.shape[1])

    def label_gaps(self, labels: Integers) -> Floats:
        """How far the label's score lies below the largest, before the scale."""
        return label_gaps(self.scores, labels, self.largest)

    def labelled(self, labels: Integers, gaps: Floats | None = None) -> LabelledRows:
        """What calibration figures need of each row; `gaps` are its `label_gaps` where they are known."""
        with np.errstate(invalid="ignore", over="ignore"):
            scaled: Floats = self.beta * (self.label_gaps(labels) if gaps is None else gaps)
        return LabelledRows(self.sums, scaled, self.prediction == labels)

    def energy(self) -> Floats:
        """-T log sum exp(scores / T)."""
        energy: Floats = -(self.largest + np.log1p(self.sums.s) / self.beta)
        return energy

    def powers(self, part: slice) -> Floats:
        """e^u of some rows, all classes: probabilities up to a factor. In float64, so a row's bits are its own."""
        scores = np.array(self.scores[part], dtype=np.float64, order="C")
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            powers: Floats = np.exp((scores - scores.max(axis=1, keepdims=True)) * self.beta)
        return powers

    def logarithms(self) -> Floats:
        """The logarithms of the probabilities (rows x classes); -inf where one is 0."""
        with np.errstate(invalid="ignore", over="ignore"):
            logs: Floats = (self.scores.astype(np.float64) - self.largest[:, None]) * self.beta
        return logs - self.sums.log_weight[:, None]

    def probabilities(self) -> Floats:
        """The probabilities (rows x classes), from the gap sums."""
        probabilities = self.powers(slice(None))
        probabilities /= 1.0 + self.sums.s[:, None]
        return probabilities


@dataclass(frozen=True)
class Rows:
    """Rows of logits before (`raw`) and after calibration."""

    calibrated: View
    raw: View

    def labelled(self, labels: Integers) -> tuple[LabelledRows, LabelledRows]:
        """What calibration figures need of each row, after and before calibration."""
        gaps = self.raw.label_gaps(labels)
        shared = self.calibrated.scores is self.raw.scores
        return self.calibrated.labelled(labels, gaps if shared else None), self.raw.labelled(labels, gaps)


class Calibrator(Protocol):
    """Turns logits into calibrated scores."""

    def rows(self, logits: AnyFloats, needs: Need, precision: Precision, raw: Need | None = None) -> Rows:
        """The rows with the gap sums that are needed after calibration and, unless None, before it."""


@dataclass(frozen=True)
class Temperature:
    """Logits divided by T.

    >>> rows = Temperature(2.0).rows(np.array([[2.0, 0.0]]), Need.NOTHING, "auto")
    >>> rows.calibrated.sums.s.round(6)  # e^-1
    array([0.367879])
    """

    temperature: float

    def rows(self, logits: AnyFloats, needs: Need, precision: Precision, raw: Need | None = None) -> Rows:
        """See `Calibrator`. Both scales share the search for the largest logit, and the gaps to it."""
        beta = 1.0 / self.temperature
        betas, wanted = ([beta], [needs]) if raw is None else ([beta, 1.0], [needs, raw])
        sums = block_sums(logits, betas, wanted, precision)
        top = sums.prediction, sums.largest
        as_given = None if raw is None else sums.at[1]
        return Rows(
            View(logits, beta, *top, sums.at[0], sums.negative), View(logits, 1.0, *top, as_given, sums.negative)
        )


IDENTITY = Temperature(1.0)
"""Logits as they are."""


@dataclass(frozen=True)
class LogProbabilities:
    """ln p of some rows (rows x classes) in float64, at most 0; `raw` is what they come from."""

    values: Floats
    raw: View


def log_probabilities(logits: AnyFloats, needs: Need, precision: Precision) -> LogProbabilities:
    """Logarithms of softmax(logits); they do not depend on what is added to all logits of a row. -inf stays -inf.

    >>> log_probabilities(np.array([[1.0, 1.0, -np.inf]]), Need.NOTHING, "auto").values.round(6).tolist()
    [[-0.693147, -0.693147, -inf]]
    """
    sums = block_sums(logits, [1.0], [needs], precision)
    raw = View(logits, 1.0, sums.prediction, sums.largest, sums.at[0])
    rows, classes = logits.shape
    # Written as the kernels read: classes first where these are few.
    values: Floats = np.empty((rows, classes) if classes >= ROW_MAJOR else (classes, rows))
    values = values if classes >= ROW_MAJOR else values.T
    with np.errstate(invalid="ignore", over="ignore"):
        np.subtract(logits, sums.largest[:, None], out=values, dtype=np.float64)
        values -= raw.sums.log_weight[:, None]
    return LogProbabilities(values, raw)


LEAST_MIXED = -6.0 * 2.302585092994046
"""ln 1e-6."""


@dataclass(frozen=True)
class Vector:
    """Vector scaling: class j has the score weights[j] * ln p_j + biases[j]; no weight is below 0.

    Equal weights and no biases are a temperature; with two classes this is beta calibration. The likeliest class may
    be another after it. A class of probability 0 keeps it. With `mixing` (Dirichlet calibration) class j also has
    mixing[j][k] * ln p_k of the other classes, where a p_k below 1e-6 counts as that: further down it says no more.

    >>> rows = Vector((0.5, 0.5), (0.0, 0.0)).rows(np.array([[2.0, 0.0]]), Need.NOTHING, "auto")
    >>> rows.calibrated.sums.s.round(6)  # as at the temperature 2
    array([0.367879])
    """

    weights: tuple[float, ...]
    biases: tuple[float, ...]
    mixing: tuple[tuple[float, ...], ...] | None = None

    def rows(self, logits: AnyFloats, needs: Need, precision: Precision, raw: Need | None = None) -> Rows:
        """See `Calibrator`."""
        before = log_probabilities(logits, raw or Need.NOTHING, precision)
        return Rows(self.scaled(before.values, needs), before.raw)

    def scaled(self, values: Floats, needs: Need) -> View:
        """Calibrated rows, from their ln p; in float64, whatever the logits are stored in."""
        with np.errstate(invalid="ignore", over="ignore"):
            scores: Floats = values * np.array(self.weights)
            scores += np.array(self.biases)
            if self.mixing is not None:
                _mix(scores, mixed_values(values), self.mixing)
            if min(self.weights) <= 0.0:  # below 0 only while they are searched for
                np.copyto(scores, -np.inf, where=np.isneginf(values))
        sums = block_sums(scores, [1.0], [needs], "float64")
        return View(scores, 1.0, sums.prediction, sums.largest, sums.at[0])


def mixed_values(values: Floats) -> Floats:
    """What other classes see of ln p."""
    return np.maximum(values, LEAST_MIXED)


def _mix(scores: Floats, values: Floats, mixing: tuple[tuple[float, ...], ...]) -> None:
    """Add to each score its share of the others, one after the other: a row's bits are its own."""
    for target, line in enumerate(mixing):
        for place, weight in enumerate(line):
            if weight:
                scores[:, target] += weight * values[:, place]


@dataclass(frozen=True)
class CalibratorTrial:
    """A calibrator that was considered: its NLL on rows not fitted to, and how far that is above the best."""

    calibrator: str
    nll: float
    above_best: float
    std_error: float
