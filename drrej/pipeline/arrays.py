"""Rejectors for arrays: from the logits or probabilities of a model to decisions, without files.

Arrays go through the same steps as dumps, so every number has the same bits as on the command line.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drrej.core.losses import Loss
from drrej.core.row_keys import content_keys
from drrej.core.thresholds import ERROR_RULES, Rule
from drrej.core.types import Booleans, Floats, InputKind
from drrej.data.columns import LABEL, LOGITS
from drrej.data.dump import Block, DumpOptions
from drrej.data.readers.memory import held
from drrej.documents.rejector import Rejector
from drrej.documents.report import Report
from drrej.engines.protocol import Pass
from drrej.errors import DumpError, OptionError, RejectorError
from drrej.pipeline.application import Application
from drrej.pipeline.calibrate import CalibrateOptions, calibrate
from drrej.pipeline.evaluate import evaluate
from drrej.pipeline.evaluate_options import EvaluateOptions
from drrej.pipeline.fit import RatioOptions, fit
from drrej.pipeline.passes import map_blocks
from drrej.pipeline.source import Source
from drrej.pipeline.threshold import ThresholdOptions, threshold

_SCORES, _LABELS = LOGITS, LABEL


@dataclass(frozen=True)
class ScoredArrays:
    """What a rejector makes of each row: prediction, expected loss L', density ratio, and whether it is rejected."""

    prediction: np.ndarray[Any, Any]
    loss: Floats
    ratio: Floats
    rejected: Booleans


