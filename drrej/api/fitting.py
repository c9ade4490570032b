"""Rejectors made of arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from numbers import Real
from typing import Any, TypedDict, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drrej.api.arrays import (
    GROUP,
    Array,
    array_source,
    as_groups,
    as_labels,
    as_names,
    as_scores,
    check_length,
    matched,
)
from drrej.api.rejector import Rejector
from drrej.api.report import tell
from drrej.core.calibrators import CalibratorName
from drrej.core.losses import Loss
from drrej.core.reuse import content_keys, mixed, repeats
from drrej.core.thresholds import Rule, one_rule
from drrej.core.types import Booleans, InputKind
from drrej.data.columns import LABEL
from drrej.data.dump import DumpOptions
from drrej.documents.rejector import Rejector as Document
from drrej.documents.words import calibration_warnings
from drrej.errors import OptionError
from drrej.pipeline.calibrate import CalibrateOptions, calibrate
from drrej.pipeline.fit import RatioOptions, fit
from drrej.pipeline.threshold import MOST_REPEATS, ThresholdOptions, choose_threshold

AnyRejector = Document | str | os.PathLike[str]
"""A rejector, or the path of one."""


def as_document(rejector: AnyRejector) -> Document:
    """A rejector that may be named by its path."""
    return rejector if isinstance(rejector, Document) else Rejector.load(rejector)


class Target(TypedDict, total=False):
    """What `fit_rejector` is to keep: one rule, and with what confidence; `groups` says which rows are one example."""

    accuracy: float | None
    risk: float | None
    coverage: float | None
    tau: float | None
    max_loss: float | None
    review_cost: float | None
    error_cost: float | None
    confidence: float | None
    groups: Any


def fit_rejector(
    scores: Any,
    labels: Any,
    *,
    fresh: tuple[Any, Any] | None = None,
    loss: str | Loss = "auto",
    alpha: float = 1.0,
    lam: float = 1.0,
    effective_sample: float | None = None,
    input: InputKind | None = None,
    classes: Sequence[str] | None = None,
    normalize: bool = False,
    floor: float | None = None,
    calibrator: CalibratorName = "temperature",
    **target: Unpack[Target],
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
    classes), or what cross-validation says ("auto").

    With `confidence` the accuracy, risk or coverage is guaranteed for new rows like these, and `Infeasible` is raised
    where that cannot be certified. The threshold is then chosen on rows that nothing else has seen: on `fresh`, a pair
    (scores, labels), or without it on half of the rows. Which half is settled by what the rows hold: any order of the
    rows gives the same rejector, and there is no seed to be lucky with. Rows with the same scores count once, since
    they may be copies. Where a model gives many examples the same scores, as kNN does, pass `groups`: a value for each
    row that tells examples apart (those of `fresh` if that is given). Rows of a group stay in one half.

    >>> logits = np.array([[4.0, 0.0], [0.1, 0.0], [0.0, 3.0], [0.0, 0.2]] * 5)
    >>> rejector = fit_rejector(logits, [0, 1, 1, 0] * 5, accuracy=0.98)
    >>> rejector.threshold.coverage
    0.5
    >>> rejector.evaluate(logits, [0, 1, 1, 0] * 5).accuracy.value
    1.0
    """
    rule = _rule(target)
    _check_numbers(alpha=alpha, lam=lam, effective_sample=effective_sample, floor=floor)
    if fresh is not None and rule.confidence is None:
        raise OptionError("`fresh` goes with `confidence`: a guarantee needs rows that nothing else has seen")
    options = DumpOptions(input=input, classes=as_names(classes), normalize=normalize)
    groups = None if target.get("groups") is None else as_groups(target["groups"])
    if groups is not None and rule.confidence is None:
        raise OptionError("`groups` requires `confidence`: it tells rows with the same scores apart")
    example = None if groups is None else GROUP
    first, second = (scores, labels), fresh
    if rule.confidence is not None and fresh is None:
        rows, marks = as_scores(matched(scores, options.classes)), as_labels(labels)
        half = _second_half(rows, marks, groups)
        first, second = ((rows[part], marks.filter(pa.array(part))) for part in (~half, half))
        groups = None if groups is None else groups.filter(pa.array(half))
    with array_source(*first, options) as source:
        start = calibrate(source, CalibrateOptions(floor=floor, calibrator=calibrator))
        fitted, cautions = fit(source, start, RatioOptions(alpha, lam, loss, effective_sample)), source.cautions
        if second is None:
            found = choose_threshold(source, fitted, rule)
    if second is not None:
        with array_source(*second, options, groups) as source:
            chosen_on = ThresholdOptions(known_fresh=fresh is None, group=example)
            found = choose_threshold(source, fitted, rule, chosen_on)
    tell([*cautions, *calibration_warnings(start.need_calibration()), found.caution])
    return Rejector.of(found.rejector)


def _second_half(rows: Array, labels: pa.Array, groups: pa.Array | None) -> Booleans:
    """Half of the rows, chosen by their groups or by what they hold, so that copies of a row are in one half."""
    check_length(rows, labels, LABEL)
    if len(rows) < 2:
        raise OptionError("`confidence` needs more rows: one half fits, the other chooses the threshold")
    if groups is None:
        keys = content_keys(rows.reshape(len(rows), -1))
        again = int(np.count_nonzero(repeats(keys)))
        if again > MOST_REPEATS * len(rows):
            raise OptionError(
                f"{again} of {len(rows)} rows have the same scores as another row, so the half that chooses the "
                "threshold would not be like new rows; drop the repeats, or if they are different examples pass "
                "`groups`, a value for each row that tells them apart"
            )
    else:
        check_length(rows, groups, GROUP)
        keys = mixed(pc.rank(groups, tiebreaker="dense").to_numpy())
    half: Booleans = keys > np.sort(keys)[(keys.size - 1) // 2]
    return half


def _check_numbers(**given: Any) -> None:
    for name, value in given.items():
        if value is not None and (isinstance(value, bool | np.bool_) or not isinstance(value, Real)):
            raise OptionError(f"`{name}={value!r}`: it must be a number")


def _rule(target: Target) -> Rule:
    for name in target:
        if name not in Target.__annotations__:
            raise TypeError(f"fit_rejector() got an unexpected keyword argument '{name}'")
    _check_numbers(**{name: value for name, value in target.items() if name != "groups"})
    kinds = ("accuracy", "risk", "coverage", "review_cost", "tau", "max_loss")
    more = {name: target.get(name) for name in ("confidence", "error_cost")}
    targets: dict[str, Any] = {kind: target.get(kind) for kind in kinds}
    return one_rule(targets, **more)
