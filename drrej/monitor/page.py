"""A page with the history of a monitor drawn: e-values against their alarm, risk and coverage with their sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drrej.monitor.evidence import confidence_sequence
from drrej.monitor.report import MonitorReport
from drrej.monitor.state import Batch, Fold
from drrej.monitor.text import e_value, github_lines, span_names, verdict, watches
from drrej.pipeline.shares import Tally
from drrej.report.page import style, template
from drrej.report.plots import (
    HEIGHT,
    INK,
    MAIN,
    MUTED,
    OLD,
    WIDTH,
    WRONG,
    figure_of,
    inline,
    percent_axes,
    quiet,
    saved,
    settings,
)
from drrej.report.tables import tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_LN_10 = 2.302585092994046
_COLORS = {"risk": (WRONG, "-"), "coverage": (MAIN, (0, (5, 2))), "drift": (OLD, (0, (1, 1.5)))}


def render_monitor_page(report: MonitorReport) -> str:
    """The page."""
    plain = {table.id: table for table in tables(report)}
    return template("monitor.html.jinja").render(
        report=report,
        style=style(),
        verdict=verdict(report),
        watches=list(watches(report)),
        plots=_plots(report),
        shown=[plain[id] for id in ("monitors", "moved", "batches", "resets") if id in plain],
        e_value=e_value,
    )


def _plots(report: MonitorReport) -> list[tuple[str, str, str]]:
    """Title, picture and caption of each plot."""
    names = span_names(report)
    batches = f"from {names[0]} to {names[-1]}"
    level = f"{100 * (1 - report.settings.alpha):.6g} %"
    drawn = [
        ("evidence", "Evidence", _evidence(report), f"E-values of the monitors {batches}, with the alarm line."),
        ("risk", "Risk", _band(report, "risk"), f"Risk so far, {batches}."),
        ("coverage", "Coverage", _band(report, "coverage"), f"Coverage so far, {batches}."),
    ]
    said = f"All batches so far; with chance {level} the truth so far is in the band at all looks together."
    captions = {
        "evidence": "An e-value that reaches the line is an alarm, which stays; the plot ends soon above it.",
        "risk": said,
        "coverage": said,
    }
    with settings(), quiet():
        return [
            (title, inline(saved(plot(), "svg").decode(), name, text), captions[name])
            for name, title, plot, text in drawn
        ]


def _evidence(report: MonitorReport) -> Any:
    def draw() -> Figure:
        plot = figure_of(WIDTH, HEIGHT)
        axes: Axes = plot.subplots()
        spans: list[Batch | Fold] = [*report.folded, *report.recent]
        lowest, highest = 0.0, 0.0
        for name, _ in watches(report):
            values = [span.log_e[name] / _LN_10 for span in spans]
            color, dashes = _COLORS[name]
            axes.plot(_ends(report), values, color=color, ls=dashes, label=name, marker="." if len(values) < 3 else "")
            lowest, highest = min(lowest, *values), max(highest, *values)
        alarm_at = next(watch.alarm_at for _, watch in watches(report))  # one for all
        axes.axhline(alarm_at, color=INK, lw=1.2, label="alarm")
        axes.set(xlabel="batch", ylabel="e-value, as a power of 10")
        axes.set_ylim(max(lowest, -alarm_at) - 0.2, min(max(highest, alarm_at), 4 * alarm_at) + 0.2)
        plot.legend(loc="outside lower center", ncols=4, columnspacing=1.2)
        return plot

    return draw


def _so_far(report: MonitorReport, name: str) -> list[Tally]:
    """Events among rows at the end of each fold and batch."""
    tallies, total = [], Tally()
    for span in [*report.folded, *report.recent]:
        total += Tally(span.errors, span.labels) if name == "risk" else Tally(span.accepted, span.rows)
        tallies.append(total)
    return tallies


def _band(report: MonitorReport, name: str) -> Any:
    def draw() -> Figure:
        tallies = _so_far(report, name)
        lower, upper = zip(*(confidence_sequence(tally, report.settings.alpha) for tally in tallies), strict=True)
        plot = figure_of(WIDTH, HEIGHT)
        axes: Axes = plot.subplots()
        color, ends = _COLORS[name][0], _ends(report)
        axes.fill_between(ends, lower, upper, color=color, alpha=0.16, lw=0, label="interval")
        known = [(x, tally.rate) for x, tally in zip(ends, tallies, strict=True) if tally.rate is not None]
        axes.plot([x for x, _ in known], [y for _, y in known], color=color, label=f"{name} so far")
        limit = report.settings.max_risk if name == "risk" else report.settings.min_coverage
        if limit is not None:
            axes.axhline(limit, color=MUTED, lw=1.2, ls=(0, (4, 3)), label="limit")
        values = [y for _, y in known] + ([] if limit is None else [limit])
        middle = len(tallies) // 2
        axes.set(xlabel="batch")
        if values:
            low, high = min(*values, lower[middle]), max(*values, upper[middle])
            axes.set_ylim(max(low - 0.1 * (high - low) - 1e-3, 0.0), min(high + 0.1 * (high - low) + 1e-3, 1.0))
        percent_axes(axes, "y")
        plot.legend(loc="outside lower center", ncols=3, columnspacing=1.2)
        return plot

    return draw


def _ends(report: MonitorReport) -> list[int]:
    """The number of batches so far at the end of each fold and batch."""
    ends, total = [], 0
    for span in [*report.folded, *report.recent]:
        total += getattr(span, "batches", 1)
        ends.append(total)
    return ends


def render_monitor(report: MonitorReport, kind: str) -> str:
    """The report as text, json, markdown, github or html."""
    from drrej.report import RENDERERS

    if kind == "github":
        return github_lines(report)
    if kind == "html":
        return render_monitor_page(report)
    return RENDERERS[kind](report)
