"""Reading ahead from object storage: the same blocks and errors in the same order, and no more waiting than allowed."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import make_model, source, write_dump

import drrej
from benchmarks.object_store import serve, settings
from drrej.data import pages
from drrej.engines import ahead
from drrej.engines.ahead import begun
from drrej.errors import DumpError


def streams(count: int, items: int, log: list[int]) -> Iterator[ahead.Stream[tuple[int, int]]]:
    def stream(number: int) -> Iterator[tuple[int, int]]:
        log.append(number)
        for item in range(items):
            yield number, item

    for number in range(count):
        yield lambda number=number: stream(number)


@pytest.mark.parametrize("items", [1, 3, 50])
def test_items_come_in_order(items: int) -> None:
    found = [item for stream in begun(streams(20, 7, []), 4, items) for item in stream()]
    assert found == [(number, item) for number in range(20) for item in range(7)]


def test_no_more_are_begun_than_allowed() -> None:
    log: list[int] = []
    for taken, stream in enumerate(begun(streams(30, 3, log), 5, 2), start=1):
        time.sleep(0.002)  # whoever is ahead could run away
        assert len(log) <= taken + 5
        assert len(list(stream())) == 3
    assert sorted(log) == list(range(30))


def test_an_error_comes_after_the_items_before_it() -> None:
    def broken() -> Iterator[int]:
        yield 1
        yield 2
        raise DumpError("here")

    ahead_of_it = begun(iter([lambda: iter([0]), broken, lambda: iter([3])]), 3, 10)
    items = itertools.chain.from_iterable(stream() for stream in ahead_of_it)
    assert list(itertools.islice(items, 3)) == [0, 1, 2]
    with pytest.raises(DumpError, match="here"):
        next(items)


def test_who_stops_early_begins_no_more() -> None:
    log: list[int] = []
    found = begun(streams(100, 3, log), 2, 2)
    next(found)
    found.close()  # type: ignore[attr-defined]
    time.sleep(0.05)
    assert len(log) <= 3


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
    at_once: list[int] = []
    begin = ahead._begin

    def noticed(*args: object) -> Iterator[object]:
        at_once.append(threading.active_count())
        return begin(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(ahead, "_begin", noticed)

    def made(path: str, jobs: int) -> list[str]:
        dump = source(path, jobs=jobs)
        rejector = drrej.threshold(dump, drrej.fit(dump, drrej.calibrate(dump)), drrej.Rule("coverage", 0.8))
        return [rejector.to_json(), drrej.evaluate(dump, rejector).to_json()]

    local = made(str(folder / "d.parquet"), 2)
    assert not at_once  # nothing to wait for
    for jobs in (1, 2):
        assert made("s3://bucket/d.parquet", jobs) == local
    assert len(at_once) >= 2 * 12


def test_large_row_groups_are_read_ahead_one_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "AHEAD_BYTES", 1)
    dump = source("s3://bucket/d.parquet")
    assert drrej.calibrate(dump).to_json() == drrej.calibrate(source(folder / "d.parquet")).to_json()


@pytest.mark.parametrize("kind", ["pages", "wrong footer", "network"])
def test_pages_of_objects(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Scores come from pages, and from Arrow where those cannot be had, with the same bits."""
    opened: list[int] = []
    chunk = pages.open_chunk

    def noticed(*args: Any) -> Any:
        opened.append(args[1].rows)
        return chunk(*args)

    monkeypatch.setattr(pages, "open_chunk", noticed)
    logits, labels = make_model(5000, 6, seed=4)
    table = pa.table({"logits": pa.array(logits.tolist(), pa.list_(pa.float32())), "label": np.asarray(labels)})
    pq.write_table(table, folder / "lists.parquet", row_group_size=2000)
    if kind == "wrong footer":
        wrong = classmethod(lambda *_: SimpleNamespace(start=4, end=1 << 60))
        monkeypatch.setattr(pages.Layout, "of", wrong)
    if kind == "network":
        monkeypatch.setattr(pages, "_fetch", _lost)
    dump = source("s3://bucket/lists.parquet").open(None, labelled=True)
    blocks = [block for group in dump.row_groups for block in dump.read(group, labelled=True)]
    np.testing.assert_array_equal(np.concatenate([block.scores for block in blocks]), logits)
    np.testing.assert_array_equal(np.concatenate([block.labels for block in blocks]), labels)
    assert opened == ([2000, 2000, 1000] if kind == "pages" else [])


def _lost(*_: object) -> None:
    raise OSError("connection lost")
