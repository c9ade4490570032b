"""The cases: for each dump the commands that are compared. The first is what the others are measured by."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks.speed.data import Shape
from benchmarks.speed.measure import drrej, peer, run

Commands = dict[str, Sequence[str]]
Cases = Iterator[tuple[str, Commands]]

LIST, WIDE, NARROW = Shape(1_000_000, 100), Shape(1_000_000, 100, "wide"), Shape(10_000_000, 10)
MANY, SMALL = Shape(50_000, 1000), Shape(1_000_000, 10)
DECODE = "Arrow's decode"


@dataclass(frozen=True)
class Bench:
    """Where dumps are kept, and our commands on them."""

    work: Path

    def dump(self, shape: Shape) -> str:
        """The path of a dump, made if need be: in a process of its own, as children inherit our peak memory."""
        path = shape.path(self.work)
        if not path.exists():
            made = f"{shape!r}.make(Path({str(self.work)!r}))"
            run([sys.executable, "-c", f"from pathlib import Path; from benchmarks.speed.data import Shape; {made}"])
        return str(path)

    def rejector(self, shape: Shape) -> str:
        """A rejector made on a dump."""
        path = self.work / (shape.path(self.work).stem + ".json")
        if not path.exists():
            dump = self.dump(shape)
            run(drrej("fit", dump, "--temperature", "1.7", "--loss", "log", "-o", str(path)))
            run(drrej("threshold", dump, "-r", str(path), "-o", str(path), "-f", "--coverage", "0.8"))
        return str(path)

    def reject(self, shape: Shape, *options: str) -> list[str]:
        """Our reject command on a dump."""
        mask = str(self.work / "mask.parquet")
        return drrej("reject", self.dump(shape), "-r", self.rejector(shape), "-o", mask, "-f", *options)

    def evaluate(self, shape: Shape, *options: str) -> list[str]:
        """Our evaluate command on a dump."""
        return drrej("evaluate", self.dump(shape), "-r", self.rejector(shape), "--format", "json", *options)

    def threshold(self, shape: Shape, *rule: str) -> list[str]:
        """Our threshold command on a dump."""
        made = str(self.work / "threshold.json")
        return drrej("threshold", self.dump(shape), "-r", self.rejector(shape), "-o", made, "-f", *rule)

    def calibrate(self, shape: Shape) -> list[str]:
        """Our calibrate command on a dump."""
        return drrej("calibrate", self.dump(shape), "-o", str(self.work / "calibrated.json"), "-f")

    def decode(self, shape: Shape, label: bool = False) -> list[str]:
        """The limit: a streamed decode of the logits, and labels if they are used, by two threads, thrown away."""
        return peer("decode", self.dump(shape), columns_of(shape) + (",label" if label else ""), "2")


def columns_of(shape: Shape) -> str:
    """The columns of its logits, with commas between."""
    return "logits" if shape.layout == "list" else ",".join(f"logit_{k}" for k in range(shape.classes))


def startup(bench: Bench) -> Cases:
    """Start-up, against importing numpy and pyarrow.parquet."""
    python = sys.executable
    yield (
        "60 rows",
        {
            "import numpy, pyarrow.parquet": [python, "-c", "import numpy, pyarrow.parquet"],
            "drrej reject": bench.reject(Shape(60, 10)),
            "drrej --help": drrej("--help"),
            "import drrej": [python, "-c", "import drrej"],
        },
    )


def masks(bench: Bench) -> Cases:
    """A mask from parquet to parquet, whole processes; torch: softmax and entropy in memory, imports not counted.

    polars and DuckDB compute softmax, entropy, largest probability and the mask as their users would write it.
    """
    for shape in (LIST, WIDE, NARROW):
        commands: Commands = {DECODE: bench.decode(shape), "drrej reject": bench.reject(shape)}
        if shape.layout == "list" and find_spec("torch"):
            commands["torch in memory"] = peer("torch", bench.dump(shape))
        for name in filter(find_spec, ("polars", "duckdb")):
            commands[name] = peer(name, bench.dump(shape), columns_of(shape), str(bench.work / "peer.parquet"))
        yield shape.name, commands


def steps(bench: Bench) -> Cases:
    """The other commands, whole processes, against the decode of logits and labels."""
    yield (
        NARROW.name,
        {
            DECODE: bench.decode(NARROW, label=True),
            "drrej threshold --coverage": bench.threshold(NARROW, "--coverage", "0.8"),
            "drrej evaluate": bench.evaluate(NARROW),
        },
    )
    yield LIST.name, {DECODE: bench.decode(LIST, label=True), "drrej evaluate": bench.evaluate(LIST)}


def calibrate(bench: Bench) -> Cases:
    """A temperature: drrej as a whole process, reading included; the others with the logits already in memory."""
    for shape in (MANY, SMALL):
        commands: Commands = {"drrej calibrate": bench.calibrate(shape)}
        for name, module in (("sklearn", "sklearn"), ("authors", "torch")):
            if find_spec(module):
                commands[name] = peer(name, bench.dump(shape))
        yield shape.name, commands


def certify(bench: Bench) -> Cases:
    """5 % risk at confidence 0.9: drrej as a whole process; MAPIE, 100 thresholds, with the scores in memory."""
    promise = ("--risk", "0.05", "--confidence", "0.9", "--allow-reuse")
    commands: Commands = {"drrej threshold": bench.threshold(SMALL, *promise)}
    if find_spec("mapie"):
        commands["mapie"] = peer("mapie", bench.dump(SMALL))
    yield SMALL.name, commands


def memory(bench: Bench) -> Cases:
    """Peak memory: ten times the rows, and one and two jobs."""
    for shape in (LIST, Shape(10_000_000, 100)):
        yield shape.name, {f"drrej reject --jobs {jobs}": bench.reject(shape, "--jobs", str(jobs)) for jobs in (1, 2)}


def cluster(bench: Bench) -> Cases:
    """A Dask cluster on this machine against processes; start-up and the scheduler's work included."""
    from distributed import LocalCluster

    with contextlib.ExitStack() as running:
        commands: Commands = {"--jobs 2": bench.evaluate(LIST, "--jobs", "2")}
        for workers in (1, 2):
            made = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
            running.enter_context(contextlib.closing(made))
            commands[f"{workers} worker(s)"] = bench.evaluate(LIST, "--cluster", made.scheduler_address)
        yield f"evaluate, {LIST.name}", commands


def small(bench: Bench) -> dict[str, tuple[Sequence[str], Sequence[str]]]:
    """Cases for `--check`: our command, and the least that does such a thing with Arrow and numpy."""
    lists, wide, narrow = Shape(100_000, 100), Shape(100_000, 100, "wide"), Shape(500_000, 10)

    def least(shape: Shape) -> Sequence[str]:
        return peer("numpy", bench.dump(shape), columns_of(shape), "2")

    return {
        "reject, list": (bench.reject(lists), least(lists)),
        "reject, wide": (bench.reject(wide), least(wide)),
        "threshold": (bench.threshold(narrow, "--coverage", "0.8"), least(narrow)),
        "evaluate": (bench.evaluate(narrow), least(narrow)),
        "calibrate": (bench.calibrate(lists), least(lists)),
    }


CASES: dict[str, Callable[[Bench], Cases]] = {
    case.__name__: case for case in (startup, masks, steps, calibrate, certify, memory, cluster)
}
