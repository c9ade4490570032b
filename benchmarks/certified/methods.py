"""Methods that certify a cutoff: each takes sorted losses, running errors, the fit's losses, R and delta.

Each gives how many of the rows at hand it accepts: the cutoff is the next larger loss, or none for all rows.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
from scipy.special import betainc

from drrej.core.certify import risk_candidates
from drrej.core.curves import Curve
from drrej.core.drift import loss_quantiles, ranks
from drrej.core.intervals import at_most
from drrej.core.ratio import DensityRatio

Method = Callable[[Curve, np.ndarray, float, float], float]
"""The cutoff (infinite: accept all; -infinite: nothing is certified)."""

NEVER_FLAT = DensityRatio(1.0, 1.0, 0.0, 0.0)


def every_rank(points: Curve, fit: np.ndarray, risk: float, delta: float) -> float:
    """Drrej: every cutoff of the rows at hand, runs from 1/2, 1/12, 1/72, ... of them."""
    best = risk_candidates(points, NEVER_FLAT, risk, delta).largest(risk)
    return -math.inf if best is None else math.inf if best.cutoff is None else best.cutoff


def binary_search(points: Curve, fit: np.ndarray, risk: float, delta: float) -> float:
    """SGR (Geifman and El-Yaniv 2017): a binary search over accepted counts; proven where the risk grows with them."""
    most_looks = max(1, math.ceil(math.log2(points.rows)))
    low, high = 0, points.rows
    for _ in range(most_looks):
        if low >= high:
            break
        middle = -(-(low + high) // 2)
        accepted, errors = points.reaching(middle)
        passed = at_most(errors, accepted, risk) <= delta / most_looks
        low, high = (accepted, high) if passed else (low, middle - 1)
    following = points.following(low)
    return -math.inf if not low else math.inf if following is None else following


def _tested(points: Curve, cutoffs: np.ndarray, risk: float) -> np.ndarray:
    """The p-value of each cutoff."""
    index = np.searchsorted(points.losses, cutoffs)
    accepted, errors = (np.concatenate([[0], counts])[index] for counts in (points.accepted, points.errors))
    right = accepted - errors
    return np.where(right > 0, betainc(np.maximum(right, 1), errors + 1, 1.0 - risk), 1.0)


def candidates(fit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cutoffs from the quantiles of the fit, ten between two of them, with the coverage expected of each."""
    known = np.asarray(loss_quantiles(fit))
    steps = np.arange(max(known.size - 1, 0) * 10 + 1) / 10
    cutoffs = np.interp(steps, np.arange(known.size), known)
    coverage = np.interp(steps, np.arange(known.size), ranks(known.size, fit.size) / fit.size)
    cutoffs, first = np.unique(cutoffs, return_index=True)
    return np.append(cutoffs, np.inf), np.append(coverage[first], 1.0)


def halves(points: Curve, fit: np.ndarray, risk: float, delta: float) -> float:
    """Drrej before: cutoffs from the fit's quantiles, runs from coverages 1, 1/2, 1/4, ..., equal shares of delta."""
    cutoffs, coverage = candidates(fit)
    starts = sorted(2.0**-k for k in range(41))
    while len(starts) > 1 and starts[0] * points.rows * math.log1p(-risk) > math.log(delta / len(starts)):
        starts.pop(0)
    given = np.zeros(coverage.size)
    for start in starts:
        given[min(int(np.searchsorted(coverage, start)), coverage.size - 1)] += delta / len(starts)
    level, best = 0.0, -math.inf
    for cutoff, chance, share in zip(cutoffs, _tested(points, cutoffs, risk), given, strict=True):
        level = min(level + share, delta)
        if chance <= level:
            best = float(cutoff)
        else:
            level = 0.0
    return best


def one_start(points: Curve, fit: np.ndarray, risk: float, delta: float) -> float:
    """Learn then Test, fixed sequence: the fit's quantiles, from the first that most likely can pass."""
    fewest = math.log(delta) / math.log1p(-risk)
    share = min(1.0, (fewest + 2 * math.sqrt(fewest)) / points.rows)
    known = np.asarray(loss_quantiles(fit))
    cutoffs = np.append(np.unique(known[math.ceil(share * (known.size - 1)) :]), np.inf)
    passed = np.logical_and.accumulate(_tested(points, cutoffs, risk) <= delta)
    return float(cutoffs[np.flatnonzero(passed)[-1]]) if passed.any() else -math.inf


def mapie(points: Curve, fit: np.ndarray, risk: float, delta: float, fwer: str = "bonferroni_holm") -> float:
    """MAPIE's BinaryClassificationController: the precision of "accept", 100 thresholds at quantiles of the fit."""
    from mapie.risk_control import BinaryClassificationController

    counts, errors = (np.diff(totals, prepend=0) for totals in (points.accepted, points.errors))
    losses = np.repeat(points.losses, counts)
    right = np.concatenate([np.arange(n) >= e for n, e in zip(counts, errors, strict=True)])
    # a score in [0, 1] that falls with the loss: the share of fitted losses above it
    score = 1.0 - np.searchsorted(np.sort(fit), losses, side="left") / fit.size
    grid = np.linspace(0.99, 0.0, 100) if fwer == "fixed_sequence" else np.linspace(0.0, 0.99, 100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        controller = BinaryClassificationController(
            lambda scores: np.column_stack([1.0 - scores, scores]),
            "precision",
            1.0 - risk,
            confidence_level=1.0 - delta,
            list_predict_params=grid,
            fwer_method=fwer,
        ).calibrate(score, right.astype(int))
    valid = np.asarray(controller.valid_predict_params, float)
    if not valid.size:
        return -math.inf
    accepted = score >= float(valid.min())
    return math.inf if accepted.all() else float(losses[~accepted].min())


METHODS: dict[str, Method] = {
    "drrej": every_rank,
    "before": halves,
    "SGR": binary_search,
    "LTT": one_start,
    "MAPIE": mapie,
}
