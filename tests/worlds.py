"""Generated models whose truth is known, as dumps and as arrays."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from running import drrej as run

import drrej
from drrej.engines.local import LocalEngine

SAMPLE = Path(__file__).resolve().parents[1] / "sample_data"


def too_sure(rows: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(logits, labels): labels follow softmax(logits / 2)."""
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=(rows, classes)) * rng.gamma(2.0, 2.0, size=(rows, 1))).astype(np.float32)
    p = np.exp(logits / 2 - logits.max(axis=1, keepdims=True) / 2)
    p /= p.sum(axis=1, keepdims=True)
    labels = (p.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1).clip(max=classes - 1)
    return logits, labels.astype(np.int64)


def write(path: Path | str, logits: np.ndarray, labels: np.ndarray | None = None, **columns: Any) -> str:
    """Write a dump."""
    table: dict[str, Any] = {"logits": pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), logits.shape[1])}
    if labels is not None:
        table["label"] = pa.array(labels)
    pq.write_table(pa.table(table | columns), path)
    return str(path)


def source(path: str) -> drrej.Source:
    return drrej.Source([path], engine=LocalEngine(1))


def fitted(path: str, rule: drrej.Rule | None = None, **ratio: Any) -> drrej.Rejector:
    """calibrate, fit and (with a rule) threshold on the same rows."""
    rejector = drrej.fit(source(path), drrej.calibrate(source(path)), drrej.RatioOptions(**{"loss": "log"} | ratio))
    return rejector if rule is None else drrej.threshold(source(path), rejector, rule)


def cli(*arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a command in this process; its output as text."""
    outcome = run(*arguments)
    done = subprocess.CompletedProcess(arguments, outcome.code, outcome.out.decode(), outcome.err)
    if check:
        done.check_returncode()
    return done
