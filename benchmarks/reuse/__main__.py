"""`python -m benchmarks.reuse`: detection probabilities and false alarms of `drrej.core.reuse`, as results.md.

`--probabilities DIR` adds the outputs of real models that `python -m benchmarks.floor --work DIR` has left.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reuse.chances import detection_probability
from drrej.core.reuse import KEPT, Reuse, Sketch, coarse_keys, content_keys

Keys = np.ndarray[Any, Any]

FITTED = (500, 5_000, 50_000, 1_000_000)
NEW = (100, 200, 500, 5_000, 100_000)
SHARES = (0.01, 0.05, 0.2, 1.0)
SIZES = ((5000, 200), (5000, 5000), (5000, 50000), (50000, 5000), (500, 500))

rng = np.random.default_rng(0)


def main() -> None:
    """Measure and write the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reuse", description=__doc__)
    parser.add_argument("--probabilities", type=Path, help="outputs of real models")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results.md")
    parser.add_argument("--trials", type=int, default=200)
    chosen = parser.parse_args()
    lines = [
        "# Rows that are used again",
        "",
        f"Made by `python -m benchmarks.reuse`; {chosen.trials} trials a cell. The sketch keeps {KEPT} keys.",
        "",
        *_detection(chosen.trials),
        *_repeating(chosen.trials),
        *_false_alarms(chosen.trials),
        *(_real(chosen.probabilities) if chosen.probabilities else []),
        *(_other_forms(chosen.probabilities) if chosen.probabilities else []),
        *_speed(),
    ]
    chosen.output.write_text("\n".join(lines) + "\n")


def _fresh(count: int) -> Keys:
    return rng.integers(0, 1 << 64, count, dtype=np.uint64)


def _judge(fitted: Keys, new: Keys) -> Reuse:
    fingerprint = Sketch.of(fitted).fingerprint()
    return fingerprint.judge(fingerprint.look_up(new))


def _detection(trials: int) -> list[str]:
    """The formula for every cell; a simulation where it is quick."""
    lines = ["## Chance that reuse is noticed, all rows different", ""]
    lines += ["`detection_probability(fitted, new, shared)`; in brackets the share of simulated trials.", ""]
    header = ["fitted", "new", "1 row", *(f"{100 * share:g} % of the new" for share in SHARES)]
    lines += [_row(header), "|" + "---|" * len(header)]
    for fitted in FITTED:
        for new in NEW:
            cells = []
            for shared in (1, *(round(share * new) for share in SHARES)):
                if shared > fitted:
                    cells.append("")
                    continue
                cell = f"{detection_probability(fitted, new, shared):.3f}"
                if fitted <= 5000 and new <= 5000:
                    cell += f" ({_simulated(fitted, new, shared, trials):.3f})"
                cells.append(cell)
            lines.append(_row([f"{fitted:,}", f"{new:,}", *cells]))
    return [*lines, ""]


def _simulated(fitted: int, new: int, shared: int, trials: int) -> float:
    noticed = 0
    for _ in range(trials):
        keys = _fresh(fitted)
        noticed += _judge(keys, np.concatenate([keys[:shared], _fresh(new - shared)])).reused
    return noticed / trials


