"""Small cases whose cost must not grow: `python -m benchmarks.ratios`, in less than a minute, on any machine.

Each command is compared with a program that does the least for the same dump: Arrow's decode in two threads, then the
softmax, its entropy and its largest value, as one writes them with numpy. Both start Python, import numpy and Arrow,
decode the same pages and spend the rest in numpy's loops, so that the ratio of their processor times depends little on
the machine, unlike that to the decode alone, which is higher by half where Arrow decodes quickly. They run in turns,
and the median of the ratios counts. Exit 1 where a ratio is above its limit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cases import Bench, columns_of
from benchmarks.data import Shape
from benchmarks.measure import drrej, peer, run

LIST, WIDE, NARROW = Shape(100_000, 100), Shape(100_000, 100, "wide"), Shape(500_000, 10)

LIMITS = {
    "reject, list": 1.2,
    "reject, wide": 1.4,
    "threshold": 1.3,
    "evaluate": 2.0,
    "calibrate": 2.0,
}
"""Of two cores of an AMD EPYC: 0.63, 0.83, 0.73, 1.32 and 1.37. Half as much again, and the first more: where Arrow
decodes slowly both sides have the same to wait for, and a ratio below 1 comes nearer to it."""


def cases(bench: Bench) -> dict[str, tuple[Sequence[str], Sequence[str]]]:
    """Our command, and the least that does such a thing."""

    def least(shape: Shape) -> Sequence[str]:
        return peer("numpy", bench.dump(shape), columns_of(shape), "2")

    document = str(bench.work / "made.json")
    narrow = [bench.dump(NARROW), "-r", bench.rejector(NARROW)]
    return {
        "reject, list": (bench.reject(LIST), least(LIST)),
        "reject, wide": (bench.reject(WIDE), least(WIDE)),
        "threshold": (drrej("threshold", *narrow, "-o", document, "-f", "--coverage", "0.8"), least(NARROW)),
        "evaluate": (drrej("evaluate", *narrow, "--format", "json"), least(NARROW)),
        "calibrate": (drrej("calibrate", bench.dump(LIST), "-o", document, "-f"), least(LIST)),
    }


def measured(bench: Bench) -> dict[str, float]:
    """The ratio of each case."""
    found = {}
    for name, (ours, least) in cases(bench).items():
        run(ours)  # compiles what was never imported, and warms the cache of files
        found[name] = statistics.median(run(ours).cpu / run(least).cpu for _ in range(bench.repeat))
    return found


def main() -> None:
    """Measure and compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ratios", description=__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="turns; the median counts")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Bench(Path(folder), chosen.repeat))
    for name, ratio in found.items():
        sys.stdout.write(f"{name}: {ratio:.2f} x the least with Arrow and numpy, at most {LIMITS[name]:.1f}\n")
    above = [name for name, ratio in found.items() if ratio > LIMITS[name]]
    if above:
        sys.exit(f"above its limit: {', '.join(above)}")


if __name__ == "__main__":
    main()
