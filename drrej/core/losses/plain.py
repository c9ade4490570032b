"""Losses that are plain functions of the calibrated probabilities, from the sums of `kernels`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from drrej.core.calibrators import Scores, Temperature
from drrej.core.losses.base import Loss, Scored
from drrej.core.softmax import GapSums, Need
from drrej.core.types import AnyFloats, Floats, Precision
from drrej.errors import OptionError
from drrej.records import dataclass


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


def flat_loss(sums: GapSums) -> Floats:
    """1 - max p at twice the temperature."""
    assert sums.h is not None
    return _one_minus_largest(sums.h)


def sharp_loss(sums: GapSums) -> Floats:
    """1 - max p at half the temperature."""
    assert sums.r is not None
    assert sums.y is not None
    return _one_minus_largest(_power_sum(sums.r, 2, sums.y))


def sharper_loss(sums: GapSums) -> Floats:
    """1 - max p at a quarter of the temperature."""
    assert sums.r is not None
    assert sums.x is not None
    return _one_minus_largest(_power_sum(sums.r, 4, sums.x))


def _one_minus_largest(s: Floats) -> Floats:
    loss: Floats = s / (1.0 + s)
    return loss


def _power_sum(runner_up: Floats, power: int, parts: Floats) -> Floats:
    """The sum of e^{power u}, from the runner-up and the sum of the others' parts of it."""
    with np.errstate(under="ignore"):
        together: Floats = runner_up**power * parts
    return np.where(runner_up == 0, 0.0, together)


def norm_loss(rest: Floats, power: int) -> Floats:
    """1 - M / ||c||_p from the sum over the other classes of |c_j / M|^p; 1 where all logits are the same."""
    loss: Floats = -np.expm1(np.log1p(rest) * (-1.0 / power))
    return loss


def norm_1_loss(sums: GapSums) -> Floats:
    """1 - M / ||c||_1. The c_j sum to 0, so their absolute values to twice those above 0, M among them."""
    assert sums.a is not None
    return norm_loss(1.0 + 2.0 * sums.a, 1)


def norm_2_loss(sums: GapSums) -> Floats:
    """1 - M / ||c||_2."""
    assert sums.b is not None
    return norm_loss(sums.b, 2)


def norm_4_loss(sums: GapSums) -> Floats:
    """1 - M / ||c||_4."""
    assert sums.c is not None
    return norm_loss(sums.c, 4)


@dataclass(frozen=True)
class _Formula:
    """A plain loss: its formula, the sums it needs, its largest value for K classes, and what it is in words.

    `classes` is the least number of classes that it can be used for.
    """

    expected: Callable[[GapSums], Floats]
    needs: Need
    bound: Callable[[int], float]
    words: str
    classes: int = 1


_NORM = "1 - the largest logit divided by the {} norm of all, after taking off their mean"

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
    "flat": _Formula(
        flat_loss, Need.H, lambda k: 1.0 - 1.0 / k, "1 - the largest probability at twice the temperature"
    ),
    "sharp": _Formula(
        sharp_loss, Need.R | Need.Y, lambda k: 1.0 - 1.0 / k, "1 - the largest probability at half the temperature"
    ),
    "sharper": _Formula(
        sharper_loss,
        Need.R | Need.X,
        lambda k: 1.0 - 1.0 / k,
        "1 - the largest probability at a quarter of the temperature",
    ),
    "norm-1": _Formula(norm_1_loss, Need.T | Need.A, lambda _: 1.0, _NORM.format("absolute"), 3),
    "norm-2": _Formula(norm_2_loss, Need.T | Need.B, lambda _: 1.0, _NORM.format("Euclidean"), 3),
    "norm-4": _Formula(norm_4_loss, Need.T | Need.C, lambda _: 1.0, _NORM.format("fourth-power"), 3),
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

    def tells_apart(self, classes: int) -> bool:
        """Whether rows of so many classes differ in it: norms are the same for every row of two classes."""
        return classes >= _FORMULAS[self.name].classes

    def check(self, classes: int) -> None:
        """It must tell rows apart."""
        if not self.tells_apart(classes):
            raise OptionError(
                f"`loss={self.name}`: with {classes} classes it is the same for every row; choose another"
            )

    def expected(self, sums: GapSums) -> Floats:
        """L' of each row from its gap sums."""
        return _FORMULAS[self.name].expected(sums)

    def of(self, rows: Scores, columns: Mapping[str, Floats]) -> Scored:
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
    calibrated, _ = Temperature(temperature).scores(logits, kind.needs, precision)
    return kind.expected(calibrated.sums)
