"""Reading from object storage: several row groups at once, with the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import make_model, source, write_dump
from object_store import serve, settings

import drrej
from drrej.data import pages
from drrej.engines import local


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with one dump of many row groups, which a server shows as a bucket."""
    write_dump(tmp_path / "d.parquet", *make_model(3000, 6, seed=2), row_group=250)
    server = serve(tmp_path, latency=0.005)
    for name, value in settings(server.server_address[1]).items():
        monkeypatch.setenv(name, value)
    yield tmp_path
    server.shutdown()
    server.server_close()


def test_the_same_documents_from_object_storage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    in_threads = local.in_threads

    def noticed(results: Any, tasks: Any, count: int) -> Any:
        threads.append(count)
        return in_threads(results, tasks, count)

    monkeypatch.setattr(local, "in_threads", noticed)

    def made(path: str, jobs: int) -> list[str]:
        dump = source(path, jobs=jobs)
        rejector = drrej.threshold(dump, drrej.fit(dump, drrej.calibrate(dump)), drrej.Rule("coverage", 0.8))
        return [rejector.to_json(), drrej.evaluate(dump, rejector).to_json()]

    expected = made(str(folder / "d.parquet"), 2)
    assert max(threads) == 1  # nothing to wait for, and few classes: threads that score would wait for each other
    for jobs in (1, 2):
        threads.clear()
        assert made("s3://bucket/d.parquet", jobs) == expected
        assert set(threads) == {16}
    monkeypatch.setattr(local, "OBJECT_BYTES", 1)  # large row groups, two at a time
    threads.clear()
    assert made("s3://bucket/d.parquet", 1) == expected
    assert set(threads) == {2}


@pytest.mark.parametrize("kind", ["pages", "too large", "network"])
def test_pages_of_objects(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Scores come from pages, and from Arrow where those cannot be had, with the same bits."""
    opened: list[int] = []
    open_chunk = pages.open_chunk

    def noticed(*args: Any) -> Any:
        if kind == "network":
            raise OSError("connection lost")
        chunk = open_chunk(*args)
        opened.append(chunk.rows)
        return chunk

    monkeypatch.setattr(pages, "open_chunk", noticed)
    logits, labels = make_model(5000, 6, seed=4)
    table = pa.table({"logits": pa.array(logits.tolist(), pa.list_(pa.float32())), "label": np.asarray(labels)})
    pq.write_table(table, folder / "lists.parquet", row_group_size=2000)
    if kind == "too large":
        monkeypatch.setattr(pages, "_MOST_FETCHED", 100)
    dump = source("s3://bucket/lists.parquet").open(None, labelled=True)
    blocks = [block for group in dump.row_groups for block in dump.read(group, labelled=True)]
    np.testing.assert_array_equal(np.concatenate([block.scores for block in blocks]), logits)
    np.testing.assert_array_equal(np.concatenate([block.labels for block in blocks]), labels)
    assert opened == ([2000, 2000] if kind == "pages" else [])  # the last row group is small
