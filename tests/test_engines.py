"""Engines: what they keep, what they add up, and that a new one is one class."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import pickle
import tracemalloc
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import LAYOUTS, make_model, make_rejector, source, write_dump
from hypothesis import given
from hypothesis import strategies as st

import drrej
from drrej.data.dump import Block, Dump
from drrej.data.problems import Notes
from drrej.engines.cache import BlockCache, held_bytes
from drrej.engines.protocol import BlockResult, Engine, Pass, Silent, map_blocks
from drrej.engines.tasks import cut
from drrej.engines.worker import Answer, Context, Host, Keep, Token, run_task, versions
from drrej.outputs.dataset import LocalDataset

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
def test_rows_are_read_once_as_far_as_they_fit(tmp_path: Path, reads: list[int], jobs: int) -> None:
    """Ten row groups of 500 x 400 float32: 800 kB each, 830 kB with labels, marks and what Arrow has beside them."""
    dump = dump_of(tmp_path, classes=400)
    for memory, again in ((1 << 30, 0), (4_200_000, 5), (804_000, 10), (0, 10)):
        with drrej.ThreadEngine(jobs).keeping(memory) as engine:
            first = list(map_blocks(dump, total, PASS, engine))
            assert sorted(reads) == list(range(10))
            reads.clear()
            assert list(map_blocks(dump, total, PASS, engine)) == first
            assert len(reads) == again, memory
            assert engine.cache.nbytes <= memory  # type: ignore[attr-defined]
            reads.clear()
    plain = list(map_blocks(dump, total, PASS, drrej.ThreadEngine(jobs)))
    assert [sum(column) for column in zip(*plain, strict=True)] == pytest.approx(
        [sum(column) for column in zip(*first, strict=True)]
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_budget_counts_real_bytes(tmp_path: Path, layout: str, dtype: Any) -> None:
    """What the cache says it holds is what Arrow and numpy have allocated for it."""
    dump = dump_of(tmp_path, layout, dtype, row_group=1000)
    cache = BlockCache()

    def fill() -> None:
        for group in dump.row_groups:
            list(cache.blocks(group, lambda group=group: dump.read(group, True), (), 1 << 30))  # type: ignore[misc]

    fill()  # what is allocated once
    cache.drop(lambda _: True)
    gc.collect()
    tracemalloc.start()
    try:
        before = pa.total_allocated_bytes() + tracemalloc.get_traced_memory()[0]
        fill()
        gc.collect()
        held = pa.total_allocated_bytes() + tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert cache.nbytes >= 5000 * 40 * np.dtype(dtype).itemsize
    assert 0.9 * held <= cache.nbytes <= 1.1 * held
    cache.drop(lambda _: True)
    assert cache.nbytes == 0


def test_who_marks_a_row_marks_it_in_this_pass_only(tmp_path: Path) -> None:
    dump = dump_of(tmp_path)

    def marking(block: Block) -> int:
        marked = int(block.bad.sum()) + len(block.problems)
        block.report(np.array([0]), "nothing", "nothing to do")
        return marked

    run = Pass("testing", labelled=True, bad_rows_allowed=True)
    with drrej.ThreadEngine(1).keeping(1 << 30) as engine:
        for _ in range(3):
            assert sum(map_blocks(dump, marking, run, engine)) == 0


def test_small_row_groups_are_taken_together(tmp_path: Path, reads: list[int]) -> None:
    dump = dump_of(tmp_path, row_group=7)
    with drrej.ThreadEngine(2).keeping(1 << 30) as engine:
        first = list(map_blocks(dump, total, PASS, engine))
        assert len(reads) == len(dump.row_groups) == 715
        assert len(first) == 2  # of at most 2^17 logits
        rows = list(map_blocks(dump, lambda block: block.row_numbers(), PASS, engine))
        assert np.concatenate(rows).tolist() == list(range(5000))
        assert len(reads) == 715


def test_a_pass_that_breaks_off_holds_no_memory(tmp_path: Path) -> None:
    dump = dump_of(tmp_path)
    cache = BlockCache()
    blocks = cache.blocks("key", lambda: dump.read(dump.row_groups[0], True), (), 1 << 30)
    assert held_bytes(next(blocks)) > 0
    assert cache.nbytes > 0
    blocks.close()  # type: ignore[attr-defined]
    assert cache.nbytes == 0


counts = st.builds(Notes, *(st.integers(0, 1 << 40) for _ in range(6)))


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


# A second engine with workers elsewhere: one class of which everything else knows nothing


def call(packed: bytes) -> Any:
    """In another process."""
    return pickle.loads(packed)()


@dataclass(frozen=True)
class ProcessEngine:
    """Passes in the processes of a pool."""

    pool: ProcessPoolExecutor
    progress: Silent = field(default_factory=Silent)
    keep: tuple[int | None] | None = None
    workers: int = 1

    def _answers(
        self, function: Callable[..., Answer], context: Context, tasks: list[Any]
    ) -> Generator[BlockResult[Any]]:
        cloudpickle = pytest.importorskip("cloudpickle")
        host = Host("process", 1 << 30)
        packed = [cloudpickle.dumps(lambda task=task: function(context, task, host)) for task in tasks]
        for answer in self.pool.map(call, packed):
            yield from answer.results
            if answer.error is not None:
                raise answer.error

    def map(self, dump: Dump, run: Pass, work: Any) -> Generator[BlockResult[Any]]:
        keep = None if self.keep is None else Keep(Token("session", dump.opened, repr(run)), self.keep[0])
        context = Context(replace(dump, row_groups=()), run, work, versions(), keep)
        yield from self._answers(run_task, context, cut(dump, 2, 1 << 20))

    @contextmanager
    def keeping(self, memory: int | None) -> Iterator[ProcessEngine]:
        yield replace(self, keep=(memory,))


def test_a_second_engine_costs_one_class(tmp_path: Path) -> None:
    pytest.importorskip("cloudpickle", reason="the extra 'cluster' is not installed: pip install 'drrej[cluster]'")
    (tmp_path / "in").mkdir()
    for number in range(3):
        logits, labels = make_model(12_000, 60, seed=number)
        write_dump(tmp_path / "in" / f"{number}.parquet", logits, labels, row_group=4000)

    def made(engine: Engine, folder: Path) -> list[Any]:
        dump = [str(tmp_path / "in")]
        rejector = make_rejector(drrej.Source(dump, engine=engine))
        report = drrej.evaluate(drrej.Source(dump, engine=engine), rejector)
        with LocalDataset(str(folder)) as masks:
            counts = drrej.reject(drrej.Source(dump, engine=engine), rejector, masks)
            masks.commit()
        return [rejector.to_json(), report, counts, {f.name: f.read_bytes() for f in sorted(folder.iterdir())}]

    expected = made(drrej.ThreadEngine(2), tmp_path / "threads")
    assert len(expected[-1]) == 3
    with contextlib.ExitStack() as stack:
        spawn = multiprocessing.get_context("spawn")
        pool = stack.enter_context(ProcessPoolExecutor(2, mp_context=spawn))
        assert made(ProcessEngine(pool), tmp_path / "processes") == expected
