"""The target against the result, in sentences: what was wanted, what came out, and what that says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

from drrej.documents.costs import TotalCost
from drrej.documents.document import GateRow, Judged
from drrej.documents.gates import TARGET
from drrej.documents.targets import Promise, Target
from drrej.documents.words import MEANS
from drrej.report.numbers import against, counted, figure, money

_MOST = 5
"""Promises that are told one by one when there are more; those that were missed come first."""


class Signs(NamedTuple):
    """How limits and intervals are written."""

    at_least: str
    at_most: str
    to: str


ASCII = Signs(">=", "<=", " - ")
TYPESET = Signs("\N{GREATER-THAN OR EQUAL TO}", "\N{LESS-THAN OR EQUAL TO}", "\N{EN DASH}")


def target_of(report: Judged) -> Target | None:
    """The target of a report that has one."""
    found: Target | None = getattr(report, "target", None)
    return found


def target_lines(report: Judged, signs: Signs = ASCII) -> list[str]:
    """A sentence for each promise of the target; of many groups a summary and those that were missed."""
    target = target_of(report)
    if target is None:
        return []
    sentences = [sentence(report, target, promise, signs) for promise in target.promises]
    if len(sentences) <= _MOST:
        return sentences
    numbers = Counter(promise.verdict for promise in target.promises)
    summary = ", ".join(f"{verdict} in {numbers[verdict]}" for verdict in ("met", "not shown", "missed"))
    first = target.promises[0]
    missed = [line for line, row in zip(sentences, target.promises, strict=True) if row.verdict == "missed"]
    start = f"{_start(target, first, signs)} in each of {counted(len(sentences), 'group')}"
    return [f"{start}: {summary}", *missed[:_MOST]]


def sentence(report: Judged, target: Target, promise: Promise, signs: Signs = ASCII) -> str:
    """What was wanted, what came out, and what that says."""
    whose = "" if promise.group is None else f" where {report['by']} is '{promise.group}'"
    return f"{_start(target, promise, signs)}{whose}: {_result(report, target, promise, signs)}"


def _start(target: Target, promise: Promise, signs: Signs) -> str:
    if promise.what == "cost":
        return "wanted the least cost"
    sign = signs.at_most if promise.what in ("risk", *MEANS) else signs.at_least
    limit = f"{promise.what} {sign} {exact_percent(promise.wanted)}"
    if promise.what in MEANS:
        clipped = "" if promise.clip is None else f" (of at most {promise.clip:g} a row)"
        limit = f"{MEANS[promise.what]}{clipped} {sign} {promise.wanted:g}"
    if target.confidence is None:
        return f"wanted {limit}"
    return f"certified {limit} with confidence {exact_percent(target.confidence)}"


def _result(report: Judged, target: Target, promise: Promise, signs: Signs) -> str:
    cost = getattr(report, "total_cost", None)
    if promise.what == "cost" and isinstance(cost, TotalCost):
        return _cost_result(cost, promise, signs)
    if promise.what in MEANS:
        return _mean_result(target, promise, signs)
    if promise.value is None or promise.lower is None or promise.upper is None:
        labelled = promise.what == "coverage" or "accuracy" in report
        return f"not shown, {'no row is accepted' if labelled else 'it takes labels'}"
    value, lower, upper = percents_against([promise.value, promise.lower, promise.upper], promise.wanted)
    found = f"{value} % ({lower}{signs.to}{upper} %)"
    if promise.verdict == "missed" and target.confidence is not None:
        chance = promise.p_value or 0.0
        p_value = "below 1e-300" if chance < 1e-300 else f"= {chance:.1g}"
        return f"{found}: these rows contradict it (p {p_value}); are they like the rows it was chosen on?"
    if promise.verdict == "not shown":
        return f"{found}: not shown, the interval contains {exact_percent(promise.wanted)}"
    return f"{found}: {promise.verdict}"


def _mean_result(target: Target, promise: Promise, signs: Signs) -> str:
    if promise.value is None:
        return "not shown, no row is accepted or it takes labels"
    if promise.lower is None or promise.upper is None:
        return f"{figure(promise.value)}: not shown, there is no interval for errors of any size"
    found = f"{figure(promise.value)} ({figure(promise.lower)}{signs.to}{figure(promise.upper)})"
    if promise.verdict == "missed" and target.confidence is not None:
        return f"{found}: these rows contradict it; are they like the rows it was chosen on?"
    if promise.verdict == "not shown":
        return f"{found}: not shown, the interval contains {promise.wanted:g}"
    return f"{found}: {promise.verdict}"


def _cost_result(cost: TotalCost, promise: Promise, signs: Signs) -> str:
    found = f"{money(cost.value)} per 1000 rows ({money(cost.lower)}{signs.to}{money(cost.upper)})"
    others = f"{money(cost.accepting_all)} accepting all, {money(cost.rejecting_all)} reviewing all"
    return f"{found}, against {others}: {promise.verdict}"


def gate_value(report: Judged, gate: GateRow) -> str:
    """What a gate met, in few words: for the target its verdict, for others the value."""
    target = target_of(report)
    if gate.gate == TARGET and target is not None:
        return target.verdict
    return against(gate.value, gate.limit)


def gate_words(report: Judged, gate: GateRow, signs: Signs = ASCII) -> str:
    """What a gate met, in words: for the target its sentence, for others the value."""
    target = target_of(report)
    if gate.gate == TARGET and target is not None:
        return sentence(report, target, target.deciding, signs)
    return f"{gate.gate}: the value is {against(gate.value, gate.limit)}"


def exact_percent(share: float) -> str:
    """A share that a user wrote, as the percentage with the same digits.

    >>> exact_percent(0.98), exact_percent(0.07), exact_percent(0.9995), exact_percent(1.0)
    ('98 %', '7 %', '99.95 %', '100 %')
    """
    digits = f"{Decimal(repr(share)) * 100:f}"
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits} %"


def percents_against(shares: Sequence[float], limit: float) -> list[str]:
    """Shares in percent with one decimal, or as many more as tell each of them from a limit.

    >>> percents_against([0.961, 0.952], 0.98), percents_against([0.97996, 0.97], 0.98)
    (['96.1', '95.2'], ['97.996', '97.000'])
    """
    exact = Decimal(repr(limit)) * 100
    for digits in range(1, 15):
        texts = [f"{100 * share:.{digits}f}" for share in shares]
        sides = [(Decimal(text) > exact, Decimal(text) < exact) for text in texts]
        if sides == [(share > limit, share < limit) for share in shares]:
            break
    return texts
