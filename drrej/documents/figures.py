"""Shares of rows with their intervals and counts, and figures at a given coverage or risk."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Annotated

from msgspec import Struct

from drrej.core.curves import Curve, coverage_at_risk
from drrej.core.intervals import exact_decimal, proportion
from drrej.core.thresholds import ERROR_RULES, as_share, risk_of
from drrej.core.types import Stored
from drrej.documents.document import (
    CERTIFIED,
    EXACT,
    NONE,
    About,
    AtLeastOne,
    Better,
    Count,
    NotNegative,
    Share,
    Unit,
    about,
)
from drrej.errors import GateError


def check_interval(lower: float | None, upper: float | None) -> None:
    """Raise unless both ends are there and in order, or neither is."""
    if (lower is None) != (upper is None):
        raise ValueError("an interval has two ends or none")
    if lower is not None and upper is not None and lower > upper:
        raise ValueError("the lower end of an interval is above its upper end")


class Proportion(Stored, frozen=True, kw_only=True):
    """A share with its 95 % interval, None where it is undefined; `group` says whose it is."""

    group: str | None = None
    value: Share | None
    lower: Annotated[Share | None, about("lower end of its 95 % interval")]
    upper: Annotated[Share | None, about("upper end of its 95 % interval")]

    def __post_init__(self) -> None:
        check_interval(self.lower, self.upper)


class Coverage(Proportion, frozen=True, kw_only=True):
    """A share of accepted rows, and their number."""

    accepted: Annotated[Count, about("as the number of accepted rows", interval=NONE)]


class Accuracy(Proportion, frozen=True, kw_only=True):
    """A share of right predictions, and the number of wrong ones."""

    errors: Annotated[Count, about("as the number of errors", "lower", NONE)]


class PointFigure(Proportion, frozen=True, kw_only=True):
    """A figure at one point of the risk-coverage curve, with the counts there."""

    accepted: Annotated[Count, about("as the number of rows accepted there", "higher", NONE)]
    errors: Annotated[Count, about("as the number of errors among them", "lower", NONE)]


class Change(Stored, frozen=True, kw_only=True):
    """A figure minus another, with its interval; `convention` says which of the numbers with the same name it is."""

    value: float | None
    lower: Annotated[float | None, about("lower end of its 95 % interval")]
    upper: Annotated[float | None, about("upper end of its 95 % interval")]
    convention: str | None = None

    def __post_init__(self) -> None:
        check_interval(self.lower, self.upper)


class CurvePoint(Stored, frozen=True, kw_only=True):
    """Accuracy at one coverage, which may be that of one tau of (0, 1]."""

    tau: Share | None = None
    coverage: Share
    accuracy: Share | None
    lower: Share | None
    upper: Share | None

    def __post_init__(self) -> None:
        check_interval(self.lower, self.upper)


# What every report says about the dump and the decision
Rows = Annotated[AtLeastOne, about("rows of the dump", "neither", NONE)]
Tau = Annotated[
    NotNegative | None,
    about("threshold as a ratio: a row with it or less is rejected", "neither", NONE, unit=Unit.RATIO),
]
Cutoff = Annotated[
    float | None, about("threshold as a loss: a row with it or more is rejected", "neither", NONE, unit=Unit.LOSS)
]
CoverageOfDump = Annotated[Coverage, about("share of the rows that are accepted", "higher", EXACT)]


DEFAULT_POINTS = (
    "accuracy@coverage=0.5",
    "accuracy@coverage=0.8",
    "accuracy@coverage=0.9",
    "accuracy@coverage=0.95",
    "coverage@risk=0.01",
    "coverage@risk=0.05",
)
"""Those of every report."""

_PARTS = ("value", "lower", "upper", "accepted", "errors")
_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_POINT = re.compile(rf"(accuracy|risk|coverage)@(coverage|risk|accuracy)=({_NUMBER})(?:\.({'|'.join(_PARTS)}))?")


class Point(Struct, frozen=True):
    """A figure at a given coverage or risk.

    >>> point, part = Point.parse("accuracy@coverage=0.90.lower")
    >>> point.name, part
    ('accuracy@coverage=0.9', 'lower')
    """

    figure: str
    given: str
    at: float

    @classmethod
    def parse(cls, text: str) -> tuple[Point, str | None]:
        """The point and which part of it is meant, if one is named."""
        match = _POINT.fullmatch(text.strip())
        if match is None or (match[1] == "coverage") != (match[2] in ERROR_RULES):
            raise GateError(
                f"'{text}' is not a point of the curve; write accuracy@coverage=0.9, risk@coverage=0.9, "
                "coverage@risk=0.01 or coverage@accuracy=0.99"
            )
        at = float(match[3])
        if not (at <= 1 and (at > 0 or match[2] == "risk")):
            raise GateError(f"'{text}': the {match[2]} must be a share, above 0 and at most 1{as_share(at)}")
        return cls(match[1], match[2], at), match[4]

    @property
    def name(self) -> str:
        """As the report calls it."""
        return f"{self.figure}@{self.given}={repr(self.at).removesuffix('.0')}"

    def counts(self, points: Curve) -> tuple[int, int]:
        """(accepted, errors) where the point lies."""
        if self.given == "coverage":
            return points.reaching(math.ceil(exact_decimal(self.at) * points.rows))
        return points.largest_at_risk(self.risk)

    @property
    def risk(self) -> Fraction:
        """The error rate at which a coverage is meant."""
        return exact_decimal(risk_of(self.given, self.at))

    def value(self, points: Curve) -> float:
        """The figure itself."""
        accepted, errors = self.counts(points)
        if self.figure == "coverage":
            return accepted / points.rows
        return (errors if self.figure == "risk" else accepted - errors) / accepted

    @property
    def about(self) -> About:
        """What the figure is, for the catalogue of metrics."""
        at = repr(self.at).removesuffix(".0")
        if self.figure == "coverage":
            rate = "an accuracy of at least" if self.given == "accuracy" else "an error rate of at most"
            return About(f"largest coverage with {rate} {at}", "higher", CERTIFIED, unit=Unit.SHARE)
        what = "error rate" if self.figure == "risk" else "accuracy"
        better: Better = "lower" if self.figure == "risk" else "higher"
        return About(f"{what} at the smallest coverage of at least {at}", better, EXACT, unit=Unit.SHARE)

    def row(self, points: Curve, intervals: bool = False) -> PointFigure:
        """The figure with its counts.

        Given the smallest rejected loss, the accepted rows are independent draws below it, so their errors are
        binomial and the exact interval holds. The interval of a coverage at a risk takes more work, see
        `core.curves`, and is made if asked for.
        """
        accepted, errors = self.counts(points)
        if self.figure == "coverage":
            lower, upper = coverage_at_risk(points, self.risk) if intervals else (None, None)
            value = accepted / points.rows
            return PointFigure(value=value, lower=lower, upper=upper, accepted=accepted, errors=errors)
        hits = errors if self.figure == "risk" else accepted - errors
        return PointFigure(**proportion(hits, accepted), accepted=accepted, errors=errors)


class OutsideScore(Stored, frozen=True, kw_only=True):
    """How a score sees rows of no class, and the areas over all rows; None where there is nothing to tell apart."""

    score: str
    auroc: float | None
    fpr_at_95_tpr: float | None
    aurc: float
    augrc: float


class Outside(Stored, frozen=True, kw_only=True):
    """Rows of no class (column `column` is true). To accept one costs `cost_ratio` times an error.

    All other figures of the report are about rows that have a class.
    """

    column: str
    cost_ratio: Annotated[float, about(gate=False)]
    rows: Annotated[Count, about("how many there are", "neither", NONE)]
    accepted: Annotated[Proportion, about("share of them that is accepted", "lower", EXACT)]
    joint_risk: Annotated[
        float | None,
        about(
            "errors, and accepted rows of no class times the cost ratio, per accepted row of either kind",
            "lower",
            NONE,
            unit=Unit.COST,
        ),
    ]
    joint_risk_all: Annotated[float, about("the same if every row were accepted", "lower", NONE, unit=Unit.COST)]
    auroc: Annotated[
        Share | None,
        about(
            "chance that a row of no class has a larger loss than one of a class, ties half",
            "higher",
            NONE,
            label="AUROC",
        ),
    ]
    fpr_at_95_tpr: Annotated[
        Share | None,
        about("share of them accepted where 95 % of the others are", "lower", NONE, label="FPR at 95 % TPR"),
    ]
    aurc: Annotated[float, about("AURC of the joint risk, over both kinds of rows", "lower", NONE, unit=Unit.COST)]
    augrc: Annotated[float, about("AUGRC of the joint risk, over both kinds of rows", "lower", NONE, unit=Unit.COST)]
    scores: tuple[OutsideScore, ...] | None = None


class MovedPart(Stored, frozen=True, kw_only=True):
    """A share of new rows against that of others, and the interval of the difference new - old.

    `at_least` is how far it has moved for sure, with its sign.
    """

    what: str
    part: str
    new: Share | None
    old: Share | None
    lower: float
    upper: float
    at_least: float


class Where(Stored, frozen=True, kw_only=True):
    """The parts that surely moved, most first. The intervals hold for all that were `compared` together, at 95 %."""

    compared: Count
    parts: tuple[MovedPart, ...]
