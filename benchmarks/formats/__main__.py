"""`python -m benchmarks.formats`: reading of each format against pyarrow's (numpy's) own, and memory as files grow.

Each figure is that of a process of its own: processor time in seconds (imports and start-up included, which an empty
process shows), and peak memory. `read` is drrej's reader alone, to the end of the file; `reject` the whole command.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.measure import Cost, drrej, interleaved

CLASSES = 10
SMALL, LARGE = 100_000, 1_000_000
ENDINGS = ["parquet", "csv", "csv.gz", "jsonl", "jsonl.zst", "arrow", "feather", "npy", "npz"]
_STEP = 50_000


def stretches(rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Logits and labels, some at a time."""
    for number, start in enumerate(range(0, rows, _STEP)):
        rng = np.random.default_rng(number)
        logits = rng.normal(size=(min(_STEP, rows - start), CLASSES)) * 3
        labels = np.where(rng.random(len(logits)) < 0.9, logits.argmax(axis=1), 0)
        yield logits, labels


def tables(rows: int, wide: bool) -> Iterator[pa.Table]:
    """The same as tables."""
    for logits, labels in stretches(rows):
        if wide:
            yield pa.table({**{f"logit_{i}": logits[:, i] for i in range(CLASSES)}, "label": labels})
        else:
            values = pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), CLASSES)
            yield pa.table({"logits": values, "label": labels})


def make(path: Path, ending: str, rows: int) -> None:
    """Write a dump in a format."""
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    compression = {"gz": "gzip", "zst": "zstd"}.get(ending.rpartition(".")[2])
    if ending.startswith(("csv", "jsonl")):
        with pa.output_stream(str(path), compression=compression) as sink:
            for number, table in enumerate(tables(rows, wide=ending.startswith("csv"))):
                if ending.startswith("csv"):
                    pacsv.write_csv(table, sink, pacsv.WriteOptions(include_header=number == 0))
                else:
                    sink.write("".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode())
    elif ending in ("arrow", "feather"):
        options = pa.ipc.IpcWriteOptions(compression="lz4" if ending == "feather" else None)
        first = next(tables(1, wide=False))
        with pa.ipc.new_file(str(path), first.schema, options=options) as writer:
            for table in tables(rows, wide=False):
                writer.write_table(table)
    elif ending == "parquet":
        with pq.ParquetWriter(path, next(tables(1, wide=False)).schema) as writer:
            for table in tables(rows, wide=False):
                writer.write_table(table)
    else:
        logits, labels = (np.concatenate(pieces) for pieces in zip(*stretches(rows), strict=True))
        if ending == "npz":
            np.savez(path, logits=logits, labels=labels)
        else:
            np.save(path, logits)


def read_theirs(path: str) -> None:
    """The file as pyarrow or numpy reads it, in one thread."""
    import pyarrow.csv as pacsv
    import pyarrow.feather as feather
    import pyarrow.json as pajson
    import pyarrow.parquet as pq

    pa.set_cpu_count(1)
    readers: dict[str, Callable[[str], Any]] = {
        "parquet": lambda name: pq.read_table(name, use_threads=False),
        "csv": lambda name: pacsv.read_csv(name, pacsv.ReadOptions(use_threads=False)),
        "jsonl": lambda name: pajson.read_json(pa.input_stream(name), pajson.ReadOptions(use_threads=False)),
        "arrow": lambda name: pa.ipc.open_file(pa.OSFile(name)).read_all(),
        "feather": lambda name: feather.read_table(name, use_threads=False, memory_map=False),
        "npy": np.load,
        "npz": lambda name: [np.load(name)[key] for key in ("logits", "labels")],
    }
    readers[Path(path).name.split(".")[1]](path)


def read_ours(path: str) -> None:
    """The file as drrej's reader reads it, in one thread."""
    from drrej.data.files import Request
    from drrej.data.formats import format_of
    from drrej.data.listing import find_parts

    (part,) = find_parts([path])
    info = format_of(part).look(part)
    for group in range(len(info.groups)):
        for _ in format_of(part).batches(Request(part, group, info.schema.names, 52_428)):
            pass


def main() -> None:
    """Run and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.formats", description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("out/benchmarks/formats"))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=ENDINGS)
    parser.add_argument("--read", nargs=2, metavar=("WHO", "FILE"))
    chosen = parser.parse_args()
    if chosen.read:
        {"ours": read_ours, "theirs": read_theirs, "nobody": lambda _: None}[chosen.read[0]](chosen.read[1])
        return
    chosen.work.mkdir(parents=True, exist_ok=True)
    rejector = str(chosen.work / "rejector.json")
    lines = [
        "| format | MB | theirs, s | read, s | ratio | reject, s | peak MB, 100k rows | peak MB, 1M rows |",
        "|---|" + "---|" * 7,
    ]
    for ending in chosen.only:
        paths = {rows: chosen.work / f"{rows}_logits.{ending}" for rows in (SMALL, LARGE)}
        for rows, path in paths.items():
            if not path.exists():
                make(path, ending, rows)
        lines.append(row(ending, paths, rejector, chosen.repeat))
        sys.stderr.write(f"{lines[-1]}\n")
    sys.stdout.write("\n".join(lines) + "\n")


def row(ending: str, paths: dict[int, Path], rejector: str, repeat: int) -> str:
    """A line of the table."""
    if not Path(rejector).exists():
        interleaved({"fit": drrej("fit", str(paths[SMALL]), "--temperature", "1", "--loss", "log", "-o", rejector)}, 1)
        rule = drrej("threshold", str(paths[SMALL]), "-r", rejector, "--coverage", "0.8", "-o", rejector)
        interleaved({"threshold": rule}, 1)

    def read(who: str) -> list[str]:
        return [sys.executable, "-m", "benchmarks.formats", "--read", who, str(paths[LARGE])]

    def reject(rows: int) -> list[str]:
        column = ["--logits", "logit_*"] if ending.startswith("csv") else ["--logits", "logits"]
        words = ["reject", str(paths[rows]), "-r", rejector, *column, "--jobs", "2", "-q", "-f"]
        return drrej(*words, "-o", str(paths[rows].parent / "mask.parquet"))

    commands = {"nobody": read("nobody"), "theirs": read("theirs"), "ours": read("ours")}
    commands |= {"small": reject(SMALL), "large": reject(LARGE)}
    costs: dict[str, Cost] = interleaved(commands, repeat)
    empty = costs["nobody"].cpu
    theirs, ours = costs["theirs"].cpu - empty, costs["ours"].cpu - empty
    size = paths[LARGE].stat().st_size / 1e6
    peaks = f"{costs['small'].peak_mb:.0f} | {costs['large'].peak_mb:.0f}"
    times = f"{theirs:.2f} | {ours:.2f} | {ours / theirs:.2f} | {costs['large'].cpu:.2f}"
    return f"| {ending} | {size:.0f} | {times} | {peaks} |"


if __name__ == "__main__":
    main()
