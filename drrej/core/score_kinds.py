"""Whether scores that are to be taken as logits are probabilities in truth.

Real logits hardly ever lie in [0, 1] and sum to 1, so a dump in which most rows do is one of probabilities: with
temperature scaling on top it would give plausible numbers, all of them wrong. Nobody should go on without saying which
it is. The look at a block is a few counts that add up, so the verdict is that of the rows, however they are split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from drrej.core.probabilities import LOG_TOLERANCE, Verdict, read_probabilities, row_sums
from drrej.core.types import AnyFloats

Kind = Literal["probabilities", "unit interval", "logits"]

_SLACK = 1e-6
_STRAYS = 100
"""One score in so many may lie outside of [0, 1], damaged or not: the others still tell."""

_ENOUGH = 20
"""Rows from which on it is no accident that all scores lie in [0, 1] though they do not sum to 1."""

REASONS: dict[Kind, str] = {
    "probabilities": "rows lie in [0, 1] and sum to 1, so these are probabilities, not logits",
    "unit interval": "scores lie in [0, 1], as probabilities do, but rows do not sum to 1",
}
BINARY_REASON = "scores lie in [0, 1], as a probability of class 1 does"
REMEDIES: dict[Kind, str] = {
    "probabilities": "say `input=probs`, or `input=logits` if they are logits all the same",
    "unit interval": (
        "say `input=logits` if they are logits, or `input=probs` with `normalize=True` if each is a probability "
        "of its own class"
    ),
}


@dataclass(frozen=True)
class ScoreLook:
    """Counts of rows: all, those with every score in [0, 1], and of these the ones that sum to 1; adds up.

    Rows with NaN or +inf are bad anyway and do not count.
    """

    rows: int = 0
    inside: int = 0
    summing: int = 0

    @classmethod
    def of(cls, scores: AnyFloats, largest: NDArray[np.float64] | None = None) -> ScoreLook:
        """Look at rows of scores (rows x classes). `largest` is the largest of each row, if it is known already.

        >>> ScoreLook.of(np.array([[0.2, 0.8], [0.5, 0.9], [-1.0, 2.0]]))
        ScoreLook(rows=3, inside=2, summing=1)
        """
        if largest is None:
            largest = scores.max(axis=1).astype(np.float64)
        with np.errstate(invalid="ignore"):
            rows = int(np.count_nonzero(largest < np.inf))  # not NaN either
            likely = np.flatnonzero((largest >= 0) & (largest <= 1.0 + _SLACK))
            inside = scores[likely]
            inside = inside[inside.min(axis=1) >= 0] if inside.size else inside
        verdicts = read_probabilities(inside).verdicts
        return cls(rows, len(inside), int(np.count_nonzero(verdicts == Verdict.GOOD)))

    @classmethod
    def of_binary(cls, scores: AnyFloats) -> ScoreLook:
        """Look at one score per row."""
        with np.errstate(invalid="ignore"):
            inside = int(np.count_nonzero((scores >= -_SLACK) & (scores <= 1.0 + _SLACK)))
            return cls(int(np.count_nonzero(scores < np.inf)), inside, inside)

    def __add__(self, other: ScoreLook) -> ScoreLook:
        return ScoreLook(self.rows + other.rows, self.inside + other.inside, self.summing + other.summing)

    def kind(self, binary: bool = False) -> Kind:
        """What the scores look like.

        Rows of several scores are probabilities when most rows lie in [0, 1] and sum to 1. One score per row has no
        sum, so all of them must lie in [0, 1], but for one in a hundred.
        """
        if not self.rows:
            return "logits"
        within = (self.rows - self.inside) * _STRAYS <= self.rows
        if within if binary else 2 * self.summing > self.rows:
            return "probabilities"
        return "unit interval" if within and self.rows >= _ENOUGH else "logits"


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
