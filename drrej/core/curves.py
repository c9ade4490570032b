"""Risk-coverage curves: how many rows are accepted up to each loss, and how many errors are among them.

Rows are ordered by L' and rows that tie stay together, so every figure is the same under any shuffle.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from drrej.core.intervals import CONFIDENCE, lower_bound, rate_at_most, upper_bound
from drrej.core.types import Floats, SortedLosses, StoredLosses
from drrej.records import dataclass

AURC_CONVENTION = "trapezoid over distinct losses, first risk extended to coverage 0"
E_AURC_CONVENTION = "aurc minus that of all right rows before all wrong ones in two tie blocks"
AUGRC_CONVENTION = "trapezoid of accepted errors / rows over distinct losses, from (0, 0)"
STANDARD_E_AURC_CONVENTION = "aurc minus err + (1 - err) ln(1 - err), that of a perfect order of endless rows"
NAURC_CONVENTION = "(aurc - ideal) / (err - ideal), ideal = err + (1 - err) ln(1 - err): 0 is perfect, 1 is random"
FAILURE_AUROC_CONVENTION = "chance that a wrong row has a larger loss than a right one, ties count half"
FPR_AT_95_TPR_CONVENTION = (
    "share of wrong rows accepted where at least 95 % of the right ones (the positives) are, tie blocks whole"
)

STRETCH = 1 << 14
"""Points that are looked at together: they fit the cache."""

_LONG = 1 << 20
"""Rows of a stretch above which those that are not in memory are read in pieces."""

Counts = NDArray[np.int64]


class _Bound(NamedTuple):
    """Where a stretch ends: its position, and the counts up to there."""

    position: int
    accepted: int
    errors: int


_START = _Bound(0, 0, 0)


class Curve(ABC):
    """A risk-coverage curve: after each distinct loss, the rows accepted and the errors among them."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """Number of rows."""

    @property
    @abstractmethod
    def total_errors(self) -> int:
        """Number of wrong rows."""

    @property
    @abstractmethod
    def range(self) -> tuple[float, float]:
        """The smallest and the largest loss."""

    @abstractmethod
    def below(self, cutoff: float | None) -> tuple[int, int]:
        """(accepted, errors) at a cutoff: rows with L' < cutoff."""

    @abstractmethod
    def reaching(self, rows: int) -> tuple[int, int]:
        """(accepted, errors) at the first point that accepts at least so many rows."""

    @abstractmethod
    def following(self, accepted: int) -> float | None:
        """The smallest loss of the rows that are left when a point accepts so many; None if it accepts all."""

    @abstractmethod
    def ranks(self, losses: Floats, side: Literal["left", "right"]) -> Counts:
        """How many rows have a smaller loss than each given one (left), or one that is not larger (right)."""

    @abstractmethod
    def points(self) -> RiskCoverage:
        """The curve with its points in arrays."""

    @abstractmethod
    def _bounds(self) -> list[_Bound]:
        """Where stretches of points begin and end, from 0 to the last."""

    @abstractmethod
    def _stretch(self, start: int, stop: int) -> tuple[Counts, Counts]:
        """Accepted rows and errors at each point of a stretch."""

    def largest_at_risk(self, limit: Fraction, most: int | None = None) -> tuple[int, int]:
        """(accepted, errors) at the last point whose error rate is at most a limit; (0, 0) if there is none.

        Points that accept more than `most` rows do not count.
        """
        most = self.rows if most is None else most
        for end, start in pairwise(reversed(self._bounds())):
            if start.errors > limit * end.accepted or start.accepted >= most:  # no point between them can hold it
                continue
            accepted, errors = self._stretch(start.position, end.position)
            held = np.flatnonzero(rate_at_most(errors, accepted, limit) & (accepted <= most))
            if held.size:
                return int(accepted[held[-1]]), int(errors[held[-1]])
        return 0, 0

    def aurc(self) -> float:
        """Area under risk against coverage."""
        return self._areas[0]

    def e_aurc(self) -> float:
        """AURC above the best order of the same predictions."""
        error = self.total_errors / self.rows
        ideal = 1.0 if error == 1.0 else 0.5 * error * error
        return max(self.aurc() - ideal, 0.0)

    def standard_e_aurc(self) -> float:
        """AURC above err + (1 - err) ln(1 - err), the ideal of the literature (Geifman, Uziel and El-Yaniv 2019).

        The ideal accepts right rows until there are none left, then wrong ones, one by one: its risk at coverage c is
        1 - (1 - err) / c beyond 1 - err, and the area under that is the figure. Wrong rows that tie lie on a chord
        below it, so a curve with ties, or with few rows, can be a little under the ideal and the figure negative.
        """
        return self.aurc() - _ideal(self.total_errors / self.rows)

    def naurc(self) -> float | None:
        """AURC between the ideal (0) and a random order (1): (AURC - ideal) / (err - ideal); None if err is 0 or 1.

        The ideal is that of `standard_e_aurc`; a random order has AURC = err in expectation. Above 1 the order is worse
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
        for start, end in pairwise(self._bounds()):
            if end.accepted - end.errors >= wanted:
                accepted, wrong = self._stretch(start.position, end.position)
                return int(wrong[np.searchsorted(accepted - wrong, wanted)]) / errors
        raise AssertionError("the last point accepts every row")

    @cached_property
    def _areas(self) -> tuple[float, int]:
        """AURC, and AUGRC times 2 rows^2 (an integer), in one look at the curve."""
        under_risk = []
        twice = 0
        for before, end in pairwise(self._bounds()):
            accepted, errors = self._stretch(before.position, end.position)
            without_ties = accepted.size == end.accepted - before.accepted
            risk = errors / accepted
            twice_risk = risk.copy()
            twice_risk[0] += before.errors / before.accepted if before.accepted else risk[0]
            twice_risk[1:] += risk[:-1]
            both = errors.copy()
            both[0] += before.errors
            both[1:] += errors[:-1]
            if without_ties:  # each row has a width of 1
                under_risk.append(float(np.sum(twice_risk)))
                twice += int(both.sum())
                continue
            width = np.diff(accepted, prepend=before.accepted)
            under_risk.append(float(np.sum(width * twice_risk)))
            if int(width.sum()) * int(both[-1]) < 1 << 62:
                twice += int(width @ both)
            else:
                twice += sum(int(w) * int(e) for w, e in zip(width, both, strict=True))
        return math.fsum(under_risk) / (2 * self.rows), twice


def _ideal(error: float) -> float:
    """AURC of a perfect order of endless rows."""
    return 1.0 if error == 1.0 else error + (1.0 - error) * math.log1p(-error)


@dataclass(frozen=True)
class RiskCoverage(Curve):
    """The curve as arrays, one entry for each distinct loss."""

    losses: Floats
    accepted: Counts
    errors: Counts

    @classmethod
    def of(cls, right: Floats, wrong: Floats) -> RiskCoverage:
        """From the losses of the right and of the wrong rows."""
        return RankedLosses.of(right, wrong).points()

    def points(self) -> RiskCoverage:
        """The curve itself."""
        return self

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.accepted[-1])

    @property
    def total_errors(self) -> int:
        """Number of wrong rows."""
        return int(self.errors[-1])

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest loss."""
        return float(self.losses[0]), float(self.losses[-1])

    def below(self, cutoff: float | None) -> tuple[int, int]:
        """(accepted, errors) at a cutoff: rows with L' < cutoff."""
        points = self.losses.size if cutoff is None else int(np.searchsorted(self.losses, cutoff))
        return (int(self.accepted[points - 1]), int(self.errors[points - 1])) if points else (0, 0)

    def reaching(self, rows: int) -> tuple[int, int]:
        """(accepted, errors) at the first point that accepts at least so many rows."""
        point = int(np.searchsorted(self.accepted, rows))
        return int(self.accepted[point]), int(self.errors[point])

    def following(self, accepted: int) -> float | None:
        """The smallest loss of the rows that are left when a point accepts so many; None if it accepts all."""
        point = int(np.searchsorted(self.accepted, accepted, side="right"))
        return None if point == self.losses.size else float(self.losses[point])

    def ranks(self, losses: Floats, side: Literal["left", "right"]) -> Counts:
        """How many rows have a smaller loss than each given one (left), or one that is not larger (right)."""
        points = np.searchsorted(self.losses, losses, side=side)
        return np.where(points > 0, self.accepted[points - 1], 0)

    def _bounds(self) -> list[_Bound]:
        ends = [*range(STRETCH, self.losses.size, STRETCH), self.losses.size]
        return [_START, *(_Bound(end, int(self.accepted[end - 1]), int(self.errors[end - 1])) for end in ends)]

    def _stretch(self, start: int, stop: int) -> tuple[Counts, Counts]:
        return self.accepted[start:stop], self.errors[start:stop]


