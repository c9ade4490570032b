"""The rejector and the report as Python has them: documents of the command line, made of arrays and applied to them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import asdict, replace

from drrej.api.arrays import (
    CORRECT,
    GROUP,
    SCORE,
    Array,
    array_source,
    as_columns,
    as_groups,
    as_labels,
    as_names,
    as_scores,
    check_length,
    has_no_rows,
    matched,
    options_of,
)
from drrej.core.calibrators import CalibratorName
from drrej.core.losses import Loss
from drrej.core.reuse import MOST_REPEATS, content_keys, mixed, near_keys, repeats
from drrej.core.thresholds import Rule, one_rule
from drrej.core.types import Booleans, Floats, InputKind
from drrej.data.columns import LABEL
from drrej.data.dump import Block, DumpOptions
from drrej.documents.gates import Gate
from drrej.documents.rejector import Rejector as Document
from drrej.documents.report import Report as ReportDocument
from drrej.documents.words import calibration_warnings
from drrej.engines.protocol import Pass
from drrej.errors import DrrejWarning, OptionError, RejectorError, ReportError
from drrej.outputs.destinations import OutputFile
from drrej.pipeline.calibrate import CalibrateOptions, calibrate
from drrej.pipeline.collect import collect
from drrej.pipeline.evaluate import EvaluateOptions, evaluate
from drrej.pipeline.fit import RatioOptions, fit
from drrej.pipeline.score import Scored, Scorer
from drrej.pipeline.split import fit_share
from drrej.pipeline.threshold import ThresholdOptions, choose_threshold
from drrej.report import need_libraries
from drrej.report.page import render_notebook
from drrej.report.plots import curve_figure
from drrej.report.words import warnings_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Gates = Sequence[Gate | str] | str
"""Gates, or texts like "accuracy >= 0.97"; one text alone will do."""


def tell(words: Iterable[str | None], levels: int = 2) -> None:
    """Warn the caller of the function that is so many levels up."""
    for line in words:
        if line:
            warnings.warn(line, DrrejWarning, stacklevel=levels + 1)


def as_gates(gates: Gates) -> list[Gate]:
    """Gates, parsed where they are texts."""
    listed = [gates] if isinstance(gates, str) else gates
    return [Gate.parse(gate) if isinstance(gate, str) else gate for gate in listed]


class Report(ReportDocument, frozen=True):
    """What `evaluate` found: `report.coverage.value`, `report["accuracy"]["lower"]`, `report.failed_gates`.

    A notebook shows it as tables; `to_json` is the document that the command line writes.
    """

    @classmethod
    def of(cls, document: ReportDocument) -> Self:
        """A document as a report that can show itself."""
        return cls(**asdict(document))

    def __repr__(self) -> str:
        """A line; `to_json` has all of it."""
        told = [f"{self.rows} rows", f"coverage {self.coverage.value:.4g}"]
        if self.accuracy is not None and self.accuracy.value is not None:
            told.append(f"accuracy {self.accuracy.value:.4g}")
        if self.target is not None:
            told.append(f"target {self.target.verdict}")
        return f"<drrej.Report: {', '.join(told)}>"

    def _repr_html_(self) -> str:
        """For notebooks; needs nothing besides drrej."""
        return render_notebook(self)

    def plot(self) -> Figure:
        """Accuracy against coverage, as a matplotlib figure (extra `plot`); a notebook shows it."""
        if self.coverage_curve is None:
            raise ReportError("the curve needs labels; this report was made without")
        need_libraries("png", "plot")
        return curve_figure(self)


class ScoredArrays(Struct, frozen=True):
    """What a rejector makes of each row: prediction, expected loss L', density ratio, and whether it is rejected."""

    prediction: Array
    loss: Floats
    ratio: Floats
    rejected: Booleans


