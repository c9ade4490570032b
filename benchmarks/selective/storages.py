"""What `drrej calibrate` makes of every model in every storage: one line for the storages that agree with float64."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import drrej
from benchmarks.selective.dumps import Array, Dump, sklearn_models
from benchmarks.selective.page import made_by, table
from drrej.documents.words import worse_figures

STORAGES = ("float64", "float32", "float16", "6 decimals", "3 decimals", "log float64", "log float32")
AGREE = 0.01
"""Logarithms of temperatures, and differences of ECE and Brier, that agree: rounding moves them by less."""


def calibrated(dump: Dump, storage: str) -> Any:
    """The calibration of the rows as they would be stored."""
    values, kind = _stored(dump.fit.outputs, storage)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/d.parquet"
        column = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
        pq.write_table(pa.table({"scores": column, "label": dump.fit.labels}), path)
        options = drrej.DumpOptions(logits="scores", label="label", input=kind, normalize=storage == "3 decimals")
        return drrej.calibrate(drrej.Source([path], options)).calibration


def _stored(p: Array, storage: str) -> tuple[Array, Any]:
    if storage.endswith("decimals"):
        return np.round(p, int(storage.split()[0])), "probs"
    if storage.startswith("log"):
        with np.errstate(divide="ignore"):
            return np.log(p).astype(storage.split()[1]), "log-probs"
    return p.astype(storage), "probs"


def agree(one: Any, other: Any) -> bool:
    """The same calibration, except for rounding."""
    near = [abs(math.log(one.temperature / other.temperature))]
    for a, b in ((one.ece, other.ece), (one.brier, other.brier)):
        near += [abs(a.before - b.before), abs(a.after - b.after)]
    return max(near) <= AGREE


def write_storages(data: Path, work: Path, path: Path) -> None:
    """The table."""
    rows, agreeing, worse = [], 0, 0
    for dump in sklearn_models(data, work / "sklearn"):
        found = {storage: calibrated(dump, storage) for storage in STORAGES}
        same = [storage for storage, one in found.items() if agree(one, found["float64"])]
        agreeing += len(same)
        worse += sum(worse_figures(one) is not None for one in found.values())
        shown = [("all seven" if len(same) == len(found) else ", ".join(same), found["float64"])]
        shown += [(storage, one) for storage, one in found.items() if storage not in same]
        rows += [[dump.name, storages, *_cells(one)] for storages, one in shown]
    total = len({row[0] for row in rows}) * len(STORAGES)
    lines = [
        "# `drrej calibrate` on real models in every storage",
        "",
        made_by("python -m benchmarks.selective storages"),
        "",
        "Figures of the calibration rows, before → after. A storage is listed with float64 where its temperature",
        f"differs by at most {AGREE:.0%}, its ECE and Brier by at most {AGREE:g}. NLL before: - where a label has",
        "probability 0.",
        f"{agreeing} of {total} agree with float64; {worse} had a warning that calibration made them worse.",
        "",
        *table(["model", "storages", "T", "NLL", "ECE", "Brier"], rows),
    ]
    path.write_text("\n".join(lines))


def _cells(one: Any) -> list[str]:
    numbers = [
        ["-" if value is None else f"{value:.3g}" for value in (figure.before, figure.after)]
        for figure in (one.nll, one.ece, one.brier)
    ]
    return [f"{one.temperature:.4g}", *(f"{before} → {after}" for before, after in numbers)]
