"""What rows tell without labels: the accuracy to expect, and how far losses have moved since the fit."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec.structs import replace

from drrej.core.curves import Curve
from drrej.core.drift import RatioMoments, RatioSums, loss_shift, ratio_shift
from drrej.core.ratio import FITTED_ROWS
from drrej.core.types import Booleans, Floats, Total
from drrej.documents.rejector import Ratio
from drrej.documents.report import Drift, ExpectedAccuracy, GroupLook, MeanRatio
from drrej.pipeline.collect import curve_of, pieces
from drrej.pipeline.figures import coverage_figure
from drrej.pipeline.score import numbered


def expected_accuracy(doubt: Floats, accepted: Booleans) -> ExpectedAccuracy:
    """From the probability of an error in each row."""
    of_accepted = sum((Total.of(doubt[part][accepted[part]]) for part in pieces(doubt.size)), Total())
    means = of_accepted.mean(int(np.count_nonzero(accepted))), Total.of(doubt).mean(doubt.size)
    value, of_all = (None if mean is None else 1.0 - mean for mean in means)
    return ExpectedAccuracy(value=value, all=of_all)


def ratio_figure(sums: RatioSums, rows: int, ratio: Ratio) -> MeanRatio:
    """The mean ratio; no p-value where the loss was fitted to the rows of the ratio, so that its mean need not be 1."""
    fit = None if ratio.variance is None else RatioMoments(ratio.rows, 1.0, ratio.variance, ratio.third)
    shift = {**ratio_shift(sums.moments(rows), fit), "mean": sums.mean(rows)}
    error = next((bound.value for bound in ratio.bounds or () if bound.theorem == FITTED_ROWS), None)
    figure = MeanRatio(**shift, error=error)
    return figure if ratio.loss.drift_loss is None else replace(figure, p_value=None)


_FAR, _SURE = 0.1, 0.001
"""A distance from the fit's losses, and a p-value, from which on a learned order is in doubt."""


def unsure_order(drift: Drift, ratio: Ratio) -> str | None:
    """The plain loss beneath a learned one, where the rows are so unlike those of the fit that its order may not hold.

    Small drifts, which many rows make certain, do not count.
    """
    base = ratio.loss.drift_loss
    if base is None or drift.distance is None or drift.p_value is None:
        return None
    return base.name if drift.distance >= _FAR and drift.p_value < _SURE else None


def drift_figure(curve: Curve, ratio: Ratio) -> Drift:
    """How far losses have moved since the fit."""
    return Drift(**loss_shift(curve, ratio.drift_reference, ratio.rows))


def group_looks(columns: Mapping[str, Any], doubt: Floats, drift: Floats, ratio: Ratio) -> tuple[GroupLook, ...]:
    """Without labels: coverage, expected accuracy and drift of each group, the largest drift first."""
    numbers, names = numbered(columns["group"])
    order = np.argsort(numbers, kind="stable")
    members = np.split(order, np.searchsorted(numbers[order], np.arange(1, len(names))))
    looks = []
    for name, rows in zip(names, members, strict=True):
        accepted = columns["accepted"][rows]
        shift = drift_figure(curve_of(drift[rows]), ratio)
        if shift.p_value is not None:
            shift = replace(shift, p_value=min(1.0, shift.p_value * len(names)))
        looks.append(
            GroupLook(
                group=name,
                rows=int(rows.size),
                coverage=coverage_figure(int(np.count_nonzero(accepted)), int(rows.size)),
                expected_accuracy=expected_accuracy(doubt[rows], accepted).value,
                drift=shift,
            )
        )
    known = all(look.drift.p_value is not None for look in looks)
    return tuple(sorted(looks, key=attrgetter("drift.p_value", "group") if known else attrgetter("group")))
