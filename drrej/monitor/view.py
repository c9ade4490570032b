"""The report of a monitor in every format: its tables, its lines for GitHub, and a page with its history drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from drrej.errors import printable
from drrej.monitor.evidence import Tally, confidence_sequence
from drrej.monitor.report import LimitWatch, MonitorReport, Watch
from drrej.monitor.state import Batch
from drrej.report import RENDERERS
from drrej.report.ci import command
from drrej.report.page import template
from drrej.report.plots import INK, MAIN, MUTED, OLD, WRONG, drawing, figure_of, percent_axes, svg_of
from drrej.report.tables import DECIMALS, Style, Table, heading, tables
from drrej.report.words import against, counted, figure, interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_BATCHES = 7


def verdict(report: MonitorReport) -> str:
    """`ok`, or who alarmed and since when, on one line."""
    found = [f"{name} since '{watch.alarm}'" for name, watch in watches(report) if watch.alarm is not None]
    return f"alarm: {', '.join(found)}" if found else "ok" if report.ended is None else "reset"


def watches(report: MonitorReport) -> Iterator[tuple[str, Watch]]:
    """What is watched, by name."""
    held = {"risk": report.risk.watch, "coverage": report.coverage.watch, "drift": report.drift}
    yield from ((name, watch) for name, watch in held.items() if watch is not None)


def e_value(log10: float) -> str:
    """An e-value of any size.

    >>> e_value(1.0), e_value(-0.3), e_value(1234.5)
    ('10', '0.501', '3.16e+1234')
    """
    if abs(log10) < 5:
        return f"{10**log10:.3g}"
    whole = math.floor(log10)
    return f"{10 ** (log10 - whole):.2f}e{whole:+d}"


def render_monitor(report: MonitorReport, kind: str) -> str:
    """The report as text, json, markdown, github or html."""
    own = {"github": _github_lines, "html": _page}
    return own[kind](report) if kind in own else RENDERERS[kind](report)


def _github_lines(report: MonitorReport) -> str:
    """`::error` for an alarm and for a failed gate; a notice if there is nothing of the kind."""
    lines = [
        command("error", f"drrej {name} alarm", f"since '{watch.alarm}', e-value {e_value(watch.log10_e_value)}")
        for name, watch in watches(report)
        if watch.alarm is not None
    ]
    lines += [
        command("error", "drrej gate failed", f"{gate.gate}: the value is {against(gate.value, gate.limit)}")
        for gate in report.failed_gates
    ]
    return "".join(lines) or command("notice", "drrej monitor", heading(report))


# Tables


@heading.register
def _(report: MonitorReport) -> str:
    """The answer, in a sentence."""
    last = f"the last batch is '{report.batch.name}'"
    if report.ended is not None:
        return printable(f"Reset: {report.ended}; {last}, and the next one starts a new monitor.")
    answer = verdict(report).replace("alarm", "Alarm", 1) if report.alarms else "No alarm"
    return printable(f"{answer}; {counted(report.batches, 'batch')}, {counted(report.rows, 'row')}; {last}.")


@tables.register
def _(report: MonitorReport, _: Style = DECIMALS) -> list[Table]:
    return [table for table in [*_now(report), *_before(report)] if table.rows]


def _now(report: MonitorReport) -> Iterator[Table]:
    """The figures, the monitors and what they promise, and what has moved."""
    risk, coverage = report.risk, report.coverage
    errors = f"{counted(risk.errors, 'error')} in {counted(risk.labels, 'label')}"
    accepted = f"{coverage.accepted:,} of {report.rows:,} accepted"
    rows = [
        [name, figure(share.value), interval(share), counts]
        for name, share, counts in (("risk", risk, errors), ("coverage", coverage, accepted))
    ]
    header = ["", "value", f"{100 * report.settings.confidence:.6g} % interval", "counts"]
    remark = "since the monitor started; the intervals hold at all looks together"
    yield Table("figures", "Risk and coverage", header, rows, remark)
    rows = [
        [
            name,
            f"{'below' if name == 'coverage' else 'above'} {watch.limit:g}" if isinstance(watch, LimitWatch) else "-",
            e_value(watch.log10_e_value),
            e_value(watch.alarm_at),
            "ok" if watch.alarm is None else f"ALARM since '{watch.alarm}'",
        ]
        for name, watch in watches(report)
    ]
    yield Table("monitors", "Monitors", ["monitor", "alarms if", "e-value", "alarm at", "state"], rows)
    promises = [[f"- {name}: {watch.promise}"] for name, watch in watches(report)]
    yield Table("promises", "Promises", [], promises)
    rows = [
        [
            f"{move.what}: {move.part}",
            figure(move.new),
            figure(move.old),
            f"{figure(move.lower)} to {figure(move.upper)}",
        ]
        for move in report.moved
    ]
    remark = f"of {report.looked_at} shares; intervals hold for all of them, on all batches together"
    header = ["what surely moved", "this batch", "before", "difference"]
    yield Table("moved", "What surely moved", header, rows, remark)


def _before(report: MonitorReport) -> Iterator[Table]:
    """The last batches, and the monitors before this one."""
    shown = report.recent[-SHOWN_BATCHES:]
    header = ["batch", "rows", "coverage", "labels", "errors", "risk", "labels came after"]
    rows = [
        [
            batch.name,
            str(batch.rows),
            figure(batch.accepted / batch.rows),
            str(batch.labels),
            str(batch.errors),
            figure(batch.errors / batch.labels if batch.labels else None),
            batch.labels_after or "",
        ]
        for batch in reversed(shown)
    ]
    if not any(batch.labels_after for batch in shown):
        header, rows = header[:-1], [row[:-1] for row in rows]
    yield Table("batches", "Last batches", header, rows)
    rows = [
        [reset.why, str(reset.batches), reset.first, reset.last, ", ".join(alarm.monitor for alarm in reset.alarms)]
        for reset in report.resets
    ]
    yield Table("resets", "Earlier monitors", ["ended because", "batches", "first", "last", "alarms"], rows)


# The page

_LN_10 = math.log(10.0)
_COLORS = {"risk": (WRONG, "-"), "coverage": (MAIN, (0, (5, 2))), "drift": (OLD, (0, (1, 1.5)))}


def _page(report: MonitorReport) -> str:
    plain = {table.id: table for table in tables(report)}
    return template("monitor.html.jinja").render(
        report=report,
        verdict=verdict(report),
        watches=list(watches(report)),
        plots=_plots(report),
        shown=[plain[id] for id in ("monitors", "moved", "batches", "resets") if id in plain],
        e_value=e_value,
    )


@drawing()
def _plots(report: MonitorReport) -> list[tuple[str, str, str]]:
    """Title, picture and caption of each plot."""
    spans = [*([] if report.earlier is None else [report.earlier]), *report.recent]
    ends = list(accumulate(span.batches for span in spans))  # the number of batches so far
    batches = f"from {spans[0].first or spans[0].name} to {report.batch.name}"
    alarms = "An e-value that reaches the line raises an alarm, which persists; the plot is cut off just above it."
    seen = f"E-values of the monitors {batches}, with the alarm line."
    plots = [("Evidence", svg_of(_evidence(report, spans, ends), "evidence", seen), alarms)]
    chance = f"{100 * report.settings.confidence:.6g} %"
    band = f"All batches so far; with chance {chance} the true value so far lies within the band at every look."
    for name in ("risk", "coverage"):
        title = name.capitalize()
        plots.append((title, svg_of(_band(report, name, spans, ends), name, f"{title} so far, {batches}."), band))
    return plots


def _evidence(report: MonitorReport, spans: Sequence[Batch], ends: Sequence[int]) -> Figure:
    plot = figure_of()
    axes = plot.subplots()
    lowest, highest = 0.0, 0.0
    for name, _ in watches(report):
        values = [span.log_e[name] / _LN_10 for span in spans]
        color, dashes = _COLORS[name]
        axes.plot(ends, values, color=color, ls=dashes, label=name, marker="." if len(values) < 3 else "")
        lowest, highest = min(lowest, *values), max(highest, *values)
    alarm_at = next(watch.alarm_at for _, watch in watches(report))  # one for all
    axes.axhline(alarm_at, color=INK, lw=1.2, label="alarm")
    axes.set(xlabel="batch", ylabel="e-value, as a power of 10")
    axes.set_ylim(max(lowest, -alarm_at) - 0.2, min(max(highest, alarm_at), 4 * alarm_at) + 0.2)
    plot.legend(loc="outside lower center", ncols=4, columnspacing=1.2)
    return plot


def _band(report: MonitorReport, name: str, spans: Sequence[Batch], ends: Sequence[int]) -> Figure:
    """A share so far with its confidence sequence."""
    tallies, total = [], Tally()
    for span in spans:
        total += Tally(span.errors, span.labels) if name == "risk" else Tally(span.accepted, span.rows)
        tallies.append(total)
    lower, upper = zip(*(confidence_sequence(tally, report.settings.alpha) for tally in tallies), strict=True)
    plot = figure_of()
    axes = plot.subplots()
    color = _COLORS[name][0]
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
