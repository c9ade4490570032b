"""What all plots share: the palette, the style, and how they get into files and pages (matplotlib is an extra).

Every colour is one of the palette: in a page it becomes a CSS variable, so that a plot follows light, dark and print.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

from drrej.errors import OptionError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID, SHADE = "#1b1f24", "#59626e", "#dfe3e8", "#8b95a1"
MAIN, WRONG, OLD = "#0072b2", "#c64f00", "#7a3e9d"
RIVALS = ("#00795a", "#b0487f", "#9a6a00", "#6b5b4b", "#3a6fd8", "#5f7f1a")
VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    SHADE: "shade",
    MAIN: "main",
    WRONG: "wrong",
    OLD: "old",
    **{color: f"rival{number}" for number, color in enumerate(RIVALS, 1)},
}
"""The palette (told apart by the colour-blind, dashes help) and the names of its CSS variables."""

WIDTH, HEIGHT = 400, 310
"""Of a plot on a page, in points."""

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be read, searched and takes the page's font
    "svg.hashsalt": "drrej",  # the same report gives the same bytes
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "axes.titlesize": 11,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 1.8,
}


def need_matplotlib(wanted: str) -> None:
    """Raise unless plots can be drawn."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise OptionError(f"{wanted}: plots need matplotlib; install it with: pip install 'drrej[plot]'") from None


@contextmanager
def settings() -> Iterator[None]:
    """Our style alone, while a plot is drawn."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()  # the user's own style would change what the page's colours stand for
        for name, value in _SETTINGS.items():
            mpl.rcParams[name] = value
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """A sign that the font lacks is no reason for a warning: browsers have other fonts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")
        yield


def saved(plot: Figure, kind: str) -> bytes:
    """A plot as the content of a file; the same plot gives the same bytes."""
    metadata = {
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }[kind]
    stream = io.BytesIO()
    plot.savefig(stream, format=kind, metadata=metadata, dpi=160, transparent=kind == "svg")
    return stream.getvalue()


def inline(svg: str, name: str, text: str) -> str:
    """An SVG for a page: no prolog, ids of its own, palette colours as CSS variables."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", svg)
    for color, variable in VARIABLES.items():
        svg = svg.replace(color, f"var(--{variable})")
    opening = svg[: svg.index(">") + 1]
    box = re.search(r'viewBox="[^"]*"', opening)
    assert box is not None
    start = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {box[0]} role="img" '
        f'aria-label="{escape(text)}">'
    )
    return start + re.sub(r"\s*\n\s*", "\n", svg[len(opening) :]).strip()


def figure_of(width: float, height: float) -> Figure:
    """An empty plot of so many points."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width / 72, height / 72), layout="constrained")


def percent_axes(axes: Axes, which: str) -> None:
    """Shares as percentages on the axes named."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for axis in (axes.xaxis if letter == "x" else axes.yaxis for letter in which):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.6g} %"))
        axis.set_major_locator(MaxNLocator(6 if axis is axes.yaxis else 5, steps=[1, 2, 2.5, 5, 10]))
