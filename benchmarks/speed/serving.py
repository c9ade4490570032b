"""One row and many in a service: drrej beside plain numpy, MAPIE and scikit-learn, by processor time, interleaved.

`python -m benchmarks.speed.serving` prints the tables of docs/guide-serving.md.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import drrej
from benchmarks.speed import measure

CLASSES, ROUNDS, STARTS = 10, 301, 21


def world() -> tuple[np.ndarray, np.ndarray]:
    """Logits whose softmax at the temperature 2 is right, and labels."""
    random = np.random.default_rng(0)
    logits = random.normal(size=(4000, CLASSES)) * 3
    powers = np.exp(logits / 2)
    chances = (powers / powers.sum(axis=1, keepdims=True)).cumsum(axis=1)
    return logits, (random.random((4000, 1)) > chances).sum(axis=1).clip(max=CLASSES - 1)


def plain(rejector: drrej.Rejector) -> Callable[[np.ndarray], Any]:
    """The entropy of the softmax, as one writes it down."""
    temperature, cutoff = rejector.need_calibration().temperature, rejector.need_threshold().cutoff

    def decide(logits: np.ndarray) -> Any:
        powers = np.exp((logits - logits.max(axis=1, keepdims=True)) / temperature)
        shares = powers / powers.sum(axis=1, keepdims=True)
        return shares.argmax(axis=1), -(shares * np.log(shares)).sum(axis=1) >= cutoff

    return decide


def plain_learned(rejector: drrej.Rejector) -> Callable[[np.ndarray], Any]:
    """The learned loss, as one writes it down."""
    temperature, cutoff = rejector.need_calibration().temperature, rejector.need_threshold().cutoff
    model: Any = rejector.need_ratio().loss.learned  # type: ignore[attr-defined]

    def decide(logits: np.ndarray) -> Any:
        rows, prediction = np.arange(len(logits)), logits.argmax(axis=1)
        gaps = (logits - logits[rows, prediction][:, None]) * (model.scale / temperature)
        gaps[rows, prediction] = -np.inf
        log_odds = np.log(np.exp(gaps).sum(axis=1))
        if model.class_terms:
            log_odds = log_odds + np.array(model.class_terms)[prediction]
        return prediction, 1 / (1 + np.exp(-(log_odds * model.slope + model.intercept))) >= cutoff

    return decide


def interleaved(calls: dict[str, Callable[[np.ndarray], Any]], batches: list[np.ndarray]) -> dict[str, float]:
    """Microseconds of processor time of a call: the least of many short rounds in which all take turns.

    On a busy machine the least is what a quiet one would show; the rest is what others do to its caches.
    """
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.process_time_ns()
            for batch in batches:
                call(batch)
            found[name].append((time.process_time_ns() - start) / len(batches) / 1000)
    return {name: min(values) for name, values in found.items()}


def in_threads(call: Callable[[], Any], times: int, threads: int = 8) -> float:
    """Calls a second, by the clock on the wall, of so many threads together."""

    def work(_: int) -> None:
        for _ in range(times):
            call()

    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    return threads * times / (time.perf_counter() - start)


def cold_start(path: str) -> dict[str, measure.Cost]:
    """What a new process costs, medians of interleaved rounds."""
    first = f"import numpy, drrej; drrej.Rejector.load({path!r}).predict(numpy.ones((1, {CLASSES})) * range({CLASSES}))"
    codes = {"Python": "pass", "and numpy": "import numpy", "and drrej, load and first row": first}
    return measure.interleaved({name: [sys.executable, "-c", code] for name, code in codes.items()}, STARTS)


def main() -> None:
    """Measure, and write the tables."""
    tell = sys.stdout.write
    warnings.simplefilter("ignore")
    logits, labels = world()
    made = {loss: drrej.fit_rejector(logits, labels, coverage=0.8, loss=loss) for loss in ("log", "learned")}
    calls: dict[str, Callable[[np.ndarray], Any]] = {"plain numpy, log loss": plain(made["log"])}
    calls |= {"drrej, log loss": made["log"].predict, "plain numpy, learned loss": plain_learned(made["learned"])}
    calls["drrej, learned loss"] = made["learned"].predict
    try:
        from mapie.classification import SplitConformalClassifier
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(max_iter=200).fit(logits, labels)
        calls["scikit-learn predict"] = model.predict
        conformal = SplitConformalClassifier(model, confidence_level=0.9, prefit=True).conformalize(logits, labels)
        calls["MAPIE predict_set"] = conformal.predict_set
    except ImportError as error:
        tell(f"without MAPIE and scikit-learn: {error}\n")
    rows = [logits[number : number + 1] for number in range(10)]
    single, several = interleaved(calls, rows), interleaved(calls, [logits[:1000]])
    tell("| | one row, µs | 1,000 rows, µs | rows/s, 8 threads |\n|---|---|---|---|\n")
    for name, call in calls.items():
        speed = max(in_threads(lambda call=call: call(rows[7]), 50) for _ in range(9))
        tell(f"| {name} | {single[name]:.0f} | {several[name]:.0f} | {speed:,.0f} |\n")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "r.json"))
        made["learned"].save(path)
        before = measure.Cost(0.0, 0.0, 0.0, {})
        for name, spent in cold_start(path).items():
            tell(
                f"{name}: {1000 * (spent.cpu - before.cpu):.0f} ms of processor time ({1000 * spent.cpu:.0f} in all), "
            )
            tell(f"{1000 * (spent.wall - before.wall):.0f} ms by the clock ({1000 * spent.wall:.0f} in all)\n")
            before = spent


if __name__ == "__main__":
    main()
