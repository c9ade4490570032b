"""Outputs that appear whole or not at all.

A file is written beside its target under a hidden name and renamed when it is complete. The hidden file is locked
while it is written, so that a later run can tell what a killed one left behind, and clear it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

from drrej.errors import OutputError

STDOUT = "-"
_MARK = ".drrej-tmp-"


class OutputFile:
    """A file to be written whole: `path` takes the content, `commit` puts it in place.

    Made before any work, so that an output that cannot be written is known at once. What is not a regular file
    (`/dev/null`, a FIFO) is written directly; `-` is standard output, written at the end.
    """

    def __init__(self, target: str, force: bool = False) -> None:
        self.target = target
        self._lock: IO[bytes] | None = None
        self._committed = False
        self.final = Path(os.path.realpath(target))
        self.direct = target != STDOUT and _is_special(self.final)
        if self.direct:
            self.path = target
            return
        if target != STDOUT:
            check_free(target, force)
        folder = Path(_scratch_folder()) if target == STDOUT else self.final.parent
        name = "stdout" if target == STDOUT else self.final.name
        clear_leftovers(folder, name)
        self.path = str(folder / f".{name}{_MARK}{secrets.token_hex(4)}")
        self._force = force
        try:
            self._lock = open(self.path, "xb")  # noqa: SIM115 - held until the file is in place
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError as error:
            raise cannot_write(target, error) from None

    def write_text(self, text: str) -> None:
        """Write the whole content as text."""
        try:
            with open(self.path, "w", encoding="utf-8") as stream:
                stream.write(text)
        except OSError as error:
            raise cannot_write(self.target, error) from None

    def commit(self) -> None:
        """Put the content in its place."""
        if self.direct or self._lock is None:
            return
        try:
            if self.target == STDOUT:
                with open(self.path, "rb") as content:
                    shutil.copyfileobj(content, sys.stdout.buffer, 1 << 20)
                sys.stdout.buffer.flush()
                os.unlink(self.path)
            else:
                os.fsync(self._lock.fileno())
                if self.final.exists():
                    if not self._force:
                        raise OutputError(f"{self.target}: it has come to exist meanwhile; use --force to overwrite")
                    os.chmod(self.path, stat.S_IMODE(self.final.stat().st_mode))
                os.replace(self.path, self.final)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise cannot_write(self.target, error) from None
        self._committed = True
        self._lock.close()

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._committed and self._lock is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)
            self._lock.close()


def check_free(target: str, force: bool) -> None:
    """Raise unless a file may be written here."""
    final = Path(os.path.realpath(target))
    if final.is_dir():
        raise OutputError(f"{target}: it is a directory; name a file in it")
    if final.exists() and not force:
        raise OutputError(f"{target}: it exists already; use --force to overwrite")
    if not final.parent.is_dir():
        raise OutputError(
            f"{target}: the directory {final.parent.name or final.parent} does not exist; create it first"
        )
    if not os.access(final.parent, os.W_OK):
        raise OutputError(f"{target}: the directory is not writable")


def cannot_write(target: str, error: OSError) -> OutputError:
    """The error of a failed write."""
    return OutputError(f"{target}: cannot be written ({error.strerror or error})")


def clear_leftovers(folder: Path, name: str) -> None:
    """Remove what a killed run left for this target: hidden files and folders that nobody holds a lock on."""
    with contextlib.suppress(OSError):
        for path in folder.glob(f".{_escaped(name)}{_MARK}*"):
            with contextlib.suppress(OSError), _unlocked(path):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()


@contextlib.contextmanager
def _unlocked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _escaped(name: str) -> str:
    return "".join(f"[{ch}]" if ch in "*?[" else ch for ch in name)


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _scratch_folder() -> str:
    import tempfile

    return tempfile.gettempdir()


class OutputDirectory:
    """A directory to be written whole: files go to `path`, `commit` renames it to its final name."""

    def __init__(self, target: str, force: bool = False) -> None:
        self.target = target.rstrip("/") or "/"
        self.final = Path(os.path.realpath(self.target))
        self._force = force
        self._committed = False
        if self.final.exists():
            if not self.final.is_dir():
                raise OutputError(f"{target}: it exists and is not a directory")
            if any(self.final.iterdir()) and not force:
                raise OutputError(f"{target}: the directory exists and is not empty; use --force to replace it")
        elif not self.final.parent.is_dir():
            raise OutputError(f"{target}: the directory {self.final.parent.name} does not exist; create it first")
        clear_leftovers(self.final.parent, self.final.name)
        self.path = self.final.parent / f".{self.final.name}{_MARK}{secrets.token_hex(4)}"
        try:
            self.path.mkdir()
            self._lock = os.open(self.path, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError as error:
            raise cannot_write(target, error) from None

    def commit(self) -> None:
        """Rename the directory to its final name; one that was there before goes away afterwards."""
        old = self.final.parent / f".{self.final.name}{_MARK}{secrets.token_hex(4)}"
        try:
            replaced = self.final.exists()
            if replaced:
                os.chmod(self.path, stat.S_IMODE(self.final.stat().st_mode))
                os.rename(self.final, old)
            os.rename(self.path, self.final)
        except OSError as error:
            raise cannot_write(self.target, error) from None
        self._committed = True
        if replaced:
            shutil.rmtree(old, ignore_errors=True)

    def __enter__(self) -> OutputDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._committed:
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


@contextlib.contextmanager
def prepare_directory(target: str) -> Iterator[None]:
    """Make a directory for outputs if it is missing; gone again if nothing came to be in it."""
    final = Path(target)
    made = not final.exists()
    try:
        if not final.is_dir():
            final.mkdir()
    except OSError as error:
        raise OutputError(f"{target}: the directory cannot be made ({error.strerror})") from None
    try:
        yield
    finally:
        if made:
            with contextlib.suppress(OSError):
                final.rmdir()
