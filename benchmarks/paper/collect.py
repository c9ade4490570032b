"""Judge every fold that was trained and gather its figures.

What comes out is plain: for each dataset and noise, one list over folds of what drrej's reports say.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.paper.pipeline import TARGETS, Report, Shell, judge_base, judge_mask, sweep

METHODS = ("predrej", "css", "defer", "gce")
NOISES = ("clean", "noisy")
DATASETS = ("har", "gas_drift", "mnist", "cifar10", "organsmnist", "octmnist")
ALPHAS = (0.0, 1.0, 2.0, 3.0, 5.0)
LAMBDAS = (0.25, 0.5, 1.0, 2.0, 4.0)

Figures = dict[str, Any]


@dataclass(frozen=True)
class FoldFiles:
    """A fold that has dumps; `out` is where reports go."""

    dataset: str
    noise: str
    fold: int
    dumps: Path
    out: Path


def folds(work: Path) -> Iterator[FoldFiles]:
    """Every fold with dumps, in the order of the table."""
    for dataset in DATASETS:
        for noise in NOISES:
            for folder in sorted((work / dataset / noise).glob("fold*")):
                if (folder / "test.parquet").is_file():
                    yield FoldFiles(dataset, noise, int(folder.name.removeprefix("fold")), folder, folder / "reports")


def collect(shell: Shell, variants: Sequence[str]) -> list[Figures]:
    """The figures of all folds."""
    return [_of_fold(shell, files, variants) for files in folds(shell.work)]


def _of_fold(shell: Shell, files: FoldFiles, variants: Sequence[str]) -> Figures:
    judged = judge_base(shell, files.dumps, files.out, variants)
    training = files.dumps / "training.json"
    some = next(report for reports in judged.values() for report in reports.values() if report is not None)
    rejector = json.loads((files.out / "calibrated.json").read_text())
    return {
        "dataset": files.dataset,
        "noise": files.noise,
        "fold": files.fold,
        "training": json.loads(training.read_text()) if training.is_file() else None,
        "temperature": rejector["calibration"]["temperature"],
        "base": percent(some["base_accuracy"]["value"]),
        "variants": {name: _of_variant(reports) for name, reports in judged.items()},
        "baselines": {method: _of_method(shell, files.dumps / method) for method in METHODS},
    }


def _of_variant(reports: dict[int, Report | None]) -> Figures:
    known = [report for report in reports.values() if report is not None]
    validation = {
        str(target): None if report is None else point(report["coverage"], report["accuracy"]) | {"tau": report["tau"]}
        for target, report in reports.items()
    }
    return {"validation": validation, "grid": grid(known[0]) if known else None}


def grid(report: Report) -> Figures:
    """The paper's grid of τ on the test rows, as columns."""
    steps = report["curve"]
    return {
        "tau": [step["tau"] for step in steps],
        "coverage": [percent(step["coverage"]) for step in steps],
        "accuracy": [percent(step["accuracy"]) for step in steps],
    }


def _of_method(shell: Shell, folder: Path) -> list[Figures]:
    rows = []
    for cost in sorted(folder.glob("cost-*")):
        mask = judge_mask(shell, cost)
        rows.append(
            {"cost": json.loads((cost / "training.json").read_text())["cost"]}
            | point(mask["coverage"], mask["accuracy"])
        )
    return rows


def point(coverage: Report, accuracy: Report) -> Figures:
    """Coverage and accuracy in percent."""
    return {"coverage": percent(coverage["value"]), "accuracy": percent(accuracy["value"])}


def percent(share: float | None) -> float | None:
    """A share in percent, with the digits that are worth keeping."""
    return None if share is None else round(100 * share, 4)


def collect_sweeps(shell: Shell) -> list[Figures]:
    """Curves of the paper's parameter sweeps: α at λ = 1, and λ with KL."""
    rows = []
    for files in folds(shell.work):
        settings = [("alpha", value, ("--alpha", f"{value:g}")) for value in ALPHAS]
        settings += [("lambda", value, ("--lambda", f"{value:g}")) for value in LAMBDAS]
        for parameter, value, options in settings:
            report = sweep(shell, files.dumps, files.out / f"{parameter}-{value:g}", options)
            rows.append(
                {"dataset": files.dataset, "noise": files.noise, "fold": files.fold, "parameter": parameter}
                | {"value": value, "grid": grid(report)}
            )
    return rows


__all__ = ["DATASETS", "METHODS", "NOISES", "TARGETS", "Figures", "collect", "collect_sweeps"]
