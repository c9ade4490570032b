"""The table of `drrej sweep` as plain text and csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from drrej.report.numbers import figure
from drrej.report.tables import Table
from drrej.report.text import aligned

_SWEEP_HEADINGS = {
    "loss": "loss",
    "alpha": "alpha",
    "lambda": "lambda",
    "lowest_coverage": "tau = 1",
    "highest_coverage": "tau > 0",
    "flat_part": "flat part",
    "accuracy_at_80": "acc. at 80 %",
    "accuracy_at_90": "acc. at 90 %",
    "augrc": "AUGRC",
}


def render_sweep(sweep: dict[str, Any]) -> str:
    """One line per combination; the two columns of tau are the ends of the coverage it reaches in (0, 1]."""
    rows = [[_cell(row[key]) for key in _SWEEP_HEADINGS] for row in sweep["table"]]
    lines = [f"{sweep['rows']} rows, {sweep['classes']} classes; coverage that tau reaches from 1 down to 0:", ""]
    return "\n".join([*lines, *aligned(Table("", list(_SWEEP_HEADINGS.values()), rows))]) + "\n"


def render_sweep_csv(sweep: dict[str, Any]) -> str:
    """The same, for other tools: numbers with all their digits, nothing where there is none."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_SWEEP_HEADINGS)
    writer.writerows(_csv_row(row) for row in sweep["table"])
    return text.getvalue()


def _csv_row(row: dict[str, Any]) -> Sequence[Any]:
    return ["" if row[key] is None else row[key] for key in _SWEEP_HEADINGS]


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else figure(value) if value is None or abs(value) < 1 else f"{value:g}"
