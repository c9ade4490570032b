"""One renderer per format: a report in, a text or a picture out; no arithmetic.

To add a format, write its module and name it here. Modules are imported when their format is wanted.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal

from drrej.errors import OptionError, ReportError

TextFormat = Literal["text", "json", "markdown", "github", "junit", "prometheus"]
"""Formats that can go to standard output."""

_MOST_DIGITS = 11
"""Of SOURCE_DATE_EPOCH: until the year 5138."""

PLOTS = ("png", "svg", "pdf")
"""Pictures of the accuracy-coverage curve alone."""

CURVES = (*PLOTS, "csv")
"""Formats of the curve alone, which needs labels."""

DRAWN = (*PLOTS, "html")
"""Formats that need the report's pictures, and the extra `plot`."""

ENDINGS = {
    ".txt": "text",
    ".json": "json",
    ".md": "markdown",
    ".xml": "junit",
    ".prom": "prometheus",
    ".html": "html",
    ".csv": "csv",
    ".png": "png",
    ".svg": "svg",
    ".pdf": "pdf",
}
"""Which format a file name's ending stands for."""


def _later(module: str, function: str) -> Callable[[Any], str]:
    """What a function of a module does, which is imported when it is called."""
    return lambda report: str(getattr(import_module(f"drrej.report.{module}"), function)(report))


def curve_csv(report: Any) -> str:
    """A line for each point of the accuracy-coverage curve; of a regression, of its curve of errors."""
    points = report.tree.get("coverage_curve", report.tree.get("curve"))
    if points is None:
        raise ReportError("the curve needs labels; this report was made without")
    text = io.StringIO()
    writer = csv.DictWriter(text, points[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(points)
    return text.getvalue()


RENDERERS: dict[str, Callable[[Any], str]] = {
    "text": _later("text", "render_text"),
    "json": lambda report: str(report.to_json()),
    "markdown": _later("text", "render_markdown"),
    "github": _later("ci", "render_github"),
    "junit": _later("ci", "render_junit"),
    "prometheus": _later("prometheus", "render_prometheus"),
    "html": _later("page", "render_page"),
    "csv": curve_csv,
}
"""Formats that are text."""


def need_libraries(kind: str, wanted: str) -> None:
    """Raise unless what a format needs is installed; `wanted` is what the user asked for."""
    libraries = {"matplotlib": "plots need"} if kind in DRAWN else {}
    libraries |= {"jinja2": "the page needs"} if kind == "html" else {}
    for library, needs in libraries.items():
        try:
            import_module(library)
        except ImportError:
            raise OptionError(f"{wanted}: {needs} {library}; install it with: pip install 'drrej[plot]'") from None
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if kind in DRAWN and epoch and not (epoch.isdecimal() and len(epoch) <= _MOST_DIGITS):
        raise ReportError(f"SOURCE_DATE_EPOCH={epoch}: it must be seconds since 1970, as a whole number")


def render(report: Any, kind: str) -> bytes:
    """A report as the content of a file."""
    if kind not in PLOTS:
        return RENDERERS[kind](report).encode()
    from drrej.report.plots import curve_figure, saved

    return saved(curve_figure(report), kind)
