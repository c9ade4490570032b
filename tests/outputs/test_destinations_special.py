"""Outputs that are not plain files, and endings that are not plain exits; each in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import more_trials, thorough
from dumps_zoo import drrej, fixed_list, make_rejector, make_rows, read_mask, same_decisions, succeed, write


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rows = make_rows(6, 3000)
        self.dump = write(folder / "dump.parquet", {"logits": fixed_list(rows.logits), "label": rows.labels})
        self.rejector = make_rejector(self.dump, folder)
        succeed("reject", self.dump, "-r", self.rejector, "-o", folder / "expected.parquet")
        self.expected = read_mask(folder / "expected.parquet")
        self.document = (folder / "calibrated.json").read_bytes()

    def start(self, *arguments: object, **options: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "drrej", *map(str, arguments)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, **{"stdout": pipe, "stderr": pipe, "cwd": self.folder, **options})  # type: ignore[call-overload, no-any-return]

    def names(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*")}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("targets"))


@pytest.fixture
def place(shared: Place) -> Place:
    shared.before = shared.names()  # type: ignore[attr-defined]
    return shared


def test_dev_null(place: Place) -> None:
    for arguments in (["calibrate", place.dump], ["reject", place.dump, "-r", place.rejector]):
        outcome = succeed(*arguments, "-o", "/dev/null", "-q")
        assert (outcome.out, outcome.err) == (b"", "")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_full_disk(place: Place) -> None:
    outcome = drrej("calibrate", place.dump, "-o", "/dev/full")
    assert (outcome.code, outcome.lines) == (
        2,
        ["drrej: error: /dev/full: cannot be written (No space left on device)"],
    )
    outcome = drrej("reject", place.dump, "-r", place.rejector, "-o", "/dev/full")
    assert outcome.code == 2
    assert "/dev/full" in outcome.err
    assert len(outcome.lines) == 1
    with open("/dev/full", "wb") as full:
        process = place.start("calibrate", place.dump, stdout=full)
        _, error = process.communicate()
    assert process.returncode == 2
    assert error == b"drrej: error: standard output: cannot be written (No space left on device)\n"


def test_a_fifo_gets_the_whole_output(place: Place, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(fifo.read_bytes()))
    reader.start()
    succeed("reject", place.dump, "-r", place.rejector, "-o", fifo)
    reader.join()
    (tmp_path / "mask.parquet").write_bytes(received[0])
    same_decisions(read_mask(tmp_path / "mask.parquet"), place.expected)
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_fifo_gets_nothing_of_a_failed_command(place: Place, tmp_path: Path) -> None:
    """Bad rows are known at the end: nothing may have gone out before."""
    scores = make_rows(6, 3000).logits.copy()
    scores[2999] = np.nan
    bad = write(tmp_path / "bad.parquet", {"logits": fixed_list(scores)}, row_group_size=500)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    assert drrej("reject", bad, "-r", place.rejector, "-o", fifo).code == 2
    assert os.read(descriptor, 10) == b""
    os.close(descriptor)


@pytest.mark.parametrize("name", ["/dev/stdout", more_trials("/dev/fd/1"), more_trials("/proc/self/fd/1")])
def test_other_names_of_standard_output(place: Place, name: str) -> None:
    process = place.start("calibrate", place.dump, "-o", name)
    assert (*process.communicate(), process.returncode) == (place.document, b"", 0)


def test_a_symlink_is_followed(place: Place, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "r.json", tmp_path / "link.json"
    link.symlink_to(target)
    succeed("calibrate", place.dump, "-o", link)
    assert link.is_symlink()
    assert target.read_bytes() == place.document
    assert drrej("calibrate", place.dump, "-o", link).code == 2
    target.chmod(0o640)
    target.write_text("old")
    succeed("calibrate", place.dump, "-o", link, "--force")
    assert target.read_bytes() == place.document
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_the_umask_holds(place: Place, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        succeed("calibrate", place.dump, "-o", tmp_path / "r.json")
        succeed("reject", place.dump, "-r", place.rejector, "-o", tmp_path / "m.parquet")
    finally:
        os.umask(before)
    assert {stat.S_IMODE((tmp_path / n).stat().st_mode) for n in ("r.json", "m.parquet")} == {0o640}


def test_a_rejector_may_be_replaced_by_itself(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(place.document)
    succeed("fit", place.dump, "-r", path, "--loss", "log", "-o", path)
    succeed("threshold", place.dump, "-r", path, "--coverage", "0.8", "-o", path)
    assert path.read_bytes() == place.rejector.read_bytes()


def test_long_names(place: Place, tmp_path: Path) -> None:
    """A name that the file system takes is taken, although the hidden name beside it is longer."""
    path = tmp_path / ("n" * 250 + ".json")
    succeed("calibrate", place.dump, "-o", path)
    assert path.read_bytes() == place.document


def test_leftovers_of_a_killed_run_go_away(place: Place, tmp_path: Path) -> None:
    old = tmp_path / ".r.json.drrej-tmp-00000000"
    old.write_text("half")
    succeed("calibrate", place.dump, "-o", tmp_path / "r.json")
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


def test_a_closed_pipe(place: Place) -> None:
    """`| head -c 1`: silent, 141, nothing left behind."""
    many = place.folder / "many"
    many.mkdir()
    for number in range(120):  # a mask of 100 kB: more than a pipe holds, however late `head` is
        shutil.copy(place.folder / "dump.parquet", many / f"{number}.parquet")
    arguments = "reject many -r rejector.json -o -"
    command = f'"{sys.executable}" -m drrej {arguments} | head -c 1; echo " ${{PIPESTATUS[0]}}"'
    scratch = place.folder / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    done = subprocess.run(["bash", "-c", command], capture_output=True, cwd=place.folder, env=environment, check=False)
    assert (done.stdout, done.stderr) == (b"P 141\n", b"")
    assert not list(scratch.iterdir())
    scratch.rmdir()


def test_closed_standard_streams(place: Place) -> None:
    program = f'"{sys.executable}" -m drrej'
    for command, says in (
        (f"{program} calibrate dump.parquet >&-", b"standard output: "),
        (f"{program} calibrate - <&-", b"standard input: "),
        (f"{program} fit dump.parquet -r - <&-", b"standard input: "),
    ):
        done = subprocess.run(["bash", "-c", command], capture_output=True, cwd=place.folder, check=False)
        assert done.returncode == 2, done
        assert done.stdout == b""
        assert done.stderr.startswith(b"drrej: error: " + says)
        assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), thorough(signal.SIGTERM, 143), thorough(signal.SIGHUP, 129)]
)
def test_signals(place: Place, tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Ctrl-C in the middle of the work: the exit code says so, nothing is left anywhere."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (tmp_path / "out.json").write_text("as it was")
    environment = {**os.environ, "TMPDIR": str(scratch)}
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    out = tmp_path / "out.json"
    heeded = {"preexec_fn": lambda: signal.signal(number, signal.SIG_DFL)}  # a background job ignores Ctrl-C
    process = place.start("calibrate", fifo, "-o", out, "--force", env=environment, **heeded)
    with fifo.open("wb") as stream:  # returns once the command has opened it and waits for more
        stream.write(place.dump.read_bytes()[:1000])
        stream.flush()
        while not list(scratch.iterdir()):
            time.sleep(0.01)
        time.sleep(0.2)  # let it come to wait for more: a signal just before that is noticed with the next byte only
        process.send_signal(number)
        try:
            output, error = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:  # on a busy machine it did come just before
            stream.write(b"x")
            stream.flush()
            output, error = process.communicate(timeout=100)
    assert (process.returncode, output, error) == (code, b"", b"")
    assert not list(scratch.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fifo", "out.json", "scratch"]
    assert out.read_text() == "as it was"


def test_debugging_shows_where(place: Place) -> None:
    process = place.start("calibrate", "no.parquet", env={**os.environ, "DRREJ_DEBUG": "1"})
    _, error = process.communicate()
    assert b"Traceback" in error
    assert b"DumpError" in error


def test_masks_in_a_directory(place: Place, tmp_path: Path) -> None:
    rows = make_rows(6, 3000)
    for i in range(2):
        half = slice(1500 * i, 1500 * (i + 1))
        write(tmp_path / "in" / f"day={i}" / "x.parquet", {"logits": fixed_list(rows.logits[half])})
    out = tmp_path / "out"
    succeed("reject", tmp_path / "in", "-r", place.rejector, "-o", f"{out}/")
    files = sorted(str(path.relative_to(out)) for path in out.rglob("*.parquet"))
    assert files == ["day=0/x.parquet", "day=1/x.parquet"]
    assert pq.read_table(out).num_rows == 3000
    (out / "day=0" / "old.parquet").write_bytes(b"")
    succeed("reject", tmp_path / "in", "-r", place.rejector, "-o", f"{out}/", "--force")
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*.parquet")) == files
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.drrej-masks.json", "in", "out"]


def test_nothing_is_left_beside_the_dump(place: Place) -> None:
    assert place.names() == place.before  # type: ignore[attr-defined]
