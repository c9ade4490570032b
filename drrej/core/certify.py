"""Cutoffs with guarantees: the true risk is at most R, or the true coverage at least C, except with chance delta.

Throughout, the loss L' is a fixed function (calibrate and fit have seen other rows) and the rows at hand are
independent draws from the distribution of rows to come. A cutoff c accepts the rows with L' < c; its true risk is the
chance that a row is wrong given L' < c. All counts are integers and every bound is the exact binomial one.

**Risk, the default: `fixed-sequence`.** Every cutoff of the rows at hand is tested, from the safest up, in runs that
start at a few fixed shares of the rows: `drrej.core.sequence` has the procedure and its proof. Rank k, the k rows of
the smallest losses with e_k errors among them, passes at its level a_k if P(Bin(k, R) <= e_k) <= a_k: that is, if the
Clopper-Pearson upper bound at confidence 1 - a_k is at most R. The largest certified cutoff is taken. Nothing is
assumed on how the risk depends on the coverage, and nothing on the rows of fit: a run starts at a number of rows, not
at a loss that fit has seen, so that rows harder or easier than those of fit cost nothing.

**What is guaranteed** is the target: the risk of the chosen cutoff is at most R, except with chance delta. The
Clopper-Pearson bound of the chosen cutoff at the level of its look is an estimate and no more: it is right for a
cutoff chosen beforehand, but this one was chosen because its bound is low. `any_cutoff_bound` holds for every choice:
the cutoff that accepts k rows is the next larger loss, and given that loss, and that k rows are below it, these are
independent draws from there. So the bound at level delta / n fails at k with chance at most delta / n, and at any k
from 1 to n with chance at most delta. The cutoff must be one of the losses at hand, or accept all.

**Risk, `sgr`** (Geifman and El-Yaniv 2017): a binary search over the accepted counts of the rows at hand, each of its
at most ceil(log2 n) looks at level delta / ceil(log2 n). Its proof needs the true risk to grow with the coverage.

**Coverage, `order-statistic`.** Let r be the smallest number with P(Bin(n, C) >= r) <= delta, and accept at least
every row up to the r-th smallest loss. The true coverage of that falls below C only if at least r rows lie below the
point x' where P(L' <= x) first reaches C; as P(L' < x') <= C, the chance of that is at most P(Bin(n, C) >= r). Ties
only help.

**Groups.** Each of G groups has the level delta / G, so all their guarantees hold together with chance 1 - delta.
"""

from __future__ import annotations

import bisect
import functools
import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from drrej.core.curves import RiskCoverage
from drrej.core.intervals import lower_bound, upper_bound, upper_bounds
from drrej.core.ratio import DensityRatio
from drrej.core.sequence import Starts, Stretch, certified_ranks, error_ranks, levels, spread, walk
from drrej.core.thresholds import cutoff_after
from drrej.core.types import Floats
from drrej.errors import Infeasible, OptionError
from drrej.records import dataclass

_SHOWN = 2000
"""Looks that are listed when there are more."""
_PIECE = 4096
"""Errors that are looked at together."""


@dataclass(frozen=True)
class Looks:
    """What was looked at: cutoffs (infinite: accept all), counts, the level of each test and which were certified.

    `delta` is the chance that any certified cutoff is riskier than promised.
    """

    cutoffs: Floats
    accepted: NDArray[np.int64]
    errors: NDArray[np.int64]
    levels: Floats
    certified: NDArray[np.bool_]
    delta: float = 1.0

    @property
    def bounds(self) -> Floats:
        """The Clopper-Pearson upper bound of each look at its level; 1 where there was none."""
        return upper_bounds(self.errors, self.accepted, self.levels)


@dataclass(frozen=True)
class Certified:
    """A cutoff with what it accepts, and what is guaranteed: `bound`, except with chance `level`.

    `pointwise` is the Clopper-Pearson bound of these counts at the level of their look: an estimate, because the cutoff
    was chosen among many.
    """

    cutoff: float | None
    accepted: int
    errors: int
    bound: float
    level: float
    pointwise: float


def split_delta(delta: float, groups: int) -> float:
    """The level of each of some groups."""
    return delta / groups


