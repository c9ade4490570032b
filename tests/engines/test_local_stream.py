"""Blocks through threads: in order, whole, and with the error of the earliest block."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from conftest import make_model, source, write_dump

from drrej.data import dump as dump_module
from drrej.data.dump import Block
from drrej.engines.local import LocalEngine
from drrej.engines.protocol import Pass, map_blocks
from drrej.errors import DumpError

PASS = Pass("testing", labelled=True)


@pytest.fixture(params=[1000, 37, 5], ids=lambda rows: f"row groups of {rows}")
def dump(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dump_module.Dump:
    logits, _ = make_model(1000, 4, seed=0)
    path = write_dump(tmp_path / "d.parquet", logits, np.arange(1000) % 4, row_group=request.param)
    monkeypatch.setattr(dump_module, "BLOCK_BYTES", 16 * 16)  # 16 rows
    return source(path).open(None, labelled=True)


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_results_come_in_order(dump: dump_module.Dump, jobs: int) -> None:
    starts = list(map_blocks(dump, lambda block: (block.first_row, block.rows), PASS, LocalEngine(jobs)))
    assert [start for start, _ in starts] == np.cumsum([0] + [rows for _, rows in starts])[:-1].tolist()
    assert sum(rows for _, rows in starts) == 1000
    assert max(rows for _, rows in starts) <= 16


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_an_exception_is_raised_in_its_place(dump: dump_module.Dump, jobs: int) -> None:
    def work(block: Block) -> int:
        if block.first_row >= 300:
            raise ZeroDivisionError(block.first_row)
        return block.rows

    threads = threading.active_count()
    done: list[int] = []
    with pytest.raises(ZeroDivisionError) as caught:
        done.extend(map_blocks(dump, work, PASS, LocalEngine(jobs)))
    assert caught.value.args == (sum(done),)
    assert threading.active_count() == threads


def test_a_consumer_that_stops_early_leaves_no_threads(dump: dump_module.Dump) -> None:
    threads = threading.active_count()
    results = map_blocks(dump, lambda block: block.rows, PASS, LocalEngine(3))
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert threading.active_count() == threads


@pytest.mark.parametrize("jobs", [1, 4])
def test_bad_rows_are_counted_over_the_whole_dump(tmp_path: Path, jobs: int) -> None:
    logits, labels = make_model(500, 3, seed=1)
    labels[[17, 18, 400]] = 7
    path = write_dump(tmp_path / "d.parquet", logits, labels, row_group=50)
    dump = source(path).open(None, labelled=True)
    with pytest.raises(
        DumpError,
        match=r"column 'label': 3 rows have a label outside 0 to 2; the first is row 17, .* \(7\)",
    ):
        list(map_blocks(dump, lambda block: block.rows, PASS, LocalEngine(jobs)))


def test_progress_is_told_every_row(dump: dump_module.Dump) -> None:
    class Counter:
        def __init__(self) -> None:
            self.log: list[tuple[str, int]] = []

        def start(self, what: str, rows: int) -> None:
            self.log.append((what, rows))

        def advance(self, rows: int) -> None:
            self.log.append(("rows", rows))

        def stop(self) -> None:
            self.log.append(("stop", 0))

    counter = Counter()
    list(map_blocks(dump, lambda block: block.rows, PASS, LocalEngine(2, counter)))
    assert counter.log[0] == ("testing", 1000)
    assert counter.log[-1] == ("stop", 0)
    assert sum(rows for what, rows in counter.log if what == "rows") == 1000