@dataclass(frozen=True)
class RankedLosses(Curve):
    """The curve as sorted losses, of all rows and of the wrong ones: points are worked out where they are needed.

    The losses may lie elsewhere than in memory, in what can be sliced and searched like an array.
    """

    ordered: SortedLosses
    wrong: SortedLosses

    @classmethod
    def of(cls, right: Floats, wrong: Floats) -> RankedLosses:
        """From the losses of the right and of the wrong rows."""
        return cls.in_place(np.concatenate([right, wrong]), right.size)

    @classmethod
    def in_place(cls, losses: Floats, right: int) -> RankedLosses:
        """From one array that is sorted here: so many losses of right rows, then those of the wrong ones."""
        losses[:right].sort()
        losses[right:].sort()
        wrong = losses[right:].copy()
        losses.sort(kind="stable")  # two sorted runs: merged in linear time
        return cls(losses, wrong)

    def points(self) -> RiskCoverage:
        """The curve with its points in arrays."""
        accepted, errors = self._stretch(0, self.rows)
        ordered = self.ordered[: self.rows]
        losses = ordered if accepted.size == self.rows else ordered[accepted - 1]
        return RiskCoverage(losses, accepted, errors)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.ordered.size)

    @property
    def total_errors(self) -> int:
        """Number of wrong rows."""
        return int(self.wrong.size)

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest loss."""
        return float(self.ordered[0]), float(self.ordered[-1])

    def below(self, cutoff: float | None) -> tuple[int, int]:
        """(accepted, errors) at a cutoff: rows with L' < cutoff."""
        if cutoff is None:
            return self.rows, self.total_errors
        return int(self.ordered.searchsorted(cutoff)), int(self.wrong.searchsorted(cutoff))

    def reaching(self, rows: int) -> tuple[int, int]:
        """(accepted, errors) at the first point that accepts at least so many rows."""
        loss = self.ordered[max(rows, 1) - 1]
        accepted, errors = (ranked.searchsorted(loss, side="right") for ranked in (self.ordered, self.wrong))
        return int(accepted), int(errors)

    def following(self, accepted: int) -> float | None:
        """The smallest loss of the rows that are left when a point accepts so many; None if it accepts all."""
        return None if accepted == self.rows else float(self.ordered[accepted])

    def ranks(self, losses: Floats, side: Literal["left", "right"]) -> Counts:
        """How many rows have a smaller loss than each given one (left), or one that is not larger (right)."""
        ranks: Counts = self.ordered.searchsorted(losses, side=side)
        return ranks

    def _bounds(self) -> list[_Bound]:
        return self._ends

    @cached_property
    def _ends(self) -> list[_Bound]:
        """Every so many rows, moved to the end of the tie block."""
        losses = np.unique(np.append(self.ordered[STRETCH - 1 :: STRETCH], self.ordered[-1]))
        ends, errors = (ranked.searchsorted(losses, side="right").tolist() for ranked in (self.ordered, self.wrong))
        return [_START, *map(_Bound, ends, ends, errors)]

    def _stretch(self, start: int, stop: int) -> tuple[Counts, Counts]:
        if stop - start > _LONG and isinstance(self.ordered, StoredLosses):
            return self._long_stretch(start, stop)
        ordered = self.ordered[start:stop]
        first = int(self.wrong.searchsorted(ordered[0]))
        last = int(self.wrong.searchsorted(ordered[-1], side="right"))
        ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
        losses = ordered if ends.size == ordered.size else ordered[ends]
        errors = np.bincount(np.searchsorted(losses, self.wrong[first:last]), minlength=losses.size)
        np.cumsum(errors, out=errors)
        return ends + (start + 1), errors + first

    def _long_stretch(self, start: int, stop: int) -> tuple[Counts, Counts]:
        """The same a piece at a time: nearly all of these rows tie, so their points are few."""
        accepted, losses = [], []
        for first in range(start, stop, _LONG):
            last = min(first + _LONG, stop)
            piece = self.ordered[first : min(last + 1, stop)]  # the next row tells whether the last one's block ends
            ends = np.flatnonzero(np.append(piece[1:] != piece[:-1], [True] if last == stop else []))
            accepted.append(ends + (first + 1))
            losses.append(piece[ends])
        return np.concatenate(accepted), self.wrong.searchsorted(np.concatenate(losses), side="right")