def any_cutoff_bound(accepted: int, errors: int, rows: int, delta: float) -> float:
    """An upper bound on the risk of a cutoff among the losses of `rows` rows, however it was chosen; see the module.

    >>> round(any_cutoff_bound(800, 4, 1000, 0.05), 4)  # 0.0114 if the cutoff had been chosen beforehand
    0.0231
    """
    return upper_bound(errors, accepted, delta / rows)


# Risk, the default method


@dataclass(frozen=True)
class ErrorTest:
    """The exact test of "the risk is at least `risk`": at a level, how many errors may be among how many rows."""

    risk: float

    def chance(self, accepted: int, errors: int) -> float:
        """The p-value, P(Bin(accepted, risk) <= errors)."""
        from drrej.core.special import betainc

        return float(betainc(accepted - errors, errors + 1, 1.0 - self.risk)) if errors < accepted else 1.0

    def can_pass(self, accepted: int, level: float) -> bool:
        """Whether so many rows pass without an error."""
        return self.chance(accepted, 0) <= level

    def most_errors(self, accepted: int, level: float) -> int:
        """The most errors with which so many rows pass; -1 when they cannot."""
        return bisect.bisect_right(range(accepted + 1), level, key=lambda e: self.chance(accepted, e)) - 1

    def fewest_rows(self, errors: int, level: float, limit: int) -> int:
        """The fewest rows, of `limit` that do, that pass with so many errors."""
        return bisect.bisect_left(range(limit), -level, key=lambda rows: -self.chance(rows, errors))


@functools.lru_cache(maxsize=256)
def risk_starts(rows: int, risk: float, delta: float) -> Starts:
    """Where runs start: at the first rank with as many allowed errors, which passes whenever a later one does."""
    test = ErrorTest(risk)
    starts = spread(rows, delta, test.can_pass)
    ranks = []
    for rank, level in zip(starts.ranks, starts.shares, strict=True):
        errors = test.most_errors(rank, level)
        ranks.append(rank if errors < 0 else test.fewest_rows(errors, level, rank))
    return Starts(tuple(ranks), starts.shares)


def risk_looks(points: RiskCoverage, ratio: DensityRatio, risk: float, delta: float) -> Looks:
    """Test every cutoff from the safest up; see `drrej.core.sequence` for the proof."""
    rows, _ = points.below(ratio.flat_start)
    starts = risk_starts(rows, risk, delta) if rows else Starts((), ())
    return replace(looks_from(points, ratio, risk, starts), delta=delta)  # their sum is rounded


def looks_from(points: RiskCoverage, ratio: DensityRatio, risk: float, starts: Starts) -> Looks:
    """Test every cutoff from some starts up, which were chosen without looking at the errors."""
    rows, _ = points.below(ratio.flat_start)
    delta = sum(starts.shares)
    inside = int(np.searchsorted(points.accepted, rows, side="right"))
    accepted, errors = points.accepted[:inside], points.errors[:inside]
    if not rows:
        nothing = np.zeros(0)
        return Looks(nothing, accepted, errors, nothing, np.zeros(0, bool), delta)
    stretches = _stretches(accepted, errors, starts, risk)
    shown = _shown(stretches, accepted)
    return Looks(
        _cutoffs(shown, ratio, points),
        accepted[shown],
        errors[shown],
        levels(stretches, accepted)[shown],
        certified_ranks(stretches, accepted[shown], rows),
        delta,
    )


def _stretches(accepted: NDArray[np.int64], errors: NDArray[np.int64], starts: Starts, risk: float) -> list[Stretch]:
    at = error_ranks(accepted, errors)

    def first_failure(first: int, last: int, level: float) -> int | None:
        """Between two errors the p-value only falls, so the start and the errors are all that has to be tested."""
        begin, end = np.searchsorted(at, [first, last], side="right")
        if _tail(np.array([first]), np.array([begin]), risk)[0] > level:
            return first
        for piece in range(begin, end, _PIECE):
            ranks = at[piece : min(piece + _PIECE, end)]
            failed = np.flatnonzero(_tail(ranks, np.arange(piece + 1, piece + 1 + ranks.size), risk) > level)
            if failed.size:
                return int(ranks[failed[0]])
        return None

    return walk(starts, int(accepted[-1]), first_failure)


