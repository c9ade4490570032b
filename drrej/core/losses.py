"""Losses: what the model expects to lose on a row. One class for each kind; `KINDS` knows them by name.

A plain loss is a function of the calibrated probabilities, a learned one the probability of an error by a model that
was fitted to labelled rows (`drrej.core.learned_loss`), a cost comes from a matrix, a column from the dump.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from msgspec import Struct

from drrej.core.calibrators import Scores, Temperature
from drrej.core.softmax import NOTHING, GapSums, Needs
from drrej.core.types import AnyFloats, Floats, Integers, Precision, Stored
from drrej.errors import OptionError

_CHUNK_VALUES = 1 << 16


class Loss(Struct, frozen=True, dict=True):
    """A loss: its name, what it is computed from, and how it is told to people.

    The fields of a subclass, except the name, are what the rejector document stores of it.
    """

    @property
    def name(self) -> str:
        """As documents have it."""
        raise NotImplementedError

    @property
    def words(self) -> str:
        """What it is, as the end of a sentence that begins with "the loss is"."""
        raise NotImplementedError

    def of(self, scores: Scores, columns: Mapping[str, Floats]) -> tuple[Integers, Floats]:
        """Prediction and loss of each calibrated row; `columns` holds the values of the columns it reads."""
        raise NotImplementedError

    @property
    def needs(self) -> Needs:
        """The gap sums it is computed from."""
        return NOTHING

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the dump that it reads besides the logits."""
        return ()

    def check(self, classes: int) -> None:
        """Raise OptionError unless it can be used for so many classes."""

    @property
    def scale(self) -> float | None:
        """By how much the inverse temperature that it ranks by is larger; None if it takes the calibrated one."""
        return None

    of_one_row: ClassVar[bool] = False
    """Whether `of` also takes the scores of one row alone (`drrej.core.one_row`), numbers in place of arrays."""

    is_error_probability: ClassVar[bool] = False
    """Whether it was fitted to be the probability of an error."""

    drift_loss: ClassVar[Loss | None] = None
    """The plain loss by which drift is looked for, where that is another: what was fitted to rows knows them."""

    is_cost: ClassVar[bool] = False
    """Whether a row with a label has a realised cost."""

    @property
    def prices(self) -> list[float]:
        """All that an accepted row can cost in the end; none unless `is_cost`."""
        return []

    def realised(self, prediction: Integers, labels: Integers) -> Floats | None:
        """What each row cost in the end, given its true class; None unless `is_cost`."""
        return None

    def cutoff_words(self, cutoff: float) -> str:
        """The decision "a loss of `cutoff` or more" in more familiar terms; empty where there are none."""
        return ""

    def details(self) -> list[str]:
        """More about it for people, a line for each fact."""
        return []

    def steps(self, lists: dict[str, Any]) -> list[str]:
        """The same as `of`, for exports: from e, u and odds to `loss`, as `drrej.export.steps` has them.

        What the steps pick from is added to `lists`. Raises OptionError where no export can do the same.
        """
        raise OptionError(f"the loss '{self.name}' cannot be exported")


_PLAIN: dict[str, tuple[Needs, str, list[str]]] = {
    "log": (
        frozenset({"moment"}),
        "the entropy of the calibrated probabilities, in nats",
        ["ue[] = e * u if e > 0.0 else 0.0", "loss = log1p(odds) - sum(ue) / (1.0 + odds)"],
    ),
    "zero-one": (NOTHING, "1 - the largest calibrated probability", ["loss = odds / (1.0 + odds)"]),
    "brier": (
        frozenset({"squares"}),
        "1 - the sum of the squared calibrated probabilities",
        [
            "squares[] = 0.0 if j == prediction else exp(2.0 * u)",
            "loss = (odds * (2.0 + odds) - sum(squares)) / ((1.0 + odds) * (1.0 + odds))",
        ],
    ),
    "margin": (
        frozenset({"runner_up"}),
        "1 - the difference of the two largest calibrated probabilities",
        ["loss = (odds + max(e)) / (1.0 + odds)"],
    ),
    "logit-margin": (
        frozenset({"runner_up"}),
        "the second largest calibrated probability divided by the largest",
        ["loss = max(e)"],
    ),
}
"""The gap sums that each plain loss is computed from, what it is, and its steps."""


