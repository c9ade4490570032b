"""The report as plain text, for terminals and logs."""

from __future__ import annotations

from drrej.documents.document import Document
from drrej.documents.gates import VERDICTS
from drrej.errors import printable
from drrej.report.tables import Table, heading, tables
from drrej.report.words import gate_state, gate_value, target_lines

_MARKS = {"passed": "PASS", "failed": "FAIL", "inconclusive": "OPEN"}


def render_text(report: Document) -> str:
    """Sections separated by empty lines; no line is wider than about 80 columns."""
    gates = [
        f"{_MARKS[gate_state(report, gate)]}  {gate.gate}  "
        f"({'' if gate.gate in VERDICTS else 'value '}{gate_value(report, gate)})"
        for gate in report.gates
    ]
    sections = [heading(report).split("\n"), target_lines(report), *(aligned(table) for table in tables(report)), gates]
    return "\n\n".join("\n".join(map(printable, lines)) for lines in sections if lines) + "\n"


def aligned(table: Table) -> list[str]:
    """Aligned columns: the first to the left, the others to the right."""
    lines = [table.header, *table.rows] if table.header else table.rows
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    lines_of = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return [*lines_of, f"({table.remark})"] if table.remark else lines_of
