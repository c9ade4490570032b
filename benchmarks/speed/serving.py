"""One row and many in a service: drrej beside plain numpy, MAPIE and scikit-learn, by processor time, interleaved.

`python -m benchmarks.speed.serving` prints the tables of docs/guide-serving.md.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import drrej
from benchmarks.speed import measure

CLASSES, ROUNDS = 10, 21


def world() -> tuple[np.ndarray, np.ndarray]:
    """Logits whose softmax at the temperature 2 is right, and labels."""
    random = np.random.default_rng(0)
    logits = random.normal(size=(4000, CLASSES)) * 3
    powers = np.exp(logits / 2)
    chances = (powers / powers.sum(axis=1, keepdims=True)).cumsum(axis=1)
    return logits, (random.random((4000, 1)) > chances).sum(axis=1).clip(max=CLASSES - 1)


def plain(temperature: float, cutoff: float) -> Callable[[np.ndarray], Any]:
    """The entropy of the softmax, as one writes it down."""

    def decide(logits: np.ndarray) -> Any:
        powers = np.exp((logits - logits.max(axis=1, keepdims=True)) / temperature)
        shares = powers / powers.sum(axis=1, keepdims=True)
        return shares.argmax(axis=1), -(shares * np.log(shares)).sum(axis=1) >= cutoff

    return decide


def interleaved(calls: dict[str, Callable[[], Any]], times: int) -> dict[str, float]:
    """Microseconds of processor time of each call: medians of rounds in which all take turns."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.process_time()
            for _ in range(times):
                call()
            found[name].append((time.process_time() - start) / times * 1e6)
    return {name: statistics.median(values) for name, values in found.items()}


def in_threads(call: Callable[[], Any], times: int, threads: int = 8) -> float:
    """Calls a second, by the clock on the wall, of so many threads together."""

    def work() -> None:
        for _ in range(times):
            call()

    running = [threading.Thread(target=work) for _ in range(threads)]
    start = time.perf_counter()
    for each in running:
        each.start()
    for each in running:
        each.join()
    return threads * times / (time.perf_counter() - start)


def cold_start(path: str) -> dict[str, float]:
    """Milliseconds of processor time of a new process, medians of interleaved rounds."""
    first = f"import numpy, drrej; drrej.Rejector.load({path!r}).predict(numpy.ones((1, {CLASSES})) * range({CLASSES}))"
    codes = {"python alone": "pass", "numpy": "import numpy", "drrej, load and first row": first}
    costs = measure.interleaved({name: [sys.executable, "-c", code] for name, code in codes.items()}, 7)
    return {name: 1000 * cost.cpu for name, cost in costs.items()}


def main() -> None:
    """Measure, and write the tables."""
    tell = sys.stdout.write
    warnings.simplefilter("ignore")
    logits, labels = world()
    made = {loss: drrej.fit_rejector(logits, labels, coverage=0.8, loss=loss) for loss in ("log", "learned")}
    own = made["log"]
    formula = plain(own.need_calibration().temperature, own.need_threshold().cutoff or 0.0)
    calls: dict[str, Callable[[np.ndarray], Any]] = {"plain numpy": formula}
    calls |= {f"drrej, {loss} loss": rejector.predict for loss, rejector in made.items()}
    try:
        from mapie.classification import SplitConformalClassifier
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(max_iter=200).fit(logits, labels)
        calls["scikit-learn predict"] = model.predict
        conformal = SplitConformalClassifier(model, confidence_level=0.9, prefit=True).conformalize(logits, labels)
        calls["MAPIE predict_set"] = conformal.predict_set
    except ImportError as error:
        tell(f"without MAPIE and scikit-learn: {error}\n")
    one, many = logits[7:8], logits[:1000]
    single = interleaved({name: lambda call=call: call(one) for name, call in calls.items()}, 50)
    several = interleaved({name: lambda call=call: call(many) for name, call in calls.items()}, 5)
    tell("| | one row, µs | 1,000 rows, µs | x plain numpy | rows/s, 8 threads |\n|---|---|---|---|---|\n")
    for name, call in calls.items():
        speed = in_threads(lambda call=call: call(one), 100)
        times = several[name] / several["plain numpy"]
        tell(f"| {name} | {single[name]:.0f} | {several[name]:.0f} | {times:.1f} | {speed:,.0f} |\n")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "r.json"))
        made["learned"].save(path)
        for name, spent in cold_start(path).items():
            tell(f"{name}: {spent:.0f} ms\n")


if __name__ == "__main__":
    main()
