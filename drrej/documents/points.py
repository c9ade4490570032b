"""Points of the risk-coverage curve by name: `accuracy@coverage=0.9`, `risk@coverage=0.9`, `coverage@risk=0.01`.

At a coverage C the smallest coverage of at least C counts that whole tie blocks give; at a risk R the largest
coverage whose error rate is at most R, which is 0 when there is none. `coverage@accuracy=0.99` is `coverage@risk=0.01`
in other words.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from drrej.core.coverage_interval import coverage_at_risk
from drrej.core.curves import Curve
from drrej.core.intervals import exact_decimal, proportion
from drrej.core.thresholds import ERROR_RULES, as_share, risk_of
from drrej.documents.about import CERTIFIED, EXACT, About, Better, Unit
from drrej.documents.codec import entries
from drrej.documents.proportions import PointFigure
from drrej.errors import GateError
from drrej.records import dataclass

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
        `core.coverage_interval`, and is made if asked for.
        """
        accepted, errors = self.counts(points)
        if self.figure == "coverage":
            lower, upper = coverage_at_risk(points, self.risk) if intervals else (None, None)
            value = accepted / points.rows
            return PointFigure(value=value, lower=lower, upper=upper, accepted=accepted, errors=errors)
        hits = errors if self.figure == "risk" else accepted - errors
        return PointFigure(**proportion(hits, accepted), accepted=accepted, errors=errors)