class PlainLoss(Loss, frozen=True):
    """A plain loss by its name."""

    of_one_row: ClassVar[bool] = True

    name: str

    def __post_init__(self) -> None:
        if self.name not in _PLAIN:
            raise OptionError(f"`loss={self.name}`: it must be one of {', '.join(_PLAIN)}")

    @property
    def needs(self) -> Needs:
        """The gap sums it is computed from."""
        return _PLAIN[self.name][0]

    @property
    def words(self) -> str:
        """What it is."""
        return _PLAIN[self.name][1]

    def expected(self, sums: GapSums) -> Floats:
        """The loss of each row from its gap sums."""
        odds = sums.odds
        loss: Floats
        match self.name:
            case "log":
                loss = sums.log_weight - sums.moment / (1.0 + odds)
            case "zero-one":
                loss = odds / (1.0 + odds)
            case "brier":
                loss = (odds * (2.0 + odds) - sums.squares) / np.square(1.0 + odds)
            case "margin":
                loss = (odds + sums.runner_up) / (1.0 + odds)
            case _:  # logit-margin
                loss = sums.runner_up
        return loss

    def of(self, scores: Scores, columns: Mapping[str, Floats]) -> tuple[Integers, Floats]:
        """The class of the largest score, and the loss."""
        return scores.prediction, self.expected(scores.sums)

    def cutoff_words(self, cutoff: float) -> str:
        """Chow's rule, where the loss is 1 - max p."""
        return f"largest probability {1 - cutoff:.6g} or less" if self.name == "zero-one" else ""

    def steps(self, lists: dict[str, Any]) -> list[str]:
        """The formula."""
        return _PLAIN[self.name][2]


PLAIN: dict[str, PlainLoss] = {name: PlainLoss(name) for name in _PLAIN}
"""The plain losses by name."""


def expected_losses(
    logits: AnyFloats, loss: str = "log", temperature: float = 1.0, precision: Precision = "auto"
) -> Floats:
    """The loss of each row of `logits` (rows x classes) by a plain loss, after division by a temperature.

    >>> expected_losses(np.array([[0.0, 0.0], [np.log(3.0), 0.0]]), "zero-one").round(6)
    array([0.5 , 0.25])
    """
    kind = PlainLoss(loss)
    calibrated, _ = Temperature(temperature).scores(logits, kind.needs, precision)
    return kind.expected(calibrated.sums)


class ColumnLoss(Loss, frozen=True):
    """A loss that each row brings along in a column, any numbers from 0 up, such as the variance of a regression."""

    name: ClassVar[str] = "column"

    loss_column: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.loss_column,)

    @property
    def words(self) -> str:
        """What it is."""
        return f"read from each row's own column '{self.loss_column}'"

    def of(self, scores: Scores, columns: Mapping[str, Floats]) -> tuple[Integers, Floats]:
        """The class of the largest score, and the column."""
        return scores.prediction, columns[self.loss_column]

    def steps(self, lists: dict[str, Any]) -> list[str]:
        """There are none."""
        raise OptionError(
            f"the loss is read from the column '{self.loss_column}': an export has the scores of a row alone"
        )


