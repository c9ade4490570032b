"""What every loss has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from drrej.core.calibrators import Scores
from drrej.core.softmax import Need
from drrej.core.types import Floats, Integers


class Scored(NamedTuple):
    """The prediction and the loss of each row."""

    prediction: Integers
    loss: Floats


class Loss(ABC):
    """A loss L'(x): its name, what it is computed from, and how it is told to people.

    A subclass is a frozen dataclass. Its fields, but for the name, are what the rejector document stores of it.
    """

    name: str

    @property
    def needs(self) -> Need:
        """The gap sums it is computed from."""
        return Need.NOTHING

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the dump that it reads besides the logits."""
        return ()

    @property
    @abstractmethod
    def words(self) -> str:
        """What it is, as the end of a sentence that begins with "the loss is"."""

    @abstractmethod
    def of(self, rows: Scores, columns: Mapping[str, Floats]) -> Scored:
        """Prediction and loss of each calibrated row; `columns` holds the values of the columns it reads."""

    def bound(self, classes: int) -> float | None:
        """The largest possible loss for so many classes; None where there is no limit."""
        return None

    def check(self, classes: int) -> None:
        """Raise OptionError unless it can be used for so many classes."""

    @property
    def is_error_probability(self) -> bool:
        """Whether L' was fitted to be the probability of an error."""
        return False

    @property
    def drift_loss(self) -> Loss | None:
        """The plain loss by which drift is looked for, where that is another: what was fitted to rows knows them."""
        return None

    @property
    def reorders(self) -> bool:
        """Whether its order of rows was fitted to rows, and is another than that of `drift_loss`."""
        return False

    @property
    def is_cost(self) -> bool:
        """Whether a row with a label has a realised cost."""
        return False

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

    @property
    def arguments(self) -> dict[str, str]:
        """The parameters of a fit that ask for it; capitals stand for a file."""
        return {"loss": self.name}
