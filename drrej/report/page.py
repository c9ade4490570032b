"""The report as one self-contained page: no network, no scripts; light, dark, print, phone.

What is on the page is in `page.html.jinja`, where every text is escaped; here are its words and numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from drrej.documents.document import Judged
from drrej.documents.report import Report
from drrej.errors import printable
from drrej.report.plots import page_plots
from drrej.report.tables import PERCENT, Table, heading, size_words, tables
from drrej.report.words import (
    TYPESET,
    against,
    counted,
    figure,
    gate_value,
    money,
    percent,
    percents,
    seen_by,
    target_lines,
    target_of,
)

if TYPE_CHECKING:
    from jinja2 import Template


_WIDE = ("total-cost", "difference", "scores", "masks")
_NARROW = ("areas", "calibration", "cost", "drift")
"""Tables of the text report that are shown as they are: across the page, and beside each other."""

_EXAMPLES = ("rejected", "wrong")
_SENTENCES = {
    "total-cost": "What errors among the accepted rows and reviews of the rejected ones cost together.",
    "calibration": "How far the stated probabilities are from what happens; lower is better.",
    "areas": "How well the order by expected loss puts errors last, over all cutoffs at once.",
    "cost": "What the predictions cost by the cost matrix.",
    "drift": "Whether these rows are like those of the fit: a p-value near 0 says they are not.",
    "difference": "What has changed since the baseline.",
    "scores": "How other ways to order the rows do on the same rows.",
    "masks": "How other rejectors do on the same rows.",
    "points": "What other cutoffs would give: accuracy at a coverage, coverage at an error rate.",
    "confusion": "Which classes are taken for which, and how many rows of each class are rejected.",
    "rejected": "Rows that the rejector would not answer.",
    "wrong": "Rows that it answered, and wrongly.",
}
"""What each table shows, in one plain sentence."""

_TAU_EVERY = 5
_LONGEST = 32
"""Longer names are wrapped."""


def render_page(report: Report) -> str:
    """The page of a report with pictures; what a report without labels lacks is left out."""
    plain = {table.id: table for table in tables(report, PERCENT)}
    texts = _plot_texts(report)
    plots = page_plots(report, {name: text for name, (_, text, _) in texts.items()})
    made = (report.pictures or {}).get("made", {})
    accuracy = None if report.accuracy is None else report.accuracy.value
    about = [(key.capitalize(), made.get(key)) for key in ("date", "data", "model")]
    about.append(("Size", f"{counted(report.rows, 'row')}, {size_words(report)}"))
    target = target_of(report)
    return template("page.html.jinja").render(
        report=report,
        short=f"coverage {percent(report.coverage.value)}, accuracy {percent(accuracy)}",
        title=made.get("title", "Classification with rejection"),
        about=[(name, text) for name, text in about if text],
        verdict=verdict(report),
        mark=None if target is None else _MARKS[target.verdict],
        target=[line[:1].upper() + line[1:] for line in target_lines(report, TYPESET)],
        decision=_decision(report),
        sentences=_SENTENCES,
        examples=[plain[id] for id in _EXAMPLES if id in plain],
        seen_by=seen_by(report),
        plots=[(texts[name][0], svg, texts[name][2]) for name, svg in plots.items()],
        wide=[plain[id] for id in _WIDE if id in plain],
        narrow=[plain[id] for id in _NARROW if id in plain],
        points=plain.get("points"),
        confusion=plain.get("confusion"),
        tau_every=_TAU_EVERY,
        longest=_LONGEST,
    )


@cache
def template(name: str) -> Template:
    """A template of a page; what it inserts is escaped."""
    import jinja2

    page = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined, finalize=_printable
    )
    page.filters |= {"percent": percent, "percents": percents, "counted": counted}
    page.filters |= {"money": money, "thousands": "{:,}".format}
    page.filters["typeset"] = lambda cell: cell.replace(" - ", " to ").replace("+-", "\N{PLUS-MINUS SIGN}")
    style, text = (files("drrej.report").joinpath(file).read_text(encoding="utf-8") for file in ("page.css", name))
    page.globals |= {"style": style, "against": against, "gate_value": gate_value}
    return page.from_string(text)


def _printable(value: Any) -> Any:
    """Text of the user's without signs that no page can show."""
    text = "".join(sign if sign.isprintable() or sign in "\n\t" else "\N{REPLACEMENT CHARACTER}" for sign in str(value))
    return type(value)(text) if hasattr(value, "__html__") else text  # which was escaped before


