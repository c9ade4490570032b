"""`python -m benchmarks.floor.commands --data DIR`: what `drrej calibrate` itself makes of every model and storage.

Writes commands.md beside it: one line for each model, with the storages that agree with float64 and those that do not.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import drrej
from benchmarks.floor.models import Case, cases
from drrej.documents.words import worse_figures

Array = np.ndarray[Any, Any]

STORAGES = ("float64", "float32", "float16", "6 decimals", "3 decimals", "log float64", "log float32")
AGREE = 0.01
"""Temperatures, and differences of ECE and Brier, that agree: rounding moves them by less."""


@dataclass(frozen=True)
class Calibrated:
    """What the rejector says; `floor` is None where nothing was floored."""

    temperature: float
    floor: float
    nll: tuple[float | None, float]
    ece: tuple[float, float]
    brier: tuple[float, float]
    warned: bool

    def agrees(self, other: Calibrated) -> bool:
        """The same calibration, but for rounding."""
        near = [abs(math.log(self.temperature / other.temperature))]
        near += [abs(a - b) for a, b in zip((*self.ece, *self.brier), (*other.ece, *other.brier), strict=True)]
        return max(near) <= AGREE


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floor.commands", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"), help="where the .npz files are")
    parser.add_argument("--work", type=Path, default=Path("out/floor"), help="where probabilities are kept")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "commands.md")
    chosen = parser.parse_args()
    lines = _introduction()
    agreeing, worse = 0, 0
    found: dict[str, dict[str, Calibrated]] = {}
    for case in cases(chosen.data, chosen.work):
        found[case.name] = {storage: calibrated(case, storage) for storage in STORAGES}
        lines += _rows(case, found[case.name])
        agreeing += sum(one.agrees(found[case.name]["float64"]) for one in found[case.name].values())
        worse += sum(one.warned for one in found[case.name].values())
    total = len(found) * len(STORAGES)
    lines += ["", f"{agreeing} of {total} agree with float64; {worse} had a warning that calibration made them worse."]
    chosen.output.write_text("\n".join(lines) + "\n")


def calibrated(case: Case, storage: str) -> Calibrated:
    """Calibrate on the calibration rows as they would be stored."""
    values, kind = _stored(case.calibration, storage)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/d.parquet"
        column = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
        pq.write_table(pa.table({"scores": column, "label": case.calibration_labels}), path)
        options = drrej.DumpOptions(logits="scores", label="label", input=kind, normalize=storage == "3 decimals")
        section = drrej.calibrate(drrej.Source([path], options)).calibration
    assert section is not None
    figures = section.nll, section.ece, section.brier
    return Calibrated(
        section.temperature,
        section.floor or 0.0,
        *((one.before, one.after) for one in figures if one is not None),  # type: ignore[arg-type]
        warned=worse_figures(section) is not None,
    )


def _stored(p: Array, storage: str) -> tuple[Array, Any]:
    if storage.endswith("decimals"):
        return np.round(p, int(storage.split()[0])), "probs"
    if storage.startswith("log"):
        with np.errstate(divide="ignore"):
            return np.log(p).astype(storage.split()[1]), "log-probs"
    return p.astype(storage), "probs"


def _introduction() -> list[str]:
    return [
        "# drrej calibrate on real models in every storage",
        "",
        "Made by `python -m benchmarks.floor.commands`. Figures of the calibration rows, before -> after. A storage is",
        f"listed with float64 when its T differs by at most {AGREE:.0%} and its ECE and Brier by at most {AGREE:g}.",
        "`0 at label`: rows whose label has probability 0, where the NLL before is infinite (-).",
        "",
        "| model | 0 at label | storages | T | log2 floor | NLL | ECE | Brier | warned |",
        "|---|---|---|---|---|---|---|---|---|",
    ]


def _rows(case: Case, found: dict[str, Calibrated]) -> list[str]:
    """A line for the storages that agree with float64, and one for each other."""
    zeros = np.count_nonzero(case.calibration[np.arange(len(case.calibration)), case.calibration_labels] == 0)
    first = found["float64"]
    same = [storage for storage, one in found.items() if one.agrees(first)]
    shown = [(", ".join(same) if len(same) < len(found) else "all seven", first)]
    shown += [(storage, one) for storage, one in found.items() if storage not in same]
    return [f"| {case.name} | {zeros} | {storages} | {_cells(one)} |" for storages, one in shown]


def _cells(one: Calibrated) -> str:
    changes = [f"{_number(before)} -> {_number(after)}" for before, after in (one.nll, one.ece, one.brier)]
    floor = f"{math.log2(one.floor):.0f}" if one.floor else "-"
    return " | ".join([f"{one.temperature:.4g}", floor, *changes, "yes" if one.warned else ""])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


if __name__ == "__main__":
    main()
