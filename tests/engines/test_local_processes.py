"""Worker processes of the command line: the bits and the errors of threads, and nothing left behind."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import environment, make_model, make_rejector, more_trials, thorough, write_dump
from msgspec.structs import replace

import drrej
from drrej.data.dump import Block, Dump
from drrej.engines import local
from drrej.engines.local import LocalEngine
from drrej.engines.protocol import Engine, Pass, map_blocks
from drrej.errors import ClusterError, DumpError
from drrej.outputs.dataset import LocalDataset
from drrej.outputs.destinations import OutputFile

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux alone")

PASS = Pass("testing", labelled=True)


@pytest.fixture(autouse=True)
def no_children_left() -> Iterator[None]:
    before = own_children()  # other tests may have some that stay
    yield
    deadline = time.monotonic() + 60
    while not own_children() <= before and time.monotonic() < deadline:
        multiprocessing.active_children()  # collects those that have ended
        time.sleep(0.01)
    assert own_children() <= before


def own_children() -> set[int]:
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that has just ended
            found |= {int(word) for word in path.read_text().split()}
    return found


@pytest.fixture(autouse=True)
def every_dump_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "TASK_BYTES", 40_000)
    monkeypatch.setattr(local, "PROCESS_BYTES", 40_000)
    monkeypatch.setattr(local, "PROCESS_CLASSES", 2)


def forked(jobs: int = 2) -> LocalEngine:
    return LocalEngine(jobs, processes=True)


def source(path: Any, engine: Engine, **options: Any) -> drrej.Source:
    return drrej.Source([str(path)], drrej.DumpOptions(**options), engine)


def made(path: Path, engine: Engine, folder: Path, **options: Any) -> list[Any]:
    """All that the steps make of a dump."""
    dump = partial(source, path, engine, **options)
    rejector = make_rejector(dump())
    report = drrej.evaluate(dump(), rejector).to_json()
    target = folder / "mask.parquet"
    with OutputFile(str(target), force=True) as file:
        counts = drrej.reject(dump(), rejector, file)
        file.commit()
    with LocalDataset(str(folder / "masks"), True) as masks:
        drrej.reject(dump(), rejector, masks)
        masks.commit()
    parts = {name: (folder / "masks" / name).read_bytes() for name in sorted(os.listdir(folder / "masks"))}
    timeless = [replace(file, seconds=0.0) for file in counts.masks]
    return [rejector.to_json(), report, timeless, target.read_bytes(), parts]


@pytest.mark.parametrize(
    ("layout", "jobs"),
    [more_trials("fixed", 2), thorough("wide", 2), ("list", 3), more_trials("large", 2)],
)
def test_the_bits_are_those_of_one_thread(tmp_path: Path, layout: str, jobs: int) -> None:
    logits, labels = make_model(1500, 40, seed=3)
    path = Path(write_dump(tmp_path / "dump.parquet", logits, labels, layout, row_group=200))
    assert made(path, forked(jobs), tmp_path) == made(path, LocalEngine(1), tmp_path)


def test_one_row_group_and_many_files(tmp_path: Path) -> None:
    logits, labels = make_model(70_000, 3, seed=4)  # more than a block
    one = Path(write_dump(tmp_path / "one.parquet", logits, labels, "list"))
    rejectors = [make_rejector(source(one, engine)).to_json() for engine in (forked(), LocalEngine(1))]
    assert rejectors[0] == rejectors[1]
    (tmp_path / "many").mkdir()
    for number in range(7):
        rows = slice(number * 600, number * 600 + 600 - number)
        write_dump(tmp_path / "many" / f"{number}.parquet", logits[rows], labels[rows], row_group=250)
    many = tmp_path / "many"
    assert made(many, forked(), tmp_path) == made(many, LocalEngine(1), tmp_path)


def test_what_is_left_out_and_what_is_wrong_is_the_same(tmp_path: Path) -> None:
    logits, labels = make_model(4000, 5, seed=5)
    logits[[7, 1500, 3999], 2] = np.nan
    path = Path(write_dump(tmp_path / "dump.parquet", logits, labels, row_group=500))
    skipping = [made(path, engine, tmp_path, on_bad_row="skip") for engine in (forked(), LocalEngine(1))]
    assert skipping[0] == skipping[1]
    messages = []
    for engine in (forked(), LocalEngine(1)):
        with pytest.raises(DumpError) as caught:
            drrej.calibrate(source(path, engine))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "row 7" in messages[0]


def test_a_damaged_file_is_the_same_error_after_the_same_rows(tmp_path: Path) -> None:
    logits, labels = make_model(4000, 50, seed=6)
    path = Path(write_dump(tmp_path / "dump.parquet", logits, labels, row_group=500))
    good = source(path, forked()).open(None, labelled=True)
    data = bytearray(path.read_bytes())
    place = len(data) // 2
    data[place : place + 20_000] = bytes(20_000)
    status = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    seen: list[tuple[list[int], str]] = []
    for engine in (forked(), LocalEngine(1)):
        rows: list[int] = []
        with pytest.raises(DumpError) as caught:
            rows.extend(map_blocks(good, rows_of, PASS, engine))
        seen.append((rows, str(caught.value)))
    assert seen[0] == seen[1]
    assert sum(seen[0][0]) >= 1000


def rows_of(block: Block) -> int:
    return block.rows


def opened(folder: Path, rows: int = 3000) -> Dump:
    logits, labels = make_model(rows, 10, seed=7)
    path = write_dump(folder / "dump.parquet", logits, labels, row_group=100)
    return source(path, forked()).open(None, labelled=True)


def test_results_come_in_order_whoever_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "TASK_BYTES", 1)  # a row group each
    dump = opened(tmp_path)

    def first(block: Block) -> tuple[int, int]:
        time.sleep(0.02 if block.first_row % 300 == 0 else 0)
        return block.first_row, os.getpid()

    found = list(map_blocks(dump, first, PASS, forked(3)))
    assert [row for row, _ in found] == list(range(0, 3000, 100))
    pids = {pid for _, pid in found}
    assert len(pids) == 3
    assert os.getpid() not in pids


def test_a_killed_worker_is_an_error_and_the_next_pass_has_others(tmp_path: Path) -> None:
    dump, engine = opened(tmp_path), forked()

    def fatal(block: Block) -> int:
        if block.first_row == 1200:
            os.kill(os.getpid(), signal.SIGKILL)
        return block.rows

    with pytest.raises(ClusterError, match=r"a worker process was killed; if memory ran out, `jobs=1`"):
        list(map_blocks(dump, fatal, PASS, engine))
    assert sum(map_blocks(dump, rows_of, PASS, engine)) == 3000


def test_what_a_worker_cannot_send_is_told(tmp_path: Path) -> None:
    class OddError(Exception):
        def __reduce__(self) -> Any:
            raise TypeError("no")

    def odd(_block: Block) -> int:
        raise OddError("odd")

    with pytest.raises(TypeError, match="no"):
        list(map_blocks(opened(tmp_path), odd, PASS, forked()))

    def wrong(_block: Block) -> float:
        return 1 / 0

    with pytest.raises(ZeroDivisionError) as caught:
        list(map_blocks(opened(tmp_path), wrong, PASS, forked()))
    assert "in wrong" in str(caught.value.__cause__)  # for DRREJ_DEBUG


def test_who_stops_early_leaves_nobody_behind(tmp_path: Path) -> None:
    results = map_blocks(opened(tmp_path), rows_of, PASS, forked())
    assert next(results) == 100  # type: ignore[call-overload]
    results.close()  # type: ignore[attr-defined]


def test_processes_are_for_large_dumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where results are written on the way and there are two cores, also of many classes."""
    dump, writing = opened(tmp_path), replace(PASS, written=True)

    def are_forked(engine: Engine, run: Pass = PASS) -> bool:
        return os.getpid() not in set(map_blocks(dump, lambda _block: os.getpid(), run, engine))

    monkeypatch.setattr(local, "PROCESS_BYTES", 3000 * 10 * 4)
    monkeypatch.setattr(local, "PROCESS_CLASSES", 10)
    assert are_forked(forked())
    assert are_forked(forked(), writing)
    assert not are_forked(LocalEngine(2))  # nobody said that this process is drrej's own
    assert not are_forked(forked(1))
    assert not are_forked(forked().keeping(None))
    monkeypatch.setattr(local, "PROCESS_CLASSES", 11)
    assert are_forked(forked())
    assert not are_forked(forked(), writing)
    assert are_forked(forked(3), writing)
    monkeypatch.setattr(local, "PROCESS_BYTES", 3000 * 10 * 4 + 1)
    assert not are_forked(forked(3))


