"""The kinds of targets that a file can have.

A regular file is written beside its target under a hidden name and renamed when it is complete. Standard output, FIFOs
and object storage get their content at the end; other devices (`/dev/null`) are written directly.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import IO, Protocol

from drrej.data.uris import is_uri, redacted
from drrej.errors import OutputError
from drrej.outputs import remote
from drrej.outputs.claims import FilePlace, ObjectPlace, Place, claim, descriptor_of, inode_of, release
from drrej.outputs.hidden import HiddenFile, cannot_write, check_folder
from drrej.outputs.renames import rename_new

STDOUT = "-"


class Target(Protocol):
    """A kind of target."""

    name: str

    @property
    def path(self) -> str:
        """A file that takes the content."""

    def write(self, content: bytes) -> None:
        """Take the content from memory."""

    def put(self) -> None:
        """Put the content in its place."""

    def leave(self) -> None:
        """Give the place up; content that is not in it goes away."""


def target_of(target: str, force: bool, updates: str | None) -> Target:
    """The kind that a target is."""
    if target == STDOUT or _is_pipe(target):
        return Stream(target)
    if is_uri(target):
        return StoredObject(target, force, updates)
    if os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target):
        return Device(target)
    return RegularFile(target, force, updates)


def _is_pipe(target: str) -> bool:
    return os.path.exists(target) and stat.S_ISFIFO(os.stat(target).st_mode)


class RegularFile:
    """A file beside its target, renamed when it is complete; symbolic links are followed."""

    def __init__(self, target: str, force: bool, updates: str | None) -> None:
        self.name = target
        self._final = os.path.realpath(target)
        self._force = force or (updates is not None and os.path.realpath(updates) == self._final)
        self._claim = FilePlace(self._final, self._final, inode_of(self._final), updates)
        claim(self._claim, self.name)
        try:
            check_free(target, self._force)
            self._hidden = HiddenFile(Path(self._final).parent, os.path.basename(self._final))
        except OSError as error:
            release(self._claim)
            raise cannot_write(self.name, error) from None
        except OutputError:
            release(self._claim)
            raise

    @property
    def path(self) -> str:
        """Where the content is written."""
        return self._hidden.path

    def write(self, content: bytes) -> None:
        """Take the content from memory."""
        _write(self.path, content)

    def put(self) -> None:
        """Put the content in its place."""
        self._hidden.sync()
        if self._force:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(self.path, stat.S_IMODE(os.stat(self._final).st_mode))
            os.replace(self.path, self._final)
            return
        try:
            rename_new(self.path, self._final)
        except FileExistsError:
            raise appeared(self.name, "overwrite") from None

    def leave(self) -> None:
        """Give the place up; content that is not in it goes away."""
        release(self._claim)
        self._hidden.close()


class _Delayed:
    """Content in memory or in a scratch file, until it can be copied to where it goes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._content: bytes | None = None
        self._scratch: HiddenFile | None = None

    @property
    def path(self) -> str:
        """The scratch file."""
        if self._scratch is None:
            folder = tempfile.gettempdir()
            try:
                self._scratch = HiddenFile(Path(folder), "drrej-output")
            except OSError as error:
                where = f" by way of {folder}: set TMPDIR"
                raise OutputError(f"{self._name}: cannot be written{where} ({error.strerror})") from None
        return self._scratch.path

    def write(self, content: bytes) -> None:
        """Keep the content."""
        self._content = content

    def open(self) -> IO[bytes]:
        """The content."""
        return io.BytesIO(self._content) if self._content is not None else open(self.path, "rb")

    def close(self) -> None:
        """Remove the scratch file."""
        if self._scratch is not None:
            self._scratch.close()


class Stream:
    """Standard output or a FIFO: the reader gets all of the content or nothing."""

    def __init__(self, target: str) -> None:
        self.name = "standard output" if target == STDOUT else target
        self._target = target
        self._delayed = _Delayed(self.name)
        descriptor = descriptor_of(sys.stdout) if target == STDOUT else None
        self._claim = FilePlace(target if target == STDOUT else os.path.realpath(target), None, inode_of(descriptor))
        claim(self._claim, self.name)

    @property
    def path(self) -> str:
        """Where the content is written."""
        return self._delayed.path

    def write(self, content: bytes) -> None:
        """Take the content from memory."""
        self._delayed.write(content)

    def put(self) -> None:
        """Put the content in its place."""
        with self._delayed.open() as content:
            if self._target != STDOUT:
                with open(self._target, "wb") as stream:
                    shutil.copyfileobj(content, stream, 1 << 20)
            elif sys.stdout is None:
                raise OutputError("standard output: it is closed; name a file with `output`")
            else:
                shutil.copyfileobj(content, sys.stdout.buffer, 1 << 20)
                sys.stdout.buffer.flush()

    def leave(self) -> None:
        """Give the place up; content that is not in it goes away."""
        release(self._claim)
        self._delayed.close()


class StoredObject:
    """An object in a store, uploaded in one piece."""

    def __init__(self, target: str, force: bool, updates: str | None) -> None:
        self.name = redacted(target)
        self._target = target
        self._force = force or updates == target
        self._delayed = _Delayed(self.name)
        with remote.told(target):
            filesystem, key = remote.parse(target)
        self._claim: Place = ObjectPlace(target, filesystem, key, updates=updates)
        if filesystem.type_name == "local":
            self._claim = FilePlace(target, os.path.realpath(key), inode_of(key), updates)
        claim(self._claim, self.name)
        try:
            remote.check_free(target, self._force)
        except OutputError:
            release(self._claim)
            raise

    @property
    def path(self) -> str:
        """Where the content is written."""
        return self._delayed.path

    def write(self, content: bytes) -> None:
        """Take the content from memory."""
        self._delayed.write(content)

    def put(self) -> None:
        """Put the content in its place."""
        with self._delayed.open() as content:
            remote.check_free(self._target, self._force)
            remote.upload(content, self._target)

    def leave(self) -> None:
        """Give the place up; content that is not in it goes away."""
        release(self._claim)
        self._delayed.close()


class Device:
    """A device such as /dev/null."""

    def __init__(self, target: str) -> None:
        self.name = self.path = target

    def write(self, content: bytes) -> None:
        """Take the content from memory."""
        _write(self.path, content)

    def put(self) -> None:
        """It is there already."""

    def leave(self) -> None:
        """Nothing to undo."""


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as stream:
        stream.write(content)


def check_free(target: str, force: bool) -> None:
    """Raise unless a file may be written here."""
    final = os.path.realpath(target)
    if os.path.isdir(final):
        raise OutputError(f"{target}: it is a directory; name a file in it")
    if os.path.lexists(final) and not force:
        raise OutputError(f"{target}: it exists already; use `force=True` to overwrite")
    check_folder(target, os.path.dirname(final))


def appeared(name: str, what: str) -> OutputError:
    """The error of a target that was free when the work began."""
    return OutputError(f"{name}: somebody else has written it meanwhile; use `force=True` to {what} it")
