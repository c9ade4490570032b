"""`python -m benchmarks.floor --data DIR`: measure the candidates and write results.md (needs scikit-learn).

DIR holds har.npz, gas_drift.npz and mnist.npz (X, y); data sets that are not there are left out.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.floor.measure import CANDIDATES, STORAGES, Figures, Outcome, before, outcome, stored
from benchmarks.floor.models import Case, cases

TITLES = {
    "type": "the smallest number of the stored type, `max(p, f)`",
    "half": "half the smallest positive probability of the calibration rows, `max(p, f)`",
    "Laplace": "1 / (2 (n + K)), `p + f`",
    "mixed": "`p + f`, that is (1 - e) p + e / K, with f by five-fold cross-validated NLL",
    "chosen": "`drrej.core.inputs.choose_floor`",
}

VERDICT = (
    "The chosen floor has the lowest NLL, or one within 0.007 of it, for every kind of model. It never spoils ECE or",
    "Brier on the calibration rows, and it gives the same temperature in float64, float32, float16, with six decimals",
    "and as logarithms wherever the type holds the values: the likelihood puts the floor far above what a type cannot",
    "hold. The exception is naive Bayes: its probabilities down to 1e-300 carry information (log-odds on a wrong",
    "scale), float16 and in part float32 lose it, and no floor brings it back without throwing it away for float64 as",
    "well; its logarithms (`predict_log_proba`) keep it. Two and three decimals lose digits that matter.",
    "",
    "`mixed` is as good, but changes every probability a little, so that probabilities without any 0 would no longer",
    "have the temperature of their logits, and it costs five times as much. `half` fails where the smallest positive",
    "number is an accident of underflow, `Laplace` where confident models are right, `type` where a label has a 0.",
)


def main() -> None:
    """Measure and write the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floor", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"), help="where the .npz files are")
    parser.add_argument("--work", type=Path, default=Path("out/floor"), help="where probabilities are kept")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results.md")
    chosen = parser.parse_args()
    by_candidate: dict[str, dict[str, Outcome]] = {}
    by_storage: dict[str, dict[str, Outcome]] = {}
    starts: dict[str, tuple[Case, Figures, Figures]] = {}
    for case in cases(chosen.data, chosen.work):
        sys.stderr.write(f"{case.name}\n")
        p, test = stored(case.calibration, "float64"), stored(case.test, "float64")
        starts[case.name] = case, before(p, case.calibration_labels), before(test, case.test_labels)
        by_candidate[case.name] = {name: outcome(name, "float64", case) for name in CANDIDATES}
        by_storage[case.name] = {name: outcome("chosen", name, case) for name in STORAGES}
        types = {f"type {name}": outcome("type", name, case) for name in ("float32", "float16")}
        by_candidate[case.name] |= types
    lines = [
        *_introduction(),
        *_summary(by_candidate, starts),
        *_storages(by_storage, by_candidate),
        *_details(by_candidate, starts),
        *_storage_details(by_storage, starts),
    ]
    chosen.output.write_text("\n".join(lines) + "\n")


def _introduction() -> list[str]:
    return [
        "# What a probability of 0 counts as",
        "",
        "Made by `python -m benchmarks.floor`. Each candidate turns zeros into a floor f; then a temperature is fitted",
        "on the calibration rows. ECE has 15 bins, Brier is summed over classes, AUGRC is times 1000.",
        "",
        *(f"- **{name}**: {title}" for name, title in TITLES.items()),
        "",
        *VERDICT,
        "",
    ]


def _summary(outcomes: dict[str, dict[str, Outcome]], starts: dict[str, tuple[Case, Figures, Figures]]) -> list[str]:
    """Means over the cases of each kind of model, on test rows."""
    columns = ("NLL", "ECE", "Brier", "AUGRC log", "AUGRC zero-one", "worse ECE", "worse Brier")
    lines = ["## Candidates, float64, means over data sets on test rows", ""]
    lines += ["`worse` counts cases whose figure on the calibration rows is worse after calibration than before.", ""]
    lines += _table(["model", "candidate", "cases", *columns], [])
    for model in dict.fromkeys(case.model for case, _, _ in starts.values()):
        names = [name for name, (case, _, _) in starts.items() if case.model == model]
        raw = [starts[name][2] for name in names]
        lines.append(_row([model, "as stored, T = 1", len(names), *_means(raw), "", ""]))
        for candidate in CANDIDATES:
            found = [outcomes[name][candidate] for name in names]
            worse = [
                sum(_worse(key, one.calibration, starts[name][1]) for one, name in zip(found, names, strict=True))
                for key in ("ece", "brier")
            ]
            lines.append(_row([model, candidate, len(names), *_means([one.test for one in found]), *worse]))
    return [*lines, ""]


