"""The files in `results/`: figures of each fold, the tables, the sweeps, and how they were made.

They are a record: a data set and noise of which the work directory has no dumps keeps the figures it has.
"""

import json
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import drrej
from benchmarks.paper.collect import DATASETS, NOISES, Figures, collect, collect_sweeps
from benchmarks.paper.pipeline import Shell
from benchmarks.paper.table import RULE, build, markdown, read_published

TABLE_START, TABLE_END = "<!-- tables: written by the command -->", "<!-- end of tables -->"

EQUAL_START, EQUAL_END = "<!-- equal coverage: written by the command -->", "<!-- end of equal coverage -->"


def write_tables(work: Path, variants: Sequence[str], out: Path) -> None:
    """`folds.json`, `table.json` and `table.md`."""
    start, shell = time.monotonic(), Shell(work)
    try:
        folds = recorded(out / "folds.json", "folds", collect(shell, variants))
    finally:
        shell.save_log("commands-table.log")
    rows = build(folds, read_published())
    made = _made(start) | {"commands": len(shell.log)}
    out.mkdir(parents=True, exist_ok=True)
    _write_rows(out / "folds.json", made, "folds", folds)
    _write_rows(out / "table.json", made | {"rule": RULE}, "rows", rows)
    (out / "table.md").write_text(markdown(rows))
    _show(out.parent / "README.md", markdown(rows), (TABLE_START, TABLE_END))


def write_equal(work: Path, out: Path) -> None:
    """`equal.json`, `rivals.json` and `equal.md`."""
    from benchmarks.paper import equal, rivals

    start = time.monotonic()
    trained = equal.read_folds(work)
    rows = recorded(out / "equal.json", "rows", equal.rows_of(trained))
    baselines = recorded(out / "rivals.json", "rows", rivals.rows_of(trained))
    out.mkdir(parents=True, exist_ok=True)
    _write_rows(out / "equal.json", _made(start), "rows", rows)
    _write_rows(out / "rivals.json", _made(start), "rows", baselines)
    text = equal.markdown(rows) + "\n### The baselines at their own coverage\n\n" + rivals.markdown(baselines)
    (out / "equal.md").write_text(text)
    _show(out.parent / "README.md", text, (EQUAL_START, EQUAL_END))


def _show(readme: Path, text: str, marks: tuple[str, str]) -> None:
    """Put tables between two marks of a README, if it has them."""
    whole = readme.read_text() if readme.is_file() else ""
    before, start, rest = whole.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if start and end:
        readme.write_text(f"{before}{start}\n\n{text}\n{end}{after}")


def write_figures(work: Path, out: Path) -> None:
    """`sweeps.json` and the pictures; needs `folds.json`."""
    from benchmarks.paper.figures import write_all

    start, shell = time.monotonic(), Shell(work)
    folds = json.loads((out / "folds.json").read_text())["folds"]
    try:
        rows = recorded(out / "sweeps.json", "sweeps", collect_sweeps(shell))
    finally:
        shell.save_log("commands-figures.log")
    _write_rows(out / "sweeps.json", _made(start) | {"commands": len(shell.log)}, "sweeps", rows)
    write_all(folds, rows, out)


def recorded(path: Path, name: str, made: Sequence[Figures]) -> list[Figures]:
    """Rows in the order of the table: those made now, and of data sets and noises without any those of the record."""
    known = json.loads(path.read_text())[name] if path.is_file() else []
    fresh = {(row["dataset"], row["noise"]) for row in made}
    rows = [*made, *(row for row in known if (row["dataset"], row["noise"]) not in fresh)]
    return sorted(rows, key=lambda row: (DATASETS.index(row["dataset"]), NOISES.index(row["noise"])))


def _write_rows(path: Path, made: dict[str, Any], name: str, rows: Sequence[Figures]) -> None:
    """A JSON document with one line per row, so that a change shows where it is."""
    lines = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text(f'{{\n "made": {json.dumps(made, ensure_ascii=False)},\n "{name}": [\n{lines}\n ]\n}}\n')


def _made(start: float) -> dict[str, Any]:
    """How a result was made; paths are left out, as they mean nothing elsewhere."""
    arguments = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    return {
        "command": "python -m benchmarks.paper " + " ".join(arguments),
        "seconds": round(time.monotonic() - start, 1),
        "versions": {
            "drrej": drrej.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "pyarrow": pa.__version__,
        },
    }
