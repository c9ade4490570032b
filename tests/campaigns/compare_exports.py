"""Exports against drrej: random rows, every loss, calibrator and engine that is here, and how many decisions differ.

`python -m tests.campaigns compare_exports [ROWS]` prints a table; exit 1 if a decision differs outside the stated
band, or a loss by more than 1e-12 of its size.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "export"))

import numpy as np
import pyarrow as pa
import test_export as exports
from msgspec.structs import replace

from drrej.errors import DrrejWarning
from drrej.export import export, random_scores

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


def by_python(rejector: Any, scores: np.ndarray) -> Any:
    found = exports.module_of(export(rejector, "python"))["decide_many"](scores)
    return found["prediction"], found["loss"], found["rejected"]


def by_duckdb(rejector: Any, scores: np.ndarray) -> Any:
    import duckdb

    connection, wide = duckdb.connect(), rejector.is_scored and scores.ndim == 2
    names = [f"s{number}" for number in range(scores.shape[1])] if wide else ["s"]
    columns = dict(zip(names, scores.T, strict=True)) if wide else {"s": pa.array(list(scores))}
    connection.execute(export(rejector, "sql", scores=",".join(names)).decode())
    connection.register("dump", pa.table({"row": np.arange(len(scores)), **columns}))
    found = connection.execute("select prediction, loss, rejected from drrej_decide('dump') order by row").fetchnumpy()
    return found["prediction"], found["loss"], found["rejected"]


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
    return (np.array(column) for column in zip(*json.loads(text), strict=True))


ENGINES = {"python": by_python, "duckdb": by_duckdb, "onnxruntime": by_onnx, "node": by_node}


def main(rows: int) -> int:
    warnings.simplefilter("ignore", DrrejWarning)
    cases: dict[Any, Any] = {case: lambda case=case: exports.rejector_for(*case) for case in exports.CASES}
    cases |= {(name,): lambda name=name: exports.scored(name) for name in exports.SCORED}
    decided, different, outside, predictions = Counter(), Counter(), Counter(), Counter()
    worst: dict[str, float] = dict.fromkeys(ENGINES, 0.0)
    for make in cases.values():
        rejector = make()
        scores = random_scores(rejector, rows, 11)
        own = replace(rejector, precision="float64").score(scores)
        cutoff = rejector.need_threshold().cutoff
        near = np.abs(own.loss - cutoff) <= 1e-12 * cutoff
        for name, engine in ENGINES.items():
            prediction, loss, rejected = engine(rejector, scores)
            unlike = np.asarray(rejected) != own.rejected
            decided[name] += rows
            different[name] += int(unlike.sum())
            outside[name] += int((unlike & ~near).sum())
            predictions[name] += int((np.asarray(prediction) != own.prediction).sum())
            errors = np.abs(np.asarray(loss, float) - own.loss)
            errors /= np.where(own.loss > 1e-290, own.loss, 1e-278)  # below, engines lose digits or give 0
            worst[name] = float(np.maximum(worst[name], errors.max()))  # NaN stays NaN
    print("| engine | rejectors | decisions | different | outside the band | predictions | largest error of a loss |")
    print("|---|---|---|---|---|---|---|")
    for name in ENGINES:
        counts = f"{decided[name]:,} | {different[name]} | {outside[name]} | {predictions[name]}"
        print(f"| {name} | {len(cases)} | {counts} | {worst[name]:.1e} |")
    exact = all(error <= 1e-12 for error in worst.values())
    return int(sum(outside.values()) > 0 or sum(predictions.values()) > 0 or not exact)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000))
