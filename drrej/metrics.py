"""Figures of a labelled set: calibration (NLL, ECE, Brier), risk-coverage curves and their areas, intervals.

Rows are ordered by L' and rows that tie stay together, so every figure is the same under any shuffle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drrej.exact import Total
from drrej.losses import Floats, GapSums

ECE_BINS = 15
CONFIDENCE = 0.95
_CONFIDENCE_UNITS = 1 << 33
"""Confidences are summed as whole multiples of 2**-33: exact, so the order of the rows does not matter."""

_PIECE = 1 << 14

AURC_CONVENTION = "trapezoid over distinct losses, first risk extended to coverage 0"
E_AURC_CONVENTION = "aurc minus that of all right rows before all wrong ones in two tie blocks"
AUGRC_CONVENTION = "trapezoid of accepted errors / rows over distinct losses, from (0, 0)"


@dataclass(frozen=True)
class CalibrationTally:
    """Sums from which NLL, Brier score and ECE of a set of rows follow; adds up over blocks exactly."""

    rows: int
    nll: Total
    brier: Total
    bin_rows: NDArray[np.int64]
    bin_right: NDArray[np.int64]
    bin_confidence: NDArray[np.int64]

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
    """What calibration figures need of each row: gap sums, d_y, and whether the prediction is right."""

    sums: GapSums
    label_gap: Floats
    right: NDArray[np.bool_]

    def tally(self, beta: float, accepted: NDArray[np.bool_] | None = None) -> list[CalibrationTally]:
        """Tallies of all rows and, if asked for, of the accepted ones."""
        s, q = self.sums.s, self.sums.q
        assert q is not None
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            label_log_odds = beta * self.label_gap
            nll = np.log1p(s) - label_log_odds
            weight = np.square(1.0 + s)
            # (1 - p_y)^2 + the other p^2; for a right row 1 - p_y is s / (1 + s), which does not cancel
            brier = (np.square(s) + q) / weight
            wrong = np.flatnonzero(~self.right)
            p_label = np.exp(label_log_odds[wrong]) / (1.0 + s[wrong])
            brier[wrong] = 1.0 + (1.0 + q[wrong]) / weight[wrong] - 2.0 * p_label
        confidence = 1.0 / (1.0 + s)
        bins = np.ceil(confidence * ECE_BINS).astype(np.int64) - 1
        groups = bins if accepted is None else bins + ECE_BINS * accepted
        size = ECE_BINS if accepted is None else 2 * ECE_BINS
        in_units = np.rint(confidence * _CONFIDENCE_UNITS)
        bin_rows = np.bincount(groups, minlength=size)
        bin_right = bin_rows - np.bincount(groups[wrong], minlength=size)
        bin_confidence = np.bincount(groups, weights=in_units, minlength=size).astype(np.int64)
        if accepted is None:
            return [CalibrationTally(s.size, Total.of(nll), Total.of(brier), bin_rows, bin_right, bin_confidence)]
        kept = CalibrationTally(
            int(np.count_nonzero(accepted)),
            Total.of(nll[accepted]),
            Total.of(brier[accepted]),
            bin_rows[ECE_BINS:],
            bin_right[ECE_BINS:],
            bin_confidence[ECE_BINS:],
        )
        rest = CalibrationTally(
            s.size - kept.rows,
            Total.of(nll[~accepted]),
            Total.of(brier[~accepted]),
            bin_rows[:ECE_BINS],
            bin_right[:ECE_BINS],
            bin_confidence[:ECE_BINS],
        )
        return [kept + rest, kept]


@dataclass(frozen=True)
class RiskCoverage:
    """The risk-coverage points of a labelled set: after each distinct loss, rows accepted and errors among them."""

    losses: Floats
    accepted: NDArray[np.int64]
    errors: NDArray[np.int64]

    @classmethod
    def of(cls, right: Floats, wrong: Floats) -> RiskCoverage:
        """From the losses of the right and of the wrong rows."""
        return cls.of_parts([right], [wrong])

    @classmethod
    def of_parts(cls, right: Sequence[Floats], wrong: Sequence[Floats]) -> RiskCoverage:
        """The same from losses in pieces, such as those of the blocks of a dump."""
        merged = np.concatenate([*right, *wrong])
        middle = sum(part.size for part in right)
        merged[:middle].sort()
        merged[middle:].sort()
        errors_at = merged[middle:].copy()
        merged.sort(kind="stable")  # two sorted runs: merged in linear time
        last_of_tie = np.flatnonzero(np.append(merged[1:] != merged[:-1], True))
        losses = merged if last_of_tie.size == merged.size else merged[last_of_tie]
        errors = np.bincount(np.searchsorted(losses, errors_at), minlength=losses.size)
        np.cumsum(errors, out=errors)
        last_of_tie += 1
        return cls(losses, last_of_tie, errors)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.accepted[-1])

    @property
    def total_errors(self) -> int:
        """Number of wrong rows."""
        return int(self.errors[-1])

    def below(self, cutoff: float | None) -> tuple[int, int]:
        """(accepted, errors) at a cutoff: rows with L' < cutoff."""
        points = self.losses.size if cutoff is None else int(np.searchsorted(self.losses, cutoff))
        return (int(self.accepted[points - 1]), int(self.errors[points - 1])) if points else (0, 0)

    def last_at_risk(self, limit: Fraction) -> int | None:
        """The last point whose error rate is at most a limit."""
        for start in range((self.losses.size - 1) // _PIECE * _PIECE, -1, -_PIECE):
            piece = slice(start, start + _PIECE)
            held = np.flatnonzero(rate_at_most(self.errors[piece], self.accepted[piece], limit))
            if held.size:
                return start + int(held[-1])
        return None

    def aurc(self) -> float:
        """Area under risk against coverage."""
        parts = []
        for width, accepted, errors, before in self._pieces():
            risk = errors / accepted
            previous = np.concatenate([[before[1] / before[0] if before[0] else risk[0]], risk[:-1]])
            parts.append(float(np.sum(width * (risk + previous))))
        return math.fsum(parts) / (2 * self.rows)

    def e_aurc(self) -> float:
        """AURC above the best order of the same predictions."""
        error = self.total_errors / self.rows
        ideal = 1.0 if error == 1.0 else 0.5 * error * error
        return max(self.aurc() - ideal, 0.0)

    def augrc(self) -> float:
        """Area under generalised risk (accepted errors / rows) against coverage, exact up to one division."""
        twice = 0
        for width, _, errors, before in self._pieces():
            both = errors + np.concatenate([[before[1]], errors[:-1]])
            if int(width.sum()) * int(both[-1]) < 1 << 62:
                twice += int(width @ both)
            else:
                twice += sum(int(w) * int(e) for w, e in zip(width, both, strict=True))
        return twice / (2 * self.rows * self.rows)

    def _pieces(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], tuple[int, int]]]:
        """Widths, accepted rows and errors of stretches of points that fit the cache, and the counts before them."""
        before = (0, 0)
        for start in range(0, self.losses.size, _PIECE):
            accepted, errors = self.accepted[start : start + _PIECE], self.errors[start : start + _PIECE]
            yield np.diff(accepted, prepend=before[0]), accepted, errors, before
            before = (int(accepted[-1]), int(errors[-1]))


