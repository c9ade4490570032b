"""The report as text: plain for terminals and logs, and as markdown, fit for `>> $GITHUB_STEP_SUMMARY`."""

from __future__ import annotations

from collections.abc import Sequence

from drrej.documents.document import Document
from drrej.documents.gates import VERDICTS
from drrej.documents.summaries import Cascade, Plan
from drrej.errors import printable
from drrej.report.tables import Table, heading, tables
from drrej.report.words import TYPESET, aligned, gate_state, gate_value, target_lines, target_of

_MARKS = {"passed": "PASS", "failed": "FAIL", "inconclusive": "OPEN"}


def render_text(report: Document) -> str:
    """Sections separated by empty lines; no line is wider than about 80 columns."""
    gates = [
        f"{_MARKS[gate_state(report, gate)]}  {gate.gate}  "
        f"({'' if gate.gate in VERDICTS else 'value '}{gate_value(report, gate)})"
        for gate in report.gates
    ]
    shown = [aligned(table.header, table.rows, table.remark) for table in tables(report)]
    sections = [heading(report).split("\n"), target_lines(report), *shown, gates]
    return "\n\n".join("\n".join(map(printable, lines)) for lines in sections if lines) + "\n"


# Markdown: the verdict first, long tables folded

_FOLDED = {"points", "calibration", "areas", "drift", "curve", "classes", "confusion"}
_SIGNS = {"passed": "✅", "failed": "❌", "inconclusive": "❔"}
_SAFE = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", **{sign: f"\\{sign}" for sign in "\\`*_|[]"}})
_TITLES: dict[type, str] = {Plan: "plan", Cascade: "cascade"}


def render_markdown(report: Document) -> str:
    """Headings and tables of GitHub's markdown."""
    sections = [f"## drrej {_TITLES.get(type(report), 'report')}", _escaped(heading(report).replace("\n", " "))]
    target, gates = target_of(report), report.gates
    if target is not None:
        first, *others = (_escaped(line) for line in target_lines(report, TYPESET))
        sections.append("\n".join([f"**Target {target.verdict}:** {first}", *(f"- {line}" for line in others)]))
    if gates:
        failed = sum(not gate.passed for gate in gates)
        unclear = sum(gate_state(report, gate) == "inconclusive" for gate in gates)
        passed = "**no gate failed, 1 is inconclusive**" if unclear else "**all gates passed**"
        sections.append(f"**{failed} of {len(gates)} gates failed**" if failed else passed)
        rows = [
            [_SIGNS[gate_state(report, gate)], f"`{printable(gate.gate)}`", gate_value(report, gate)] for gate in gates
        ]
        sections.append(_table([["", "gate", "value"], *rows]))
    return "\n\n".join([*sections, *(markdown_section(table) for table in tables(report))]) + "\n"


def markdown_section(table: Table) -> str:
    """A table under its title, folded if it is long."""
    cells = [[_escaped(cell) for cell in row] for row in [table.header, *table.rows]]
    body = _table(cells) if table.header else "\n".join(cell for row in cells for cell in row)
    if table.remark:
        body += f"\n\n({_escaped(table.remark)})"
    if table.id in _FOLDED:
        return f"<details><summary>{_escaped(table.title)}</summary>\n\n{body}\n\n</details>"
    return f"### {_escaped(table.title)}\n\n{body}" if table.title else body


def _table(cells: Sequence[Sequence[str]]) -> str:
    """Lines of a table; the first one is its header."""
    rule = ["---", *("---:" for _ in cells[0][1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in [cells[0], rule, *cells[1:]])


def _escaped(text: str) -> str:
    """Text that markdown and HTML leave as it is."""
    return printable(text).translate(_SAFE)
