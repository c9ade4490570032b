"""One renderer per format: a report tree in, text out; no arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drrej.report.github import render_github
from drrej.report.json import render_json
from drrej.report.junit import render_junit
from drrej.report.markdown import render_markdown
from drrej.report.text import render_text

RENDERERS: dict[str, Callable[[dict[str, Any]], str]] = {
    "text": render_text,
    "json": render_json,
    "markdown": render_markdown,
    "github": render_github,
    "junit": render_junit,
}

ENDINGS = {".txt": "text", ".json": "json", ".md": "markdown", ".xml": "junit"}
"""Which renderer a file name's ending stands for."""
