"""Step 2: the density ratio, from the losses of any rows (labels are needed only to learn a loss)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from drrej.core.bounds import bounds
from drrej.core.drift import loss_quantiles
from drrej.core.exact import Total
from drrej.core.intervals import json_number
from drrej.core.losses.cost import CostMatrix
from drrej.core.losses.rowloss import FITTED, LOSS_NAMES, RowLoss
from drrej.core.ratio import DensityRatio, fit_ratio
from drrej.core.types import Precision
from drrej.documents.rejector import Calibration, Columns, Ratio, Rejector, is_temperature
from drrej.engines.threads import Pass
from drrej.errors import OptionError
from drrej.pipeline.common import Source, collect_losses
from drrej.pipeline.learning import LearnedFit, learn_loss

DIVERGENCES = {"kl": 1.0, "chi2": 3.0}
MAX_ALPHA = 1e3


@dataclass(frozen=True)
class RatioOptions:
    """The objective: divergence by alpha, the weight lambda of the divergence, and which loss.

    `costs` goes with the loss `cost` (true class by action), `loss_column` with the loss `column`.
    """

    alpha: float = 1.0
    lam: float = 1.0
    loss: str = "log"
    costs: CostMatrix | None = None
    loss_column: str | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.alpha) and abs(self.alpha) <= MAX_ALPHA):
            raise OptionError(f"`alpha={self.alpha:g}`: it must be a number between {-MAX_ALPHA:g} and {MAX_ALPHA:g}")
        if not (math.isfinite(self.lam) and self.lam > 0):
            raise OptionError(f"`lam={self.lam:g}`: it must be a finite number above 0")
        if self.loss not in LOSS_NAMES:
            raise OptionError(f"`loss={self.loss}`: it must be one of {', '.join(LOSS_NAMES)}")
        if (self.loss == "cost") != (self.costs is not None):
            raise OptionError("`loss=cost` and `cost_matrix=FILE` go together; give both or neither")
        if (self.loss == "column") != (self.loss_column is not None):
            raise OptionError("`loss=column` and `loss_column=COL` go together; give both or neither")


def uncalibrated(source: Source, temperature: float, precision: Precision = "auto") -> Rejector:
    """A rejector whose temperature is given instead of fitted."""
    if not is_temperature(temperature):
        raise OptionError(f"`temperature={temperature:g}`: it must be a finite number above 0")
    dump = source.open(None, labelled=False)
    return source.start(dump, precision).with_calibration(Calibration("given", temperature))


def without_logits(column: str, precision: Precision = "auto") -> Rejector:
    """A rejector for rows that bring nothing but a loss, such as the predicted variance of a regression.

    The column is read as the one score of a row.
    """
    start = Rejector(classes=2, input="logits", columns=Columns(column), binary=True, precision=precision)
    return start.with_calibration(Calibration("none", 1.0))


def fit(source: Source, rejector: Rejector, options: RatioOptions | None = None) -> Rejector:
    """Add the density ratio."""
    options = options or RatioOptions()
    rejector.need_calibration()
    fitted = _losses(source, rejector, options)
    values = fitted.values
    density = fit_ratio(values, options.alpha, options.lam)
    ordered = np.sort(values)
    with np.errstate(over="ignore", invalid="ignore"):
        variance = float(np.var(density.ratio(ordered)))
    loss = fitted.loss
    return rejector.with_ratio(
        Ratio(
            alpha=options.alpha,
            lam=options.lam,
            loss=loss.name,
            log_max_ratio=density.log_max_ratio,
            min_loss=density.min_loss,
            mean_loss=Total.of(values).mean(values.size),
            max_loss=float(values.max()),
            normalizer=density.normalizer(),
            variance=json_number(variance),
            rows=values.size,
            fingerprint=fitted.hashes.fingerprint(),
            loss_quantiles=loss_quantiles(ordered),
            learned=loss.learned,
            costs=None if loss.costs is None else loss.costs.rows,
            loss_column=loss.column,
            choice=fitted.choice,
            bounds=tuple(
                bounds(options.alpha, options.lam, loss.bound(rejector.classes), values.size, _max_ratio(density))
            ),
        )
    )


def _losses(source: Source, rejector: Rejector, options: RatioOptions) -> LearnedFit:
    """The loss and its values on the rows to fit."""
    if options.loss in FITTED:
        if not rejector.has_classes:
            raise OptionError(f"`loss={options.loss}` needs logits, but this rejector only has a loss column")
        dump = source.open(rejector, labelled=True)
        return learn_loss(source, dump, rejector, auto=options.loss == "auto")
    loss = RowLoss(options.loss, costs=options.costs, column=options.loss_column)
    if loss.costs is not None and len(loss.costs.rows) != rejector.classes:
        raise OptionError(
            f"`cost_matrix`: it is for {len(loss.costs.rows)} classes but the rejector has {rejector.classes}"
        )
    dump = source.open(rejector, labelled=False)
    losses = collect_losses(source, dump, rejector, loss, Pass("fitting", labelled=False))
    return LearnedFit(loss, losses.values, losses.hashes, None)


def _max_ratio(density: DensityRatio) -> float | None:
    return json_number(np.exp(density.log_max_ratio))
