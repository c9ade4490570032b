"""The table of `drrej sweep` as plain text and csv."""

from __future__ import annotations

import csv
import io
from typing import Any

from drrej.documents.codec import to_tree
from drrej.documents.summaries import Sweep
from drrej.report.numbers import figure, short
from drrej.report.tables import Table
from drrej.report.text import aligned

_HEADINGS = {
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


def render_sweep(sweep: Sweep) -> str:
    """One line per combination; the two columns of tau are the ends of the coverage it reaches in (0, 1]."""
    rows = [[_cell(value) for value in to_tree(row).values()] for row in sweep.table]
    first = f"{sweep.rows} rows, {sweep.classes} classes; coverage that tau reaches from 1 down to 0:"
    return "\n".join([first, "", *aligned(Table("sweep", "", list(_HEADINGS.values()), rows))]) + "\n"


def render_sweep_csv(sweep: Sweep) -> str:
    """The same, for other tools: numbers with all their digits, nothing where there is none."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADINGS)
    writer.writerows(["" if value is None else value for value in to_tree(row).values()] for row in sweep.table)
    return text.getvalue()


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else figure(value) if value is None or abs(value) < 1 else short(value)
