"""Whether the values of a rejector go together: what follows from others is computed again.

Each section has a table of findings: the key, whether its value is right, and what is wrong with it otherwise. They are
looked at in order, and a row may rely on those before it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from drrej.core.bounds import RatioBound, bounds
from drrej.core.drift import STEPS
from drrej.core.guarantees import split_delta
from drrej.core.intervals import exact_decimal, json_number
from drrej.core.losses import KINDS, LearnedLoss, Loss
from drrej.core.ratio import MAX_ALPHA
from drrej.core.recompute import (
    deviation_bracket,
    is_binomial_level,
    is_cutoff_of,
    is_normalised,
    is_tau_of,
    mean_bracket,
    supports_rate,
)
from drrej.core.sketch import Fingerprint
from drrej.core.temperature import MAX_TEMPERATURE, MIN_TEMPERATURE
from drrej.core.thresholds import COVERAGE_METHOD, METHODS, REJECT_ALL, Rule, capped
from drrej.core.types import Floats, InputKind
from drrej.documents.sections import (
    BeforeAfter,
    Bound,
    Calibration,
    GroupThreshold,
    Ratio,
    RuleRecord,
    Threshold,
    is_temperature,
)
from drrej.errors import OptionError
from drrej.strict_json import shown

Finding = tuple[str, bool, str]
"""A key, whether its value is right, and what is wrong with it if not."""

RANGE = "is out of range"
_NEAR = 1e-9
_SINGLE = 1e-4
"""Losses may have been computed in float32."""


def expect(findings: Iterable[Finding], where: str, error: type[Exception]) -> None:
    """Raise an error about the first finding that is wrong."""
    for key, right, wrong in findings:
        if not right:
            raise error(f"{where}: the value of '{key}' {wrong}")


def is_near(a: float | None, b: float | None, tolerance: float = _NEAR) -> bool:
    """Whether two numbers are the same but for rounding; None is only like None."""
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=0.0)


def sections_findings(
    calibration: Calibration | None, ratio: Ratio | None, threshold: Threshold | None
) -> Iterator[Finding]:
    """The sections build on each other."""
    missing = "is there, but a section is missing: calibration, ratio and threshold build on each other"
    yield "ratio", ratio is None or calibration is not None, missing
    yield "threshold", threshold is None or ratio is not None, missing


# Calibration


def calibration_findings(found: Calibration, kind: InputKind, classes: int) -> Iterator[Finding]:
    """The temperature, the floor, and figures that go with them."""
    temperature, fitted, floor = found.temperature, found.is_fitted, found.floor
    key = "calibration"
    yield f"{key}.method", found.method in ("temperature", "given", "none"), "is not known"
    yield f"{key}.temperature", is_temperature(temperature), f"{RANGE}: it must be above 0"
    bracket = MIN_TEMPERATURE * (1 - _NEAR) <= temperature <= MAX_TEMPERATURE * (1 + _NEAR)
    yield f"{key}.temperature", not fitted or bracket, f"{RANGE} of a fit"
    yield f"{key}.temperature", found.method != "none" or temperature == 1.0, "contradicts 'calibration.method'"
    yield f"{key}.converged", fitted == (found.converged is not None), "contradicts 'calibration.method'"
    yield f"{key}.rows", found.rows is None or (fitted and found.rows >= 1), RANGE
    yield f"{key}.floor", floor is None or kind != "logits", "contradicts 'input': logits have no floor"
    most = 0.5 / classes
    yield (
        f"{key}.floor",
        floor is None or 0 < floor <= most,
        f"{RANGE}: above 0 and at most 1 / (2 x {classes} classes)",
    )
    yield from _fingerprint(f"{key}.fingerprint", found.fingerprint, found.rows)
    for name, largest in (("nll", math.inf), ("ece", 1.0), ("brier", 2.0)):
        yield from _figures(f"{key}.{name}", getattr(found, name), largest, fitted)
    nll = found.nll
    if nll is not None and nll.before is not None and kind == "logits" and found.converged:
        risen = nll.after is None or nll.after > nll.before * (1 + 1e-3) + _NEAR
        yield f"{key}.nll", not risen, "is higher after than before, but 'calibration.temperature' makes it least"


def _figures(key: str, figure: BeforeAfter | None, most: float, fitted: bool) -> Iterator[Finding]:
    if figure is None:
        return
    yield key, fitted, "contradicts 'calibration.method'"
    for name, value in (("before", figure.before), ("after", figure.after)):
        yield f"{key}.{name}", value is None or 0 <= value <= most * (1 + _NEAR), RANGE


def _fingerprint(key: str, text: str | None, rows: int | None) -> Iterator[Finding]:
    """An absent one is a fact of its own: then nothing can be certified."""
    if not text:
        return
    yield key, rows is not None, "is there, but the number of rows is not"
    try:
        Fingerprint.parse(text, rows or 0)
    except ValueError as error:
        yield key, False, f"is no fingerprint: {shown(str(error))}"


# Ratio


def ratio_findings(found: Ratio, classes: int) -> Iterator[Finding]:
    """The loss and the figures of the fitted losses; the ratio has the mean 1 on them."""
    rows, low, high, mean = found.rows, found.min_loss, found.max_loss, found.mean_loss
    g, density = found.log_max_ratio, found.density
    yield "ratio.alpha", abs(found.alpha) <= MAX_ALPHA, f"{RANGE}: from {-MAX_ALPHA:g} to {MAX_ALPHA:g}"
    yield "ratio.lambda", found.lam > 0, f"{RANGE}: it must be above 0"
    yield "ratio.rows", rows >= 1, RANGE
    yield "ratio.loss", *_loss_fits(found.loss, classes)
    yield from _losses("ratio.loss_quantiles", found.loss_quantiles, rows, found.loss.bound(classes))
    quantiles = np.array(found.loss_quantiles)
    yield "ratio.min_loss", low == quantiles[0], "is not the first of 'ratio.loss_quantiles'"
    yield "ratio.max_loss", high == quantiles[-1], "is not the last of 'ratio.loss_quantiles'"
    least, most = mean_bracket(quantiles, rows)
    inside = mean is not None and least * (1 - _NEAR) <= mean <= most * (1 + _NEAR)
    yield "ratio.mean_loss", inside or not math.isfinite(most), "contradicts 'ratio.loss_quantiles'"
    yield "ratio.log_max_ratio", 0 <= g <= math.log(rows) * (1 + _NEAR), f"{RANGE}: from 0 to ln of 'ratio.rows'"
    normal = is_normalised(density, quantiles, rows)
    yield "ratio.log_max_ratio", normal, "contradicts alpha, lambda and 'ratio.loss_quantiles': the mean ratio is not 1"
    normalizer = density.normalizer()
    same = found.normalizer.keys() == normalizer.keys()
    same = same and all(is_near(value, normalizer[name]) for name, value in found.normalizer.items())
    yield "ratio.normalizer", same, "contradicts 'ratio.log_max_ratio' and 'ratio.min_loss'"
    yield "ratio.variance", _variance_fits(found, quantiles), "contradicts 'ratio.loss_quantiles'"
    yield from _fingerprint("ratio.fingerprint", found.fingerprint, rows)
    drift = found.loss.drift_loss
    if found.drift_quantiles is not None:
        yield "ratio.drift_quantiles", drift is not None, "contradicts 'ratio.loss', which has no other loss for drift"
        yield from _losses("ratio.drift_quantiles", found.drift_quantiles, rows, (drift or found.loss).bound(classes))
    if found.bounds is not None:
        yield "ratio.bounds", _same_bounds(found, classes), "contradicts alpha, lambda, the loss or the number of rows"
    yield from _choice(found)


def _loss_fits(loss: Loss, classes: int) -> tuple[bool, str]:
    """Whether what the document says of the loss can be used for its classes, and what is wrong if not."""
    try:
        loss.check(classes)
    except OptionError as error:
        return False, f"{RANGE}: {error}"
    return True, ""


def _losses(key: str, quantiles: Sequence[float], rows: int, bound: float | None) -> Iterator[Finding]:
    """Order statistics of losses that are at most `bound`."""
    yield key, len(quantiles) == min(rows, STEPS + 1), "has another number of losses than 'ratio.rows' asks for"
    yield key, all(a <= b for a, b in itertools.pairwise(quantiles)), "is not in ascending order"
    yield key, quantiles[0] >= 0, f"{RANGE}: losses are not negative"
    yield key, bound is None or quantiles[-1] <= bound * (1 + _SINGLE), f"{RANGE}: the loss is at most {bound}"


def _variance_fits(found: Ratio, quantiles: Floats) -> bool:
    """Whether the variance of the ratio can be that of such losses; at large alpha the ratio jumps and hides it."""
    if found.variance is None:
        return True
    low, high = deviation_bracket(found.density, quantiles, found.rows)
    if found.variance < 0 or not math.isfinite(high):
        return found.variance >= 0
    deviation = math.sqrt(found.variance)
    return deviation <= high * (1 + 1e-6) + 1e-12 and (deviation >= low * (1 - 1e-6) - 1e-12 or abs(found.alpha) > 20)


def _same_bounds(found: Ratio, classes: int) -> bool:
    largest, max_ratio = found.loss.bound(classes), json_number(np.exp(found.log_max_ratio))
    again = bounds(found.alpha, found.lam, largest, found.rows, max_ratio)
    return len(again) == len(found.bounds or ()) and all(map(_same_bound, again, found.bounds or ()))


def _same_bound(a: RatioBound, b: RatioBound) -> bool:
    plain = [(x.theorem, x.points, x.condition, x.holds, x.vacuous) for x in (a, b)]
    return plain[0] == plain[1] and is_near(a.value, b.value) and is_near(a.confidence, b.confidence)


def _choice(found: Ratio) -> Iterator[Finding]:
    """The table from which the loss was chosen: the first that is not above the best by more than its error."""
    table = found.choice
    if table is None:
        return
    names = [row.loss for row in table]
    yield "ratio.choice", bool(names) and len(set(names)) == len(names) and set(names) <= KINDS.keys(), RANGE
    best = min(row.augrc for row in table)
    for number, row in enumerate(table):
        key = f"ratio.choice[{number}]"
        yield f"{key}.augrc", 0 <= row.augrc <= 1, RANGE
        yield f"{key}.above_best", abs(row.above_best - (row.augrc - best)) <= 1e-15, "is not 'augrc' above the lowest"
        yield f"{key}.std_error", 0 <= row.std_error <= 1, RANGE
        yield f"{key}.strength", row.strength is None or row.loss == LearnedLoss.name, RANGE
    chosen = next(row for row in table if row.above_best <= row.std_error)
    yield "ratio.loss", chosen.loss == found.loss.name, "is not what 'ratio.choice' leads to"
    if isinstance(found.loss, LearnedLoss):
        yield "ratio.learned.strength", chosen.strength == found.loss.learned.strength, "contradicts 'ratio.choice'"


# Threshold


def threshold_findings(found: Threshold, ratio: Ratio) -> Iterator[Finding]:
    """The rule, and the decision for all rows or for each group."""
    rule, groups = found.rule, found.groups
    yield from _rule(rule)
    yield "threshold.groups", (found.by is None) == (groups is None), "goes with 'threshold.by'"
    yield from _counts("threshold", found)
    if groups is None:
        yield from _decision("threshold", found, rule, ratio, 1)
        return
    names = [group.group for group in groups]
    yield "threshold.groups", bool(names) and len(set(names)) == len(names), "names no group or one twice"
    yield "threshold.by", rule.kind in ("risk", "coverage"), f"contradicts the rule '{rule.kind}'"
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
    given = rule.method if rule.kind == "risk" else None
    try:
        Rule(rule.kind, rule.target, rule.confidence, given)
    except OptionError as error:
        yield "threshold.rule", False, f"{RANGE}: {shown(str(error))}"
    methods = (None,) if not certified else METHODS if rule.kind == "risk" else (COVERAGE_METHOD,)
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
    counted = rule.kind == "risk" and accepted > 0
    yield f"{key}.accuracy", (found.accuracy is not None) == counted, f"contradicts the rule '{rule.kind}'"
    yield f"{key}.accepted", cutoff is not None or accepted == rows, f"contradicts '{key}.cutoff': nothing is rejected"
    none = cutoff is None or cutoff > 0 or accepted == 0
    yield f"{key}.accepted", none, f"contradicts '{key}.cutoff': every row is rejected"
    if isinstance(found, GroupThreshold) and cutoff == REJECT_ALL and rule.kind == "risk":
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
        inside = wide[0] * (1 - _NEAR) <= wide[1] <= wide[2] * (1 + _NEAR)
        yield f"{key}.cutoff", inside, f"{RANGE} for such a rule and ratio"
        yield f"{key}.tau", is_tau_of(density, tau, cutoff), f"does not belong to '{key}.cutoff' with this ratio"
    yield from _target(key, found, rule)
    yield f"{key}.bound", (found.bound is not None) == (rule.confidence is not None), "goes with a confidence"
    if found.bound is not None and rule.confidence is not None:
        level = split_delta(float(1 - exact_decimal(rule.confidence)), groups)
        yield from _bound(f"{key}.bound", found.bound, found, rule, level)


def _target(key: str, found: Threshold | GroupThreshold, rule: RuleRecord) -> Iterator[Finding]:
    """What the rule asks of these rows."""
    target = exact_decimal(rule.target)
    if rule.kind == "coverage":
        yield f"{key}.accepted", found.accepted >= target * found.rows, "is below 'threshold.rule.target'"
    if rule.kind == "risk" and rule.confidence is None:
        errors = found.accepted - _right(found)
        yield f"{key}.accuracy", errors <= target * found.accepted, "is below what 'threshold.rule.target' asks for"


def _bound(
    key: str, bound: Bound, found: Threshold | GroupThreshold, rule: RuleRecord, level: float
) -> Iterator[Finding]:
    """The bound is that of its counts at its level, and meets the target."""
    rows, accepted, errors, value, delta = bound.rows, bound.accepted, bound.errors, bound.value, bound.delta
    yield f"{key}.rows", rows == found.rows, "is not that of the threshold"
    yield f"{key}.accepted", accepted == found.accepted, "is not that of the threshold"
    yield f"{key}.delta", 0 < delta <= level * (1 + _NEAR), f"{RANGE} for such a confidence"
    wrong = "is not the bound of its counts"
    if rule.kind == "risk":
        yield f"{key}.errors", errors is not None and errors == accepted - _right(found), "contradicts the accuracy"
        yield f"{key}.value", value <= rule.target * (1 + _NEAR), "is above 'threshold.rule.target'"
        yield f"{key}.value", is_binomial_level(delta, errors or 0, accepted, value), wrong
        return
    yield f"{key}.errors", errors is None, "contradicts the rule 'coverage'"
    yield f"{key}.delta", is_near(delta, level), "is not that of 'threshold.rule.confidence'"
    yield f"{key}.value", rule.target * (1 - _NEAR) <= value <= 1, "is below 'threshold.rule.target'"
    # more rows may be accepted than are needed, where losses tie
    sure = value == 1.0 and found.cutoff is None
    yield f"{key}.value", sure or supports_rate(delta, accepted, rows, value), wrong
