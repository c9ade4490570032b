"""The report of a regression with rejection: selective squared and absolute error, their curves and areas."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from drrej.documents.codec import Codec
from drrej.documents.document import GateRow, Judged
from drrej.documents.fields import NONE, About, Share, Unit
from drrej.documents.points import CoverageOfDump, Cutoff, Rows, Tau
from drrej.documents.targets import Target
from drrej.errors import ReportError
from drrej.records import dataclass

FORMAT = "drrej-regression-report/1"
"""1: the first format."""


@dataclass(frozen=True, kw_only=True)
class ErrorArea:
    """An area under a curve of errors; `convention` says which of the numbers with that name it is."""

    value: float | None
    convention: str


@dataclass(frozen=True, kw_only=True)
class ErrorFigures:
    """An error of the accepted rows, of all rows, and the areas under its curves."""

    value: Annotated[float | None, About("of the accepted rows")]
    all: Annotated[float | None, About("of all rows")]
    aurc: Annotated[ErrorArea, About("area under it against coverage", label="AURC")]
    augrc: Annotated[ErrorArea, About("area under the sum of accepted errors / rows against coverage", label="AUGRC")]


@dataclass(frozen=True, kw_only=True)
class RatioMean:
    """The density ratio on these rows."""

    mean: Annotated[float | None, About("mean ratio of the rows, 1 in expectation without drift", Unit.RATIO)]


@dataclass(frozen=True, kw_only=True)
class ErrorPoint:
    """Coverage and errors at one tau of (0, 1]."""

    tau: Share
    coverage: Share
    mse: Annotated[float | None, About(unit=Unit.SQUARED_ERROR)]
    mae: Annotated[float | None, About(unit=Unit.ERROR)]


@dataclass(frozen=True, kw_only=True, eq=False)
class RegressionReport(Judged):
    """What `evaluate_regression` found about a dump; by attribute or by key."""

    CODEC: ClassVar[Codec] = Codec(FORMAT, "report of a regression", ReportError)

    drrej_version: str
    task: Literal["regression"] = "regression"
    rows: Rows
    tau: Tau
    cutoff: Cutoff
    cutoff_by: str | None = None
    seen_by: tuple[str, ...] | None = None
    target: Annotated[Target | None, About(gate=False)] = None
    coverage: CoverageOfDump
    mse: Annotated[
        ErrorFigures, About("mean squared error of the prediction", Unit.SQUARED_ERROR, "lower", NONE, label="MSE")
    ]
    mae: Annotated[ErrorFigures, About("mean absolute error of the prediction", Unit.ERROR, "lower", NONE, label="MAE")]
    ratio: Annotated[RatioMean, About(better="neither", interval=NONE)]
    curve: tuple[ErrorPoint, ...]
    gates: tuple[GateRow, ...]
