"""`python -m benchmarks`: run the cases and write results.md and results.json."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.cases import CASES, Bench
from benchmarks.data import Shape


def main() -> None:
    """Run the chosen cases."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("out/benchmarks"), help="where generated dumps are kept")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results", help="where tables go")
    parser.add_argument("--repeat", type=int, default=7, help="runs of each command; the median counts")
    parser.add_argument("--only", nargs="*", choices=list(CASES), help="cases to run; others keep their last figures")
    parser.add_argument("--torch", default=sys.executable, help="the interpreter that has torch and probmetrics")
    parser.add_argument(
        "--shapes", nargs="*", default=(), help="such as 1000000x100-list: only these, others keep theirs"
    )
    chosen = parser.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    store = chosen.output / "results.json"
    results: dict[str, Any] = json.loads(store.read_text()) if store.exists() else {}
    for name in chosen.only or CASES:
        sys.stderr.write(f"{name}\n")
        shapes = tuple(_shape(text) for text in chosen.shapes)
        rows = CASES[name](Bench(chosen.work, chosen.repeat, chosen.torch, shapes))
        before = results.get(name, {})
        if shapes and before.get("machine") == machine() and before.get("repeat") == chosen.repeat:
            made = {row["dump"] for row in rows}
            rows = [row for row in before["rows"] if row["dump"] not in made] + rows
        results[name] = {"repeat": chosen.repeat, "machine": machine(), "rows": rows}
        store.write_text(json.dumps(results, indent=1) + "\n")
        (chosen.output / "results.md").write_text(markdown(results))


def _shape(text: str) -> Shape:
    size, layout = text.split("-")
    rows, classes = map(int, size.split("x"))
    return Shape(rows, classes, layout)


def machine() -> str:
    """The machine and the versions, without its name."""
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "pyarrow", "drrej"))
    return f"{model}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, {versions}"


def markdown(results: dict[str, Any]) -> str:
    """One table per case."""
    lines = ["# Benchmarks", "", "Made by `python -m benchmarks`; medians of interleaved runs.", ""]
    for name, case in results.items():
        rows = case["rows"]
        lines += [
            f"## {name}",
            "",
            (CASES[name].__doc__ or "").strip(),
            "",
            f"{case['machine']}; {case['repeat']} runs.",
            "",
        ]
        header = list(rows[0])
        lines += ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
        lines += ["| " + " | ".join(_cell(row.get(key)) for key in header) + " |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
