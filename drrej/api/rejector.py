"""The rejector as Python has it: the document of the command line, applied to arrays.

Rows that are usable go straight to the sums of `drrej.core`, with numpy alone; where there is anything to complain of,
they go the way of files (`drrej.pipeline`), which knows the words.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from drrej.api.arrays import Array, array_source, as_scores, has_no_rows, matched, options_of, warn_of_probabilities
from drrej.core.inputs import WORDS, row_logits
from drrej.core.one_row import MOST_CLASSES, Unusual, row_scores
from drrej.core.types import Booleans, Floats, Integers
from drrej.documents.rejector import Rejector as Document
from drrej.errors import OptionError, RejectorError

if TYPE_CHECKING:
    from drrej.api.report import Gates, Report
    from drrej.pipeline.evaluate import EvaluateOptions
    from drrej.pipeline.score import Scored

_Decided = tuple[Integers, Floats, Booleans]
"""Prediction, loss, and whether it is rejected, of each row."""


class ScoredArrays(Struct, frozen=True):
    """What a rejector makes of each row: prediction, expected loss L', density ratio, and whether it is rejected."""

    prediction: Array
    loss: Floats
    ratio: Floats
    rejected: Booleans


class Rejector(Document, frozen=True):
    """A rejector, as made by `fit_rejector` or by the steps on files, applied to arrays.

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
        """Prediction, loss, ratio and decision of each row; predictions are class names if there are any."""
        prediction, loss, rejected = self._decided(scores)
        return ScoredArrays(self._titles[prediction], loss, self.need_ratio().density.ratio(loss), rejected)

    def reject(self, scores: Any) -> Booleans:
        """Which rows are rejected (rows,).

        >>> logits = np.array([[4.0, 0.0], [0.1, 0.0], [0.0, 3.0], [0.0, 0.2]] * 5)
        >>> from drrej import fit_rejector
        >>> fit_rejector(logits, [0, 1, 1, 0] * 5, accuracy=0.98).reject(logits[:4]).tolist()
        [False, True, False, True]
        """
        return self._decided(scores)[2]

    def predict(self, scores: Any) -> tuple[Array, Booleans]:
        """The prediction of each row (rows,), and whether it is rejected (rows,)."""
        prediction, _, rejected = self._decided(scores)
        return self._titles[prediction], rejected

    @cached_property
    def _titles(self) -> Array:
        """What each class is called: its name, or its number."""
        return np.arange(self.classes) if self.class_names is None else np.array(self.class_names)

    @cached_property
    def _cutoffs(self) -> list[float] | None:
        """The cutoff of each predicted class; None where others decide than the scores: a column of groups."""
        threshold, classes = self.need_threshold(), self.class_titles
        own = {group.group: group.cutoff for group in threshold.groups or ()}
        if self.is_scored or threshold.by not in (None, "prediction") or (own and not own.keys() >= set(classes)):
            return None
        found = [own[name] for name in classes] if own else [threshold.cutoff] * self.classes
        return [np.inf if cutoff is None else cutoff for cutoff in found]

    def _decided(self, scores: Any) -> _Decided:
        """Prediction and loss of each row, and whether it is rejected."""
        if (found := self._at_once(scores)) is not None:
            return found
        columns = self._columns(
            scores, lambda rows: {"prediction": rows.prediction, "loss": rows.loss, "rejected": ~rows.accepted}
        )
        return columns["prediction"], columns["loss"], columns["rejected"]

    def _at_once(self, scores: Any) -> _Decided | None:
        """The same by numpy alone; None where the way of files is needed: it says what is wrong."""
        cutoffs, ratio = self._cutoffs, self.need_ratio()
        if cutoffs is None or ratio.loss.columns or has_no_rows(scores):
            return None
        rows = as_scores(matched(scores, self.class_names, self.columns.logits))
        if rows.ndim != 2 - self.binary or (not self.binary and rows.shape[1] != self.classes):
            return None
        logits = row_logits(rows, self.input, self.normalize, self.floor)
        if logits is None:
            return None
        look = self.input == "logits" and not self.binary
        needs, scale = ratio.loss.needs, ratio.loss.scale
        if len(rows) == 1 and self.classes <= MOST_CLASSES and ratio.loss.of_one_row:
            try:
                row, largest = row_scores(self.calibrator, logits[0], needs, self.precision, scale)
            except Unusual:
                pass
            else:
                if look and largest <= 1.0 + 1e-6:
                    warn_of_probabilities(rows)
                place, loss = ratio.loss.of(row, {})
                return np.array([place]), np.array([loss]), np.array([not loss < cutoffs[place]])
        after = needs if scale is None else None  # what it ranks by is all that is needed
        calibrated, before = self.calibrator.scores(logits, after, self.precision, None, scale)
        if not np.isfinite(before.largest).all():
            return None
        if look and (50 * np.count_nonzero(before.largest <= 1.0 + 1e-6) >= len(rows) or logits[0].min() >= 0):
            warn_of_probabilities(rows, before.largest)
        prediction, loss = ratio.loss.of(calibrated, {})
        return prediction, loss, ~(loss < np.array(cutoffs)[prediction])

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
        """Columns that a function makes of the rows, by the way of files."""
        from drrej.pipeline.collect import collect_scored
        from drrej.pipeline.score import Scorer

        self.need_threshold()
        if has_no_rows(scores):  # as a batch may be: what a row would give, without the row
            row = np.zeros(self.classes) if self.input == "logits" else np.full(self.classes, 1 / self.classes)
            row = np.log(row) if self.input == "log-probs" else row
            if self.is_scored:
                names = self.columns.logits.split(",")
                row = np.array(["medium" if name.endswith(WORDS) else "0.5" for name in names])
            one = self._columns(row[:1] if self.binary else row[None], of_rows)
            return {name: column[:0] for name, column in one.items()}
        with array_source(scores, None, options_of(self)) as source:
            dump = source.open(self, labelled=False)
            return collect_scored(source, dump, Scorer(self, dump), of_rows, "scoring", labelled=False)

    def evaluate(
        self,
        scores: Any,
        labels: Any = None,
        gates: Gates = (),
        options: EvaluateOptions | None = None,
        model: str | None = None,
        *,
        correct: Any = None,
        groups: Any = None,
    ) -> Report:
        """The report on these rows. Without labels it has only what needs none.

        If the rejector was made from scores of any kind, `correct` is whether each row was right. `gates` are texts
        like "accuracy >= 0.97"; `report.failed_gates` are those that failed. `model` is what made the scores, as
        NAME@VERSION, if it may differ from that of the rejector. Rows with the same scores count once; if they are
        different examples, as with kNN, pass `groups`: a value for each row that identifies its example.
        """
        from drrej.api.arrays import GROUP, as_groups
        from drrej.api.report import Report, as_gates, tell
        from drrej.pipeline.evaluate import EvaluateOptions, evaluate
        from drrej.report.words import warnings_of

        if correct is not None and (labels is not None or not self.is_scored):
            raise OptionError("`correct` takes the place of `labels` where the rejector was made of scores of any kind")
        labels = labels if correct is None else correct
        options = options or EvaluateOptions(labels=labels is not None)
        if groups is not None:
            groups, options = as_groups(groups), replace(options, group=GROUP)
        with array_source(scores, labels, replace(options_of(self), model=model), groups) as source:
            report = evaluate(source, self, as_gates(gates), options)
        tell(warnings_of(report))
        return Report.of(report)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the document, whole or not at all; what was there before is replaced."""
        from drrej.outputs.destinations import OutputFile

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
