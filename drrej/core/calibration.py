"""Calibration figures of a labelled set: NLL, ECE and Brier score."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from msgspec import field

from drrej.core.calibrators import Scores
from drrej.core.types import Booleans, Floats, Integers, Sums, Total

ECE_BINS = 15
_CONFIDENCE_UNITS = 1 << 33
"""Confidences are summed as whole multiples of 2**-33: exact, so the order of the rows does not matter."""
_MOST_ROWS = 1 << 16
"""Rows that are looked at at once: their sums of confidences, 49 bits at most, are exact in float64."""

_NO_ROWS = np.zeros(ECE_BINS, np.int64)


class CalibrationTally(Sums, frozen=True):
    """Sums from which NLL, Brier score and ECE of a set of rows follow; adds up over blocks exactly."""

    rows: int = 0
    nll: Total = field(default_factory=Total)
    brier: Total = field(default_factory=Total)
    bin_rows: Integers = _NO_ROWS
    bin_right: Integers = _NO_ROWS
    bin_confidence: Integers = _NO_ROWS

    @property
    def mean_confidence(self) -> float | None:
        """Mean of max p: the accuracy that the probabilities promise."""
        return int(self.bin_confidence.sum()) / (self.rows * _CONFIDENCE_UNITS) if self.rows else None

    def bin(self, number: int) -> tuple[float, float]:
        """(mean confidence, accuracy) in a bin that has rows."""
        rows = int(self.bin_rows[number])
        return int(self.bin_confidence[number]) / (rows * _CONFIDENCE_UNITS), int(self.bin_right[number]) / rows

    @property
    def figures(self) -> dict[str, float | None]:
        """Mean NLL (None when infinite), ECE and mean Brier score, summed over classes; None without rows.

        The expected calibration error is over 15 equal-width bins (a, b] of max p.
        """
        gaps = (int(r) * _CONFIDENCE_UNITS - int(c) for r, c in zip(self.bin_right, self.bin_confidence, strict=True))
        ece = sum(map(abs, gaps)) / (self.rows * _CONFIDENCE_UNITS) if self.rows else None
        return {"nll": self.nll.mean(self.rows), "ece": ece, "brier": self.brier.mean(self.rows)}


def calibration_tallies(scores: Scores, labels: Integers, *parts: Booleans | None) -> list[CalibrationTally]:
    """The tallies of parts of some rows (None: of all); the gap sums must have `squares`."""
    sums, label_gap, hits = scores.sums, scores.label_gaps(labels), scores.prediction == labels
    tallies = [CalibrationTally() for _ in parts]
    for start in range(0, hits.size, _MOST_ROWS):
        piece = slice(start, start + _MOST_ROWS)
        odds, squares, gap, hit = sums.odds[piece], sums.squares[piece], label_gap[piece], hits[piece]
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            nll = sums.log_weight[piece] - gap
            confidence = 1.0 / (1.0 + odds)
            # (1 - p_y)^2 + the other p^2; for a right row 1 - p_y is odds / (1 + odds), which does not cancel
            squared = np.square(confidence)
            brier = (np.square(odds) + squares) * squared
            missed = np.flatnonzero(~hit)
            p_label = np.exp(gap[missed]) * confidence[missed]
            brier[missed] = 1.0 + (1.0 + squares[missed]) * squared[missed] - 2.0 * p_label
            bins = np.ceil(confidence * ECE_BINS).astype(np.int64) - 1
        bins += ECE_BINS * hit  # those of rows that are wrong, then of those that are right
        units = np.rint(confidence * _CONFIDENCE_UNITS)
        for number, part in enumerate(parts):
            rows = slice(None) if part is None else np.flatnonzero(part[piece])
            places = bins[rows]
            wrong, right = np.bincount(places, minlength=2 * ECE_BINS).reshape(2, ECE_BINS)
            confidences = np.bincount(places, units[rows], 2 * ECE_BINS).reshape(2, ECE_BINS).sum(axis=0)
            counts = wrong + right, right, confidences.astype(np.int64)
            tallies[number] += CalibrationTally(places.size, Total.of(nll[rows]), Total.of(brier[rows]), *counts)
    return tallies


class ClasswiseTally(Sums, frozen=True):
    """For each class and each of 15 bins of its probability: the sum of p minus the rows of that class, in units.

    The classwise ECE is the mean over classes of the ECE of "it is this class" against "it is not"; adds up exactly.
    """

    rows: int
    gaps: Integers

    @classmethod
    def of(cls, probabilities: Floats, labels: Integers) -> ClasswiseTally:
        """From probabilities (rows x classes) and class numbers.

        >>> tally = ClasswiseTally.of(np.array([[0.9, 0.1], [0.9, 0.1]]), np.array([0, 1]))
        >>> round(tally.ece, 9)  # 0.9 instead of 0.5, and 0.1 instead of 0.5
        0.4
        """
        rows, classes = probabilities.shape
        gaps = np.zeros(classes * ECE_BINS, np.int64)
        for start in range(0, rows, _MOST_ROWS):
            p, truth = probabilities[start : start + _MOST_ROWS], labels[start : start + _MOST_ROWS]
            places = np.maximum(np.ceil(p * ECE_BINS).astype(np.int64) - 1, 0) + np.arange(classes) * ECE_BINS
            units = np.rint(p * _CONFIDENCE_UNITS)
            units[np.arange(truth.size), truth] -= _CONFIDENCE_UNITS
            gaps += np.bincount(places.reshape(-1), units.reshape(-1), gaps.size).astype(np.int64)
        return cls(rows, gaps)

    @property
    def ece(self) -> float | None:
        """The classwise expected calibration error; None without rows."""
        if not self.rows:
            return None
        total = sum(abs(int(gap)) for gap in self.gaps)
        return total / (self.rows * (self.gaps.size // ECE_BINS) * _CONFIDENCE_UNITS)


ECE_LIMIT, BRIER_LIMIT = 1.5, 0.3
"""Rises that are no accident, in units of the noise s."""

ECE_LEAST, BRIER_LEAST = 0.002, 0.0005
"""Rises that matter at all."""


BeforeAfter = tuple[float | None, float | None]
Rises = Mapping[str, tuple[float, float]]
"""Figures before and after, by name."""


def rises(ece: BeforeAfter, brier: BeforeAfter, rows: int) -> Rises:
    """ECE and Brier score (before, after) where calibration made them clearly worse on the `rows` rows of its fit.

    The Brier score is summed over classes; None stands for a figure that is undefined.

    >>> rises((0.037, 0.103), (0.11, 0.125), rows=2000)
    {'ECE': (0.037, 0.103), 'Brier score': (0.11, 0.125)}
    >>> rises((0.010, 0.013), (0.11, 0.109), rows=2000)
    {}
    """
    noise = math.sqrt((brier[0] or 0.0) / (2 * max(rows, 1)))
    limits = {
        "ECE": (*ece, max(ECE_LEAST, ECE_LIMIT * noise)),
        "Brier score": (*brier, max(BRIER_LEAST, BRIER_LIMIT * noise)),
    }
    return {
        name: (before, after)
        for name, (before, after, limit) in limits.items()
        if before is not None and after is not None and after - before > limit
    }
