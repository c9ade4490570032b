"""Rejectors made of arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, TypedDict, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from drrej.api import arrays
from drrej.api.arrays import CORRECT, as_columns, as_scores, matched
from drrej.api.rejector import Rejector
from drrej.api.report import tell
from drrej.core.calibrators import CalibratorName
from drrej.core.losses import Loss
from drrej.core.reuse import MOST_REPEATS, content_keys, mixed, near_keys, repeats
from drrej.core.thresholds import Rule, one_rule
from drrej.core.types import Booleans, InputKind
from drrej.data.columns import LABEL
from drrej.data.dump import DumpOptions
from drrej.documents.rejector import Rejector as Document
from drrej.documents.words import calibration_warnings
from drrej.errors import OptionError
from drrej.pipeline.calibrate import CalibrateOptions, calibrate
from drrej.pipeline.fit import RatioOptions, fit
from drrej.pipeline.split import fit_share
from drrej.pipeline.threshold import ThresholdOptions, choose_threshold, vacuous_words

AnyRejector = Document | str | os.PathLike[str]
"""A rejector, or the path of one."""


def as_document(rejector: AnyRejector) -> Document:
    """A rejector that may be named by its path."""
    return rejector if isinstance(rejector, Document) else Rejector.load(rejector)


ClassTarget = float | Mapping[str, float] | None
"""A target, or one for each class that is named (by its number where classes have no names); "" is every other one."""


class Target(TypedDict, total=False):
    """What `fit_rejector` is to keep: one rule or several promises, and with what confidence.

    `groups` says which rows are one example; `correct` and `lower_is_better` are about scores of any kind; `model` is
    what made the scores, as NAME@VERSION.
    """

    correct: Any
    lower_is_better: bool
    accuracy: ClassTarget
    risk: ClassTarget
    max_missed: Mapping[str, float] | None
    overall_risk: float | None
    reviewer_accuracy: float | None
    reviews: int | None
    per: int | None
    coverage: float | None
    tau: float | None
    max_loss: float | None
    review_cost: float | None
    error_cost: float | None
    confidence: float | None
    groups: Any
    model: str | None


def fit_rejector(
    scores: Any,
    labels: Any = None,
    *,
    fresh: tuple[Any, Any] | None = None,
    loss: str | Loss = "auto",
    alpha: float = 1.0,
    lam: float = 1.0,
    input: InputKind | None = None,
    classes: Sequence[str] | None = None,
    normalize: bool = False,
    floor: float | None = None,
    calibrator: CalibratorName | None = None,
    **target: Unpack[Target],
) -> Rejector:
    """Calibrate, fit and choose a threshold on labelled rows.

    `scores` are logits (rows x classes), or probabilities with `input="probs"`; one score per row is that of class 1 of
    a binary classifier. Pass a numpy array, a list, a torch CPU tensor, a data frame or any object with `__array__` or
    DLPack. `labels` (rows,) are class numbers from 0, or names if `classes` lists them in the order of the scores.

    Instead of scores of classes, you can pass a confidence of any kind, one or several numbers or texts ("85%", "high")
    per row, with `correct` (rows,): whether each row was right. With `lower_is_better`, low values are good. The
    rejector keeps the names of a frame's columns or of a series ("score" without one), because files need them.
    `predict` then always returns 0, `evaluate` takes `correct` instead of labels, and `calibrator` is "logistic",
    "beta", "isotonic" or "auto".

    Give exactly one rule: `accuracy` or `risk` of the accepted rows, `coverage`, `tau`, `max_loss`, or the lowest total
    cost, where a rejected row costs `review_cost` and an accepted error costs `error_cost`. `coverage` can also be
    combined with `accuracy` or `risk`.

    Or give several promises: `accuracy={"fraud": 0.9, "": 0.998}` for the accepted rows predicted as a class ("": every
    other class), `max_missed={"fraud": 0.05}` for the rows of a true class that are accepted as another one,
    `overall_risk` (with `reviewer_accuracy`) for all rows, `reviews=200` of `per=10000` rows, `coverage`, and an
    `accuracy` or `risk` for all accepted rows. Each predicted class then has its own cutoff: the largest that
    keeps the promises or, with `review_cost`, the cheapest. `loss`, `alpha` and `lam` are as on the command line, and
    so are `normalize` and `floor` for probabilities, and `calibrator`: one "temperature", a weight and a bias per class
    ("vector", or "beta" for two classes), or the best of these by cross-validation ("auto").

    With `confidence`, the accuracy, risk or coverage is guaranteed for new rows like these, and `Infeasible` is raised
    if that cannot be certified. The threshold is then chosen on rows that nothing else has used: on `fresh`, a pair
    (scores, labels), or otherwise on four fifths of the rows, because calibration and fit need few (at least 50, unless
    that is more than half). The content of the rows decides which are used for what, so their order does not matter and
    there is no seed. `calibration.rows` and `threshold.rows` are the numbers of rows used. Rows with the same scores
    count once, because they may be copies (except for a confidence of any kind, which ties by nature). If a model
    gives many examples the same scores, as kNN does, pass `groups`: a value for each row that identifies its example
    (for the rows of `fresh`, if you pass it). Rows of a group stay together.

    >>> logits = np.array([[4.0, 0.0], [0.1, 0.0], [0.0, 3.0], [0.0, 0.2]] * 5)
    >>> rejector = fit_rejector(logits, [0, 1, 1, 0] * 5, accuracy=0.98)
    >>> rejector.threshold.coverage
    0.5
    >>> rejector.evaluate(logits, [0, 1, 1, 0] * 5).accuracy.value
    1.0
    >>> fit_rejector(scores=[0.9, 0.8, 0.6, 0.3] * 5, correct=[1, 1, 0, 0] * 5, accuracy=0.98).reject([0.85, 0.5])
    array([False,  True])
    """
    rule, correct, lower_is_better = rule_of(target), target.get("correct"), target.get("lower_is_better", False)
    if (labels is None) == (correct is None):
        raise OptionError("give either `labels` or, for scores of any kind, `correct`")
    if correct is None and lower_is_better:
        raise OptionError("`lower_is_better` requires `correct`: it is about scores of any kind")
    _check_numbers(alpha=alpha, lam=lam, floor=floor)
    if fresh is not None and rule.confidence is None:
        raise OptionError("`fresh` requires `confidence`: a guarantee needs rows that nothing else has seen")
    columns = arrays.frame_pattern(scores) if classes is None and correct is None else None
    options = DumpOptions(
        input=input, classes=arrays.as_names(classes), logits=columns, normalize=normalize, model=target.get("model")
    )
    if correct is not None:
        options = replace(options, score=arrays.score_names(scores), correct=CORRECT, lower_is_better=lower_is_better)
        labels = correct
    groups = None if target.get("groups") is None else arrays.as_groups(target["groups"])
    if groups is not None and rule.confidence is None:
        raise OptionError("`groups` requires `confidence`: it tells rows with the same scores apart")
    example = None if groups is None else arrays.GROUP
    first, second = (scores, labels), fresh
    if rule.confidence is not None and fresh is None:
        rows = as_scores(matched(scores, options.classes, columns)) if correct is None else as_columns(scores)
        marks = arrays.as_labels(labels)
        chosen = _certifying(rows, marks, groups, input == "probs", by_place=correct is not None)
        first, second = ((rows[part], marks.filter(pa.array(part))) for part in (~chosen, chosen))
        groups = None if groups is None else groups.filter(pa.array(chosen))
    with arrays.array_source(*first, options) as source:
        start = calibrate(source, CalibrateOptions(floor=floor, calibrator=calibrator))
        start = replace(start, columns=replace(start.columns, logits=columns or start.columns.logits))
        fitted, cautions = fit(source, start, RatioOptions(alpha, lam, loss)), source.cautions
        if second is None:
            found = choose_threshold(source, fitted, rule)
    if second is not None:
        with arrays.array_source(*second, options, groups) as source:
            chosen_on = ThresholdOptions(known_fresh=fresh is None, group=example)
            found = choose_threshold(source, fitted, rule, chosen_on)
    tell([*cautions, *calibration_warnings(start.need_calibration()), found.caution, vacuous_words(found.rejector)])
    return Rejector.of(found.rejector)


def _certifying(
    rows: arrays.Array, labels: pa.Array, groups: pa.Array | None, probabilities: bool, by_place: bool
) -> Booleans:
    """The rows that do not fit, chosen by their groups or by what they hold, so that copies of a row stay together.

    Scores of any kind tie by nature: such rows go by their place.
    """
    arrays.check_length(rows, labels, LABEL)
    if len(rows) < 2:
        raise OptionError("`confidence` needs more rows: some fit, the others choose the threshold")
    if groups is None and by_place:
        keys = mixed(np.arange(len(rows), dtype=np.uint64))
    elif groups is None:
        keys = content_keys(rows.reshape(len(rows), -1))
        again = int(np.count_nonzero(repeats(np.column_stack([keys, near_keys(rows, probabilities)]))))
        if again > MOST_REPEATS * len(rows):
            raise OptionError(
                f"{again} of {len(rows)} rows have the same scores as another row, so those that choose the "
                "threshold would not be like new rows; drop the repeats, or if they are different examples, as with "
                "kNN, pass `groups=range(len(scores))`"
            )
    else:
        arrays.check_length(rows, groups, arrays.GROUP)
        keys = mixed(pc.rank(groups, tiebreaker="dense").to_numpy())
    chosen: Booleans = keys > np.sort(keys)[max(1, round(fit_share(keys.size) * keys.size)) - 1]
    return chosen


def _check_numbers(**given: Any) -> None:
    for name, value in given.items():
        if value is not None and (isinstance(value, bool | np.bool_) or not isinstance(value, Real)):
            raise OptionError(f"`{name}={value!r}`: it must be a number")


_NO_TARGETS = ("groups", "correct", "lower_is_better", "model")


def rule_of(target: Target) -> Rule:
    """The rule of these targets; raises for what is unknown, no number, or a contradiction."""
    for name in target:
        if name not in Target.__annotations__:
            raise TypeError(f"fit_rejector() got an unexpected keyword argument '{name}'")
    more = {name: target.get(name) for name in ("confidence", "error_cost", "per", "reviewer_accuracy")}
    targets: dict[str, Any] = {name: value for name, value in target.items() if name not in (*more, *_NO_TARGETS)}
    for name, value in targets.items():
        by_class = isinstance(value, Mapping) and name in ("accuracy", "risk", "max_missed")
        _check_numbers(**({f"{name}={group}": each for group, each in value.items()} if by_class else {name: value}))
        if by_class:
            targets[name] = {str(group): each for group, each in value.items()}
    _check_numbers(**more)
    rules = ("accuracy", "risk", "coverage", "review_cost", "tau", "max_loss")
    return one_rule({**dict.fromkeys(rules), **targets}, **more)
