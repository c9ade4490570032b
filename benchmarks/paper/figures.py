"""`figures`: accuracy against coverage, and the sweeps over α and λ, as PNG and SVG."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.paper.collect import METHODS, NOISES, Figures
from benchmarks.paper.pipeline import VARIANTS
from benchmarks.paper.table import METHOD_TITLES, TITLES, Cell, mean_curve, of_method, on_grid

STYLE: dict[Any, Any] = {
    "figure.dpi": 100,
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "drrej",  # the same file for the same figures
}
COLOURS = {"kl": "#0072b2", "alpha3": "#d55e00", "zero_one": "#009e73", "auto": "#cc79a7"}
MARKERS = {"predrej": "s", "css": "^", "defer": "o", "gce": "D"}
LINES = {"kl": "-", "alpha3": "--", "zero_one": "-", "auto": "-"}
SWEEP_COLOURS = ("#440154", "#3b528b", "#21918c", "#5ec962", "#e3a018")
LOWEST_COVERAGE = 60


def accuracy_coverage(folds: Sequence[Figures]) -> Figure:
    """A panel per dataset and noise: curves with a band of one standard deviation, baselines as points."""
    datasets = _datasets(folds)
    figure, panels = _panels(datasets)
    for column, dataset in enumerate(datasets):
        for row, noise in enumerate(NOISES):
            own = [fold for fold in folds if (fold["dataset"], fold["noise"]) == (dataset, noise)]
            _panel(panels[row][column], own)
            _label(panels[row][column], dataset, noise, len(own))
    _legend(figure, panels)
    return figure


def _panel(axes: Axes, folds: Sequence[Figures]) -> None:
    if not folds:
        return
    for variant in folds[0]["variants"]:
        cells = _shown(on_grid(folds, variant))
        coverage = [cell.coverage for cell in cells]
        accuracy = [cell.accuracy for cell in cells]
        spread = [cell.accuracy_std or 0.0 for cell in cells]
        title = VARIANTS[variant].title.replace("`", "")
        axes.plot(coverage, accuracy, LINES[variant], color=COLOURS[variant], label=title)
        low, high = ([a + sign * s for a, s in zip(accuracy, spread, strict=True)] for sign in (-1, 1))
        axes.fill_between(coverage, low, high, color=COLOURS[variant], alpha=0.12, linewidth=0)
    base = statistics.fmean(fold["base"] for fold in folds)
    axes.axhline(base, color="black", linewidth=0.8, label="base")
    for method in METHODS:
        cells = [cell for cell in _shown(of_method(folds, method)) if cell.accuracy >= base - 0.5]
        axes.errorbar(
            [cell.coverage for cell in cells],
            [cell.accuracy for cell in cells],
            yerr=[cell.accuracy_std or 0.0 for cell in cells],
            fmt=MARKERS[method],
            markersize=4,
            color="#555555",
            markerfacecolor="none",
            linewidth=0.8,
            label=METHOD_TITLES[method],
        )
    axes.set_xlim(LOWEST_COVERAGE, 100.5)


def sweeps(rows: Sequence[Figures], parameter: str) -> Figure:
    """A panel per dataset and noise: mean curves of one parameter, their ends marked with vertical bars."""
    chosen = [row for row in rows if row["parameter"] == parameter]
    datasets = _datasets(chosen)
    figure, panels = _panels(datasets)
    values = sorted({row["value"] for row in chosen})
    symbol = {"alpha": "α", "lambda": "λ"}[parameter]
    for column, dataset in enumerate(datasets):
        for line, noise in enumerate(NOISES):
            axes, count = panels[line][column], 0
            for rank, value in enumerate(values):
                own = [r["grid"] for r in chosen if (r["dataset"], r["noise"], r["value"]) == (dataset, noise, value)]
                count = len(own)
                cells = [cell for cell in mean_curve(own) if cell is not None] if own else []
                if cells:
                    _sweep_line(axes, cells, rank, SWEEP_COLOURS[rank], f"{symbol} = {value:g}")
            _label(axes, dataset, noise, count)
    _legend(figure, panels)
    return figure


def _sweep_line(axes: Axes, cells: Sequence[Cell], rank: int, colour: str, label: str) -> None:
    """A curve; curves lie on each other (only τ's meaning changes), so the later ones are thinner."""
    coverage, accuracy = [cell.coverage for cell in cells], [cell.accuracy for cell in cells]
    axes.plot(coverage, accuracy, color=colour, linewidth=5 - rank, label=label)
    ends = [(coverage[0], accuracy[0]), (coverage[-1], accuracy[-1])]
    axes.plot(*zip(*ends, strict=True), "|", color=colour, markersize=16 - 2 * rank, markeredgewidth=1.5)


def _shown(cells: Sequence[Cell | None]) -> list[Cell]:
    return [cell for cell in cells if cell is not None and cell.coverage >= LOWEST_COVERAGE]


def _datasets(rows: Sequence[Figures]) -> list[str]:
    return [name for name in TITLES if any(row["dataset"] == name for row in rows)]


def _panels(datasets: Sequence[str]) -> tuple[Figure, list[list[Axes]]]:
    figure = Figure(figsize=(3.1 * len(datasets), 5.2), layout="constrained")
    panels = figure.subplots(len(NOISES), len(datasets), squeeze=False)
    return figure, [list(row) for row in panels]


def _label(axes: Axes, dataset: str, noise: str, folds: int) -> None:
    plural = "fold" if folds == 1 else "folds"
    if not folds:
        axes.set_axis_off()
        axes.text(0.5, 0.5, f"{TITLES[dataset]}, {noise}: not available", ha="center", transform=axes.transAxes)
        return
    axes.set_title(f"{TITLES[dataset]}, {noise} ({folds} {plural})", fontsize=9)
    axes.set_xlabel("coverage, %")
    axes.set_ylabel("accuracy, %")


def _legend(figure: Figure, panels: Sequence[Sequence[Axes]]) -> None:
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)


def save(figure: Figure, path: Path) -> None:
    """Write `path` with both endings; no date inside, so that the same figures give the same files."""
    figure.savefig(path.with_suffix(".png"), metadata={"Software": None})
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})


def write_all(folds: Sequence[Figures], sweep_rows: Sequence[Figures], out: Path) -> None:
    """All figures."""
    with mpl.rc_context(STYLE):
        save(accuracy_coverage(folds), out / "accuracy_coverage")
        save(sweeps(sweep_rows, "alpha"), out / "alpha_sweep")
        save(sweeps(sweep_rows, "lambda"), out / "lambda_sweep")
