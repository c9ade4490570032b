"""Losses that are plain functions of the calibrated probabilities, from the sums of `kernels`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from drrej.core.calibrators import Temperature, View
from drrej.core.errors import OptionError
from drrej.core.kernels import GapSums, Need
from drrej.core.losses.base import Loss, Scored
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


def margin_loss(sums: GapSums) -> Floats:
    """1 - (p1 - p2), the margin between the two largest probabilities."""
    assert sums.r is not None
    loss: Floats = (sums.s + sums.r) / (1.0 + sums.s)
    return loss


def logit_margin_loss(sums: GapSums) -> Floats:
    """p2 / p1 = e^-(z1 - z2): falls with the margin between the two largest calibrated logits."""
    assert sums.r is not None
    return sums.r


@dataclass(frozen=True)
class _Formula:
    """A plain loss: its formula, the sums it needs, its largest value for K classes, and what it is in words."""

    expected: Callable[[GapSums], Floats]
    needs: Need
    bound: Callable[[int], float]
    words: str


_FORMULAS = {
    "log": _Formula(
        log_loss, Need.V, lambda k: float(np.log(k)), "the entropy of the calibrated probabilities, in nats"
    ),
    "zero-one": _Formula(
        zero_one_loss, Need.NOTHING, lambda k: 1.0 - 1.0 / k, "1 - the largest calibrated probability"
    ),
    "brier": _Formula(
        brier_loss, Need.Q, lambda k: 1.0 - 1.0 / k, "1 - the sum of the squared calibrated probabilities"
    ),
    "margin": _Formula(
        margin_loss, Need.R, lambda _: 1.0, "1 - the difference of the two largest calibrated probabilities"
    ),
    "logit-margin": _Formula(
        logit_margin_loss, Need.R, lambda _: 1.0, "the second largest calibrated probability divided by the largest"
    ),
}


@dataclass(frozen=True)
class PlainLoss(Loss):
    """A plain loss by its name."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in _FORMULAS:
            raise OptionError(f"`loss={self.name}`: it must be one of {', '.join(_FORMULAS)}")

    @property
    def needs(self) -> Need:
        """The gap sums it is computed from."""
        return _FORMULAS[self.name].needs

    @property
    def words(self) -> str:
        """What it is."""
        return _FORMULAS[self.name].words

    def bound(self, classes: int) -> float:
        """The largest possible loss."""
        return _FORMULAS[self.name].bound(classes)

    def expected(self, sums: GapSums) -> Floats:
        """L' of each row from its gap sums."""
        return _FORMULAS[self.name].expected(sums)

    def of(self, rows: View, columns: Mapping[str, Floats]) -> Scored:
        """The class of the largest score, and L'."""
        return Scored(rows.prediction, self.expected(rows.sums))

    def cutoff_words(self, cutoff: float) -> str:
        """Chow's rule, where the loss is 1 - max p."""
        return f"largest probability {1 - cutoff:.6g} or less" if self.name == "zero-one" else ""


PLAIN: dict[str, PlainLoss] = {name: PlainLoss(name) for name in _FORMULAS}
"""The plain losses by name."""


def expected_losses(
    logits: AnyFloats, loss: str = "log", temperature: float = 1.0, precision: Precision = "auto"
) -> Floats:
    """L' of each row of `logits` (rows x classes) by a plain loss, after division by a temperature.

    >>> expected_losses(np.array([[0.0, 0.0], [np.log(3.0), 0.0]]), "zero-one").round(6)
    array([0.5 , 0.25])
    """
    kind = PlainLoss(loss)
    rows = Temperature(temperature).rows(logits, kind.needs, precision)
    return kind.expected(rows.calibrated.sums)
