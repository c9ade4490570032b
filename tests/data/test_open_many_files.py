"""Dumps of many files: each is looked into once, and those that do not fit the first are still found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import make_model, source

import drrej
from drrej.data.formats import parquet
from drrej.errors import DumpError

FILES, ROWS, CLASSES = 12, 50, 5


def write(folder: Path, number: int, classes: int = CLASSES) -> None:
    logits, labels = make_model(ROWS, classes, seed=number)
    table = pa.table({"logits": pa.array(logits.tolist(), pa.list_(pa.float32())), "label": np.asarray(labels)})
    pq.write_table(table, folder / f"{number:02}.parquet")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(FILES):
        write(tmp_path, number)
    return tmp_path


def test_a_file_is_opened_once_to_look_into_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    create = parquet._open

    def noticed(part: Any, *args: Any) -> Any:
        opened.append(part.name)
        return create(part, *args)

    monkeypatch.setattr(parquet, "_open", noticed)
    dump = source(folder).open(None, labelled=False)
    assert dump.rows == FILES * ROWS
    assert len(opened) == FILES + 1  # of the first some rows are looked at


def test_footers_are_parsed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[Any] = []
    create = pq.ParquetFile

    def noticed(file: Any, **settings: Any) -> Any:
        parsed.append(settings["metadata"])
        return create(file, **settings)

    monkeypatch.setattr(parquet.pq, "ParquetFile", noticed)
    dump = source(folder).open(None, labelled=True)
    rows = sum(block.rows for group in dump.row_groups for block in dump.read(group, labelled=True))
    assert rows == FILES * ROWS
    assert parsed.count(None) == FILES
    monkeypatch.setattr(parquet, "_MOST_FOOTERS", 0)  # none but the last is kept
    parquet._footers.clear()
    parsed.clear()
    dump = source(folder).open(None, labelled=True)
    assert sum(block.rows for group in dump.row_groups for block in dump.read(group, labelled=True)) == rows
    assert parsed.count(None) > FILES


def test_a_later_file_of_another_model_is_refused(folder: Path) -> None:
    write(folder, 7, classes=6)
    with pytest.raises(DumpError, match=r"has 6 scores per row, but .* has 5; all files of a dump must come from one"):
        source(folder).open(None, labelled=True)


def test_a_later_file_whose_lists_have_the_right_size_on_average_is_refused(folder: Path) -> None:
    logits, labels = make_model(ROWS, CLASSES, seed=3)
    lists = [row.tolist() for row in logits]
    lists[:2] = [lists[0][:-1], [*lists[1], 0.5]]
    table = pa.table({"logits": pa.array(lists, pa.list_(pa.float32())), "label": np.asarray(labels)})
    pq.write_table(table, folder / "07.parquet")
    with pytest.raises(DumpError, match=r"07\.parquet.*2 rows"):
        drrej.calibrate(source(folder))
