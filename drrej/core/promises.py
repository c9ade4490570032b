"""Several promises at once: cutoffs by predicted class that keep all of them, with one confidence.

The path of cutoffs is fixed before the rows are seen: a row predicted k has the score w_k L', and a point t of the path
accepts the scores below t. Along it the share of missed cases, the overall error and the coverage only grow. The
procedure and its proof are in docs/proofs.md, the targets themselves in `core.thresholds`.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from drrej.core import special
from drrej.core.certify import (
    ErrorBlocks,
    Starts,
    error_ranks,
    first_failure,
    first_rank,
    most_errors,
    needed_rows,
    planned_starts,
    risk_starts,
    walk,
)
from drrej.core.curves import Curve, MeanCurve
from drrej.core.intervals import at_most, exact_decimal, lower_bound, rate_at_most, upper_bound, upper_bounds
from drrej.core.thresholds import REJECT_ALL, Goal, class_risks, goals_by_class, with_reviewers
from drrej.core.types import Booleans, Floats, Integers
from drrej.errors import Infeasible

SHARES = {"precise": 0.7, "upper": 0.2, "lower": 0.1}
"""Of delta, for each kind of promise, divided by the sum of those that are made."""

BEFORE_ALL = -1.0
"""The score of rows that can break no promise."""


class PromiseRows(Struct, frozen=True):
    """The rows at hand: loss, predicted class, true class (any other number if unknown); `flat`: rejected from there.

    `once` is false for right rows that repeat others: they do not count in what limits errors. `cost` is what accepting
    a row costs beyond its review; without it as many rows as possible are accepted.
    """

    loss: Floats
    prediction: Integers
    label: Integers
    once: Booleans
    flat: float = math.inf
    cost: Floats | None = None

    @property
    def wrong(self) -> Booleans:
        """Whether the prediction is not the label."""
        wrong: Booleans = self.prediction != self.label
        return wrong

    @property
    def counted(self) -> Booleans:
        """The rows that count where errors are limited."""
        return self.once | self.wrong


def by_class(numbers: Integers, classes: int) -> list[Integers]:
    """The places of the rows of each class."""
    ends = np.cumsum(np.bincount(numbers, minlength=classes))
    return np.split(np.argsort(numbers, kind="stable"), ends[:-1])


Path = Floats
"""The weight of each predicted class: the larger, the later its rows are accepted (0: first, infinite: last)."""


def path_scores(path: Path, rows: PromiseRows) -> Floats:
    """The score of each row; infinite where it is never accepted before all are."""
    weight = path[rows.prediction]
    inside = (rows.loss < rows.flat) & np.isfinite(weight)
    scores = np.where(inside, np.where(np.isfinite(weight), weight, 1.0) * rows.loss, np.inf)
    return np.where((weight == 0) & (rows.loss < rows.flat), BEFORE_ALL, scores)


def path_cutoffs(path: Path, point: float) -> Floats:
    """The cutoff of each class at a point: a loss is below it exactly if its score is below the point."""
    finite = np.isfinite(path) & (path > 0)
    weights = np.where(finite, path, 1.0)
    if not math.isfinite(point):
        return np.full(weights.size, np.inf)
    cutoffs = point / weights
    while (low := weights * cutoffs < point).any():
        cutoffs = np.where(low, np.nextafter(cutoffs, np.inf), cutoffs)
    while (high := (weights * np.nextafter(cutoffs, -np.inf) >= point)).any():
        cutoffs = np.where(high, np.nextafter(cutoffs, -np.inf), cutoffs)
    first = np.inf if point > BEFORE_ALL else REJECT_ALL
    cutoffs = np.where(finite, cutoffs, np.where(path == 0, first, REJECT_ALL))
    return np.where(cutoffs <= 0, REJECT_ALL, cutoffs)


def path_of(goals: Sequence[Goal], names: Sequence[str], confusion: Integers | None, rows: int, delta: float) -> Path:
    """A path that takes first what costs the promises least, by the confusions (predicted x true) of other rows.

    The loss counts as the chance of an error. Each promise adds what a row uses up of its limit on average. Where a
    coverage is promised, predicted classes that so many rows will hardly certify come last.
    """
    classes = len(names)
    table = np.ones((classes, classes)) if confusion is None else confusion.astype(np.float64)
    right = np.diag(table)
    shares, predicted = (table.sum(axis=axis) / table.sum() for axis in (0, 1))
    weights = np.zeros(classes)
    for goal in goals_by_class(goals, names):
        if goal.what == "missed":
            which = list(names).index(goal.group or "")
            among = (table[:, which] + 1 / (classes - 1)) / (table.sum(axis=1) - right + 1)
            among[which] = 0.0
            weights += among / max(float(shares[which]) * goal.limit, 1e-9)
        elif goal.what == "overall-risk" or (goal.limits_errors and goal.group is None):
            weights += 1 / max(goal.risk, 1e-9)
    risks = class_risks(goals, names)
    hopeless = np.zeros(classes, bool)
    for number, risk in risks.items():
        weights[number] += 1 / max(risk, 1e-9)
        needed = math.log(delta / len(risks)) / math.log1p(-risk) if 0 < risk < 1 else 0.0
        hopeless[number] = rows * predicted[number] < needed
    if any(goal.is_lower for goal in goals):
        weights[hopeless] = np.inf
    return np.ones(classes) if (weights == weights[0]).all() else weights


class Chosen(Struct, frozen=True):
    """The cutoff of each predicted class (infinite: accept all), and why classes are rejected as a whole."""

    cutoffs: Floats
    rejected: dict[str, str]


def choose_cutoffs(
    goals: Sequence[Goal],
    names: Sequence[str],
    rows: PromiseRows,
    path: Path,
    delta: float | None,
    blocks: ErrorBlocks | None = None,
) -> Chosen:
    """The largest cutoffs along a path that keep all promises except with chance delta; None: on these rows.

    Promises of a coverage alone take the smallest, and rows with costs the cheapest: all cutoffs that are allowed keep
    the promises at the same time. `blocks` of other rows help to plan where tests start. Raises Infeasible with the
    promise that fails, by how much, and what would be possible.

    >>> rows = PromiseRows(np.arange(8) / 10, np.zeros(8, int), np.array([0, 0, 0, 0, 0, 1, 0, 1]), np.ones(8, bool))
    >>> found = choose_cutoffs([Goal("missed", 0.5, "1")], "01", rows, np.array([1.0, 0.0]), None)
    >>> found.cutoffs.tolist()
    [0.7, inf]
    """
    asked, goals = goals, with_reviewers(goals)
    risks, scores, wrong = class_risks(goals, names), path_scores(path, rows), rows.wrong
    every = next((goal for goal in goals if goal.limits_errors and not risks), None)
    upper, lower = [goal for goal in goals if goal.is_upper], [goal for goal in goals if goal.is_lower]
    share = shares_of_delta(goals, delta)
    least = max((_least_rows(goal, scores.size, share["lower"], len(lower)) for goal in lower), default=0)
    first = -math.inf if not least else float(np.sort(scores)[least - 1]) if least <= scores.size else math.inf
    points = {goal.asked: _last_point(goal, names, rows, scores, share["upper"]) for goal in upper}
    why, point = min(points.items(), key=lambda pair: pair[1], default=("", math.inf))
    if every is not None:
        inside = np.isfinite(scores) & rows.counted
        mine = scores[inside], wrong[inside], every.risk
        plan = blocks if (path == path[0]).all() else None
        held, _ = _allowed(*mine, _starts(int(inside.sum()), every.risk, share["precise"], least, plan))
        held = held[held <= point]
        if not held.size:
            beside = f" beside {why}" if why else ""
            raise Infeasible(f"{every.asked}{beside} cannot be kept: {_no_class(*mine, share['precise'])}")
        why = why if point == held[-1] else every.asked
        point = _cheapest(held, float(np.nextafter(first, np.inf)), scores, rows.cost)
    elif not upper and not risks and rows.cost is None:  # a coverage or a budget alone: as many reviews as that allows
        point = float(np.min(scores, where=scores > first, initial=math.inf))
    cutoffs, rejected = np.minimum(path_cutoffs(path, point), rows.flat), dict[str, str]()
    floor = np.full(len(names), REJECT_ALL)
    if lower:
        floor = np.minimum(path_cutoffs(path, float(np.nextafter(first, np.inf))), rows.flat)
    certified = {number: (held, reason) for number, held, reason in _by_class(risks, rows, share["precise"])}
    places = by_class(rows.prediction, len(names))
    for number in certified if rows.cost is None or every is not None else range(len(names)):
        losses, last = rows.loss[places[number]], cutoffs[number]
        held, reason = certified.get(number, (np.append(np.unique(losses)[1:], last), ""))
        held = np.minimum(held, rows.flat)
        held = np.append(REJECT_ALL, held[held <= last])
        costs = None if rows.cost is None else rows.cost[places[number]]
        cutoffs[number] = _cheapest(held, floor[number], losses, costs)
        if cutoffs[number] == REJECT_ALL:
            none = f"{why} allows none of its cutoffs" if held[-1] == REJECT_ALL else _TOO_DEAR
            rejected[names[number]] = reason or none
    if len(rejected) == len(names):
        raise Infeasible("; ".join(f"class '{name}': {reason}" for name, reason in rejected.items()))
    accepted = int(np.count_nonzero(rows.loss < cutoffs[rows.prediction]))
    short = accepted < min(least, scores.size)
    if lower and delta is not None:  # accepting these very rows is not enough
        short |= bool((cutoffs < floor).any()) or (least > accepted and math.isfinite(rows.flat))
    if not accepted:
        raise Infeasible(f"{why} allows no row to be accepted")
    if short and rows.cost is not None:  # nothing cheaper will do
        return choose_cutoffs(asked, names, replace(rows, cost=None), path, delta, blocks)
    if short:
        takes = _REVIEWED if len(asked) < len(goals) else ""
        raise Infeasible(_no_coverage(lower, why or "a ratio of 0", accepted, scores.size, share["lower"]) + takes)
    return Chosen(cutoffs, rejected)


def _cheapest(cutoffs: Floats, least: float, losses: Floats, costs: Floats | None) -> float:
    """Of ascending cutoffs the one below which rows cost least; the last of equal ones, and without costs.

    It is at or above `least`, if any is.
    """
    if costs is None or not losses.size or cutoffs[-1] < least:
        return float(cutoffs[-1])
    cutoffs = cutoffs[cutoffs >= least]
    curve = MeanCurve.of(losses, costs)
    sums = np.append(0.0, curve.sums)[np.searchsorted(curve.losses, cutoffs)]
    return float(cutoffs[np.flatnonzero(sums <= sums.min() + 1e-12 * np.abs(costs).sum())[-1]])  # up to rounding


def shares_of_delta(goals: Sequence[Goal], delta: float | None) -> dict[str, float | None]:
    """The part of delta that each kind of promise gets; None where there is none."""
    made = {"lower" if goal.is_lower else "upper" if goal.is_upper else "precise" for goal in goals}
    total = sum(SHARES[kind] for kind in made)
    return {kind: delta * part / total if delta and kind in made else None for kind, part in SHARES.items()}


# Promises that are kept up to a point of the path


def _last_point(goal: Goal, names: Sequence[str], rows: PromiseRows, scores: Floats, delta: float | None) -> float:
    """The last point at which missed cases, or errors among all rows, are few enough."""
    counted, wrong = rows.counted, rows.wrong
    among = counted & (rows.label == names.index(goal.group)) if goal.group is not None else counted
    total, bad = int(among.sum()), np.sort(scores[among & wrong])
    if delta is None:
        allowed = math.floor(exact_decimal(goal.limit) * total)
    else:
        allowed = most_errors(total, goal.limit, delta)
    if allowed < 0 or not total:
        whose = "" if goal.group is None else f" of class '{goal.group}'"
        found = f"{goal.asked} cannot be {'reached' if delta is None else 'certified'} on {total} rows{whose}"
        if delta is None or not 0 < goal.limit < 1:
            raise Infeasible(f"{found}; rows of that class are needed" if not total else found)
        needed = math.ceil(math.log(delta) / math.log1p(-goal.limit))
        best = upper_bound(0, total, delta) if total else 1.0
        raise Infeasible(f"{found}: at least {needed} are needed, and {best:.4g} is the least that they can promise")
    return float(bad[allowed]) if allowed < bad.size else math.inf


# Promises that are kept from a point of the path on


def _least_rows(goal: Goal, rows: int, delta: float | None, promises: int) -> int:
    """The rows at hand that must be accepted; more than there are if only accepting everything is sure enough."""
    if goal.what == "coverage":
        if delta is None:
            return math.ceil(exact_decimal(goal.limit) * rows)
        return needed_rows(goal.limit, rows, delta / promises)
    assert goal.per is not None
    budget = int(goal.limit)
    if delta is None:
        return rows - math.floor(exact_decimal(goal.limit) / goal.per * rows)
    batch, level = goal.per, delta / promises
    return 1 + bisect.bisect_left(range(1, rows + 1), -level, key=lambda r: -over_budget(rows, r, batch, budget))


def over_budget(rows: int, accepted: int, batch: int, budget: int) -> float:
    """The chance that more than `budget` of a batch of rows exceed the loss that `accepted` of `rows` do not exceed.

    Both are drawn from the same distribution; it does not matter from which.

    >>> round(over_budget(1, 1, 1, 0), 6)  # of two rows either may be the larger
    0.5
    """
    if budget >= batch:
        return 0.0
    above, over = rows - accepted + 1, np.arange(budget + 1, batch + 1)
    ways = special.gammaln(batch + 1) - special.gammaln(over + 1) - special.gammaln(batch - over + 1)
    logs = ways + special.betaln(over + above, batch - over + accepted) - special.betaln(above, accepted)
    return float(min(1.0, np.exp(logs).sum()))


# Error rates among accepted rows, which may rise and fall: the certified sequence


def _starts(
    rows: int, risk: float, delta: float | None, least: int = 0, blocks: ErrorBlocks | None = None
) -> Starts | None:
    """Where tests start; None if there is nothing to certify."""
    if delta is None or not rows:
        return () if delta else None
    if least:  # fewer rows would not do
        return ((max(1, first_rank(min(least, rows), risk, delta)), delta),)
    return planned_starts(blocks, rows, risk, delta) if blocks else risk_starts(rows, risk, delta)


def _allowed(losses: Floats, wrong: Booleans, risk: float, starts: Starts | None) -> tuple[Floats, float]:
    """The cutoffs that keep a risk, ascending, and the level that is left over.

    They are certified from some starts up, or (None) hold on these rows. A level is left where the last rank passes.
    """
    if not losses.size or starts == ():
        return np.zeros(0), 0.0
    curve = Curve.of(losses[~wrong], losses[wrong])
    cutoffs = np.append(curve.losses[1:], np.inf)
    if starts is None:
        return cutoffs[rate_at_most(curve.errors, curve.accepted, exact_decimal(risk))], 0.0
    levels, held = walk(starts, curve.accepted, first_failure(error_ranks(curve.accepted, curve.errors), risk))
    return cutoffs[held], float(levels[-1]) if held[-1] else 0.0


def _by_class(risks: Mapping[int, float], rows: PromiseRows, delta: float | None) -> Iterator[tuple[int, Floats, str]]:
    """The cutoffs that keep the risk of each predicted class, and what to say if there are none.

    Shares of delta are equal among the classes that have rows enough. The sequence of tests goes on from class to
    class, from that of most rows on: one whose last rank passes hands its level on.
    """
    kept = np.flatnonzero((rows.loss < rows.flat) & rows.counted)
    places = by_class(rows.prediction[kept], max(*risks, int(rows.prediction.max())) + 1 if risks else 1)
    counts = [each.size for each in places]
    order = sorted(risks, key=lambda number: (-counts[number], number))
    able = list(order)
    while delta and able and at_most(0, max(counts[able[-1]], 1), risks[able[-1]]) > delta / len(able):
        able.pop()
    left, bad = 0.0, rows.wrong
    for number in order:
        mine, risk, level = kept[places[number]], risks[number], None
        losses, wrong = rows.loss[mine], bad[mine]
        if delta is not None:
            level = left + (delta / len(able) if number in able else 0.0)
        starts = None if level is None else _starts(losses.size, risk, level) if level else ()
        held, left = _allowed(losses, wrong, risk, starts)
        yield number, held, "" if held.size else _no_class(losses, wrong, risk, level or (delta and delta / len(risks)))


# What to say where a promise cannot be kept

_TOO_DEAR = "accepting any costs more than reviewing"
_REVIEWED = "; reviewers' mistakes take the rest of the overall risk, and that coverage"


def _no_class(losses: Floats, wrong: Booleans, risk: float, delta: float | None) -> str:
    """Why no cutoff of a predicted class keeps its risk."""
    if not losses.size:
        return "no row at hand is predicted as that"
    curve = Curve.of(losses[~wrong], losses[wrong])
    if delta is None:
        return f"the lowest error rate of accepted rows is {float((curve.errors / curve.accepted).min()):.4g}"
    ends = np.flatnonzero(np.diff(curve.errors, append=curve.total_errors + 1))  # right before an error it is lowest
    errors, accepted = curve.errors[ends], curve.accepted[ends]
    bounds = upper_bounds(errors, accepted, np.full(ends.size, delta))
    best = int(np.argmin(bounds))
    words = f"the best upper bound of its error rate is {bounds[best]:.4g}, on {accepted[best]} rows"
    if bounds[best] <= risk:
        return f"{words}, but the tests start at more rows and fail there"
    needed = math.ceil(math.log(delta) / math.log1p(-risk)) if 0 < risk < 1 else 0
    return f"{words}; at least {needed} are needed" if losses.size < needed else words


def _no_coverage(lower: Sequence[Goal], why: str, accepted: int, total: int, delta: float | None) -> str:
    """Which coverage or budget fails, and what would be possible beside the other promises."""
    possible = accepted / total if delta is None else lower_bound(accepted, total, delta)
    wish = " and ".join(goal.asked for goal in lower)
    known = "" if delta is None else f" which is known to be at least {possible:.4g} of new rows,"
    less = {"a lower coverage" if goal.what == "coverage" else "more reviews" for goal in lower}
    return (
        f"{wish} cannot be kept: {why} allows {accepted} of {total} rows to be accepted,{known} so about "
        f"{1000 * (1 - possible):.0f} of 1000 are reviewed; ask for {' and '.join(sorted(less))}, or less of the rest"
    )