class Rejector(Document, frozen=True):
    """A rejector: what `fit_rejector` or the steps on files have made, applied to arrays.

    `scores` are what it was fitted on: logits or probabilities (rows x classes), or one score per row for the class 1
    of a binary classifier. numpy arrays, lists, torch CPU tensors, data frames and whatever else has `__array__` or
    DLPack will do. Every number has the same bits as on the command line, which reads what `save` has written.

    >>> logits = np.array([[4.0, 0.0], [0.1, 0.0], [0.0, 3.0], [0.0, 0.2]] * 5)
    >>> from drrej import fit_rejector
    >>> rejector = fit_rejector(logits, [0, 1, 1, 0] * 5, coverage=0.5, loss="log")
    >>> rejector
    <drrej.Rejector: 2 classes from logits, temperature 0.9377, log loss, alpha 1, lambda 1, tau 0.7233, coverage 0.5>
    >>> labels, rejected = rejector.predict(logits[:4])
    >>> labels.tolist(), rejected.tolist()
    ([0, 0, 1, 1], [False, True, False, True])
    """

    @classmethod
    def of(cls, document: Document) -> Self:
        """A document as a rejector for arrays."""
        return cls(**asdict(document))

    def __repr__(self) -> str:
        """A line; `to_json` has all of it, also the fingerprints of the rows it was made on, which fill pages."""
        told = [f"{self.classes} classes from {self.input}" if self.has_predictions else self.task]
        if self.is_scored and self.calibration is not None:
            told = [f"score '{self.columns.logits}' by {self.calibration.method}"]
        if self.calibration is not None and self.has_predictions:
            told.append(f"temperature {self.calibration.temperature:.4g}")
        if self.ratio is not None:
            told.append(f"{self.ratio.loss.name} loss, alpha {self.ratio.alpha:g}, lambda {self.ratio.lam:g}")
        if self.threshold is not None:
            chosen = self.threshold
            tau = f"tau {chosen.tau:.4g}" if chosen.tau is not None else f"by {chosen.by}" if chosen.by else "no tau"
            told.append(f"{tau}, coverage {chosen.coverage:.4g}")
        return f"<drrej.Rejector: {', '.join(told)}>"

    def score(self, scores: Any) -> ScoredArrays:
        """Prediction, loss, ratio and decision of each row; predictions are class names where the classes have them."""
        found = self._columns(
            scores,
            lambda rows: {
                "prediction": rows.prediction,
                "loss": rows.loss,
                "ratio": rows.ratio,
                "rejected": ~rows.accepted,
            },
        )
        if self.class_names is not None:
            found["prediction"] = np.array(self.class_names)[found["prediction"]]
        return ScoredArrays(**found)

    def reject(self, scores: Any) -> Booleans:
        """Which rows are rejected (rows,).

        >>> logits = np.array([[4.0, 0.0], [0.1, 0.0], [0.0, 3.0], [0.0, 0.2]] * 5)
        >>> from drrej import fit_rejector
        >>> fit_rejector(logits, [0, 1, 1, 0] * 5, accuracy=0.98).reject(logits[:4]).tolist()
        [False, True, False, True]
        """
        return self.score(scores).rejected

    def predict(self, scores: Any) -> tuple[Array, Booleans]:
        """The prediction of each row (rows,), and whether it is rejected (rows,)."""
        scored = self.score(scores)
        return scored.prediction, scored.rejected

    def probabilities(self, scores: Any) -> Floats:
        """Calibrated probabilities (rows x classes); each row sums to 1.

        >>> logits = np.array([[2.0, 0.0], [0.0, 1.0]] * 10)
        >>> from drrej import fit_rejector
        >>> rejector = fit_rejector(logits, ([0, 1] * 4 + [1, 0]) * 2, coverage=0.5)
        >>> p, scaled = rejector.probabilities([[2.0, 0.0]]), 2.0 / rejector.calibration.temperature
        >>> bool(abs(p[0, 0] - 1 / (1 + np.exp(-scaled))) < 1e-15), round(float(p.sum()), 12)
        (True, 1.0)
        """

        def normalised(rows: Scored) -> dict[str, Array]:
            powers = rows.calibrated.powers(slice(None))
            return {"probabilities": powers / powers.sum(axis=1, keepdims=True)}

        return self._columns(scores, normalised)["probabilities"]

    def _columns(self, scores: Any, of_rows: Callable[[Scored], dict[str, Array]]) -> dict[str, Array]:
        """Columns that a function makes of the rows."""
        self.need_threshold()
        if has_no_rows(scores):  # as a batch may be: what a row would give, without the row
            row = np.zeros(self.classes) if self.input == "logits" else np.full(self.classes, 1 / self.classes)
            row = np.log(row) if self.input == "log-probs" else row
            if self.is_scored:
                row = np.full(len(self.columns.logits.split(",")), 0.5)
            one = self._columns(row[:1] if self.binary else row[None], of_rows)
            return {name: column[:0] for name, column in one.items()}
        with array_source(scores, None, options_of(self)) as source:
            dump = source.open(self, labelled=False)
            scorer = Scorer(self, dump)

            def of_block(block: Block) -> dict[str, Array]:
                return of_rows(scorer(block))

            return collect(source, dump, of_block, Pass("scoring", labelled=False))

    def evaluate(
        self, scores: Any, labels: Any = None, gates: Gates = (), options: EvaluateOptions | None = None
    ) -> Report:
        """The coverage report. Without labels: what can be said without them.

        Where the rejector was made of scores of any kind, `labels` tell whether each row was right.
        `gates` are texts like "accuracy >= 0.97"; `report.failed_gates` are those that did not pass.
        """
        if options is None:
            options = EvaluateOptions(labels=labels is not None)
        with array_source(scores, labels, options_of(self)) as source:
            report = evaluate(source, self, as_gates(gates), options)
        tell(warnings_of(report))
        return Report.of(report)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the document, whole or not at all; what was there before is replaced."""
        with OutputFile(os.fspath(path), force=True) as file:
            file.write_text(self.to_json())
            file.commit()

    @classmethod
    def load(cls, path: str | os.PathLike[str], accept_edited: bool = False) -> Self:
        """Read a document that `save` or the command line has written; one that was edited since is refused."""
        try:
            with open(path, encoding="utf-8") as stream:
                text = stream.read()
        except (OSError, UnicodeDecodeError) as error:
            raise RejectorError(f"{os.fspath(path)}: cannot be read ({error})") from None
        return cls.of(cls.from_json(text, os.fspath(path), accept_edited))


AnyRejector = Document | str | os.PathLike[str]
"""A rejector, or the path of one."""


def as_document(rejector: AnyRejector) -> Document:
    """A rejector that may be named by its path."""
    return rejector if isinstance(rejector, Document) else Rejector.load(rejector)


ClassTarget = float | Mapping[str, float] | None
"""A target, or one for each class that is named (by its number where classes have no names); "" is every other one."""


class Target(TypedDict, total=False):
    """What `fit_rejector` is to keep: one rule or several promises, and with what confidence.

    `groups` says which rows are one example; `correct` and `lower_is_better` are about scores of any kind.
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


