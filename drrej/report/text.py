"""The report as plain text, for terminals and logs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from drrej.documents.document import GateRow, Judged
from drrej.documents.gates import TARGET
from drrej.documents.report import Report
from drrej.report.numbers import percent
from drrej.report.tables import Table, confusion_table, gate_value, heading, tables, target_lines


def render_text(report: Judged) -> str:
    """Sections separated by empty lines; no line is wider than about 80 columns."""
    sections = [[heading(report)], target_lines(report), *(aligned(table) for table in tables(report)), _gates(report)]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _gates(report: Judged) -> list[str]:
    """One line per gate."""
    return [f"{'PASS' if gate.passed else 'FAIL'}  {gate.gate}  ({_met(report, gate)})" for gate in report.gates]


def _met(report: Judged, gate: GateRow) -> str:
    return ("" if gate.gate == TARGET else "value ") + gate_value(report, gate)


def confusion_lines(report: Judged) -> list[str]:
    """The confusion matrix with its column of rejected rows, under its title; nothing where there is none."""
    table = confusion_table(report) if isinstance(report, Report) else None
    return [] if table is None else [f"{table.title}:", *aligned(table)]


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


_LINES = 9
_WIDEST, _NARROWEST = 72, 36
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bits of a braille sign's dots, four rows of two."""

_BLANK = 0x2800


def terminal_curve(
    curve: Sequence[dict[str, Any]],
    columns: int,
    chosen: tuple[float, float] | None = None,
    title: str = "accuracy",
    encoding: str = "utf-8",
) -> str:
    """An empty line and the plot, the chosen (coverage, accuracy) marked; nothing without room or without braille.

    The last point of a curve is at full coverage: what there is without rejection.
    """
    width = min(columns - 12, _WIDEST)
    if width < _NARROWEST or not encoding.lower().replace("-", "").startswith("utf"):
        return ""
    heights: list[float] = [point["accuracy"] for point in curve]
    low, high, base = min(heights), max(heights), heights[-1]
    canvas = _Canvas(width, _LINES)

    def down(accuracy: float) -> float:
        return (high - accuracy) / ((high - low) or 1.0)

    for across in range(0, 2 * width, 4):
        canvas.dot(across / (2 * width - 1), down(base))
    for start, end in pairwise(curve):
        canvas.line(start["coverage"], down(start["accuracy"]), end["coverage"], down(end["accuracy"]))
    if chosen is not None:
        canvas.mark(chosen[0], down(min(max(chosen[1], low), high)), "●")
    labels = {0: percent(high)} | ({_LINES - 1: percent(low)} if high > low else {})
    body = [f"{labels.get(number, ''):>9} │{line}" for number, line in enumerate(canvas.lines())]
    axis = f"{'0 %':<{width // 2 - 4}}{'coverage':<{width - width // 2 - 2}}{'100 %':>6}"
    key = ("" if chosen is None else "● this rejector   ") + "⠄⠄⠄ no rejection"
    return "\n".join(["", title, *body, f"{'':>9} └{'─' * width}", f"{'':>11}{axis}", f"{'':>11}{key}", ""])


class _Canvas:
    """Dots on a grid of braille signs; places are shares of the width and of the height."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = 2 * width - 1, 4 * height - 1
        self._signs = [[0] * width for _ in range(height)]
        self._marks: dict[tuple[int, int], str] = {}

    def _place(self, x: float, y: float) -> tuple[int, int]:
        return round(y * self._height), round(x * self._width)

    def dot(self, x: float, y: float) -> None:
        row, column = self._place(x, y)
        self._signs[row // 4][column // 2] |= _DOTS[row % 4][column % 2]

    def line(self, x0: float, y0: float, x1: float, y1: float) -> None:
        steps = max(round(abs(x1 - x0) * self._width), round(abs(y1 - y0) * self._height), 1)
        for step in range(steps + 1):
            self.dot(x0 + (x1 - x0) * step / steps, y0 + (y1 - y0) * step / steps)

    def mark(self, x: float, y: float, sign: str) -> None:
        row, column = self._place(x, y)
        self._marks[row // 4, column // 2] = sign

    def lines(self) -> list[str]:
        return [
            "".join(self._marks.get((i, j), chr(_BLANK + sign) if sign else " ") for j, sign in enumerate(line))
            for i, line in enumerate(self._signs)
        ]
