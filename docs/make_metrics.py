"""Writes docs/metrics.md from the catalogue of metrics: python docs/make_metrics.py."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from drrej.cli.console import in_flags
from drrej.documents.gates import Metric, catalogue, group_metrics
from drrej.documents.report import RegressionReport, Report

INTRODUCTION = """# Metrics

Every figure of a report that `--gate` can test. `drrej metrics` prints the same list in the terminal. A script
(`docs/make_metrics.py`) makes this page from the declarations in the code.

Some metrics have endings, listed in the second column:

| ending | the gate tests |
|---|---|
| none, or `.value` | the figure itself |
| `.lower`, `.upper` | the lower or upper end of its two-sided 95 % interval |
| `.accepted`, `.errors` | the number of accepted rows or of errors behind it |
| `.all` | the same figure for all rows, including rejected ones |

You can name any point on the curve: `accuracy@coverage=0.9` is the accuracy at a coverage of 90 %, and
`coverage@risk=0.02` the coverage at a risk of 2 %. The points listed below are examples. `accuracy[class=NAME]` and,
with `--report-by`, `accuracy[group=NAME]` are the figures of one class or group; see
[the end of this page](#one-class-or-group).
"""
ENDINGS = ("value", "lower", "upper", "accepted", "errors", "all")


def rows(metrics: Iterable[Metric]) -> list[str]:
    """One row for each metric, with its endings."""
    found: dict[str, tuple[Metric, list[str]]] = {}
    for metric in metrics:
        name, _, ending = metric.name.rpartition(".")
        if ending in ENDINGS and name in found:
            found[name][1].append(f"`.{ending}`")
        else:
            found[metric.name] = (metric, [])
    table = ["| metric | endings | meaning | unit | better | interval | needs |", "|---|---|---|---|---|---|---|"]
    for name, (metric, endings) in found.items():
        cells = (" ".join(endings), metric.meaning, metric.unit, metric.better, metric.interval, in_flags(metric.needs))
        table.append(" | ".join([f"| `{name}`", *(cell.replace("|", "\\|") for cell in cells)]) + " |")
    return [*table, ""]


def page() -> str:
    """The text of the page."""
    lines = [INTRODUCTION]
    lines += ["## Classification", "", *rows(catalogue(of=Report))]
    lines += ["## Regression", "", *rows(catalogue(of=RegressionReport))]
    lines += ["## One class or group", "", *rows([*group_metrics("class"), *group_metrics("group")])]
    return "\n".join(lines)


if __name__ == "__main__":
    Path(__file__).with_name("metrics.md").write_text(page(), encoding="utf-8")
