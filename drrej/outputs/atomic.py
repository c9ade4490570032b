"""Files and directories that appear whole: they grow under a hidden name beside the target, and then take its name.

What grows is locked, so that a later run can tell what a killed one left behind. Failures are OSErrors.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import fcntl
import glob
import os
import shutil
import stat
from collections.abc import Iterator

import pyarrow as pa

from drrej.data.problems import redacted
from drrej.errors import OutputError

_UNFINISHED = ".drrej-tmp-"
_growing: dict[str, int] = {}
"""The hidden files of this process, known before they exist: a signal may end it before anybody holds them."""


class HiddenFile:
    """A new file beside its target, locked until it is closed; closing removes it if it still has its hidden name."""

    def __init__(self, final: str) -> None:
        self._final = final
        clear_leftovers(final)
        while True:
            self.path = f"{_hidden(final)}{_UNFINISHED}{os.urandom(4).hex()}"
            _growing[self.path] = os.getpid()
            self._lock = open(self.path, "xb")  # noqa: SIM115 - held until the file is in place
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if os.path.exists(self.path):  # else another run took it for a leftover just before it was locked
                return
            self._lock.close()

    def put(self, overwrite: bool) -> None:
        """Give the file its final name; FileExistsError when that is taken and must not be overwritten."""
        os.fsync(self._lock.fileno())
        if overwrite:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(self.path, stat.S_IMODE(os.stat(self._final).st_mode))
            os.replace(self.path, self._final)
        else:
            try:
                os.link(self.path, self._final)
            except FileExistsError:
                raise
            except OSError:  # a filesystem without hard links
                if os.path.lexists(self._final):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._final) from None
                os.rename(self.path, self._final)
        with contextlib.suppress(OSError):  # the name on the disk too; some file systems cannot
            folder = os.open(os.path.dirname(self._final), os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def close(self) -> None:
        """Let go of the file."""
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


def clear_leftovers(final: str) -> None:
    """Remove hidden files of a target that nobody holds a lock on: a killed run left them."""
    for path in glob.glob(f"{glob.escape(_hidden(final))}{_UNFINISHED}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def locked(final: str, busy: str) -> Iterator[None]:
    """One run at a time at one target, until the end of the process however that comes; raises `busy` for a second one.

    The lock is on a hidden file beside the target, because the target itself is replaced.
    """
    path = f"{_hidden(final)}.drrej-lock"
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                raise OutputError(busy) from None
            raise
        if os.path.exists(path) and os.path.samestat(os.fstat(descriptor), os.stat(path)):
            break
        os.close(descriptor)  # its owner has removed it between our opening and locking it
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(descriptor)


def put_folder(folder: str, final: str, overwrite: bool) -> None:
    """Give a finished folder its final name; what was there before has the folder's name afterwards, or is gone.

    Old and new change places in one step. Where the filesystem cannot do that, the old one is set aside until the new
    one stands; should the run be killed between the two, `recover_folder` gives the old one its name back. The caller
    holds the lock of the target.
    """
    there, aside = os.path.lexists(final), _aside(final)
    if there:
        os.chmod(folder, stat.S_IMODE(os.stat(final).st_mode))
    if not there or not overwrite:
        os.rename(folder, final)  # fails unless the name is free or that of an empty directory
    elif not _exchange(folder, final):
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(final, aside)
        try:
            os.rename(folder, final)
        finally:
            recover_folder(final)
    shutil.rmtree(aside, ignore_errors=True)


def recover_folder(final: str) -> None:
    """Give a folder that was set aside its name back if the new one did not get it."""
    if not os.path.lexists(final) and os.path.lexists(_aside(final)):
        os.rename(_aside(final), final)


def _exchange(first: str, second: str) -> bool:
    """Let two names change places in one step (Linux's renameat2); False where kernel or filesystem lacks it."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    here, exchange = -100, 2  # AT_FDCWD: paths are relative to the current directory; RENAME_EXCHANGE
    if call(here, os.fsencode(first), here, os.fsencode(second), exchange) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), second)


def _hidden(final: str) -> str:
    """The beginning of hidden names beside a target's; with an ending they fit where the target's fits."""
    folder, name = os.path.split(final)
    return os.path.join(folder, f".{os.fsdecode(os.fsencode(name)[:200])}")


def _aside(final: str) -> str:
    return f"{_hidden(final)}.drrej-old"


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


def remove_if_empty(folder: str) -> None:
    """Remove a folder that nothing came to be in."""
    with contextlib.suppress(OSError):  # it is gone, or not empty
        os.rmdir(folder)


@contextlib.contextmanager
def writing(name: str) -> Iterator[None]:
    """What goes wrong while an output is written, as one line; a reader that has gone away is another matter."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())[:300]
        raise OutputError(redacted(f"{name}: cannot be written ({reason})")) from None