class LossStore:
    """Losses as blocks bring them, in one array: those of right rows from the front, of wrong ones from the back."""

    def __init__(self, rows: int) -> None:
        self.losses = np.empty(rows)
        self.right = 0
        self.wrong = 0

    def add(self, right: Floats, wrong: Floats) -> None:
        """Add the losses of some rows."""
        self.losses[self.right : self.right + right.size] = right
        self.right += right.size
        self.wrong += wrong.size
        self.losses[self.losses.size - self.wrong :][: wrong.size] = wrong

    def values(self) -> Floats:
        """The losses, those of right rows first; rows stand at the same places in every store that they came to."""
        rows = self.right + self.wrong
        if rows < self.losses.size:  # there may be fewer rows than there is room for
            self.losses = np.concatenate([self.losses[: self.right], self.losses[self.losses.size - self.wrong :]])
        return self.losses

    def ranked(self) -> RankedLosses:
        """The curve; afterwards the values are in another order."""
        return RankedLosses.in_place(self.values(), self.right)


_TAIL = (1.0 - CONFIDENCE) / 2
_RANK_LEVEL = _TAIL / 5
"""b: what the coverage of a given set may cost. Where the risk crosses its limit is the harder question."""
_RISK_LEVEL = _TAIL - _RANK_LEVEL
"""a."""

