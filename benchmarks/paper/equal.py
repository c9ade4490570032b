"""`equal`: each cell of the paper's table at the paper's own coverage, so that accuracies compare.

Three ways to get there: the threshold on the test rows, as the paper chose its τ; the threshold on the validation rows,
as one has to do it; and both again with `auto`. α changes what a τ means and not the order of rows, so KL and α = 3
differ here by the paper's coverage alone. The baselines are in `rivals`.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

import drrej
from benchmarks.paper.collect import DATASETS, NOISES, TARGETS, Figures
from benchmarks.paper.table import TITLES, read_published
from drrej.core.intervals import CONFIDENCE
from drrej.core.paired import accuracy_difference

PAPER_FOLDS = 5
PAPER_METHODS = {"kl": "KL", "alpha3": "α = 3"}
LOSSES = ("log", "auto")

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class FoldRows:
    """A fold's test rows: which are wrong, and for each loss its values and those of the validation rows."""

    wrong: npt.NDArray[np.bool_]
    test: dict[str, Array]
    val: dict[str, Array]

    @classmethod
    def read(cls, folder: Path) -> "FoldRows":
        """Fit both losses on `val`."""
        (val, labels), (logits, truth) = (_read(folder / f"{part}.parquet") for part in ("val", "test"))
        test, own = {}, {}
        for loss in LOSSES:
            rejector = drrej.fit_rejector(val, labels, coverage=0.5, loss=loss)
            test[loss], own[loss] = rejector.score(logits).loss, rejector.score(val).loss
        return cls(logits.argmax(axis=1) != truth, test, own)

    def accepted(self, loss: str, coverage: float, on: str) -> npt.NDArray[np.bool_]:
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

    def states(self, loss: str, coverage: float) -> Array:
        """What becomes of each test row at a share of them."""
        return states(self.accepted(loss, coverage, "test"), self.wrong)

    def point(self, loss: str, coverage: float, on: str) -> Figures:
        """Coverage and accuracy in percent."""
        accepted = self.accepted(loss, coverage, on)
        right = ~self.wrong[accepted]
        return {"coverage": 100 * float(accepted.mean()), "accuracy": 100 * float(right.mean())}


def _read(path: Path) -> tuple[Array, Array]:
    table = pq.read_table(path, columns=["logits", "label"])
    values = table["logits"].combine_chunks().flatten().to_numpy()
    return values.reshape(table.num_rows, -1), table["label"].to_numpy()


def gain(folds: Sequence[FoldRows], coverage: float) -> Figures:
    """Accuracy of `auto` less that of the log-loss at one coverage, in points, over the test rows of all folds."""
    return paired((fold.states("auto", coverage), fold.states("log", coverage)) for fold in folds)


def states(accepted: Array, wrong: Array) -> Array:
    """0 for a rejected row, 1 for an accepted right one, 2 for an accepted wrong one."""
    return np.where(accepted, 1 + wrong.astype(int), 0)


def paired(folds: Iterable[tuple[Array, Array]]) -> Figures:
    """New accuracy less old, in points, from the states of the same rows with the one and with the other."""
    counts = np.zeros((3, 3), dtype=np.int64)
    for new, old in folds:
        counts += np.bincount(3 * new + old, minlength=9).reshape(3, 3)
    found = accuracy_difference(counts)
    ends = (found.value, found.lower, found.upper)
    value, lower, upper = (None if end is None else round(100 * end, 4) for end in ends)
    return {"value": value, "interval": [lower, upper]}


def against_paper(ours: Sequence[float], paper: Figures) -> Figures:
    """Ours less the paper's mean accuracy, with Welch's interval from both standard deviations over folds.

    The folds of one data set share most training rows, so that the interval is a guide and not exact.
    """
    from scipy.stats import t

    difference = statistics.fmean(ours) - paper["accuracy"]
    if len(ours) < 2:
        return {"value": difference, "interval": None}
    parts = [statistics.variance(ours) / len(ours), paper["accuracy_std"] ** 2 / PAPER_FOLDS]
    spread = math.sqrt(sum(parts))
    if not spread:
        return {"value": difference, "interval": [difference, difference]}
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / (len(ours) - 1) + parts[1] ** 2 / (PAPER_FOLDS - 1))
    reach = float(t.ppf((1 + CONFIDENCE) / 2, freedom)) * spread
    return {"value": difference, "interval": [difference - reach, difference + reach]}


Trained = Mapping[tuple[str, str], Mapping[Path, FoldRows]]
"""Dataset and noise to the folds, by their folders."""


