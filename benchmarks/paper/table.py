"""`table`: the paper's Table 1 and its extension, ours beside the paper's."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.paper.collect import DATASETS, METHODS, NOISES, TARGETS, Figures
from benchmarks.paper.pipeline import VARIANTS
from benchmarks.paper.refine import WITHIN

TITLES = {
    "har": "HAR",
    "gas_drift": "Gas Drift",
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "organsmnist": "OrganMNIST",
    "octmnist": "OctMNIST",
}
METHOD_TITLES = {"predrej": "PredRej", "css": "CSS", "defer": "DEFER", "gce": "GCE"}
PAPER_EPOCHS = 40
REACH = 10
"""Points of coverage above its target within which a setting still serves it."""

RULE = (
    "One τ for all folds: that with the smallest mean coverage at or above the target; where none lies within "
    f"{REACH} points above it, the one whose mean coverage is nearest. One cost for all folds: the nearest."
)


@dataclass(frozen=True)
class Cell:
    """Accuracy and coverage in percent, mean and sample standard deviation over folds."""

    accuracy: float
    accuracy_std: float | None
    coverage: float
    coverage_std: float | None
    setting: float | None = None  # τ or cost
    folds: int = 1

    @classmethod
    def of(cls, points: Sequence[Figures], setting: float | None = None) -> "Cell | None":
        """The mean of some folds; None if a fold accepts nothing."""
        if not points or any(point["accuracy"] is None for point in points):
            return None
        accuracy, coverage = ([point[name] for point in points] for name in ("accuracy", "coverage"))
        return cls(
            statistics.fmean(accuracy), _std(accuracy), statistics.fmean(coverage), _std(coverage), setting, len(points)
        )

    def text(self) -> str:
        """As the paper prints it."""
        return f"{_with_std(self.accuracy, self.accuracy_std)} [{_with_std(self.coverage, self.coverage_std)}]"


def _std(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def _with_std(value: float, std: float | None) -> str:
    return f"{value:.2f}" + ("" if std is None else f" ({std:.2f})")


def nearest(cells: Sequence[Cell | None], target: int) -> Cell | None:
    """The cell whose coverage is nearest to a target."""
    known = [cell for cell in cells if cell is not None]
    return min(known, key=lambda cell: abs(cell.coverage - target), default=None)


def next_above(cells: Sequence[Cell | None], target: int) -> Cell | None:
    """The first cell above a target, or the nearest where there is none within reach."""
    above = [cell for cell in cells if cell is not None and target <= cell.coverage < target + REACH]
    return min(above, key=lambda cell: cell.coverage, default=nearest(cells, target))


def mean_curve(grids: Sequence[Figures]) -> list[Cell | None]:
    """Cells of the paper's 50 τ, each a mean over folds."""
    cells = []
    for number, tau in enumerate(grids[0]["tau"]):
        points = [{name: grid[name][number] for name in ("coverage", "accuracy")} for grid in grids]
        cells.append(Cell.of(points, tau))
    return cells


def on_grid(folds: Sequence[Figures], variant: str) -> list[Cell | None]:
    """Cells of the paper's 50 τ, judged on the test rows as the paper does."""
    grids = [fold["variants"][variant]["grid"] for fold in folds]
    return [] if None in grids else mean_curve(grids)


def of_method(folds: Sequence[Figures], method: str) -> list[Cell | None]:
    """Cells of a baseline, one per cost, over the folds that have it."""
    by_cost: dict[float, list[Figures]] = {}
    for fold in folds:
        for point in fold["baselines"][method]:
            by_cost.setdefault(point["cost"], []).append(point)
    most = max((len(points) for points in by_cost.values()), default=0)
    return [Cell.of(points, cost) for cost, points in sorted(by_cost.items()) if len(points) == most]


def on_validation(folds: Sequence[Figures], variant: str, target: int) -> Cell | None:
    """The cell with each fold's τ from its validation rows."""
    points = [fold["variants"][variant]["validation"][str(target)] for fold in folds]
    return None if None in points else Cell.of(points)


def build(folds: Sequence[Figures], published: dict[str, Any]) -> list[Figures]:
    """The rows of the table: target, noise, dataset, and its cells."""
    rows = []
    for target in TARGETS:
        for noise in NOISES:
            for dataset in DATASETS:
                own = [fold for fold in folds if (fold["dataset"], fold["noise"]) == (dataset, noise)]
                paper = published["targets"][str(target)][noise][dataset]
                row = {"target": target, "noise": noise, "dataset": dataset, "folds": len(own), "epochs": _epochs(own)}
                rows.append(row | {"cells": _cells(own, target, paper)})
    return rows


def _epochs(folds: Sequence[Figures]) -> int | None:
    """Epochs of the base networks, the fewest if they differ; None where others trained them."""
    return min((fold["training"]["settings"]["epochs"] for fold in folds if fold["training"]), default=None)


