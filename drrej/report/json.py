"""The report as JSON: the document itself."""

from __future__ import annotations

import json
from typing import Any


def render_json(report: dict[str, Any]) -> str:
    """The whole tree; numbers read back to the same float."""
    return json.dumps(report, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
