"""Exports against drrej: random rows, every loss with every calibrator, in every engine, and how many decisions differ.

`python -m tests.campaigns compare_exports [--rows N] [--part I/K] [ENGINE...]` prints a table, of all rejectors or of
one part in K; exit 1 if a decision differs outside the stated band, or a loss by more than 1e-12 of its size.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "export"))

import numpy as np
import pyarrow as pa
import test_export as exports
from msgspec.structs import replace

from drrej.errors import DrrejWarning
from drrej.export import export, random_scores

CASES: dict[Any, Callable[[], Any]] = {
    case: lambda case=case: exports.rejector_for(*case)
    for case in itertools.product(exports.KINDS, exports.CALIBRATORS, exports.LOSSES)
} | {(name,): lambda name=name: exports.scored(name) for name in exports.SCORED}

NODE = """
import { decide } from "./decide.mjs";
import { readFileSync } from "node:fs";
const rows = new Float64Array(new Uint8Array(readFileSync("rows")).buffer), width = Number(process.argv[2]);
const found = [];
for (let i = 0; i < rows.length; i += width) {
  const { prediction, loss, rejected } = decide(width === 1 ? rows[i] : rows.subarray(i, i + width));
  found.push([prediction, loss, rejected]);
}
console.log(JSON.stringify(found));
"""


def columns_of(rows: Any) -> Any:
    """Prediction, loss and decision of rows."""
    return (np.array(column) for column in zip(*rows, strict=True))


def by_python(rejector: Any, scores: np.ndarray) -> Any:
    decide = exports.module_of(export(rejector, "python"))["decide"]
    return columns_of((found["prediction"], found["loss"], found["rejected"]) for found in map(decide, scores.tolist()))


def by_numpy(rejector: Any, scores: np.ndarray) -> Any:
    found = exports.module_of(export(rejector, "python"))["decide_many"](scores)
    return found["prediction"], found["loss"], found["rejected"]


def by_duckdb(rejector: Any, scores: np.ndarray, wide: bool = False) -> Any:
    import duckdb

    connection, wide = duckdb.connect(), wide or (rejector.is_scored and scores.ndim == 2)
    names = [f"s{number}" for number in range(scores.shape[1])] if wide else ["s"]
    columns = dict(zip(names, scores.T, strict=True)) if wide else {"s": pa.array(list(scores))}
    connection.execute(export(rejector, "sql", scores=",".join(names)).decode())
    connection.register("dump", pa.table({"row": np.arange(len(scores)), **columns}))
    found = connection.execute("select prediction, loss, rejected from drrej_decide('dump') order by row").fetchnumpy()
    return found["prediction"], found["loss"], found["rejected"]


def by_wide_columns(rejector: Any, scores: np.ndarray) -> Any:
    return None if scores.ndim == 1 else by_duckdb(rejector, scores, wide=True)


def by_onnx(rejector: Any, scores: np.ndarray) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(export(rejector, "onnx"), providers=["CPUExecutionProvider"])
    return session.run(["prediction", "loss", "rejected"], {"scores": scores})


def by_node(rejector: Any, scores: np.ndarray) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "decide.mjs").write_bytes(export(rejector, "js"))
        Path(folder, "run.mjs").write_text(NODE)
        Path(folder, "rows").write_bytes(np.ascontiguousarray(scores).tobytes())
        width = 1 if scores.ndim == 1 else scores.shape[1]
        asked = ["node", "run.mjs", str(width)]
        text = subprocess.run(asked, cwd=folder, capture_output=True, check=True, timeout=600).stdout
    return columns_of(json.loads(text))


def by_postgres(ask: Any, rejector: Any, scores: np.ndarray) -> Any:
    several = rejector.is_scored and scores.ndim == 2
    names = ",".join(f"s{number}" for number in range(scores.shape[1])) if several else "s"
    kind = "float8" if scores.ndim == 1 else "float8[]"
    texts = [str(row) if scores.ndim == 1 else "{" + ",".join(map(str, row)) + "}" for row in scores.tolist()]
    rows = "\n".join(f"{number}\t{text}" for number, text in enumerate(texts))
    ask(export(rejector, "sql", scores=names, dialect="postgres"))
    ask(f"drop table if exists dump; create table dump(n integer, s {kind});\ncopy dump from stdin;\n{rows}\n\\.\n")
    asked = "select d.prediction, d.loss, d.rejected from dump t cross join lateral drrej_decide(t.s) d order by n"
    found = [line.split("|") for line in ask(asked, timeout=900).splitlines()]
    return columns_of((int(prediction), float(loss), rejected == "t") for prediction, loss, rejected in found)


ENGINES = {
    "python": by_python,
    "numpy": by_numpy,
    "duckdb": by_duckdb,
    "duckdb, wide columns": by_wide_columns,
    "onnxruntime": by_onnx,
    "node": by_node,
}


def main(rows: int, part: str, names: list[str]) -> int:
    warnings.simplefilter("ignore", DrrejWarning)
    number, parts = map(int, part.split("/"))
    cases = list(CASES.values())[number - 1 :: parts]
    decided, different, outside, predictions, rejectors = (Counter[str]() for _ in range(5))
    worst, spent = Counter[str](), Counter[str]()
    with contextlib.ExitStack() as stack:
        engines: dict[str, Callable[..., Any]] = dict(ENGINES)
        if "postgres" in names or not names:
            ask = stack.enter_context(exports.postgres_server())
            engines["postgres"] = lambda *given: by_postgres(ask, *given)
        engines = {name: engines[name] for name in names or engines}
        for make in cases:
            rejector = make()
            scores = random_scores(rejector, rows, 11)
            own = replace(rejector, precision="float64").score(scores)
            cutoff = rejector.need_threshold().cutoff
            near = np.abs(own.loss - cutoff) <= 1e-12 * cutoff
            for name, engine in engines.items():
                start = time.perf_counter()
                if (found := engine(rejector, scores)) is None:
                    continue
                prediction, loss, rejected = found
                spent[name] += time.perf_counter() - start
                unlike = np.asarray(rejected) != own.rejected
                rejectors[name] += 1
                decided[name] += rows
                different[name] += int(unlike.sum())
                outside[name] += int((unlike & ~near).sum())
                predictions[name] += int((np.asarray(prediction) != own.prediction).sum())
                errors = np.abs(np.asarray(loss, float) - own.loss)
                errors /= np.where(own.loss > 1e-290, own.loss, 1e-278)  # below, engines lose digits or give 0
                worst[name] = float(np.maximum(worst[name], errors.max()))  # NaN stays NaN
    print("| engine | rejectors | decisions | different | outside the band | predictions | worst loss | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for name in engines:
        counts = f"{rejectors[name]} | {decided[name]:,} | {different[name]} | {outside[name]} | {predictions[name]}"
        print(f"| {name} | {counts} | {worst[name]:.1e} | {spent[name]:.1f} |")
    exact = all(worst[name] <= 1e-12 for name in engines)
    return int(outside.total() > 0 or predictions.total() > 0 or not exact)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--part", default="1/1", metavar="I/K")
    parser.add_argument("engines", nargs="*", choices=[[], *ENGINES, "postgres"])
    given = parser.parse_args()
    sys.exit(main(given.rows, given.part, given.engines))
