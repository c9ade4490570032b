"""Risk-coverage curves: how many rows are accepted up to each loss, and how many errors are among them.

Rows are ordered by loss, and rows that tie stay together, so every figure is the same under any shuffle.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct

from drrej.core.intervals import CONFIDENCE, at_least, at_most, lower_bound, rate_at_most, upper_bound
from drrej.core.types import Floats, Integers

CONVENTIONS = {
    "aurc": "trapezoid over distinct losses, first risk extended to coverage 0",
    "e_aurc": "aurc minus err + (1 - err) ln(1 - err), that of a perfect order of endless rows",
    "augrc": "trapezoid of accepted errors / rows over distinct losses, from (0, 0)",
    "naurc": "(aurc - ideal) / (err - ideal), ideal = err + (1 - err) ln(1 - err): 0 is perfect, 1 is random",
    "failure_auroc": "chance that a wrong row has a larger loss than a right one, ties count half",
    "fpr_at_95_tpr": (
        "share of wrong rows accepted where at least 95 % of the right ones (the positives) are, tie blocks whole"
    ),
}
"""What exactly is computed, for figures that others compute in other ways; by the name of the method."""

STRETCH = 1 << 14
"""Rows that are looked at together: they fit the cache."""

PER = 1000
"""Costs are told per so many rows."""


class Curve(Struct, frozen=True, dict=True):
    """Sorted losses, of all rows and of the wrong ones; arrays, or `np.memmap`s where they exceed the memory.

    The points of the curve are the distinct losses. Their arrays (`losses`, `accepted`, `errors`) are made when asked
    for; areas are computed stretch by stretch without them.
    """

    ordered: Floats
    wrong: Floats

    @classmethod
    def of(cls, right: Floats, wrong: Floats) -> Curve:
        """From the losses of the right and of the wrong rows, in any order."""
        return cls(np.sort(np.concatenate([right, wrong])), np.sort(wrong))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.ordered.size)

    @property
    def total_errors(self) -> int:
        """Number of wrong rows."""
        return int(self.wrong.size)

    @cached_property
    def accepted(self) -> Integers:
        """The rows accepted up to each distinct loss."""
        return np.flatnonzero(np.append(self.ordered[1:] != self.ordered[:-1], True)) + 1

    @cached_property
    def errors(self) -> Integers:
        """The errors among them."""
        return np.searchsorted(self.wrong, self.losses, side="right")

    @cached_property
    def losses(self) -> Floats:
        """The distinct losses."""
        return self.ordered if self.accepted.size == self.rows else self.ordered[self.accepted - 1]

    def below(self, cutoff: float | None) -> tuple[int, int]:
        """(accepted, errors) at a cutoff: rows with a smaller loss; None accepts every row."""
        if cutoff is None:
            return self.rows, self.total_errors
        return int(np.searchsorted(self.ordered, cutoff)), int(np.searchsorted(self.wrong, cutoff))

    def reaching(self, rows: int) -> tuple[int, int]:
        """(accepted, errors) at the first point that accepts at least so many rows."""
        loss = self.ordered[max(rows, 1) - 1]
        accepted, errors = (np.searchsorted(values, loss, side="right") for values in (self.ordered, self.wrong))
        return int(accepted), int(errors)

    def following(self, accepted: int) -> float | None:
        """The smallest loss of the rows that are left when a point accepts so many; None if it accepts all."""
        return None if accepted == self.rows else float(self.ordered[accepted])

    def largest_at_risk(self, limit: Fraction, most: int | None = None) -> tuple[int, int]:
        """(accepted, errors) at the last point whose error rate is at most a limit; (0, 0) if there is none.

        Points that accept more than `most` rows do not count.
        """
        most = self.rows if most is None else most
        for start, stop in reversed(self._stretches):
            wrong = 0 if start == 0 else self.reaching(start)[1]
            if start < most and Fraction(wrong, stop) <= limit:  # else the rate of each of its points is higher
                accepted, errors = self._stretch(start, stop)
                held = np.flatnonzero(rate_at_most(errors, accepted, limit) & (accepted <= most))
                if held.size:
                    return int(accepted[held[-1]]), int(errors[held[-1]])
        return 0, 0

    def aurc(self) -> float:
        """Area under risk against coverage."""
        return self._areas[0]

    def e_aurc(self) -> float:
        """AURC above err + (1 - err) ln(1 - err), the ideal of the literature (Geifman, Uziel and El-Yaniv 2019).

        The ideal accepts right rows until there are none left, then wrong ones, one by one: its risk at coverage c is
        1 - (1 - err) / c beyond 1 - err, and the area under that is the figure. Wrong rows that tie lie on a chord
        below it, so a curve with ties, or with few rows, can be a little under the ideal and the figure negative.
        """
        return self.aurc() - _ideal(self.total_errors / self.rows)

    def naurc(self) -> float | None:
        """AURC between the ideal (0) and a random order (1): (AURC - ideal) / (err - ideal); None if err is 0 or 1.

        The ideal is that of `e_aurc`; a random order has AURC = err in expectation. Above 1 the order is worse
        than random. The normalised AURC of Cattelan and Silva (2024).
        """
        if self.total_errors in (0, self.rows):
            return None
        error = self.total_errors / self.rows
        ideal = _ideal(error)
        return (self.aurc() - ideal) / (error - ideal)

    def augrc(self) -> float:
        """Area under generalised risk (accepted errors / rows) against coverage, exact up to one division."""
        return self._areas[1] / (2 * self.rows * self.rows)

    def failure_auroc(self) -> float | None:
        """AUROC of the loss as a detector of errors, exact up to one division; None without errors or right rows.

        The chance that a wrong row drawn at random has a larger loss than a right one, plus half the chance of a tie.
        With `twice` = sum of (rows of a tie block) (errors before it + errors up to it), the pairs that a right row
        wins count twice - errors^2 when each is counted two times and each tie once.
        """
        errors, right = self.total_errors, self.rows - self.total_errors
        if not errors or not right:
            return None
        return (2 * errors * right - self._areas[1] + errors * errors) / (2 * errors * right)

    def fpr_at_95_tpr(self) -> float | None:
        """The share of wrong rows accepted where 95 % of the right ones are; None without errors or right rows.

        Positives are the right rows and accepting is predicting positive, as is usual in failure detection. The
        cutoff is the smallest that accepts at least 95 % of the right rows (decided in integers); rows that tie are
        accepted together and nothing is interpolated.
        """
        errors, right = self.total_errors, self.rows - self.total_errors
        if not errors or not right:
            return None
        wanted = -(-95 * right // 100)
        rows = bisect_left(range(self.rows), wanted, key=lambda row: -int(np.diff(self.reaching(row + 1))[0]))
        return self.reaching(rows + 1)[1] / errors

    @cached_property
    def _areas(self) -> tuple[float, int]:
        """AURC, and AUGRC times 2 rows^2 (an integer), in one look at the curve, in stretches of whole tie blocks."""
        under_risk, twice, wrong_before = [], 0, 0
        for before, end in self._stretches:
            accepted, errors = self._stretch(before, end)
            risk = errors / accepted
            first_risk = wrong_before / before if before else risk[0]
            twice_risk = risk + np.concatenate([[first_risk], risk[:-1]])
            both = errors + np.concatenate([[wrong_before], errors[:-1]])
            width = np.diff(accepted, prepend=before)
            wrong_before = int(errors[-1])
            under_risk.append(float(np.sum(width * twice_risk)))
            if int(width.sum()) * int(both[-1]) < 1 << 62:
                twice += int(width @ both)
            else:
                twice += sum(int(w) * int(e) for w, e in zip(width, both, strict=True))
        return math.fsum(under_risk) / (2 * self.rows), twice

    @cached_property
    def _stretches(self) -> list[tuple[int, int]]:
        """Rows (start, stop) that are looked at together: tie blocks stay whole."""
        losses = np.unique(np.append(self.ordered[STRETCH - 1 :: STRETCH], self.ordered[-1]))
        ends = np.searchsorted(self.ordered, losses, side="right").tolist()
        return list(pairwise([0, *ends]))

    def _stretch(self, start: int, stop: int) -> tuple[Integers, Integers]:
        """Rows accepted and errors at each point between two ends of tie blocks."""
        ordered = self.ordered[start:stop]
        first, last = np.searchsorted(self.wrong, ordered[0]), np.searchsorted(self.wrong, ordered[-1], side="right")
        ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
        losses = ordered if ends.size == ordered.size else ordered[ends]
        errors = np.bincount(np.searchsorted(losses, self.wrong[first:last]), minlength=losses.size)
        return ends + (start + 1), np.cumsum(errors, out=errors) + first


def _ideal(error: float) -> float:
    """AURC of a perfect order of endless rows."""
    return 1.0 if error == 1.0 else error + (1.0 - error) * math.log1p(-error)


class MeanCurve(Struct, frozen=True):
    """After each distinct loss: the rows accepted, and the sum of what they lose: real-valued errors, or costs.

    Within a tie rows are ordered by what they lose, so every figure is the same under any shuffle.
    """

    losses: Floats
    accepted: Integers
    sums: Floats

    @classmethod
    def of(cls, losses: Floats, errors: Floats) -> MeanCurve:
        """From the loss and the error of each row."""
        order = np.lexsort((errors, losses))
        ordered = losses[order]
        last_of_tie = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
        return cls(ordered[last_of_tie], last_of_tie + 1, np.cumsum(errors[order])[last_of_tie])

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.accepted[-1])

    def below(self, cutoff: float | None) -> tuple[int, float | None]:
        """(accepted, mean error) at a cutoff: rows with L' < cutoff; None where nothing is accepted."""
        points = self.losses.size if cutoff is None else int(np.searchsorted(self.losses, cutoff))
        if not points:
            return 0, None
        accepted = int(self.accepted[points - 1])
        return accepted, float(self.sums[points - 1]) / accepted

    def aurc(self) -> float:
        """Area under mean error against coverage: trapezoid, the first value extended to coverage 0."""
        risk = self.sums / self.accepted
        previous = np.concatenate([risk[:1], risk[:-1]])
        return float(np.sum(np.diff(self.accepted, prepend=0) * (risk + previous)) / (2 * self.rows))

    def augrc(self) -> float:
        """Area under (sum of accepted errors / rows) against coverage, from (0, 0)."""
        previous = np.concatenate([[0.0], self.sums[:-1]])
        width = np.diff(self.accepted, prepend=0)
        return float(np.sum(width * (self.sums + previous)) / (2 * self.rows * self.rows))

    def totals(self, review: float) -> Floats:
        """The total cost at each point, where a rejected row costs a review; at last, that of rejecting every row."""
        totals = self.sums + review * (self.rows - self.accepted)
        return np.append(totals, review * self.rows)

    def cheapest(self, review: float, points: int | None = None) -> int:
        """Which of the first `points` points costs least; -1 rejects every row. Of equal costs the last is taken.

        >>> costs = MeanCurve.of(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.0, 0.0, 50.0, 0.0]))
        >>> costs.cheapest(2.0), float(costs.totals(2.0)[1])  # two accepted, two reviews
        (1, 4.0)
        """
        totals = self.totals(review)
        some = totals[: len(totals) - 1 if points is None else points]
        least = float(totals[-1] if not some.size else min(totals[-1], some.min())) * (1.0 + 1e-12)  # up to rounding
        held = np.flatnonzero(some <= least)
        return int(held[-1]) if held.size else -1


