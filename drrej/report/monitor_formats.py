"""The report of a monitor in the format that was asked for."""

from __future__ import annotations

from drrej.documents.monitor_report import MonitorReport
from drrej.report.monitor import github_lines


def render_monitor(report: MonitorReport, kind: str) -> str:
    """The report as text, json, markdown, github or html."""
    from drrej.report import RENDERERS

    if kind == "github":
        return github_lines(report)
    if kind == "html":
        from drrej.report.monitor_page import render_monitor_page

        return render_monitor_page(report)
    return RENDERERS[kind](report)
