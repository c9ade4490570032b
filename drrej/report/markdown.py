"""The report as markdown, fit for `>> $GITHUB_STEP_SUMMARY`: the verdict first, long tables folded."""

from __future__ import annotations

from typing import Any

from drrej.report.numbers import against
from drrej.report.tables import Table, heading, tables

_FOLDED = {"Points of the curve", "Calibration", "Areas", "Drift since the fit", "Curve", "By class"}


def render_markdown(report: dict[str, Any]) -> str:
    """Headings and tables of GitHub's markdown."""
    sections = ["## drrej report", _escaped(heading(report)), *_gates(report), *(_section(t) for t in tables(report))]
    return "\n\n".join(sections) + "\n"


def _gates(report: dict[str, Any]) -> list[str]:
    if not report["gates"]:
        return []
    failed = sum(not gate["passed"] for gate in report["gates"])
    verdict = f"**{failed} of {len(report['gates'])} gates failed**" if failed else "**all gates passed**"
    rows = [
        ["✅" if gate["passed"] else "❌", f"`{gate['gate']}`", against(gate["value"], gate["limit"])]
        for gate in report["gates"]
    ]
    lines = _lines(["", "gate", "value"], rows, escape=False)
    return [verdict, "\n".join(lines)]


def _section(table: Table) -> str:
    lines = _lines(table.header, table.rows)
    if table.remark:
        lines += ["", f"({_escaped(table.remark)})"]
    body = "\n".join(lines)
    if table.title in _FOLDED:
        return f"<details><summary>{_escaped(table.title)}</summary>\n\n{body}\n\n</details>"
    return f"### {_escaped(table.title)}\n\n{body}"


def _lines(header: Any, rows: Any, escape: bool = True) -> list[str]:
    rule = ["---", *("---:" for _ in header[1:])]
    cells = [[_escaped(cell) if escape else cell for cell in row] for row in [header, *rows]]
    cells.insert(1, rule)
    return ["| " + " | ".join(row) + " |" for row in cells]


def _escaped(text: str) -> str:
    """Text that markdown and HTML leave as it is."""
    for sign, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(sign, safe)
    for sign in "\\`*_|[]":
        text = text.replace(sign, "\\" + sign)
    return text.replace("\n", " ")
