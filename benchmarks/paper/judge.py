"""The figures of every fold that was trained, and of the MedMNIST outputs of others, at the paper's own coverages.

At one coverage accuracies compare. α and λ change what a τ means and not the order of rows, so KL and α = 3 differ here
by the paper's coverage alone. The cutoff comes from the test rows, as the paper chose its τ, or from the validation
rows, as one has to do it.
"""

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from benchmarks.pages import machine, rounded
from benchmarks.selective.dumps import Part, halves, read, read_both
from benchmarks.selective.scores import SCORES, fitted
from drrej.core.paired import accuracy_difference

TARGETS = (80, 90)
METHODS = ("predrej", "css", "defer", "gce")
LOSSES = ("log", "auto")
PAPER_FOLDS = 5
COVERAGES = range(60, 101)
"""Of the curves, in percent."""
ALPHAS, LAMBDAS = (0.0, 1.0, 2.0, 3.0, 5.0), (0.25, 0.5, 1.0, 2.0, 4.0)

Array = npt.NDArray[Any]
Figures = dict[str, Any]


@dataclass(frozen=True)
class Rows:
    """A fold's test rows: which are wrong, and for each loss its values and those of the validation rows."""

    wrong: npt.NDArray[np.bool_]
    test: dict[str, Array]
    val: dict[str, Array]

    @classmethod
    def of(cls, val: Part, test: Part) -> "Rows":
        """Fit each loss on the validation rows."""
        scored = {loss: SCORES[loss](val, [val, test]) for loss in LOSSES}
        own, other = ({loss: both[part] for loss, both in scored.items()} for part in (0, 1))
        return cls(test.wrong, other, own)

    def accepted(self, loss: str, coverage: float, on: str = "test") -> npt.NDArray[np.bool_]:
        """Rows of the least loss: a share `coverage` of the test rows, or what the validation rows' cutoff leaves."""
        values = self.test[loss]
        if on == "test":
            first = np.zeros(values.size, dtype=bool)
            first[np.argsort(values, kind="stable")[: round(coverage * values.size)]] = True
            return first
        ordered = np.sort(self.val[loss])
        count = round(coverage * ordered.size)
        below: npt.NDArray[np.bool_] = values < (ordered[count] if count < ordered.size else np.inf)
        return below

    def point(self, loss: str, coverage: float, on: str = "test") -> tuple[float, float]:
        """Accuracy and coverage in percent."""
        return _point(states(self.accepted(loss, coverage, on), self.wrong))


def folds_of(work: Path, data: Path | None) -> Iterator[tuple[Figures, list[tuple[Path | None, Part, Part]]]]:
    """Each experiment with its folds: where a baseline's dumps may be, validation rows and test rows."""
    for folder in sorted(work.glob("*/noise*")):
        folds = sorted(path.parent for path in folder.glob("fold*/test.parquet"))
        names = {"dataset": folder.parent.name, "noise": int(folder.name.removeprefix("noise")), "network": "own"}
        if folds:
            yield names, [(fold, *read_both(fold)) for fold in folds]
    for path in sorted((data / "medmnist_resnet").glob("*_resnet*")) if data else []:
        dataset, network = path.name.split("_resnet")
        val, test = read_both(path)
        names = {"dataset": dataset, "noise": 0}
        title = f"ResNet-{network} of others"
        yield names | {"network": f"{title}, official test rows"}, [(None, val, test)]
        yield names | {"network": f"{title}, halves of validation"}, [(None, *pair) for pair in halves(val)]


def figures_of(names: Figures, folds: Sequence[tuple[Path | None, Part, Part]], published: Figures) -> Figures:
    """All figures of an experiment."""
    rows = [Rows.of(val, test) for _, val, test in folds]
    noise, cells, paper_base = {0: "clean", 25: "noisy"}.get(names["noise"], ""), [], None
    for target in TARGETS:
        if paper := published[str(target)].get(noise, {}).get(names["dataset"]):
            paper_base = paper["base"]["accuracy"]
            for method in ("kl", "alpha3"):
                cells.append({"target": target, "method": method, "paper": paper[method], **_cell(rows, paper[method])})
    curves = {loss: [[own.point(loss, share / 100)[0] for share in COVERAGES] for own in rows] for loss in LOSSES}
    figures = {
        "made": machine(),
        "folds": len(rows),
        "base": [100 * float(1 - own.wrong.mean()) for own in rows],
        "paper base": paper_base,
        "cells": cells,
        "curves": {loss: np.mean(values, axis=0).tolist() for loss, values in curves.items()},
        "spreads": {
            loss: np.std(values, axis=0, ddof=min(1, len(rows) - 1)).tolist() for loss, values in curves.items()
        },
        "rivals": _rivals([fold for fold, _, _ in folds], rows),
        "sweeps": _sweeps(folds) if names["dataset"] == "har" and names["noise"] == 0 else [],
    }
    return {**names, **rounded(figures, 4)}


def _cell(rows: Sequence[Rows], paper: Figures) -> Figures:
    coverage = paper["coverage"] / 100
    cell: Figures = {}
    for loss in LOSSES:
        for on in ("test", "validation"):
            cell[f"{loss}, {on}"] = np.mean([own.point(loss, coverage, on) for own in rows], axis=0).tolist()
    return cell | {"difference": against_paper([own.point("log", coverage)[0] for own in rows], paper)}


