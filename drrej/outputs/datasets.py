"""A dataset that several processes write: finished files survive a crash and are taken up by the next run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.fs as pafs

from drrej.data.uris import below, is_uri, redacted
from drrej.errors import ClusterError, DrrejError, OutputError
from drrej.outputs.files import OutputDirectory, cannot_write
from drrej.outputs.remote import open_uri, told, upload

SUCCESS = "_SUCCESS"
NOTES = "_drrej"
"""Folder of the notes about finished files; readers of parquet datasets skip names like this."""


def output_directory(target: str, force: bool = False, by_workers: bool = False) -> OutputDirectory:
    """The kind of directory that a target asks for."""
    if is_uri(target):
        return RemoteDirectory(target, force)
    return StagedDirectory(target, force) if by_workers else OutputDirectory(target, force)


class StagedDirectory(OutputDirectory):
    """A directory that workers write: `root` has a fixed name beside the target, so that a rerun finds it.

    It stays behind when the run is interrupted or loses its cluster; after any other error it goes away.
    """

    def __init__(self, target: str, force: bool = False) -> None:
        super().__init__(target, force)
        self._expected: set[str] = set()
        shutil.rmtree(self.path, ignore_errors=True)  # not needed: it has shown that the place can be written
        os.close(self._lock)
        self.path = self.final.parent / f".{self.final.name}.drrej-parts"
        try:
            self.path.mkdir(exist_ok=True)
            self._lock = os.open(self.path, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise OutputError(
                f"{self.target}: another run is writing it; wait for it or choose another with `output`"
            ) from None
        except OSError as error:
            raise cannot_write(target, error) from None

    def expect(self, relative: Iterable[str]) -> None:
        """The files of the finished dataset."""
        self._expected = set(relative)

    def commit(self) -> None:
        """Drop what does not belong to the dataset, then rename it into place."""
        for folder, _, names in os.walk(self.path, topdown=False):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.relpath(path, self.path).replace(os.sep, "/") not in self._expected:
                    os.unlink(path)
            if not os.listdir(folder):
                os.rmdir(folder)
        super().commit()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if spoilt(kind) or not any(Path(self.path).glob("*")):
            super().__exit__(kind, error, trace)
        else:
            os.close(self._lock)


class RemoteDirectory(OutputDirectory):
    """A dataset below a URI. Workers write to `root`; what this process writes goes to `path` and is uploaded.

    There is no rename: files appear one by one, each whole, and the dataset is complete when `_SUCCESS` is there. It is
    written last, and with `force=True` it is the first to go.
    """

    def __init__(self, target: str, force: bool = False) -> None:
        self._uri = target
        self.target = redacted(target.partition("?")[0].rstrip("/"))
        self._expected: set[str] = set()
        self._scratch: str | None = None
        self._committed = False
        with told(self._uri):
            self._filesystem, self._key = open_uri(self._uri)
            self._key = self._key.rstrip("/")
            present = self._present()
            unfinished = SUCCESS not in present and any(name.startswith(f"{NOTES}/") for name in present)
            if present and not unfinished and not force:
                raise OutputError(f"{self.target}: there is a dataset already; use `force=True` to replace it")
            check_only_masks(self.target, present)

    def _present(self) -> list[str]:
        selector = pafs.FileSelector(self._key, recursive=True, allow_not_found=True)
        files = [info.path for info in self._filesystem.get_file_info(selector) if info.type == pafs.FileType.File]
        return [path[len(self._key) + 1 :] for path in files]

    @property
    def root(self) -> str:
        """Where workers write the files."""
        return self._uri

    @property
    def path(self) -> Path:  # type: ignore[override]  # made when it is needed
        """A scratch folder whose files `commit` uploads."""
        if self._scratch is None:
            self._scratch = tempfile.mkdtemp(prefix="drrej-")
        return Path(self._scratch)

    def check_apart(self, inputs: Iterable[str]) -> None:
        """Raise when an input lies below the URI that is to be replaced."""
        for path in inputs:
            if path.startswith(self._key + "/"):
                raise OutputError(f"{self.target}: the input {path} lies in it; choose another directory with `output`")

    def commit(self) -> None:
        """Upload what is in `path`, remove what does not belong to the dataset, then say that it is complete."""
        with told(self._uri):
            if self._scratch is not None:
                files = [file for file in sorted(Path(self._scratch).rglob("*")) if file.is_file()]
                self.expect(file.relative_to(self._scratch).as_posix() for file in files)
                for file in files:
                    with open(file, "rb") as content:
                        upload(content, below(self._uri, file.relative_to(self._scratch).as_posix()))
            self._delete(set(self._present()) - self._expected)
            self._delete_notes()
            with self._filesystem.open_output_stream(f"{self._key}/{SUCCESS}"):
                pass
        self._committed = True

    def _delete_notes(self) -> None:
        notes = f"{self._key}/{NOTES}"
        if self._filesystem.get_file_info(notes).type == pafs.FileType.Directory:  # the marker of an empty folder
            self._filesystem.delete_dir(notes)

    def _delete(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            self._filesystem.delete_file(f"{self._key}/{name}")

    def expect(self, relative: Iterable[str]) -> None:
        """The files of the finished dataset. They change from here on, so it is not complete any more."""
        self._expected = set(relative)
        with told(self._uri):
            if SUCCESS in self._present():
                self._filesystem.delete_file(f"{self._key}/{SUCCESS}")

    def __enter__(self) -> RemoteDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        if not self._committed and spoilt(kind):
            with contextlib.suppress(OSError, pa.ArrowException):
                present = set(self._present())
                self._delete(name for name in present if f"{NOTES}/{name}.json" in present)
                self._delete_notes()


def spoilt(kind: type[BaseException] | None) -> bool:
    """Whether an error makes finished files useless: an interruption or a lost cluster does not."""
    return kind is not None and issubclass(kind, DrrejError) and not issubclass(kind, ClusterError)


def check_only_masks(target: str, names: Iterable[str]) -> None:
    """Raise when a directory to be replaced holds other files than masks."""
    for name in names:
        hidden = any(piece.startswith(("_", ".")) for piece in name.split("/"))
        if not name.endswith(".parquet") and not hidden:
            raise OutputError(
                f"{target}: the directory holds other files than masks ({name}), so it will not be replaced; "
                "choose another with `output`"
            )