class CostLoss(Loss, frozen=True, dict=True):
    """Costs by true class (row) and action (column), one action per class.

    A row's loss is the expected cost of its least costly action, which is the prediction: the minimum over a of
    sum_y p_y C[y, a]. Costs are not negative, so nothing cancels and small expected costs keep their precision. A row
    is computed in float64 from its own contiguous memory, so its bits do not depend on its neighbours.

    >>> CostLoss(((0.0, 1.0), (5.0, 0.0))).prices
    [0.0, 1.0, 5.0]
    """

    name: ClassVar[str] = "cost"
    words: ClassVar[str] = "the expected cost of the least costly action, which is the prediction"
    is_cost: ClassVar[bool] = True

    costs: tuple[tuple[float, ...], ...]

    @cached_property
    def by_action(self) -> Floats:
        """C transposed, contiguous: the costs of an action."""
        return np.ascontiguousarray(np.array(self.costs, dtype=np.float64).T)

    def of(self, scores: Scores, columns: Mapping[str, Floats]) -> tuple[Integers, Floats]:
        """The least costly action of each row (the first of equals) and its expected cost."""
        count, classes = scores.values.shape
        actions, losses = np.empty(count, np.int64), np.empty(count)
        step = max(1, _CHUNK_VALUES // classes)
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            for start in range(0, count, step):
                part = slice(start, start + step)
                powers = scores.powers(part)
                costs = np.stack([np.vecdot(powers, costs) for costs in self.by_action])
                actions[part] = costs.argmin(axis=0)
                losses[part] = costs.min(axis=0) / np.vecdot(powers, np.ones(classes))
        return actions, losses

    @property
    def prices(self) -> list[float]:
        """All that an accepted row can cost in the end."""
        return sorted({cost for row in self.costs for cost in row})

    def realised(self, prediction: Integers, labels: Integers) -> Floats:
        """The cost of each row's action, given its true class."""
        return self.by_action[prediction, labels]

    def check(self, classes: int) -> None:
        """The matrix must be square, with a row for each class, and no cost negative."""
        if len(self.costs) != classes or any(len(row) != classes for row in self.costs):
            raise OptionError(f"`cost_matrix`: it is for {len(self.costs)} classes but the rejector has {classes}")
        if not all(0 <= cost < math.inf for row in self.costs for cost in row):
            raise OptionError("`cost_matrix`: costs are finite and not negative")

    def steps(self, lists: dict[str, Any]) -> list[str]:
        """There are none."""
        raise OptionError("a cost matrix cannot be exported exactly: rounding decides between equal costs")


def error_probability(log_odds: Floats) -> Floats:
    """1 / (1 + e^-x); keeps its relative precision however small it is."""
    if isinstance(log_odds, float):  # of one row
        odds = np.exp(-abs(log_odds))
        return (odds if log_odds < 0 else 1.0) / (1.0 + odds)
    with np.errstate(over="ignore", under="ignore"):
        odds = np.exp(-np.abs(log_odds))
        return np.where(log_odds < 0, odds, 1.0) / (1.0 + odds)


_CHANCE = ["far = -abs(x)", "tail = exp(far)", "loss = (tail if x < 0.0 else 1.0) / (1.0 + tail)"]
"""The same as steps."""


MOST_CORRECTION = 0.7
"""How far a learned loss may move the log-odds of an error: odds that differ by a factor of 4.1 keep their order."""


class ErrorModel(Stored, frozen=True):
    """The log-odds of an error: those at a temperature to rank by, and a term for the predicted class, on a line.

    `scale` is by how much the inverse temperature to rank by is larger than the calibrated one. Without terms all
    classes are alike. Intercept and slope make a probability of the order.
    """

    scale: float
    intercept: float
    slope: float
    class_terms: tuple[float, ...]


class LearnedLoss(Loss, frozen=True):
    """The probability of an error by a fitted model."""

    name: ClassVar[str] = "learned"
    words: ClassVar[str] = "the probability of an error, learned from labelled rows"
    of_one_row: ClassVar[bool] = True
    is_error_probability: ClassVar[bool] = True
    drift_loss: ClassVar[Loss | None] = PLAIN["zero-one"]

    learned: ErrorModel

    @property
    def scale(self) -> float:
        """By how much the inverse temperature that it ranks by is larger."""
        return self.learned.scale

    def of(self, scores: Scores, columns: Mapping[str, Floats]) -> tuple[Integers, Floats]:
        """The class of the largest score, and the probability that it is wrong."""
        model, prediction = self.learned, scores.prediction
        order = scores.log_odds(model.scale)
        if model.class_terms:
            terms: Any = model.class_terms if isinstance(prediction, int) else np.array(model.class_terms)
            order = order + terms[prediction]
        return prediction, error_probability(order * model.slope + model.intercept)

    def details(self) -> list[str]:
        """The model as a formula."""
        model = self.learned
        terms = model.class_terms or (0.0,)
        return [
            f"learned: rows are ranked at the temperature divided by {model.scale:.3g}; log-odds are corrected by "
            f"{min(terms):+.3g} to {max(terms):+.3g} (predicted class), then {model.intercept:.3g} {model.slope:+.3g} x"
        ]

    def steps(self, lists: dict[str, Any]) -> list[str]:
        """The odds at the temperature to rank by; the sum is over the other classes."""
        model, order = self.learned, "base"
        if model.class_terms:
            lists["TERMS"] = list(model.class_terms)
            order = "(base + pick(TERMS, prediction))"
        return [
            "gap[] = -inf if j == prediction else u",
            "nearest = max(gap)",
            "second = first(gap)",
            f"r[] = 0.0 if j == second or gap == -inf else exp((gap - nearest) * {model.scale!r})",
            f"base = -inf if nearest == -inf else nearest * {model.scale!r} + log1p(sum(r))",
            f"x = {order} * {model.slope!r} + {model.intercept!r}",
            *_CHANCE,
        ]

    def check(self, classes: int) -> None:
        """The model must be one for these classes, with no term beyond the limit."""
        model = self.learned
        if len(model.class_terms) not in (0, classes):
            raise OptionError(f"`loss=learned`: the model is not one for {classes} classes")
        if not (max(map(abs, model.class_terms), default=0.0) <= MOST_CORRECTION and model.slope > 0 < model.scale):
            raise OptionError("`loss=learned`: the model contradicts itself")


class ErrorLoss(Loss, frozen=True):
    """The probability that a row is wrong, of rows that bring a score and whether they were right."""

    name: ClassVar[str] = "error"
    words: ClassVar[str] = "the calibrated probability of being wrong"
    is_error_probability: ClassVar[bool] = True

    def of(self, scores: Scores, columns: Mapping[str, Floats]) -> tuple[Integers, Floats]:
        """The answer is what it is, and wrong with this probability."""
        return scores.prediction, error_probability(scores.values[:, 1].astype(np.float64, copy=False))

    def steps(self, lists: dict[str, Any]) -> list[str]:
        """From the log-odds x that `drrej.export.steps` makes of scores."""
        return _CHANCE


KINDS: dict[str, type[Loss]] = {
    **dict.fromkeys(PLAIN, PlainLoss),
    ErrorLoss.name: ErrorLoss,
    LearnedLoss.name: LearnedLoss,
    CostLoss.name: CostLoss,
    ColumnLoss.name: ColumnLoss,
}
"""The classes of losses by the names that documents have."""
