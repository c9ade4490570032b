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
from pyarrow.csv import write_csv

from drrej.data.dump import Block, Dump
from drrej.data.pages import Chunk, Page

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
            patch.setenv("DRREJ_ARROW_ONLY", "1")
            return blocks_of(path)[1]

    return read


def lists(values: np.ndarray) -> pa.Array:
    offsets = pa.array(np.arange(0, values.size + 1, values.shape[1], dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(values.reshape(-1)))


@pytest.mark.parametrize("codec", ["snappy", "zstd", "none"])
def test_the_same_blocks_as_from_arrow(tmp_path: Path, from_arrow: Any, codec: str) -> None:
    path = write(tmp_path / "d.parquet", lists(LOGITS), compression=codec)
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


@pytest.mark.parametrize("kind", ["pages", "arrow from row 9000 on", "wide", "csv"])
@pytest.mark.parametrize("bounds", [(0, 4000), (4000, 12_000), (7001, 7002), (8500, 20_000), (0, 20_000)])
def test_a_part_of_a_row_group_has_its_rows(tmp_path: Path, kind: str, bounds: tuple[int, int]) -> None:
    if kind == "wide":
        columns = {f"logit_{k}": LOGITS[:, k] for k in range(CLASSES)}
        pq.write_table(pa.table(columns | {"label": LABELS}), path := tmp_path / "d.parquet", row_group_size=20_000)
    elif kind == "csv":
        columns = {f"logit_{k}": LOGITS[:20_000, k] for k in range(CLASSES)}
        write_csv(pa.table(columns | {"label": LABELS[:20_000]}), path := tmp_path / "d.csv")
    else:
        ragged = lists(LOGITS).to_pylist() if kind != "pages" else []
        if ragged:
            ragged[9000] = None
        write(path := tmp_path / "d.parquet", pa.array(ragged, pa.list_(pa.float32())) if ragged else lists(LOGITS))
    dump = source(str(path)).open(None, labelled=True)
    group = dump.row_groups[0]
    start, stop = (min(bound, group.rows) for bound in bounds)
    whole, part = (list(dump.read(some, labelled=True)) for some in (group, group.between(start, stop)))
    for name in ("scores", "labels", "bad"):
        rows = np.concatenate([getattr(block, name) for block in whole])[start:stop]
        np.testing.assert_array_equal(np.concatenate([getattr(block, name) for block in part]), rows)
    numbers = np.concatenate([block.row_numbers() for block in part])
    np.testing.assert_array_equal(numbers, np.arange(group.first_row + start, group.first_row + stop))


def test_a_part_of_a_row_group_skips_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies before it is not decoded."""
    dump = source(write(tmp_path / "d.parquet", lists(LOGITS))).open(None, labelled=True)
    read: list[int] = []
    values = Chunk.values

    def noticed(self: Chunk, page: Page, words: Any) -> Any:
        read.append(page.values)
        return values(self, page, words)

    monkeypatch.setattr(Chunk, "values", noticed)
    rows = sum(block.rows for block in dump.read(dump.row_groups[0].between(15_000, 20_000), labelled=True))
    assert rows == 5000
    assert 5000 * CLASSES <= sum(read) < 8000 * CLASSES
