"""The curve of a report as CSV: what a plotting tool reads."""

from __future__ import annotations

import csv
import io

from drrej.documents.document import Judged
from drrej.errors import ReportError


def render_csv(report: Judged) -> str:
    """A line for each point of the accuracy-coverage curve; of a regression, of its curve of errors."""
    tree = report.tree
    points = tree.get("coverage_curve", tree.get("curve"))
    if points is None:
        raise ReportError("the curve needs labels; this report was made without")
    text = io.StringIO()
    writer = csv.DictWriter(text, points[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(points)
    return text.getvalue()
