"""Writes docs/metrics.md from the catalogue of metrics: python docs/make_metrics.py."""

from __future__ import annotations

from pathlib import Path

from drrej.documents.gates import catalogue, group_metrics
from drrej.documents.report import RegressionReport, Report

INTRODUCTION = """# Metrics

Every number of a report that `--gate` may name, made from what the report declares by `docs/make_metrics.py`. A name
without an ending stands for its `.value`. "Better" says which direction is. Intervals are 95 %, two-sided.

Points of the curve have names without end: `accuracy@coverage=0.9` and `coverage@risk=0.02` are two; any share will
do. `accuracy[class=NAME]` and, with `--report-by`, `accuracy[group=NAME]` are the figures of one class or group, see
the end.
"""


def page() -> str:
    """The text of the page."""
    lines = [INTRODUCTION]
    for title, kind in (("Classification", Report), ("Regression", RegressionReport)):
        lines += [
            f"## {title}",
            "",
            "| metric | meaning | unit | better | interval | needs |",
            "|---|---|---|---|---|---|",
        ]
        for metric in catalogue(of=kind):
            cells = (metric.meaning, metric.unit, metric.better, metric.interval, metric.needs)
            lines.append(" | ".join([f"| `{metric.name}`", *(cell.replace("|", "\\|") for cell in cells)]) + " |")
        lines.append("")
    lines += ["## One class or group", "", "| metric | meaning | unit | better | needs |", "|---|---|---|---|---|"]
    for metric in [*group_metrics("class"), *group_metrics("group")]:
        lines.append(f"| `{metric.name}` | {metric.meaning} | {metric.unit} | {metric.better} | {metric.needs} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    Path(__file__).with_name("metrics.md").write_text(page(), encoding="utf-8")
