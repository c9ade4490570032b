"""Whether another score orders the same rows better than the loss, beyond noise.

AUGRC is a mean over rows with a known influence function (`drrej.core.choice`), so the difference of two AUGRCs on the
same rows has a standard error of its own, far smaller than that of either. With several scores the intervals share the
5 % evenly: none of them lies wholly on the wrong side of 0, except with a chance of about 5 % in all.
"""

from __future__ import annotations

import math

import numpy as np

from drrej.core.choice import augrc_influence
from drrej.core.intervals import CONFIDENCE
from drrej.core.types import Floats
from drrej.records import dataclass


@dataclass(frozen=True)
class OrderDifference:
    """The AUGRC of a score minus that of the loss, with its interval; below 0 the score orders better."""

    value: float
    lower: float
    upper: float


def order_difference(losses: Floats, scores: Floats, right: int, compared: int = 1) -> OrderDifference:
    """Compare a score with the loss; both are low where a row is accepted first.

    Arrays with an entry per row, the `right` rows first; `compared` scores are judged together.

    >>> losses, wrong = np.arange(200) / 200, np.arange(200) % 20 == 19
    >>> order = np.argsort(wrong, kind="stable")
    >>> ideal = order_difference(losses[order], wrong[order].astype(float), right=190)
    >>> ideal.upper < 0
    True
    """
    from drrej.core.special import ndtri

    wrong = np.arange(losses.size) >= right
    order = np.lexsort((scores, losses, wrong))  # sums have the same bits for any order of the rows
    losses, scores = losses[order], scores[order]
    (ours, mine), (theirs, yours) = augrc_influence(losses, wrong), augrc_influence(scores, wrong)
    error = float(np.std(yours - mine)) / math.sqrt(losses.size)
    reach = float(ndtri(1.0 - (1.0 - CONFIDENCE) / 2 / compared)) * error
    value = theirs - ours
    return OrderDifference(value, value - reach, value + reach)
