"""List columns of parquet files: from pages where every row fits, from Arrow where one does not, with the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import make_model, source

from drrej.data.dump import Block, Dump
from drrej.data.readers import parquet

ROWS, CLASSES = 30_000, 7
LOGITS, LABELS = make_model(ROWS, CLASSES, 21)


def write(path: Path, rows: list[Any] | pa.Array, **options: Any) -> str:
    """A dump of several pages per row group, with other columns beside the lists."""
    names = pa.array([f"row {i}" for i in range(ROWS)])
    table = pa.table({"name": names, "logits": rows, "label": LABELS})
    pq.write_table(table, path, row_group_size=20_000, data_page_size=40_000, use_dictionary=["name"], **options)
    return str(path)


def blocks_of(path: str, keep: tuple[str, ...] = ("name",)) -> tuple[Dump, list[Block]]:
    dump = source(path).open(None, labelled=True)
    return dump, [block for group in dump.row_groups for block in dump.read(group, labelled=True, keep=keep)]


@pytest.fixture
def from_arrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Read a dump without looking into its pages."""

    def read(path: str) -> list[Block]:
        with monkeypatch.context() as patch:
            patch.setattr(parquet, "footer_of", lambda *_: None)
            return blocks_of(path)[1]

    return read


def lists(values: np.ndarray) -> pa.Array:
    offsets = pa.array(np.arange(0, values.size + 1, values.shape[1], dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(values.reshape(-1)))


@pytest.mark.parametrize("codec", ["snappy", "zstd", "none"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_the_same_blocks_as_from_arrow(tmp_path: Path, from_arrow: Any, codec: str, version: str) -> None:
    path = write(tmp_path / "d.parquet", lists(LOGITS), compression=codec, data_page_version=version)
    _, blocks = blocks_of(path)
    assert any(pa.types.is_fixed_size_list(block.columns.schema.field("logits").type) for block in blocks)  # pages
    for block, other in zip(blocks, from_arrow(path), strict=True):
        np.testing.assert_array_equal(block.scores, other.scores)
        np.testing.assert_array_equal(block.labels, other.labels)
        assert block.columns.column("name").equals(other.columns.column("name"))
        assert not block.problems


@pytest.mark.parametrize("odd", [None, [0.5] * (CLASSES - 1), [*[0.5] * (CLASSES - 1), None]])
@pytest.mark.parametrize("row", [0, 17_000, 29_999])
def test_a_row_that_does_not_fit_is_told_by_its_place(tmp_path: Path, from_arrow: Any, odd: Any, row: int) -> None:
    rows = LOGITS.tolist()
    rows[row] = odd
    path = write(tmp_path / "d.parquet", pa.array(rows, pa.list_(pa.float32())))
    _, blocks = blocks_of(path)
    others = from_arrow(path)
    assert sum(block.rows for block in blocks) == ROWS
    assert [p.message() for b in blocks for p in b.problems] == [p.message() for b in others for p in b.problems]
    (problem,) = (problem for block in blocks for problem in block.problems)
    assert problem.row == row
    np.testing.assert_array_equal(
        np.concatenate([block.scores for block in blocks]), np.concatenate([block.scores for block in others])
    )
