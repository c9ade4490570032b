"""Choosing the cutoff on L' (and the tau it stands for) from the rows of a fitted set.

Accepted means L' < cutoff; rows that tie at the cutoff stay together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from drrej.core.curves import Curve, MeanCurve
from drrej.core.intervals import at_least, at_most, exact_decimal, proportion
from drrej.core.ratio import DensityRatio
from drrej.core.types import Floats, Stored
from drrej.errors import Infeasible, OptionError

PROMISES = "promises"
RULES = ("tau", "coverage", "accuracy", "risk", "max-loss", "cost", "mean-cost", "mse", "mae", PROMISES)
ERROR_RULES = ("accuracy", "risk")
"""Those that limit the error rate of the accepted rows."""
MEAN_RULES = ("mean-cost", "mse", "mae")
"""Those that limit the mean of what accepted rows really lose: by a cost matrix, or by the error of a regression."""
FIXED = ("tau", "max-loss")
"""Those whose cutoff is known before any row is seen."""

RISK_METHOD, COVERAGE_METHOD, JOINT_METHOD, MEAN_METHOD = "fixed-sequence", "order-statistic", "joint", "betting"
"""How a risk, a coverage, both together (and any promises), and a mean are certified."""

GONE = {
    "sgr": "it needs a risk that grows with the coverage; the default certifies without that",
    "hoeffding-bentkus": "the default, betting, is tighter unless nearly all values are 0 or the limit",
}
"""Methods that were offered once, and why there is only one left."""

REJECT_ALL = -1.0
"""A cutoff below every loss."""


class Goal(Stored, frozen=True):
    """One of several promises, see `core.promises`.

    "accuracy" and "risk" are of the accepted rows, with `group` of those that are predicted as that class; "missed" is
    the share of the rows of that true class that are accepted as another one, "overall-risk" that of accepted errors
    among all rows. The limit of "reviews" is the largest number of rejected rows `per` so many. Reviewers are right in
    all rejected rows, or in the share `reviewer_accuracy`.
    """

    what: Literal["accuracy", "risk", "missed", "overall-risk", "coverage", "reviews"]
    limit: float
    group: str | None = None
    per: int | None = None
    reviewer_accuracy: float | None = None

    def __post_init__(self) -> None:
        inside, allowed = 0 <= self.limit < 1, "at least 0 and below 1"
        if self.what == "reviews":
            if self.per is None or self.per < 1:
                raise OptionError("`reviews=B` requires `per=N`: at most B reviews in a batch of N rows")
            inside, allowed = 0 <= self.limit <= self.per and self.limit == int(self.limit), "a number up to `per`"
        elif self.what in ("coverage", "accuracy"):
            inside, allowed = 0 < self.limit <= 1, "above 0 and at most 1"
        if not inside:
            raise OptionError(f"{self.asked}: it must be {allowed}{as_share(self.limit) if self.per is None else ''}")
        if self.reviewer_accuracy is not None and not 0 < self.reviewer_accuracy <= 1:
            raise OptionError(f"`reviewer_accuracy={self.reviewer_accuracy:g}`: it must be above 0 and at most 1")

    @property
    def asked(self) -> str:
        """As a user gave it, for messages."""
        name = {"missed": "max_missed", "overall-risk": "overall_risk"}.get(self.what, self.what)
        whose = "=" if self.group is None else f"={self.group}="
        return f"`{name}{whose}{self.limit:g}`" + ("" if self.per is None else f" `per={self.per}`")

    @property
    def limits_errors(self) -> bool:
        """Whether it limits the error rate of accepted rows: not monotone in the cutoff."""
        return self.what in ERROR_RULES

    @property
    def is_upper(self) -> bool:
        """Whether it holds up to a cutoff."""
        return self.what in ("missed", "overall-risk")

    @property
    def is_lower(self) -> bool:
        """Whether it holds from a cutoff on."""
        return self.what in ("coverage", "reviews")

    @property
    def risk(self) -> float:
        """The largest error rate that it allows."""
        return risk_of(self.what, self.limit) if self.limits_errors else self.limit


def goals_by_class(goals: Sequence[Goal], names: Sequence[str]) -> list[Goal]:
    """The promises, each for one class or for all rows.

    Where an accuracy or a risk names a class, one without a name is that of every other class.

    >>> [goal.asked for goal in goals_by_class([Goal("accuracy", 0.99), Goal("risk", 0.1, "b")], "abc")]
    ['`accuracy=a=0.99`', '`accuracy=c=0.99`', '`risk=b=0.1`']
    """
    named = {goal.group for goal in goals if goal.limits_errors} - {None}
    found: list[Goal] = []
    for goal in goals:
        every = goal.limits_errors and goal.group is None and named
        found += [Goal(goal.what, goal.limit, name) for name in names if name not in named] if every else [goal]
    return found


def class_risks(goals: Sequence[Goal], names: Sequence[str]) -> dict[int, float]:
    """The largest error rate of each predicted class, by number; empty where none is named."""
    known = [goal for goal in goals_by_class(goals, names) if goal.limits_errors and goal.group is not None]
    number = {name: place for place, name in enumerate(names)}
    return {number[goal.group or ""]: goal.risk for goal in known}


def with_reviewers(goals: Sequence[Goal]) -> list[Goal]:
    """The promises with an overall error in which reviewers' mistakes are allowed for.

    They get what they need if every row were reviewed, up to half of the limit; then as many rows have to be accepted
    that they do not need more. Where a coverage is promised, they need it for the other rows only.

    >>> [goal.asked for goal in with_reviewers([Goal("overall-risk", 0.01, reviewer_accuracy=0.96)])]
    ['`overall_risk=0.005`', '`coverage=0.875`']
    """
    found = list(goals)
    for goal in goals:
        wrong = 1 - exact_decimal(1.0 if goal.reviewer_accuracy is None else goal.reviewer_accuracy)
        if goal.what != "overall-risk" or not wrong:
            continue
        limit, promised = exact_decimal(goal.limit), [each.limit for each in goals if each.what == "coverage"]
        reviewed = 1 - exact_decimal(promised[0]) if promised else min(Fraction(1), limit / 2 / wrong)
        if wrong * reviewed >= limit:
            raise OptionError(f"{goal.asked}: reviewers alone make more errors; promise a larger `coverage`")
        found[found.index(goal)] = Goal(goal.what, float(limit - wrong * reviewed))
        if reviewed < 1 and not promised:
            found.append(Goal("coverage", float(1 - reviewed)))
    return found


class Rule(Stored, frozen=True):
    """How the cutoff is chosen: one of `RULES` and its target.

    `confidence` makes a risk, an accuracy or a coverage a guarantee, see `core.certify`; `method` is how a risk is
    certified. An accuracy of 0.98 is a risk of 0.02, exactly. The target of the rule "cost" is the cost of a review;
    `error_cost` is the cost of an accepted error, or None if a cost matrix determines it. A `coverage` beside a risk or
    an accuracy must be reached too, and a confidence then applies to both together. The rules "mean-cost", "mse" and
    "mae" limit a mean; an error above `clip` counts as `clip`, which a confidence requires, because nothing can be
    promised about the mean of unbounded errors. The rule "promises" has several `promises`, which hold together; its
    target is 0, or the cost of a review if you want the cheapest cutoffs that keep them. `threshold` sets `reused` to
    true if it used rows that calibrate or fit have seen; then nothing is guaranteed.

    >>> Rule("accuracy", 0.98).risk
    0.02
    """

    kind: str
    target: float
    confidence: float | None = None
    method: str | None = None
    reused: bool | None = None
    error_cost: float | None = None
    coverage: float | None = None
    clip: float | None = None
    promises: tuple[Goal, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in RULES:
            raise OptionError(f"unknown rule '{self.kind}'; use one of: {', '.join(RULES)}")
        inside, allowed = {
            "tau": (self.target >= 0, "0 or more"),
            "coverage": (0 < self.target <= 1, "above 0 and at most 1"),
            "accuracy": (0 < self.target <= 1, "above 0 and at most 1"),
            "risk": (0 <= self.target < 1, "at least 0 and below 1"),
            "max-loss": (self.target > 0, "above 0"),
            "cost": (self.target > 0, "above 0"),
            **dict.fromkeys(MEAN_RULES, (self.target >= 0, "0 or more")),
            PROMISES: (self.target >= 0, "what a review costs, or 0"),
        }[self.kind]
        if not (inside and math.isfinite(self.target)):
            hint = "" if self.kind in ("tau", "max-loss", "cost", *MEAN_RULES) else as_share(self.target)
            raise OptionError(f"`{self.parameter}={self.target:g}`: it must be {allowed}{hint}")
        if self.confidence is not None and not self.can_be_certified:
            raise OptionError(
                f"`confidence` cannot be combined with `{self.parameter}`; it requires `accuracy`, `risk`, `coverage`, "
                "`mean_cost`, `mse` or `mae`"
            )
        if self.confidence is not None and not 0 < self.confidence < 1:
            hint = as_share(self.confidence) or ", e.g. 0.95"
            raise OptionError(f"`confidence={self.confidence:g}`: it must be above 0 and below 1{hint}")
        if self.method in GONE:
            raise OptionError(f"`method={self.method}` is gone: {GONE[self.method]}; leave out `method`")
        if self.method is not None and self.method != self.certified_by:
            raise OptionError(f"`method={self.method}`: there is no choice; leave out `method`")
        if (self.kind == PROMISES) != bool(self.promises):
            raise OptionError(f"`promises` requires the rule '{PROMISES}'")
        clip, price, coverage = self.clip, self.error_cost, self.coverage
        if clip is None and self.confidence is not None and self.kind in ("mse", "mae"):
            raise OptionError(
                f"`{self.kind}` with `confidence` needs `clip=B`: an error above B counts as B; nothing can be "
                "promised about the mean of errors of any size"
            )
        if clip is not None and self.kind not in ("mse", "mae"):
            raise OptionError("`clip` requires `mse` or `mae`; the costs of a matrix have a limit of their own")
        if clip is not None and not self.target < clip < math.inf:
            raise OptionError(f"`clip={clip:g}`: it must be above `{self.kind}={self.target:g}`, and finite")
        if price is not None and self.review_cost is None:
            raise OptionError("`error_cost` requires `review_cost`")
        if price is not None and not 0 < price < math.inf:
            raise OptionError(f"`error_cost={price:g}`: it must be above 0")
        if price is not None and price <= self.target:
            raise OptionError(
                f"`error_cost={price:g}` is not above `review_cost={self.target:g}`: then accepting every row costs "
                "least, and there is nothing to choose"
            )
        if coverage is not None and not self.limits_errors:
            raise OptionError(f"`coverage` cannot be combined with `{self.kind}`; it requires `accuracy` or `risk`")
        if coverage is not None and not 0 < coverage <= 1:
            raise OptionError(f"`coverage={coverage:g}`: it must be above 0 and at most 1{as_share(coverage)}")

    @property
    def parameter(self) -> str:
        """The name of its target among the parameters of a user."""
        return "review_cost" if self.kind == "cost" else self.kind.replace("mean-", "mean_")

    @property
    def asked(self) -> str:
        """The target as a user gave it, for messages."""
        given = {} if self.promises else {self.parameter: self.target}
        more = {"coverage": self.coverage, "review_cost": self.review_cost, "error_cost": self.error_cost}
        given |= {name: value for name, value in more.items() if value is not None}
        return " ".join([*(goal.asked for goal in self.promises), *(f"`{k}={v:g}`" for k, v in given.items())])

    @property
    def review_cost(self) -> float | None:
        """What a rejected row costs, where the least total cost is wanted."""
        return (self.target or None) if self.kind in ("cost", PROMISES) else None

    @property
    def needs_labels(self) -> bool:
        """Whether the rule looks at errors."""
        unlabelled = all(goal.is_lower for goal in self.promises)
        return self.limits_errors or self.review_cost is not None or self.kind == "mean-cost" or not unlabelled

    @property
    def can_be_certified(self) -> bool:
        """Whether it can have a confidence."""
        return self.kind in (*ERROR_RULES, *MEAN_RULES, "coverage", PROMISES)

    @property
    def certified_by(self) -> str | None:
        """How it is certified; None without a confidence."""
        if self.confidence is None:
            return None
        if self.kind == "coverage":
            return COVERAGE_METHOD
        joint = self.coverage is not None or self.kind == PROMISES
        return MEAN_METHOD if self.kind in MEAN_RULES else JOINT_METHOD if joint else RISK_METHOD

    @property
    def limits_errors(self) -> bool:
        """Whether the rule limits the error rate of the accepted rows, in either word."""
        return self.kind in ERROR_RULES

    @property
    def risk(self) -> float:
        """The largest error rate that a rule which limits errors allows."""
        return risk_of(self.kind, self.target)


Target = float | Mapping[str, float] | None
"""A target, or one for each class that is named; the name "" stands for all others."""


def one_rule(targets: Mapping[str, Target], **more: Any) -> Rule:
    """The one rule that has a target, by the names of parameters; a coverage can join an accuracy or a risk.

    Targets of classes, missed cases, the overall error and a review budget can be combined with each other, with a
    coverage, and with an accuracy or a risk; a review cost can join them.

    >>> one_rule({"accuracy": None, "risk": 0.02, "coverage": 0.8}).asked
    '`risk=0.02` `coverage=0.8`'
    >>> one_rule({"accuracy": {"": 0.99, "fraud": 0.9}, "max_missed": {"fraud": 0.1}}).asked
    '`accuracy=0.99` `accuracy=fraud=0.9` `max_missed=fraud=0.1`'
    """
    given = {name: target for name, target in targets.items() if target is not None and target != {}}
    fields = {"per": more.pop("per", None), "reviewer_accuracy": more.pop("reviewer_accuracy", None)}
    for name, other in {"per": "reviews", "reviewer_accuracy": "overall_risk"}.items():
        if fields[name] is not None and other not in given:
            raise OptionError(f"`{name}` requires `{other}`")
    by_class = {name: each if isinstance(each, Mapping) else {"": each} for name, each in given.items()}
    priced = "review_cost" in given and len(given) > 1
    if priced or any(name in _SEVERAL or set(each) != {""} for name, each in by_class.items()):
        return _promises(by_class, fields, more)
    plain = {name: each[""] for name, each in by_class.items()}
    both = "coverage" in plain and (plain.keys() - {"coverage"}) in ({"accuracy"}, {"risk"})
    coverage = plain.pop("coverage") if both else None
    if len(plain) != 1:
        *names, last = (f"`{name}`" for name in targets)
        found = " and ".join(f"`{name}`" for name in plain) or "none"
        raise OptionError(
            f"give exactly one rule: {', '.join(names)} or {last} (found: {found}); only `coverage` can be combined "
            "with `accuracy` or `risk`, and with them `max_missed`, `overall_risk`, `reviews` and `review_cost`"
        )
    ((name, target),) = plain.items()
    return Rule(name.removeprefix("review_").replace("_", "-"), target, coverage=coverage, **more)


_SEVERAL = {"max_missed": "missed", "overall_risk": "overall-risk", "reviews": "reviews"}
"""Parameters that can be combined with others, and what they promise."""


def _promises(given: Mapping[str, Mapping[str, float]], fields: Mapping[str, Any], more: Mapping[str, Any]) -> Rule:
    """Several promises as one rule."""
    others = sorted(given.keys() - _SEVERAL.keys() - {*ERROR_RULES, "coverage", "review_cost"})
    if others:
        beside = ", ".join(f"`{name}`" for name in given if name != others[0])
        raise OptionError(f"`{others[0]}` cannot be combined with {beside}")
    goals, given = list[Goal](), dict(given)
    cost = Rule("cost", given.pop("review_cost")[""]).target if "review_cost" in given else 0.0
    for name, limits in given.items():
        what: Any = _SEVERAL.get(name, name)
        own = {"reviews": "per", "overall-risk": "reviewer_accuracy"}.get(what)
        for group, limit in limits.items():
            if group and what in ("overall-risk", "coverage", "reviews"):
                raise OptionError(f"`{name}` is for all rows; leave out the name '{group}'")
            if not group and what == "missed":
                raise OptionError("`max_missed` is for a class: write its name too, as in `max_missed=fraud=0.05`")
            goals.append(Goal(what, limit, group or None, **({own: fields[own]} if own else {})))
    twice = [goal.group for goal in goals if goal.limits_errors]
    if len(set(twice)) < len(twice):
        raise OptionError("`accuracy` and `risk` are the same promise in other words; give one of them for each class")
    return Rule(PROMISES, cost, promises=tuple(goals), **more)


def risk_of(kind: str, target: float) -> float:
    """The error rate that an accuracy or a risk allows, as the decimal that a user would write.

    >>> risk_of("accuracy", 0.98), risk_of("risk", 0.02)
    (0.02, 0.02)
    """
    assert kind in ERROR_RULES
    return float(1 - exact_decimal(target)) if kind == "accuracy" else target


def as_share(number: float) -> str:
    """A hint for a percentage that was given where a share is meant; empty for other numbers.

    >>> as_share(98.0), as_share(-1.0)
    ('; for 98 % write 0.98', '')
    """
    return f"; for {number:g} % write {float(exact_decimal(number) / 100):g}" if 1 < number <= 100 else ""


def choose_cutoff(rule: Rule, ratio: DensityRatio, curve: Curve) -> float | None:
    """The cutoff that a rule picks on these rows; None rejects nothing. Raises Infeasible.

    For the rule "cost" see `least_cost_cutoff`, which needs what the rows cost.
    """
    if rule.kind == "tau":
        return ratio.cutoff(rule.target)
    if rule.kind == "max-loss":
        return capped(rule.target, ratio)
    asked, (reachable, _) = rule.asked, curve.below(ratio.flat_start)
    if rule.kind == "coverage":
        wanted = math.ceil(exact_decimal(rule.target) * curve.rows)
        if wanted > reachable:
            raise Infeasible(
                f"{asked} cannot be reached: the ratio is 0 on {curve.rows - reachable} of {curve.rows} rows, so "
                f"coverage ends at {reachable / curve.rows:.6g}; lower alpha or raise lambda in 'drrej fit'"
            )
        return capped(curve.following(curve.reaching(wanted)[0]), ratio)
    accepted, _ = curve.largest_at_risk(exact_decimal(rule.risk), reachable)
    if not accepted:
        if not reachable:
            raise Infeasible(f"{asked} cannot be reached: the ratio is 0 on every row")
        lowest = int(np.argmin((curve.errors / curve.accepted)[curve.accepted <= reachable]))
        raise Infeasible(
            f"{asked} cannot be reached: the lowest error rate among accepted rows is "
            f"{curve.errors[lowest] / curve.accepted[lowest]:.6g}, at coverage "
            f"{curve.accepted[lowest] / curve.rows:.6g}"
        )
    if rule.coverage is not None and accepted < exact_decimal(rule.coverage) * curve.rows:
        raise Infeasible(
            f"{asked} cannot be reached: the error rate allows a coverage of {accepted / curve.rows:.6g} at most"
        )
    return capped(curve.following(accepted), ratio)


def mean_cutoff(rule: Rule, curve: MeanCurve, last: float | None) -> float | None:
    """The cutoff of the largest coverage at which the mean over the accepted rows is at most the target.

    `last` is the largest cutoff that is allowed, None if any is.

    >>> curve = MeanCurve.of(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.1, 0.5, 0.2, 0.9]))
    >>> mean_cutoff(Rule("mae", 0.3), curve, None)
    4.0
    """
    inside = curve.losses.size if last is None else int(np.searchsorted(curve.losses, last))
    if not inside:
        raise Infeasible(f"{rule.asked} cannot be reached: the ratio is 0 on every row")
    means = (curve.sums / curve.accepted)[:inside]
    held = np.flatnonzero(means <= rule.target)
    if not held.size:
        best = int(np.argmin(means))
        raise Infeasible(
            f"{rule.asked} cannot be reached: the lowest mean of accepted rows is {means[best]:.6g}, at coverage "
            f"{curve.accepted[best] / curve.rows:.6g}"
        )
    following = int(held[-1]) + 1
    return last if following == inside else float(curve.losses[following])


def regression_errors(residuals: Floats, kind: str, clip: float | None = None) -> Floats:
    """What the rules "mse" and "mae" take the mean of: squared or absolute residuals, at most `clip`."""
    with np.errstate(over="ignore"):
        errors = np.square(residuals) if kind == "mse" else np.abs(residuals)
    return errors if clip is None else np.minimum(errors, clip)


def least_cost_cutoff(costs: MeanCurve, review: float, ratio: DensityRatio) -> float | None:
    """The cutoff of the least total cost on rows of which `costs` has what each costs; None rejects nothing."""
    reachable = int(np.searchsorted(costs.losses, np.inf if ratio.flat_start is None else ratio.flat_start))
    best = costs.cheapest(review, reachable)
    return capped(float(costs.losses[best + 1]) if best + 1 < costs.losses.size else None, ratio)


def capped(cutoff: float | None, ratio: DensityRatio) -> float | None:
    """Never above the flat part, which is rejected at every tau >= 0."""
    flat = ratio.flat_start
    if flat is None or (cutoff is not None and cutoff <= flat):
        return cutoff
    return flat


Verdict = Literal["met", "inconclusive", "missed"]


class Judgement(Struct, frozen=True):
    """A share with its interval, the chance of one at least as bad, and what it says about a target."""

    value: float | None
    lower: float | None
    upper: float | None
    p_value: float | None
    verdict: Verdict


def judge_share(
    hits: int, rows: int, wanted: float, or_more: bool = True, claims: int = 1, independent: float = 1.0
) -> Judgement:
    """What `hits` of `rows` rows say about a share that is to be `wanted` or more, or `wanted` at most.

    It is one of so many claims that are judged together; only a share of the rows may be `independent`.

    >>> judge_share(961, 1000, 0.98).verdict, judge_share(19, 1000, 0.02, or_more=False).verdict
    ('missed', 'inconclusive')
    >>> round(judge_share(961, 1000, 0.98).p_value, 6)
    9e-05
    """
    found = proportion(hits, rows, independent, claims)
    if not rows:
        return Judgement(**found, p_value=None, verdict="inconclusive")
    p_value = float((at_most if or_more else at_least)(hits * independent, rows * independent, wanted))
    return Judgement(**found, p_value=p_value, verdict=verdict_on(found["lower"], found["upper"], wanted, or_more))


def verdict_on(lower: float, upper: float, wanted: float, or_more: bool = True) -> Verdict:
    """What an interval says about a figure that is to be `wanted` or more, or `wanted` at most."""
    right, wrong = (lower >= wanted, upper < wanted) if or_more else (upper <= wanted, lower > wanted)
    return "met" if right else "missed" if wrong else "inconclusive"


def rows_to_settle(found: Judgement, wanted: float, rows: int) -> int | None:
    """About how many rows more would give a verdict, if the share stayed what it is; None where no number would.

    The distance to the end of the interval shrinks with the square root of the rows.

    >>> rows_to_settle(judge_share(985, 1000, 0.98), 0.98, 1000)
    2702
    """
    if found.verdict != "inconclusive" or found.value is None or found.lower is None or found.upper is None:
        return None
    gap, end = abs(found.value - wanted), found.lower if found.value >= wanted else found.upper
    if not (gap and found.lower < wanted <= found.upper):  # a tie is not settled by more rows
        return None
    return max(1, math.ceil(rows * ((found.value - end) / gap) ** 2) - rows)


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """Missed if one is missed, met if each is met.

    >>> together(["met", "inconclusive"]), together(["met", "missed"]), together([])
    ('inconclusive', 'missed', 'inconclusive')
    """
    found = set(verdicts)
    return "missed" if "missed" in found else "met" if found == {"met"} else "inconclusive"