def _worse(key: str, after: Figures, start: Figures) -> bool:
    return bool(getattr(after, key) > getattr(start, key) + 0.005)


def _means(found: Sequence[Figures]) -> list[float]:
    keys: list[tuple[str, float]] = [("nll", 1), ("ece", 1), ("brier", 1), ("augrc_log", 1e3), ("augrc_zero_one", 1e3)]
    return [scale * float(np.mean([getattr(one, key) for one in found])) for key, scale in keys]


def _storages(storages: dict[str, dict[str, Outcome]], candidates: dict[str, dict[str, Outcome]]) -> list[str]:
    """The temperature in every storage."""
    lines = ["## The temperature in every storage, chosen floor", ""]
    lines += ["In brackets log2 of the floor. The last columns have the type's floor, for comparison.", ""]
    lines += _table(["case", *STORAGES, "type float64", "type float32", "type float16"], [])
    for name, row in storages.items():
        shown = [f"{one.temperature:.4g} [{math.log2(one.floor):.0f}]" for one in row.values()]
        typed = [candidates[name][key].temperature for key in ("type", "type float32", "type float16")]
        lines.append(_row([name, *shown, *typed]))
    return [*lines, ""]


def _details(outcomes: dict[str, dict[str, Outcome]], starts: dict[str, tuple[Case, Figures, Figures]]) -> list[str]:
    lines = ["## Every case, float64", ""]
    header = ["case", "candidate", "log2 f", "T", "NLL", "ECE", "Brier"]
    header += ["test NLL", "test ECE", "test Brier", "AUGRC log", "AUGRC zero-one"]
    lines += _table(header, [])
    for name, row in outcomes.items():
        case, start, test = starts[name]
        labels_at_0 = int(
            np.count_nonzero(case.calibration[np.arange(len(case.calibration)), case.calibration_labels] == 0)
        )
        zeros = int(np.count_nonzero(case.calibration == 0))
        title = f"{name} ({zeros} zeros, {labels_at_0} at a label)"
        lines.append(_row([title, "before", "", 1.0, *_shown(start)[:3], *_shown(test)]))
        for candidate in CANDIDATES:
            one = row[candidate]
            log_floor = f"{math.log2(one.floor):.1f}"
            lines.append(
                _row(["", candidate, log_floor, one.temperature, *_shown(one.calibration)[:3], *_shown(one.test)])
            )
    return [*lines, ""]


def _storage_details(
    storages: dict[str, dict[str, Outcome]], starts: dict[str, tuple[Case, Figures, Figures]]
) -> list[str]:
    """Calibration figures in every storage."""
    lines = ["## Every storage, chosen floor", ""]
    lines += ["Figures on the calibration rows, before -> after, and on test rows after.", ""]
    header = ["case", "storage", "log2 f", "T", "NLL", "ECE", "Brier", "test NLL", "test ECE", "test Brier"]
    lines += _table(header, [])
    for name, row in storages.items():
        case = starts[name][0]
        for storage, one in row.items():
            start = before(stored(case.calibration, storage), case.calibration_labels)
            both = zip(_shown(start)[:3], _shown(one.calibration)[:3], strict=True)
            change = [f"{_cell(a)} -> {_cell(b)}" for a, b in both]
            log_floor = f"{math.log2(one.floor):.0f}"
            lines.append(_row([name, storage, log_floor, one.temperature, *change, *_shown(one.test)[:3]]))
    return lines


def _shown(one: Figures) -> list[float]:
    return [one.nll, one.ece, one.brier, 1e3 * one.augrc_log, 1e3 * one.augrc_zero_one]


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    return [_row(header), "|" + "---|" * len(header), *(_row(row) for row in rows)]


def _row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
