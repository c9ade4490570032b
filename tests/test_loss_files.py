"""Losses beyond memory: the curve from files has the bits of the one in memory, and temporary files leave nothing."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import environment, make_model, source, write_dump
from hypothesis import given
from hypothesis import strategies as st

import drrej
from drrej.core import curves
from drrej.core.curves import Curve, LossStore
from drrej.errors import OutputError
from drrej.pipeline import collect as loss_files
from drrej.pipeline.collect import LossFiles, SortedFile, _Scratch, loss_sorter

LOSS = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 50))
ROWS = st.lists(st.lists(st.tuples(LOSS, st.booleans()), max_size=30), min_size=1, max_size=12)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches, runs and pieces so short that a few rows have many."""
    for module, name, value in (
        (curves, "STRETCH", 4),
        (loss_files, "STRETCH", 4),
        (curves, "_LONG", 6),
        (loss_files, "_RUN", 7),
        (loss_files, "_MERGED", 9),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.fixture
def in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses go to files however few there are."""
    monkeypatch.setattr(loss_files, "MOST_IN_MEMORY", 0)


def figures(curve: Curve) -> list[Any]:
    """All that can be asked of a curve."""
    points = curve.points()
    losses = np.array([-1.0, 0.0, 0.25, 0.5, 1.0, 60.0, *points.losses[:: 1 + points.losses.size // 200]])
    counts = [0, 1, curve.rows // 2, curve.rows]
    return [
        curve.rows,
        curve.total_errors,
        curve.range,
        [curve.below(float(loss)) for loss in losses],
        curve.below(None),
        [curve.reaching(rows) for rows in counts],
        [curve.following(curve.reaching(rows)[0]) for rows in counts],
        curve.ranks(losses, "left").tolist(),
        curve.ranks(losses, "right").tolist(),
        [curve.largest_at_risk(Fraction(limit, 20)) for limit in (0, 1, 5, 20)],
        (curve.aurc(), curve.e_aurc(), curve.standard_e_aurc(), curve.naurc(), curve.augrc()),
        (curve.failure_auroc(), curve.fpr_at_95_tpr()),
        [array.tolist() for array in (points.losses, points.accepted, points.errors)],
    ]


@pytest.mark.usefixtures("small")
@given(blocks=ROWS.filter(any))
def test_a_curve_from_files_has_the_bits_of_one_in_memory(blocks: list[list[tuple[float, bool]]]) -> None:
    rows = sum(map(len, blocks))
    stores: tuple[LossStore, LossFiles] = LossStore(rows), LossFiles(rows)
    for block in blocks:
        right, wrong = (np.array([loss for loss, is_wrong in block if is_wrong == kind]) for kind in (False, True))
        for store in stores:
            store.add(right, wrong)
    memory, files = (figures(store.ranked()) for store in stores)
    assert memory == files


def test_many_runs_and_a_tie_block_longer_than_what_is_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_files, "_RUN", 5000)
    monkeypatch.setattr(curves, "_LONG", 1 << 15)
    rng = np.random.default_rng(3)
    losses = np.where(rng.random(200_000) < 0.6, 0.0, rng.gamma(0.3, 1.0, 200_000))
    wrong = rng.random(losses.size) < np.minimum(0.9, 0.02 + losses)
    stores = LossStore(losses.size), LossFiles(losses.size)
    for start in range(0, losses.size, 7001):
        part, errors = losses[start : start + 7001], wrong[start : start + 7001]
        for store in stores:
            store.add(part[~errors], part[errors])
    memory, files = (store.ranked() for store in stores)
    assert figures(memory) == figures(files)
    assert isinstance(files.ordered, SortedFile)


def test_what_is_read_at_a_time_does_not_grow_with_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """No read of the default figures is longer than a stretch, or a piece of one with many ties."""
    monkeypatch.setattr(loss_files, "_RUN", 1 << 14)
    monkeypatch.setattr(loss_files, "_MERGED", 1 << 15)
    rng = np.random.default_rng(4)
    files = LossFiles(600_000)
    for _ in range(60):
        files.add(rng.gamma(0.4, 1.0, 9000), rng.gamma(1.0, 1.0, 1000))
    lengths: list[int] = []
    read = _Scratch.read

    def noticed(self: _Scratch, start: int, stop: int) -> Any:
        lengths.append(stop - start)
        return read(self, start, stop)

    monkeypatch.setattr(_Scratch, "read", noticed)
    curve = files.ranked()
    curve.aurc(), curve.largest_at_risk(Fraction(1, 100)), curve.fpr_at_95_tpr(), curve.reaching(300_000)
    assert sum(lengths) > 600_000
    assert max(lengths) <= 1 << 15


@pytest.mark.usefixtures("in_files")
def test_threshold_and_evaluate_make_the_same_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_dump(tmp_path / "d.parquet", *make_model(20_000, 6, seed=5), row_group=7000)
    dump = source(path)
    calibrated = drrej.calibrate(dump)
    rejector = drrej.fit(dump, calibrated)
    ratios = [
        drrej.RatioOptions(),
        drrej.RatioOptions(alpha=3.0, lam=0.3),
        drrej.RatioOptions(alpha=0.0, loss="margin"),
    ]
    rules = [drrej.Rule("coverage", 0.8), drrej.Rule("risk", 0.1), drrej.Rule("tau", 0.3)]

    def made() -> Iterator[str]:
        for options in ratios:
            yield drrej.fit(source(path), calibrated, options).to_json()
        for rule in rules:
            chosen = drrej.threshold(source(path), rejector, rule)
            yield chosen.to_json()
            yield drrej.evaluate(source(path), chosen).to_json()
            yield drrej.evaluate(source(path), chosen, options=drrej.EvaluateOptions(intervals=True)).to_json()

    used: list[int] = []
    create = LossFiles.__init__
    monkeypatch.setattr(LossFiles, "__init__", lambda self, rows: (used.append(rows), create(self, rows))[1])
    found = list(made())
    assert len(used) == len(found)
    monkeypatch.setattr(loss_files, "MOST_IN_MEMORY", 1 << 26)
    assert found == list(made())
    assert len(used) == len(found)


def test_few_rows_stay_in_memory() -> None:
    assert isinstance(loss_sorter(10_000), LossStore)


_Usage = namedtuple("_Usage", "total used free")


def test_too_little_room_is_said_before_any_row_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_files.shutil, "disk_usage", lambda _: _Usage(100, 99, 1))
    with pytest.raises(OutputError, match=r"the losses of 5000000000 rows cannot be sorted in .*; set TMPDIR to"):
        LossFiles(5_000_000_000)


def _full(*_: Any) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("moment", ["while losses come", "while runs are merged"])
def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    monkeypatch.setattr(loss_files, "_RUN", 10)
    files = LossFiles(100)
    add: Callable[[], None] = lambda: files.add(np.arange(25.0), np.arange(3.0))  # noqa: E731
    if moment == "while runs are merged":
        add()
    monkeypatch.setattr(loss_files.os, "write", _full)
    with pytest.raises(OutputError, match=r"\(No space left on device\); set TMPDIR"):
        files.ranked() if moment == "while runs are merged" else add()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_process_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    text = (
        "import numpy as np, time; from drrej.pipeline import loss_files as f; f._RUN = 100;"
        "s = f.LossFiles(1000); s.add(np.arange(900.0), np.arange(300.0)); s.ranked(); print('x', flush=True);"
        "time.sleep(60)"
    )
    env = environment() | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        held = [os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{process.pid}/fd")]
        assert any(str(tmp_path) in name for name in held)  # they are there, without a name
        process.send_signal(number)
        process.wait()
    assert list(tmp_path.iterdir()) == []
