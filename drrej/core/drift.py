"""Whether the distribution of the losses has moved since the fit.

The rejector keeps evenly spaced order statistics of the fitted losses. New losses are compared with them by the
two-sample Kolmogorov-Smirnov distance, looked at only in those places. Where losses tie, the fit's distribution is
known only up to its jump there, and the smaller distance is taken, so the test never alarms more often than it says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drrej.core.curves import Curve
from drrej.core.exact import Total
from drrej.core.types import Floats

STEPS = 200
"""Intervals between the order statistics that are kept."""


def ranks(kept: int, rows: int) -> NDArray[np.int64]:
    """Which order statistics (from 0) of `rows` sorted losses the `kept` ones are."""
    return np.arange(kept) * (rows - 1) // max(kept - 1, 1)


def loss_quantiles(ordered: Floats) -> tuple[float, ...]:
    """Evenly spaced order statistics of sorted losses, smallest and largest included; all of them if they are few."""
    kept = min(ordered.size, STEPS + 1)
    return tuple(float(loss) for loss in ordered[ranks(kept, ordered.size)])


def loss_shift(points: Curve, quantiles: Sequence[float], fit_rows: int) -> dict[str, Any]:
    """Distance of new losses from the fitted ones, and the chance of one as large without drift.

    Quantile number i is the fitted loss of rank k_i, so at least k_i + 1 fitted rows are at or below it and at most
    k_i are below it: both hold with ties too.
    """
    known = np.asarray(quantiles, np.float64)
    rank = ranks(known.size, fit_rows)
    below = points.ranks(known, "left") / points.rows
    up_to = points.ranks(known, "right") / points.rows
    distance = float(max(np.max((rank + 1) / fit_rows - up_to), np.max(below - rank / fit_rows), 0.0))
    return {"distance": distance, "p_value": _kolmogorov(distance, points.rows, fit_rows)}


def _kolmogorov(distance: float, rows: int, fit_rows: int) -> float:
    from scipy.special import kolmogorov

    return float(kolmogorov(distance * math.sqrt(rows * fit_rows / (rows + fit_rows))))


def mean_ratio(
    total: Total, squares: Total, rows: int, fit_variance: float | None, fit_rows: int
) -> dict[str, float | None]:
    """The mean ratio, 1 in expectation without drift; its standard error includes that of the fit."""
    mean, square = total.mean(rows), squares.mean(rows)
    if mean is None or square is None or fit_variance is None:
        return {"mean": mean, "std_error": None, "p_value": None}
    error = math.sqrt(max(square - mean * mean, 0.0) / rows + fit_variance / fit_rows)
    if error == 0.0:
        return {"mean": mean, "std_error": 0.0, "p_value": 1.0 if mean == 1.0 else 0.0}
    return {"mean": mean, "std_error": error, "p_value": math.erfc(abs(mean - 1.0) / error / math.sqrt(2.0))}
