"""From arrays to a rejector in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drrej.api.arrays import Array, ArrayOptions, array_source, as_labels, as_scores
from drrej.api.rejector import Rejector
from drrej.core.calibrators import CalibratorName
from drrej.core.losses import Loss
from drrej.core.reuse import content_keys, copy_keys
from drrej.core.thresholds import ERROR_RULES, Rule
from drrej.core.types import Booleans, InputKind
from drrej.documents.rejector import Rejector as Document
from drrej.errors import DumpError, OptionError
from drrej.pipeline.calibrate import CalibrateOptions, calibrate
from drrej.pipeline.fit import RatioOptions, fit
from drrej.pipeline.source import Source
from drrej.pipeline.threshold import ThresholdOptions, threshold


def fit_rejector(
    scores: Any,
    labels: Any,
    *,
    accuracy: float | None = None,
    risk: float | None = None,
    coverage: float | None = None,
    tau: float | None = None,
    max_loss: float | None = None,
    review_cost: float | None = None,
    error_cost: float | None = None,
    confidence: float | None = None,
    fresh: tuple[Any, Any] | None = None,
    loss: str | Loss = "log",
    alpha: float = 1.0,
    lam: float = 1.0,
    effective_sample: float | None = None,
    input: InputKind | None = None,
    classes: Sequence[str] | None = None,
    normalize: bool = False,
    floor: float | None = None,
    calibrator: CalibratorName = "temperature",
) -> Rejector:
    """Calibrate, fit and choose a threshold on labelled rows.

    `scores` are logits (rows x classes), or with `input="probs"` probabilities; one score per row means a binary
    classifier's class 1. numpy arrays, lists, torch CPU tensors, data frames and whatever has `__array__` or DLPack
    will do. `labels` (rows,) are class numbers from 0, or names with `classes`, which has them in the order of the
    scores.

    Exactly one rule: `accuracy` or `risk` of the accepted rows, `coverage`, `tau`, `max_loss`, or the least total cost,
    where a rejected row costs `review_cost` and an accepted error `error_cost`. `coverage` may also stand beside
    `accuracy` or `risk`, to be kept together with it. `loss`, `alpha`, `lam` and
    `effective_sample` are those of the command line, as are `normalize` and `floor` for probabilities, and
    `calibrator`: one "temperature", or a weight and a bias per class ("vector", or "beta" of two
    classes), also a weight for each pair ("dirichlet"), or what cross-validation says ("auto").

    With `confidence` the accuracy, risk or coverage is guaranteed for new rows like these, and `Infeasible` is raised
    where that cannot be certified. The threshold is then chosen on rows that nothing else has seen: on `fresh`, a pair
    (scores, labels), or without it on half of the rows. Which half is settled by what the rows hold: any order of the
    rows gives the same rejector, and there is no seed to be lucky with.

    >>> logits = np.array([[4.0, 0.0], [0.1, 0.0], [0.0, 3.0], [0.0, 0.2]] * 5)
    >>> rejector = fit_rejector(logits, [0, 1, 1, 0] * 5, accuracy=0.98)
    >>> rejector.threshold.coverage
    0.5
    >>> rejector.evaluate(logits, [0, 1, 1, 0] * 5).accuracy.value
    1.0
    """
    rules = {"accuracy": accuracy, "risk": risk, "coverage": coverage, "tau": tau, "max-loss": max_loss}
    rule = _rule({**rules, "cost": review_cost}, confidence, error_cost)
    if fresh is not None and confidence is None:
        raise OptionError("`fresh` goes with `confidence`: a guarantee needs rows that nothing else has seen")
    options = ArrayOptions(input, classes, normalize)

    def fitted(source: Source) -> Document:
        ratio = RatioOptions(alpha, lam, loss, effective_sample)
        return fit(source, calibrate(source, CalibrateOptions(floor=floor, calibrator=calibrator)), ratio)

    if confidence is None:
        with array_source(scores, labels, options) as source:
            return Rejector.of(threshold(source, fitted(source), rule))
    if fresh is None:
        rows, marks = as_scores(scores), as_labels(labels)
        second = _second_half(rows, marks)
        with array_source(rows[~second], marks.filter(pa.array(~second)), options) as source:
            document = fitted(source)
        with array_source(rows[second], marks.filter(pa.array(second)), options) as source:
            return Rejector.of(threshold(source, document, rule, ThresholdOptions(known_fresh=True)))
    with array_source(scores, labels, options) as source:
        document = fitted(source)
    with array_source(*fresh, options) as source:
        return Rejector.of(threshold(source, document, rule))


def _second_half(rows: Array, labels: pa.Array) -> Booleans:
    """Half of the rows, chosen by what they hold; the copies of a row are chosen one by one.

    Were the copies kept together, the scores of a kNN, of which there are few, would be divided instead of the rows,
    and the half would not be like new rows.
    """
    if len(labels) != len(rows):
        raise DumpError(f"there are {len(rows)} rows of scores but {len(labels)} labels; each row needs its label")
    if len(rows) < 2:
        raise OptionError("`confidence` needs more rows: one half fits, the other chooses the threshold")
    order = pc.rank(labels, tiebreaker="dense")
    keys = copy_keys(content_keys(rows.reshape(len(rows), -1)), order.to_numpy())
    half: Booleans = np.ones(keys.size, bool)
    half[np.argsort(keys, kind="stable")[: (keys.size + 1) // 2]] = False
    return half


def _rule(given: dict[str, float | None], confidence: float | None, error_cost: float | None) -> Rule:
    rules = {kind: target for kind, target in given.items() if target is not None}
    if rules.keys() >= set(ERROR_RULES):
        raise OptionError("`accuracy` and `risk` are the same promise; give one of them")
    both = len(rules) == 2 and "coverage" in rules and bool(rules.keys() & set(ERROR_RULES))
    coverage = rules.pop("coverage") if both else None
    if len(rules) != 1:
        raise OptionError(
            "give exactly one of `accuracy`, `risk`, `coverage`, `review_cost`, `tau` and `max_loss`; only `coverage` "
            "may stand beside `accuracy` or `risk`"
        )
    ((kind, target),) = rules.items()
    return Rule(kind, target, confidence, error_cost=error_cost, coverage=coverage)
