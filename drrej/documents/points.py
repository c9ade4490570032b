"""Points of the risk-coverage curve by name: `accuracy@coverage=0.9`, `risk@coverage=0.9`, `coverage@risk=0.01`.

At a coverage C the smallest coverage of at least C counts that whole tie blocks give; at a risk R the largest
coverage whose error rate is at most R, which is 0 when there is none.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from drrej.core.curves import Curve
from drrej.core.intervals import exact_decimal, proportion
from drrej.errors import GateError

DEFAULT_POINTS = (
    "accuracy@coverage=0.5",
    "accuracy@coverage=0.8",
    "accuracy@coverage=0.9",
    "accuracy@coverage=0.95",
    "coverage@risk=0.01",
    "coverage@risk=0.05",
)
"""Those of every report."""

PARTS = ("value", "lower", "upper", "accepted", "errors")

_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_POINT = re.compile(rf"(accuracy|risk|coverage)@(coverage|risk)=({_NUMBER})(?:\.({'|'.join(PARTS)}))?")


@dataclass(frozen=True)
class Point:
    """A figure at a given coverage or risk."""

    figure: str
    given: str
    at: float

    @classmethod
    def parse(cls, text: str) -> tuple[Point, str]:
        """The point and which part of it is meant (`value` if none is named)."""
        match = _POINT.fullmatch(text.strip())
        if match is None or (match[1] == "coverage") != (match[2] == "risk"):
            raise GateError(
                f"'{text}' is not a point of the curve; write accuracy@coverage=0.9, risk@coverage=0.9 or "
                "coverage@risk=0.01"
            )
        at = float(match[3])
        if not (at <= 1 and (at > 0 or match[2] == "risk")):
            raise GateError(f"'{text}': the {match[2]} must be a share, above 0 and at most 1")
        return cls(match[1], match[2], at), match[4] or "value"

    @property
    def name(self) -> str:
        """As the report calls it."""
        return f"{self.figure}@{self.given}={repr(self.at).removesuffix('.0')}"

    def counts(self, points: Curve) -> tuple[int, int]:
        """(accepted, errors) where the point lies."""
        if self.given == "coverage":
            return points.reaching(math.ceil(exact_decimal(self.at) * points.rows))
        return points.largest_at_risk(exact_decimal(self.at))

    def value(self, points: Curve) -> float:
        """The figure itself."""
        accepted, errors = self.counts(points)
        if self.figure == "coverage":
            return accepted / points.rows
        return (errors if self.figure == "risk" else accepted - errors) / accepted

    def row(self, points: Curve) -> dict[str, Any]:
        """The figure with its counts.

        Given the smallest rejected loss, the accepted rows are independent draws below it, so their errors are
        binomial and the exact interval holds. Coverage at a risk has no such interval: the bootstrap gives one.
        """
        accepted, errors = self.counts(points)
        if self.figure == "coverage":
            figures: dict[str, Any] = {"value": accepted / points.rows, "lower": None, "upper": None}
        else:
            figures = proportion(errors if self.figure == "risk" else accepted - errors, accepted)
        return {**figures, "accepted": accepted, "errors": errors}
