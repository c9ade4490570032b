"""Kills, interrupts and full disks: nothing partial under the final name, and a rerun works and tidies up."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import fail_calls
import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import make_model, make_rejector, source, write_dump
from kill_campaign import run_campaign, table

from drrej.outputs.dataset import MANIFEST

KILLS = int(os.environ.get("KILLS", "4"))
"""How often a run is killed; KILLS=50 for a long run."""

ROWS = 200_000


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dump that takes a moment to score, its rejector, and a dataset of two parts."""
    folder = tmp_path_factory.mktemp("faults")
    logits, labels = make_model(ROWS // 100, 20, seed=5)
    dump = write_dump(folder / "small.parquet", logits, labels)
    rejector = make_rejector(source(dump), ("coverage", 0.8))
    (folder / "rejector.json").write_text(rejector.to_json())
    table = pq.read_table(dump)
    (folder / "parts").mkdir()
    for name in ("big.parquet", "parts/a.parquet", "parts/b.parquet"):
        with pq.ParquetWriter(folder / name, table.schema) as writer:
            for _ in range(100):
                writer.write_table(table)
    return folder


def command(job: Path, dump: str, output: str) -> list[str]:
    arguments = ["reject", str(job / dump), "-r", str(job / "rejector.json"), "-o", output, "--jobs", "2"]
    return [sys.executable, "-m", "drrej", *arguments]


def how_long(job: Path, dump: str, output: str) -> float:
    start = time.monotonic()
    subprocess.run(command(job, dump, output), check=True)
    return time.monotonic() - start


def hidden(folder: Path) -> list[str]:
    """What runs have left; the records of masks stay on purpose."""
    found = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    return [name for name in found if not name.endswith(MANIFEST)]


@pytest.mark.parametrize(
    ("dump", "name", "rows"), [("big.parquet", "mask.parquet", ROWS), ("parts", "masks/", 2 * ROWS)]
)
def test_a_killed_run_leaves_nothing_partial(job: Path, tmp_path: Path, dump: str, name: str, rows: int) -> None:
    """SIGKILL at random moments: the target is absent or complete; the next run clears what was left and succeeds."""
    target = tmp_path / name
    longest = how_long(job, dump, f"{tmp_path}/first-{name}")
    moments = random.Random(7)
    left_behind = 0
    for number in range(KILLS):
        child = subprocess.Popen(command(job, dump, f"{tmp_path}/{name}"))
        if number:
            time.sleep(moments.uniform(0.1, 1.0) * longest)
        while not number and not hidden(tmp_path) and child.poll() is None:  # once, surely while it writes
            time.sleep(0.005)
        child.kill()
        child.wait()
        left_behind += len(hidden(tmp_path))
        if target.exists():
            assert pq.read_table(target).num_rows == rows
            subprocess.run(["rm", "-r", str(target)], check=True)
    subprocess.run(command(job, dump, f"{tmp_path}/{name}"), check=True)
    assert pq.read_table(target).num_rows == rows
    assert hidden(tmp_path) == []
    assert left_behind > 0, "no run was killed while it was writing: the test did not test anything"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_cleans_up(job: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    child = subprocess.Popen(command(job, "big.parquet", str(tmp_path / "mask.parquet")), stderr=subprocess.PIPE)
    while not hidden(tmp_path):  # it has started to write
        assert child.poll() is None
        time.sleep(0.01)
    child.send_signal(number)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == code
    assert errors == b""
    assert list(tmp_path.iterdir()) == []


def test_a_signal_right_after_the_hidden_file_was_made(tmp_path: Path) -> None:
    code = """if True:
        import fcntl, sys
        from drrej.outputs.atomic import HiddenFile
        fcntl.flock = lambda *_: sys.exit(143)  # as the handler of a signal would
        HiddenFile(sys.argv[1] + "/mask.parquet")
    """
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (143, b"")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("dump", "name"), [("big.parquet", "mask.parquet"), ("parts", "masks/")])
def test_a_full_disk_is_one_line_and_no_file(job: Path, tmp_path: Path, dump: str, name: str) -> None:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that writing fails with an error, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    done = subprocess.run(
        command(job, dump, f"{tmp_path}/{name}"), capture_output=True, text=True, preexec_fn=limit, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "cannot be written" in done.stderr
    assert name.rstrip("/") in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_running_neighbour_is_left_alone(job: Path, tmp_path: Path) -> None:
    """Two runs with the same target at once: neither removes the other's unfinished file, one mask results."""
    commands = [[*command(job, "big.parquet", str(tmp_path / "mask.parquet")), "-f"] for _ in range(2)]
    children = [subprocess.Popen(words) for words in commands]
    assert [child.wait() for child in children] == [0, 0]
    rejected = pq.read_table(tmp_path / "mask.parquet").column("rejected").to_numpy()
    assert rejected.size == ROWS
    assert 0 < np.count_nonzero(rejected) < ROWS
    assert hidden(tmp_path) == []


def test_with_force_every_target_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    """A small part of the campaign: a file, and a directory in two steps; see there for the whole."""
    names = ["reject FILE", "reject DIR/, two steps"]
    rows = run_campaign(max(KILLS, len(names)), 3, tmp_path, names, rows=10_000)
    assert not any(row.broken for row in rows), table(rows)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_call_that_fails_leaves_nothing_partial(tmp_path: Path) -> None:
    """A small part of the campaign: a few opens, writes and messages of each command fail."""
    assert fail_calls.campaign(tmp_path, 1, ("open", "write", "stderr"))