def _shown(stretches: list[Stretch], accepted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which looks to list: all, or evenly spaced ones with the ends of the stretches."""
    if accepted.size <= _SHOWN:
        return np.arange(accepted.size)
    even = np.linspace(0, accepted.size - 1, _SHOWN).astype(np.int64)
    ends = [np.searchsorted(accepted, [s.first, s.least, s.most + 1, s.last]) for s in stretches]
    last_passed = [np.searchsorted(accepted, [s.most + 1]) - 1 for s in stretches]
    return np.unique(np.clip(np.concatenate([even, *ends, *last_passed]), 0, accepted.size - 1))


def _cutoffs(chosen: NDArray[np.int64], ratio: DensityRatio, points: RiskCoverage) -> Floats:
    """The next larger loss after each point, as `cutoff_after` gives it; infinite: accept all."""
    last = np.inf if ratio.flat_start is None else ratio.flat_start
    cutoffs: Floats = np.minimum(np.append(points.losses, np.inf)[chosen + 1], last)
    return cutoffs


def _tail(accepted: NDArray[np.int64], errors: NDArray[np.int64], risk: float) -> Floats:
    """P(Bin(accepted, risk) <= errors)."""
    from drrej.core.special import betainc

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
    return Looks(
        _cutoffs(chosen, ratio, points),
        points.accepted[chosen],
        points.errors[chosen],
        np.full(chosen.size, level),
        np.array([passed for _, passed in order], bool),
        delta,
    )


def best_look(looks: Looks, rows: int, risk: float, confidence: float, asked: str = "") -> Certified:
    """The largest certified cutoff, with the risk that is guaranteed; raises Infeasible with the best bound found.

    `asked` is the target in the words of the user, where those are other than `risk`.
    """
    held = np.flatnonzero(looks.certified)
    if not held.size:
        raise Infeasible(_too_risky(looks, rows, risk, confidence, asked or f"`risk={risk:g}`"))
    best = int(held[-1])
    cutoff = float(looks.cutoffs[best])
    return Certified(
        None if math.isinf(cutoff) else cutoff,
        int(looks.accepted[best]),
        int(looks.errors[best]),
        risk,
        looks.delta,
        upper_bound(int(looks.errors[best]), int(looks.accepted[best]), float(looks.levels[best])),
    )


def _too_risky(looks: Looks, rows: int, risk: float, confidence: float, asked: str) -> str:
    bounds = looks.bounds
    start = f"{asked} `confidence={confidence:g}` cannot be certified on {rows} rows: "
    if not bounds.size or float(bounds.min()) >= 1.0:
        return start + "nothing could be bounded; more rows are needed"
    best = int(np.argmin(bounds))
    found = (
        f"the best upper bound of the error rate is {bounds[best]:.6g}, at coverage {looks.accepted[best] / rows:.6g}"
    )
    needed = math.ceil(math.log1p(-confidence) / math.log1p(-risk)) if risk > 0 else None
    if needed is None or rows < needed:
        least = "no number of rows suffices for a risk of 0" if needed is None else f"at least {needed} rows are needed"
        return f"{start}{found}; {least}"
    return start + found


# Coverage


def needed_rows(coverage: float, rows: int, delta: float) -> int:
    """The smallest r with P(Bin(rows, coverage) >= r) <= delta; more than `rows` if there is none."""
    from drrej.core.special import betainc

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
        bound = lower_bound(wanted, points.rows, delta)
        return Certified(cutoff, accepted, errors, bound, delta, bound)
    if ratio.flat_start is None:  # only accepting every row, seen or not, is sure enough
        return Certified(None, points.rows, points.total_errors, 1.0, delta, 1.0)
    bound = lower_bound(reachable, points.rows, delta)
    raise Infeasible(
        f"`coverage={coverage:g}` `confidence={confidence:g}` cannot be certified on {points.rows} rows: the ratio is "
        f"0 from a loss of {ratio.flat_start:.6g} on, and coverage below it is only known to be at least {bound:.6g}; "
        "lower alpha or raise lambda in 'drrej fit', or use more rows"
    )


COVERAGE_SHARE = 0.2
"""Of delta, for the coverage: it needs less than the risk, whose errors are few."""


@dataclass(frozen=True)
class JointPromise:
    """A risk of at most `risk` and a coverage of at least `coverage`, both except with chance `delta`."""

    risk: float
    coverage: float
    delta: float

    def __post_init__(self) -> None:
        if not 0 <= self.risk < 1:
            raise OptionError(f"`risk` {self.risk:g}: it must be at least 0 and below 1")
        if not 0 < self.coverage <= 1:
            raise OptionError(f"`coverage` {self.coverage:g}: it must be above 0 and at most 1")
        if not 0 < self.delta < 1:
            raise OptionError(f"`delta` {self.delta:g}: it must be above 0 and below 1")

    @property
    def coverage_delta(self) -> float:
        """The share of delta that goes to the coverage."""
        return COVERAGE_SHARE * self.delta

    @property
    def risk_delta(self) -> float:
        """The share of delta that goes to the risk."""
        return self.delta - self.coverage_delta


@dataclass(frozen=True)
class CertifiedBoth:
    """The largest cutoff (None: accept all) that keeps both promises, and what it accepts of the rows at hand."""

    cutoff: float | None
    accepted: int
    errors: int
    promise: JointPromise


def certified_both(points: RiskCoverage, ratio: DensityRatio, promise: JointPromise) -> CertifiedBoth:
    """A cutoff with both promises; raises Infeasible, which says which of the two fails.

    Few errors among 1000 rows, and all of them in the riskiest fifth:

    >>> losses = np.arange(1000) / 1000
    >>> wrong = (losses > 0.8) & (np.arange(1000) % 4 == 0)
    >>> points = RiskCoverage.of(losses[~wrong], losses[wrong])
    >>> found = certified_both(points, DensityRatio(1.0, 1.0, 0.0, 0.0), JointPromise(0.02, 0.75, 0.05))
    >>> found.cutoff, found.errors
    (0.84, 9)
    """
    return best_of_both(joint_looks(points, ratio, promise), points, promise)


def joint_looks(points: RiskCoverage, ratio: DensityRatio, promise: JointPromise) -> Looks:
    """Every cutoff that was tested; certified are those that keep both promises. Raises Infeasible for the coverage."""
    rows = points.rows
    reachable, _ = points.below(ratio.flat_start)
    least = needed_rows(promise.coverage, rows, promise.coverage_delta) if promise.coverage < 1 else rows + 1
    if ratio.flat_start is None:  # accepting every row, seen or not, is always sure enough
        least = min(least, rows)
    if least > reachable:
        raise Infeasible(_no_coverage(promise, rows, reachable))
    start = _start(promise, least)
    looks = looks_from(points, ratio, promise.risk, Starts((start,), (promise.risk_delta,)))
    return replace(looks, certified=looks.certified & (looks.accepted >= least), delta=promise.delta)


def best_of_both(looks: Looks, points: RiskCoverage, promise: JointPromise) -> CertifiedBoth:
    """The largest certified cutoff; raises Infeasible for the risk."""
    held = np.flatnonzero(looks.certified)
    if not held.size:
        raise Infeasible(_no_risk(points, promise))
    best = int(held[-1])
    cutoff = float(looks.cutoffs[best])
    return CertifiedBoth(
        None if np.isinf(cutoff) else cutoff, int(looks.accepted[best]), int(looks.errors[best]), promise
    )


def _start(promise: JointPromise, least: int) -> int:
    test = ErrorTest(promise.risk)
    errors = test.most_errors(least, promise.risk_delta)
    return least if errors < 0 else test.fewest_rows(errors, promise.risk_delta, least)


def _no_coverage(promise: JointPromise, rows: int, reachable: int) -> str:
    bound = lower_bound(reachable, rows, promise.coverage_delta)
    return (
        f"a coverage of {promise.coverage:g} cannot be certified on {rows} rows: the ratio is 0 on {rows - reachable} "
        f"of them, and the coverage of the others is only known to be at least {bound:.6g}; lower `alpha` or raise "
        "`lam`"
    )


def _no_risk(points: RiskCoverage, promise: JointPromise) -> str:
    least = needed_rows(promise.coverage, points.rows, promise.coverage_delta) if promise.coverage < 1 else points.rows
    accepted, errors = points.reaching(min(least, points.rows))
    bound = upper_bound(errors, accepted, promise.risk_delta)
    return (
        f"a risk of {promise.risk:g} cannot be certified at a coverage of at least {promise.coverage:g} on "
        f"{points.rows} rows: of the {accepted} rows that it takes {errors} are wrong, and the upper bound is "
        f"{bound:.6g}"
    )
