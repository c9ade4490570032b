"""The curve of a report as CSV: what a plotting tool reads."""

from __future__ import annotations

import csv
import io

from drrej.documents.document import Judged


def render_csv(report: Judged) -> str:
    """A line for each point of the accuracy-coverage curve; of a regression, of its curve of errors."""
    tree = report.tree
    points = tree["curve"] if "coverage_curve" not in tree else tree["coverage_curve"]
    text = io.StringIO()
    writer = csv.DictWriter(text, points[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(points)
    return text.getvalue()
