"""Whether a threshold goes with its rule, its counts and its ratio: tau and cutoff, target and bound."""

from __future__ import annotations

import math
from collections.abc import Iterator

from drrej.core.certify import COVERAGE_SHARE
from drrej.core.intervals import exact_decimal
from drrej.core.recompute import is_below_level, is_binomial_level, is_cutoff_of, is_tau_of, supports_rate
from drrej.core.thresholds import COVERAGE_METHOD, JOINT_METHOD, MEAN_METHOD, REJECT_ALL, RISK_METHOD, Rule, capped
from drrej.documents.consistency import fingerprint_findings
from drrej.documents.findings import NEAR, RANGE, Finding, is_near
from drrej.documents.sections import Bound, GroupThreshold, Ratio, RuleRecord, Threshold
from drrej.errors import OptionError
from drrej.strict_json import shown


def threshold_findings(found: Threshold, ratio: Ratio) -> Iterator[Finding]:
    """The rule, and the decision for all rows or for each group."""
    rule, groups = found.rule, found.groups
    yield from _rule(rule)
    yield "threshold.rule.kind", rule.kind != "mean-cost" or ratio.loss.is_cost, "contradicts 'ratio.loss'"
    prices = rule.kind != "cost" or (rule.error_cost is None) == ratio.loss.is_cost
    yield "threshold.rule.error_cost", prices, "contradicts 'ratio.loss', which has the costs of errors or has not"
    yield "threshold.groups", (found.by is None) == (groups is None), "goes with 'threshold.by'"
    yield from _counts("threshold", found)
    yield "threshold.fingerprint", not found.fingerprint or rule.uses_rows, f"contradicts the rule '{rule.kind}'"
    yield from fingerprint_findings("threshold.fingerprint", found.fingerprint, found.rows)
    if groups is None:
        yield from _decision("threshold", found, rule, ratio, 1)
        return
    names = [group.group for group in groups]
    yield "threshold.groups", bool(names) and len(set(names)) == len(names), "names no group or one twice"
    yield "threshold.by", rule.limits_errors or rule.kind == "coverage", f"contradicts the rule '{rule.kind}'"
    for key in ("tau", "cutoff", "bound"):
        yield f"threshold.{key}", getattr(found, key) is None, "is there, but each group has its own"
    for number, group in enumerate(groups):
        yield from _counts(f"threshold.groups[{number}]", group)
        yield from _decision(f"threshold.groups[{number}]", group, rule, ratio, len(groups))
    yield "threshold.rows", found.rows == sum(group.rows for group in groups), "is not the sum of the groups"
    yield (
        "threshold.accepted",
        found.accepted == sum(group.accepted for group in groups),
        "is not the sum of the groups",
    )
    right = [_right(group) for group in groups if group.accuracy is not None]
    accuracy = sum(right) / found.accepted if right else None
    yield "threshold.accuracy", found.accuracy == accuracy, "is not that of the groups together"


def _rule(rule: RuleRecord) -> Iterator[Finding]:
    certified = rule.confidence is not None
    given = rule.method if rule.limits_errors or rule.limits_a_mean else None
    try:
        given = None if rule.coverage is not None else given
        Rule(rule.kind, rule.target, rule.confidence, given, rule.error_cost, rule.coverage, rule.clip)
    except OptionError as error:
        yield "threshold.rule", False, f"{RANGE}: {shown(str(error))}"
    methods: tuple[str | None, ...] = (None,)
    if certified:
        methods = (RISK_METHOD,) if rule.limits_errors else (MEAN_METHOD,) if rule.limits_a_mean else (COVERAGE_METHOD,)
        methods = methods if rule.coverage is None else (JOINT_METHOD,)
    yield "threshold.rule.method", rule.method in methods, f"{RANGE} for such a rule"
    yield "threshold.rule.reused", (rule.reused is not None) == certified, "goes with 'threshold.rule.confidence'"


def _counts(key: str, found: Threshold | GroupThreshold) -> Iterator[Finding]:
    rows, accepted = found.rows, found.accepted
    yield f"{key}.rows", rows >= 1, RANGE
    yield f"{key}.accepted", 0 <= accepted <= rows, f"{RANGE}: from 0 to '{key}.rows'"
    yield f"{key}.coverage", found.coverage == accepted / rows, f"is not '{key}.accepted' / '{key}.rows'"
    accuracy = found.accuracy
    if accuracy is not None:
        whole = accepted > 0 and 0 <= accuracy <= 1 and _right(found) / accepted == accuracy
        yield f"{key}.accuracy", whole, f"is no share of '{key}.accepted' rows"


def _right(found: Threshold | GroupThreshold) -> int:
    return round((found.accuracy or 0.0) * found.accepted)


