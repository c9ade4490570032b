"""The rejector as Python has it: the document that the command line reads and writes, applied to arrays."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Self

import numpy as np

from drrej.api.arrays import Array, ArrayOptions, array_source, has_no_rows
from drrej.api.gates import Gates, as_gates
from drrej.api.report import Report
from drrej.core.types import Booleans, Floats
from drrej.data.dump import Block
from drrej.documents.rejector import Rejector as Document
from drrej.engines.protocol import Pass
from drrej.errors import RejectorError
from drrej.outputs.destinations import OutputFile
from drrej.pipeline.evaluate import EvaluateOptions, evaluate
from drrej.pipeline.passes import map_blocks
from drrej.pipeline.score import Scored, Scorer
from drrej.records import dataclass


@dataclass(frozen=True)
class ScoredArrays:
    """What a rejector makes of each row: prediction, expected loss L', density ratio, and whether it is rejected."""

    prediction: Array
    loss: Floats
    ratio: Floats
    rejected: Booleans


class Rejector(Document):
    """A rejector: what `fit_rejector` or the steps on files have made, applied to arrays.

    `scores` are what it was fitted on: logits or probabilities (rows x classes), or one score per row for the class 1
    of a binary classifier. numpy arrays, lists, torch CPU tensors, data frames and whatever else has `__array__` or
    DLPack will do. Every number has the same bits as on the command line, which reads what `save` has written.

    >>> logits = np.array([[4.0, 0.0], [0.1, 0.0], [0.0, 3.0], [0.0, 0.2]] * 5)
    >>> from drrej import fit_rejector
    >>> rejector = fit_rejector(logits, [0, 1, 1, 0] * 5, coverage=0.5)
    >>> rejector
    <drrej.Rejector: 2 classes from logits, temperature 0.9226, log loss, alpha 1, lambda 1, tau 0.7211, coverage 0.5>
    >>> labels, rejected = rejector.predict(logits[:4])
    >>> labels.tolist(), rejected.tolist()
    ([0, 0, 1, 1], [False, True, False, True])
    """

    @classmethod
    def of(cls, document: Document) -> Self:
        """A document as a rejector for arrays."""
        return cls(**{field.name: getattr(document, field.name) for field in fields(document)})

    def __repr__(self) -> str:
        """A line; `to_json` has all of it, also the fingerprints of the rows it was made on, which fill pages."""
        told = [f"{self.classes} classes from {self.input}" if self.has_classes else "regression"]
        if self.calibration is not None and self.has_classes:
            told.append(f"temperature {self.calibration.temperature:.4g}")
        if self.ratio is not None:
            told.append(f"{self.ratio.loss.name} loss, alpha {self.ratio.alpha:g}, lambda {self.ratio.lam:g}")
        if self.threshold is not None:
            chosen = self.threshold
            tau = f"tau {chosen.tau:.4g}" if chosen.tau is not None else f"by {chosen.by}" if chosen.by else "no tau"
            told.append(f"{tau}, coverage {chosen.coverage:.4g}")
        return f"<drrej.Rejector: {', '.join(told)}>"

    def __eq__(self, other: object) -> bool:
        """Equal documents are equal rejectors, however they were made."""
        if not isinstance(other, Document):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in fields(Document))

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in fields(Document)))

    def score(self, scores: Any) -> ScoredArrays:
        """Prediction, loss, ratio and decision of each row; predictions are class names where the classes have them."""
        self.need_threshold()
        prediction, loss, ratio, rejected = self._each(
            scores, lambda rows: (rows.prediction, rows.loss, rows.ratio, ~rows.accepted)
        )
        names = self.class_names
        return ScoredArrays(prediction if names is None else np.array(names)[prediction], loss, ratio, rejected)

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

        def normalised(rows: Scored) -> tuple[Floats]:
            powers = rows.calibrated.powers(slice(None))
            return (powers / powers.sum(axis=1, keepdims=True),)

        self.need_threshold()
        (probabilities,) = self._each(scores, normalised)
        return probabilities

    def _each(self, scores: Any, function: Callable[[Scored], tuple[Array, ...]]) -> tuple[Array, ...]:
        """What a function makes of the rows, block by block."""
        if has_no_rows(scores):  # as a batch may be: what a row would give, without the row
            row = np.zeros(self.classes) if self.input == "logits" else np.full(self.classes, 1 / self.classes)
            row = np.log(row) if self.input == "log-probs" else row
            return tuple(column[:0] for column in self._each(row[:1] if self.binary else row[None], function))
        with array_source(scores, None, ArrayOptions.of(self)) as source:
            dump = source.open(self, labelled=False)
            scorer = Scorer(self, dump)

            def of_block(block: Block) -> tuple[Array, ...]:
                return function(scorer(block))

            blocks = list(map_blocks(source, dump, of_block, Pass("scoring", labelled=False)))
        return tuple(np.concatenate(column) for column in zip(*blocks, strict=True))

    def evaluate(
        self, scores: Any, labels: Any = None, gates: Gates = (), options: EvaluateOptions | None = None
    ) -> Report:
        """The coverage report. Without labels: what can be said without them.

        `gates` are texts like "accuracy >= 0.97"; `report.failed_gates` are those that did not pass.
        """
        if options is None:
            options = EvaluateOptions(labels=labels is not None)
        with array_source(scores, labels, ArrayOptions.of(self)) as source:
            return Report.of(evaluate(source, self, as_gates(gates), options))

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
