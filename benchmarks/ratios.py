"""Small cases whose cost, as a multiple of Arrow's decode, must not grow: `python -m benchmarks.ratios`.

Processor times of whole processes, ours and the decode in turns, so that a slow machine slows both; the median of the
ratios of the turns counts. Exit 1 where one is more than half as much again as the recorded one. `--record` writes the
record anew: the present one is of two cores of an AMD EPYC, where Arrow decodes quickly and the ratios are high; on an
Intel Xeon they are about a third lower.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cases import Bench, columns_of
from benchmarks.data import Shape
from benchmarks.measure import drrej, peer, run

RECORD = Path(__file__).parent / "results" / "ratios.json"
WORSE = 1.5

LIST, WIDE, NARROW = Shape(200_000, 100), Shape(200_000, 100, "wide"), Shape(1_000_000, 10)


def cases(bench: Bench) -> dict[str, tuple[Sequence[str], Sequence[str]]]:
    """Our command and its limit."""

    def limit(shape: Shape, label: bool = False) -> Sequence[str]:
        return peer("decode", bench.dump(shape), columns_of(shape) + (",label" if label else ""), "2")

    document = str(bench.work / "made.json")
    narrow = [bench.dump(NARROW), "-r", bench.rejector(NARROW)]
    return {
        "reject, list": (bench.reject(LIST), limit(LIST)),
        "reject, wide": (bench.reject(WIDE), limit(WIDE)),
        "threshold": (drrej("threshold", *narrow, "-o", document, "-f", "--coverage", "0.8"), limit(NARROW)),
        "evaluate": (drrej("evaluate", *narrow, "--format", "json"), limit(NARROW, label=True)),
        "calibrate": (drrej("calibrate", bench.dump(LIST), "-o", document, "-f"), limit(LIST, label=True)),
    }


def measured(bench: Bench) -> dict[str, float]:
    """The ratio of each case."""
    found = {}
    for name, (ours, limit) in cases(bench).items():
        run(ours)  # compiles what was never imported, and warms the cache of files
        found[name] = statistics.median(run(ours).cpu / run(limit).cpu for _ in range(bench.repeat))
    return found


def main() -> None:
    """Measure, then compare or record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ratios", description=__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="turns; the median counts")
    parser.add_argument("--record", action="store_true", help="write the record anew")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Bench(Path(folder), chosen.repeat))
    if chosen.record:
        RECORD.write_text(json.dumps({name: round(ratio, 2) for name, ratio in found.items()}, indent=1) + "\n")
    known: dict[str, float] = json.loads(RECORD.read_text())
    for name, ratio in found.items():
        sys.stdout.write(f"{name}: {ratio:.2f} x Arrow's decode, recorded {known[name]:.2f}\n")
    if any(ratio > WORSE * known[name] for name, ratio in found.items()):
        sys.exit(f"more than {WORSE} x the recorded ratio")


if __name__ == "__main__":
    main()
