"""Guarantees for the mean of any loss between 0 and B: a cost, a clipped error of a regression, a column of the file.

Errors are counted and have an exact test. For other values X in [0, B] there are two tests of "the values are
independent and each has a mean of at least R"; both use only the values, not their order. Below, X and R are divided
by B.

**`betting`** (Waudby-Smith and Ramdas 2024; here with a symmetric mixture). For a bet g in (0, 1]

    K_g = product over the rows of (1 + g (R - X) / (1 - R))

is never negative, and each factor has a mean of at most 1 if X has a mean of at least R. So the mean K of some K_g,
with bets fixed beforehand, has an expectation of at most 1, and P(K >= 1/a) <= a (Markov): the p-value is 1/K. The
bets are g = 1, 1/1.6, 1/1.6^2, ... down to sqrt(8 ln(1/delta) / rows), which suits the largest variance that is
possible. Large bets win where the values vary little. Since (R - X) / (1 - R) grows with R, so does K: the means that
are not rejected lie below one point, and that point is an upper bound of the mean.

**`hoeffding-bentkus`** (Bates et al. 2021). With the mean m of k rows the smaller of exp(-k kl(m, R)), m <= R, and e
P(Bin(k, R) <= ceil(k m)) is a p-value: each of the two bounds P(mean <= m) for independent values whose means average
to at least R (Hoeffding 1963, Theorem 1; Bentkus 2004), and both grow with m, so that no price is paid for taking the
smaller. It is the better one for values that are nearly all 0 or B, and knows nothing of the variance.

**Cutoffs.** `certified_mean` tests every cutoff of the rows at hand as `drrej.core.sequence` says; its proof is for X
in [0, 1]. The promise is on E[X | L' < cutoff], the mean over accepted rows; how many rows are accepted is random,
and the proof conditions on it.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from drrej.core.sequence import certified_ranks, levels, spread, tie_order, walk
from drrej.errors import Infeasible, OptionError
from drrej.records import dataclass

Floats = NDArray[np.float64]

MEAN_METHODS = ("betting", "hoeffding-bentkus")
"""How a mean is bounded; the first is the default."""

_BET_RATIO = 1.6


@dataclass(frozen=True)
class MeanPromise:
    """The mean of values between 0 and `limit` is to be at most `mean`, except with chance `delta`."""

    mean: float
    limit: float
    delta: float
    method: str = MEAN_METHODS[0]

    def __post_init__(self) -> None:
        _check(self.limit, self.delta, self.method)
        if not 0 <= self.mean < self.limit:
            raise OptionError(
                f"`mean` {self.mean:g}: it must be at least 0 and below the largest value, {self.limit:g}"
            )


@dataclass(frozen=True)
class CertifiedMean:
    """A cutoff (None: accept all) with what it accepts; the true mean is at most `bound` except with chance `delta`."""

    cutoff: float | None
    accepted: int
    mean: float
    bound: float
    delta: float


class _Test(Protocol):
    """P-values, as natural logarithms."""

    def first_ranks(self, values: Floats, risk: float) -> Floats:
        """Of the first 1, 2, ... values."""
        ...

    def nothing_wrong(self, rows: int, risk: float) -> float:
        """Of so many zeros."""
        ...

    def all_rows(self, values: Floats, risk: float) -> float:
        """Of all values."""
        ...


@dataclass(frozen=True)
class _Betting:
    delta: float

    def bets(self, rows: int) -> int:
        """How many bets there are for so many rows."""
        least = math.sqrt(8.0 * math.log(1.0 / self.delta) / rows) if rows else 1.0
        return 1 + max(0, math.floor(-math.log(least) / math.log(_BET_RATIO)))

    def first_ranks(self, values: Floats, risk: float) -> Floats:
        rows = np.arange(1, values.size + 1)
        most = self.bets(values.size)
        # the rank from which on there are so many bets
        joins = [1 if j == 0 else 8.0 * math.log(1.0 / self.delta) * _BET_RATIO ** (2 * j) for j in range(most)]
        edge = (risk - values) / (1.0 - risk)
        total = np.full(values.size, -np.inf)
        for j, join in enumerate(joins):
            with np.errstate(divide="ignore"):
                capital = np.cumsum(np.log1p(_BET_RATIO**-j * edge))
            total = np.where(rows >= join, np.logaddexp(total, capital), total)
        count = np.searchsorted(np.array(joins), rows, side="right")
        result: Floats = np.minimum(np.log(count) - total, 0.0)
        return result

    def nothing_wrong(self, rows: int, risk: float) -> float:
        return self.all_rows(np.zeros(1), risk, rows)

    def all_rows(self, values: Floats, risk: float, times: int = 1) -> float:
        """Of all values, each so many times."""
        count = self.bets(values.size * times)
        edge = (risk - np.sort(values)) / (1.0 - risk)
        with np.errstate(divide="ignore"):
            capital = [times * float(np.sum(np.log1p(_BET_RATIO**-j * edge))) for j in range(count)]
        return min(0.0, math.log(count) - float(np.logaddexp.reduce(capital)))


class _HoeffdingBentkus:
    def first_ranks(self, values: Floats, risk: float) -> Floats:
        return self._log_p(np.cumsum(values), np.arange(1, values.size + 1), risk)

    def nothing_wrong(self, rows: int, risk: float) -> float:
        return float(self._log_p(np.zeros(1), np.array([rows]), risk)[0]) if rows else 0.0

    def all_rows(self, values: Floats, risk: float) -> float:
        return float(self._log_p(np.sum(np.sort(values), keepdims=True), np.array([values.size]), risk)[0])

    @staticmethod
    def _log_p(totals: Floats, rows: NDArray[np.int64], risk: float) -> Floats:
        from drrej.core.special import betainc, rel_entr

        mean = np.minimum(totals / rows, risk)
        hoeffding = -rows * (rel_entr(mean, risk) + rel_entr(1.0 - mean, 1.0 - risk))
        errors = np.minimum(np.ceil(totals), rows)
        with np.errstate(divide="ignore"):
            tail = np.where(errors < rows, betainc(np.maximum(rows - errors, 1), errors + 1, 1.0 - risk), 1.0)
            bentkus = 1.0 + np.log(tail)
        result: Floats = np.minimum(np.minimum(hoeffding, bentkus), 0.0)
        return result


def mean_upper_bound(values: Floats, limit: float, delta: float, method: str = MEAN_METHODS[0]) -> float:
    """An upper bound of the mean of values in [0, `limit`] at confidence 1 - delta, for rows chosen beforehand.

    The same for any order of the values.

    >>> float(round(mean_upper_bound(np.full(500, 0.3), 1.0, 0.05), 3))  # they do not vary
    0.306
    >>> float(round(mean_upper_bound(np.full(500, 0.3), 1.0, 0.05, "hoeffding-bentkus"), 3))
    0.345
    """
    _check(limit, delta, method)
    scaled = _scaled(values, limit)
    if not scaled.size:
        return limit
    test, level = _test(method, delta), math.log(delta)
    low, high = min(float(np.mean(np.sort(scaled))), 1.0), 1.0
    while True:  # the rejected means lie above one point: the smallest float that is known to be rejected
        middle = 0.5 * (low + high)
        if not low < middle < high:
            return limit * high
        if test.all_rows(scaled, middle) <= level:
            high = middle
        else:
            low = middle


def certified_mean(losses: Floats, values: Floats, promise: MeanPromise, last: float | None = None) -> CertifiedMean:
    """The largest certified cutoff on `losses` that keeps the promise for the `values` of accepted rows.

    Arrays of one entry per row. `last` is the largest cutoff that is allowed (where the ratio becomes 0), None if any
    is. The same for any order of the rows. Raises Infeasible.
    """
    inside = np.ones(losses.size, bool) if last is None else losses < last
    scaled, losses = _scaled(values, promise.limit)[inside], losses[inside]
    order = tie_order(losses, scaled)
    losses, scaled = losses[order], scaled[order]
    rows = losses.size
    ends = np.flatnonzero(np.append(losses[1:] != losses[:-1], True)) + 1 if rows else np.zeros(0, np.int64)
    risk, test = promise.mean / promise.limit, _test(promise.method, promise.delta)
    if not rows or risk == 0.0:
        least = "no number of rows suffices for 0" if rows else "the ratio is 0 on every row"
        raise Infeasible(f"{_infeasible(promise, rows)}: {least}")
    log_p = test.first_ranks(scaled, risk)

    def first_failure(first: int, end: int, level: float) -> int | None:
        failed = log_p[first - 1 : end] > math.log(level)
        return first + int(np.argmax(failed)) if failed.any() else None

    starts = spread(rows, promise.delta, lambda rank, level: test.nothing_wrong(rank, risk) <= math.log(level))
    stretches = walk(starts, rows, first_failure)
    held = np.flatnonzero(certified_ranks(stretches, ends, rows))
    if not held.size:
        looked = ends[levels(stretches, ends) > 0]
        raise Infeasible(_infeasible(promise, rows) + _nearest(scaled, looked, promise))
    accepted = int(ends[held[-1]])
    cutoff = last if accepted == rows else float(losses[accepted])
    mean = promise.limit * float(np.mean(np.sort(scaled[:accepted])))
    return CertifiedMean(cutoff, accepted, mean, promise.mean, promise.delta)


def _infeasible(promise: MeanPromise, rows: int) -> str:
    return f"a mean of at most {promise.mean:g} cannot be certified on {rows} rows"


def _nearest(scaled: Floats, looked: NDArray[np.int64], promise: MeanPromise) -> str:
    """How near it came where it was tested."""
    if not looked.size:
        return "; more rows are needed"
    first = scaled[: int(looked[0])]
    bound = mean_upper_bound(first * promise.limit, promise.limit, promise.delta, promise.method)
    return f": the upper bound over the {first.size} rows of the smallest losses is {bound:.6g}"


def _test(method: str, delta: float) -> _Test:
    return _Betting(delta) if method == "betting" else _HoeffdingBentkus()


def _check(limit: float, delta: float, method: str) -> None:
    if not 0 < limit < math.inf:
        raise OptionError(f"`limit` {limit:g}: the largest possible value must be above 0 and finite")
    if not 0 < delta < 1:
        raise OptionError(f"`delta` {delta:g}: it must be above 0 and below 1")
    if method not in MEAN_METHODS:
        raise OptionError(f"`method` {method}: it must be one of {', '.join(MEAN_METHODS)}")


def _scaled(values: Floats, limit: float) -> Floats:
    if values.size and not (float(values.min()) >= 0 and float(values.max()) <= limit):  # false for NaN too
        raise OptionError(f"the values must lie between 0 and `limit` {limit:g}")
    scaled: Floats = values / limit
    return scaled
