"""One renderer per format: a report tree in, text out; no arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drrej.report.json import render_json
from drrej.report.text import render_text

RENDERERS: dict[str, Callable[[dict[str, Any]], str]] = {
    "text": render_text,
    "json": render_json,
}

ENDINGS = {".txt": "text", ".json": "json"}
"""Which renderer a file name's ending stands for."""
