"""Hidden files and folders beside a target, where an output grows until it is complete.

They are locked while they are written, so that a later run can tell what a killed one left behind.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from drrej.errors import OutputError

UNFINISHED = ".drrej-tmp-"
REPLACED = ".drrej-old-"
"""Marks in hidden names: what is being made and may be thrown away, and what was there before and may not."""

_growing: dict[str, int] = {}
"""The hidden files of this process, known before they exist: a signal may end it before anybody holds them."""


class HiddenFile:
    """A new file in a folder, locked until it is closed or removed; raises OSError."""

    def __init__(self, folder: Path, name: str) -> None:
        clear_leftovers(folder, name)
        while True:
            self.path = str(folder / hidden_name(name))
            _growing[self.path] = os.getpid()
            self._lock: IO[bytes] = open(self.path, "xb")  # noqa: SIM115 - held until the file is in place
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if os.path.exists(self.path):  # else another run took it for a leftover just before it was locked
                return
            self._lock.close()

    def sync(self) -> None:
        """Have the content on the disk before its name changes."""
        os.fsync(self._lock.fileno())

    def close(self) -> None:
        """Let go of the file, and remove it if it still has its hidden name."""
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        self._lock.close()
        _growing.pop(self.path, None)


@atexit.register
def _remove_growing() -> None:
    for path, owner in _growing.items():
        if owner == os.getpid():  # a child has what its parent knew
            with contextlib.suppress(OSError):
                os.unlink(path)


def lock_folder(path: Path) -> int:
    """The descriptor that holds the lock; BlockingIOError when another process holds it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def hidden_name(name: str, mark: str = UNFINISHED) -> str:
    """A name beside the target's that fits where the target's fits."""
    return f".{_shortened(name)}{mark}{os.urandom(4).hex()}"


def clear_leftovers(folder: Path, name: str, mark: str = UNFINISHED) -> None:
    """Remove hidden files and folders of a target that nobody holds a lock on: a killed run left them."""
    for path in leftovers(folder, name, mark):
        with contextlib.suppress(OSError), _unlocked(path):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def recover_replaced(final: Path) -> None:
    """Give a folder its name back if a run was killed after taking it away and before the new one had it."""
    for path in leftovers(final.parent, final.name, REPLACED):
        if not os.path.lexists(final):
            with contextlib.suppress(OSError), _unlocked(path):
                os.rename(path, final)


def leftovers(folder: Path, name: str, mark: str) -> list[Path]:
    """Hidden files and folders of a target with a mark."""
    try:
        return sorted(folder.glob(f".{_escaped(_shortened(name))}{mark}*"))
    except OSError:
        return []


def check_folder(target: str, folder: str) -> None:
    """Raise unless files may be made in a folder."""
    if not os.path.exists(folder):
        raise OutputError(
            f"{target}: the directory {os.path.dirname(target) or folder} does not exist; create it first"
        )
    if not os.path.isdir(folder):
        raise OutputError(f"{target}: {os.path.dirname(target) or folder} is not a directory")
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{target}: the directory is not writable; choose another with `output`")


def cannot_write(target: str, error: OSError) -> OutputError:
    """The error of a failed write."""
    return OutputError(f"{target}: cannot be written ({error.strerror or error})")


def _shortened(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:200])


def _escaped(name: str) -> str:
    return "".join(f"[{ch}]" if ch in "*?[" else ch for ch in name)


@contextlib.contextmanager
def _unlocked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
