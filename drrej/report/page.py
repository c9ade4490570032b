"""The report as one self-contained page: no network, one small script; light, dark, print, phone.

What is on the page is in `page.html.jinja`, where every text is escaped; here are its words and numbers.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from drrej.documents.report import Report
from drrej.report.brief import worst_lines
from drrej.report.plots import MOST_CURVES, page_plots
from drrej.report.tables import PERCENT, size_words, tables
from drrej.report.words import (
    TYPESET,
    against,
    counted,
    figure,
    gate_state,
    gate_value,
    money,
    other_model,
    percent,
    percents,
    seen_by,
    target_lines,
    target_of,
)

if TYPE_CHECKING:
    from jinja2 import Template


_NARROW = ("areas", "calibration", "cost", "drift")
"""Tables that stand beside each other."""

_EXAMPLES = ("rejected", "wrong")
_ELSEWHERE = (*_NARROW, *_EXAMPLES, "proportions", "curve", "points")
"""Tables that have a place of their own, or are shown in another way; the others go across the page."""

_SENTENCES = {
    "total-cost": "Total cost of errors among the accepted rows and reviews of the rejected ones.",
    "calibration": "How far the stated probabilities are from the observed frequencies. Lower is better.",
    "areas": "How well the expected loss separates right from wrong predictions, over all cutoffs.",
    "cost": "Cost of the predictions according to the cost matrix.",
    "drift": "Whether these rows resemble those of the fit. A p-value near 0 means that they do not.",
    "difference": "Changes since the baseline.",
    "scores": "Other scores, evaluated on the same rows.",
    "groups": "Coverage and accuracy for each group.",
    "classes": "Coverage and accuracy for each class.",
    "points": "Results at other cutoffs: accuracy at a coverage, coverage at an error rate.",
    "confusion": "Accepted rows by true and predicted class, and rejected rows of each class.",
    "rejected": "Rejected rows with the largest expected losses.",
    "wrong": "Accepted rows whose prediction is wrong.",
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
    about = [(key.capitalize(), made.get(key)) for key in ("date", "data")]
    about += [("Model", report.model or made.get("model")), ("Rejector for", report.rejector_model)]
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
        worst=[line[:1].upper() + line[1:] for _, line in worst_lines(report)],
        decision=_decision(report),
        sentences=_SENTENCES,
        examples=[plain[id] for id in _EXAMPLES if id in plain],
        cautions=[line[:1].upper() + line[1:] for line in (other_model(report), seen_by(report)) if line],
        plots=[(name, texts[name][0], svg, texts[name][2]) for name, svg in plots.items()],
        wide=[table for id, table in plain.items() if id not in _ELSEWHERE],
        narrow=[plain[id] for id in _NARROW if id in plain],
        points=plain.get("points"),
        slider=_slider(report),
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
    page.filters |= {"money": money, "thousands": "{:,}".format, "shades": _shades}
    page.filters["typeset"] = lambda cell: cell.replace(" - ", " to ").replace("+-", "\N{PLUS-MINUS SIGN}")
    style, text = (files("drrej.report").joinpath(file).read_text(encoding="utf-8") for file in ("page.css", name))
    page.globals |= {"style": style, "against": against, "gate_value": gate_value, "gate_state": gate_state}
    return page.from_string(text)


def _printable(value: Any) -> Any:
    """Text of the user's without signs that no page can show."""
    text = "".join(sign if sign.isprintable() or sign in "\n\t" else "\N{REPLACEMENT CHARACTER}" for sign in str(value))
    return type(value)(text) if hasattr(value, "__html__") else text  # which was escaped before


def _shades(row: Sequence[str]) -> list[int]:
    """How dark each count of a row is, after its name: in percent, by its share of the row.

    >>> _shades(["cat", "60", "0", "3", "37"])
    [30, 0, 2, 19]
    """
    counts = [int(cell) for cell in row[1:]]
    return [math.ceil(_DARKEST * count / max(sum(counts), 1)) for count in counts]


