"""Calibration figures of a labelled set: NLL, ECE and Brier score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drrej.core.exact import Total
from drrej.core.kernels import GapSums
from drrej.core.types import Floats

ECE_BINS = 15
_SET = ECE_BINS + 1
"""Bins are counted from 1."""
_CONFIDENCE_UNITS = 1 << 33
"""Confidences are summed as whole multiples of 2**-33: exact, so the order of the rows does not matter."""


@dataclass(frozen=True)
class CalibrationTally:
    """Sums from which NLL, Brier score and ECE of a set of rows follow; adds up over blocks exactly."""

    rows: int
    nll: Total
    brier: Total
    bin_rows: NDArray[np.int64]
    bin_right: NDArray[np.int64]
    bin_confidence: NDArray[np.int64]

    @classmethod
    def empty(cls) -> CalibrationTally:
        """That of no rows, which adds nothing."""
        none = np.zeros(ECE_BINS, np.int64)
        return cls(0, Total(), Total(), none, none, none)

    def __add__(self, other: CalibrationTally) -> CalibrationTally:
        return CalibrationTally(
            self.rows + other.rows,
            self.nll + other.nll,
            self.brier + other.brier,
            self.bin_rows + other.bin_rows,
            self.bin_right + other.bin_right,
            self.bin_confidence + other.bin_confidence,
        )

    @property
    def mean_nll(self) -> float | None:
        """Mean negative log-likelihood; None when infinite or without rows."""
        return self.nll.mean(self.rows)

    @property
    def mean_brier(self) -> float | None:
        """Mean Brier score, summed over classes."""
        return self.brier.mean(self.rows)

    @property
    def mean_confidence(self) -> float | None:
        """Mean of max p: the accuracy that the probabilities promise."""
        return int(self.bin_confidence.sum()) / (self.rows * _CONFIDENCE_UNITS) if self.rows else None

    def bin(self, number: int) -> tuple[float, float]:
        """(mean confidence, accuracy) in a bin that has rows."""
        rows = int(self.bin_rows[number])
        return int(self.bin_confidence[number]) / (rows * _CONFIDENCE_UNITS), int(self.bin_right[number]) / rows

    @property
    def ece(self) -> float | None:
        """Expected calibration error over 15 equal-width bins (a, b] of max p."""
        if not self.rows:
            return None
        gaps = (int(r) * _CONFIDENCE_UNITS - int(c) for r, c in zip(self.bin_right, self.bin_confidence, strict=True))
        return sum(abs(gap) for gap in gaps) / (self.rows * _CONFIDENCE_UNITS)


@dataclass(frozen=True)
class LabelledRows:
    """What calibration figures need of each row: gap sums, u_y (the log-odds of the label), whether it is predicted."""

    sums: GapSums
    label_gap: Floats
    right: NDArray[np.bool_]

    def tally(self, accepted: NDArray[np.bool_] | None = None) -> list[CalibrationTally]:
        """Tallies of all rows and, if asked for, of the accepted ones."""
        s, q = self.sums.s, self.sums.q
        assert q is not None
        confidence = 1.0 / (1.0 + s)
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            nll = self.sums.log_weight - self.label_gap
            # (1 - p_y)^2 + the other p^2; for a right row 1 - p_y is s / (1 + s), which does not cancel
            squared = np.square(confidence)
            brier = (np.square(s) + q) * squared
            wrong = np.flatnonzero(~self.right)
            p_label = np.exp(self.label_gap[wrong]) * confidence[wrong]
            brier[wrong] = 1.0 + (1.0 + q[wrong]) * squared[wrong] - 2.0 * p_label
        bins = np.ceil(confidence * ECE_BINS).astype(np.int64)  # from 1
        units = np.rint(confidence * _CONFIDENCE_UNITS)
        if accepted is None:
            binned = _binned(bins, units, self.right, 1)
            return [CalibrationTally(nll.size, Total.of(nll), Total.of(brier), *binned[0])]
        bins += accepted.view(np.uint8) * np.uint8(_SET)
        binned = _binned(bins, units, self.right, 2)
        rejected, kept = (
            CalibrationTally(rows.size, Total.of(nll[rows]), Total.of(brier[rows]), *binned[number])
            for number, rows in enumerate((np.flatnonzero(~accepted), np.flatnonzero(accepted)))
        )
        return [kept + rejected, kept]


_Bins = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def _binned(bins: NDArray[np.int64], units: Floats, right: NDArray[np.bool_], sets: int) -> list[_Bins]:
    """Rows, right rows and confidence of each bin of each set of rows: sets are `_SET` numbers of bins apart."""
    confidence = np.bincount(bins, units, sets * _SET).reshape(sets, _SET)[:, 1:].astype(np.int64)
    bins += right.view(np.uint8) * np.uint8(sets * _SET)
    wrong, good = np.bincount(bins, minlength=2 * sets * _SET).reshape(2, sets, _SET)[:, :, 1:]
    return [(wrong[number] + good[number], good[number], confidence[number]) for number in range(sets)]


_MOST_ROWS = 1 << 16
"""Rows that are looked at at once: their sums of confidences, 49 bits at most, are exact in float64."""


@dataclass(frozen=True)
class ClasswiseTally:
    """For each class and each of 15 bins of its probability: the sum of p less the rows of that class, in units.

    The classwise ECE is the mean over classes of the ECE of "it is this class" against "it is not"; adds up exactly.
    """

    rows: int
    gaps: NDArray[np.int64]

    @classmethod
    def of(cls, probabilities: Floats, labels: NDArray[np.int64]) -> ClasswiseTally:
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

    def __add__(self, other: ClasswiseTally) -> ClasswiseTally:
        return ClasswiseTally(self.rows + other.rows, self.gaps + other.gaps)

    @property
    def ece(self) -> float | None:
        """The classwise expected calibration error; None without rows."""
        if not self.rows:
            return None
        total = sum(abs(int(gap)) for gap in self.gaps)
        return total / (self.rows * (self.gaps.size // ECE_BINS) * _CONFIDENCE_UNITS)
