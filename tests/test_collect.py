"""Columns of all rows in their order: in memory or in temporary files, with the same values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import make_model, source, write_dump

from drrej.data.dump import Block
from drrej.engines.protocol import Pass
from drrej.errors import OutputError
from drrej.pipeline import collect as collecting
from drrej.pipeline.collect import collect


def of_block(block: Block) -> dict[str, Any]:
    rows = block.row_numbers()
    return {
        "first": block.scores[:, 0],
        "row": rows,
        "text": np.array([f"{10**row % 1000007}" for row in rows.tolist()]),
        "group": pa.array([f"{row // 40}" for row in rows.tolist()]).dictionary_encode(),
        "rows": block.rows,
    }


@pytest.mark.parametrize("most", [1 << 26, 0])
def test_columns_in_the_order_of_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Arrays are joined, text as wide as the widest, groups with one dictionary; anything else is added up."""
    monkeypatch.setattr(collecting, "MOST_IN_MEMORY", most)
    logits, labels = make_model(130, 3, 1)
    dump = source(write_dump(tmp_path / "d.parquet", logits, labels, row_group=30))
    found = collect(dump, dump.open(None, labelled=True), of_block, Pass("reading", labelled=True))
    assert isinstance(found["first"], np.memmap) == (most == 0)
    np.testing.assert_array_equal(found["first"], logits[:, 0])
    np.testing.assert_array_equal(found["row"], np.arange(130))
    assert found["text"].tolist() == [f"{10**row % 1000007}" for row in range(130)]
    assert found["group"].to_pylist() == [f"{row // 40}" for row in range(130)]
    assert found["rows"] == 130


def test_too_little_room_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "MOST_IN_MEMORY", 0)

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(OutputError, match=r"the columns of 1000 rows cannot be kept in .*No space left.*set TMPDIR"):
        collecting.scratch((1000,), np.dtype(np.float64))
