"""The accuracy-coverage curve in braille dots, for terminals."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from drrej.report.numbers import percent

_LINES = 9
_WIDEST, _NARROWEST = 72, 36
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bits of a braille sign's dots, four rows of two."""

_BLANK = 0x2800


def terminal_curve(report: dict[str, Any], columns: int, encoding: str | None = "utf-8") -> str:
    """An empty line and the plot; nothing where there is no curve, no room, or no braille."""
    curve = [point for point in report.get("coverage_curve", []) if point["accuracy"] is not None]
    width = min(columns - 12, _WIDEST)
    if not curve or width < _NARROWEST or not (encoding or "").lower().replace("-", "").startswith("utf"):
        return ""
    base, chosen = report["base_accuracy"]["value"], report["accuracy"]["value"]
    heights: list[float] = [point["accuracy"] for point in curve] + [base]
    low, high = min(heights), max(heights)
    span = (high - low) or 1.0
    canvas = _Canvas(width, _LINES)

    def row(accuracy: float) -> float:
        return (high - accuracy) / span

    for across in range(0, 2 * width, 4):
        canvas.dot(across / (2 * width - 1), row(base))
    for start, end in pairwise(curve):
        canvas.line(start["coverage"], row(start["accuracy"]), end["coverage"], row(end["accuracy"]))
    lines = canvas.lines()
    if chosen is not None:
        canvas.put(lines, report["coverage"]["value"], row(min(max(chosen, low), high)), "●")
    labels = {0: percent(high), _LINES - 1: percent(low)} if high > low else {0: percent(high)}
    body = [f"{labels.get(number, ''):>9} │{''.join(line)}" for number, line in enumerate(lines)]
    axis = f"{'0 %':<{width // 2 - 4}}{'coverage':<{width - width // 2 - 2}}{'100 %':>6}"
    return "\n".join(["", "accuracy", *body, f"{'':>9} └{'─' * width}", f"{'':>11}{axis}", _key(chosen)]) + "\n"


def _key(chosen: float | None) -> str:
    return f"{'':>11}{'● this rejector   ' if chosen is not None else ''}⠄⠄⠄ no rejection"


class _Canvas:
    """Dots on a grid of braille signs; places are shares of the width and of the height."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._signs = [[0] * width for _ in range(height)]

    def dot(self, x: float, y: float) -> None:
        column, row = round(x * (2 * self.width - 1)), round(y * (4 * self.height - 1))
        self._signs[row // 4][column // 2] |= _DOTS[row % 4][column % 2]

    def line(self, x0: float, y0: float, x1: float, y1: float) -> None:
        steps = max(round(abs(x1 - x0) * 2 * self.width), round(abs(y1 - y0) * 4 * self.height), 1)
        for step in range(steps + 1):
            self.dot(x0 + (x1 - x0) * step / steps, y0 + (y1 - y0) * step / steps)

    def lines(self) -> list[list[str]]:
        return [[chr(_BLANK + sign) if sign else " " for sign in line] for line in self._signs]

    def put(self, lines: list[list[str]], x: float, y: float, sign: str) -> None:
        column, row = round(x * (2 * self.width - 1)), round(y * (4 * self.height - 1))
        lines[row // 4][column // 2] = sign