def fit_rejector(
    scores: Any,
    labels: Any = None,
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
    calibrator: CalibratorName | None = None,
    **target: Unpack[Target],
) -> Rejector:
    """Calibrate, fit and choose a threshold on labelled rows.

    `scores` are logits (rows x classes), or with `input="probs"` probabilities; one score per row means a binary
    classifier's class 1. numpy arrays, lists, torch CPU tensors, data frames and whatever has `__array__` or DLPack
    will do. `labels` (rows,) are class numbers from 0, or names with `classes`, which has them in the order of the
    scores.

    Rows that have no scores of classes bring any confidence in their place, one number per row or a few, and `correct`
    (rows,) tells which of them were right; with `lower_is_better` low ones are good. Then `predict` answers 0 always,
    `evaluate` takes the same in place of labels, and `calibrator` is "logistic", "beta", "isotonic" or "auto".

    Exactly one rule: `accuracy` or `risk` of the accepted rows, `coverage`, `tau`, `max_loss`, or the least total cost,
    where a rejected row costs `review_cost` and an accepted error `error_cost`. `coverage` may also stand beside
    `accuracy` or `risk`, to be kept together with it.

    Several promises together: `accuracy={"fraud": 0.9, "": 0.998}` of the accepted rows that are predicted as a class
    ("": every other class), `max_missed={"fraud": 0.05}` of the rows of a true class that are accepted as another one,
    `overall_risk` (with `reviewer_accuracy`) of all rows, `reviews=200` of `per=10000` rows, `coverage`, and an
    `accuracy` or `risk` of all accepted rows. Each predicted class has its own cutoff then. `loss`, `alpha`, `lam` and
    `effective_sample` are those of the command line, as are `normalize` and `floor` for probabilities, and
    `calibrator`: one "temperature", or a weight and a bias per class ("vector", or "beta" of two
    classes), or what cross-validation says ("auto").

    With `confidence` the accuracy, risk or coverage is guaranteed for new rows like these, and `Infeasible` is raised
    where that cannot be certified. The threshold is then chosen on rows that nothing else has seen: on `fresh`, a pair
    (scores, labels), or without it on four fifths of the rows: few rows are enough to calibrate and fit on (at least
    50, unless that is more than half). Which rows do what is settled by what they hold: any order of the rows gives the
    same rejector, and there is no seed to be lucky with. `calibration.rows` and `threshold.rows` say how many. Rows
    with the same scores count once, since they may be copies. Where a model gives many examples the same scores, as kNN
    does, pass `groups`: a value for each row that tells examples apart (those of `fresh` if that is given). Rows of a
    group stay together.

    >>> logits = np.array([[4.0, 0.0], [0.1, 0.0], [0.0, 3.0], [0.0, 0.2]] * 5)
    >>> rejector = fit_rejector(logits, [0, 1, 1, 0] * 5, accuracy=0.98)
    >>> rejector.threshold.coverage
    0.5
    >>> rejector.evaluate(logits, [0, 1, 1, 0] * 5).accuracy.value
    1.0
    >>> fit_rejector(scores=[0.9, 0.8, 0.6, 0.3] * 5, correct=[1, 1, 0, 0] * 5, accuracy=0.98).reject([0.85, 0.5])
    array([False,  True])
    """
    rule, correct, lower_is_better = _rule(target), target.get("correct"), target.get("lower_is_better", False)
    if (labels is None) == (correct is None):
        raise OptionError("give either `labels` or, for scores of any kind, `correct`")
    if correct is None and lower_is_better:
        raise OptionError("`lower_is_better` requires `correct`: it is about scores of any kind")
    _check_numbers(alpha=alpha, lam=lam, effective_sample=effective_sample, floor=floor)
    if fresh is not None and rule.confidence is None:
        raise OptionError("`fresh` goes with `confidence`: a guarantee needs rows that nothing else has seen")
    options = DumpOptions(input=input, classes=as_names(classes), normalize=normalize)
    if correct is not None:
        names = [SCORE] if (count := as_columns(scores).shape[1]) == 1 else [f"{SCORE}_{i}" for i in range(count)]
        options = replace(options, score=",".join(names), correct=CORRECT, lower_is_better=lower_is_better)
        labels = correct
    groups = None if target.get("groups") is None else as_groups(target["groups"])
    if groups is not None and rule.confidence is None:
        raise OptionError("`groups` requires `confidence`: it tells rows with the same scores apart")
    example = None if groups is None else GROUP
    first, second = (scores, labels), fresh
    if rule.confidence is not None and fresh is None:
        rows = as_scores(matched(scores, options.classes)) if correct is None else as_columns(scores)
        marks = as_labels(labels)
        chosen = _certifying(rows, marks, groups, input == "probs", by_place=correct is not None)
        first, second = ((rows[part], marks.filter(pa.array(part))) for part in (~chosen, chosen))
        groups = None if groups is None else groups.filter(pa.array(chosen))
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


def _certifying(
    rows: Array, labels: pa.Array, groups: pa.Array | None, probabilities: bool, by_place: bool
) -> Booleans:
    """The rows that do not fit, chosen by their groups or by what they hold, so that copies of a row stay together.

    Scores of any kind tie by nature: such rows go by their place.
    """
    check_length(rows, labels, LABEL)
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
                "threshold would not be like new rows; drop the repeats, or if they are different examples pass "
                "`groups`, a value for each row that tells them apart"
            )
    else:
        check_length(rows, groups, GROUP)
        keys = mixed(pc.rank(groups, tiebreaker="dense").to_numpy())
    chosen: Booleans = keys > np.sort(keys)[max(1, round(fit_share(keys.size) * keys.size)) - 1]
    return chosen


def _check_numbers(**given: Any) -> None:
    for name, value in given.items():
        if value is not None and (isinstance(value, bool | np.bool_) or not isinstance(value, Real)):
            raise OptionError(f"`{name}={value!r}`: it must be a number")


_NO_TARGETS = ("groups", "correct", "lower_is_better")


def _rule(target: Target) -> Rule:
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
