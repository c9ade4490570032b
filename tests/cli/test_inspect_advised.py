"""Command lines that `inspect` advises work."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import logit_columns, make_model
from running import drrej as run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    logits, labels = make_model(200, 3, 1)
    counts = np.round(50 * np.exp(logits - logits.max(axis=1, keepdims=True)))
    columns = {
        **logit_columns(logits, "fixed"),
        "counts": logit_columns(counts, "fixed")["logits"],
        "label": labels,
    }
    pq.write_table(pa.table(columns), folder / "VAL")
    return folder


def do(command: str, folder: Path) -> bytes:
    """What a command writes; it may have something to note."""
    outcome = run(*shlex.split(command), cwd=folder)
    assert outcome.code == 0, outcome.err
    return outcome.out


@pytest.mark.parametrize("reading", ["--logits logits", "--logits counts --input probs --normalize"])
def test_the_advice_of_inspect_works(folder: Path, reading: str) -> None:
    advice = do(f"inspect VAL {reading}", folder).decode().splitlines()[-1].strip()
    assert advice.startswith("drrej calibrate VAL")
    assert do(advice.removeprefix("drrej ").removesuffix(" -o rejector.json"), folder)