def _cells(folds: Sequence[Figures], target: int, paper: Figures) -> Figures:
    cells: Figures = {
        "base": _entry(Cell.of([{"accuracy": f["base"], "coverage": 100.0} for f in folds]), paper, "base")
    }
    variants = folds[0]["variants"] if folds else VARIANTS
    for variant in variants:
        entry = _entry(next_above(on_grid(folds, variant), target) if folds else None, paper, variant)
        honest = on_validation(folds, variant, target) if folds else None
        cells[variant] = entry | {"validation": None if honest is None else vars(honest)}
    for method in METHODS:
        costs = of_method(folds, method)
        cells[method] = _entry(nearest(costs, target), paper, method) | {"costs": _reach(costs)}
    return cells


def _reach(cells: Sequence[Cell | None]) -> Figures | None:
    """How many costs there are, and the coverages that they reach."""
    coverages = [cell.coverage for cell in cells if cell is not None]
    return {"count": len(coverages), "lowest": min(coverages), "highest": max(coverages)} if coverages else None


def _entry(ours: Cell | None, paper: Figures, name: str) -> Figures:
    theirs = paper.get(name)
    difference = None if ours is None or theirs is None else round(ours.accuracy - theirs["accuracy"], 4)
    return {"ours": None if ours is None else vars(ours), "paper": theirs, "difference": difference}


def markdown(rows: Sequence[Figures]) -> str:
    """Two tables per target: the density-ratio rejectors, and the baselines."""
    parts = []
    for target in TARGETS:
        chosen = [row for row in rows if row["target"] == target]
        variants = [name for name in chosen[0]["cells"] if name in VARIANTS]
        parts.append(f"### Target coverage {target} %: density-ratio rejectors\n")
        parts.append(_ratio_table(chosen, variants))
        parts.append(f"### Target coverage {target} %: baselines\n")
        parts.append(_baseline_table(chosen))
    return "\n".join(parts)


def _ratio_table(rows: Sequence[Figures], variants: Sequence[str]) -> str:
    head = ["", "folds", "base", "method", "paper", "ours, τ on test", "difference", "ours, τ on validation"]
    lines = []
    for row in rows:
        name, base = _name(row), row["cells"]["base"]
        if not row["folds"]:
            lines.append([name, "0", _paper(base), "KL", _paper(row["cells"]["kl"]), _missing(row), "", ""])
            continue
        for position, variant in enumerate(variants):
            entry = row["cells"][variant]
            first = [name, str(row["folds"]), f"{_ours(base)}, paper {_paper(base)}"] if position == 0 else ["", "", ""]
            cells = [VARIANTS[variant].title, _paper(entry), _ours(entry), _difference(entry)]
            lines.append([*first, *cells, _text(entry["validation"])])
    return _table(head, lines)


def _baseline_table(rows: Sequence[Figures]) -> str:
    head = ["", "folds", "method", "cost", "paper", "ours", "difference", f"within {WITHIN:g} points of the target"]
    lines = []
    for row in rows:
        shown = [method for method in METHODS if row["cells"][method]["ours"] is not None]
        for position, method in enumerate(shown):
            entry = row["cells"][method]
            name = [_name(row), str(entry["ours"]["folds"])] if position == 0 else ["", ""]
            cost = f"{entry['ours']['setting']:.2f}"
            cells = [METHOD_TITLES[method], cost, _paper(entry), _ours(entry), _difference(entry)]
            lines.append([*name, *cells, _met(entry, row["target"])])
    return _table(head, lines)


def _met(entry: Figures, target: int) -> str:
    if abs(entry["ours"]["coverage"] - target) <= WITHIN:
        return "yes"
    costs = entry["costs"]
    if costs["count"] == 1:
        return "no: only one cost"
    return f"no: {costs['count']} costs give {costs['lowest']:.1f} to {costs['highest']:.1f} %"


def _missing(row: Figures) -> str:
    return "data not available" if row["dataset"] in ("organsmnist", "octmnist") else "not run"


def _name(row: Figures) -> str:
    name = f"{TITLES[row['dataset']]}, {row['noise']}"
    if row["epochs"] is None or row["epochs"] >= PAPER_EPOCHS:
        return name
    return f"{name}, {row['epochs']} epochs"


def _ours(entry: Figures) -> str:
    return _text(entry["ours"])


def _paper(entry: Figures) -> str:
    return _text(entry["paper"])


def _text(cell: Figures | None) -> str:
    if cell is None:
        return "-"
    known = {name: cell[name] for name in ("accuracy", "accuracy_std", "coverage", "coverage_std")}
    if known["coverage"] == 100 and not known["coverage_std"]:
        return _with_std(known["accuracy"], known["accuracy_std"])
    return Cell(**known).text()


def _difference(entry: Figures) -> str:
    return "-" if entry["difference"] is None else f"{entry['difference']:+.2f}"


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows) + "\n"


def read_published() -> dict[str, Any]:
    """The paper's own figures."""
    document: dict[str, Any] = json.loads((Path(__file__).parent / "published.json").read_text())
    return document
