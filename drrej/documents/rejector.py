"""The rejector: a small JSON document that flows through the pipeline.

Each step adds a section and drops those that come after it, so a stale threshold cannot survive a new fit.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from drrej._version import __version__
from drrej.core.bounds import RatioBound
from drrej.core.calibrators import Calibrator, Temperature
from drrej.core.choice import Candidate
from drrej.core.losses import KINDS, Loss
from drrej.core.ratio import DensityRatio
from drrej.core.types import Floats, InputKind, Precision
from drrej.documents.codec import Codec
from drrej.errors import OptionError, RejectorError

Task = Literal["classification", "regression"]

FORMAT = "drrej-rejector/1"
"""1: the first format."""

CODEC = Codec(FORMAT, "rejector", RejectorError)
_NUMBERS = re.compile(r"\[\n[-+.,eE\d\s]+\]")
"""A list of numbers in indented JSON: it goes on one line."""


@dataclass(frozen=True)
class BeforeAfter:
    """A figure before and after calibration."""

    before: float | None
    after: float | None


@dataclass(frozen=True)
class Columns:
    """The columns that later commands need not be told again; `prediction` and `target` are those of a regression."""

    logits: str
    label: str | None = None
    prediction: str | None = None
    target: str | None = None


@dataclass(frozen=True)
class Calibration:
    """The fitted temperature; `method` is "given" when it was set by hand, "none" without logits.

    `floor` is what a probability of 0 counts as; None for logits.
    """

    method: str
    temperature: float
    converged: bool | None = None
    rows: int | None = None
    fingerprint: str | None = None
    nll: BeforeAfter | None = None
    ece: BeforeAfter | None = None
    brier: BeforeAfter | None = None
    floor: float | None = None

    @property
    def is_fitted(self) -> bool:
        """Whether it was fitted to rows."""
        return self.method not in ("given", "none")

    @property
    def calibrator(self) -> Calibrator:
        """What turns logits into calibrated scores."""
        return Temperature(self.temperature)


@dataclass(frozen=True)
class Ratio:
    """The fitted density ratio, see `drrej.core.ratio`.

    `variance` is that of the ratio on the fitted rows, `loss_quantiles` what `drrej.core.drift` keeps of their losses.
    The document has the loss's name under `loss` and its fields beside the others. `choice` is the table from which
    `auto` chose the loss. `drift_quantiles` are those of the plain loss by which drift is looked for, where the loss
    itself was fitted to these rows.
    """

    alpha: float
    lam: float
    loss: Loss = field(metadata={"kinds": KINDS, "fields_after": "loss_quantiles"})
    log_max_ratio: float
    min_loss: float
    mean_loss: float | None
    max_loss: float
    normalizer: dict[str, float | None]
    variance: float | None
    rows: int
    fingerprint: str
    loss_quantiles: tuple[float, ...]
    drift_quantiles: tuple[float, ...] | None = None
    choice: tuple[Candidate, ...] | None = None
    bounds: tuple[RatioBound, ...] | None = None

    @property
    def density(self) -> DensityRatio:
        """The ratio as a function of losses."""
        return DensityRatio(self.alpha, self.lam, self.log_max_ratio, self.min_loss)


@dataclass(frozen=True)
class RuleRecord:
    """The rule that chose the threshold; with `confidence`, how that is a guarantee.

    `reused` is true when rows that calibrate or fit have seen were allowed: then it is none.
    """

    kind: str
    target: float
    confidence: float | None = None
    method: str | None = None
    reused: bool | None = None


@dataclass(frozen=True)
class Bound:
    """What is guaranteed: the risk is at most, or the coverage at least, `value`, each but with chance `delta`.

    From `errors` among `accepted` of `rows` rows.
    """

    value: float
    delta: float
    rows: int
    accepted: int
    errors: int | None = None


@dataclass(frozen=True)
class GroupThreshold:
    """The decision for the rows of one group. A negative cutoff rejects all of them."""

    group: str
    tau: float | None
    cutoff: float | None
    rows: int
    accepted: int
    coverage: float
    accuracy: float | None = None
    bound: Bound | None = None


@dataclass(frozen=True)
class Threshold:
    """The decision: reject iff L' >= cutoff. `cutoff` None rejects nothing; tau is its translation.

    With `by`, a column or "prediction", each group has a cutoff of its own and `tau` and `cutoff` are None.
    """

    tau: float | None
    cutoff: float | None
    rule: RuleRecord
    rows: int
    accepted: int
    coverage: float
    accuracy: float | None = None
    bound: Bound | None = None
    by: str | None = None
    groups: tuple[GroupThreshold, ...] | None = None

    def accepts(self, losses: Floats) -> NDArray[np.bool_]:
        """Which rows are accepted."""
        if self.cutoff is None:
            return np.ones(losses.shape, bool)
        accepted: NDArray[np.bool_] = losses < np.float64(self.cutoff)
        return accepted


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
        """Read a document, checking every key."""
        rejector = CODEC.read(cls, text, where, _with_task)
        _check_values(rejector, where)
        return rejector


def _with_task(tree: dict[str, Any]) -> None:
    """Give a document that was written before there was a task its task."""
    if "task" not in tree and isinstance(tree.get("calibration"), dict):
        tree["task"] = "regression" if tree["calibration"].get("method") == "none" else "classification"


def _check_values(rejector: Rejector, where: str) -> None:
    """Values that would otherwise fail far from their cause."""
    calibration, ratio = rejector.calibration, rejector.ratio
    names = rejector.class_names
    wrong = [
        key
        for key, good in {
            "classes": rejector.classes >= 2,
            "class_names": names is None or len(names) == rejector.classes,
            "calibration.temperature": calibration is None or is_temperature(calibration.temperature),
            "ratio.lambda": ratio is None or ratio.lam > 0,
            "threshold.groups": rejector.threshold is None
            or (rejector.threshold.by is None) == (rejector.threshold.groups is None),
            "ratio.loss": ratio is None or _loss_fits(ratio.loss, rejector.classes),
        }.items()
        if not good
    ]
    if wrong:
        raise RejectorError(f"{where}: the value of '{wrong[0]}' is out of range")
    if (ratio is not None and calibration is None) or (rejector.threshold is not None and ratio is None):
        raise RejectorError(f"{where}: a section is missing: calibration, ratio and threshold build on each other")


def is_temperature(value: float) -> bool:
    """Whether it is a positive number whose inverse is a number too."""
    return math.isfinite(value) and value >= sys.float_info.min


def _loss_fits(loss: Loss, classes: int) -> bool:
    """Whether what the document says of the loss can be used for its classes."""
    try:
        loss.check(classes)
    except OptionError:
        return False
    return True