def proportion(hits: int, rows: int) -> dict[str, float | None]:
    """A proportion with its exact two-sided 95 % (Clopper-Pearson) interval; None without rows."""
    if rows == 0:
        return {"value": None, "lower": None, "upper": None}
    tail = (1.0 - CONFIDENCE) / 2
    return {
        "value": hits / rows,
        "lower": lower_bound(hits, rows, tail),
        "upper": upper_bound(hits, rows, tail),
    }


def lower_bound(hits: int, rows: int, delta: float) -> float:
    """Exact Clopper-Pearson lower bound on a rate at confidence 1 - delta."""
    from scipy.special import betaincinv

    if hits <= 0:
        return 0.0
    return float(betaincinv(hits, rows - hits + 1, delta))


def upper_bound(errors: int, rows: int, delta: float) -> float:
    """Exact Clopper-Pearson upper bound on a rate at confidence 1 - delta."""
    from scipy.special import betaincinv

    if errors >= rows:
        return 1.0
    return float(betaincinv(errors + 1, rows - errors, 1.0 - delta))


def upper_bounds(errors: NDArray[np.int64], rows: NDArray[np.int64], deltas: Floats) -> Floats:
    """`upper_bound` of many counts, each at its own delta; 1 where delta is 0."""
    from scipy.special import betaincinv

    inside = (errors < rows) & (deltas > 0)
    bounds = np.ones(errors.size)
    bounds[inside] = betaincinv(errors[inside] + 1, rows[inside] - errors[inside], 1.0 - deltas[inside])
    return bounds


def exact_decimal(number: float) -> Fraction:
    """The decimal that a user wrote: 0.07 is 7/100, not the binary number next to it."""
    return Fraction(repr(float(number)))  # numpy's floats have another repr


def rate_at_most(hits: NDArray[np.int64], rows: NDArray[np.int64], limit: Fraction) -> NDArray[np.bool_]:
    """Hits / rows <= limit, decided exactly."""
    numerator, denominator = limit.as_integer_ratio()
    if max(numerator, denominator) * max(int(rows.max()), int(hits.max())) < 1 << 62:
        return hits * denominator <= rows * numerator
    excess = hits - float(limit) * rows
    held: NDArray[np.bool_] = excess <= 0
    for i in np.flatnonzero(np.abs(excess) <= 1e-9 * rows):
        held[i] = int(hits[i]) * denominator <= int(rows[i]) * numerator
    return held


def json_number(value: Any) -> float | None:
    """A figure as JSON holds it: None for NaN and infinities."""
    number = float(value)
    return number if np.isfinite(number) else None
