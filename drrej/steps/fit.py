"""Step 2: the density ratio, from the losses of any rows (labels are not needed)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from drrej.drift import loss_quantiles
from drrej.errors import OptionError
from drrej.exact import Total
from drrej.losses import LOSSES, Precision
from drrej.metrics import json_number
from drrej.ratio import fit_ratio
from drrej.rejector import Calibration, Columns, Ratio, Rejector, is_temperature
from drrej.steps.common import Source, collect_losses
from drrej.stream import Pass

DIVERGENCES = {"kl": 1.0, "chi2": 3.0}
MAX_ALPHA = 1e3


@dataclass(frozen=True)
class RatioOptions:
    """The objective: divergence by alpha, the weight lambda of the loss, and which loss."""

    alpha: float = 1.0
    lam: float = 1.0
    loss: str = "log"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.alpha) and abs(self.alpha) <= MAX_ALPHA):
            raise OptionError(f"--alpha {self.alpha:g}: it must be a number between {-MAX_ALPHA:g} and {MAX_ALPHA:g}")
        if not (math.isfinite(self.lam) and self.lam > 0):
            raise OptionError(f"--lambda {self.lam:g}: it must be a finite number above 0")
        if self.loss not in LOSSES:
            raise OptionError(f"--loss {self.loss}: it must be one of {', '.join(LOSSES)}")


def uncalibrated(source: Source, temperature: float, precision: Precision = "auto") -> Rejector:
    """A rejector whose temperature is given instead of fitted."""
    if not is_temperature(temperature):
        raise OptionError(f"--temperature {temperature:g}: it must be a finite number above 0")
    dump = source.open(None, labelled=False)
    return Rejector(
        classes=dump.classes,
        input=dump.input,
        columns=Columns(dump.columns.pattern, source.options.label or dump.label),
        class_names=dump.names,
        binary=dump.binary,
        precision=precision,
    ).with_calibration(Calibration("given", temperature))


def fit(source: Source, rejector: Rejector, options: RatioOptions | None = None) -> Rejector:
    """Add the density ratio."""
    options = options or RatioOptions()
    rejector.need_calibration()
    dump = source.open(rejector, labelled=False)
    losses = collect_losses(source, dump, rejector, options.loss, Pass("fitting", labelled=False))
    values = losses.values
    density = fit_ratio(values, options.alpha, options.lam)
    ordered = np.sort(values)
    with np.errstate(over="ignore", invalid="ignore"):
        variance = float(np.var(density.ratio(ordered)))
    return rejector.with_ratio(
        Ratio(
            alpha=options.alpha,
            lam=options.lam,
            loss=options.loss,
            log_max_ratio=density.log_max_ratio,
            min_loss=density.min_loss,
            mean_loss=Total.of(values).mean(values.size),
            max_loss=float(values.max()),
            normalizer=density.normalizer(),
            variance=json_number(variance),
            rows=values.size,
            fingerprint=losses.hashes.fingerprint(),
            loss_quantiles=loss_quantiles(ordered),
        )
    )