def against_paper(ours: Sequence[float], paper: Figures) -> list[float | None]:
    """Ours minus the paper's mean accuracy, with Welch's interval from both standard deviations over folds.

    The folds of one data set share most training rows, so that the interval is a guide and not exact.
    """
    from scipy.stats import t

    difference = statistics.fmean(ours) - paper["accuracy"]
    if len(ours) < 2:
        return [difference, None, None]
    parts = [statistics.variance(ours) / len(ours), paper["accuracy_std"] ** 2 / PAPER_FOLDS]
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / (len(ours) - 1) + parts[1] ** 2 / (PAPER_FOLDS - 1))
    half = float(t.ppf(0.975, freedom)) * sum(parts) ** 0.5
    return [difference, difference - half, difference + half]


def states(accepted: Array, wrong: Array) -> Array:
    """0 for a rejected row, 1 for an accepted right one, 2 for an accepted wrong one."""
    return np.where(accepted, 1 + wrong.astype(int), 0)


def paired(folds: Iterable[tuple[Array, Array]]) -> list[float | None]:
    """New accuracy minus old, in points, with its interval, from the states of the same rows with either."""
    counts = np.zeros((3, 3), dtype=np.int64)
    for new, old in folds:
        counts += np.bincount(3 * new + old, minlength=9).reshape(3, 3)
    found = accuracy_difference(counts)
    return [None if end is None else 100 * end for end in (found.value, found.lower, found.upper)]


def _rivals(folders: Sequence[Path | None], rows: Sequence[Rows]) -> list[Figures]:
    """The baselines at their own coverage, and our base network with KL at the same on the same rows."""
    found = []
    for method in METHODS:
        known = {fold: costs_of(fold / method) for fold in folders if fold is not None and (fold / method).is_dir()}
        shares = mean_coverages(list(known.values())) if known else {}
        for target in TARGETS if shares else ():
            cost = nearest_cost(shares, target)
            own = [one for fold, one in zip(folders, rows, strict=True) if fold in known]
            names = {"method": method, "target": target, "cost": cost, "costs": len(shares)}
            found.append(
                names | {"most": max(shares.values()), "made": machine(), **_compared(known, own, method, cost)}
            )
    return found


def costs_of(folder: Path) -> dict[int, float]:
    """Costs of a baseline, in hundredths, that one fold has dumps of, and their coverage in percent."""
    records = [json.loads(path.read_text()) for path in folder.glob("cost-*/training.json")]
    return {round(100 * record["cost"]): 100 * record["coverage"] for record in records}


def mean_coverages(known: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """The mean coverage of each cost, in hundredths, that all folds have and that accepts rows of each."""
    shared = set.intersection(*({cost for cost, coverage in costs.items() if coverage} for costs in known))
    return {cost: statistics.fmean(costs[cost] for costs in known) for cost in sorted(shared)}


def nearest_cost(shares: Mapping[int, float], target: int) -> float:
    """The cost whose mean coverage is nearest to the target."""
    return min(shares, key=lambda cost: abs(shares[cost] - target)) / 100


def _compared(folders: Iterable[Path], rows: Sequence[Rows], method: str, cost: float) -> Figures:
    theirs = [_masked(folder, method, cost) for folder in folders]
    ours = [
        states(own.accepted("log", float(np.mean(other > 0))), own.wrong)
        for own, other in zip(rows, theirs, strict=True)
    ]
    points = {
        name: [statistics.fmean(values) for values in zip(*(_point(one) for one in some), strict=True)]
        for name, some in (("baseline", theirs), ("log", ours))
    }
    return {"folds": len(rows), **points, "difference": paired(zip(ours, theirs, strict=True))}


def _point(state: Array) -> tuple[float, float]:
    return 100 * float(np.mean(state[state > 0] == 1)), 100 * float(np.mean(state > 0))


def _masked(folder: Path, method: str, cost: float) -> Array:
    path = folder / method / f"cost-{cost:.4f}" / "test.parquet"
    table = pq.read_table(path, columns=["id", "rejected"])
    if not table["id"].equals(pq.read_table(folder / "test.parquet", columns=["id"])["id"]):
        raise ValueError(f"{folder}: the test rows of {method} are not those of the base network")
    return states(~table["rejected"].to_numpy(), read(path).wrong)


def _sweeps(folds: Sequence[tuple[Path | None, Part, Part]]) -> list[Figures]:
    """What τ = 0.5 and τ = 1 mean for each α and λ: accuracy and coverage of the test rows."""
    found = []
    for name, values in (("alpha", ALPHAS), ("lam", LAMBDAS)):
        for value in values:
            points = []
            for _, val, test in folds:
                reports = [
                    fitted(val, loss="log", tau=tau, **{name: value}).evaluate(test.outputs, test.labels)
                    for tau in (0.5, 1.0)
                ]
                points.append([100 * (one.value or 0.0) for own in reports for one in (own.accuracy, own.coverage)])
            found.append({"parameter": name, "value": value, "points": np.mean(points, axis=0).tolist()})
    return found
