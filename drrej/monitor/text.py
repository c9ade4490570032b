"""The report of a monitor in every format."""

from __future__ import annotations

import math
from collections.abc import Iterator

from drrej.monitor.report import LimitWatch, MonitorReport, TrackedCoverage, TrackedRisk, Watch
from drrej.monitor.state import Batch, Counts, Fold
from drrej.report.github import command
from drrej.report.numbers import against, counted, figure, interval
from drrej.report.tables import DECIMALS, Style, Table, heading, tables

SHOWN_BATCHES = 7


def verdict(report: MonitorReport) -> str:
    """`ok`, or who alarmed and since when, on one line."""
    found = [f"{name} since '{watch.alarm}'" for name, watch in watches(report) if watch.alarm is not None]
    return f"alarm: {', '.join(found)}" if found else "ok"


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


@heading.register
def _(report: MonitorReport) -> str:
    batches = counted(report.batches, "batch")
    return f"{verdict(report)} (batch '{report.batch.name}'; {batches} and {counted(report.rows, 'row')} so far)"


@tables.register
def _(report: MonitorReport, _: Style = DECIMALS) -> list[Table]:
    found = [_figures(report), _watches(report), *_promises(report), _moved(report), _batches(report), _resets(report)]
    return [table for table in found if table is not None]


def _figures(report: MonitorReport) -> Table:
    risk, coverage = report.risk, report.coverage
    level = f"{100 * (1 - report.settings.alpha):.6g} %"
    rows = [
        [*_tracked("risk", risk), f"{counted(risk.errors, 'error')} in {counted(risk.labels, 'label')}"],
        [*_tracked("coverage", coverage), f"{coverage.accepted:,} of {report.rows:,} accepted"],
    ]
    remark = "since the monitor started; the intervals hold at all looks together"
    return Table("figures", "Risk and coverage", ["", "value", f"{level} interval", "counts"], rows, remark)


def _tracked(name: str, share: TrackedRisk | TrackedCoverage) -> list[str]:
    return [name, figure(share.value), interval(share)]


def _watches(report: MonitorReport) -> Table:
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
    return Table("monitors", "Monitors", ["monitor", "alarms if", "e-value", "alarm at", "state"], rows)


def _promises(report: MonitorReport) -> list[Table]:
    return [Table("promises", "Promises", [], [[f"- {name}: {watch.promise}"] for name, watch in watches(report)])]


def _moved(report: MonitorReport) -> Table | None:
    if not report.moved:
        return None
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
    return Table("moved", "What surely moved", header, rows, remark)


def _batches(report: MonitorReport) -> Table:
    shown = report.recent[-SHOWN_BATCHES:]
    rows = [[batch.name, *_counts(batch), batch.labels_after or ""] for batch in reversed(shown)]
    header = ["batch", "rows", "coverage", "labels", "errors", "risk", "labels came after"]
    if not any(batch.labels_after for batch in shown):
        header, rows = header[:-1], [row[:-1] for row in rows]
    return Table("batches", "Last batches", header, rows)


def _counts(span: Counts) -> list[str]:
    risk = span.errors / span.labels if span.labels else None
    return [str(span.rows), figure(span.accepted / span.rows), str(span.labels), str(span.errors), figure(risk)]


def _resets(report: MonitorReport) -> Table | None:
    if not report.resets:
        return None
    rows = [
        [reset.why, str(reset.batches), reset.first, reset.last, ", ".join(alarm.monitor for alarm in reset.alarms)]
        for reset in report.resets
    ]
    return Table("resets", "Monitors before this one", ["ended because", "batches", "first", "last", "alarms"], rows)


def github_lines(report: MonitorReport) -> str:
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


def span_names(report: MonitorReport) -> list[str]:
    """What to call each batch or fold, from the oldest on."""
    spans: list[Batch | Fold] = [*report.folded, *report.recent]
    return [span.name if isinstance(span, Batch) else f"{span.first} to {span.last}" for span in spans]
