"""The target of a rejector against the result on these rows, in the words that the target was given in.

The rule by which a verdict is reached, and how often it errs, is in `core.thresholds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from drrej.core.curves import PER
from drrej.core.thresholds import Judgement, Rule, Verdict, judge_share, together, verdict_on
from drrej.core.types import Stored
from drrej.documents.document import NONE, Share, Unit, about
from drrej.documents.figures import check_interval


class Saving(Stored, frozen=True, kw_only=True):
    """How much less it costs than another way, per 1000 rows, with its interval."""

    value: float
    lower: Annotated[float, about("lower end of its interval")]
    upper: Annotated[float, about("upper end of its interval")]

    def __post_init__(self) -> None:
        check_interval(self.lower, self.upper)


class CostPoint(Stored, frozen=True, kw_only=True):
    """The cost per 1000 rows at one coverage."""

    coverage: Share
    cost: float


class TotalCost(Stored, frozen=True, kw_only=True):
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
    saved_over_accepting: Annotated[Saving, about("less than if every row were accepted", "higher")]
    saved_over_rejecting: Annotated[Saving, about("less than if every row were reviewed", "higher")]
    curve: tuple[CostPoint, ...]

    def __post_init__(self) -> None:
        check_interval(self.lower, self.upper)

    @property
    def verdict(self) -> Verdict:
        """Met where it costs less than either simple way, missed where one of them costs less, both beyond noise."""
        return cost_verdict((self.saved_over_accepting.lower, self.saved_over_accepting.upper),
                            (self.saved_over_rejecting.lower, self.saved_over_rejecting.upper))  # fmt: skip


def cost_verdict(*savings: tuple[float, float]) -> Verdict:
    """From the intervals of the savings."""
    if any(upper < 0 for _, upper in savings):
        return "missed"
    return "met" if all(lower >= 0 for lower, _ in savings) else "not shown"


What = Literal["accuracy", "risk", "coverage", "cost", "mean-cost", "mse", "mae"]


class Promise(Stored, frozen=True, kw_only=True):
    """What was wanted of one figure (of one group, where each has its own cutoff), what came out, and the verdict.

    The interval is that of the verdict: 95 %, or what is left of it where several promises are judged together.
    """

    what: What
    wanted: Annotated[float, about("the limit: costs, errors and risks are to be at most that, other figures at least")]
    group: str | None = None
    value: float | None
    lower: float | None
    upper: float | None
    p_value: Annotated[
        Share | None, about("chance of a result at least as bad where the promise just holds", unit=Unit.P_VALUE)
    ]
    verdict: Verdict
    clip: Annotated[float | None, about("what the error of a row counts at most")] = None

    def __post_init__(self) -> None:
        check_interval(self.lower, self.upper)


class Target(Stored, frozen=True, kw_only=True):
    """What the threshold was chosen for. With `confidence` that was certified for new rows like those it was chosen on.

    `verdict` is missed if one promise is, met if each is.
    """

    verdict: Verdict
    confidence: Share | None = None
    promises: tuple[Promise, ...]

    @property
    def deciding(self) -> Promise:
        """The promise that the verdict is about: the first that is missed, else not shown, else met."""
        return next(promise for promise in self.promises if promise.verdict == self.verdict)


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


def wanted_of(rule: Rule) -> tuple[tuple[What, float], ...]:
    """The figures that a rule makes promises about, with their limits; none for a tau or a largest loss."""
    kinds: tuple[What, ...] = ("accuracy", "risk", "coverage")  # for costs see `judge_cost`
    found = tuple((kind, rule.target) for kind in kinds if kind == rule.kind)
    return found if rule.coverage is None else (*found, ("coverage", rule.coverage))


def judge(
    wanted: Sequence[tuple[What, float]], counts: Sequence[Counts], confidence: float | None = None
) -> Target | None:
    """Hold promises against counts, those of each group if there are several; None where nothing was promised."""
    if not wanted:
        return None
    open_ones = [
        (what, limit, count)
        for count in counts
        for what, limit in wanted
        if len(counts) == 1 or count.accepted or what == "coverage"  # a group without accepted rows has no error rate
    ] or [(what, limit, Counts(0, 0, 0)) for what, limit in wanted]
    promises = tuple(
        Promise(
            what=what,
            wanted=limit,
            group=count.group,
            **asdict(judged(what, limit, count, len(open_ones))),
        )
        for what, limit, count in open_ones
    )
    return Target(verdict=together(row.verdict for row in promises), confidence=confidence, promises=promises)


def judge_mean(rule: Rule, mean: float | None, ends: tuple[float, float] | None, confidence: float | None) -> Target:
    """Whether the mean of what accepted rows lose is at most a limit; `ends` of its 95 % interval, if it has one."""
    whats: tuple[What, ...] = ("mean-cost", "mse", "mae")
    (what,) = (what for what in whats if what == rule.kind)
    limit = rule.target
    verdict: Verdict = "not shown" if ends is None else verdict_on(*ends, limit, or_more=False)
    lower, upper = ends or (None, None)
    promise = Promise(
        what=what, wanted=limit, value=mean, lower=lower, upper=upper, p_value=None, verdict=verdict, clip=rule.clip
    )
    return Target(verdict=verdict, confidence=confidence, promises=(promise,))


def judge_cost(cost: TotalCost | None, review_cost: float) -> Target:
    """Whether a threshold of least cost beats accepting every row and reviewing every row, per 1000 rows.

    Without labels it cannot be told; then the limit is that of reviewing every row.
    """
    if cost is None:
        nothing: dict[str, Any] = {"value": None, "lower": None, "upper": None, "verdict": "not shown"}
        unknown = Promise(what="cost", wanted=PER * review_cost, p_value=None, **nothing)
        return Target(verdict="not shown", promises=(unknown,))
    promise = Promise(
        what="cost",
        wanted=min(cost.accepting_all, cost.rejecting_all),
        value=cost.value,
        lower=cost.lower,
        upper=cost.upper,
        p_value=None,
        verdict=cost.verdict,
    )
    return Target(verdict=promise.verdict, promises=(promise,))


def judged(what: What, limit: float, counts: Counts, claims: int) -> Judgement:
    """What the counts say about one promise among so many."""
    if what == "coverage":
        found = judge_share(counts.accepted, counts.rows, limit, claims=claims)
        if counts.certain and found.value == 1:
            found = Judgement(1.0, 1.0, 1.0, 1.0, "met")
        if counts.tied and limit < 1 and found.verdict == "met":  # it was not the cutoff that met it
            found = replace(found, verdict="not shown")
        return found
    if counts.errors is None:
        return Judgement(None, None, None, None, "not shown")
    hits = counts.errors if what == "risk" else counts.accepted - counts.errors
    return judge_share(hits, counts.accepted, limit, what != "risk", claims)
