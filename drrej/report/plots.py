"""The report's plots, drawn with matplotlib (imported inside the functions: it is an optional extra)."""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from drrej.documents.figures import CurvePoint, TotalCost
from drrej.documents.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_DASHES = ((0, (5, 2)), (0, (1, 1.2)), (0, (7, 2, 1, 2)), (0, (11, 3)), (0, (4, 1.5, 1, 1.5, 1, 1.5)))
MOST_CURVES = 6
"""That of the rejector, and those that it is compared with: more cannot be told apart."""


INK, MUTED, GRID, SHADE = "#1b1f24", "#59626e", "#dfe3e8", "#8b95a1"
MAIN, WRONG, OLD = "#0072b2", "#c64f00", "#7a3e9d"
RIVALS = ("#00795a", "#b0487f", "#9a6a00", "#5a4fcf", "#a03010")
VARIABLES = {INK: "ink", MUTED: "muted", GRID: "grid", SHADE: "shade", MAIN: "main", WRONG: "wrong", OLD: "old"}
VARIABLES |= {color: f"rival{number}" for number, color in enumerate(RIVALS, 1)}
"""The palette (told apart by the colour-blind, dashes help) and the names of its CSS variables."""

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


@contextmanager
def drawing() -> Iterator[None]:
    """Our style alone while a plot is drawn, and no warnings of signs that its font lacks: browsers have others."""
    import matplotlib as mpl

    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")
        mpl.rcdefaults()  # the user's own style would change what the page's colours stand for
        mpl.rcParams.update(_SETTINGS)
        yield


@drawing()
def curve_figure(report: Report) -> Figure:
    """The accuracy-coverage curve of a report with labels, as a figure; a notebook shows it."""
    plot = _curve(report, figure_of(620, 440))
    vars(plot)["_repr_png_"] = partial(saved, plot, "png")  # notebooks know only the figures of pyplot
    return plot


@drawing()
def page_plots(report: Report, texts: dict[str, str]) -> dict[str, str]:
    """Every plot that this report has, as SVG to be put into a page; `texts` say what each shows."""
    assert report.pictures is not None
    drawn = {}
    if report.coverage_curve is not None:
        drawn["curve"] = _curve(report, figure_of())
    if report.total_cost is not None:
        drawn["cost"] = _cost(report.coverage.value, report.total_cost)
    drawn["losses"] = _losses(report.cutoff, report.pictures["losses"])
    if "reliability" in report.pictures:
        drawn["reliability"] = _reliability(report.pictures["reliability"])
    return {name: svg_of(plot, name, texts[name]) for name, plot in drawn.items()}


# Accuracy against coverage


def _curve(report: Report, plot: Figure) -> Figure:
    axes = plot.subplots()
    assert report.coverage_curve is not None
    assert report.base_accuracy is not None
    curve, base = report.coverage_curve, report.base_accuracy.value or 0.0
    ends: Any = [[point.lower for point in curve], [point.upper for point in curve]]
    axes.fill_between([p.coverage for p in curve], *ends, color=MAIN, alpha=0.16, lw=0, label="95 % interval")
    axes.axhline(base, color=MUTED, lw=1.2, ls=(0, (4, 3)), label="no rejection")
    drawn = [*_others(axes, report), _line(axes, to_builtins(curve), MAIN, "this rejector", zorder=4)]
    assert report.accuracy is not None
    _mark(axes, report.coverage.value, report.accuracy.value, MAIN, "chosen", "o")
    lowest = min(base, *(accuracy for accuracies in drawn for accuracy in accuracies))
    _accuracy_axes(axes, lowest, 0.25)
    handles, labels = axes.get_legend_handles_labels()
    handles, labels = handles[-2:] + handles[:-2], labels[-2:] + labels[:-2]
    plot.legend(handles, labels, loc="outside lower center", ncols=3, columnspacing=1.2, handlelength=2.2)
    return plot


