"""The cases: each runs our command and its peers on the same dump and returns rows of a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.data import Shape
from benchmarks.measure import Cost, drrej, has_module, interleaved, peer, run

Row = dict[str, Any]

MAIN = Shape(1_000_000, 100)
REJECTED = [
    MAIN,
    Shape(1_000_000, 100, "wide"),
    Shape(1_000_000, 100, "list", 0),
    Shape(1_000_000, 10),
    Shape(10_000_000, 10),
    Shape(10_000_000, 10, "wide"),
    Shape(50_000, 1000),
    Shape(20_000, 32_000, "list", 2048),
]
ENGINES = [MAIN, Shape(1_000_000, 100, "wide"), Shape(10_000_000, 10)]
CALIBRATED = [Shape(50_000, 1000), Shape(1_000_000, 10)]
EVALUATED = [Shape(10_000_000, 10), MAIN]


@dataclass(frozen=True)
class Bench:
    """Where dumps are kept and how often things are run."""

    work: Path
    repeat: int
    torch: str = sys.executable
    """The interpreter that has torch and what is built on it."""
    shapes: tuple[Shape, ...] = ()
    """Those of a case, if not all: a long case in several runs."""

    def dump(self, shape: Shape) -> str:
        """The path of a dump, made if need be: in a process of its own, as children inherit our peak memory."""
        if not shape.path(self.work).exists():
            code = (
                f"from pathlib import Path; from benchmarks.data import Shape; {shape!r}.make(Path({str(self.work)!r}))"
            )
            run([sys.executable, "-c", code])
        return str(shape.path(self.work))

    def rejector(self, shape: Shape) -> str:
        """A rejector made on a dump."""
        path = self.work / (shape.path(self.work).stem + ".json")
        if not path.exists():
            dump = self.dump(shape)
            run(drrej("fit", dump, "--temperature", "1.7", "--loss", "log", "-o", str(path)))
            run(drrej("threshold", dump, "-r", str(path), "-o", str(path), "--coverage", "0.8"))
        return str(path)

    def reject(self, shape: Shape, *options: str) -> list[str]:
        """Our reject command on a dump."""
        mask = str(self.work / "mask.parquet")
        return drrej("reject", self.dump(shape), "-r", self.rejector(shape), "-o", mask, "-f", *options)


def columns_of(shape: Shape) -> str:
    """The columns of its logits, with commas between."""
    return "logits" if shape.layout == "list" else ",".join(f"logit_{k}" for k in range(shape.classes))


def reject(bench: Bench) -> list[Row]:
    """`drrej reject` (whole process) against a streamed two-thread decode of the logits and against torch in memory."""
    rows = []
    for shape in bench.shapes or REJECTED:
        path = bench.dump(shape)
        commands: dict[str, Sequence[str]] = {
            "ours": bench.reject(shape),
            "decode": peer("decode", path, columns_of(shape), "2"),
        }
        if shape.layout == "list" and has_module("torch", bench.torch):
            commands["torch"] = peer("torch-entropy", path, python=bench.torch)
        costs = interleaved(commands, bench.repeat)
        ours, limit, torch = costs["ours"], costs["decode"], costs.get("torch")
        rows.append(
            {
                "dump": shape.name,
                "wall s": ours.wall,
                "cpu s": ours.cpu,
                "wall / decode": ours.wall / limit.wall,
                "cpu / decode": ours.cpu / limit.cpu,
                "torch wall / ours": torch.figures["wall"] / ours.wall if torch else None,
                "torch cpu / ours": torch.figures["cpu"] / ours.cpu if torch else None,
                "peak MB": ours.peak_mb,
                "torch peak MB": torch.peak_mb if torch else None,
            }
        )
    return rows


def engines(bench: Bench) -> list[Row]:
    """Polars and DuckDB: softmax entropy, largest probability and a mask from parquet to parquet, whole processes."""
    rows = []
    for shape in bench.shapes or ENGINES:
        path, mask = bench.dump(shape), str(bench.work / "peer-mask.parquet")
        commands: dict[str, Sequence[str]] = {"drrej": bench.reject(shape)}
        commands |= {
            name: peer(name, path, columns_of(shape), mask) for name in ("polars", "duckdb") if has_module(name)
        }
        commands |= {"arrow's decode": peer("decode", path, columns_of(shape), "2"), "plain read": peer("read", path)}
        costs = interleaved(commands, bench.repeat)
        ours = costs["drrej"]
        rows += [
            {
                "dump": shape.name,
                "who": name,
                "cpu s": cost.cpu,
                "cpu / ours": cost.cpu / ours.cpu,
                "wall / ours": cost.wall / ours.wall,
                "peak MB": cost.peak_mb,
            }
            for name, cost in costs.items()
        ]
    return rows


def calibrate(bench: Bench) -> list[Row]:
    """`drrej calibrate` (whole process, reading included) against peers with the logits already in memory."""
    rows = []
    for shape in bench.shapes or CALIBRATED:
        path = bench.dump(shape)
        rejector = str(bench.work / "calibrated.json")
        commands: dict[str, Sequence[str]] = {"ours": drrej("calibrate", path, "-o", rejector, "-f")}
        pythons = {"sklearn": sys.executable, "torch": bench.torch, "probmetrics": bench.torch}
        peers = {"sklearn": "sklearn", "authors": "torch", "probmetrics": "probmetrics"}
        commands |= {
            name: peer(name, path, python=pythons[module])
            for name, module in peers.items()
            if has_module(module, pythons[module])
        }
        costs = interleaved(commands, bench.repeat)
        ours = costs.pop("ours")
        temperature, nll = _our_nll(rejector, path)
        found = {"drrej": {"wall": ours.wall, "cpu": ours.cpu, "temperature": temperature, "nll": nll}}
        found |= {name: cost.figures for name, cost in costs.items()}
        rows += [
            {
                "dump": shape.name,
                "who": who,
                "wall s": figures["wall"],
                "wall / ours": figures["wall"] / ours.wall,
                "cpu / ours": figures["cpu"] / ours.cpu,
                "T": figures["temperature"],
                "NLL - ours": figures["nll"] - nll,
            }
            for who, figures in found.items()
        ]
    return rows


def _our_nll(rejector: str, path: str) -> tuple[float, float]:
    import json

    temperature = json.loads(Path(rejector).read_text())["calibration"]["temperature"]
    return temperature, run(peer("nll", path, repr(temperature))).figures["nll"]


def evaluate(bench: Bench) -> list[Row]:
    """`drrej evaluate` (whole process) against a streamed two-thread decode of logits and labels."""
    rows = []
    for shape in bench.shapes or EVALUATED:
        path = bench.dump(shape)
        costs = interleaved(
            {
                "ours": drrej("evaluate", path, "-r", bench.rejector(shape), "--format", "json"),
                "decode": peer("decode", path, "logits,label", "2"),
            },
            bench.repeat,
        )
        ours, limit = costs["ours"], costs["decode"]
        rows.append(
            {
                "dump": shape.name,
                "wall s": ours.wall,
                "cpu s": ours.cpu,
                "wall / decode": ours.wall / limit.wall,
                "cpu / decode": ours.cpu / limit.cpu,
                "peak MB": ours.peak_mb,
            }
        )
    return rows


def threshold(bench: Bench) -> list[Row]:
    """`drrej threshold` (whole process) against the decode of logits and labels, and against MAPIE in memory."""
    big, small = Shape(10_000_000, 10), Shape(1_000_000, 10)
    made = ["-o", str(bench.work / "threshold.json"), "-f"]
    simple = drrej("threshold", bench.dump(big), "-r", bench.rejector(big), *made, "--coverage", "0.8")
    promise = ["--risk", "0.05", "--confidence", "0.9", "--allow-reuse"]
    certain = drrej("threshold", bench.dump(small), "-r", bench.rejector(small), *made, *promise)
    costs = interleaved({"ours": simple, "decode": peer("decode", bench.dump(big), "logits,label", "2")}, bench.repeat)
    rows = [
        {"dump": big.name, "who": "drrej --coverage", "against": "decode"}
        | {
            "wall s": costs["ours"].wall,
            "cpu s": costs["ours"].cpu,
            "wall ratio": costs["ours"].wall / costs["decode"].wall,
        }
        | {"cpu ratio": costs["ours"].cpu / costs["decode"].cpu, "peak MB": costs["ours"].peak_mb}
    ]
    if has_module("mapie"):
        costs = interleaved({"ours": certain, "mapie": peer("mapie", bench.dump(small))}, bench.repeat)
        ours, theirs = costs["ours"], costs["mapie"].figures
        rows.append(
            {"dump": small.name, "who": "MAPIE, 100 thresholds, 5 % at 90 %", "against": "drrej --risk --confidence"}
            | {"wall s": theirs["wall"], "cpu s": theirs["cpu"], "wall ratio": theirs["wall"] / ours.wall}
            | {"cpu ratio": theirs["cpu"] / ours.cpu, "peak MB": costs["mapie"].peak_mb}
        )
    return rows


def aurc(bench: Bench) -> list[Row]:
    """AURC of 10M losses in memory: tie blocks kept whole (ours) against argsort (fd-shifts style)."""
    path = bench.dump(Shape(10_000_000, 10))
    costs = interleaved({name: peer(name, path) for name in ("our-aurc", "fd-shifts-aurc")}, min(bench.repeat, 3))
    ours = costs["our-aurc"].figures["wall"]
    return [
        {
            "who": name,
            "wall s": cost.figures["wall"],
            "wall / ours": cost.figures["wall"] / ours,
            "AURC": cost.figures["aurc"],
        }
        for name, cost in costs.items()
    ]


def memory(bench: Bench) -> list[Row]:
    """Peak memory of `drrej reject`: ten times the rows, a single row group, one and two jobs."""
    shapes = [MAIN, Shape(10_000_000, 100), Shape(1_000_000, 100, "list", 0)]
    return [
        {"dump": shape.name, "jobs": jobs, "peak MB": run(bench.reject(shape, "--jobs", str(jobs))).peak_mb}
        for jobs in (1, 2)
        for shape in shapes
    ]


def growth(bench: Bench) -> list[Row]:
    """Processor time per logit of `drrej reject`, start-up subtracted, over rows and over classes."""
    by_rows = [Shape(100_000, 10), Shape(500_000, 10), Shape(2_000_000, 10), Shape(10_000_000, 10)]
    by_classes = [Shape(1_000_000, 10), Shape(100_000, 100), Shape(10_000, 1000), Shape(1_000, 10_000, "list", 1000)]
    empty = interleaved({"start-up": bench.reject(Shape(10, 10))}, bench.repeat)["start-up"]
    costs = interleaved({shape.name: bench.reject(shape) for shape in by_rows + by_classes}, bench.repeat)
    return [
        {
            "dump": shape.name,
            "ns cpu per logit": 1e9 * (costs[shape.name].cpu - empty.cpu) / (shape.rows * shape.classes),
        }
        for shape in by_rows + by_classes
    ]


def startup(bench: Bench) -> list[Row]:
    """Start-up: `drrej reject` of 60 rows and shorter commands, against importing numpy and pyarrow.parquet."""
    python = sys.executable
    costs = interleaved(
        {
            "import numpy, pyarrow.parquet": [python, "-c", "import numpy, pyarrow.parquet"],
            "drrej reject, 60 rows": bench.reject(Shape(60, 10)),
            "drrej --help": drrej("--help"),
            "import typer": [python, "-c", "import typer"],
            "import drrej": [python, "-c", "import drrej"],
            "python": [python, "-c", "pass"],
        },
        bench.repeat,
    )
    base: Cost = costs["import numpy, pyarrow.parquet"]
    return [
        {
            "what": name,
            "wall s": cost.wall,
            "cpu s": cost.cpu,
            "wall / import numpy, pyarrow.parquet": cost.wall / base.wall,
            "cpu / import numpy, pyarrow.parquet": cost.cpu / base.cpu,
        }
        for name, cost in costs.items()
    ]


CASES: dict[str, Callable[[Bench], list[Row]]] = {
    "startup": startup,
    "reject": reject,
    "engines": engines,
    "calibrate": calibrate,
    "threshold": threshold,
    "evaluate": evaluate,
    "aurc": aurc,
    "memory": memory,
    "growth": growth,
}
