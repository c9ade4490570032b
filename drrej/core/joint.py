"""A risk and a coverage promised together, with one confidence.

Delta is divided: a fifth for the coverage, the rest for the risk. With the chance of each share at most, the coverage
or the risk of the chosen cutoff is not what was promised; so both hold with chance 1 - delta.

**Coverage.** Let r be the smallest number with P(Bin(n, C) >= r) <= delta / 5. Every cutoff that accepts at least r
of the n rows covers at least C, all of them together except with chance delta / 5: they accept at least every row up
to the r-th smallest loss, and of that `drrej.guarantees` proves it. So the cutoff may be chosen among them freely.
Accepting all rows, those to come too, covers everything without any chance.

**Risk.** The tests of `drrej.core.sequence` with a single start: at r rows, with all of the rest of delta, because
fewer rows would not do. The start is moved down to the first rank with as many allowed errors, which passes whenever
r does. If the true risk at r is above R, this fails as it should; if it is below, no share of delta is spent
elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from drrej.core.curves import RiskCoverage
from drrej.core.errors import Infeasible, OptionError
from drrej.core.guarantees import ErrorTest, Looks, looks_from, needed_rows
from drrej.core.intervals import lower_bound, upper_bound
from drrej.core.ratio import DensityRatio
from drrej.core.sequence import Starts
from drrej.records import dataclass

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
