"""The interval of the coverage at a given risk: exact for any number of rows and any shape of the risk.

Let c* be the largest coverage F(t) = P(L' <= t) at which risk(t) = P(wrong | L' <= t) is at most R, and t* the loss
where it is reached (c* = 0: nowhere). At a fixed t, N of the n rows have L' <= t with N ~ Bin(n, F(t)) and, given N,
their errors are Bin(N, risk(t)). Given the (k+1)-th smallest loss, the same holds for the rows below that loss. Hence:

*Upper end.* The risk at t* is at most R, so the test P(Bin(N, R) >= errors) <= a rejects the rows up to t* with chance
at most a. If it does not, N(t*) is at most k, the rows of the largest set that is not rejected, and c* is at most the
Clopper-Pearson upper bound on a coverage seen as k of n, except with chance b. Only the look at t* can go wrong, so the
other looks cost nothing.

*Lower end.* A set is certified if P(Bin(N, R) <= errors) is at most its level; a set of larger risk than R is certified
with at most that chance. Runs start with the k smallest losses, k = n, n/1.41, n/2, n/2.83, ..., where each start has
an equal share of a/2. A run goes on from one tie block end to the next while it certifies them at level a/2. To get
beyond t* it takes a start beyond t* that is certified, or that the set up to t' is, where t' is the smallest loss
beyond t* that a row can have (if there is none, t* itself, where the risk is then R). The chance of that is at most a/2
+ a/2. Otherwise the last certified set is within t*, and c* is at least the Clopper-Pearson lower bound on a coverage
seen as k of n, except with chance b. When all rows are certified the lower end is 1.

Each end misses with chance at most a + b = 2.5 %. Where the risk is flat near R the interval is wide, because the data
do not say where the curve crosses R.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from drrej.core.curves import Curve
from drrej.core.intervals import CONFIDENCE, lower_bound, upper_bound

Counts = NDArray[np.int64]

_TAIL = (1.0 - CONFIDENCE) / 2
_RANK_LEVEL = _TAIL / 5
"""b: what the coverage of a given set may cost. Where the risk crosses its limit is the harder question."""
_RISK_LEVEL = _TAIL - _RANK_LEVEL
"""a."""

_PIECE = 1024
"""Points that are tested together; longer stretches are first tried as a whole."""


def coverage_at_risk(curve: Curve, limit: Fraction) -> tuple[float, float]:
    """(lower, upper): the 95 % interval of the largest coverage whose risk is at most a limit.

    >>> from drrej.core.curves import RiskCoverage
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