def _repeating(trials: int) -> list[str]:
    """Fitted rows that occur several times each."""
    lines = ["## 5,000 different rows fitted, each several times; new rows are some of them", ""]
    lines += ["| times | 100 new | 200 new | 500 new | 5,000 new |", "|---|---|---|---|---|"]
    for times in (1, 2, 3, 6, 20):
        cells = []
        for new in (100, 200, 500, 5000):
            noticed = 0
            for _ in range(trials // 2):
                keys = _fresh(5000)
                noticed += _judge(np.repeat(keys, times), keys[:new]).reused
            cells.append(f"{noticed / (trials // 2):.3f}")
        lines.append(_row([str(times), *cells]))
    return [*lines, ""]


def _worlds() -> dict[str, Callable[[int, Keys], Keys]]:
    """Rows of which some are drawn from a pool of values, so that fresh rows are equal to fitted ones by nature."""

    def pooled(share: float, size: int) -> Callable[[int, Keys], Keys]:
        def draw(count: int, pool: Keys) -> Keys:
            return np.where(rng.random(count) < share, pool[rng.integers(0, size, count)], _fresh(count))

        return draw

    def zipf(share: float, power: float) -> Callable[[int, Keys], Keys]:
        def draw(count: int, pool: Keys) -> Keys:
            places = np.minimum(rng.zipf(power, count), len(pool)) - 1
            return np.where(rng.random(count) < share, pool[places], _fresh(count))

        return draw

    return {
        "all different": pooled(0.0, 1),
        "5 % are one row": pooled(0.05, 1),
        "0.1 % from 1,000": pooled(0.001, 1000),
        "1 % from 1,000": pooled(0.01, 1000),
        "10 % from 10,000": pooled(0.1, 10_000),
        "50 % from 5,000": pooled(0.5, 5000),
        "all from 100,000": pooled(1.0, 100_000),
        "10 % Zipf 1.5": zipf(0.1, 1.5),
        "50 % Zipf 2": zipf(0.5, 2.0),
        "all Zipf 1.2": zipf(1.0, 1.2),
    }


def _false_alarms(trials: int) -> list[str]:
    lines = ["## False alarms: fresh rows of the same kind", ""]
    header = ["rows", *(f"{fitted} / {new}" for fitted, new in SIZES)]
    lines += [_row(header), "|" + "---|" * len(header)]
    for name, draw in _worlds().items():
        cells = []
        for fitted, new in SIZES:
            alarms = 0
            for _ in range(trials):
                pool = _fresh(100_000)
                alarms += _judge(draw(fitted, pool), draw(new, pool)).reused
            cells.append(f"{alarms / trials:.3f}")
        lines.append(_row([name, *cells]))
    return [*lines, ""]


def _real(folder: Path, splits: int = 100) -> list[str]:
    """Outputs of real models in two random halves: fresh ones, and with half of the new rows taken from the fitted."""
    lines = ["## Real models, random halves", ""]
    lines += [
        f"{splits} splits of the test rows. `said`: no reuse of these rows could be noticed, and drrej says so.",
        "",
    ]
    lines += [
        "| outputs | rows | different | false alarms | half reused: noticed | said |",
        "|---|---|---|---|---|---|",
    ]
    for name, values in _outputs(folder):
        keys = content_keys(values)
        half = len(keys) // 2
        alarms = noticed = said = 0
        for _ in range(splits):
            order = rng.permutation(len(keys))
            fitted, new = keys[order[:half]], keys[order[half:]]
            verdict = _judge(fitted, new)
            alarms, said = alarms + verdict.reused, said + (not verdict.noticeable)
            noticed += _judge(fitted, np.concatenate([new[half // 2 :], fitted[: half // 2]])).reused
        cells = [f"{count / splits:.2f}" for count in (alarms, noticed, said)]
        lines.append(_row([name, str(len(keys)), str(len(np.unique(keys))), *cells]))
    return [*lines, ""]


FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "float16": lambda _, logs: logs.astype(np.float16),
    "six digits": lambda _, logs: np.round(logs, 6),
    "+ 1": lambda _, logs: (logs + 1).astype(np.float32),
    "noise 1e-7": lambda _, logs: logs + rng.normal(0, 1e-7, logs.shape),
    "probabilities": lambda shares, _: shares,
    "float16 probabilities": lambda shares, _: shares.astype(np.float16),
    "six decimals of probabilities": lambda shares, _: np.round(shares, 6),
}


def _other_forms(folder: Path, splits: int = 40) -> list[str]:
    """Rows fitted as float64 logarithms, and used again in another form, by the sketch of coarse keys alone."""
    lines = ["## Real models, rows used again in another form", ""]
    lines += [
        f"Coarse keys; {splits} splits. Rows are fitted as logarithms of probabilities. Used again are all but one of "
        f"the new rows, half or a tenth of them: the share that is noticed, least over {', '.join(FORMS)}; where "
        "float16 is less, the others after it.",
        "",
    ]
    lines += ["| outputs | rows | classes | different | false alarms | all | half | a tenth |", "|" + "---|" * 8]
    for name, shares in _outputs(folder):
        if name.endswith("float16"):
            continue
        with np.errstate(divide="ignore"):
            logs, first = np.log(shares), shares.argmax(axis=1)
        fitted = coarse_keys(logs, first)
        forms = {form: coarse_keys(of(shares, logs), first, "prob" in form) for form, of in FORMS.items()}
        half = len(fitted) // 2
        orders = [rng.permutation(len(fitted))[: 2 * half] for _ in range(splits)]

        def noticed(keys: Keys, reused: int, fitted: Keys = fitted, half: int = half, orders: Any = orders) -> float:
            new = [np.concatenate([order[:reused], order[half:][: half - reused]]) for order in orders]
            return float(np.mean([_judge(fitted[a[:half]], keys[b]).reused for a, b in zip(orders, new, strict=True)]))

        cells = [f"{noticed(fitted, 0):.2f}"]
        for reused in (half - 1, half // 2, half // 10):
            found = {form: noticed(keys, reused) for form, keys in forms.items()}
            least = min(found.values()), min(value for form, value in found.items() if form != "float16")
            cells.append(" / ".join(f"{value:.2f}" for value in dict.fromkeys(least)))
        sizes = [str(len(fitted)), str(shares.shape[1]), str(len(np.unique(fitted)))]
        lines.append(_row([name.removesuffix(", float64"), *sizes, *cells]))
    return [*lines, ""]


def _outputs(folder: Path) -> Iterator[tuple[str, Any]]:
    for path in sorted(folder.glob("*.npz")):
        arrays = np.load(path)
        for key in (key for key in arrays if key.endswith(" test") and len(arrays[key]) >= 500):
            for kind in ("float64", "float16"):
                yield f"{path.stem}, {key.removesuffix(' test')}, {kind}", arrays[key].astype(kind)


def _speed() -> list[str]:
    rows = 65536
    values = rng.random((rows, 10))
    keys = content_keys(values)
    fingerprint = Sketch.of(keys).fingerprint()
    works: dict[str, Callable[[], Any]] = {
        "`content_keys`, 10 columns": lambda: content_keys(values),
        "`Sketch.of`": lambda: Sketch.of(keys),
        "`Fingerprint.look_up`": lambda: fingerprint.look_up(keys),
    }
    lines = [f"## Time, blocks of {rows} rows", "", "| work | ns a row |", "|---|---|"]
    return lines + [
        _row([name, f"{1e9 * min(_seconds(work) for _ in range(25)) / rows:.1f}"]) for name, work in works.items()
    ]


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
