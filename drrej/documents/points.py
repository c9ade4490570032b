"""Shares of rows with their intervals and counts, and figures at a given coverage or risk."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Annotated

from drrej.core.curves import Curve, coverage_at_risk
from drrej.core.intervals import exact_decimal, proportion
from drrej.core.thresholds import ERROR_RULES, as_share, risk_of
from drrej.documents.document import entries
from drrej.documents.fields import CERTIFIED, EXACT, NONE, About, Better, Count, Share, ShareOrNone, Unit
from drrej.errors import GateError
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


DEFAULT_POINTS = (
    "accuracy@coverage=0.5",
    "accuracy@coverage=0.8",
    "accuracy@coverage=0.9",
    "accuracy@coverage=0.95",
    "coverage@risk=0.01",
    "coverage@risk=0.05",
)
"""Those of every report."""

_PARTS = [entry.key for entry in entries(PointFigure)]
_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_POINT = re.compile(rf"(accuracy|risk|coverage)@(coverage|risk|accuracy)=({_NUMBER})(?:\.({'|'.join(_PARTS)}))?")


@dataclass(frozen=True)
class Point:
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
            return About(f"largest coverage with {rate} {at}", Unit.SHARE, "higher", CERTIFIED)
        what = "error rate" if self.figure == "risk" else "accuracy"
        better: Better = "lower" if self.figure == "risk" else "higher"
        return About(f"{what} at the smallest coverage of at least {at}", Unit.SHARE, better, EXACT)

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


@dataclass(frozen=True, kw_only=True)
class OutsideScore:
    """How a score sees rows of no class, and the areas over all rows; None where there is nothing to tell apart."""

    score: str
    auroc: float | None
    fpr_at_95_tpr: float | None
    aurc: float
    augrc: float


@dataclass(frozen=True, kw_only=True)
class Outside:
    """Rows of no class (column `column` is true). To accept one costs `cost_ratio` times an error.

    All other figures of the report are about rows that have a class.
    """

    column: str
    cost_ratio: Annotated[float, About(gate=False)]
    rows: Annotated[int, About("how many there are", Unit.COUNT, "neither", NONE)]
    accepted: Annotated[Proportion, About("share of them that is accepted", Unit.SHARE, "lower", EXACT)]
    joint_risk: Annotated[
        float | None,
        About(
            "errors, and accepted rows of no class times the cost ratio, per accepted row of either kind",
            Unit.COST,
            "lower",
            NONE,
        ),
    ]
    joint_risk_all: Annotated[float, About("the same if every row were accepted", Unit.COST, "lower", NONE)]
    auroc: Annotated[
        float | None,
        About(
            "chance that a row of no class has a larger loss than one of a class, ties half",
            Unit.SHARE,
            "higher",
            NONE,
            label="AUROC",
        ),
    ]
    fpr_at_95_tpr: Annotated[
        float | None,
        About(
            "share of them accepted where 95 % of the others are", Unit.SHARE, "lower", NONE, label="FPR at 95 % TPR"
        ),
    ]
    aurc: Annotated[float, About("AURC of the joint risk, over both kinds of rows", Unit.COST, "lower", NONE)]
    augrc: Annotated[float, About("AUGRC of the joint risk, over both kinds of rows", Unit.COST, "lower", NONE)]
    scores: tuple[OutsideScore, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class MovedPart:
    """A share of new rows against that of others, and the interval of the difference new - old.

    `at_least` is how far it has moved for sure, with its sign.
    """

    what: str
    part: str
    new: ShareOrNone
    old: ShareOrNone
    lower: float
    upper: float
    at_least: float


@dataclass(frozen=True, kw_only=True)
class Where:
    """The parts that surely moved, most first. The intervals hold for all that were `compared` together, at 95 %."""

    compared: Count
    parts: tuple[MovedPart, ...]
