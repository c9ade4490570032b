"""Outputs that appear whole or not at all.

A file is written beside its target under a hidden name and renamed when it is complete. The hidden file is locked
while it is written, so that a later run can tell what a killed one left behind, and clear it.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

from drrej.data.uris import is_uri, redacted
from drrej.errors import OutputError
from drrej.outputs import remote

STDOUT = "-"
_MARK = ".drrej-tmp-"


class OutputFile:
    """A file to be written whole: `path` takes the content, `commit` puts it in place.

    Made before any work, so that an output that cannot be written is known at once. Standard output (`-`), FIFOs and
    object storage get their content at the end, from a scratch file; other devices (`/dev/null`) are written directly.
    """

    def __init__(self, target: str, force: bool = False) -> None:
        self.target = STDOUT if target in _STDOUT_NAMES else target
        self.name = "standard output" if self.target == STDOUT else redacted(target)
        self.final = Path(os.path.realpath(target))
        self._force = force
        self._path: str | None = None
        self._content: bytes | None = None
        self._lock: IO[bytes] | None = None
        self._committed = False
        self._remote = is_uri(target)
        self._piped = self.target == STDOUT or self._remote or _is_pipe(target)
        if not self._piped and _is_device(target):
            self._path = target
            return
        _claim(self.target if self._piped else str(self.final), self.name)
        try:
            if self._remote:
                remote.check_free(target, force)
            elif not self._piped:
                check_free(target, force)
                self._open_beside(self.final.parent, self.final.name)
        except OutputError:
            self._unclaim()
            raise

    @property
    def path(self) -> str:
        """Where the content is to be written."""
        if self._path is None:
            self._open_beside(Path(_scratch_folder()), "drrej-output")
        assert self._path is not None
        return self._path

    def _open_beside(self, folder: Path, name: str) -> None:
        clear_leftovers(folder, name)
        try:
            while self._path is None:
                path = str(folder / _hidden_name(name))
                self._lock = open(path, "xb")  # noqa: SIM115 - held until the file is in place
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                if os.path.exists(path):  # else another run took it for a leftover just before it was locked
                    self._path = path
        except OSError as error:
            where = f" by way of {folder}: set TMPDIR" if self._piped else ""
            raise OutputError(f"{self.name}: cannot be written{where} ({error.strerror})") from None

    def write_text(self, text: str) -> None:
        """Write the whole content as text."""
        self.write_bytes(text.encode())

    def write_bytes(self, content: bytes) -> None:
        """Write the whole content."""
        if self._piped:
            self._content = content
            return
        try:
            with open(self.path, "wb") as stream:
                stream.write(content)
        except OSError as error:
            raise cannot_write(self.name, error) from None

    def commit(self) -> None:
        """Put the content in its place."""
        try:
            if self._piped:
                self._copy_out()
            elif self._lock is not None:
                self._rename()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise cannot_write(self.name, error) from None
        self._committed = not self._piped

    def _copy_out(self) -> None:
        with contextlib.ExitStack() as files:
            content: IO[bytes]
            content = io.BytesIO(self._content) if self._content is not None else open(self.path, "rb")  # noqa: SIM115
            files.enter_context(content)
            if self._remote:
                remote.check_free(self.target, self._force)
                remote.upload(content, self.target)
            elif self.target != STDOUT:
                shutil.copyfileobj(content, files.enter_context(open(self.target, "wb")), 1 << 20)
            elif sys.stdout is None:
                raise OutputError("standard output: it is closed; name a file with `output`")
            else:
                shutil.copyfileobj(content, sys.stdout.buffer, 1 << 20)
                sys.stdout.buffer.flush()

    def _rename(self) -> None:
        assert self._lock is not None
        os.fsync(self._lock.fileno())
        if os.path.lexists(self.final):
            if not self._force:
                raise OutputError(f"{self.target}: it has come to exist meanwhile; use `force=True` to overwrite")
            os.chmod(self.path, stat.S_IMODE(self.final.stat().st_mode))
        os.replace(self.path, self.final)

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unclaim()
        if self._lock is not None:
            if not self._committed:
                with contextlib.suppress(OSError):
                    os.unlink(self.path)
            self._lock.close()

    def _unclaim(self) -> None:
        _claimed.discard(self.target if self._piped else str(self.final))


_STDOUT_NAMES = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
_claimed: set[str] = set()
"""Targets that are being written by this process."""


def _claim(target: str, name: str) -> None:
    """Two outputs in one place would overwrite each other."""
    if target in _claimed:
        raise OutputError(f"{name}: it is named for two outputs; give each its own file")
    _claimed.add(target)


def _hidden_name(name: str) -> str:
    """A name beside the target's that fits where the target's fits."""
    mark = f"{_MARK}{secrets.token_hex(4)}"
    return f".{_shortened(name)}{mark}"


def _shortened(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:200])


def check_free(target: str, force: bool) -> None:
    """Raise unless a file may be written here."""
    final = os.path.realpath(target)
    folder = os.path.dirname(final)
    if os.path.isdir(final):
        raise OutputError(f"{target}: it is a directory; name a file in it")
    if os.path.lexists(final) and not force:
        raise OutputError(f"{target}: it exists already; use `force=True` to overwrite")
    check_folder(target, folder)


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


def clear_leftovers(folder: Path, name: str) -> None:
    """Remove what a killed run left for this target: hidden files and folders that nobody holds a lock on."""
    with contextlib.suppress(OSError):
        for path in folder.glob(f".{_escaped(_shortened(name))}{_MARK}*"):
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


def _is_pipe(target: str) -> bool:
    return os.path.exists(target) and stat.S_ISFIFO(os.stat(target).st_mode)


def _is_device(target: str) -> bool:
    return os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target)


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
        if os.path.lexists(self.final):
            if not self.final.is_dir():
                raise OutputError(f"{target}: it exists and is not a directory; choose another with `output`")
            if any(self.final.iterdir()) and not force:
                raise OutputError(f"{target}: the directory exists and is not empty; use `force=True` to replace it")
            _check_replaceable(target, self.final)
        check_folder(self.target, str(self.final.parent))
        clear_leftovers(self.final.parent, self.final.name)
        self.path = self.final.parent / _hidden_name(self.final.name)
        try:
            self.path.mkdir()
            self._lock = os.open(self.path, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError as error:
            raise cannot_write(target, error) from None

    @property
    def root(self) -> str:
        """Where workers write the files."""
        return str(self.path)

    def expect(self, relative: Iterable[str]) -> None:
        """Be told the files of the finished dataset; here whatever has been written belongs to it."""

    def check_apart(self, inputs: Iterable[str]) -> None:
        """Raise when an input lies in the directory that is to be replaced."""
        for path in inputs:
            if os.path.realpath(path).startswith(f"{self.final}{os.sep}"):
                raise OutputError(f"{self.target}: the input {path} lies in it; choose another directory with `output`")

    def commit(self) -> None:
        """Rename the directory to its final name; one that was there before goes away afterwards."""
        old = self.final.parent / _hidden_name(self.final.name)
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


def _check_replaceable(target: str, folder: Path) -> None:
    """`force=True` replaces a directory of masks, never somebody's home."""
    for _, _, names in os.walk(folder):
        other = next(
            (name for name in names if not name.endswith(".parquet") and not name.startswith(("_", "."))), None
        )
        if other is not None:
            raise OutputError(
                f"{target}: the directory holds other files than masks ({other}), so it will not be replaced; "
                "choose another with `output`"
            )


@contextlib.contextmanager
def prepare_directory(target: str) -> Iterator[None]:
    """Make a directory for outputs if it is missing; gone again if nothing came to be in it."""
    if is_uri(target):  # object storage has no directories
        yield
        return
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
