"""The report as notebooks show it: tables of HTML that need no style sheet and no other library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from drrej.documents.document import Judged
from drrej.report.numbers import against
from drrej.report.table import Table
from drrej.report.tables import heading, tables

_SHOWN = {"proportions", "groups", "scores", "masks", "difference", "cost", "errors"}
"""Tables that stand open; the others are folded."""


def render_notebook(report: Judged) -> str:
    """The decision, the gates, the tables."""
    pieces = [f"<p>{escape(heading(report))}</p>", *_gates(report), *(_section(table) for table in tables(report))]
    return "<div>" + "\n".join(pieces) + "</div>"


def _gates(report: Judged) -> list[str]:
    rows = [
        ["passed" if gate.passed else "failed", gate.gate, against(gate.value, gate.limit)] for gate in report.gates
    ]
    return [_table(Table("gates", "Gates", ["", "gate", "value"], rows))] if rows else []


def _section(table: Table) -> str:
    body = _table(table) + (f"<p>({escape(table.remark)})</p>" if table.remark else "")
    if table.id in _SHOWN:
        return body
    return f"<details><summary>{escape(table.title)}</summary>{body}</details>"


def _table(table: Table) -> str:
    rows = [_row(table.header, "th")] if table.header else []
    return "<table>" + "".join([*rows, *(_row(row, "td") for row in table.rows)]) + "</table>"


def _row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
