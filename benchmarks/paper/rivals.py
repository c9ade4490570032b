"""The baselines at equal coverage: each cell of theirs beside our rejectors on the same test rows.

A baseline is its own network with its own decision; ours is the fold's base network with the log-loss or `auto`, its
threshold set to accept as many test rows as the baseline does.
"""

import statistics
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from benchmarks.paper.collect import METHODS, TARGETS, Figures
from benchmarks.paper.equal import LOSSES, FoldRows, Trained, difference_text, paired, point_text, states, verdict
from benchmarks.paper.refine import WITHIN, trained
from benchmarks.paper.table import METHOD_TITLES, TITLES, Cell, nearest

NAMES = {"log": "KL", "auto": "`auto`"}

Array = npt.NDArray[Any]


def rows_of(folds: Trained) -> list[Figures]:
    """One row for each baseline and target that has dumps."""
    rows = []
    for (dataset, noise), by_folder in folds.items():
        for target in TARGETS:
            for method in METHODS:
                found = chosen([folder / method for folder in by_folder], target)
                if found is not None:
                    own = {folder: rows for folder, rows in by_folder.items() if (folder / method).is_dir()}
                    names = {"dataset": dataset, "noise": noise, "target": target, "method": method}
                    rows.append(names | {"cost": found} | compared(own, method, found))
    return rows


def chosen(folders: Sequence[Path], target: int) -> float | None:
    """The cost whose mean coverage is nearest to the target, among those that all folds with dumps have."""
    known = [costs for costs in map(trained, folders) if costs]
    if not known:
        return None
    shared = set.intersection(*(set(costs) for costs in known))
    cells = [
        Cell.of([{"coverage": costs[number], "accuracy": 0.0} for costs in known], number / 100)
        for number in sorted(shared)
        if all(costs[number] for costs in known)  # what accepts no row has no accuracy
    ]
    best = nearest(cells, target)
    return None if best is None else best.setting


def compared(folds: Mapping[Path, FoldRows], method: str, cost: float) -> Figures:
    """A baseline's accuracy and coverage, ours at its coverage fold by fold, and the paired differences."""
    theirs = [_states(folder, method, cost) for folder in folds]
    coverages = [float(np.mean(own > 0)) for own in theirs]
    cells: Figures = {"folds": len(folds), "baseline": _mean(theirs)}
    for loss in LOSSES:
        ours = [fold.states(loss, share) for fold, share in zip(folds.values(), coverages, strict=True)]
        cells[loss] = _mean(ours)
        cells[f"{loss} less baseline"] = paired(zip(ours, theirs, strict=True))
    return cells


def _states(folder: Path, method: str, cost: float) -> Array:
    table = pq.read_table(folder / method / f"cost-{cost:.4f}" / "test.parquet")
    if not table["id"].equals(pq.read_table(folder / "test.parquet", columns=["id"])["id"]):
        raise ValueError(f"{folder}: the test rows of {method} are not those of the base network")
    scores = table["logits"].combine_chunks().flatten().to_numpy().reshape(table.num_rows, -1)
    wrong = scores.argmax(axis=1) != table["label"].to_numpy()
    return states(~table["rejected"].to_numpy(), wrong)


def _mean(folds: Sequence[Array]) -> Figures:
    """Means over folds in percent."""
    accuracy = statistics.fmean(float(np.mean(own[own > 0] == 1)) for own in folds)
    coverage = statistics.fmean(float(np.mean(own > 0)) for own in folds)
    return {"accuracy": round(100 * accuracy, 4), "coverage": round(100 * coverage, 4)}


def markdown(rows: Sequence[Figures]) -> str:
    """The table, and a sentence for each dataset and noise."""
    head = ["", "target", "baseline", "folds", "cost", "baseline's", "KL", "KL less baseline", ""]
    head += ["`auto`", "`auto` less baseline", ""]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        name = f"{TITLES[row['dataset']]}, {row['noise']}"
        cells = [name, f"{row['target']} %", METHOD_TITLES[row["method"]], str(row["folds"]), f"{row['cost']:.2f}"]
        cells.append(point_text(row["baseline"]))
        for loss in LOSSES:
            difference = row[f"{loss} less baseline"]
            cells += [f"{row[loss]['accuracy']:.2f}", difference_text(difference), verdict(difference)]
        lines.append(cells)
    table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"
    return table + "\n" + "\n".join(sentences(rows)) + "\n"


def sentences(rows: Sequence[Figures]) -> list[str]:
    """What the rows of a dataset and noise say, one sentence for each."""
    said = []
    for (dataset, noise), own in groupby(rows, key=lambda row: (row["dataset"], row["noise"])):
        group = list(own)
        cells = list({(row["method"], row["cost"]): row for row in group}.values())  # one may serve both targets
        parts = [_sentence(cells, loss) for loss in LOSSES]
        missed = [row for row in group if abs(row["baseline"]["coverage"] - row["target"]) > WITHIN]
        far = ", ".join(f"{_which(row)} [{row['baseline']['coverage']:.1f}]" for row in missed)
        note = f" More than {WITHIN:g} points off their target: {far}." if far else ""
        said.append(f"- **{TITLES[dataset]}, {noise}**: {'; '.join(parts)}.{note}")
    return said


def _sentence(rows: Sequence[Figures], loss: str) -> str:
    verdicts = [verdict(row[f"{loss} less baseline"]) for row in rows]
    parts = [f"better than the baseline in {verdicts.count('better')} of {len(rows)} cells"]
    lost = [row for row, word in zip(rows, verdicts, strict=True) if word == "worse"]
    named = ", ".join(f"{_which(row)} ({difference_text(row[f'{loss} less baseline'])})" for row in lost)
    parts.append(f"worse in {len(lost)}: {named}" if lost else "worse in none")
    return f"{NAMES[loss]} is {', '.join(parts)}"


def _which(row: Figures) -> str:
    return f"{METHOD_TITLES[row['method']]} at {row['target']} %"
