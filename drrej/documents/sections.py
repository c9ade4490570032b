"""The sections of a rejector: what each step has found."""

from __future__ import annotations

import math
import sys
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from drrej.core.calibrators import Calibrator, CalibratorTrial, Temperature, Vector
from drrej.core.learned_loss import Candidate
from drrej.core.losses import KINDS, Loss
from drrej.core.ratio import DensityRatio
from drrej.core.ratio_error import RatioBound
from drrej.core.thresholds import ERROR_RULES, FIXED, MEAN_RULES, risk_of
from drrej.core.types import Floats
from drrej.records import dataclass


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


FITTED_METHODS = ("temperature", "vector", "beta", "dirichlet")
"""How a calibration may have been fitted to rows."""


@dataclass(frozen=True)
class Calibration:
    """The fitted temperature; `method` is "given" when it was set by hand, "none" without logits.

    `floor` is what a probability of 0 counts as; None for logits. With `vector` that is the calibrator; the temperature
    is then only what its search started from. `choice` is the table from which `auto` chose the calibrator.
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
    vector: Vector | None = None
    choice: tuple[CalibratorTrial, ...] | None = None

    @property
    def is_fitted(self) -> bool:
        """Whether it was fitted to rows."""
        return self.method in FITTED_METHODS

    @property
    def calibrator(self) -> Calibrator:
        """What turns logits into calibrated scores."""
        return Temperature(self.temperature) if self.vector is None else self.vector


@dataclass(frozen=True)
class Ratio:
    """The fitted density ratio, see `drrej.core.ratio`.

    `variance` is that of the ratio on the fitted rows, `loss_quantiles` what `drrej.core.drift` keeps of their losses.
    The document has the loss's name under `loss` and its fields beside the others. `choice` is the table from which
    `auto` chose the loss. `drift_quantiles` are those of the plain loss by which drift is looked for, where the loss
    itself was fitted to these rows. `third` is the third central moment of the ratio on these rows, `effective_sample`
    the share of the sample that lambda was chosen to keep.
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
    third: float | None = None
    effective_sample: float | None = None
    choice: tuple[Candidate, ...] | None = None
    bounds: tuple[RatioBound, ...] | None = None

    @property
    def density(self) -> DensityRatio:
        """The ratio as a function of losses."""
        return DensityRatio(self.alpha, self.lam, self.log_max_ratio, self.min_loss)


@dataclass(frozen=True)
class RuleRecord:
    """The rule that chose the threshold; with `confidence`, how that is a guarantee.

    `reused` is true where rows that calibrate or fit have seen were used all the same; then nothing is guaranteed. The
    target of the kind "cost" is the price of a review, and `error_cost` that of an error, None with a cost matrix.
    """

    kind: str
    target: float
    confidence: float | None = None
    method: str | None = None
    reused: bool | None = None
    error_cost: float | None = None
    coverage: float | None = None
    """Promised together with an accuracy or a risk."""
    clip: float | None = None
    """What an error of a regression counts at most."""

    @property
    def needs_labels(self) -> bool:
        """Whether it looked at errors."""
        return self.limits_errors or self.kind in ("cost", "mean-cost")

    @property
    def limits_a_mean(self) -> bool:
        """Whether it limits the mean of what accepted rows really lose."""
        return self.kind in MEAN_RULES

    @property
    def uses_rows(self) -> bool:
        """Whether the cutoff depends on the rows at hand."""
        return self.kind not in FIXED

    @property
    def limits_errors(self) -> bool:
        """Whether it limits the error rate of the accepted rows, as a risk or as an accuracy."""
        return self.kind in ERROR_RULES

    @property
    def risk(self) -> float:
        """The largest error rate that a rule which limits errors allows."""
        return risk_of(self.kind, self.target)


@dataclass(frozen=True)
class Bound:
    """What is guaranteed, except with chance `delta`: a risk or mean of at most, a coverage of at least `value`.

    The rows at hand were `rows`; `accepted` of them are accepted, with `errors` among these.
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
    mean: float | None = None
    """What the accepted rows really lost, where the rule limits that mean."""


@dataclass(frozen=True)
class Threshold:
    """The decision: reject iff L' >= cutoff. `cutoff` None rejects nothing; tau is its translation.

    With `by`, a column or "prediction", each group has a cutoff of its own and `tau` and `cutoff` are None.
    `fingerprint` tells the rows that the cutoff was chosen on, where it depends on them.
    """

    tau: float | None
    cutoff: float | None
    rule: RuleRecord
    rows: int
    accepted: int
    coverage: float
    accuracy: float | None = None
    bound: Bound | None = None
    fingerprint: str | None = None
    by: str | None = None
    groups: tuple[GroupThreshold, ...] | None = None
    mean: float | None = None
    """What the accepted rows really lost, where the rule limits that mean."""

    def accepts(self, losses: Floats) -> NDArray[np.bool_]:
        """Which rows are accepted."""
        if self.cutoff is None:
            return np.ones(losses.shape, bool)
        accepted: NDArray[np.bool_] = losses < np.float64(self.cutoff)
        return accepted


def is_temperature(value: float) -> bool:
    """Whether it is a positive number whose inverse is a number too."""
    return math.isfinite(value) and value >= sys.float_info.min
