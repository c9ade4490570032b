"""Whether the calibration and the ratio of a rejector go together: what follows from others is computed again.

Each section has a table of findings: the key, whether its value is right, and what is wrong with it otherwise. They are
looked at in order, and a row may rely on those before it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from drrej.core.calibrators import MAX_TEMPERATURE, MIN_TEMPERATURE
from drrej.core.drift import STEPS
from drrej.core.intervals import json_number
from drrej.core.losses import KINDS, LearnedLoss, Loss
from drrej.core.ratio import MAX_ALPHA
from drrej.core.ratio_error import DELTA, FITTED_ROWS, NOT_CHOSEN, RatioBound, as_estimate, bounds, without_promise
from drrej.core.recompute import (
    deviation_bracket,
    is_normalised,
    mean_bracket,
)
from drrej.core.reuse import Fingerprint
from drrej.core.types import Floats, InputKind
from drrej.documents.findings import NEAR, RANGE, Finding, is_near
from drrej.documents.sections import (
    FITTED_METHODS,
    BeforeAfter,
    Calibration,
    Ratio,
    Threshold,
    is_temperature,
)
from drrej.errors import OptionError
from drrej.strict_json import shown

_DIGITS = 0.1
"""Lambda has four digits, and the share of the sample that it keeps may be off by so much."""

_SINGLE = 1e-4
"""Losses may have been computed in float32."""


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
    yield f"{key}.method", found.method in (*FITTED_METHODS, "given", "none"), "is not known"
    yield f"{key}.temperature", is_temperature(temperature), f"{RANGE}: it must be above 0"
    bracket = MIN_TEMPERATURE * (1 - NEAR) <= temperature <= MAX_TEMPERATURE * (1 + NEAR)
    yield f"{key}.temperature", not fitted or bracket, f"{RANGE} of a fit"
    yield f"{key}.temperature", found.method != "none" or temperature == 1.0, "contradicts 'calibration.method'"
    yield from _vector_findings(found, classes)
    yield from _choice_findings(found)
    yield f"{key}.converged", fitted == (found.converged is not None), "contradicts 'calibration.method'"
    yield f"{key}.rows", found.rows is None or (fitted and found.rows >= 1), RANGE
    yield f"{key}.floor", floor is None or kind != "logits", "contradicts 'input': logits have no floor"
    most = 0.5 / classes
    yield (
        f"{key}.floor",
        floor is None or 0 < floor <= most,
        f"{RANGE}: above 0 and at most 1 / (2 x {classes} classes)",
    )
    yield from fingerprint_findings(f"{key}.fingerprint", found.fingerprint, found.rows)
    for name, largest in (("nll", math.inf), ("ece", 1.0), ("brier", 2.0)):
        yield from _figures(f"{key}.{name}", getattr(found, name), largest, fitted)
    nll = found.nll
    if nll is not None and nll.before is not None and kind == "logits" and found.converged:
        risen = nll.after is None or nll.after > nll.before * (1 + 1e-3) + NEAR
        yield f"{key}.nll", not risen, "is higher after than before, but 'calibration.temperature' makes it least"


def _choice_findings(found: Calibration) -> Iterator[Finding]:
    key, table = "calibration.choice", found.choice
    if table is None:
        return
    names = [trial.calibrator for trial in table]
    yield key, found.method in names, "does not have 'calibration.method'"
    yield key, len(set(names)) == len(names) and set(names) <= set(FITTED_METHODS), "is out of range: names of methods"
    for trial in table:
        yield key, trial.above_best >= 0 and trial.std_error >= 0 and trial.nll >= 0, f"{RANGE}: none may be below 0"
        if trial.calibrator == found.method:
            yield key, trial.above_best <= trial.std_error, "says that another is better than 'calibration.method'"


def _vector_findings(found: Calibration, classes: int) -> Iterator[Finding]:
    key, vector = "calibration.vector", found.vector
    yield key, (vector is not None) == (found.method in FITTED_METHODS[1:]), "contradicts 'calibration.method'"
    yield "calibration.method", found.method != "beta" or classes == 2, "contradicts 'classes': beta is for two"
    if vector is not None:
        yield f"{key}.weights", len(vector.weights) == classes, f"{RANGE}: one for each of 'classes' is needed"
        yield f"{key}.weights", min(vector.weights) >= 0, f"{RANGE}: none may be below 0"
        yield f"{key}.biases", len(vector.biases) == classes, f"{RANGE}: one for each of 'classes' is needed"
        mixing, mixes = vector.mixing, found.method == "dirichlet"
        yield f"{key}.mixing", (mixing is not None) == mixes, "contradicts 'calibration.method'"
        if mixing is not None:
            square = len(mixing) == classes and all(len(line) == classes for line in mixing)
            yield f"{key}.mixing", square, f"{RANGE}: 'classes' lines of as many numbers are needed"
            none = all(line[number] == 0 for number, line in enumerate(mixing))
            yield f"{key}.mixing", none, f"{RANGE}: a class has 0 in its own place"


def _figures(key: str, figure: BeforeAfter | None, most: float, fitted: bool) -> Iterator[Finding]:
    if figure is None:
        return
    yield key, fitted, "contradicts 'calibration.method'"
    for name, value in (("before", figure.before), ("after", figure.after)):
        yield f"{key}.{name}", value is None or 0 <= value <= most * (1 + NEAR), RANGE


def fingerprint_findings(key: str, text: str | None, rows: int | None) -> Iterator[Finding]:
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
    inside = mean is not None and least * (1 - NEAR) <= mean <= most * (1 + NEAR)
    yield "ratio.mean_loss", inside or not math.isfinite(most), "contradicts 'ratio.loss_quantiles'"
    yield "ratio.log_max_ratio", 0 <= g <= math.log(rows) * (1 + NEAR), f"{RANGE}: from 0 to ln of 'ratio.rows'"
    normal = is_normalised(density, quantiles, rows)
    yield "ratio.log_max_ratio", normal, "contradicts alpha, lambda and 'ratio.loss_quantiles': the mean ratio is not 1"
    normalizer = density.normalizer()
    same = found.normalizer.keys() == normalizer.keys()
    same = same and all(is_near(value, normalizer[name]) for name, value in found.normalizer.items())
    yield "ratio.normalizer", same, "contradicts 'ratio.log_max_ratio' and 'ratio.min_loss'"
    yield "ratio.variance", _variance_fits(found, quantiles), "contradicts 'ratio.loss_quantiles'"
    yield "ratio.third", _third_fits(found), "contradicts 'ratio.variance'"
    yield "ratio.effective_sample", _sample_fits(found), "contradicts 'ratio.variance'"
    yield from fingerprint_findings("ratio.fingerprint", found.fingerprint, rows)
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


def _third_fits(found: Ratio) -> bool:
    """No deviation is larger than the largest, and none is below -1."""
    if found.third is None:
        return True
    if found.variance is None:
        return False
    largest = math.expm1(min(found.log_max_ratio, 700.0))
    low, high = -found.variance, found.variance * largest
    slack = 1e-6 * max(-low, high) + 1e-300
    return low - slack <= found.third <= high + slack


def _sample_fits(found: Ratio) -> bool:
    """The variance is that of the share of the sample, but for the digits of lambda."""
    share = found.effective_sample
    return share is None or (
        0 < share < 1 and found.variance is not None and abs(share * (1 + found.variance) - 1) <= _DIGITS
    )


def _same_bounds(found: Ratio, classes: int) -> bool:
    """The paper's bounds follow from the rest; that of the fitted rows needs all losses and has but its range.

    Older versions gave the paper's bounds for learned losses too.
    """
    stored = found.bounds or ()
    told = [bound for bound in stored if bound.theorem == FITTED_ROWS]
    paper = [bound for bound in stored if bound.theorem != FITTED_ROWS]
    largest, max_ratio = found.loss.bound(classes), json_number(np.exp(found.log_max_ratio))
    again = bounds(found.alpha, found.lam, largest, found.rows, max_ratio)
    if found.effective_sample is not None:
        again = [without_promise(bound, NOT_CHOSEN) for bound in again]
    kinds = again, [*map(as_estimate, again)], [*map(without_promise, again)]
    same = any(len(kind) == len(paper) and all(map(_same_bound, kind, paper)) for kind in kinds)
    return same and len(told) <= 1 and all(_is_told(bound, found) for bound in told)


def _is_told(bound: RatioBound, found: Ratio) -> bool:
    counts = bound.points == found.rows and is_near(bound.confidence, 1.0 - DELTA)
    fixed = bound.holds and found.loss.drift_loss is None
    return counts and fixed and bound.vacuous == (bound.value is None) and (bound.value is None or bound.value >= 0)


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
