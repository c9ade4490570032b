"""Cutoffs with guarantees: the true risk is at most R, or the true coverage at least C, except with chance delta.

Throughout, the loss L' is a fixed function (calibrate and fit have seen other rows) and the rows at hand are
independent draws from the distribution of rows to come. A cutoff c accepts the rows with L' < c; its true risk is the
chance that a row is wrong given L' < c. All counts are integers and every bound is the exact binomial one.

**Risk, the default: `fixed-sequence`.** The candidates c_1 < c_2 < ... and a share d_j of delta for each, most of them
0, are fixed before the rows are looked at: the candidates come from the quantiles of the losses that fit has stored,
the shares from the number of rows alone. Going up, candidate j is tested at the level

    a_j = d_j + (a_{j-1} if candidate j-1 was certified, else 0)

and certified if P(Bin(n_j, R) <= e_j) <= a_j, with n_j rows accepted at c_j and e_j errors among them: that is, if the
Clopper-Pearson upper bound at confidence 1 - a_j is at most R. The largest certified candidate is the cutoff.

Proof. Call a candidate bad if its true risk exceeds R, and let b_1 < b_2 < ... be the bad ones. If any bad candidate is
certified, let b_i be the first one that is. Then b_{i-1} was not, so the level at b_i is at most the sum A_i of the
shares d_j with b_{i-1} < j <= b_i: what was there before was lost at b_{i-1} at the latest. The cutoff b_i is fixed, so
given n_j the errors are binomial with a rate above R, and the chance that the test passes at level A_i is at most A_i.
The A_i are sums over disjoint sets of shares, hence the chance that any bad candidate is certified is at most
sum A_i <= sum d_j = delta. Nothing was assumed on how the risk depends on the coverage or on how the tests depend on
each other, candidates may tie, and the set in question is exactly that which the cutoff accepts. This is fixed-sequence
testing with several starts, the fallback procedure (Wiens 2003; Angelopoulos et al. 2021, Learn then Test, use such
tests for risks): a look that comes too early ends one run, not all of them, and a run that passes the next start takes
its share along.

**Risk, `sgr`** (Geifman and El-Yaniv 2017): a binary search over the accepted counts of the rows at hand, each of its
at most ceil(log2 n) looks at level delta / ceil(log2 n). Its proof needs the true risk to grow with the coverage.

**Coverage, `order-statistic`.** Let r be the smallest number with P(Bin(n, C) >= r) <= delta, and accept at least every
row up to the r-th smallest loss. The true coverage of that falls below C only if at least r rows lie below the point x'
where P(L' <= x) first reaches C; as P(L' < x') <= C, the chance of that is at most P(Bin(n, C) >= r). Ties only help.

**Groups.** Given which rows are in which group, the groups' rows are independent, so giving each of G groups the level
1 - (1 - delta)^(1/G) makes all their guarantees hold together with chance 1 - delta.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drrej.core.curves import RiskCoverage
from drrej.core.drift import ranks
from drrej.core.errors import Infeasible
from drrej.core.intervals import lower_bound, upper_bounds
from drrej.core.ratio import DensityRatio
from drrej.core.thresholds import cutoff_after
from drrej.core.types import Floats

_BETWEEN = 10
"""Candidates from one stored quantile to the next."""


@dataclass(frozen=True)
class Looks:
    """What was looked at: cutoffs (infinite: accept all), counts, the level of each test and which were certified."""

    cutoffs: Floats
    accepted: NDArray[np.int64]
    errors: NDArray[np.int64]
    levels: Floats
    certified: NDArray[np.bool_]

    @property
    def bounds(self) -> Floats:
        """The Clopper-Pearson upper bound of each look at its level; 1 where there was none."""
        return upper_bounds(self.errors, self.accepted, self.levels)


@dataclass(frozen=True)
class Certified:
    """A cutoff with what it accepts, and the bound at the level of the look that certified it."""

    cutoff: float | None
    accepted: int
    errors: int
    bound: float
    level: float


def split_delta(delta: float, groups: int) -> float:
    """The level of each of some groups."""
    return delta if groups == 1 else -math.expm1(math.log1p(-delta) / groups)


# Risk, the default method


def candidate_cutoffs(quantiles: Sequence[float], fit_rows: int, ratio: DensityRatio) -> tuple[Floats, Floats]:
    """Candidates in ascending order with the coverage expected of each; the last accepts all that can be accepted.

    Between two stored quantiles there are evenly spaced ones. No candidate lies in the flat part of the ratio.
    """
    known = np.asarray(quantiles, np.float64)
    steps = np.arange(max(known.size - 1, 0) * _BETWEEN + 1) / _BETWEEN
    index = np.arange(known.size)
    cutoffs = np.interp(steps, index, known)
    coverage = np.interp(steps, index, ranks(known.size, fit_rows) / fit_rows)
    last = np.inf if ratio.flat_start is None else ratio.flat_start
    cutoffs, first = np.unique(cutoffs, return_index=True)
    inside = cutoffs < last
    reached = 1.0 if not inside.size or inside.all() else float(coverage[first][~inside][0])
    return np.append(cutoffs[inside], last), np.append(coverage[first][inside], reached)


def shares(coverage: Floats, rows: int, risk: float, delta: float, grouped: bool = False) -> Floats:
    """Delta, shared among the candidates where a run of tests may start.

    Runs start at expected coverages 1, 1/2, 1/4, ..., as many as could pass there without an error. The last
    candidate is always a start, so that a model without errors gets all that can be accepted. The losses of a group
    may lie quite differently from those of all rows, so groups have more starts: 1/8, 2/8, ..., 1.
    """
    halves = {2.0**-k for k in range(41)}
    wanted = sorted(float(coverage[-1]) * start for start in halves | {k / 8 for k in range(1, 9) if grouped})
    while len(wanted) > 1 and not _can_pass(wanted[0] * rows, risk, delta / len(wanted)):
        wanted.pop(0)
    given = np.zeros(coverage.size)
    for start in wanted:
        given[min(int(np.searchsorted(coverage, start)), coverage.size - 1)] += delta / len(wanted)
    return given


def _can_pass(accepted: float, risk: float, level: float) -> bool:
    """Whether so many rows without an error suffice."""
    return risk > 0 and accepted * math.log1p(-risk) <= math.log(level)


def fixed_sequence(
    points: RiskCoverage,
    quantiles: Sequence[float],
    fit_rows: int,
    ratio: DensityRatio,
    risk: float,
    delta: float,
    grouped: bool = False,
) -> Looks:
    """Test the candidates from the safest up; see the module's proof."""
    cutoffs, coverage = candidate_cutoffs(quantiles, fit_rows, ratio)
    given = shares(coverage, points.rows, risk, delta, grouped)
    index = np.searchsorted(points.losses, cutoffs)
    accepted = np.concatenate([[0], points.accepted])[index]
    errors = np.concatenate([[0], points.errors])[index]
    chance = _tail(accepted, errors, risk)
    levels = np.zeros(cutoffs.size)
    certified = np.zeros(cutoffs.size, bool)
    level = 0.0
    for j in range(cutoffs.size):
        level = min(level + given[j], delta)
        levels[j] = level
        certified[j] = chance[j] <= level
        if not certified[j]:
            level = 0.0
    return Looks(cutoffs, accepted, errors, levels, certified)


