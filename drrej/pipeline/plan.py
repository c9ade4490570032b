"""How many fresh labelled rows a promise takes, and what labelled rows at hand can promise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from drrej._version import __version__
from drrej.core.certify import any_cutoff_bound, certify_risk, risk_candidates
from drrej.core.curves import Curve
from drrej.core.intervals import exact_decimal, upper_bound
from drrej.core.planning import Question, cutoff_power, rows_for_both, rows_for_cutoff
from drrej.data.dump import Block
from drrej.documents import summaries as document
from drrej.documents.rejector import Rejector
from drrej.documents.summaries import AtHand, CertifiedNow, Needed, Plan, PowerPoint
from drrej.engines.protocol import Pass
from drrej.errors import Infeasible, OptionError
from drrej.pipeline.collect import collect, curve_of
from drrej.pipeline.freshness import BEFORE_THRESHOLD, SeenRows
from drrej.pipeline.score import Scorer
from drrej.pipeline.source import Source

CONFIDENCE, COVERAGE, POWER = 0.95, 0.8, 0.8
PARTS = (0.0, 0.25, 0.5, 0.75)
"""Expected error rates that are looked at when none is given, as parts of the risk."""

_COVERAGES = tuple(step / 20 for step in range(1, 21))
_DRAWN = 40
"""Points of a curve."""


class PlanOptions(Struct, frozen=True):
    """A promise and what is expected: `errors` are error rates among the accepted rows, None for some below the risk.

    >>> PlanOptions(risk=0.02).expected
    (0.0, 0.005, 0.01, 0.015)
    """

    risk: float | None = None
    confidence: float = CONFIDENCE
    coverage: float = COVERAGE
    power: float = POWER
    errors: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            raise OptionError(f"`confidence={self.confidence:g}`: it must be above 0 and below 1, e.g. 0.95")

    @property
    def delta(self) -> float:
        """The chance that a promise may be broken with."""
        return float(1 - exact_decimal(self.confidence))

    @property
    def expected(self) -> tuple[float, ...]:
        """The error rates."""
        assert self.risk is not None
        if self.errors is not None:
            return tuple(self.errors)
        return tuple(float(exact_decimal(self.risk) * exact_decimal(part)) for part in PARTS)

    def question(self, error: float, coverage: float | None = None) -> Question:
        """The question that `drrej.core.planning` answers; raises when a number is out of range."""
        assert self.risk is not None
        return Question(self.risk, self.delta, error, self.coverage if coverage is None else coverage, self.power)


def plan(options: PlanOptions) -> Plan:
    """How many fresh labelled rows it takes to certify a risk, for each error rate that is expected.

    >>> found = plan(PlanOptions(risk=0.05, confidence=0.9, coverage=0.8, errors=[0.01]))
    >>> found.needed[0].fixed_cutoff, found.needed[0].risk_and_coverage
    (132, 126)
    """
    if options.risk is None:
        raise OptionError("`risk=R` or `accuracy=A` is needed: what is to be promised?")
    needed = [_needed(options.question(error)) for error in options.expected]
    if all(row.fixed_cutoff is None for row in needed):
        rows_for_cutoff(options.question(min(options.expected)))  # raises, and says why
    return Plan(
        drrej_version=__version__, confidence=options.confidence, question=_asked(options), needed=tuple(needed)
    )


def _asked(options: PlanOptions) -> document.Question:
    assert options.risk is not None
    return document.Question(
        risk=options.risk,
        confidence=options.confidence,
        coverage=options.coverage,
        power=options.power,
        least_accepted=math.ceil(math.log(options.delta) / math.log1p(-options.risk)),
    )


def _needed(question: Question) -> Needed:
    fixed = _rows(rows_for_cutoff, question)
    if fixed is None:
        return Needed(error=question.error, fixed_cutoff=None, risk_and_coverage=None, powers=())
    numbers = np.unique(np.geomspace(max(1, fixed // 8), 2 * fixed, _DRAWN).astype(int)).tolist()
    return Needed(
        error=question.error,
        fixed_cutoff=fixed,
        risk_and_coverage=_rows(rows_for_both, question),
        powers=tuple(PowerPoint(rows=rows, power=cutoff_power(question, rows)) for rows in numbers),
    )


def _rows(answer: Callable[[Question], int], question: Question) -> int | None:
    try:
        return answer(question)
    except Infeasible:
        return None


def plan_from(
    source: Source, rejector: Rejector, options: PlanOptions | None = None, coverage: float | None = None
) -> tuple[Plan, str | None]:
    """What labelled rows at hand can promise at best, at some coverages or at one, and what to be cautious about.

    With a risk, also which coverage they certify for it, and how many fresh rows would certify it at each.
    """
    options = options or PlanOptions()
    if not rejector.has_classes:
        raise OptionError("a plan counts wrong predictions, but this rejector is for rows without logits")
    if coverage is not None and not 0 < coverage <= 1:
        raise OptionError(f"`coverage={coverage:g}`: it must be above 0 and at most 1")
    if options.risk is not None:
        options.question(0.0)
    seen = SeenRows.of(rejector, BEFORE_THRESHOLD)
    dump = source.open(rejector, labelled=True)
    scorer = Scorer(rejector, dump, decide=False)

    def of_block(block: Block) -> dict[str, Any]:
        scored = scorer(block)
        return {"loss": scored.loss, "wrong": scored.wrong, **seen.look_up(scored.keys)}

    columns = collect(source, dump, of_block, Pass("planning", True, keep=scorer.columns, scores=scorer.columns))
    curve = curve_of(columns["loss"], columns["wrong"])
    at_hand = tuple(_at_hand(curve, options, each) for each in (_COVERAGES if coverage is None else [coverage]))
    certified, why_not = _certified(curve, rejector, options)
    reused = seen.check_fresh(columns, allow_reuse=True).reused
    found = Plan(
        drrej_version=__version__,
        confidence=options.confidence,
        question=None if options.risk is None else _asked(options),
        rows=curve.rows,
        errors=curve.total_errors,
        at_hand=at_hand,
        certified=certified,
        why_not=why_not,
    )
    caution = "'calibrate' or 'fit' has seen some of these rows, so fresh ones will look worse" if reused else None
    return found, caution


def _at_hand(curve: Curve, options: PlanOptions, coverage: float) -> AtHand:
    """What labelled rows can promise at the smallest coverage of at least so much, with ties kept together."""
    accepted, errors = curve.reaching(max(1, math.ceil(exact_decimal(coverage) * curve.rows)))
    reached, risk = accepted / curve.rows, errors / accepted
    needed = None
    if options.risk is not None and risk < options.risk:
        needed = _rows(rows_for_both, options.question(risk, reached))
    return AtHand(
        coverage=reached,
        accepted=accepted,
        errors=errors,
        risk=risk,
        asked=upper_bound(errors, accepted, options.delta),
        any_cutoff=any_cutoff_bound(accepted, errors, curve.rows, options.delta),
        needed=needed,
    )


def _certified(curve: Curve, rejector: Rejector, options: PlanOptions) -> tuple[CertifiedNow | None, str | None]:
    if options.risk is None:
        return None, None
    candidates = risk_candidates(curve, rejector.need_ratio().density, options.risk, options.delta)
    try:
        asked = f"`risk={options.risk:g}` `confidence={options.confidence:g}`"
        best = certify_risk(candidates, curve.rows, options.risk, asked)
    except Infeasible as verdict:
        return None, str(verdict)
    return CertifiedNow(coverage=best.accepted / curve.rows, accepted=best.accepted, errors=best.errors), None
