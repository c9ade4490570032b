"""The coverage report in a notebook."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Self

from drrej.documents.report import Report as Document
from drrej.errors import ReportError
from drrej.report import need_libraries
from drrej.report.page import render_notebook
from drrej.report.plots import curve_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Report(Document):
    """What `evaluate` found: `report.coverage.value`, `report["accuracy"]["lower"]`, `report.failed_gates`.

    A notebook shows it as tables; `to_json` is the document that the command line writes.
    """

    @classmethod
    def of(cls, document: Document) -> Self:
        """A document as a report that can show itself."""
        return cls(**{field.name: getattr(document, field.name) for field in fields(document)})

    def __repr__(self) -> str:
        """A line; `to_json` has all of it."""
        told = [f"{self.rows} rows", f"coverage {self.coverage.value:.4g}"]
        if self.accuracy is not None and self.accuracy.value is not None:
            told.append(f"accuracy {self.accuracy.value:.4g}")
        if self.target is not None:
            told.append(f"target {self.target.verdict}")
        return f"<drrej.Report: {', '.join(told)}>"

    def _repr_html_(self) -> str:
        """For notebooks; needs nothing besides drrej."""
        return render_notebook(self)

    def plot(self) -> Figure:
        """Accuracy against coverage, as a matplotlib figure (extra `plot`); a notebook shows it."""
        if self.coverage_curve is None:
            raise ReportError("the curve needs labels; this report was made without")
        need_libraries("png", "plot")
        return curve_figure(self)
