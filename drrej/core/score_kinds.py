"""Whether scores that are to be taken as logits are probabilities in truth.

Real logits hardly ever lie in [0, 1] and sum to 1, so a dump in which most rows do is one of probabilities: with
temperature scaling on top it would give plausible numbers, all of them wrong. Nobody should go on without saying which
it is. The look at a block is a few counts that add up, so the verdict is that of the rows, however they are split.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from drrej.core.probabilities import LOG_TOLERANCE, Verdict, read_probabilities, row_sums
from drrej.core.types import AnyFloats
from drrej.records import dataclass

Kind = Literal["probabilities", "unit interval", "scaled", "logits"]

_SLACK = 1e-6
_STRAYS = 100
"""One score in so many may lie outside of [0, 1], damaged or not: the others still tell."""

_ENOUGH = 20
"""Rows from which on it is no accident that all scores lie in [0, 1] though they do not sum to 1."""

_SOME = 8
"""The same for one score per row: a batch of a few doubtful rows has logits in [0, 1] too."""

_PROBES = 6
"""Columns that are looked at before whole rows."""

_PERCENT = 2.0
"""Percentages without decimals sum to 100 within this, as a rule."""

REASONS: dict[Kind, str] = {
    "probabilities": "rows lie in [0, 1] and sum to 1, so these are probabilities, not logits",
    "unit interval": "scores lie in [0, 1], as probabilities do, but rows do not sum to 1",
    "scaled": "rows are not negative and sum to 100 or are whole numbers: percentages or counts, not logits",
}
BINARY_REASONS: dict[Kind, str] = {
    "probabilities": "scores lie in [0, 1], as a probability of class 1 does",
    "scaled": "no score is negative, so every row would be of class 1: percentages or counts, not logits",
}
REMEDIES: dict[Kind, str] = {
    "probabilities": "say `input=probs`, or `input=logits` if they are logits all the same",
    "unit interval": (
        "say `input=logits` if they are logits, or `input=probs` with `normalize=True` if each is a probability "
        "of its own class"
    ),
    "scaled": "say `input=probs` with `normalize=True`, or `input=logits` if they are logits all the same",
}
BINARY_REMEDIES: dict[Kind, str] = {
    "probabilities": REMEDIES["probabilities"],
    "scaled": "store them as probabilities in [0, 1], or say `input=logits` if they are logits all the same",
}


@dataclass(frozen=True)
class ScoreLook:
    """Counts of rows: all, those with every score in [0, 1], of these the ones that sum to 1, and scaled ones; adds up.

    Scaled rows are not negative, and they sum to 100 or are whole numbers (of one score per row: any above 1). Rows
    with NaN or +inf are bad anyway and do not count.
    """

    rows: int = 0
    inside: int = 0
    summing: int = 0
    scaled: int = 0

    @classmethod
    def of(
        cls,
        scores: AnyFloats,
        largest: NDArray[np.float64] | None = None,
        negative: NDArray[np.bool_] | None = None,
    ) -> ScoreLook:
        """Look at rows of scores (rows x classes).

        `largest` is the largest of each row and `negative` whether one is below 0, if that is known already.

        >>> ScoreLook.of(np.array([[0.2, 0.8], [0.5, 0.9], [-1.0, 2.0], [30.0, 70.0]]))
        ScoreLook(rows=4, inside=2, summing=1, scaled=1)
        """
        if largest is None:
            largest = scores.max(axis=1).astype(np.float64)
        with np.errstate(invalid="ignore"):
            finite = largest < np.inf  # not NaN either
            if negative is None:
                likely = np.flatnonzero((largest >= 0) & finite & (scores[:, 0] >= 0) & (scores[:, -1] >= 0))
                likely = _without_negative(scores, likely)
            else:
                likely = np.flatnonzero(finite & ~negative)
            found = scores[likely]
            positive = found.min(axis=1) >= 0 if found.size else np.zeros(likely.size, bool)
            found, small = found[positive], largest[likely[positive]] <= 1.0 + _SLACK
        verdicts = read_probabilities(found[small]).verdicts
        counts = int(np.count_nonzero(small)), int(np.count_nonzero(verdicts == Verdict.GOOD))
        return cls(int(np.count_nonzero(finite)), *counts, _scaled_rows(found[~small]))

    @classmethod
    def of_binary(cls, scores: AnyFloats) -> ScoreLook:
        """Look at one score per row."""
        with np.errstate(invalid="ignore"):
            inside = int(np.count_nonzero((scores >= -_SLACK) & (scores <= 1.0 + _SLACK)))
            above = int(np.count_nonzero((scores > 1.0 + _SLACK) & (scores < np.inf)))
            return cls(int(np.count_nonzero(scores < np.inf)), inside, inside, above)

    def __add__(self, other: ScoreLook) -> ScoreLook:
        both = zip(astuple(self), astuple(other), strict=True)
        return ScoreLook(*(mine + yours for mine, yours in both))

    def kind(self, binary: bool = False) -> Kind:
        """What the scores look like.

        Rows of several scores are probabilities when most rows lie in [0, 1] and sum to 1. One score per row has no
        sum, so all of them must lie in [0, 1], but for one in a hundred.
        """
        if not self.rows:
            return "logits"
        if binary:
            return self._binary_kind()
        if 2 * self.summing > self.rows:
            return "probabilities"
        if self.rows < _ENOUGH:
            return "logits"
        if 2 * self.scaled > self.rows and self._nearly_all(self.inside + self.scaled):
            return "scaled"  # a negative score here and there is no percentage and no count
        return "unit interval" if self._nearly_all(self.inside) else "logits"

    def _binary_kind(self) -> Kind:
        if self.rows >= _SOME and self._nearly_all(self.inside):
            return "probabilities"
        return "scaled" if self.rows >= _ENOUGH and self._nearly_all(self.inside + self.scaled) else "logits"

    def _nearly_all(self, rows: int) -> bool:
        return (self.rows - rows) * _STRAYS <= self.rows


def _without_negative(scores: AnyFloats, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Those of the rows that may be without a negative score, by a few columns: most logits are seen through there."""
    columns = scores.shape[1]
    for column in range(1, min(_PROBES, columns - 1)):
        before = rows.size
        rows = rows[scores[rows, column * (columns - 1) // min(_PROBES, columns - 1)] >= 0]
        if 4 * rows.size > 3 * before:
            break
    return rows


def _scaled_rows(rows: AnyFloats) -> int:
    """How many of these rows, none of them negative, sum to 100 or are whole numbers."""
    if not rows.size:
        return 0
    percentages = np.abs(rows.sum(axis=1, dtype=np.float64) - 100.0) <= _PERCENT
    whole = (rows == np.rint(rows)).all(axis=1)
    return int(np.count_nonzero(percentages | whole))


def are_log_probabilities(scores: AnyFloats) -> NDArray[np.bool_]:
    """Which rows (rows x classes) are logarithms of probabilities: their exponentials sum to 1.

    There -inf is a probability of 0; in true logits it means that a class is impossible.

    >>> are_log_probabilities(np.array([[np.log(0.5), np.log(0.5), -np.inf], [3.0, 1.0, -np.inf]])).tolist()
    [True, False]
    """
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        exponentials = np.exp(np.minimum(scores.astype(np.float64), 1.0))
        fit: NDArray[np.bool_] = np.abs(row_sums(exponentials) - 1.0) <= LOG_TOLERANCE
    return fit
