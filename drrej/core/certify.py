"""Cutoffs with guarantees: a true risk or mean of at most R, a true coverage of at least C, except with chance delta.

The procedures and their proofs are in docs/proofs.md. The loss is a fixed function, and the rows at hand are
independent draws from the distribution of the rows to come. Counts are integers, and bounds of shares are the exact
binomial ones.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from drrej.core.curves import Curve
from drrej.core.intervals import at_least, at_most, lower_bound, upper_bound, upper_bounds
from drrej.core.ratio import DensityRatio
from drrej.core.thresholds import capped
from drrej.core.types import Booleans, Floats
from drrej.errors import Infeasible, OptionError

Ranks = NDArray[np.int64]
FirstFailure = Callable[[int, int, float], int | None]
"""The first of the ranks from one to another that fails at a level; None if each passes."""

COVERAGE_SHARE = 0.2
"""Of delta, for the coverage where a risk is promised too: it needs less than the risk, whose errors are few."""

_TOP = 2
"""The last run starts at one in so many rows."""
_RATIO = 6
"""Each start below it has one in so many of the rows of the next."""
_FALL = 0.7
"""Its share of delta, relative to that of the next."""
_SEED = 20240
_LISTED = 2000
"""Candidates that are listed when there are more."""
_PIECE = 4096
"""Errors that are looked at together."""
_MOST_LEVELS, _TIES = 32, 4
"""Losses have levels if they are no more, and that many times fewer than the quantiles."""


class Candidates(Struct, frozen=True):
    """Cutoffs that were tested (infinite: accept all), with their counts, the level of each test, and the verdicts.

    `delta` is the chance that any certified cutoff is riskier than promised.
    """

    cutoffs: Floats
    accepted: Ranks
    errors: Ranks
    levels: Floats
    certified: Booleans
    delta: float = 1.0

    @property
    def bounds(self) -> Floats:
        """The Clopper-Pearson upper bound of each at its level; 1 where there was none."""
        return upper_bounds(self.errors, self.accepted, self.levels)

    def largest(self) -> Certificate | None:
        """The largest certified cutoff; None if nothing is certified."""
        held = np.flatnonzero(self.certified)
        if not held.size:
            return None
        best = int(held[-1])
        cutoff = float(self.cutoffs[best])
        return Certificate(None if math.isinf(cutoff) else cutoff, int(self.accepted[best]), int(self.errors[best]))


class Certificate(Struct, frozen=True):
    """A cutoff that is certified (None: accept all), and the rows at hand that it accepts."""

    cutoff: float | None
    accepted: int
    errors: int


# Tests of every cutoff, from the safest up


Starts = tuple[tuple[int, float], ...]
"""The ranks where runs start, in ascending order, each with its share of delta."""


def spread(rows: int, delta: float, can_pass: Callable[[int, float], bool]) -> Starts:
    """Starts at 1/2, 1/12, 1/72, ... of the rows, as many as can pass there at their share.

    `can_pass` says whether so many rows with nothing wrong about them pass at a level. If half of the rows cannot, all
    of delta goes to the first rank that can.

    The figures are a compromise. A start at few rows finds a small safe part; one at many rows still passes where the
    safest rows are not free of errors. They were chosen by simulation of a dozen distributions, with 1 to 300 times the
    fewest rows that can pass, and the optimum is flat.
    """
    first = bisect.bisect_left(range(rows + 1), True, key=lambda rank: can_pass(rank, delta))
    found: Starts = ((max(1, min(rows, first)), delta),)
    for count in range(1, 20):
        weights = [_FALL**i for i in range(count)]
        starts = [(rows // (_TOP * _RATIO**i), delta * weight / sum(weights)) for i, weight in enumerate(weights)]
        if not all(can_pass(rank, share) for rank, share in starts):
            break
        found = tuple(reversed(starts))
    return found


def _runs(starts: Starts, rows: int) -> Iterator[tuple[int, int, float]]:
    """The first and the last rank of each run, and its share of delta."""
    lasts = [*(rank - 1 for rank, _ in starts[1:]), rows]
    return ((first, last, share) for (first, share), last in zip(starts, lasts, strict=True))


def walk(starts: Starts, ends: Ranks, first_failure: FirstFailure) -> tuple[Floats, Booleans]:
    """Test all ranks from the first start on; `ends` are the ranks at which tie blocks end.

    For each tie block: the level at which it was last tested (0: it was not), and whether its cutoff is certified.
    """
    rows, level = int(ends[-1]), 0.0
    levels, certified = np.zeros(ends.size), np.zeros(ends.size, bool)
    for first, last, share in _runs(starts, rows):
        level += share
        failure = first_failure(first, last, level)
        most = last if failure is None else failure - 1
        begin, end = np.searchsorted(ends, [first, last if failure is None else failure])
        levels[begin : end + 1] = level
        certified |= (ends >= first) & (ends <= most)
        level = level if failure is None else 0.0
    return levels, certified


def tie_order(losses: Floats, values: Floats) -> NDArray[np.intp]:
    """The order of the rows by loss; ties in a random but fixed order that does not depend on the order at hand."""
    order = np.lexsort((values, losses))
    ordered = losses[order]
    if not (ordered[1:] == ordered[:-1]).any():
        return order
    return order[np.lexsort((np.random.default_rng(_SEED).random(order.size), ordered))]


def error_ranks(accepted: Ranks, errors: Ranks) -> Ranks:
    """The rank of each error, ascending, from the counts after each distinct loss; ties in a random but fixed order."""
    rows, wrong = (np.diff(counts, prepend=0) for counts in (accepted, errors))
    mixed = (wrong > 0) & (wrong < rows)
    plain = np.flatnonzero(~mixed & (wrong > 0))  # blocks of errors only: nothing to order
    ranks = np.repeat(accepted[plain] - rows[plain], rows[plain]) + _within(rows[plain])
    if mixed.any():
        size, bad = rows[mixed], wrong[mixed]
        place = _within(size)
        block = np.repeat(np.arange(size.size), size)
        order = np.lexsort((np.random.default_rng(_SEED).random(place.size), block))
        placed = np.repeat(accepted[mixed] - size, size) + place
        ranks = np.sort(np.concatenate([ranks, placed[(place <= np.repeat(bad, size))[order]]]))
    return ranks


def _within(sizes: Ranks) -> Ranks:
    """1, 2, ... in each block."""
    ends = np.cumsum(sizes)
    return np.arange(1, int(sizes.sum()) + 1) - np.repeat(ends - sizes, sizes)


# Risk


def most_errors(rows: int, risk: float, level: float) -> int:
    """The most errors with which so many rows pass; -1 when they cannot."""
    return bisect.bisect_right(range(rows + 1), level, key=lambda errors: at_most(errors, rows, risk)) - 1


def first_rank(rows: int, risk: float, level: float) -> int:
    """The first rank that passes with the errors with which `rows` do."""
    errors = max(0, most_errors(rows, risk, level))
    return bisect.bisect_left(range(rows), -level, key=lambda rank: -at_most(errors, rank, risk))


@functools.lru_cache(maxsize=256)
def risk_starts(rows: int, risk: float, delta: float) -> Starts:
    """Where runs start."""
    starts = spread(rows, delta, lambda rank, level: bool(at_most(0, rank, risk) <= level))
    return tuple((first_rank(rank, risk, share), share) for rank, share in starts)


def risk_candidates(
    curve: Curve,
    ratio: DensityRatio,
    risk: float,
    delta: float,
    blocks: ErrorBlocks | None = None,
    quantiles: Sequence[float] = (),
) -> Candidates:
    """Test cutoffs from the safest up: every one, or where other rows have few distinct losses those between them.

    `blocks` and `quantiles` of other rows help to plan where to start.
    """
    levels = few_levels(quantiles)
    cutoffs, accepted, errors = _points(curve, ratio.flat_start, levels)
    rows = int(accepted[-1])
    if not rows:
        return Candidates(cutoffs[:0], accepted[:0], errors[:0], cutoffs[:0], accepted[:0] > 0, delta)
    if levels is None:
        starts = planned_starts(blocks or (), rows, risk, delta)
        tests = walk(starts, accepted, first_failure(error_ranks(accepted, errors), risk))
    else:
        shares = np.searchsorted(quantiles, cutoffs)
        ranks = tuple(np.rint(shares * rows / shares[-1]).astype(np.int64).tolist())
        chances = np.where(accepted > 0, at_most(errors, np.maximum(accepted, 1), risk), 1.0)
        starts = level_starts(blocks or (), ranks, risk, delta)
        tests = walk(starts, np.arange(cutoffs.size) + 1, first_above(chances))
    return _as_candidates(delta, cutoffs, accepted, errors, *tests)


def _points(curve: Curve, flat: float | None, levels: Floats | None = None) -> tuple[Floats, Ranks, Ranks]:
    """Cutoffs up to where the ratio is 0, fixed ones or all that the rows tell apart, with their rows and errors."""
    cutoffs = np.append(curve.losses[1:], np.inf) if levels is None else levels
    if flat is not None:
        cutoffs = np.append(cutoffs[cutoffs < flat], flat)
    place = np.searchsorted(curve.losses, cutoffs)
    return cutoffs, np.append(0, curve.accepted)[place], np.append(0, curve.errors)[place]


def few_levels(quantiles: Sequence[float]) -> Floats | None:
    """The cutoffs between the levels of losses that have few, the last one to accept all; None if they have many.

    >>> few_levels([0.1] * 5 + [0.3] * 5)
    array([0.3, inf])
    """
    found = np.unique(quantiles)
    few = 0 < found.size <= min(_MOST_LEVELS, len(quantiles) // _TIES)
    return np.append(found[1:], np.inf) if few else None


# Where runs start, planned on the rows of the fit

ErrorBlocks = tuple[tuple[int, int], ...]
"""Rows and errors of stretches of rows in the order of their losses."""

_MOST_PLANNED = 10_000
"""With more rows the usual starts are as good."""
_DRAWS = 200
_STEPS = 16


def error_blocks(curve: Curve) -> ErrorBlocks:
    """The stretches of an isotonic regression of the errors: the risk grows from each to the next.

    They lie between the corners of the largest convex function below the count of errors.

    >>> error_blocks(Curve.of(np.array([0.1, 0.2, 0.4, 0.6]), np.array([0.3, 0.5, 0.7])))
    ((2, 0), (4, 2), (1, 1))
    """
    accepted, errors = curve.accepted, curve.errors
    corners = np.flatnonzero(np.diff(errors, append=errors[-1] + 1) > 0)  # right before an error, and the end
    if corners.size > _PIECE:
        corners = corners[np.linspace(0, corners.size - 1, _PIECE).astype(np.int64)]
    hull = [(0, 0)]
    for x, y in zip(accepted[corners].tolist(), errors[corners].tolist(), strict=True):
        while len(hull) > 1:
            (x0, y0), (x1, y1) = hull[-2:]
            if (y1 - y0) * (x - x1) < (y - y1) * (x1 - x0):
                break
            hull.pop()
        hull.append((x, y))
    return tuple((x - x0, y - y0) for (x0, y0), (x, y) in itertools.pairwise(hull))


@functools.lru_cache(maxsize=256)
def planned_starts(blocks: ErrorBlocks, rows: int, risk: float, delta: float) -> Starts:
    """The usual starts, or one with all of delta at a rank where one more error is allowed."""
    usual = risk_starts(rows, risk, delta)
    if not blocks or rows > _MOST_PLANNED:
        return usual
    ranks = first_ranks(rows, risk, delta)
    steps = np.unique(np.geomspace(1, max(ranks.size, 1), _STEPS).astype(np.int64)) - 1
    single = tuple(((int(rank), delta),) for rank in ranks[steps[: ranks.size]])
    return _best_starts(usual, single, blocks, np.arange(1, rows + 1), risk)


@functools.lru_cache(maxsize=256)
def level_starts(blocks: ErrorBlocks, ranks: tuple[int, ...], risk: float, delta: float) -> Starts:
    """Where to start among levels that end at about these ranks: at each that can pass with its share, or at one."""
    able = list(range(1, len(ranks) + 1))
    while len(able) > 1 and at_most(0, max(1, ranks[able[0] - 1]), risk) > delta / len(able):
        able.pop(0)
    each = tuple((level, delta / len(able)) for level in able)
    single = tuple(((level, delta),) for level in range(1, len(ranks) + 1))
    return _best_starts(each, single, blocks, np.array(ranks), risk)


def _best_starts(usual: Starts, others: tuple[Starts, ...], blocks: ErrorBlocks, ranks: Ranks, risk: float) -> Starts:
    """The starts that certify most on virtual rows with errors as in the blocks, if that is sure enough.

    Where the blocks are of few rows, a gain over the usual ones has to be surer: few for the risk, or for the new rows.
    """
    fitted = sum(count for count, _ in blocks)
    if not fitted or not 0 < risk < 1 or ranks[-1] > _MOST_PLANNED:
        return usual
    reach = _virtual_reach(blocks, ranks, risk)
    base, needed = reach(usual), 0.25 * math.sqrt(max(1.0, 20.0 / (fitted * risk), ranks[-1] / (2.0 * fitted)))
    gains = [reach(starts) - base for starts in others]
    worth = [float(gain.mean() - needed * gain.std()) for gain in gains]
    return others[int(np.argmax(worth))] if max(worth, default=0.0) > 0 else usual


def first_ranks(rows: int, risk: float, level: float) -> Ranks:
    """The first ranks that pass with 0, 1, 2, ... errors, as far as there are rows."""
    errors = np.arange(most_errors(rows, risk, level) + 1)
    low, high = errors.copy(), np.full(errors.size, rows)
    while (low + 1 < high).any():
        middle = (low + high) // 2
        passes = at_most(errors, np.maximum(middle, 1), risk) <= level
        low, high = np.where(passes, low, middle), np.where(passes, middle, high)
    return high


def _virtual_reach(blocks: ErrorBlocks, ranks: Ranks, risk: float) -> Callable[[Starts], Floats]:
    """The share of rows that starts among some ranks certify, in each of some samples of errors by rank.

    They are drawn from the risks that the blocks, of other rows, are compatible with.
    """
    rng, rows, last = np.random.default_rng(_SEED), int(ranks[-1]), ranks.size
    counts, wrong = np.array(blocks).T
    risks = rng.beta(wrong + 0.5, counts - wrong + 0.5, (_DRAWS, counts.size))
    block = np.searchsorted(np.cumsum(counts) / counts.sum(), (np.arange(rows) + 0.5) / rows)
    drawn = np.cumsum(rng.random((_DRAWS, rows), np.float32) < risks[:, block], axis=1, dtype=np.int32)
    errors = drawn[:, np.maximum(ranks, 1) - 1]

    @functools.cache
    def failures(level: float) -> NDArray[np.int32]:
        """Of each sample, the first from each place on that fails at a level."""
        passing = np.append(first_ranks(rows, risk, level), rows + 1)
        fails = ranks < passing[np.minimum(errors, passing.size - 1)]
        places = np.where(fails, np.arange(1, last + 1, dtype=np.int32), np.int32(last + 1))
        return np.minimum.accumulate(places[:, ::-1], axis=1)[:, ::-1]

    def reach(starts: Starts) -> Floats:
        reached, level = np.zeros(_DRAWS, np.int64), np.zeros(_DRAWS)
        for first, end, share in _runs(starts, last):
            level += share
            for value in np.unique(level):
                inside = level == value
                failure = failures(float(value))[inside, first - 1]
                most = np.minimum(failure - 1, end)
                reached[inside] = np.where(most >= first, most, reached[inside])
                level[inside] = np.where(failure > end, value, 0.0)
        return np.append(0, ranks)[reached] / rows

    return reach


def first_above(chances: Floats) -> FirstFailure:
    """For ranks, or levels, with these p-values."""

    def tested(first: int, last: int, level: float) -> int | None:
        failed = chances[first - 1 : last] > level
        return first + int(np.argmax(failed)) if failed.any() else None

    return tested


def first_failure(at: Ranks, risk: float) -> FirstFailure:
    """For errors at these ranks: between two the p-value only falls, so the start and the errors are all to test."""

    def tested(first: int, last: int, level: float) -> int | None:
        begin, end = np.searchsorted(at, [first, last], side="right")
        if at_most(begin, first, risk) > level:
            return first
        for piece in range(begin, end, _PIECE):
            ranks = at[piece : min(piece + _PIECE, end)]
            failed = np.flatnonzero(at_most(np.arange(piece + 1, piece + 1 + ranks.size), ranks, risk) > level)
            if failed.size:
                return int(ranks[failed[0]])
        return None

    return tested


def _as_candidates(delta: float, *columns: Any) -> Candidates:
    """All candidates, or evenly spaced ones and those on both sides of a change."""
    levels, certified = columns[-2:]
    even = np.linspace(0, levels.size - 1, min(levels.size, _LISTED)).astype(np.int64)
    changes = np.flatnonzero((np.diff(levels) != 0) | np.diff(certified))
    at = np.unique(np.concatenate([even, changes, changes + 1]))
    cutoffs, accepted, errors, levels, certified = (column[at] for column in columns)
    return Candidates(cutoffs, accepted, errors, levels, certified, delta)


def certify_risk(candidates: Candidates, rows: int, risk: float, asked: str) -> Certificate:
    """The largest certified cutoff; raises Infeasible with the best bound found. `asked` names the wish."""
    best = candidates.largest()
    if best is not None:
        return best
    bounds = candidates.bounds
    start = f"{asked} cannot be certified on {rows} rows: "
    if not bounds.size or float(bounds.min()) >= 1.0:
        raise Infeasible(start + "nothing could be bounded; more rows are needed")
    near = int(np.argmin(bounds))
    coverage = candidates.accepted[near] / rows
    start += "among the cutoffs that were tested, "
    start += f"the best upper bound of the error rate is {bounds[near]:.6g}, at coverage {coverage:.6g}"
    start += ", but tests that it depends on failed" if bounds[near] <= risk else ""
    if risk == 0:
        raise Infeasible(f"{start}; a risk of 0 cannot be certified with any number of rows")
    needed = math.ceil(math.log(candidates.delta) / math.log1p(-risk))
    raise Infeasible(start if rows >= needed else f"{start}; at least {needed} rows are needed")


def any_cutoff_bound(accepted: int, errors: int, rows: int, delta: float) -> float:
    """An upper bound on the risk of a cutoff among the losses of `rows` rows, however it was chosen.

    >>> round(any_cutoff_bound(800, 4, 1000, 0.05), 4)  # 0.0114 if the cutoff had been chosen beforehand
    0.0231
    """
    return upper_bound(errors, accepted, delta / rows)


# Coverage


def needed_rows(coverage: float, rows: int, delta: float) -> int:
    """The smallest r with P(Bin(rows, coverage) >= r) <= delta; more than `rows` if there is none."""
    if coverage >= 1:
        return rows + 1
    return bisect.bisect_left(range(1, rows + 1), -delta, key=lambda hits: -at_least(hits, rows, coverage)) + 1


def certify_coverage(curve: Curve, ratio: DensityRatio, coverage: float, delta: float, asked: str) -> Certificate:
    """The smallest cutoff whose true coverage is at least `coverage`; raises Infeasible."""
    wanted = needed_rows(coverage, curve.rows, delta)
    reachable, _ = curve.below(ratio.flat_start)
    if wanted <= reachable:
        cutoff = capped(curve.following(curve.reaching(wanted)[0]), ratio)
        return Certificate(cutoff, *curve.below(cutoff))
    if ratio.flat_start is None:  # only accepting every row, seen or not, is sure enough
        return Certificate(None, curve.rows, curve.total_errors)
    bound = lower_bound(reachable, curve.rows, delta)
    raise Infeasible(
        f"{asked} cannot be certified on {curve.rows} rows: the ratio is 0 from a loss of {ratio.flat_start:.6g} on, "
        f"and coverage below it is only known to be at least {bound:.6g}; lower alpha or raise lambda in "
        "'drrej fit', or use more rows"
    )


# Both


def joint_candidates(curve: Curve, ratio: DensityRatio, risk: float, coverage: float, delta: float) -> Candidates:
    """Test every cutoff; certified are those that keep a risk and a coverage. Raises Infeasible for the coverage.

    Few errors among 1000 rows, and all of them in the riskiest fifth:

    >>> losses = np.arange(1000) / 1000
    >>> wrong = (losses > 0.8) & (np.arange(1000) % 4 == 0)
    >>> curve = Curve.of(losses[~wrong], losses[wrong])
    >>> best = joint_candidates(curve, DensityRatio(1.0, 1.0, 0.0, 0.0), 0.02, 0.75, 0.05).largest()
    >>> best.cutoff, best.errors
    (0.84, 9)
    """
    rows, share = curve.rows, COVERAGE_SHARE * delta
    reachable, _ = curve.below(ratio.flat_start)
    least = needed_rows(coverage, rows, share)
    if ratio.flat_start is None:  # accepting every row, seen or not, is always sure enough
        least = min(least, rows)
    if least > reachable:
        bound = lower_bound(reachable, rows, share)
        raise Infeasible(
            f"a coverage of {coverage:g} cannot be certified on {rows} rows: the ratio is 0 on {rows - reachable} of "
            f"them, and the coverage of the others is only known to be at least {bound:.6g}; lower `alpha` or raise "
            "`lam`"
        )
    cutoffs, accepted, errors = _points(curve, ratio.flat_start)
    found, certified = walk(((least, delta - share),), accepted, first_failure(error_ranks(accepted, errors), risk))
    return _as_candidates(delta, cutoffs, accepted, errors, found, certified)


def certify_both(curve: Curve, candidates: Candidates, risk: float, coverage: float) -> Certificate:
    """The largest cutoff that keeps a risk and a coverage; raises Infeasible for the risk."""
    best = candidates.largest()
    if best is not None:
        return best
    share = COVERAGE_SHARE * candidates.delta
    accepted, errors = curve.reaching(min(needed_rows(coverage, curve.rows, share), curve.rows))
    bound = upper_bound(errors, accepted, candidates.delta - share)
    raise Infeasible(
        f"a risk of {risk:g} cannot be certified at a coverage of at least {coverage:g} on {curve.rows} rows: of the "
        f"{accepted} rows that it takes {errors} are wrong, and the upper bound is {bound:.6g}"
    )


# The mean of any loss between 0 and a limit: a cost, a clipped error of a regression, a column. The test bets against
# "the mean is at least R" (Waudby-Smith and Ramdas 2024).

_BET_RATIO = 1.6


def mean_upper_bound(values: Floats, limit: float, delta: float) -> float:
    """An upper bound of the mean of values in [0, `limit`] at confidence 1 - delta, for rows chosen beforehand.

    The same for any order of the values.

    >>> float(round(mean_upper_bound(np.full(500, 0.3), 1.0, 0.05), 3))  # they do not vary
    0.306
    """
    scaled = np.sort(_as_shares(values, limit, delta))
    if not scaled.size:
        return limit
    low, high = min(float(np.mean(scaled)), 1.0), 1.0
    while True:  # the rejected means lie above one point: the smallest float that is known to be rejected
        middle = 0.5 * (low + high)
        if not low < middle < high:
            return limit * high
        if _log_p(scaled, middle, delta) <= math.log(delta):
            high = middle
        else:
            low = middle


def certify_mean(
    losses: Floats, values: Floats, mean: float, limit: float, delta: float, last: float | None = None
) -> Certificate:
    """The largest certified cutoff on `losses` at which the mean of the accepted rows' `values` is at most `mean`.

    Arrays of one entry per row, the values between 0 and `limit`. `last` is the largest cutoff that is allowed (where
    the ratio becomes 0), None if any is. The same for any order of the rows. Raises Infeasible.
    """
    scaled = _as_shares(values, limit, delta)
    if not 0 <= mean < limit:
        raise OptionError(f"`mean` {mean:g}: it must be at least 0 and below the largest value, {limit:g}")
    inside = np.ones(losses.size, bool) if last is None else losses < last
    losses, scaled = losses[inside], scaled[inside]
    order = tie_order(losses, scaled)
    losses, scaled = losses[order], scaled[order]
    rows, risk = losses.size, mean / limit
    start = f"a mean of at most {mean:g} cannot be certified on {rows} rows"
    if not rows or risk == 0.0:
        raise Infeasible(f"{start}: {'a mean of 0 cannot be certified' if rows else 'the ratio is 0 on every row'}")
    ends = np.flatnonzero(np.append(losses[1:] != losses[:-1], True)) + 1
    starts = spread(rows, delta, lambda rank, level: _log_p(np.zeros(1), risk, delta, rank) <= math.log(level))
    levels, certified = walk(starts, ends, first_above(np.exp(_log_p_of_ranks(scaled, risk, delta))))
    held = np.flatnonzero(certified)
    if held.size:
        accepted = int(ends[held[-1]])
        return Certificate(last if accepted == rows else float(losses[accepted]), accepted, 0)
    tested = ends[levels > 0]
    if not tested.size:
        raise Infeasible(f"{start}; more rows are needed")
    first = scaled[: int(tested[0])]
    bound = mean_upper_bound(first * limit, limit, delta)
    raise Infeasible(f"{start}: the upper bound over the {first.size} rows of the smallest losses is {bound:.6g}")


def _bets(rows: int, delta: float) -> int:
    """How many bets there are for so many rows: 1, 1/1.6, 1/1.6^2, ..."""
    least = math.sqrt(8.0 * math.log(1.0 / delta) / rows) if rows else 1.0
    return 1 + max(0, math.floor(-math.log(least) / math.log(_BET_RATIO)))


def _log_p(ordered: Floats, risk: float, delta: float, times: int = 1) -> float:
    """Ln of the p-value of sorted values, each so many times."""
    count = _bets(ordered.size * times, delta)
    edge = (risk - ordered) / (1.0 - risk)
    with np.errstate(divide="ignore"):
        capital = [times * float(np.sum(np.log1p(_BET_RATIO**-j * edge))) for j in range(count)]
    return min(0.0, math.log(count) - float(np.logaddexp.reduce(capital)))


def _log_p_of_ranks(values: Floats, risk: float, delta: float) -> Floats:
    """Ln of the p-value of the first 1, 2, ... values."""
    rows = np.arange(1, values.size + 1)
    # the rank from which on there are so many bets
    scale = 8.0 * math.log(1.0 / delta)
    joins = [1.0, *(scale * _BET_RATIO ** (2 * j) for j in range(1, _bets(values.size, delta)))]
    edge = (risk - values) / (1.0 - risk)
    total = np.full(values.size, -np.inf)
    for j, join in enumerate(joins):
        with np.errstate(divide="ignore"):
            capital = np.cumsum(np.log1p(_BET_RATIO**-j * edge))
        total = np.where(rows >= join, np.logaddexp(total, capital), total)
    result: Floats = np.minimum(np.log(np.searchsorted(joins, rows, side="right")) - total, 0.0)
    return result


def _as_shares(values: Floats, limit: float, delta: float) -> Floats:
    """Values between 0 and a limit as shares of it; raises where they are not."""
    if not 0 < limit < math.inf:
        raise OptionError(f"`limit` {limit:g}: the largest possible value must be above 0 and finite")
    if not 0 < delta < 1:
        raise OptionError(f"`delta` {delta:g}: it must be above 0 and below 1")
    if values.size and not (float(values.min()) >= 0 and float(values.max()) <= limit):  # false for NaN too
        raise OptionError(f"the values must lie between 0 and `limit` {limit:g}")
    return values / limit