def _decision(
    key: str, found: Threshold | GroupThreshold, rule: RuleRecord, ratio: Ratio, groups: int
) -> Iterator[Finding]:
    tau, cutoff, accepted, rows, density = found.tau, found.cutoff, found.accepted, found.rows, ratio.density
    counted = rule.needs_labels and accepted > 0
    yield f"{key}.accuracy", (found.accuracy is not None) == counted, f"contradicts the rule '{rule.kind}'"
    yield f"{key}.accepted", cutoff is not None or accepted == rows, f"contradicts '{key}.cutoff': nothing is rejected"
    none = cutoff is None or cutoff > 0 or accepted == 0
    yield f"{key}.accepted", none, f"contradicts '{key}.cutoff': every row is rejected"
    if isinstance(found, GroupThreshold) and cutoff == REJECT_ALL and rule.limits_errors:
        yield f"{key}.tau", tau is None, f"contradicts '{key}.cutoff': every row is rejected"
        yield f"{key}.bound", found.bound is None, f"contradicts '{key}.cutoff': nothing was certified"
        return
    if rule.kind == "tau":
        yield f"{key}.tau", tau == rule.target, "is not 'threshold.rule.target'"
        right = is_cutoff_of(density, cutoff, rule.target)
        yield f"{key}.cutoff", right, f"does not belong to '{key}.tau' with this ratio"
    else:
        limit = capped(rule.target if rule.kind == "max-loss" else None, density)
        lowest = limit if rule.kind == "max-loss" else 0.0
        wide = [math.inf if value is None else value for value in (lowest, cutoff, limit)]
        inside = wide[0] * (1 - NEAR) <= wide[1] <= wide[2] * (1 + NEAR)
        yield f"{key}.cutoff", inside, f"{RANGE} for such a rule and ratio"
        yield f"{key}.tau", is_tau_of(density, tau, cutoff), f"does not belong to '{key}.cutoff' with this ratio"
    yield f"{key}.mean", (found.mean is not None) == (rule.limits_a_mean and accepted > 0), "goes with the rule"
    yield from _target(key, found, rule)
    yield f"{key}.bound", (found.bound is not None) == (rule.confidence is not None), "goes with a confidence"
    if found.bound is not None and rule.confidence is not None:
        delta = float(1 - exact_decimal(rule.confidence))
        # groups share delta evenly; older versions used that their rows are independent, which gives a little more
        levels = {delta / groups, -math.expm1(math.log1p(-delta) / groups)}
        yield from _bound(f"{key}.bound", found.bound, found, rule, levels)


def _target(key: str, found: Threshold | GroupThreshold, rule: RuleRecord) -> Iterator[Finding]:
    """What the rule asks of these rows."""
    for name in ("target",) if rule.kind == "coverage" else ("coverage",) if rule.coverage is not None else ():
        enough = found.accepted >= exact_decimal(getattr(rule, name)) * found.rows
        yield f"{key}.accepted", enough, f"is below 'threshold.rule.{name}'"
    if found.mean is not None:
        yield f"{key}.mean", 0 <= found.mean <= rule.target * (1 + NEAR), "is above 'threshold.rule.target'"
    if rule.limits_errors and rule.confidence is None:
        errors = found.accepted - _right(found)
        yield (
            f"{key}.accuracy",
            errors <= exact_decimal(rule.risk) * found.accepted,
            "is below what 'threshold.rule.target' asks for",
        )


def _bound(
    key: str, bound: Bound, found: Threshold | GroupThreshold, rule: RuleRecord, levels: set[float]
) -> Iterator[Finding]:
    """The bound is that of its counts at its level, and meets the target."""
    rows, accepted, errors, value, delta = bound.rows, bound.accepted, bound.errors, bound.value, bound.delta
    yield f"{key}.rows", rows == found.rows, "is not that of the threshold"
    yield f"{key}.accepted", accepted == found.accepted, "is not that of the threshold"
    whole = any(is_near(delta, level) for level in levels)
    yield f"{key}.delta", whole or 0 < delta <= max(levels), f"{RANGE} for such a confidence"
    wrong = "is not the bound of its counts"
    if rule.limits_errors:
        yield f"{key}.errors", errors is not None and errors == accepted - _right(found), "contradicts the accuracy"
        yield f"{key}.value", value <= rule.risk * (1 + NEAR), "is above 'threshold.rule.target'"
        # the risk that was asked for at the whole delta; older versions tell the bound of the last look at its level
        promise = whole and value == rule.risk and is_below_level(delta, errors or 0, accepted, value)
        yield f"{key}.value", promise or is_binomial_level(delta, errors or 0, accepted, value), wrong
        if rule.coverage is not None:
            level = COVERAGE_SHARE * delta
            held = found.cutoff is None or supports_rate(level, accepted, rows, rule.coverage)
            yield f"{key}.accepted", held, "is too few for 'threshold.rule.coverage'"
        return
    yield f"{key}.errors", errors is None, f"contradicts the rule '{rule.kind}'"
    yield f"{key}.delta", whole, "is not that of 'threshold.rule.confidence'"
    if rule.limits_a_mean:
        yield f"{key}.value", value == rule.target, "is not 'threshold.rule.target'"
        return
    yield f"{key}.value", rule.target * (1 - NEAR) <= value <= 1, "is below 'threshold.rule.target'"
    # more rows may be accepted than are needed, where losses tie
    sure = value == 1.0 and found.cutoff is None
    yield f"{key}.value", sure or supports_rate(delta, accepted, rows, value), wrong
