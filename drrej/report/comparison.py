"""Several reports side by side: a row for each model, the differences to the first, and one plot of their curves."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

from drrej.documents.document import entries
from drrej.documents.figures import Change, Spread
from drrej.documents.report import Difference, Report
from drrej.report.plots import curves_figure, saved, svg_of
from drrej.report.tables import Table
from drrej.report.text import markdown_section
from drrej.report.words import TYPESET, aligned, money, percent, plain, wish_words

ENDINGS = (".txt", ".md", ".tex", ".csv", ".html", ".png", ".svg", ".pdf")
"""The formats of a comparison."""

_FIGURES = {
    "coverage": "coverage",
    "accuracy": "accuracy",
    "base_accuracy": "base accuracy",
    "aurc": "AURC",
    "augrc": "AUGRC",
}
_SHARES = ("coverage", "accuracy", "base_accuracy")
_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_TEX |= {sign: f"\\{sign}" for sign in "&%$#_{}"} | {"\N{EN DASH}": "--", TYPESET[0]: r"$\ge$", TYPESET[1]: r"$\le$"}


def render_comparison(reports: Mapping[str, Report], differences: Mapping[str, Difference], kind: str) -> bytes:
    """A comparison as the content of a file; `kind` is an ending without its dot."""
    found = comparison_tables(reports, differences)
    if kind == "txt":
        return "\n".join("\n".join([*aligned(t.header, t.rows, t.remark), ""]) for t in found).encode()
    if kind == "md":
        return ("\n\n".join(["## drrej comparison", *map(markdown_section, found)]) + "\n").encode()
    if kind == "tex":
        return "\n".join(map(_tex, found)).encode()
    if kind == "csv":
        return _csv(reports, differences).encode()
    plot = curves_figure({name: report.coverage_curve or () for name, report in reports.items()})
    if kind != "html":
        return saved(plot, kind)
    svg = svg_of(plot, "curves", f"Accuracy against coverage of {', '.join(reports)}.")
    from drrej.report.page import template

    version = ", ".join(sorted({report.drrej_version for report in reports.values()}))
    page = template("comparison.html.jinja")
    return page.render(names=list(reports), plot=svg, shown=found, version=version).encode()


def comparison_tables(reports: Mapping[str, Report], differences: Mapping[str, Difference]) -> list[Table]:
    """The figures of each report with their 95 % intervals, and the differences to the first one."""
    priced = [report.total_cost for report in reports.values() if report.total_cost is not None]
    header = ["model", "rows", *_FIGURES.values(), *(["cost per 1,000 rows"] if priced else []), "target"]
    rows = []
    for name, report in reports.items():
        cells = [name, f"{report.rows:,}", *(_cell(key, getattr(report, key)) for key in _FIGURES)]
        if priced:
            cost = report.total_cost
            ends = "" if cost is None else f" ({money(cost.lower)}\N{EN DASH}{money(cost.upper)})"
            cells.append("-" if cost is None else money(cost.value) + ends)
        target = report.target
        cells.append("-" if target is None else f"{wish_words(target, target.deciding, TYPESET)}: {target.verdict}")
        rows.append(cells)
    found = [Table("models", "Models", header, rows, "95 % intervals in brackets")]
    if differences:
        keys = [entry.name for entry in entries(Difference) if entry.section is Change and entry.name in _FIGURES]
        rows = []
        for name, each in differences.items():
            how = "paired" if each.kind == "paired" else "not paired"
            rows.append([name, how, *(_cell(key, getattr(each, key)) for key in keys)])
        header = ["model", "rows", *(_FIGURES[key] for key in keys)]
        remark = "the difference is significant if its 95 % interval does not contain 0; shares in percentage points"
        found.append(Table("differences", f"Difference from {next(iter(reports))}", header, rows, remark))
    return found


def _cell(key: str, spread: Spread | None) -> str:
    """A figure with its interval; differences of shares in percentage points."""
    if spread is None or spread.value is None:
        return "-"
    values = [value for value in (spread.value, spread.lower, spread.upper) if value is not None]
    if isinstance(spread, Change):
        texts = [f"{100 * value:+.1f}" if key in _SHARES else f"{value:+.2g}" for value in values]
    else:
        texts = [percent(value).removesuffix(" %") if key in _SHARES else plain(value) for value in values]
    unit = " %" if key in _SHARES and not isinstance(spread, Change) else ""
    return texts[0] + unit if len(texts) == 1 else f"{texts[0]}{unit} ({texts[1]} to {texts[2]})"


def _tex(table: Table) -> str:
    """A table for LaTeX, with the rules of the package booktabs."""
    cells = [["".join(_TEX.get(sign, sign) for sign in cell) for cell in row] for row in (table.header, *table.rows)]
    header, *lines = map(" & ".join, cells)
    columns = "l" + "r" * (len(table.header) - 1)
    body = " \\\\\n".join(lines)
    return (
        f"% {table.title}; {table.remark}\n\\begin{{tabular}}{{{columns}}}\n\\toprule\n{header} \\\\\n\\midrule\n"
        f"{body} \\\\\n\\bottomrule\n\\end{{tabular}}\n"
    )


def _csv(reports: Mapping[str, Report], differences: Mapping[str, Difference]) -> str:
    """A line for each model and figure: value and interval, and the difference to the first model with its own."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    parts = ("value", "lower", "upper")
    writer.writerow(["model", "rows", "figure", *parts, *(f"difference_{part}" for part in parts), "paired"])
    for name, report in reports.items():
        for key in _FIGURES:
            difference = differences.get(name)
            figures = getattr(report, key), getattr(difference, key, None)
            paired = "" if difference is None else str(difference.kind == "paired").lower()
            ends = [getattr(figure, part, None) for figure in figures for part in parts]  # nothing is written for None
            writer.writerow([name, report.rows, key, *ends, paired])
    return text.getvalue()