def read_folds(work: Path) -> Trained:
    """All trained folds, in the order of the table."""
    found = {}
    for dataset in DATASETS:
        for noise in NOISES:
            folders = [path.parent for path in sorted((work / dataset / noise).glob("fold*/test.parquet"))]
            if folders:
                found[dataset, noise] = {folder: FoldRows.read(folder) for folder in folders}
    return found


def rows_of(trained: Trained) -> list[Figures]:
    """One row for each cell of the paper that has trained folds here."""
    published = read_published()["targets"]
    rows = []
    for (dataset, noise), by_folder in trained.items():
        folds = list(by_folder.values())
        base = round(100 * statistics.fmean(1 - float(fold.wrong.mean()) for fold in folds), 4)
        for target in TARGETS:
            paper = published[str(target)][noise][dataset]
            bases = {"base": base, "paper base": paper["base"]["accuracy"]}
            for method in PAPER_METHODS:
                names = {"dataset": dataset, "noise": noise, "target": target, "method": method}
                own = {"folds": len(folds), "paper": paper[method]} | bases
                rows.append(names | own | _cells(folds, paper[method]))
    return rows


def _cells(folds: Sequence[FoldRows], paper: Figures) -> Figures:
    coverage = paper["coverage"] / 100
    cells: Figures = {}
    for loss in LOSSES:
        for on in ("test", "validation"):
            points = [fold.point(loss, coverage, on) for fold in folds]
            cells[f"{loss}, {on}"] = {
                name: round(statistics.fmean(point[name] for point in points), 4) for name in ("accuracy", "coverage")
            }
    ours = [fold.point("log", coverage, "test")["accuracy"] for fold in folds]
    return cells | {"less paper": against_paper(ours, paper), "gain": gain(folds, coverage)}


def markdown(rows: Sequence[Figures]) -> str:
    """The table, with a word for each row on how it compares with the paper."""
    head = ["", "target", "method", "folds", "paper", "ours, threshold on test", "ours less paper", "against the paper"]
    head += ["ours, threshold on validation", "`auto`, on test", "`auto`, on validation", "`auto` less ours, on test"]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        name = f"{TITLES[row['dataset']]}, {row['noise']}"
        cells = [name, f"{row['target']} %", PAPER_METHODS[row["method"]], str(row["folds"]), point_text(row["paper"])]
        cells += [point_text(row["log, test"]), difference_text(row["less paper"]), verdict(row["less paper"])]
        cells += [point_text(row[key]) for key in ("log, validation", "auto, test", "auto, validation")]
        lines.append([*cells, difference_text(row["gain"])])
    table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"
    return table + "\n" + "\n".join(sentences(rows)) + "\n"


def sentences(rows: Sequence[Figures]) -> list[str]:
    """One for each row that is told apart from the paper."""
    differ = [row for row in rows if verdict(row["less paper"]) in ("better", "worse")]
    return [_sentence(row) for row in differ] or ["- No row is told apart from the paper."]


def _sentence(row: Figures) -> str:
    where = f"{TITLES[row['dataset']]}, {row['noise']}, {row['target']} %, {PAPER_METHODS[row['method']]}"
    left = [errors_left(row["log, test"], row["base"]), errors_left(row["paper"], row["paper base"])]
    return (
        f"- **{where}**: {verdict(row['less paper'])} by {difference_text(row['less paper'])} points. The base "
        f"network is right on {row['base']:.2f} % of rows, the paper's on {row['paper base']:.2f} %; of its errors "
        f"{left[0]:.1f} % are left among accepted rows, of the paper's {left[1]:.1f} %."
    )


def errors_left(cell: Figures, base: float) -> float:
    """Errors among accepted rows, as a percentage of all that the base network makes."""
    return float((100 - cell["accuracy"]) * cell["coverage"] / (100 - base))


def verdict(difference: Figures) -> str:
    """In a word."""
    if difference["interval"] is None:
        return "one fold: cannot be said"
    lower, upper = difference["interval"]
    return "better" if lower > 0 else "worse" if upper < 0 else "not told apart"


def point_text(cell: Figures) -> str:
    """Accuracy and coverage."""
    return f"{cell['accuracy']:.2f} [{cell['coverage']:.2f}]"


def difference_text(difference: Figures) -> str:
    """A difference with its interval, where it has one."""
    if difference["value"] is None:
        return "-"
    shown = f"{difference['value']:+.2f}"
    if difference["interval"] is None:
        return shown
    lower, upper = difference["interval"]
    return f"{shown} ({lower:+.2f} to {upper:+.2f})"