_PIECE = 1024
"""Points that are tested together; longer stretches are first tried as a whole."""


def coverage_at_risk(curve: Curve, limit: Fraction) -> tuple[float, float]:
    """(lower, upper): the 95 % interval of the largest coverage whose risk is at most a limit.

    >>> losses = np.arange(400.0)
    >>> coverage_at_risk(RiskCoverage.of(losses, losses[:0]), Fraction(1, 20))  # 400 rows, all right
    (1.0, 1.0)
    """
    if limit >= 1:
        return 1.0, 1.0
    points = curve.points()
    test = _Test(points.accepted, points.errors, float(limit))
    rows = points.rows
    surely, perhaps = test.certified(rows), test.last_not_rejected()
    lower = 1.0 if surely == rows else lower_bound(surely, rows, _RANK_LEVEL)
    return lower, upper_bound(perhaps, rows, _RANK_LEVEL)


class _Test:
    """Tests of risk <= R and of risk > R at the points of a curve."""

    def __init__(self, accepted: Counts, errors: Counts, risk: float) -> None:
        self.accepted, self.errors, self.risk = accepted, errors, risk

    def at_least(self, accepted: Counts, errors: Counts) -> NDArray[np.float64]:
        """P(Bin(accepted, R) >= errors): falls with the errors, grows with the rows."""
        from drrej.core.special import betainc

        tail: NDArray[np.float64] = np.ones(errors.size)
        some = errors > 0
        tail[some] = betainc(errors[some], accepted[some] - errors[some] + 1, self.risk)
        return tail

    def at_most(self, accepted: Counts, errors: Counts) -> NDArray[np.float64]:
        """P(Bin(accepted, R) <= errors): grows with the errors, falls with the rows."""
        from drrej.core.special import betaincc

        tail: NDArray[np.float64] = np.ones(errors.size)
        some = errors < accepted
        tail[some] = betaincc(errors[some] + 1, accepted[some] - errors[some], self.risk)
        return tail

    def last_not_rejected(self) -> int:
        """Rows of the largest set that may have a risk of at most R; 0 if there is none."""

        def held(accepted: Counts, errors: Counts) -> NDArray[np.bool_]:
            return self.at_least(accepted, errors) > _RISK_LEVEL

        def last(start: int, stop: int) -> int | None:
            """The last point from start to stop that holds."""
            if not held(self.accepted[stop - 1 : stop], self.errors[start : start + 1])[0]:
                return None  # fewer errors than any, more rows than any: and still rejected
            if stop - start <= _PIECE:
                found = np.flatnonzero(held(self.accepted[start:stop], self.errors[start:stop]))
                return start + int(found[-1]) if found.size else None
            middle = (start + stop) // 2
            later = last(middle, stop)
            return last(start, middle) if later is None else later

        point = last(0, self.accepted.size)
        return 0 if point is None else int(self.accepted[point])

    def certified(self, rows: int) -> int:
        """Rows of the largest set certified to have a risk of at most R; 0 if there is none."""
        for start, level in self._starts(rows):
            point = int(np.searchsorted(self.accepted, start, side="right")) - 1  # rows below the next loss
            if point < 0 or self.at_most(self.accepted[point : point + 1], self.errors[point : point + 1])[0] > level:
                continue
            failing = self._first_failing(point + 1, self.accepted.size)
            return int(self.accepted[(self.accepted.size if failing is None else failing) - 1])
        return 0

    def _starts(self, rows: int) -> list[tuple[int, float]]:
        """How many rows each run starts with, the most first, and the level of its test."""
        level = _RISK_LEVEL / 2
        starts = [rows]
        while starts[-1] > 1:
            fewer = math.isqrt(starts[-1] ** 2 // 2)
            if not _could_pass(fewer, self.risk, level / (len(starts) + 1)):
                break
            starts.append(fewer)
        return [(start, level / len(starts)) for start in starts]

    def _first_failing(self, start: int, stop: int) -> int | None:
        """The first point that is not certified at the level of a run."""

        def passed(accepted: Counts, errors: Counts) -> NDArray[np.bool_]:
            return self.at_most(accepted, errors) <= _RISK_LEVEL / 2

        if start >= stop or passed(self.accepted[start : start + 1], self.errors[stop - 1 : stop])[0]:
            return None  # more errors than any, fewer rows than any: and still certified
        if stop - start <= _PIECE:
            failing = np.flatnonzero(~passed(self.accepted[start:stop], self.errors[start:stop]))
            return start + int(failing[0]) if failing.size else None
        middle = (start + stop) // 2
        earlier = self._first_failing(start, middle)
        return self._first_failing(middle, stop) if earlier is None else earlier


def _could_pass(rows: int, risk: float, level: float) -> bool:
    """Whether so many rows without an error would be certified."""
    return risk > 0 and rows * math.log1p(-risk) <= math.log(level)
