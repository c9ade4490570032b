"""What the pages of all benchmarks share: tables in Markdown, how they were made, and the looks of figures."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

GREY = "#808080"
"""Reads on light and on dark pages."""
COLOURS = ("#4a7ebb", "#d9822b", "#5a9e6f", "#a06bb5")


def machine() -> str:
    """The date, drrej's version and the machine without its name."""
    with open("/proc/cpuinfo") as lines:
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "?")
    cores = f"{len(os.sched_getaffinity(0))} cores of {model}, Python {platform.python_version()}"
    return f"{time.strftime('%Y-%m-%d')}, drrej {version('drrej')}, {cores}"


def made_by(command: str) -> str:
    """The command, and where it was run."""
    return f"Made by `{command}`, {machine()}."


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown, and an empty line."""
    lines = [header, ["---"] * len(header), *rows]
    return [*("| " + " | ".join(cells) + " |" for cells in lines), ""]


def rounded(value: Any, digits: int) -> Any:
    """Figures to so many digits after the point."""
    if isinstance(value, dict):
        return {name: rounded(inner, digits) for name, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner, digits) for inner in value]
    return round(value, digits) if isinstance(value, float) else value


@contextlib.contextmanager
def drawn(path: Path, rows: int, columns: int, size: tuple[float, float]) -> Iterator[list[Any]]:
    """The axes of a figure, row by row, which is saved as SVG, the same bytes from the same figures."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    parts = ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "xtick.color", "ytick.color")
    style: dict[Any, Any] = {"svg.hashsalt": "drrej", "font.size": 8, **dict.fromkeys(parts, GREY)}
    with plt.rc_context(style):
        figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False)
        for axis in axes.flat:
            axis.set_facecolor("none")
            axis.spines[["top", "right"]].set_visible(False)
        yield list(axes.flat)
        figure.tight_layout()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None}, transparent=True)
        plt.close(figure)