@dataclass(frozen=True)
class ArrayRejector:
    """A finished rejector that is applied to arrays (rows x classes, or one score per row of a binary classifier).

    `document` is what the command line reads and writes.
    """

    document: Rejector

    def score(self, scores: Any) -> ScoredArrays:
        """Prediction, loss, ratio and decision of each row."""
        with _source(scores, None, _remembered(self.document)) as source:
            dump = source.open(self.document, labelled=False)
            application = Application(self.document, dump)

            def of_block(block: Block) -> tuple[Any, ...]:
                scored = application(block)
                return scored.prediction, scored.loss, scored.ratio, ~scored.accepted

            blocks = list(map_blocks(source, dump, of_block, Pass("scoring", labelled=False)))
        prediction, loss, ratio, rejected = (np.concatenate(column) for column in zip(*blocks, strict=True))
        names = self.document.class_names
        return ScoredArrays(prediction if names is None else np.array(names)[prediction], loss, ratio, rejected)

    def reject(self, scores: Any) -> Booleans:
        """Which rows are rejected.

        >>> logits = np.array([[4.0, 0.0], [0.1, 0.0], [0.0, 3.0], [0.0, 0.2]] * 5)
        >>> rejector = fit_rejector(logits, [0, 1, 1, 0] * 5, coverage=0.5)
        >>> rejector.reject(logits[:4]).tolist()
        [False, True, False, True]
        """
        return self.score(scores).rejected

    def predict(self, scores: Any) -> tuple[np.ndarray[Any, Any], Booleans]:
        """The prediction of each row, and whether it is rejected."""
        scored = self.score(scores)
        return scored.prediction, scored.rejected

    def evaluate(self, scores: Any, labels: Any, options: EvaluateOptions | None = None) -> Report:
        """The coverage report on labelled rows."""
        with _source(scores, labels, _remembered(self.document)) as source:
            return evaluate(source, self.document, options=options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the document, whole or not at all; what was there before is replaced."""
        from drrej.outputs.files import OutputFile

        with OutputFile(os.fspath(path), force=True) as file:
            file.write_text(self.document.to_json())
            file.commit()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ArrayRejector:
        """Read a finished rejector that `save` or the command line has written."""
        try:
            with open(path, encoding="utf-8") as stream:
                document = Rejector.from_json(stream.read(), os.fspath(path))
        except (OSError, UnicodeDecodeError) as error:
            raise RejectorError(f"{os.fspath(path)}: cannot be read ({error})") from None
        document.need_threshold()
        return cls(document)


@dataclass(frozen=True)
class ArrayOptions:
    """How arrays are read and the rejector is fitted; see `fit_rejector`."""

    input: InputKind | None = None
    classes: Sequence[str] | None = None
    normalize: bool = False
    floor: float | None = None
    ratio: RatioOptions = field(default_factory=RatioOptions)


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
    loss: str | Loss = "log",
    alpha: float = 1.0,
    lam: float = 1.0,
    input: InputKind | None = None,
    classes: Sequence[str] | None = None,
) -> ArrayRejector:
    """Calibrate, fit and choose a threshold on labelled rows.

    `scores` are logits (rows x classes), or with `input="probs"` probabilities; one score per row means a binary
    classifier's class 1. numpy arrays, lists, torch CPU tensors and anything with `__array__` or DLPack will do.
    `labels` are class numbers from 0, or names with `classes`. Exactly one rule: `accuracy` or `risk` of the accepted
    rows, `coverage`, `tau`, `max_loss`, or the least total cost, where a rejected row costs `review_cost` and an
    accepted error `error_cost`. `coverage` may also stand beside `accuracy` or `risk`, to be kept together with it.
    With `confidence` the accuracy or coverage is guaranteed for new rows; then half of the rows, drawn by their
    content, calibrate and fit, and the others choose the threshold.

    >>> logits = np.array([[4.0, 0.0], [0.1, 0.0], [0.0, 3.0], [0.0, 0.2]] * 5)
    >>> fit_rejector(logits, [0, 1, 1, 0] * 5, accuracy=0.98).document.threshold.coverage
    0.5
    """
    rules = {"accuracy": accuracy, "risk": risk, "coverage": coverage, "tau": tau, "max-loss": max_loss}
    rule = _rule({**rules, "cost": review_cost}, confidence, error_cost)
    options = ArrayOptions(input, classes, ratio=RatioOptions(alpha, lam, loss))
    if confidence is None:
        with _source(scores, labels, options) as source:
            fitted = fit(source, calibrate(source, CalibrateOptions(floor=options.floor)), options.ratio)
            return ArrayRejector(threshold(source, fitted, rule))
    rows, marks = as_scores(scores), np.asarray(as_labels(labels))
    keys = content_keys(rows)
    first = keys <= np.sort(keys)[(keys.size - 1) // 2]
    with _source(rows[first], marks[first], options) as source:
        fitted = fit(source, calibrate(source, CalibrateOptions(floor=options.floor)), options.ratio)
    with _source(rows[~first], marks[~first], options) as source:
        return ArrayRejector(threshold(source, fitted, rule, ThresholdOptions()))


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


def _remembered(document: Rejector) -> ArrayOptions:
    return ArrayOptions(document.input, document.class_names, document.normalize)


@contextlib.contextmanager
def _source(scores: Any, labels: Any, options: ArrayOptions) -> Iterator[Source]:
    """Arrays as a dump."""
    rows = as_scores(scores)
    binary = rows.ndim == 1
    values = pa.array(np.ascontiguousarray(rows).reshape(-1))
    columns = {_SCORES: values if binary else pa.FixedSizeListArray.from_arrays(values, rows.shape[1])}
    if labels is not None:
        marks = as_labels(labels)
        if len(marks) != len(rows):
            raise DumpError(f"there are {len(rows)} rows of scores but {len(marks)} labels; each row needs its label")
        columns[_LABELS] = marks
    names = None if options.classes is None else tuple(options.classes)
    reading = DumpOptions(
        logits=_SCORES,
        label=_LABELS,
        input=options.input,
        normalize=options.normalize,
        binary=binary,
        classes=names,
    )
    with held(pa.table(columns), "arrays") as part:
        yield Source(part.path, reading, spools={part.path: part})


def as_scores(scores: Any) -> np.ndarray[Any, Any]:
    """Scores as a floating-point array: rows x classes, or one score per row."""
    array = _as_array(scores, "scores")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim not in (1, 2) or not array.size:
        raise DumpError(f"scores have the shape {array.shape}; rows x classes is needed, or one score per row")
    if array.dtype.kind in "iu":
        array = array.astype(np.float64)
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise DumpError(f"scores are {array.dtype}; they must be numbers: float16, float32 or float64")
    return array


def as_labels(labels: Any) -> pa.Array:
    """Labels as a column: class numbers, or names."""
    array = _as_array(labels, "labels")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DumpError(
            f"labels have the shape {array.shape}; one label per row is needed (class numbers, not one-hot)"
        )
    if array.dtype.kind == "O":
        try:
            return pa.array(array.tolist())
        except pa.ArrowException:
            raise DumpError("labels are of several kinds; they must be class numbers, or names") from None
    return pc.cast(pa.array(array), pa.string()) if array.dtype.kind == "U" else pa.array(array)


def _as_array(values: Any, what: str) -> np.ndarray[Any, Any]:
    """Lists, numpy arrays, torch CPU tensors, and what has `__array__` or DLPack."""
    if hasattr(values, "detach"):  # a torch tensor, perhaps one that is trained
        values = values.detach()
    try:
        if hasattr(values, "__dlpack__") and not hasattr(values, "__array__"):
            return np.from_dlpack(values)
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DumpError(f"{what} cannot be read as an array ({reason})") from None
