"""A learned loss: L'(x) = P(the prediction is wrong | logits), from labelled rows.

The log-odds of an error are linear in a few features of the calibrated logits,

    eta = intercept + slope * base + sum of weight * feature + class intercept [prediction],   L' = 1 / (1 + e^-eta),

where `base` is the log-odds (zero-one) or logarithm (others) of a plain loss. Slope and intercept are free; the weights
and the class intercepts are drawn towards 0 by a ridge penalty. An infinite penalty leaves a rising function of the
plain loss, that is its order of rows, so the penalty decides how far the learned order may leave the plain one;
it is chosen by cross-validation (see `core.learned_loss`).

Working in log-odds keeps the relative precision of tiny losses. Every feature but `base` is held within the range it
had on the fitted rows, so a strange row cannot be carried away by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import or_
from typing import ClassVar

import numpy as np

from drrej.core.calibrators import Scores
from drrej.core.losses.base import Loss, Scored
from drrej.core.losses.plain import PLAIN
from drrej.core.softmax import GapSums, Need
from drrej.core.types import Floats, Integers
from drrej.errors import OptionError
from drrej.records import dataclass

_BEND = 20.0


def _log(values: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        logs: Floats = np.log(values)
    return logs


def _bend(sums: GapSums, _classes: int) -> Floats:
    """ln(1 + 20 s): lets the slope change where the odds of an error are about 1 to 20."""
    return _log(1.0 + _BEND * sums.s)


def _rivals(sums: GapSums, classes: int) -> Floats:
    """Entropy of the probabilities of the other classes among themselves: 0 for one rival, ln(K - 1) at most."""
    assert sums.v is not None
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = sums.log_s - sums.v / sums.s
    entropy[sums.s == 0] = 0.0
    clipped: Floats = np.clip(entropy, 0.0, math.log(max(classes - 1, 1)))
    return clipped


def _distance(sums: GapSums, classes: int) -> Floats:
    """Mean calibrated gap from the largest logit to the others."""
    assert sums.t is not None
    distance: Floats = sums.t * (-1.0 / (classes - 1))
    return distance


def _log_distance(sums: GapSums, classes: int) -> Floats:
    """Its logarithm."""
    return _log(_distance(sums, classes) + 1e-6)


def _crowd(sums: GapSums, _classes: int) -> Floats:
    """ln(||c||_1 / M - 1), c the logits without their mean and M the largest: 0 where no other is above the mean."""
    assert sums.a is not None
    crowd: Floats = np.log1p(2.0 * sums.a)
    return crowd


FEATURES: dict[str, Callable[[GapSums, int], Floats]] = {
    "bend": _bend,
    "rivals": _rivals,
    "distance": _distance,
    "log_distance": _log_distance,
    "crowd": _crowd,
}
_FEATURE_NEEDS = {
    "bend": Need.NOTHING,
    "rivals": Need.V,
    "distance": Need.T,
    "log_distance": Need.T,
    "crowd": Need.T | Need.A,
}


def needs_of(features: Iterable[str]) -> Need:
    """The sums that features are computed from."""
    return reduce(or_, (_FEATURE_NEEDS[name] for name in features), Need.NOTHING)


def base_values(loss: str, sums: GapSums, losses: Floats | None = None) -> Floats:
    """The feature that carries the order of a plain loss: the log-odds of the zero-one loss, ln L' of others.

    `losses` are the values of the loss, where they are known.
    """
    if loss == "zero-one":
        return sums.log_s.copy()
    return _log(PLAIN[loss].expected(sums) if losses is None else losses)


@dataclass(frozen=True)
class Feature:
    """A feature's weight and the range it had on the fitted rows."""

    weight: float
    low: float
    high: float


@dataclass(frozen=True)
class ErrorModel:
    """A fitted model, small enough for the rejector document. `strength` None: infinite, the order of `base`."""

    base: str
    strength: float | None
    intercept: float
    slope: float
    features: dict[str, Feature]
    class_intercepts: tuple[float, ...]

    @property
    def needs(self) -> Need:
        """The sums it is computed from."""
        return PLAIN[self.base].needs | needs_of(self.features)

    def losses(self, sums: GapSums, prediction: Integers, classes: int) -> Floats:
        """L' of each row."""
        eta = base_values(self.base, sums)
        eta *= self.slope
        eta += self.intercept
        for name, feature in self.features.items():
            values = np.clip(FEATURES[name](sums, classes), feature.low, feature.high)
            values *= feature.weight
            eta += values
        if self.class_intercepts:
            eta += np.asarray(self.class_intercepts)[prediction]
        return error_probability(eta)


@dataclass(frozen=True)
class LearnedLoss(Loss):
    """The probability of an error by a fitted model."""

    name: ClassVar[str] = "learned"  # type: ignore[misc]  # the same for all of them

    learned: ErrorModel

    @property
    def needs(self) -> Need:
        """The gap sums it is computed from."""
        return self.learned.needs

    @property
    def words(self) -> str:
        """What it is."""
        return "the probability of an error, learned from labelled rows"

    def of(self, rows: Scores, columns: Mapping[str, Floats]) -> Scored:
        """The class of the largest score, and the probability that it is wrong."""
        return Scored(rows.prediction, self.learned.losses(rows.sums, rows.prediction, rows.classes))

    @property
    def is_error_probability(self) -> bool:
        """It is."""
        return True

    @property
    def drift_loss(self) -> Loss:
        """Its base, which was not fitted."""
        return PLAIN[self.learned.base]

    @property
    def reorders(self) -> bool:
        """Unless the penalty is infinite."""
        return self.learned.strength is not None

    def bound(self, classes: int) -> float:
        """A probability is at most 1."""
        return 1.0

    def details(self) -> list[str]:
        """The model as a formula."""
        model = self.learned
        if model.strength is None:
            return [f"learned: cross-validation left the order of '{model.base}'; only the probabilities were fitted"]
        weights = ", ".join(f"{name} {feature.weight:+.3g}" for name, feature in model.features.items())
        low, high = min(model.class_intercepts), max(model.class_intercepts)
        return [
            f"learned: log-odds of an error = {model.intercept:.3g} {model.slope:+.3g} x '{model.base}', {weights}; "
            f"predicted classes from {low:+.3g} to {high:+.3g}; penalty {model.strength:g}, by cross-validation"
        ]

    def check(self, classes: int) -> None:
        """The model must be of known parts, and for these classes."""
        model = self.learned
        known = model.base in PLAIN and set(model.features) <= set(FEATURES)
        if known:
            PLAIN[model.base].check(classes)
        if not known or len(model.class_intercepts) != (0 if model.strength is None else classes):
            raise OptionError(f"`loss=learned`: the model is not one for {classes} classes")
        ranges = all(feature.low <= feature.high for feature in model.features.values())
        strength = not model.features if model.strength is None else model.strength > 0
        if not (ranges and strength and model.slope > 0):
            raise OptionError("`loss=learned`: the model contradicts itself")


def error_probability(eta: Floats) -> Floats:
    """1 / (1 + e^-eta); keeps its relative precision however small it is."""
    with np.errstate(over="ignore", under="ignore"):
        odds = np.exp(-np.abs(eta))
        probability: Floats = np.where(eta < 0, odds, 1.0) / (1.0 + odds)
    return probability
