"""The rejector: a small JSON document that flows through the pipeline.

Each step adds a section and drops those that come after it, so a stale threshold cannot survive a new fit.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from dataclasses import field
from typing import Any, Literal

from drrej._version import __version__
from drrej.core.calibrators import Calibrator
from drrej.core.types import InputKind, Precision
from drrej.documents.codec import Codec
from drrej.documents.consistency import (
    calibration_findings,
    ratio_findings,
    sections_findings,
)
from drrej.documents.findings import Finding, expect
from drrej.documents.sections import (
    BeforeAfter,
    Bound,
    Calibration,
    Columns,
    GroupThreshold,
    Ratio,
    RuleRecord,
    Threshold,
    is_temperature,
)
from drrej.documents.threshold_consistency import threshold_findings
from drrej.errors import RejectorError
from drrej.records import dataclass

__all__ = [
    "CODEC",
    "BeforeAfter",
    "Bound",
    "Calibration",
    "Columns",
    "GroupThreshold",
    "Ratio",
    "Rejector",
    "RuleRecord",
    "Threshold",
    "is_temperature",
]

Task = Literal["classification", "regression"]

FORMAT = "drrej-rejector/1"
"""1: the first format."""

CODEC = Codec(FORMAT, "rejector", RejectorError)
_NUMBERS = re.compile(r"\[\n[-+.,eE\d\s]+\]")
"""A list of numbers in indented JSON: it goes on one line."""


@dataclass(frozen=True)
class Rejector:
    """The document."""

    classes: int
    input: InputKind
    columns: Columns
    drrej_version: str = __version__
    class_names: tuple[str, ...] | None = None
    binary: bool = False
    precision: Precision = "auto"
    normalize: bool = field(default=False, metadata={"silent": True})
    task: Task = field(default="classification", metadata={"silent": True})
    calibration: Calibration | None = None
    ratio: Ratio | None = None
    threshold: Threshold | None = None

    def with_calibration(self, calibration: Calibration) -> Rejector:
        """The document after `calibrate`."""
        return dataclasses.replace(self, drrej_version=__version__, calibration=calibration, ratio=None, threshold=None)

    def with_ratio(self, ratio: Ratio) -> Rejector:
        """The document after `fit`."""
        return dataclasses.replace(self, drrej_version=__version__, ratio=ratio, threshold=None)

    def with_threshold(self, threshold: Threshold) -> Rejector:
        """The document after `threshold`."""
        return dataclasses.replace(self, drrej_version=__version__, threshold=threshold)

    @property
    def calibrator(self) -> Calibrator:
        """What turns logits into calibrated scores."""
        return self.need_calibration().calibrator

    @property
    def floor(self) -> float | None:
        """What a probability of 0 counts as; None for logits."""
        return self.need_calibration().floor

    def need_calibration(self) -> Calibration:
        """The calibration, or an error that names the command to run."""
        if self.calibration is None:
            raise RejectorError("the rejector has no calibration yet; run 'drrej calibrate' first")
        return self.calibration

    @property
    def has_classes(self) -> bool:
        """Whether rows have logits; those of a regression only bring a loss of their own."""
        return self.task == "classification"

    def need_ratio(self) -> Ratio:
        """The ratio, or an error that names the command to run."""
        self.need_calibration()
        if self.ratio is None:
            raise RejectorError("the rejector has no ratio yet; run 'drrej fit' first")
        return self.ratio

    def need_threshold(self) -> Threshold:
        """The threshold, or an error that names the command to run."""
        self.need_ratio()
        if self.threshold is None:
            raise RejectorError("the rejector has no threshold yet; run 'drrej threshold' first")
        return self.threshold

    def to_json(self) -> str:
        """The document as text; numbers read back to the same float."""
        text = json.dumps(CODEC.tree(self), indent=2, allow_nan=False, ensure_ascii=False)
        return _NUMBERS.sub(lambda numbers: " ".join(numbers[0].split()), text) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str = "rejector") -> Rejector:
        """Read a document, checking every key, and that no value contradicts another."""
        rejector = CODEC.read(cls, text, where, _with_task)
        expect(rejector._findings(), where, RejectorError)
        return rejector

    def _findings(self) -> Iterator[Finding]:
        names, calibration, ratio, threshold = self.class_names, self.calibration, self.ratio, self.threshold
        yield "classes", self.classes >= 2, "is out of range: it must be 2 or more"
        yield "classes", not self.binary or self.classes == 2, "contradicts 'binary'"
        yield "class_names", names is None or len(names) == self.classes, "is out of range: 'classes' names are needed"
        yield "class_names", names is None or len(set(names)) == len(names), "names a class twice"
        yield "normalize", not self.normalize or self.input != "logits", "contradicts 'input': logits have no sum"
        yield "task", self.has_classes or (self.binary and names is None), "contradicts 'binary' or 'class_names'"
        yield from sections_findings(calibration, ratio, threshold)
        if calibration is not None:
            without = (calibration.method == "none") != self.has_classes
            yield (
                "task",
                without,
                "contradicts 'calibration.method', which is 'none' for a regression and for nothing else",
            )
            yield from calibration_findings(calibration, self.input, self.classes)
        if ratio is not None:
            yield "ratio.loss", self.has_classes or ratio.loss.name == "column", "is out of range for a regression"
            yield from ratio_findings(ratio, self.classes)
        if ratio is not None and threshold is not None:
            counts = threshold.rule.needs_labels
            yield "threshold.rule.kind", self.has_classes or not counts, "is out of range for a regression"
            of_errors = threshold.rule.kind in ("mse", "mae")
            yield "threshold.rule.kind", not (self.has_classes and of_errors), "is out of range for a classification"
            yield from threshold_findings(threshold, ratio)


def _with_task(tree: dict[str, Any]) -> None:
    """Give a document that was written before there was a task its task."""
    if "task" not in tree and isinstance(tree.get("calibration"), dict):
        tree["task"] = "regression" if tree["calibration"].get("method") == "none" else "classification"
