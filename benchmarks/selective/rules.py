"""Rules that certify a cutoff: drrej's, SGR, and MAPIE's, each on the same fresh rows with the same rows of the fit.

A rule takes the curve of the fresh rows, the rows of the fit, R and delta, and gives the cutoff: infinite accepts all,
-infinite means that nothing is certified.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from drrej.core.certify import error_blocks, risk_candidates
from drrej.core.curves import Curve
from drrej.core.drift import loss_quantiles
from drrej.core.intervals import at_most
from drrej.core.ratio import DensityRatio

Array = np.ndarray[Any, Any]
NEVER_FLAT = DensityRatio(1.0, 1.0, 0.0, 0.0)
THRESHOLDS = 100
"""That MAPIE tests, its default number."""


@dataclass(frozen=True)
class Fitted:
    """The rows of the fit: what may be learned before the fresh rows are looked at."""

    losses: Array
    wrong: Array


Rule = Callable[[Curve, Fitted, float, float], float]


def curve_of(losses: Array, wrong: Array) -> Curve:
    """The risk-coverage curve."""
    return Curve.of(losses[~wrong], losses[wrong])


def every_rank(points: Curve, fit: Fitted, risk: float, delta: float) -> float:
    """Drrej: every cutoff of the fresh rows, runs from starts that are planned on the rows of the fit."""
    known: Any = ()
    if fit.losses.size:
        known = error_blocks(curve_of(fit.losses, fit.wrong)), loss_quantiles(np.sort(fit.losses))
    best = risk_candidates(points, NEVER_FLAT, risk, delta, *known).largest()
    return -math.inf if best is None else math.inf if best.cutoff is None else best.cutoff


def binary_search(points: Curve, _fit: Fitted, risk: float, delta: float) -> float:
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


def mapie(points: Curve, fit: Fitted, risk: float, delta: float, fwer: str) -> float:
    """MAPIE's BinaryClassificationController: the precision of "accept", 100 thresholds at quantiles of the fit.

    `split_fixed_sequence` learns the order of its thresholds on the rows of the fit.
    """
    from mapie.risk_control import BinaryClassificationController

    counts, errors = (np.diff(totals, prepend=0) for totals in (points.accepted, points.errors))
    losses = np.repeat(points.losses, counts)
    right = np.concatenate([np.arange(n) >= e for n, e in zip(counts, errors, strict=True)]).astype(int)
    ordered = np.sort(fit.losses)

    def score(values: Array) -> Array:  # in [0, 1], falls with the loss: the share of fitted losses above it
        return np.asarray(1.0 - np.searchsorted(ordered, values, side="left") / ordered.size)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        controller = BinaryClassificationController(
            lambda scores: np.column_stack([1.0 - scores, scores]),
            "precision",
            1.0 - risk,
            confidence_level=1.0 - delta,
            list_predict_params=np.arange(THRESHOLDS) / THRESHOLDS,
            fwer_method=fwer,
        )
        if fwer == "split_fixed_sequence":
            controller.learn_fixed_sequence_order(score(fit.losses), (~fit.wrong).astype(int), binary=True)
        controller.calibrate(score(losses), right)
    valid = np.asarray(controller.valid_predict_params, float)
    if not valid.size:
        return -math.inf
    accepted = score(losses) >= float(valid.min())
    return math.inf if accepted.all() else float(losses[~accepted].min())


RULES: dict[str, Rule] = {
    "drrej": every_rank,
    "SGR": binary_search,
    "MAPIE, split fixed sequence": partial(mapie, fwer="split_fixed_sequence"),
    "MAPIE, Bonferroni-Holm": partial(mapie, fwer="bonferroni_holm"),
}
