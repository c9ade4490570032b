"""One renderer per format: a report tree in, a text or a picture out; no arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drrej.report.github import render_github
from drrej.report.html import render_html
from drrej.report.json import render_json
from drrej.report.junit import render_junit
from drrej.report.markdown import render_markdown
from drrej.report.plots import render_curve
from drrej.report.text import render_text

RENDERERS: dict[str, Callable[[dict[str, Any]], str]] = {
    "text": render_text,
    "json": render_json,
    "markdown": render_markdown,
    "github": render_github,
    "junit": render_junit,
    "html": render_html,
}

PLOTS = ("png", "svg", "pdf")
"""Formats of the accuracy-coverage curve alone."""

ENDINGS = {
    ".txt": "text",
    ".json": "json",
    ".md": "markdown",
    ".xml": "junit",
    ".html": "html",
    **{f".{kind}": kind for kind in PLOTS},
}
"""Which renderer a file name's ending stands for."""


def render(report: dict[str, Any], kind: str) -> bytes:
    """A report as the content of a file."""
    return render_curve(report, kind) if kind in PLOTS else RENDERERS[kind](report).encode()
