"""What a document declares about its figures, next to their types.

A field of a document is `Annotated[type, About(...)]`. The codec takes the range of its values from there, the JSON
Schema its description, and the catalogue of metrics all of it: each is said once. What a field leaves open, it has
from the section that it is in.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

from drrej.records import dataclass

Better = Literal["higher", "lower", "neither"]
"""The direction in which a figure improves."""


class Unit(Enum):
    """What a figure is measured in, and the smallest and largest value that it can have."""

    SHARE = ("share", 0, 1)
    P_VALUE = ("p-value", 0, 1)
    COUNT = ("count", 0)
    RATIO = ("ratio", 0)
    NATS = ("nats", 0)
    SCORE = ("score", 0)
    COST = ("cost",)
    LOSS = ("loss",)
    ERROR = ("unit of the target", 0)
    SQUARED_ERROR = ("squared unit of the target", 0)
    DIFFERENCE = ("difference",)
    NUMBER = ("number",)

    def __init__(self, word: str, least: float | None = None, most: float | None = None) -> None:
        self.word, self.least, self.most = word, least, most


class When(Enum):
    """What a figure depends on, in the words that tell a user how to get it."""

    LABELS = "labels"
    COSTS = "`loss=cost` in 'drrej fit'"
    PRICES = "`review_cost=C` in 'drrej threshold'"
    GROUPS = "`by=COL`"
    OUTSIDE = "`ood=COL`"
    INTERVALS = "`intervals=True`"
    CLASSWISE = "`classwise=True`"
    BASELINE = "`baseline=FILE` or `baseline_dump=DUMP`"
    PAIRS = "`baseline_dump=DUMP`"
    BOTH_INTERVALS = "`intervals=True`, in the `baseline` too"


@dataclass(frozen=True)
class Interval:
    """How the 95 % interval of a figure is made, and what it takes for it to be there."""

    word: str
    when: When | None = None


EXACT = Interval("exact (Clopper-Pearson)")
WEIGHTED = Interval("random weights of the rows", When.INTERVALS)
CERTIFIED = Interval("exact tests of every cutoff", When.INTERVALS)
JOINED = Interval("the two intervals joined, or random weights of paired rows")
JOINED_AREAS = Interval("the two intervals joined, or random weights of paired rows", When.BOTH_INTERVALS)
PRICED = Interval("exact bounds of what can happen to a row, or betting")
NONE = Interval("none")


@dataclass(frozen=True)
class About:
    """The meaning of a figure in plain words, its unit, direction and interval, and when it is there.

    `meaning` is a sentence without its full stop; inside a section it goes on where the section's ended. `label` is
    for tables. `least` and `most` narrow the range of the unit. With `gate=False` nothing in there is for gates.
    """

    meaning: str = ""
    unit: Unit | None = None
    better: Better | None = None
    interval: Interval | None = None
    when: When | None = None
    label: str = ""
    least: float | None = None
    most: float | None = None
    gate: bool = True

    @property
    def range(self) -> tuple[float | None, float | None]:
        """The smallest and the largest value; None where there is no limit."""
        least, most = (None, None) if self.unit is None else (self.unit.least, self.unit.most)
        return least if self.least is None else self.least, most if self.most is None else self.most

    def inside(self, section: About) -> About:
        """What holds for a figure in a section that says something too."""
        return About(
            ", ".join(text for text in (section.meaning, self.meaning) if text),
            self.unit or section.unit,
            self.better or section.better,
            self.interval or section.interval,
            self.when or section.when,
            self.label,
            self.least,
            self.most,
            self.gate and section.gate,
        )


Count = Annotated[int, About(unit=Unit.COUNT)]
Share = Annotated[float, About(unit=Unit.SHARE)]
ShareOrNone = Annotated[float | None, About(unit=Unit.SHARE)]