_DARKEST = 50
"""In percent, so that the text on it can be read."""


def _slider(report: Report) -> dict[str, Any] | None:
    """What moving along the curve takes: its points, the script, and the hash by which the page allows that alone."""
    curve = report.coverage_curve
    if curve is None:
        return None
    costs = {} if report.total_cost is None else {point.coverage: point.cost for point in report.total_cost.curve}
    points = [(p.coverage, p.accuracy, p.lower, p.upper, costs.get(p.coverage)) for p in curve]
    here, right = report.coverage.value, report.accuracy
    if here is not None and right is not None:  # it starts at the cutoff of the report
        cost = None if report.total_cost is None else report.total_cost.value
        points = [point for point in points if point[0] != here] + [(here, right.value, right.lower, right.upper, cost)]
        points.sort(key=lambda point: point[0])
    script = files("drrej.report").joinpath("slider.js").read_text(encoding="utf-8")
    nearest = min(range(len(points)), key=lambda place: abs(points[place][0] - (here or 0.0)))
    return {
        "data": json.dumps({"rows": report.rows, "points": points}),
        "script": script,
        "hash": f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}",
        "chosen": nearest,
        "last": len(points) - 1,
    }


# The verdict


def verdict(report: Report) -> str:
    """What the rejector does to these rows, in a sentence."""
    coverage, accuracy = percent(report.coverage.value), report.accuracy
    if accuracy is None or report.base_accuracy is None:
        expected = percent(report.expected_accuracy.value)
        return f"Accepts {coverage} of {report.rows:,} rows; their expected accuracy is {expected}."
    base = f"without rejection {percent(report.base_accuracy.value)}"
    if accuracy.value is None:
        return f"Accepts none of {report.rows:,} rows; {base}."
    return (
        f"Accepts {coverage} of rows at {percent(accuracy.value)} accuracy "
        f"(95 % interval {percents(accuracy)}); {base}."
    )


_MARKS = {
    "met": ("passed", "✓ Target met", "The rows of this report confirm the target."),
    "inconclusive": (
        "open",
        "? Target inconclusive",
        "The rows of this report neither confirm nor contradict the target.",
    ),
    "missed": (
        "failed",
        "✗ Target missed",
        "The rows of this report contradict the target. Choose a new threshold on rows like these, or ask for less.",
    ),
}
"""The verdict on the target: its style, its words and what to do."""


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
            "Accuracy of the accepted rows at each coverage. The dot is this rejector. Higher is better; an ideal "
            "order would accept every right row before any wrong one."
            + " Only the scores with the lowest AUGRC are drawn."
            * (len(report.scores or ()) > MOST_CURVES),
        )
    if report.total_cost is not None:
        texts["cost"] = (
            "Cost against coverage",
            "Line plot of the cost per 1000 rows against coverage.",
            "Total cost of errors and reviews per 1,000 rows at each coverage. The dot is this rejector. The left end "
            "reviews every row; the right end accepts every row.",
        )
    right_and_wrong = "Histograms of the expected losses of right and of wrong predictions, with the cutoff."
    shaded = "" if report.cutoff is None else " Rows in the shaded area are rejected."
    texts["losses"] = (
        "Expected losses",
        right_and_wrong if curve else "Histogram of the expected losses of the rows, with the cutoff.",
        f"The loss that the rejector expects on each row.{shaded}",
    )
    if ece is not None:
        before, after = percent(ece.uncalibrated), percent(ece.all)
        texts["reliability"] = (
            "Accuracy against confidence",
            "Reliability diagram: accuracy against confidence. The expected calibration error is "
            f"{before} before and {after} after calibration.",
            f"On the diagonal, the confidence equals the accuracy. The calibration error (ECE) is {before} before "
            f"calibration and {after} after it. The lower plot shows how many rows have each confidence.",
        )
    return texts
