"""The report of a regression as plain text."""

from __future__ import annotations

from typing import Any

from drrej.report.numbers import figure, interval
from drrej.report.tables import Table
from drrej.report.text import aligned, gate_lines

_CURVE_EVERY = 5


def render_regression(report: dict[str, Any]) -> str:
    """Sections separated by empty lines."""
    coverage = report["coverage"]
    cutoff = report["cutoff"]
    decision = "rejects nothing" if cutoff is None else f"rejects a loss of {figure(cutoff, 6)} or more"
    errors = [
        [name, *(figure(report[key][part], 6) for part in ("value", "all")), *_areas(report[key])]
        for name, key in {"MSE": "mse", "MAE": "mae"}.items()
    ]
    curve = [
        [figure(point["tau"], 2), *(figure(point[key]) for key in ("coverage", "mse", "mae"))]
        for point in report["curve"][_CURVE_EVERY - 1 :: _CURVE_EVERY]
    ]
    sections = [
        [f"{report['rows']} rows, regression; {decision}"],
        [f"coverage  {figure(coverage['value'])}  ({interval(coverage)}), {coverage['accepted']} accepted"],
        aligned(Table("", ["", "accepted", "all", "AURC", "AUGRC"], errors)),
        aligned(Table("", ["tau ", "coverage", "MSE", "MAE"], curve)),
        gate_lines(report["gates"]),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _areas(error: dict[str, Any]) -> list[str]:
    return [figure(error[key]["value"], 6) for key in ("aurc", "augrc")]