def test_no_more_processes_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dump, left = opened(tmp_path), [1]
    fork = os.fork

    def scarce() -> int:
        if not left:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        left.pop()
        return fork()

    monkeypatch.setattr(os, "fork", scarce)
    with pytest.raises(ClusterError, match=r"no worker process can be started \(Resource temporarily unavailable\)"):
        list(map_blocks(dump, rows_of, PASS, forked()))


# The command line.


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Just large enough for processes."""
    folder = tmp_path_factory.mktemp("large")
    logits, labels = make_model(600_000, 44, seed=8)
    path = Path(write_dump(folder / "large.parquet", logits, labels, "list", row_group=60_000))
    subprocess.run([*DRREJ, "calibrate", path, "-o", folder / "r.json"], check=True, env=environment())
    subprocess.run(
        [*DRREJ, "fit", path, "-r", folder / "r.json", "-o", folder / "r.json"], check=True, env=environment()
    )
    threshold = ["threshold", path, "-r", folder / "r.json", "-o", folder / "r.json", "--coverage", "0.8"]
    subprocess.run([*DRREJ, *threshold], check=True, env=environment())
    return path


DRREJ = [sys.executable, "-m", "drrej"]


@pytest.mark.system
def test_the_command_line_has_processes(large: Path, tmp_path: Path) -> None:
    rejector = large.with_name("r.json")
    for jobs in ("1", "2"):
        command = [*DRREJ, "reject", large, "-r", rejector, "-o", tmp_path / f"{jobs}.parquet", "--jobs", jobs]
        child = subprocess.Popen(command, env=environment())
        most = 0
        while child.poll() is None:
            most = max(most, len(children(child.pid)))
            time.sleep(0.005)
        assert child.returncode == 0
        assert most == (2 if jobs == "2" else 0)
    assert (tmp_path / "1.parquet").read_bytes() == (tmp_path / "2.parquet").read_bytes()


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@pytest.mark.system
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_signals_end_all(large: Path, tmp_path: Path, number: int, code: int) -> None:
    command = [*DRREJ, "reject", large, "-r", large.with_name("r.json"), "-o", tmp_path / "m.parquet", "--jobs", "2"]
    child = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, start_new_session=True)
    while len(workers := children(child.pid)) < 2 and child.poll() is None:
        time.sleep(0.001)
    if number == signal.SIGINT:
        os.killpg(child.pid, number)  # as a terminal does
    else:
        child.send_signal(number)
    _, errors = child.communicate(timeout=60)
    if child.returncode == 0:
        pytest.skip("it was done before")
    assert child.returncode in (code, -number if number == signal.SIGTERM else code)
    assert errors == b""
    for pid in workers:
        while os.path.exists(f"/proc/{pid}") and "zombie" not in Path(f"/proc/{pid}/status").read_text():
            time.sleep(0.01)
    if number != signal.SIGKILL:
        assert os.listdir(tmp_path) == []


@pytest.mark.system
def test_a_killed_worker_of_the_command_line(large: Path, tmp_path: Path) -> None:
    command = [*DRREJ, "reject", large, "-r", large.with_name("r.json"), "-o", tmp_path / "m.parquet", "--jobs", "2"]
    child = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)
    while not (workers := children(child.pid)) and child.poll() is None:
        time.sleep(0.001)
    os.kill(workers[0], signal.SIGKILL)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 2
    assert errors == "drrej: error: a worker process was killed; if memory ran out, --jobs 1 needs least of it\n"
    assert os.listdir(tmp_path) == []


def test_a_copy_of_a_process_with_threads_is_no_deadlock(tmp_path: Path) -> None:
    """Arrow's threads have run by now; one of ours is under way."""
    dump, done = opened(tmp_path), threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert sum(map_blocks(dump, rows_of, PASS, forked())) == 3000
    finally:
        done.set()
        thread.join()
