"""Figures that sections share: shares and costs with their intervals, points of the curve, and the target.

The rule by which a verdict on a target is reached, and how often it errs, is in `core.thresholds`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from drrej.core.curves import PER, Curve, coverage_at_risk
from drrej.core.intervals import CONFIDENCE, exact_decimal, mean_interval, proportion
from drrej.core.thresholds import (
    ERROR_RULES,
    Goal,
    Judgement,
    Rule,
    Verdict,
    as_share,
    goals_by_class,
    judge_share,
    risk_of,
    rows_to_settle,
    together,
    verdict_on,
)
from drrej.core.types import Stored
from drrej.documents.document import (
    CERTIFIED,
    EXACT,
    NONE,
    About,
    AtLeastOne,
    Better,
    Count,
    NotNegative,
    Share,
    When,
    about,
)
from drrej.errors import GateError


class WithInterval(Stored, frozen=True, kw_only=True):
    """Figures with a `lower` and an `upper` end: both are there and in order, or neither is."""

    def __post_init__(self: Any) -> None:
        if (self.lower is None) != (self.upper is None):
            raise ValueError("an interval has two ends or none")
        if self.lower is not None and self.lower > self.upper:
            raise ValueError("the lower end of an interval is above its upper end")


class Spread(WithInterval, frozen=True, kw_only=True):
    """A number with its interval, of 95 % unless it says otherwise; None where they are undefined."""

    value: float | None
    lower: Annotated[float | None, about("lower end of its interval")]
    upper: Annotated[float | None, about("upper end of its interval")]


class Change(Spread, frozen=True, kw_only=True):
    """A figure minus another; `convention` says which of the numbers with the same name it is."""

    convention: str | None = None


class Proportion(Spread, frozen=True, kw_only=True):
    """A share or an area; `group` says whose it is, `convention` which of the areas with the same name."""

    value: Share | None
    lower: Annotated[Share | None, about("lower end of its 95 % interval")]
    upper: Annotated[Share | None, about("upper end of its 95 % interval")]
    group: str | None = None
    convention: str | None = None


class Coverage(Proportion, frozen=True, kw_only=True):
    """A share of accepted rows, and their number."""

    accepted: Annotated[Count, about("as the number of accepted rows", interval=NONE)]


class Accuracy(Proportion, frozen=True, kw_only=True):
    """A share of right predictions, and the number of wrong ones."""

    errors: Annotated[Count, about("as the number of errors", "lower", NONE)]


class PointFigure(Proportion, frozen=True, kw_only=True):
    """A figure at one point of the risk-coverage curve, with the counts there."""

    accepted: Annotated[Count, about("as the number of rows accepted there", "higher", NONE)]
    errors: Annotated[Count, about("as the number of errors among them", "lower", NONE)]


class CurvePoint(WithInterval, frozen=True, kw_only=True):
    """Accuracy at one coverage, which may be that of one tau of (0, 1]."""

    tau: Share | None = None
    coverage: Share
    accuracy: Share | None
    lower: Share | None
    upper: Share | None


# What every report says about the dump and the decision
Rows = Annotated[AtLeastOne, about("rows of the dump", "neither", NONE)]
Tau = Annotated[
    NotNegative | None, about("threshold as a ratio: rows at or below it are rejected", "neither", NONE, unit="ratio")
]
Cutoff = Annotated[
    float | None, about("threshold as a loss: rows at or above it are rejected", "neither", NONE, unit="loss")
]


class CoverageHere(Coverage, frozen=True, kw_only=True):
    """The coverage of a report, and how far it has fallen."""

    drop: Annotated[
        float | None,
        about("coverage where the threshold was chosen, minus that of these rows", "lower", NONE, unit="difference"),
    ] = None


CoverageOfDump = Annotated[CoverageHere, about("share of the rows that are accepted", "higher", EXACT)]


DEFAULT_POINTS: Sequence[str] = (
    "accuracy@coverage=0.5",
    "accuracy@coverage=0.8",
    "accuracy@coverage=0.9",
    "accuracy@coverage=0.95",
    "coverage@risk=0.01",
    "coverage@risk=0.05",
)
"""Those of every report."""

_PARTS = ("value", "lower", "upper", "accepted", "errors")
_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_POINT = re.compile(rf"(accuracy|risk|coverage)@(coverage|risk|accuracy)=({_NUMBER})(?:\.({'|'.join(_PARTS)}))?")


class Point(Struct, frozen=True):
    """A figure at a given coverage or risk.

    >>> point, part = Point.parse("accuracy@coverage=0.90.lower")
    >>> point.name, part
    ('accuracy@coverage=0.9', 'lower')
    """

    figure: str
    given: str
    at: float

    @classmethod
    def parse(cls, text: str) -> tuple[Point, str | None]:
        """The point and which part of it is meant, if one is named."""
        match = _POINT.fullmatch(text.strip())
        if match is None or (match[1] == "coverage") != (match[2] in ERROR_RULES):
            raise GateError(
                f"'{text}' is not a point of the curve; write accuracy@coverage=0.9, risk@coverage=0.9, "
                "coverage@risk=0.01 or coverage@accuracy=0.99"
            )
        at = float(match[3])
        if not (at <= 1 and (at > 0 or match[2] == "risk")):
            raise GateError(f"'{text}': the {match[2]} must be a share, above 0 and at most 1{as_share(at)}")
        return cls(match[1], match[2], at), match[4]

    @property
    def name(self) -> str:
        """As the report calls it."""
        return f"{self.figure}@{self.given}={repr(self.at).removesuffix('.0')}"

    @property
    def about(self) -> About:
        """What the figure is, for the catalogue of metrics."""
        at = repr(self.at).removesuffix(".0")
        if self.figure == "coverage":
            rate = "an accuracy of at least" if self.given == "accuracy" else "an error rate of at most"
            return About(f"largest coverage with {rate} {at}", "higher", CERTIFIED, unit="share", ends=When.INTERVALS)
        what = "error rate" if self.figure == "risk" else "accuracy"
        better: Better = "lower" if self.figure == "risk" else "higher"
        return About(f"{what} at the smallest coverage of at least {at}", better, EXACT, unit="share")

    def row(self, points: Curve, intervals: bool = False) -> PointFigure:
        """The figure with its counts.

        Given the smallest rejected loss, the accepted rows are independent draws below it, so their errors are
        binomial and the exact interval holds. The interval of a coverage at a risk takes more work, see
        `core.curves`, and is made if asked for.
        """
        if self.given == "coverage":
            accepted, errors = points.reaching(math.ceil(exact_decimal(self.at) * points.rows))
            hits = errors if self.figure == "risk" else accepted - errors
            return PointFigure(**proportion(hits, accepted), accepted=accepted, errors=errors)
        risk = exact_decimal(risk_of(self.given, self.at))
        accepted, errors = points.largest_at_risk(risk)
        lower, upper = coverage_at_risk(points, risk) if intervals else (None, None)
        value = accepted / points.rows
        return PointFigure(value=value, lower=lower, upper=upper, accepted=accepted, errors=errors)


# What errors and reviews cost, and what became of the target


class CostPoint(Stored, frozen=True, kw_only=True):
    """The cost per 1000 rows at one coverage."""

    coverage: Share
    cost: float


class TotalCost(Spread, frozen=True, kw_only=True):
    """Errors of accepted rows and reviews of rejected ones, per 1000 rows, against other ways to decide.

    The oracle rejects a row exactly where accepting it would cost more than a review. The two savings are judged
    together: each has an interval of 97.5 %, so that both hold with 95 %.
    """

    value: float
    lower: Annotated[float, about("lower end of its 95 % interval")]
    upper: Annotated[float, about("upper end of its 95 % interval")]
    accepting_all: Annotated[float, about("if every row were accepted", interval=NONE)]
    rejecting_all: Annotated[float, about("if every row were reviewed", interval=NONE)]
    oracle: Annotated[float, about("if it were known which rows to review", interval=NONE)]
    best_cutoff: Annotated[float, about("at the best cutoff for these rows", interval=NONE)]
    saved_over_accepting: Annotated[Spread, about("saving over accepting every row", "higher")]
    saved_over_rejecting: Annotated[Spread, about("saving over reviewing every row", "higher")]
    curve: tuple[CostPoint, ...]

    @property
    def verdict(self) -> Verdict:
        """Met where it costs less than either simple way, missed where one of them costs less, both beyond noise."""
        return together(
            verdict_on(saving.lower, saving.upper, 0.0)
            for saving in (self.saved_over_accepting, self.saved_over_rejecting)
            if saving.lower is not None and saving.upper is not None
        )


MEANS = {"mean-cost": "mean cost", "mse": "mean squared error", "mae": "mean absolute error"}
"""What is promised besides shares and the least cost, in words."""


class Promise(WithInterval, frozen=True, kw_only=True):
    """What was wanted of one figure (of one group, where each has its own cutoff), what came out, and the verdict.

    The interval is that of the verdict: 95 %, or what is left of it where several promises are judged together.
    """

    what: Annotated[str, Meta(pattern="^(accuracy|risk|coverage|cost|mean-cost|mse|mae|missed|overall-risk|reviews)$")]
    wanted: Annotated[float, about("the limit: at most this for costs, errors and risks, otherwise at least this")]
    group: str | None = None
    value: float | None
    lower: float | None
    upper: float | None
    p_value: Annotated[
        Share | None, about("probability of a result at least this bad if the promise only just holds", unit="p-value")
    ]
    verdict: Verdict
    clip: Annotated[float | None, about("the most that the error of one row counts")] = None
    more_rows: Count | None = None
    """About how many labelled rows more would give a verdict, where there is none."""


class Target(Stored, frozen=True, kw_only=True):
    """What the threshold was chosen for. With `confidence` that was certified for new rows like those it was chosen on.

    `verdict` is missed if one promise is, met if each is.
    """

    verdict: Verdict
    confidence: Share | None = None
    promises: tuple[Promise, ...]

    @property
    def deciding(self) -> Promise:
        """The promise that the verdict is about: the first that is missed, else inconclusive, else met."""
        return next(promise for promise in self.promises if promise.verdict == self.verdict)


_UNKNOWN = Judgement(None, None, None, None, "inconclusive")


class Counts(Struct, frozen=True):
    """Rows (of one group), those accepted, and the errors among these; None without labels."""

    rows: int
    accepted: int
    errors: int | None
    group: str | None = None
    certain: bool = False
    """Whether every row is accepted, those to come too."""
    tied: bool = False
    """Whether the rows at the cutoff, which are accepted or rejected together, are more than half of all."""
    independent: float = 1.0
    """The share of the rows that are no copies of others."""


def judge(rule: Rule, counts: Sequence[Counts], confidence: float | None = None) -> Target | None:
    """Hold a rule against counts, those of each group if there are several; None where it promises nothing."""
    wanted = [(rule.kind, rule.target)] if rule.kind in (*ERROR_RULES, "coverage") else []
    wanted += [] if rule.coverage is None else [("coverage", rule.coverage)]
    if not wanted:
        return None
    open_ones = [
        (what, limit, count)
        for count in counts
        for what, limit in wanted
        if len(counts) == 1 or count.accepted or what == "coverage"  # a group without accepted rows has no error rate
    ] or [(what, limit, Counts(0, 0, 0)) for what, limit in wanted]
    promises = []
    for what, limit, count in open_ones:
        found, among = _judged(what, limit, count, len(open_ones)), count.rows if what == "coverage" else count.accepted
        promises.append(_promise(what, limit, count.group, found, among, count.rows))
    return _target(promises, confidence)


def _promise(what: str, wanted: float, group: str | None, found: Judgement, among: int, rows: int) -> Promise:
    """A promise and what was found; `among` so many rows of all, which have to be labelled as well. 0: not known."""
    more = rows_to_settle(found, wanted, among) if among else None
    more = None if more is None else math.ceil(more * rows / among)
    return Promise(what=what, wanted=wanted, group=group, more_rows=more, **asdict(found))


def _target(promises: Sequence[Promise], confidence: float | None = None) -> Target:
    verdict = together(promise.verdict for promise in promises)
    return Target(verdict=verdict, confidence=confidence, promises=tuple(promises))


class ClassCounts(Struct, frozen=True):
    """Of each true class its rows and those accepted as another one; of each predicted one those accepted and wrong."""

    rows: Sequence[int]
    missed: Sequence[int]
    accepted: Sequence[int]
    wrong: Sequence[int]


def judge_goals(
    goals: Sequence[Goal],
    names: Sequence[str],
    seen: Counts,
    by_class: ClassCounts | None,
    confidence: float | None,
    sampled: Callable[[Goal, float], tuple[float | None, float, float]] | None = None,
) -> Target:
    """Hold several promises against the counts of all rows and, with labels, of classes.

    Predicted classes without accepted rows have no error rate. Where labels are those of a sample, `sampled` has the
    figure of a promise and its bounds, each wrong with the chance that it is given.
    """
    found = list[tuple[Goal, int, int]]()  # what counts, among how many
    for goal in goals_by_class(goals, names):
        number = None if goal.group is None else names.index(goal.group)
        if goal.is_lower:
            found.append((goal, seen.rows - seen.accepted, seen.rows))
        elif goal.what == "overall-risk":
            found.append((goal, seen.errors or 0, 0 if seen.errors is None else seen.rows))
        elif number is None:
            found.append((goal, seen.errors or 0, 0 if seen.errors is None else seen.accepted))
        elif goal.what == "missed":
            found.append((goal, by_class.missed[number], by_class.rows[number]) if by_class else (goal, 0, 0))
        elif by_class is None or by_class.accepted[number]:
            found.append((goal, by_class.wrong[number], by_class.accepted[number]) if by_class else (goal, 0, 0))
    promises = []
    for goal, hits, rows in found:
        wanted = goal.limit / (goal.per or 1)
        if goal.what == "coverage":
            judged = _judged("coverage", wanted, seen, len(found))
        elif sampled is not None and goal.what != "reviews":
            value, lower, upper = sampled(goal, (1.0 - CONFIDENCE) / 2 / len(found))
            verdict = verdict_on(lower, upper, wanted, goal.what == "accuracy")
            judged = _UNKNOWN if value is None else Judgement(value, lower, upper, None, verdict)
        elif goal.reviewer_accuracy is not None and rows:  # errors among all rows; reviewers add to those of the model
            wrong, rejected = 1.0 - goal.reviewer_accuracy, seen.rows - seen.accepted
            counts = np.array([seen.accepted - hits, rejected, hits])
            lower, upper = mean_interval(np.array([0.0, wrong, 1.0]), counts, (1.0 - CONFIDENCE) / 2 / len(found))
            verdict = verdict_on(lower, upper, goal.limit, or_more=False)
            judged = Judgement((hits + wrong * rejected) / seen.rows, lower, upper, None, verdict)
        elif goal.what == "accuracy":
            judged = judge_share(rows - hits, rows, wanted, claims=len(found))
        else:
            judged = judge_share(hits, rows, wanted, or_more=False, claims=len(found))
        promises.append(_promise(goal.what, wanted, goal.group, judged, 0 if sampled else rows, seen.rows))
    return _target(promises, confidence)


def _judged(what: str, limit: float, counts: Counts, claims: int) -> Judgement:
    """What the counts say about one promise among so many."""
    if what == "coverage":
        found = judge_share(counts.accepted, counts.rows, limit, claims=claims, independent=counts.independent)
        if counts.certain and found.value == 1:
            found = Judgement(1.0, 1.0, 1.0, 1.0, "met")
        if counts.tied and limit < 1 and found.verdict == "met":  # it was not the cutoff that met it
            found = replace(found, verdict="inconclusive")
        return found
    if counts.errors is None:
        return _UNKNOWN
    hits = counts.errors if what == "risk" else counts.accepted - counts.errors
    return judge_share(hits, counts.accepted, limit, what != "risk", claims, counts.independent)


def judge_mean(rule: Rule, mean: float | None, ends: tuple[float, float] | None, confidence: float | None) -> Target:
    """Whether the mean of what accepted rows lose is at most a limit; `ends` of its 95 % interval, if it has one."""
    found = replace(_UNKNOWN, value=mean)
    if ends is not None:
        found = Judgement(mean, *ends, None, verdict_on(*ends, rule.target, or_more=False))
    return _target([Promise(what=rule.kind, wanted=rule.target, clip=rule.clip, **asdict(found))], confidence)


def judge_cost(cost: TotalCost | None, review_cost: float) -> Target:
    """Whether a threshold of least cost beats accepting every row and reviewing every row, per 1000 rows.

    Without labels it cannot be told; then the limit is that of reviewing every row.
    """
    wanted, found = PER * review_cost, _UNKNOWN
    if cost is not None:
        wanted = min(cost.accepting_all, cost.rejecting_all)
        found = Judgement(cost.value, cost.lower, cost.upper, None, cost.verdict)
    return _target([Promise(what="cost", wanted=wanted, **asdict(found))])
