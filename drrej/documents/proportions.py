"""Shares of rows with their intervals and counts: what most sections of a report are made of."""

from __future__ import annotations

from typing import Annotated

from drrej.documents.about import EXACT, NONE, About, Share, ShareOrNone, Unit
from drrej.records import dataclass


def check_interval(lower: float | None, upper: float | None) -> None:
    """Raise unless both ends are there and in order, or neither is."""
    if (lower is None) != (upper is None):
        raise ValueError("an interval has two ends or none")
    if lower is not None and upper is not None and lower > upper:
        raise ValueError("the lower end of an interval is above its upper end")


@dataclass(frozen=True, kw_only=True)
class Proportion:
    """A share with its 95 % interval; None where it is undefined."""

    value: ShareOrNone
    lower: Annotated[float | None, About("lower end of its 95 % interval", Unit.SHARE)]
    upper: Annotated[float | None, About("upper end of its 95 % interval", Unit.SHARE)]

    def __post_init__(self) -> None:
        check_interval(self.lower, self.upper)


@dataclass(frozen=True, kw_only=True)
class Coverage(Proportion):
    """A share of accepted rows, and their number."""

    accepted: Annotated[int, About("as the number of accepted rows", Unit.COUNT, interval=NONE)]


@dataclass(frozen=True, kw_only=True)
class Accuracy(Proportion):
    """A share of right predictions, and the number of wrong ones."""

    errors: Annotated[int, About("as the number of errors", Unit.COUNT, "lower", NONE)]


@dataclass(frozen=True, kw_only=True)
class PointFigure(Proportion):
    """A figure at one point of the risk-coverage curve, with the counts there."""

    accepted: Annotated[int, About("as the number of rows accepted there", Unit.COUNT, "higher", NONE)]
    errors: Annotated[int, About("as the number of errors among them", Unit.COUNT, "lower", NONE)]


@dataclass(frozen=True, kw_only=True)
class _OfGroup:
    group: str | None


@dataclass(frozen=True, kw_only=True)
class WorstCoverage(Coverage, _OfGroup):
    """The coverage of a group; None if no group has one."""


@dataclass(frozen=True, kw_only=True)
class WorstAccuracy(Accuracy, _OfGroup):
    """The accuracy of a group; None if no group has one."""

    errors: Annotated[int, About("as the number of errors", Unit.COUNT, "lower", NONE)] = 0


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """Accuracy at one coverage."""

    coverage: Share
    accuracy: ShareOrNone
    lower: ShareOrNone
    upper: ShareOrNone

    def __post_init__(self) -> None:
        check_interval(self.lower, self.upper)


@dataclass(frozen=True, kw_only=True)
class _AtTau:
    tau: Share


@dataclass(frozen=True, kw_only=True)
class TauPoint(CurvePoint, _AtTau):
    """Coverage and accuracy at one tau of (0, 1]."""


# What every report says about the dump and the decision
Rows = Annotated[int, About("rows of the dump", Unit.COUNT, "neither", NONE, least=1)]
Tau = Annotated[
    float | None, About("threshold as a ratio: a row with it or less is rejected", Unit.RATIO, "neither", NONE)
]
Cutoff = Annotated[
    float | None, About("threshold as a loss: a row with it or more is rejected", Unit.LOSS, "neither", NONE)
]
CoverageOfDump = Annotated[Coverage, About("share of the rows that are accepted", Unit.SHARE, "higher", EXACT)]