_TAIL = (1.0 - CONFIDENCE) / 2
_RANK_LEVEL = _TAIL / 5
"""What the coverage of a given set may cost. Where the risk crosses its limit is the harder question."""
_RISK_LEVEL = _TAIL - _RANK_LEVEL

_PIECE = 1024
"""Points that are tested together; it is first tried whether they need to be."""


def coverage_at_risk(curve: Curve, limit: Fraction) -> tuple[float, float]:
    """(lower, upper): the 95 % interval of the largest coverage whose risk is at most a limit; see docs/proofs.md.

    >>> losses = np.arange(400.0)
    >>> coverage_at_risk(Curve.of(losses, losses[:0]), Fraction(1, 20))  # 400 rows, all right
    (1.0, 1.0)
    """
    if limit >= 1:
        return 1.0, 1.0
    risk, rows = float(limit), curve.rows
    surely, falling = _certified(curve, risk), curve.accepted[::-1]
    lower = 1.0 if surely == rows else lower_bound(surely, rows, _RANK_LEVEL)
    last = _first_above(falling, curve.errors[::-1], risk, at_least, _RISK_LEVEL)  # that is not rejected
    return lower, upper_bound(0 if last is None else int(falling[last]), rows, _RANK_LEVEL)


def _certified(curve: Curve, risk: float) -> int:
    """Rows of the largest set certified to have a risk of at most `risk`; 0 if there is none."""
    accepted, errors, level = curve.accepted, curve.errors, _RISK_LEVEL / 2
    starts = [curve.rows]  # how many rows each run starts with, the most first
    while starts[-1] > 1:
        fewer = math.isqrt(starts[-1] ** 2 // 2)
        if risk == 0 or fewer * math.log1p(-risk) > math.log(level / (len(starts) + 1)):
            break  # so many rows would not be certified even without an error
        starts.append(fewer)
    for rows in starts:
        point = int(np.searchsorted(accepted, rows, side="right")) - 1  # rows below the next loss
        if point >= 0 and at_most(errors[point], accepted[point], risk) <= level / len(starts):
            failing = _first_above(accepted[point + 1 :], errors[point + 1 :], risk, at_most, _RISK_LEVEL / 2)
            return int(accepted[-1 if failing is None else point + failing])
    return 0


def _first_above(
    accepted: Integers, errors: Integers, risk: float, chance: Callable[..., Any], level: float
) -> int | None:
    """The first point whose chance is above a level: `at_most` of growing sets, `at_least` of shrinking ones.

    A piece is passed over where the errors of its last point among the rows of its first, which would have a larger
    chance than any of its points, are not above the level either.
    """
    starts = np.arange(0, accepted.size, _PIECE)
    lasts = np.minimum(starts + _PIECE, accepted.size) - 1
    possible = chance(errors[lasts], accepted[starts], risk) > level
    for start in starts[possible]:
        piece = slice(start, start + _PIECE)
        above = np.flatnonzero(chance(errors[piece], accepted[piece], risk) > level)
        if above.size:
            return int(start + above[0])
    return None
