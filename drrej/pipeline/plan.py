"""How many fresh labelled rows a promise takes, and what labelled rows at hand can promise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from drrej._version import __version__
from drrej.core.certify import any_cutoff_bound, certify_risk, risk_candidates
from drrej.core.curves import Curve
from drrej.core.intervals import exact_decimal, upper_bound
from drrej.core.planning import Question, rows_for_both, rows_for_cutoff
from drrej.core.promises import shares_of_delta
from drrej.core.thresholds import Rule
from drrej.documents import summaries as document
from drrej.documents.rejector import Rejector
from drrej.documents.summaries import AtHand, CertifiedNow, Needed, Plan, PromiseNeeds
from drrej.errors import Infeasible, OptionError
from drrej.pipeline.collect import collect_scored, curve_of
from drrej.pipeline.score import Scored, Scorer, check_fresh, seen_rows
from drrej.pipeline.source import Source

CONFIDENCE, COVERAGE, POWER = 0.95, 0.8, 0.8
PARTS = (0.0, 0.25, 0.5, 0.75)
"""Expected error rates that are looked at when none is given, as parts of the risk."""

_COVERAGES = tuple(step / 20 for step in range(1, 21))


def plan(
    risk: float | None,
    confidence: float = CONFIDENCE,
    coverage: float = COVERAGE,
    power: float = POWER,
    errors: Sequence[float] | None = None,
) -> Plan:
    """How many fresh labelled rows it takes to certify a risk, for each error rate that is expected.

    `errors` are error rates among the accepted rows, None for some below the risk.

    >>> found = plan(risk=0.05, confidence=0.9, coverage=0.8, errors=[0.01])
    >>> found.needed[0].fixed_cutoff, found.needed[0].risk_and_coverage
    (132, 126)
    >>> [row.error for row in plan(risk=0.02).needed]
    [0.0, 0.005, 0.01, 0.015]
    """
    delta = _delta(confidence)
    if risk is None:
        raise OptionError("`risk=R` or `accuracy=A` is needed: what is to be promised?")
    question = Question(risk, delta, 0.0, coverage, power)
    needed = _needed(question, errors, both=True)
    if all(row.fixed_cutoff is None for row in needed):
        rows_for_cutoff(replace(question, error=min(row.error for row in needed)))  # raises, and says why
    asked = _asked(question, confidence)
    return Plan(drrej_version=__version__, confidence=confidence, question=asked, needed=needed)


def plan_promises(
    rule: Rule, shares: Mapping[str, float], confidence: float = CONFIDENCE, power: float = POWER
) -> Plan:
    """How many fresh labelled rows several promises take, each as if it were tested in a single look.

    `shares` are those of the rows of each class that is named. Expected error rates are parts of the limit.

    >>> from drrej.core.thresholds import one_rule
    >>> found = plan_promises(one_rule({"max_missed": {"fraud": 0.05}}), {"fraud": 0.02})
    >>> found.promises[0].least, [row.fixed_cutoff for row in found.promises[0].needed]
    (59, [3264, 8236, 21151, 90711])
    """
    limiting = [goal for goal in rule.promises if not goal.is_lower]
    levels = shares_of_delta(rule.promises, _delta(confidence))
    unknown = [goal.group for goal in limiting if goal.group is not None and goal.group not in shares]
    if unknown:
        raise OptionError(f"how many rows are of class '{unknown[0]}'? Pass `class_share={unknown[0]}=P`")
    found = []
    for goal in limiting:
        share = 1.0 if goal.group is None else shares[goal.group]
        level = levels["upper" if goal.is_upper else "precise"]
        assert level is not None
        level /= sum(goal.limits_errors for goal in limiting) if goal.limits_errors else 1
        question = Question(goal.risk, level, 0.0, share, power)
        least = math.ceil(math.log(level) / math.log1p(-goal.risk))
        found.append(PromiseNeeds(promise=goal.asked, share=share, least=least, needed=_needed(question)))
    return Plan(drrej_version=__version__, confidence=confidence, promises=tuple(found))


def _delta(confidence: float) -> float:
    """The chance that a promise may be broken with."""
    if not 0 < confidence < 1:
        raise OptionError(f"`confidence={confidence:g}`: it must be above 0 and below 1, e.g. 0.95")
    return float(1 - exact_decimal(confidence))


def _asked(question: Question, confidence: float) -> document.Question:
    return document.Question(
        risk=question.risk,
        confidence=confidence,
        coverage=question.coverage,
        power=question.power,
        least_accepted=math.ceil(math.log(question.delta) / math.log1p(-question.risk)),
    )


def _needed(question: Question, errors: Sequence[float] | None = None, both: bool = False) -> tuple[Needed, ...]:
    """The rows that a promise takes for each expected error rate; with `both`, also those for its coverage as well."""
    if errors is None:
        errors = [float(exact_decimal(question.risk) * exact_decimal(part)) for part in PARTS]
    needed = []
    for error in errors:
        expected = replace(question, error=error)
        fixed = _rows(rows_for_cutoff, expected)
        joint = _rows(rows_for_both, expected) if both and fixed is not None else None
        needed.append(Needed(error=error, fixed_cutoff=fixed, risk_and_coverage=joint))
    return tuple(needed)


def _rows(answer: Callable[[Question], int], question: Question) -> int | None:
    try:
        return answer(question)
    except Infeasible:
        return None


def plan_from(
    source: Source,
    rejector: Rejector,
    risk: float | None = None,
    confidence: float = CONFIDENCE,
    coverage: float | None = None,
    power: float = POWER,
) -> tuple[Plan, str | None]:
    """What labelled rows at hand can promise at best, at some coverages or at one, and what to be cautious about.

    With a risk, also which coverage they certify for it, and how many fresh rows would certify it at each.
    """
    delta = _delta(confidence)
    if not rejector.has_classes:
        raise OptionError("a plan counts wrong predictions, but this rejector is for rows without logits")
    if coverage is not None and not 0 < coverage <= 1:
        raise OptionError(f"`coverage={coverage:g}`: it must be above 0 and at most 1")
    question = None
    if risk is not None:
        question = Question(risk, delta, 0.0, COVERAGE if coverage is None else coverage, power)
    seen = seen_rows(rejector, for_guarantee=True)
    dump = source.open(rejector, labelled=True)
    scorer = Scorer(rejector, dump, decide=False)

    def of_rows(scored: Scored) -> dict[str, Any]:
        return {"loss": scored.loss, "wrong": scored.wrong, **scored.look_up(seen)}

    columns = collect_scored(source, dump, scorer, of_rows, "planning", labelled=True)
    curve = curve_of(columns["loss"], columns["wrong"])
    coverages = _COVERAGES if coverage is None else [coverage]
    certified, why_not = None, None
    if question is not None:
        ratio = rejector.need_ratio()
        known = ratio.error_blocks, ratio.loss_quantiles
        candidates = risk_candidates(curve, ratio.density, question.risk, delta, *known)
        try:
            asked = f"`risk={question.risk:g}` `confidence={confidence:g}`"
            best = certify_risk(candidates, curve.rows, question.risk, asked)
            certified = CertifiedNow(coverage=best.accepted / curve.rows, accepted=best.accepted, errors=best.errors)
        except Infeasible as verdict:
            why_not = str(verdict)
    reused, _ = check_fresh(seen, columns, allow_reuse=True)
    found = Plan(
        drrej_version=__version__,
        confidence=confidence,
        question=None if question is None else _asked(question, confidence),
        rows=curve.rows,
        errors=curve.total_errors,
        at_hand=tuple(_at_hand(curve, each, delta, question) for each in coverages),
        certified=certified,
        why_not=why_not,
    )
    caution = "'calibrate' or 'fit' has seen some of these rows, so fresh ones will look worse" if reused else None
    return found, caution


def _at_hand(curve: Curve, coverage: float, delta: float, question: Question | None) -> AtHand:
    """What labelled rows can promise at the smallest coverage of at least so much, with ties kept together."""
    accepted, errors = curve.reaching(max(1, math.ceil(exact_decimal(coverage) * curve.rows)))
    reached, risk = accepted / curve.rows, errors / accepted
    needed = None
    if question is not None and risk < question.risk:
        needed = _rows(rows_for_both, replace(question, error=risk, coverage=reached))
    return AtHand(
        coverage=reached,
        accepted=accepted,
        errors=errors,
        risk=risk,
        asked=upper_bound(errors, accepted, delta),
        any_cutoff=any_cutoff_bound(accepted, errors, curve.rows, delta),
        needed=needed,
    )
