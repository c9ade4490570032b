"""One renderer per format: a report in, a text or a picture out; no arithmetic.

To add a format, write its module and name it here. Modules are imported when their format is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from drrej.documents.document import Judged

TextFormat = Literal["text", "json", "markdown", "github", "junit"]
"""Formats that can go to standard output."""

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
    ".html": "html",
    ".csv": "csv",
    **{f".{kind}": kind for kind in PLOTS},
}
"""Which format a file name's ending stands for."""


def _renderer(kind: str) -> Callable[[Judged], str]:
    """What `render_KIND` of the module KIND does; the module of html is the page."""

    def rendered(report: Judged) -> str:
        text: str = getattr(import_module(f"drrej.report.{'page' if kind == 'html' else kind}"), f"render_{kind}")(
            report
        )
        return text

    return rendered


RENDERERS = {kind: _renderer(kind) for kind in ("text", "json", "markdown", "github", "junit", "html", "csv")}


def need_libraries(kind: str, wanted: str) -> None:
    """Raise unless what a format needs is installed; `wanted` is what the user asked for."""
    from drrej.report.page import need_jinja
    from drrej.report.plots import need_matplotlib

    if kind in DRAWN:
        need_matplotlib(wanted)
    if kind == "html":
        need_jinja(wanted)


def render(report: Any, kind: str) -> bytes:
    """A report as the content of a file."""
    from drrej.report.plots import render_curve

    return render_curve(report, kind) if kind in PLOTS else RENDERERS[kind](report).encode()
