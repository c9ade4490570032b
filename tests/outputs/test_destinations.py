"""Outputs that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import environment, fail, succeed

from drrej.errors import OutputError
from drrej.outputs import atomic
from drrej.outputs.dataset import LocalDataset
from drrej.outputs.destinations import OutputFile


def write(target: Path, text: str, force: bool = False) -> None:
    with OutputFile(str(target), force) as file:
        file.write_text(text)
        file.commit()


def test_nothing_is_left_of_an_output_that_failed(tmp_path: Path) -> None:
    def fail_midway() -> None:
        with OutputFile(str(tmp_path / "out.json")) as file:
            file.write_text("half")
            assert not (tmp_path / "out.json").exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_midway()
    assert os.listdir(tmp_path) == []


def test_a_failed_overwrite_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text("old")
    with OutputFile(str(target), force=True) as file:
        file.write_text("half")
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.json"]


def test_overwriting_needs_force(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    write(target, "old")
    with pytest.raises(OutputError, match=r"out\.json: it exists already; use `force=True`"):
        OutputFile(str(target))
    write(target, "new", force=True)
    assert target.read_text() == "new"


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_comes_to_exist_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """On filesystems without hard links too."""
    target = tmp_path / "out.json"
    if not links:
        monkeypatch.setattr(os, "link", lambda *_: os.open(tmp_path, os.O_WRONLY))  # an error, but another one
    with OutputFile(str(target)) as file:
        file.write_text("mine")
        target.write_text("theirs")
        with pytest.raises(OutputError, match="in the meantime"):
            file.commit()
    assert target.read_text() == "theirs"
    target.unlink()
    write(target, "mine")
    assert target.read_text() == "mine"
    assert os.listdir(tmp_path) == ["out.json"]


def test_modes_are_kept_or_by_umask(tmp_path: Path) -> None:
    fresh, kept = tmp_path / "fresh", tmp_path / "kept"
    kept.write_text("old")
    kept.chmod(0o600)
    before = os.umask(0o027)
    try:
        write(fresh, "x")
        write(kept, "new", force=True)
    finally:
        os.umask(before)
    assert stat.S_IMODE(fresh.stat().st_mode) == 0o640
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_symlinks_are_resolved(tmp_path: Path) -> None:
    real = tmp_path / "real" / "file"
    real.parent.mkdir()
    real.write_text("old")
    link = tmp_path / "link"
    link.symlink_to(real)
    write(link, "new", force=True)
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_what_is_not_a_regular_file_is_written_directly(tmp_path: Path) -> None:
    write(Path("/dev/null"), "gone")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(fifo.read_text()), daemon=True)
    reader.start()
    write(fifo, "through")
    reader.join(timeout=30)
    assert received == ["through"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


@pytest.mark.parametrize(
    ("target", "message"), [("", "it is a directory"), ("missing/out.json", "missing does not exist; create it first")]
)
def test_places_that_cannot_be_written_are_known_before_any_work(tmp_path: Path, target: str, message: str) -> None:
    with pytest.raises(OutputError, match=message):
        OutputFile(f"{tmp_path}/{target}")


def test_what_a_killed_run_left_is_cleared_and_what_is_in_use_is_not(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    leftover = tmp_path / ".out.json.drrej-tmp-deadbeef"
    leftover.write_text("half")
    other = tmp_path / ".other.json.drrej-tmp-deadbeef"
    other.write_text("half")
    with OutputFile(str(target)) as first:
        assert not leftover.exists()
        atomic.clear_leftovers(str(target))
        assert Path(first.path).exists()
        with pytest.raises(OutputError, match="named as two outputs"):
            OutputFile(str(target))
    assert os.listdir(tmp_path) == [other.name]


def fill(dataset: LocalDataset, name: str) -> None:
    """One mask, without rows."""
    dataset.start([name])
    with dataset.mask(name, pa.schema([("loss", pa.float64())])):
        pass


def test_a_directory_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with LocalDataset(f"{target}/") as folder:
        fill(folder, "a.parquet")
        assert not target.exists()
        folder.commit()
    assert os.listdir(tmp_path) == ["out"]
    assert os.listdir(target) == ["a.parquet"]
    with pytest.raises(OutputError, match="not empty; use `force=True`"):
        LocalDataset(str(target))
    with LocalDataset(str(target), force=True) as folder:
        fill(folder, "b.parquet")
    assert os.listdir(target) == ["a.parquet"]
    with LocalDataset(str(target), force=True) as folder:
        fill(folder, "b.parquet")
        folder.commit()
    assert os.listdir(target) == ["b.parquet"]
    assert os.listdir(tmp_path) == ["out"]


# Directories: the final name stands for a whole directory at every moment


def put(target: Path, name: str, force: bool = False) -> None:
    """A dataset of one file."""
    with LocalDataset(str(target), force) as dataset:
        fill(dataset, name)
        dataset.commit()


def test_a_directory_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with LocalDataset(str(target)) as dataset:
        fill(dataset, "a.parquet")
        target.mkdir()
        (target / "precious.parquet").write_text("theirs")
        with pytest.raises(OutputError, match="another process has written it in the meantime"):
            dataset.commit()
    assert os.listdir(target) == ["precious.parquet"]
    assert os.listdir(tmp_path) == ["out"]


def test_an_empty_directory_is_filled_unless_somebody_else_does(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir(mode=0o750)
    with LocalDataset(str(target)) as dataset:
        (target / "theirs.parquet").write_text("theirs")
        with pytest.raises(OutputError, match="another process has written it in the meantime"):
            dataset.commit()
    assert os.listdir(target) == ["theirs.parquet"]
    (target / "theirs.parquet").unlink()
    put(target, "a.parquet")
    assert os.listdir(target) == ["a.parquet"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o750


def test_force_looks_again_before_it_replaces(tmp_path: Path) -> None:
    target = tmp_path / "out"
    put(target, "a.parquet")
    with LocalDataset(str(target), force=True) as dataset:
        (target / "thesis.tex").write_text("precious")
        with pytest.raises(OutputError, match=r"files other than masks \(thesis.tex\)"):
            dataset.commit()
    assert sorted(os.listdir(target)) == ["a.parquet", "thesis.tex"]
    assert os.listdir(tmp_path) == ["out"]


def no_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a filesystem without renameat2's flags."""
    monkeypatch.setattr(atomic, "_exchange", lambda *_: False)


