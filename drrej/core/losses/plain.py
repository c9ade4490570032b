"""Losses that are plain functions of the calibrated probabilities, from the sums of `kernels`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from drrej.core.kernels import GapSums, block_sums
from drrej.core.types import AnyFloats, Floats, Precision


def log_loss(sums: GapSums) -> Floats:
    """Entropy of the calibrated probabilities, the paper's choice."""
    assert sums.v is not None
    loss: Floats = sums.log_weight - sums.v / (1.0 + sums.s)
    return loss


def zero_one_loss(sums: GapSums) -> Floats:
    """1 - max p (Chow)."""
    loss: Floats = sums.s / (1.0 + sums.s)
    return loss


def brier_loss(sums: GapSums) -> Floats:
    """1 - sum p^2."""
    assert sums.q is not None
    s = sums.s
    loss: Floats = (s * (2.0 + s) - sums.q) / np.square(1.0 + s)
    return loss


@dataclass(frozen=True)
class Loss:
    """A loss: its formula, the sums it needs, and its largest possible value for K classes."""

    expected: Callable[[GapSums], Floats]
    needs: str
    bound: Callable[[int], float]


LOSSES: dict[str, Loss] = {
    "log": Loss(log_loss, "v", lambda k: float(np.log(k))),
    "zero-one": Loss(zero_one_loss, "", lambda k: 1.0 - 1.0 / k),
    "brier": Loss(brier_loss, "q", lambda k: 1.0 - 1.0 / k),
}


def expected_losses(
    logits: AnyFloats, loss: str = "log", temperature: float = 1.0, precision: Precision = "auto"
) -> Floats:
    """L'(x) of each row of `logits` (rows x classes)."""
    kind = LOSSES[loss]
    sums = block_sums(logits, [1.0 / temperature], needs=kind.needs, precision=precision)
    return kind.expected(sums.at[0])