# The verdict


def verdict(report: Report) -> str:
    """What the rejector does to these rows, in a sentence."""
    coverage, accuracy = percent(report.coverage.value), report.accuracy
    if accuracy is None or report.base_accuracy is None:
        expected = percent(report.expected_accuracy.value)
        return f"Accepts {coverage} of {report.rows:,} rows; the probabilities promise {expected} accuracy there."
    base = f"without rejection {percent(report.base_accuracy.value)}"
    if accuracy.value is None:
        return f"Accepts none of {report.rows:,} rows; {base}."
    return (
        f"Accepts {coverage} of rows at {percent(accuracy.value)} accuracy "
        f"(95 % interval {percents(accuracy)}); {base}."
    )


_MARKS = {
    "met": ("passed", "✓ Target met"),
    "not shown": ("open", "? Target not shown"),
    "missed": ("failed", "✗ Target missed"),
}


def _decision(report: Report) -> str:
    if report.cutoff is not None:
        tau = "" if report.tau is None else f", that is where its density ratio is τ = {figure(report.tau, 6)} or less"
        return f"A row is rejected where its expected loss is {figure(report.cutoff, 6)} or more{tau}."
    return "Nothing is rejected." if report.tau is not None else "Each group has its own cutoff."


# Plots


def _plot_texts(report: Report) -> dict[str, tuple[str, str, str]]:
    """The title of each plot that there is, what it shows for those who do not see it, and its caption."""
    texts, curve, ece = {}, report.coverage_curve, report.ece
    if curve is not None:
        steps = ", ".join(f"{percent(point.accuracy)} at {percent(point.coverage)}" for point in curve[4::15])
        texts["curve"] = (
            "Accuracy against coverage",
            f"Line plot of accuracy against coverage: {steps}. {verdict(report)}",
            "How accurate the answers are if only so many rows are answered. The dot is this rejector. Upwards is "
            "better; the ideal order would accept every right row before any wrong one.",
        )
    if report.total_cost is not None:
        texts["cost"] = (
            "Cost against coverage",
            "Line plot of the cost per 1000 rows against coverage.",
            "What errors and reviews cost together, per 1000 rows, if so many rows are accepted. The dot is this "
            "rejector; the left end reviews every row, the right end accepts every row.",
        )
    right_and_wrong = "Histograms of the expected losses of right and of wrong predictions, with the cutoff."
    shaded = "" if report.cutoff is None else " Rows in the shaded part are rejected."
    texts["losses"] = (
        "Expected losses",
        right_and_wrong if curve else "Histogram of the expected losses of the rows, with the cutoff.",
        f"How much each prediction is expected to be off, by its own probabilities.{shaded}",
    )
    if ece is not None:
        before, after = percent(ece.uncalibrated), percent(ece.all)
        texts["reliability"] = (
            "Can the confidence be trusted?",
            "Reliability diagram: accuracy against confidence. The expected calibration error is "
            f"{before} before and {after} after calibration.",
            f"On the diagonal, confidence is what it says. Calibration error (ECE) {before} before calibration, "
            f"{after} after. Below: where the rows are.",
        )
    return texts


# Notebooks

_SHOWN = {"proportions", "groups", "scores", "masks", "difference", "cost", "errors"}
"""Tables that stand open; the others are folded."""


def render_notebook(report: Judged) -> str:
    """The decision, the gates, the tables."""
    rows = [
        ["passed" if gate.passed else "failed", gate.gate, against(gate.value, gate.limit)] for gate in report.gates
    ]
    gates = [_table(Table("gates", "Gates", ["", "gate", "value"], rows))] if rows else []
    pieces = [f"<p>{_text(heading(report))}</p>", *gates, *(_section(table) for table in tables(report))]
    return "<div>" + "\n".join(pieces) + "</div>"


def _section(table: Table) -> str:
    body = _table(table) + (f"<p>({_text(table.remark)})</p>" if table.remark else "")
    if table.id in _SHOWN:
        return body
    return f"<details><summary>{_text(table.title)}</summary>{body}</details>"


def _table(table: Table) -> str:
    rows = [_row(table.header, "th")] if table.header else []
    return "<table>" + "".join([*rows, *(_row(row, "td") for row in table.rows)]) + "</table>"


def _row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{_text(cell)}</{tag}>" for cell in cells) + "</tr>"


def _text(text: str) -> str:
    return escape(printable(text))
