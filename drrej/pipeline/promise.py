"""A threshold with a guarantee where the rows allow one, and without one where they do not, with the reason."""

from __future__ import annotations

import math
from dataclasses import replace

from drrej.core.guarantees import needed_rows, split_delta
from drrej.core.intervals import exact_decimal
from drrej.core.thresholds import Rule
from drrej.documents.rejector import Rejector, Threshold
from drrej.errors import Infeasible
from drrej.pipeline.plan import CONFIDENCE, PlanOptions, plan_from
from drrej.pipeline.source import Source
from drrej.pipeline.threshold import Chosen, ThresholdOptions, choose_threshold
from drrej.records import dataclass


@dataclass(frozen=True)
class Promised:
    """The threshold, and why it has no guarantee (None: it has one)."""

    chosen: Chosen
    why_not: str | None = None


def certify_if_possible(
    source: Source, rejector: Rejector, rule: Rule, options: ThresholdOptions | None = None, table: bool = False
) -> Promised:
    """Choose the threshold with the usual confidence if that can be done, else as if none had been asked for.

    Rules that no confidence goes with are taken as they are. How many rows it would take is said as `plan` says it.
    """
    options = options or ThresholdOptions()
    if rule.confidence is not None or not rule.can_be_certified:
        return Promised(choose_threshold(source, rejector, rule, options, table))
    certain = replace(rule, confidence=CONFIDENCE)
    try:
        chosen = choose_threshold(source, rejector, certain, options, table)
    except Infeasible as verdict:
        found = choose_threshold(source, rejector, rule, replace(options, allow_reuse=False), table)
        advice = _advice(source, rejector, rule, options)
        return Promised(found, f"{verdict}; it was chosen without a guarantee. {advice}")
    short = _short(chosen.rejector.need_threshold(), certain)
    if short is None:
        return Promised(chosen)
    return Promised(choose_threshold(source, rejector, rule, replace(options, allow_reuse=False), table), short)


def _advice(source: Source, rejector: Rejector, rule: Rule, options: ThresholdOptions) -> str:
    """How many rows would be enough."""
    if not rule.limits_errors or options.by is not None:
        return "More rows to choose on may be enough"
    found, _ = plan_from(source, rejector, PlanOptions(rule.risk, CONFIDENCE))
    assert found.rows is not None
    known = [(row.needed, row.coverage) for row in found.at_hand or () if row.needed is not None]
    if not known:
        return "The observed error rate is nowhere low enough for more rows to be of use"
    needed, coverage = min(((rows, at) for rows, at in known if rows > found.rows), default=(2 * found.rows, None))
    where = "" if coverage is None else f" at coverage {coverage:.2g} (with a chance of 80 %, by these rows)"
    return f"About {needed} rows to choose on would certify it{where}; there are {found.rows}"


def _short(threshold: Threshold, rule: Rule) -> str | None:
    """Of a coverage: whether rows were so few that accepting everything was the only sure way."""
    assert rule.confidence is not None
    if rule.kind != "coverage" or rule.target == 1:
        return None
    parts = threshold.groups or (threshold,)
    delta = split_delta(float(1 - exact_decimal(rule.confidence)), len(parts))
    if all(needed_rows(rule.target, part.rows, delta) <= part.rows for part in parts):
        return None
    least = math.ceil(math.log(delta) / math.log(rule.target))
    fewest = min(part.rows for part in parts)
    return (
        f"`coverage={rule.target:g}` `confidence={rule.confidence:g}` takes at least {least} rows to choose on, and "
        f"there are {fewest}; it was chosen without a guarantee"
    )
