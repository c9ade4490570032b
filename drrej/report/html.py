"""The report as one self-contained page: no network, no scripts; light, dark, print, phone.

What is on the page is in `page.html.jinja`, where every text is escaped; here are its words and numbers.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from drrej.documents.report import Report
from drrej.errors import OptionError
from drrej.report.numbers import against, counted, figure, percent, percents
from drrej.report.plots import page_plots
from drrej.report.tables import tables
from drrej.report.target import TYPESET, gate_value, target_lines, target_of

if TYPE_CHECKING:
    from jinja2 import Template

_BESIDE = ("calibration", "areas", "cost", "drift")
_COMPARISONS = ("difference", "scores", "masks")
"""Tables of the text report that are shown as they are: beside the plots, and below them."""

_TAU_EVERY = 5
_LONGEST = 32
"""Longer names are wrapped."""


def need_jinja(wanted: str) -> None:
    """Raise unless pages can be made."""
    try:
        import jinja2  # noqa: F401
    except ImportError:
        raise OptionError(f"{wanted}: the page needs jinja2; install it with: pip install 'drrej[plot]'") from None


def render_html(report: Report) -> str:
    """The page of a report with pictures; what a report without labels lacks is left out."""
    plain = {table.id: table for table in tables(report)}
    plots = page_plots(report, _plot_texts(report))
    captions = _plot_captions(report)
    return template("page.html.jinja").render(
        report=report,
        style=style(),
        short=_short(report),
        verdict=verdict(report),
        target=_target(report),
        decision=_decision(report),
        plots=[(_PLOT_TITLES[name], svg, captions[name]) for name, svg in plots.items()],
        beside=[plain[id] for id in _BESIDE if id in plain],
        comparisons=[plain[id] for id in _COMPARISONS if id in plain],
        points=plain.get("points"),
        tau_every=_TAU_EVERY,
        longest=_LONGEST,
    )


def style() -> str:
    """The style sheet of pages."""
    return files("drrej.report").joinpath("page.css").read_text(encoding="utf-8")


@cache
def template(name: str) -> Template:
    """A template of a page; what it inserts is escaped."""
    import jinja2

    page = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined, finalize=_printable
    )
    page.filters |= {"percent": percent, "percents": percents, "counted": counted}
    page.filters |= {"typeset": _typeset, "thousands": "{:,}".format}
    page.globals |= {"against": against, "gate_value": gate_value}
    text = files("drrej.report").joinpath(name).read_text(encoding="utf-8")
    return page.from_string(text)


def _printable(value: Any) -> Any:
    """Text of the user's without signs that no page can show."""
    if hasattr(value, "__html__"):
        return value
    return "".join(sign if sign.isprintable() or sign == "\n" else "\N{REPLACEMENT CHARACTER}" for sign in str(value))


def _typeset(cell: str) -> str:
    return cell.replace(" - ", " to ").replace("+-", "\N{PLUS-MINUS SIGN}")


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
    "met": ("passed", "✓ target met"),
    "not shown": ("open", "? target not shown"),
    "missed": ("failed", "✗ target missed"),
}


def _target(report: Report) -> dict[str, Any] | None:
    found = target_of(report)
    if found is None:
        return None
    kind, mark = _MARKS[found.verdict]
    return {"kind": kind, "mark": mark, "lines": target_lines(report, TYPESET)}


def _short(report: Report) -> str:
    accuracy = None if report.accuracy is None else report.accuracy.value
    return f"coverage {percent(report.coverage.value)}, accuracy {percent(accuracy)}"


def _decision(report: Report) -> str:
    start = f"{report.rows:,} rows, {report.classes:,} classes. "
    if report.cutoff is not None:
        tau = "" if report.tau is None else f", that is where its ratio is τ = {figure(report.tau, 6)} or less"
        return f"{start}A row is rejected where its expected loss is {figure(report.cutoff, 6)} or more{tau}."
    return start + ("Nothing is rejected." if report.tau is not None else "Each group has its own cutoff.")


# Plots

_PLOT_TITLES = {
    "curve": "Accuracy against coverage",
    "losses": "Expected losses",
    "reliability": "Can the confidence be trusted?",
}


def _plot_texts(report: Report) -> dict[str, str]:
    """What each plot shows, for those who do not see it."""
    if report.coverage_curve is None or report.ece is None:
        return {"losses": "Histogram of the expected losses of the rows, with the cutoff."}
    steps = ", ".join(f"{percent(p.accuracy)} at {percent(p.coverage)}" for p in report.coverage_curve[4::15])
    return {
        "curve": f"Line plot of accuracy against coverage: {steps}. {verdict(report)}",
        "losses": "Histograms of the expected losses of right and of wrong predictions, with the cutoff.",
        "reliability": (
            "Reliability diagram: accuracy against confidence. The expected calibration error is "
            f"{percent(report.ece.uncalibrated)} before and {percent(report.ece.all)} after the temperature."
        ),
    }


def _plot_captions(report: Report) -> dict[str, str]:
    chosen = f"The dot is this rejector{'' if report.tau is None else ', τ = ' + figure(report.tau)}"
    shaded = "" if report.cutoff is None else " Rows in the shaded part are rejected."
    captions = {
        "curve": f"{chosen}. Upwards is better; the ideal order would accept every right row before any wrong one.",
        "losses": f"Each row's own expected loss.{shaded}",
    }
    if report.ece is not None:
        captions["reliability"] = (
            "On the diagonal, confidence is what it says. Calibration error (ECE) "
            f"{percent(report.ece.uncalibrated)} before the temperature, {percent(report.ece.all)} after. "
            "Below: where the rows are."
        )
    return captions
