"""Outputs that appear whole or not at all."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from drrej import LocalDataset, OutputError, OutputFile
from drrej.outputs import hidden


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


def test_a_file_that_comes_to_exist_meanwhile_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    with OutputFile(str(target)) as file:
        file.write_text("mine")
        target.write_text("theirs")
        with pytest.raises(OutputError, match="meanwhile"):
            file.commit()
    assert target.read_text() == "theirs"
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
        hidden.clear_leftovers(tmp_path, "out.json")
        assert Path(first.path).exists()
        with pytest.raises(OutputError, match="named for two outputs"):
            OutputFile(str(target))
    assert os.listdir(tmp_path) == [other.name]


def test_a_directory_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with LocalDataset(f"{target}/") as folder:
        (Path(folder.folder([])) / "a.parquet").write_text("a.parquet")
        assert not target.exists()
        folder.commit()
    assert os.listdir(tmp_path) == ["out"]
    assert os.listdir(target) == ["a.parquet"]
    with pytest.raises(OutputError, match="not empty; use `force=True`"):
        LocalDataset(str(target))
    with LocalDataset(str(target), force=True) as folder:
        (Path(folder.folder([])) / "b.parquet").write_text("b.parquet")
    assert os.listdir(target) == ["a.parquet"]
    with LocalDataset(str(target), force=True) as folder:
        (Path(folder.folder([])) / "b.parquet").write_text("b.parquet")
        folder.commit()
    assert os.listdir(target) == ["b.parquet"]
    assert os.listdir(tmp_path) == ["out"]
