"""A dump that changes while it is read: no result, and a line that says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import environment, make_model, make_rejector, source, write_dump

import drrej
from drrej.engines import Progress
from drrej.engines.local import LocalEngine
from drrej.errors import DumpError
from drrej.outputs.dataset import LocalDataset
from drrej.outputs.destinations import OutputFile


class Midway(Progress):
    """Does something once, when the first rows of a pass are done."""

    def __init__(self, change: Callable[[], None]) -> None:
        self.changes = [change]

    def advance(self, rows: int) -> None:  # noqa: ARG002 - as the protocol has it
        while self.changes:
            self.changes.pop()()


ROWS = 40_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two dumps of the same shape and size: sixteen row groups each, more than the engine reads ahead."""
    folder = tmp_path_factory.mktemp("made")
    for name, seed in (("d", 1), ("other", 2)):
        write_dump(folder / f"{name}.parquet", *make_model(ROWS, 6, seed=seed), row_group=ROWS // 16)
    return folder


@pytest.fixture
def dump(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made / "d.parquet", tmp_path))


@pytest.fixture
def other(made: Path, tmp_path: Path) -> Path:
    """A dump with other logits."""
    return Path(shutil.copy(made / "other.parquet", tmp_path))


@pytest.fixture(scope="module")
def rejector(made: Path) -> drrej.Rejector:
    return make_rejector(source(made / "d.parquet"))


def replaced(dump: Path, other: Path) -> None:
    os.replace(other, dump)


def replaced_with_its_time(dump: Path, other: Path) -> None:
    """As `cp -p` or rsync would: size and time may be the same, the inode is not."""
    with open(other, "r+b") as stream:
        stream.truncate(dump.stat().st_size)
    os.utime(other, ns=(dump.stat().st_atime_ns, dump.stat().st_mtime_ns))
    os.replace(other, dump)


def written_over(dump: Path, other: Path) -> None:
    dump.write_bytes(other.read_bytes())


def appended_to(dump: Path, other: Path) -> None:
    with open(dump, "ab") as stream:
        stream.write(b"more")


def cut_short(dump: Path, other: Path) -> None:
    os.truncate(dump, dump.stat().st_size // 2)


def removed(dump: Path, other: Path) -> None:
    dump.unlink()


CHANGES = [replaced, replaced_with_its_time, written_over, appended_to, cut_short, removed]
SAYS = "d.parquet: the file was changed, replaced or removed while it was being read"


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("target", ["mask.parquet", "masks/"])
def test_no_mask_is_half_of_one_file_and_half_of_another(
    dump: Path,
    other: Path,
    rejector: drrej.Rejector,
    tmp_path: Path,
    change: Callable[[Path, Path], None],
    jobs: int,
    target: str,
) -> None:
    engine = LocalEngine(jobs, Midway(lambda: change(dump, other)))
    place = tmp_path / target.rstrip("/")
    output = LocalDataset(str(place)) if target.endswith("/") else OutputFile(str(place))
    with output, pytest.raises(DumpError, match=SAYS):
        drrej.reject(drrej.Source([str(dump)], engine=engine), rejector, output)
    assert not place.exists()


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_single_row_group_is_looked_at_again_at_its_end(
    tmp_path: Path,
    other: Path,
    rejector: drrej.Rejector,
    change: Callable[[Path, Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file is opened once only; what was open may be all of the old one, but the name stands for another."""
    monkeypatch.setattr("drrej.data.dump.BLOCK_BYTES", 6 * 4 * 1000)
    dump = Path(write_dump(tmp_path / "d.parquet", *make_model(ROWS, 6, seed=1)))
    engine = LocalEngine(1, Midway(lambda: change(dump, other)))
    with pytest.raises(DumpError, match=SAYS):
        drrej.evaluate(drrej.Source([str(dump)], engine=engine), rejector)


def test_passes_of_one_command_see_one_file(dump: Path, other: Path) -> None:
    """Between the passes of `calibrate` that read again, and between its first pass and nothing more to read."""
    reading = Midway(lambda: None)
    passes: list[str] = []

    def start(what: str, rows: int) -> None:
        passes.append(what)
        if len(passes) == 2:
            shutil.move(other, dump)

    reading.start = start  # type: ignore[method-assign]
    options = drrej.CalibrateOptions(memory=0)
    with pytest.raises(DumpError, match=SAYS):
        drrej.calibrate(drrej.Source([str(dump)], engine=LocalEngine(1, reading)), options)
    assert passes == ["reading", "calibrating"]


def test_steps_of_one_command_see_one_dump(tmp_path: Path) -> None:
    """A report on one file beside a mask of another would be worse than none; so would a file more."""
    folder, other = tmp_path / "in", tmp_path / "other.parquet"
    folder.mkdir()
    for path, seed in ((folder / "d.parquet", 1), (other, 2)):
        write_dump(path, *make_model(2000, 6, seed=seed), row_group=500)
    rejector = make_rejector(source(folder))
    for change in (lambda: shutil.copy(other, folder / "e.parquet"), lambda: shutil.copy(other, folder / "d.parquet")):
        both = source(folder)
        drrej.evaluate(both, rejector)
        drrej.evaluate(both, rejector)
        change()
        with pytest.raises(DumpError, match=r"/[de]\.parquet: the file was changed, added or removed since"):
            drrej.evaluate(both, rejector)
        drrej.evaluate(source(folder), rejector)


def test_looking_at_a_file_does_not_change_it(dump: Path, rejector: drrej.Rejector, tmp_path: Path) -> None:
    """Permissions, other names and reading leave the content alone."""

    def touch() -> None:
        dump.chmod(0o600)
        os.link(dump, tmp_path / "another-name.parquet")
        dump.read_bytes()

    expected = drrej.evaluate(source(dump), rejector)
    engine = LocalEngine(1, Midway(touch))
    assert drrej.evaluate(drrej.Source([str(dump)], engine=engine), rejector) == expected


@pytest.mark.system
def test_the_command_line_exits_with_2(tmp_path: Path, rejector_file: str) -> None:
    """A dump is replaced again and again while it is scored: each run is whole or refused."""
    rows = 300_000
    versions = [
        Path(write_dump(tmp_path / f"{i}.parquet", *make_model(rows, 6, seed=i), row_group=5000)) for i in (1, 2)
    ]
    dump, mask = tmp_path / "d.parquet", tmp_path / "mask.parquet"
    shutil.copy(versions[0], dump)
    shutil.copy(versions[1], tmp_path / "next.parquet")  # at hand, so that it is in place before the dump is read
    command = [sys.executable, "-m", "drrej", "reject", str(dump), "-r", rejector_file, "-o", str(mask), "-q"]
    process = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE)
    stop = threading.Event()

    def replace() -> None:
        while not any(path.name.startswith(".mask") for path in tmp_path.iterdir()) and process.poll() is None:
            time.sleep(0.005)
        while not stop.is_set():
            os.replace(tmp_path / "next.parquet", dump)
            shutil.copy(versions[1], tmp_path / "next.parquet")

    thread = threading.Thread(target=replace)
    thread.start()
    _, errors = process.communicate(timeout=100)
    stop.set()
    thread.join()
    assert process.returncode == 2
    assert b"d.parquet: " in errors
    assert errors.count(b"\n") == 1
    assert not mask.exists()
