"""A page with the history of a monitor drawn: e-values against their alarm, risk and coverage with their sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from drrej.monitor.report import Band, MonitorReport
from drrej.monitor.state import Fold, Night
from drrej.monitor.text import e_value, github_lines, span_names, verdict, watches
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
    """The page; the report must have its history."""
    assert report.history is not None
    plain = {table.id: table for table in tables(report)}
    return template("monitor.html.jinja").render(
        report=report,
        style=style(),
        verdict=verdict(report),
        watches=list(watches(report)),
        plots=_plots(report),
        shown=[plain[id] for id in ("monitors", "moved", "nights", "resets") if id in plain],
        e_value=e_value,
    )


def _plots(report: MonitorReport) -> list[tuple[str, str, str]]:
    """Title, picture and caption of each plot."""
    assert report.history is not None
    names = span_names(report)
    nights = f"from {names[0]} to {names[-1]}"
    level = f"{100 * (1 - report.settings.alpha):.6g} %"
    drawn = [
        ("evidence", "Evidence", _evidence(report), f"E-values of the monitors {nights}, with the alarm line."),
        ("risk", "Risk", _band(report, report.history.risk, "risk"), f"Risk so far, {nights}."),
        ("coverage", "Coverage", _band(report, report.history.coverage, "coverage"), f"Coverage so far, {nights}."),
    ]
    said = f"All nights so far; with chance {level} the truth so far is in the band at all looks together."
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
        spans: list[Night | Fold] = [*report.folded, *report.recent]
        lowest, highest = 0.0, 0.0
        for name, _ in watches(report):
            values = [span.log_e[name] / _LN_10 for span in spans]
            color, dashes = _COLORS[name]
            axes.plot(_ends(report), values, color=color, ls=dashes, label=name, marker="." if len(values) < 3 else "")
            lowest, highest = min(lowest, *values), max(highest, *values)
        alarm_at = next(watch.alarm_at for _, watch in watches(report))  # one for all
        axes.axhline(alarm_at, color=INK, lw=1.2, label="alarm")
        axes.set(xlabel="night", ylabel="e-value, as a power of 10")
        axes.set_ylim(max(lowest, -alarm_at) - 0.2, min(max(highest, alarm_at), 4 * alarm_at) + 0.2)
        plot.legend(loc="outside lower center", ncols=4, columnspacing=1.2)
        return plot

    return draw


def _band(report: MonitorReport, bands: Sequence[Band], name: str) -> Any:
    def draw() -> Figure:
        plot = figure_of(WIDTH, HEIGHT)
        axes: Axes = plot.subplots()
        color, ends = _COLORS[name][0], _ends(report)
        axes.fill_between(
            ends, [b.lower for b in bands], [b.upper for b in bands], color=color, alpha=0.16, lw=0, label="interval"
        )
        known = [(x, band.value) for x, band in zip(ends, bands, strict=True) if band.value is not None]
        axes.plot([x for x, _ in known], [y for _, y in known], color=color, label=f"{name} so far")
        limit = report.settings.max_risk if name == "risk" else report.settings.min_coverage
        if limit is not None:
            axes.axhline(limit, color=MUTED, lw=1.2, ls=(0, (4, 3)), label="limit")
        values = [y for _, y in known] + ([] if limit is None else [limit])
        middle = bands[len(bands) // 2]
        axes.set(xlabel="night")
        if values:
            low, high = min(*values, middle.lower), max(*values, middle.upper)
            axes.set_ylim(max(low - 0.1 * (high - low) - 1e-3, 0.0), min(high + 0.1 * (high - low) + 1e-3, 1.0))
        percent_axes(axes, "y")
        plot.legend(loc="outside lower center", ncols=3, columnspacing=1.2)
        return plot

    return draw


def _ends(report: MonitorReport) -> list[int]:
    """The number of nights so far at the end of each fold and night."""
    ends, total = [], 0
    for span in [*report.folded, *report.recent]:
        total += getattr(span, "nights", 1)
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
