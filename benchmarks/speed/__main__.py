"""Speed: `python -m benchmarks.speed [CASE ...]` measures and writes results.md; `--check` is for CI.

`--check` takes about a minute of processor time. Each command is compared with a program that does the least for the
same dump: Arrow's decode in two threads, then the softmax, its entropy and its largest value, as one writes them with
numpy. The ratio of their processor times depends little on the machine, unlike that to the decode alone. They run in
turns, and the median of the ratios counts. Exit 1 where a ratio is above its limit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.pages import made_by, table
from benchmarks.speed.cases import CASES, Bench, small
from benchmarks.speed.measure import Cost, interleaved, run

HERE = Path(__file__).parent
LIMITS = {"reject, list": 2.1, "reject, wide": 2.5, "threshold": 2.1, "evaluate": 2.8, "calibrate": 3.2}
"""Two cores of an AMD EPYC without pandas, two runs: 1.5, 1.8, 1.5, 1.8 to 2.0 and 2.0 to 2.3; a third more is
allowed. Where pandas is installed Arrow loads it for the other side, and the ratios are about half of that."""


def check(repeat: int) -> None:
    """Measure the small cases and compare."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (ours, least) in small(Bench(Path(folder))).items():
            run(ours)  # compiles what was never imported, and warms the cache of files
            found[name] = statistics.median(run(ours).cpu / run(least).cpu for _ in range(repeat))
    for name, ratio in found.items():
        sys.stdout.write(f"{name}: {ratio:.2f} x the least with Arrow and numpy, at most {LIMITS[name]:.1f}\n")
    above = [name for name, ratio in found.items() if ratio > LIMITS[name]]
    if above:
        sys.exit(f"above its limit: {', '.join(above)}")


def measured(name: str, bench: Bench, repeat: int) -> str:
    """The table of a case, with its command, date and machine."""
    rows = []
    for dump, commands in CASES[name](bench):
        costs = interleaved(commands, repeat)
        first = next(iter(costs.values()))
        rows += [[dump, who, *_cells(cost, first)] for who, cost in costs.items()]
        sys.stderr.write(f"{name}: {dump}\n")
    head = ["dump", "", "cpu s", "wall s", "cpu / first", "wall / first", "peak MB"]
    said = f"{made_by(f'python -m benchmarks.speed {name} --repeat {repeat}')} Medians of interleaved runs."
    about = " ".join((CASES[name].__doc__ or "").split())
    return "\n".join([f"## {name}", "", about, "", said, "", *table(head, rows)])


def _cells(cost: Cost, first: Cost) -> list[str]:
    wall, cpu = (cost.figures.get(key, getattr(cost, key)) for key in ("wall", "cpu"))  # its own, without imports
    ratios = [f"{own / base:.2f}" for own, base in ((cpu, first.cpu), (wall, first.wall))]
    return [f"{cpu:.3f}", f"{wall:.3f}", *ratios, f"{cost.peak_mb:.0f}"]


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} [all]; others keep their tables"
    )
    parser.add_argument("--work", type=Path, default=Path("out/benchmarks"), help="where generated dumps are kept")
    parser.add_argument("--output", type=Path, default=HERE / "results.md", help="where the tables go")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each command; the median counts")
    parser.add_argument("--check", action="store_true", help="measure the small cases and compare with their limits")
    chosen = parser.parse_args()
    if chosen.check:
        check(chosen.repeat)
        return
    for name in chosen.cases or CASES:
        text = chosen.output.read_text() if chosen.output.exists() else "# Speed\n"
        head, *parts = text.split("\n## ")
        known = {part.split("\n", 1)[0]: "## " + part for part in parts}
        known[name] = measured(name, Bench(chosen.work), chosen.repeat)
        chosen.output.write_text("\n".join([head.rstrip() + "\n", *(part.rstrip() + "\n" for part in known.values())]))


if __name__ == "__main__":
    main()