def _tail(accepted: NDArray[np.int64], errors: NDArray[np.int64], risk: float) -> Floats:
    """P(Bin(accepted, risk) <= errors)."""
    from scipy.special import betainc

    right = accepted - errors
    tail: Floats = np.where(right > 0, betainc(np.maximum(right, 1), errors + 1, 1.0 - risk), 1.0)
    return tail


# Risk, SGR


def sgr(points: RiskCoverage, ratio: DensityRatio, risk: float, delta: float) -> Looks:
    """Binary search over accepted counts; valid where the true risk grows with the coverage."""
    reachable, _ = points.below(ratio.flat_start)
    most = int(np.searchsorted(points.accepted, reachable, side="right"))  # points that can be accepted
    looks: list[tuple[int, bool]] = []
    most_looks = max(1, math.ceil(math.log2(points.rows)))
    level = delta / most_looks
    low, high = 0, reachable
    while low < high and len(looks) < most_looks:
        middle = -(-(low + high) // 2)
        point = min(int(np.searchsorted(points.accepted, middle)), most - 1)
        chance = _tail(points.accepted[point : point + 1], points.errors[point : point + 1], risk)[0]
        passed = bool(chance <= level)
        looks.append((point, passed))
        low, high = (int(points.accepted[point]), high) if passed else (low, middle - 1)
    order = sorted(set(looks))
    chosen = np.array([point for point, _ in order], np.int64)
    cutoffs = [cutoff_after(int(point), ratio, points) for point in chosen]
    return Looks(
        np.array([np.inf if cutoff is None else cutoff for cutoff in cutoffs]),
        points.accepted[chosen],
        points.errors[chosen],
        np.full(chosen.size, level),
        np.array([passed for _, passed in order], bool),
    )


def best_look(looks: Looks, rows: int, risk: float, confidence: float) -> Certified:
    """The largest certified cutoff; raises Infeasible with the best bound that was found."""
    held = np.flatnonzero(looks.certified)
    if not held.size:
        raise Infeasible(_too_risky(looks, rows, risk, confidence))
    best = int(held[-1])
    cutoff = float(looks.cutoffs[best])
    return Certified(
        None if math.isinf(cutoff) else cutoff,
        int(looks.accepted[best]),
        int(looks.errors[best]),
        float(looks.bounds[best]),
        float(looks.levels[best]),
    )


def _too_risky(looks: Looks, rows: int, risk: float, confidence: float) -> str:
    bounds = looks.bounds
    start = f"`risk={risk:g}` `confidence={confidence:g}` cannot be certified on {rows} rows: "
    if not bounds.size or float(bounds.min()) >= 1.0:
        return start + "nothing could be bounded; more rows are needed"
    best = int(np.argmin(bounds))
    found = f"the best upper bound is {bounds[best]:.6g}, at coverage {looks.accepted[best] / rows:.6g}"
    needed = math.ceil(math.log1p(-confidence) / math.log1p(-risk)) if risk > 0 else None
    if needed is None or rows < needed:
        least = "no number of rows suffices for a risk of 0" if needed is None else f"at least {needed} rows are needed"
        return f"{start}{found}; {least}"
    return start + found


# Coverage


def needed_rows(coverage: float, rows: int, delta: float) -> int:
    """The smallest r with P(Bin(rows, coverage) >= r) <= delta; more than `rows` if there is none."""
    from scipy.special import betainc

    return bisect.bisect_left(range(1, rows + 1), -delta, key=lambda r: -betainc(r, rows - r + 1, coverage)) + 1


def certified_coverage(
    points: RiskCoverage, ratio: DensityRatio, coverage: float, delta: float, confidence: float
) -> Certified:
    """The smallest cutoff whose true coverage is at least `coverage`; raises Infeasible."""
    wanted = needed_rows(coverage, points.rows, delta) if coverage < 1 else points.rows + 1
    reachable, errors = points.below(ratio.flat_start)
    if wanted <= reachable:
        point = int(np.searchsorted(points.accepted, wanted))
        cutoff = cutoff_after(point, ratio, points)
        accepted, errors = points.below(cutoff)
        return Certified(cutoff, accepted, errors, lower_bound(wanted, points.rows, delta), delta)
    if ratio.flat_start is None:  # only accepting every row, seen or not, is sure enough
        return Certified(None, points.rows, points.total_errors, 1.0, delta)
    bound = lower_bound(reachable, points.rows, delta)
    raise Infeasible(
        f"`coverage={coverage:g}` `confidence={confidence:g}` cannot be certified on {points.rows} rows: the ratio is "
        f"0 from a loss of {ratio.flat_start:.6g} on, and coverage below it is only known to be at least {bound:.6g}; "
        "lower alpha or raise lambda in 'drrej fit', or use more rows"
    )
