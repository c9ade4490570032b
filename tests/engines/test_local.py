"""Engines: what they keep between passes, and what they add up."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import LAYOUTS, make_model, source, write_dump
from hypothesis import given
from hypothesis import strategies as st

from drrej.core.inputs import ScoreLook
from drrej.data.dump import Block, Dump, Notes
from drrej.data.files import DumpFile
from drrej.engines import local
from drrej.engines.local import LocalEngine, held_bytes
from drrej.engines.protocol import Engine, Pass, map_blocks

PASS = Pass("testing", labelled=True)


def total(block: Block) -> tuple[int, float, int]:
    assert block.labels is not None
    return block.rows, float(block.scores.astype(np.float64).sum()), int(block.labels.sum())


def dump_of(
    folder: Path, layout: str = "list", dtype: Any = np.float32, row_group: int = 500, classes: int = 40
) -> Dump:
    logits, labels = make_model(5000, classes, seed=1, dtype=dtype)
    path = write_dump(folder / f"{layout}.parquet", logits, labels, layout, row_group=row_group)
    return source(path).open(None, labelled=True)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Row groups that were read."""
    found: list[int] = []
    read = Dump.read

    def noticed(self: Dump, group: Any, *args: Any) -> Iterator[Block]:
        found.append(group.row_group)
        return read(self, group, *args)

    monkeypatch.setattr(Dump, "read", noticed)
    return found


@pytest.mark.parametrize("jobs", [1, 3])
def test_rows_are_read_once_as_far_as_they_fit(
    tmp_path: Path, reads: list[int], jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten row groups of 500 x 400 float32: 800 kB each, 804.5 kB with labels and marks."""
    monkeypatch.setattr(local, "TASK_BYTES", 1)  # a row group each
    dump = dump_of(tmp_path, classes=400)
    for memory, again in ((1 << 30, 0), (4_200_000, 5), (804_000, 10), (0, 10)):
        engine = LocalEngine(jobs).keeping(memory)
        first = list(map_blocks(dump, total, PASS, engine))
        assert sorted(set(reads)) == list(range(10))
        reads.clear()
        assert list(map_blocks(dump, total, PASS, engine)) == first
        assert len(set(reads)) == again, memory
        reads.clear()
    plain = list(map_blocks(dump, total, PASS, LocalEngine(jobs)))
    assert [sum(column) for column in zip(*plain, strict=True)] == pytest.approx(
        [sum(column) for column in zip(*first, strict=True)]
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_budget_counts_real_bytes(tmp_path: Path, layout: str, dtype: Any) -> None:
    """What is said to be held is what Arrow and numpy have allocated for it."""
    dump = dump_of(tmp_path, layout, dtype, row_group=1000)

    def fill() -> Engine:
        engine = LocalEngine(1).keeping(1 << 30)
        list(map_blocks(dump, total, PASS, engine))
        gc.collect()
        return engine

    gc.freeze()  # else each collection goes through all that the other tests have left
    fill()  # what is allocated once
    tracemalloc.start()
    try:
        before = pa.total_allocated_bytes() + tracemalloc.get_traced_memory()[0]
        engine = fill()
        held = pa.total_allocated_bytes() + tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    assert held_bytes(dump, dump.row_groups) >= 5000 * 40 * np.dtype(dtype).itemsize
    assert 0.9 * held <= held_bytes(dump, dump.row_groups) <= 1.1 * held
    assert engine


@pytest.mark.parametrize("buffer", [False, True])
def test_only_parts_of_something_larger_are_copied(buffer: bool) -> None:
    rows = np.arange(80, dtype=np.float32)
    scores = (np.frombuffer(pa.py_buffer(rows), np.float32) if buffer else rows).reshape(8, 10)
    no_columns = pa.RecordBatch.from_pylist([{}] * 8)

    def kept(part: np.ndarray) -> np.ndarray:
        block = Block(
            DumpFile("d.parquet", "d.parquet", "d.parquet"), 0, part, None, no_columns, "z", np.zeros(8, bool)
        )
        return local.to_keep((), block).scores

    body = pa.py_buffer(np.arange(100, dtype=np.float32))  # of a batch with other columns
    column = np.frombuffer(body.slice(0, rows.nbytes), np.float32).reshape(8, 10)
    assert not np.shares_memory(kept(column), column)
    for whole in (scores, scores.T):
        assert np.shares_memory(kept(whole), rows)
    for part in (scores[:4], scores[:, :9], scores.T[:3]):
        assert not np.shares_memory(kept(part), rows)
        assert (kept(part) == part).all()


def test_who_marks_a_row_marks_it_in_this_pass_only(tmp_path: Path) -> None:
    dump = dump_of(tmp_path)

    def marking(block: Block) -> int:
        marked = int(block.bad.sum()) + len(block.problems)
        block.report(np.array([0]), "nothing", "nothing to do")
        return marked

    run = Pass("testing", labelled=True, bad_rows_allowed=True)
    engine = LocalEngine(1).keeping(1 << 30)
    for _ in range(3):
        assert sum(map_blocks(dump, marking, run, engine)) == 0


numbers = [st.integers(0, 1 << 40)] * 5
counts = st.builds(Notes, *numbers[:4], st.builds(ScoreLook, *numbers))


@given(st.lists(counts, min_size=3, max_size=3))
def test_what_is_noticed_adds(three: list[Notes]) -> None:
    a, b, c = three
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Notes() == a == Notes() + a


@given(st.lists(counts, min_size=3, max_size=3))
def test_seeing_the_same_rows_again_changes_nothing(three: list[Notes]) -> None:
    """Passes over the same rows: in any order and any number."""

    def seen(*passes: Notes) -> Notes:
        notes = Notes()
        for each in passes:
            notes.see(each)
        return notes

    a, b, c = three
    assert seen(a, b, c) == seen(c, a, b, b, a)
    assert seen(a, a) == seen(a) == a