@drawing()
def curves_figure(curves: Mapping[str, Sequence[CurvePoint]]) -> Figure:
    """The accuracy-coverage curves of several reports."""
    plot = figure_of(620, 440)
    axes = plot.subplots()
    colors, dashes = (MAIN, *RIVALS), ("-", *_DASHES)  # of equal length: each round pairs them differently
    drawn = [
        _line(axes, to_builtins(curve), colors[i % 6], name, ls=dashes[(i + i // 6) % 6])
        for i, (name, curve) in enumerate(curves.items())
    ]
    lowest = min((accuracy for accuracies in drawn for accuracy in accuracies), default=0.0)
    _accuracy_axes(axes, lowest, 0.1)
    plot.legend(loc="outside lower center", ncols=3, columnspacing=1.2, handlelength=2.2)
    return plot


def _accuracy_axes(axes: Axes, lowest: float, margin: float) -> None:
    """Axes of accuracy against coverage, from the lowest accuracy on, with a margin below it."""
    room = max(1.0 - lowest, 1e-3)
    axes.set(xlim=(0, 1), ylim=(max(lowest - margin * room, 0.0), 1 + 0.04 * room))
    axes.set(xlabel="coverage: share of the rows that are accepted", ylabel="accuracy of the accepted rows")
    percent_axes(axes, "xy")


def _others(axes: Axes, report: Report) -> list[list[float]]:
    """Draw what the curve is compared with: the ideal order, other scores, the baseline. Accuracies of the last two."""
    pictures, drawn = report.pictures or {}, []
    if "ideal" in pictures:
        ideal = [{"coverage": 0.0, "accuracy": 1.0}, *pictures["ideal"]]
        _line(axes, ideal, MUTED, "ideal order", ls=":", lw=1.4)
    rivals = sorted((row for row in report.scores or () if row.score != "loss"), key=lambda row: row.augrc.value or 0.0)
    styles = zip(RIVALS[: MOST_CURVES - 1 - ("baseline" in pictures)], _DASHES, "s^Dvp", strict=False)
    for i, (row, (color, dashes, mark)) in enumerate(zip(rivals, styles, strict=False)):
        style = {"ls": dashes, "lw": 1.4, "marker": mark, "ms": 4, "markevery": (0.02 * i, 0.12)}
        drawn.append(_line(axes, to_builtins(row.coverage_curve), color, row.score, **style))
    if "baseline" in pictures:
        old = pictures["baseline"]
        drawn.append(_line(axes, old["coverage_curve"], OLD, "baseline", ls=(0, (6, 2)), lw=1.6))
        _mark(axes, old["coverage"]["value"], old["accuracy"]["value"], OLD, "baseline's choice", "s")
    return drawn


def _line(axes: Axes, curve: Sequence[dict[str, Any]], color: str, label: str, **style: Any) -> list[float]:
    """Draw accuracy against coverage, where it is defined; the accuracies."""
    defined = [(point["coverage"], point["accuracy"]) for point in curve if point["accuracy"] is not None]
    accuracies = [accuracy for _, accuracy in defined]
    label = " " * label.startswith("_") + label  # else matplotlib hides it
    axes.plot([coverage for coverage, _ in defined], accuracies, color=color, label=label, **style)
    return accuracies


def _mark(axes: Axes, coverage: float | None, value: float | None, color: str, label: str, shape: str) -> None:
    """The point that a rejector chose."""
    if coverage is not None and value is not None:
        axes.plot([coverage], [value], shape, color=color, ms=8, mec=GRID, mew=1.2, zorder=5, label=label)
        axes.axvline(coverage, color=color, lw=0.9, ls=(0, (2, 3)), zorder=1)


# Cost against coverage


def _cost(coverage: float | None, cost: TotalCost) -> Figure:
    plot = figure_of()
    axes = plot.subplots()
    axes.plot([p.coverage for p in cost.curve], [p.cost for p in cost.curve], color=MAIN, label="this rejector")
    axes.axhline(cost.oracle, color=MUTED, lw=1.4, ls=":", label="oracle")
    axes.axhline(cost.accepting_all, color=WRONG, lw=1.2, ls=(0, (4, 3)), label="accepting all")
    axes.axhline(cost.rejecting_all, color=MUTED, lw=1.2, ls=(0, (4, 3)), label="reviewing all")
    _mark(axes, coverage, cost.value, MAIN, "chosen", "o")
    axes.set(xlim=(0, 1), ylim=(0, None))
    axes.set(xlabel="coverage: share of the rows that are accepted", ylabel="cost per 1000 rows")
    percent_axes(axes, "x")
    plot.legend(loc="outside lower center", ncols=3, columnspacing=1.2, handlelength=2.2)
    return plot


# Expected losses

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _power(value: float) -> str:
    """A power of ten."""
    exponent = int(f"{value:.0e}".split("e")[1])
    return f"{value:.0f}" if 0 <= exponent <= 1 else "10" + str(exponent).translate(_RAISED)


def _losses(cutoff: float | None, histogram: dict[str, Any]) -> Figure:
    from matplotlib.ticker import FuncFormatter

    plot = figure_of()
    kinds = {
        ("right predictions", MAIN): "right",
        ("wrong predictions", WRONG): "wrong",
        ("all rows", MAIN): "rows",
    }
    drawn = {title: histogram[kind] for title, kind in kinds.items() if kind in histogram}
    panels = plot.subplots(len(drawn), sharex=True, squeeze=False)[:, 0]
    edges, scale = histogram["edges"], histogram["scale"]
    for axes, ((title, color), counts) in zip(panels, drawn.items(), strict=True):
        axes.stairs(counts, edges, fill=True, color=color)
        axes.set_xscale(scale)
        if scale == "log":
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))
        axes.set(xlim=(edges[0], edges[-1]), ylabel="rows")
        axes.set_title(title, loc="left", color=color)
        axes.yaxis.get_major_locator().set_params(nbins=4, integer=True)
        axes.grid(axis="x", visible=False)
        if cutoff is not None and cutoff < edges[-1]:
            axes.axvspan(max(cutoff, edges[0]), edges[-1], color=SHADE, alpha=0.22, lw=0, zorder=0)
            axes.axvline(max(cutoff, edges[0]), color=INK, lw=1.2)
    if cutoff is not None and cutoff < edges[-1]:
        panels[0].set_title("rejected", loc="right", color=MUTED)
    panels[-1].set_xlabel("expected loss L'" + (", logarithmic" if scale == "log" else ""))
    return plot


# Reliability


def _reliability(bins: Mapping[str, Sequence[dict[str, float]]]) -> Figure:
    plot = figure_of()
    upper, lower = plot.subplots(2, sharex=True, gridspec_kw={"height_ratios": [3.2, 1]})
    upper.plot([0, 1], [0, 1], color=MUTED, lw=1.2, ls=(0, (4, 3)), label="perfectly calibrated")
    hollow, filled = {"fc": "none", "ec": WRONG, "lw": 1}, {"color": MAIN, "alpha": 0.45, "lw": 0}
    for rows, color, shape, label, style in (
        (bins.get("uncalibrated", ()), WRONG, "s", "before calibration", hollow),
        (bins.get("calibrated", ()), MAIN, "o", "after calibration", filled),
    ):
        x, y = [row["confidence"] for row in rows], [row["accuracy"] for row in rows]
        upper.plot(x, y, shape + "-", color=color, lw=1.4, ms=4.5, label=label)
        width = [row["upper"] - row["lower"] for row in rows]
        lower.bar([row["lower"] for row in rows], [row["share"] for row in rows], width, align="edge", **style)
    upper.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="accuracy")
    lower.set(xlabel="confidence: the largest probability", ylabel="rows")
    percent_axes(upper, "xy")
    percent_axes(lower, "xy")
    lower.yaxis.get_major_locator().set_params(nbins=2)
    plot.legend(loc="outside lower center", ncols=2, columnspacing=1.2)
    return plot


@drawing()
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


def svg_of(plot: Figure, name: str, text: str) -> str:
    """A plot as an SVG for a page: no prolog, ids of its own, palette colours as CSS variables."""
    svg = saved(plot, "svg").decode()
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


def figure_of(width: float = 400, height: float = 310) -> Figure:
    """An empty plot of so many points; for a page unless told otherwise."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width / 72, height / 72), layout="constrained")


def percent_axes(axes: Axes, which: str) -> None:
    """Shares as percentages on the axes named."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for axis in (axes.xaxis if letter == "x" else axes.yaxis for letter in which):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.6g} %"))
        axis.set_major_locator(MaxNLocator(6 if axis is axes.yaxis else 5, steps=[1, 2, 2.5, 5, 10]))