@pytest.mark.parametrize("one_step", [True, False])
def test_the_old_directory_is_there_until_the_new_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_step: bool
) -> None:
    """Whatever touches the disk, the target holds the old or the new; in two steps there is a gap, see below."""
    if not one_step:
        no_exchange(monkeypatch)
    target = tmp_path / "out"
    put(target, "old.parquet")
    seen: list[list[str]] = []

    def watched(function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            result = function(*args, **options)
            seen.append(os.listdir(target) if target.exists() else [])
            return result

        return call

    for module, name in ((os, "rename"), (atomic, "_exchange"), (shutil, "rmtree"), (os, "unlink"), (os, "chmod")):
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    put(target, "new.parquet", force=True)
    assert seen[-1] == ["new.parquet"]
    assert ["old.parquet"] in seen
    gaps = [files for files in seen if files not in (["old.parquet"], ["new.parquet"])]
    assert gaps == ([] if one_step else [[]])
    assert os.listdir(tmp_path) == ["out"]


KILLED = """
import os, sys
import pyarrow as pa
from drrej.outputs import atomic
from drrej.outputs.dataset import LocalDataset

atomic._exchange = lambda *_: False
rename = os.rename

def killed(path, final):
    rename(path, final)
    if len(calls) == int(sys.argv[2]):
        os.kill(os.getpid(), 9)
    calls.append(final)

calls = []
with LocalDataset(sys.argv[1], force=True) as dataset:
    dataset.start(["new.parquet"])
    with dataset.mask("new.parquet", pa.schema([("loss", pa.float64())])):
        pass
    os.rename = killed
    dataset.commit()
"""


@pytest.mark.parametrize(("after", "holds"), [(0, "old.parquet"), (1, "new.parquet")])
def test_a_kill_between_two_renames_is_mended_by_the_next_run(tmp_path: Path, after: int, holds: str) -> None:
    """Where there is no exchange: even a run that fails gives the old directory its name back."""
    target = tmp_path / "out"
    put(target, "old.parquet")
    done = subprocess.run([sys.executable, "-c", KILLED, str(target), str(after)], env=environment())
    assert done.returncode == -signal.SIGKILL
    assert target.exists() == (after == 1)
    with pytest.raises(OutputError, match="not empty; use `force=True`"):
        LocalDataset(str(target))
    assert os.listdir(target) == [holds]
    put(target, "third.parquet", force=True)
    assert os.listdir(target) == ["third.parquet"]
    assert os.listdir(tmp_path) == ["out"]


def test_what_was_set_aside_stays_until_a_new_directory_stands(tmp_path: Path) -> None:
    target, aside = tmp_path / "out", tmp_path / ".out.drrej-old"
    put(target, "made.parquet")
    put(aside, "old.parquet")
    with LocalDataset(str(target), force=True):  # fails
        assert os.listdir(aside) == ["old.parquet"]
    assert os.listdir(aside) == ["old.parquet"]
    put(target, "new.parquet", force=True)
    assert os.listdir(tmp_path) == ["out"]


# An output that is an input


@pytest.fixture
def job(tmp_path: Path, val: str, documents: Path) -> Path:
    for name in ("calibrated.json", "fitted.json", "rejector.json"):
        shutil.copy(documents / name, tmp_path)
    shutil.copy(val, tmp_path / "d.parquet")
    return tmp_path


COMMANDS = {
    "calibrate": ["calibrate", "{dump}", "-o", "{out}"],
    "fit": ["fit", "{dump}", "-r", "calibrated.json", "-o", "{out}"],
    "threshold": ["threshold", "{dump}", "-r", "fitted.json", "--coverage", "0.8", "-o", "{out}"],
    "threshold --mask": ["threshold", "{dump}", "-r", "fitted.json", "--coverage", "0.8", "-o", "x", "--mask", "{out}"],
    "threshold --table": ["threshold", "{dump}", "-r", "fitted.json", "--tau", "0.8", "-o", "x", "--table", "{out}"],
    "reject": ["reject", "{dump}", "-r", "rejector.json", "-o", "{out}"],
    "labels": ["calibrate", "x.parquet", "--labels-from", "{dump}", "--join-on", "id", "-o", "{out}"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["d.parquet", "./d.parquet", "symlink.parquet", "hardlink.parquet"])
def test_an_output_that_is_an_input(job: Path, command: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job)
    (job / "symlink.parquet").symlink_to("d.parquet")
    os.link(job / "d.parquet", job / "hardlink.parquet")
    shutil.copy("d.parquet", "x.parquet")
    before = contents(job)
    words = [word.format(dump="d.parquet", out=name) for word in COMMANDS[command]]
    message = fail(*words, "--force")
    assert message == f"{name}: the input d.parquet is the same file and would be lost; choose another with -o"
    assert contents(job) == before


def test_standard_input_and_output_are_files_too(job: Path) -> None:
    before = (job / "d.parquet").read_bytes()
    program = f'"{sys.executable}" -m drrej reject'
    for command in (
        f"{program} - -r rejector.json -o d.parquet -f <d.parquet",
        f"{program} d.parquet -r rejector.json -o - >>d.parquet",
    ):
        done = subprocess.run(["bash", "-c", command], cwd=job, env=environment(), capture_output=True, check=False)
        assert b"is the same file and would be lost" in done.stderr, done.stderr
        assert (done.returncode, (job / "d.parquet").read_bytes()) == (2, before)


def test_a_directory_that_holds_an_input(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job)
    for kind, make in {
        "file": lambda path: shutil.copy("d.parquet", path),
        "hardlink": lambda path: os.link("d.parquet", path),
        "symlink": lambda path: path.symlink_to(job / "d.parquet"),
    }.items():
        folder = job / kind
        folder.mkdir()
        make(folder / "x.parquet")
        for dump in (folder, folder / "x.parquet", *(["d.parquet"] if kind == "hardlink" else [])):
            message = fail("reject", dump, "-r", "rejector.json", "-o", f"{kind}/", "--force")
            assert message.endswith("lies in it; choose another directory with -o")
        assert os.listdir(folder) == ["x.parquet"]


def test_a_rejector_may_be_replaced_but_by_a_rejector_only(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job)
    succeed("fit", "d.parquet", "-r", "calibrated.json", "--loss", "log", "-o", "calibrated.json", cwd=job)
    assert (job / "calibrated.json").read_bytes() == (job / "fitted.json").read_bytes()
    rejector = (job / "rejector.json").read_bytes()
    (job / "link.json").symlink_to("rejector.json")
    shutil.copy("rejector.json", "plain")
    for words in (
        ["evaluate", "d.parquet", "-r", "rejector.json", "-o", "rejector.json"],
        ["evaluate", "d.parquet", "-r", "rejector.json", "-o", "link.json"],
        ["reject", "d.parquet", "-r", "plain", "-o", "plain"],
        ["threshold", "d.parquet", "-r", "plain", "--tau", "0.9", "-o", "x", "--mask", "plain"],
    ):
        assert "is the same file and would be lost" in fail(*words, "--force")
    assert {(job / name).read_bytes() for name in ("rejector.json", "plain")} == {rejector}


def test_other_files_that_a_command_reads_are_spared(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job)
    Path("costs.csv").write_text("\n".join(",".join("01"[row != column] for column in range(6)) for row in range(6)))
    Path("names.txt").write_text("\n".join("abcdef"))
    succeed("evaluate", "d.parquet", "-r", "rejector.json", "-o", "report.json", cwd=job)
    before = contents(job)
    cost = ["--loss", "cost", "--cost-matrix", "costs.csv"]
    run = ["run", "--val", "d.parquet", "--test", "d.parquet", "--tau", "0.9", "-o", "."]
    for words in (
        ["fit", "d.parquet", "-r", "calibrated.json", *cost, "-o", "costs.csv"],
        ["calibrate", "d.parquet", "--classes", "names.txt", "-o", "names.txt"],
        ["evaluate", "d.parquet", "-r", "rejector.json", "--baseline", "report.json", "-o", "report.json"],
        [*run, "--baseline", "report.json"],
        [*run, *cost, "--table", "costs.csv"],
    ):
        assert "is the same file and would be lost" in fail(*words, "--force")
    assert contents(job) == before


@pytest.mark.parametrize("name", ["mask", "mask.xlsx", "mask.json", "mask.parquet.gz"])
def test_a_mask_is_not_written_under_the_name_of_another_format(
    job: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(job)
    says = f"{name}: the ending of the name says the format; use one of .parquet, .pq, .arrow, "
    assert fail("reject", "d.parquet", "-r", "rejector.json", "-o", name).startswith(says)
    words = ["threshold", "d.parquet", "-r", "fitted.json", "--tau", "0.8", "-o", "x", "--mask", name]
    assert fail(*words).startswith(says)
    assert not Path(name).exists()


@pytest.mark.parametrize("name", ["mask.pq", "mask.PARQUET"])
def test_names_that_a_mask_may_have(job: Path, name: str) -> None:
    succeed("reject", "d.parquet", "-r", "rejector.json", "-o", name, cwd=job)
    assert pq.ParquetFile(job / name).metadata.num_rows == 1648


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
