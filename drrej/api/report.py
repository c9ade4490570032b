"""Reports, gates and warnings as Python has them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Self

from msgspec.structs import asdict

from drrej.documents.gates import Gate
from drrej.documents.report import Report as ReportDocument
from drrej.errors import DrrejWarning, ReportError
from drrej.report import need_libraries
from drrej.report.plots import curve_figure
from drrej.report.text import render_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Gates = Sequence[Gate | str] | str
"""Gates, or texts like "accuracy >= 0.97"; one text alone will do."""


def tell(words: Iterable[str | None]) -> None:
    """Warn the caller of the function that calls this."""
    for line in words:
        if line:
            warnings.warn(line, DrrejWarning, stacklevel=3)


def as_gates(gates: Gates) -> list[Gate]:
    """Gates, parsed where they are texts."""
    listed = [gates] if isinstance(gates, str) else gates
    return [Gate.parse(gate) if isinstance(gate, str) else gate for gate in listed]


class Report(ReportDocument, frozen=True):
    """What `evaluate` found: `report.coverage.value`, `report["accuracy"]["lower"]`, `report.failed_gates`.

    A notebook shows it as tables; `to_json` is the document that the command line writes.
    """

    @classmethod
    def of(cls, document: ReportDocument) -> Self:
        """A document as a report that can show itself."""
        return cls(**asdict(document))

    def __repr__(self) -> str:
        """A line; `to_json` has all of it."""
        told = [f"{self.rows} rows", f"coverage {self.coverage.value:.4g}"]
        if self.accuracy is not None and self.accuracy.value is not None:
            told.append(f"accuracy {self.accuracy.value:.4g}")
        if self.target is not None:
            told.append(f"target {self.target.verdict}")
        return f"<drrej.Report: {', '.join(told)}>"

    def _repr_markdown_(self) -> str:
        """For notebooks; needs nothing besides drrej."""
        return render_markdown(self)

    def plot(self) -> Figure:
        """Accuracy against coverage, as a matplotlib figure (extra `plot`); a notebook shows it."""
        if self.coverage_curve is None:
            raise ReportError("the curve needs labels; this report was made without")
        need_libraries("png", "plot")
        return curve_figure(self)
