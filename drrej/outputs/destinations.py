"""A file that appears whole or not at all, whatever its destination is; and a state that runs replace one by one.

A regular file grows beside its target and is renamed. Standard output, FIFOs and object storage get their content at
the end; other devices (`/dev/null`) are written directly. Every output claims its place while it is open, so that no
two are in one place, and no input where an output goes.
"""

from __future__ import annotations

import contextlib
import fnmatch
import io
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Any, Literal

import pyarrow.fs as pafs
from msgspec import Struct

from drrej.data.files import DumpFile, is_uri, local_path
from drrej.data.problems import redacted
from drrej.errors import OutputError
from drrej.outputs.atomic import HiddenFile, check_folder, locked, remove_if_empty, writing

STDOUT = "-"
_STDOUT_NAMES = (STDOUT, "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


class OutputFile(contextlib.AbstractContextManager["OutputFile"]):
    """A file to be written whole: `path` takes the content, `commit` puts it in place.

    It is made before any work, so that a place that cannot be written is known at once; leaving the `with` block
    without `commit` throws away what was written. `updates` is an input of which the output is a later state, such as
    a rejector: it may be replaced without `force`. `name` is for messages, `kind` tells what is at the target: content
    stays there under its name only if that is a file or an object.
    """

    def __init__(self, target: str, force: bool = False, updates: str | None = None) -> None:
        self.target = STDOUT if target in _STDOUT_NAMES else target
        self.name = "standard output" if self.target == STDOUT else redacted(target)
        self.kind = _kind_of(self.target)
        self._force = force or (updates is not None and _absolute(updates) == _absolute(target))
        self._content: bytes | None = None
        self._hidden: HiddenFile | None = None
        with contextlib.ExitStack() as stack, writing(self.name):
            if self.kind != "device":
                to_stdout = self.target == STDOUT
                place = Place.of_stream(self.name, sys.stdout) if to_stdout else Place.of(self.name, self.target)
                stack.enter_context(claimed(place, updates))
            self._check_free()
            if self.kind == "file":
                self._hidden = HiddenFile(os.path.realpath(target))
            self._claim = stack.pop_all()

    @property
    def path(self) -> str:
        """Where the content is to be written: for streams and objects a scratch file."""
        if self.kind == "device":
            return self.target
        if self._hidden is None:
            folder = tempfile.gettempdir()
            try:
                self._hidden = HiddenFile(os.path.join(folder, "drrej-output"))
            except OSError as error:
                reason = f"by way of {folder}: set TMPDIR ({error.strerror})"
                raise OutputError(f"{self.name}: cannot be written {reason}") from None
        return self._hidden.path

    def write_text(self, text: str) -> None:
        """Write the whole content as text."""
        self.write_bytes(text.encode())

    def write_bytes(self, content: bytes) -> None:
        """Write the whole content; streams and objects need no scratch file for it."""
        if self.kind in ("stream", "object"):
            self._content = content
            return
        with writing(self.name), open(self.path, "wb") as stream:
            stream.write(content)

    def commit(self) -> None:
        """Put the content in its place."""
        with writing(self.name):
            if self.kind in ("stream", "object"):
                with open(self.path, "rb") if self._content is None else io.BytesIO(self._content) as content:
                    self._send(content)
            elif self._hidden is not None:
                try:
                    self._hidden.put(self._force)
                except FileExistsError:
                    raise appeared(self.name, "overwrite") from None

    def _check_free(self) -> None:
        """Raise unless a file may be written here."""
        final = os.path.realpath(self.target)
        folder, there = os.path.isdir(final), os.path.lexists(final)
        if self.kind == "object":
            filesystem, key = open_uri(self.target)
            kind = filesystem.get_file_info(key).type
            folder, there = kind == pafs.FileType.Directory, kind != pafs.FileType.NotFound
        elif self.kind != "file":
            return
        if folder:
            raise OutputError(f"{self.name}: it is a directory; name a file in it")
        if there and not self._force:
            raise OutputError(f"{self.name}: it exists already; use `force=True` to overwrite")
        if self.kind == "file":
            check_folder(self.name, os.path.dirname(final))

    def _send(self, content: IO[bytes]) -> None:
        """Copy complete content to a stream or an object: who reads there gets all or nothing."""
        if self.kind == "object":
            self._check_free()
            upload(content, *open_uri(self.target))
            return
        to_stdout = self.target == STDOUT
        if to_stdout and sys.stdout is None:
            raise OutputError("standard output: it is closed; name a file with `output`")
        with contextlib.nullcontext(sys.stdout.buffer) if to_stdout else open(self.target, "wb") as stream:
            shutil.copyfileobj(content, stream, 1 << 20)
            stream.flush()

    def __exit__(self, *_: object) -> None:
        self._claim.close()
        if self._hidden is not None:
            self._hidden.close()


def _kind_of(target: str) -> Literal["file", "object", "stream", "device"]:
    if is_uri(target):
        return "object"
    if target == STDOUT or (os.path.exists(target) and stat.S_ISFIFO(os.stat(target).st_mode)):
        return "stream"
    regular = not os.path.exists(target) or os.path.isfile(target) or os.path.isdir(target)
    return "file" if regular else "device"


def _absolute(target: str) -> str:
    return target.rstrip("/") if is_uri(target) else os.path.realpath(target)


def appeared(name: str, what: str) -> OutputError:
    """The error of a target that was free when the work began."""
    return OutputError(f"{name}: another process has written it in the meantime; use `force=True` to {what} it")


# Object storage, through pyarrow's filesystems. An object appears whole: it is uploaded from complete content. There is
# no rename and no lock: whether a target is free is looked at before the work and before the upload.


def open_uri(target: str) -> tuple[pafs.FileSystem, str]:
    """The filesystem and the key. A missing bucket is an error: pyarrow would try to make it."""
    filesystem, key = pafs.FileSystem.from_uri(target)
    if filesystem.type_name in ("s3", "gcs"):
        bucket = key.split("/", 1)[0]
        if filesystem.get_file_info(bucket).type == pafs.FileType.NotFound:
            raise OutputError(f"{redacted(target)}: there is no bucket '{bucket}'; create it first")
    return filesystem, key.rstrip("/")


def upload(content: IO[bytes], store: pafs.FileSystem, key: str) -> None:
    """Copy complete content to an object."""
    with store.open_output_stream(key) as stream:
        shutil.copyfileobj(content, stream, 8 << 20)


# The state of a monitor: a document on this machine that each run replaces


@contextlib.contextmanager
def locked_state(target: str) -> Iterator[OutputFile]:
    """Where the next state goes; no other run may work on it until the end."""
    name, final = redacted(target), _state_path(target)
    check_folder(name, os.path.dirname(final))
    with contextlib.ExitStack() as stack:
        with writing(name):
            busy = f"{name}: it is locked by another run; try again when that is done"
            stack.enter_context(locked(final, busy))
        yield stack.enter_context(OutputFile(target, force=True))


def _state_path(target: str) -> str:
    if target == STDOUT or _kind_of(target) != "file" or os.path.isdir(target):
        raise OutputError(f"{redacted(target)}: a state must be a file on this machine: nothing else can be locked")
    return os.path.realpath(target)


def read_state(target: str) -> bytes | None:
    """The text of a state; None if there is none yet."""
    try:
        with open(_state_path(target), "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputError(f"{redacted(target)}: cannot be read ({error.strerror or error})") from None


@contextlib.contextmanager
def prepare_directory(target: str) -> Iterator[None]:
    """Make a directory for outputs if it is missing; gone again if nothing came to be in it."""
    if is_uri(target) or os.path.isdir(target):  # object storage has no directories
        yield
        return
    try:
        os.mkdir(target)
    except OSError as error:
        raise OutputError(f"{target}: the directory cannot be made ({error.strerror})") from None
    try:
        yield
    finally:
        remove_if_empty(target)


# Outputs and inputs in one place

Inodes = frozenset[tuple[int, int]]
"""Device and number: the same for every name of a file."""


class Place(Struct, frozen=True):
    """Where an input or output is: the paths and inode of a file, or its key in an object store.

    A folder is a place with all that lies in it.
    """

    name: str
    paths: tuple[str, ...] = ()
    inodes: Inodes = frozenset()
    store: Any = None
    folder: bool = False

    @classmethod
    def of(cls, name: str, target: str, path: str | None = None, folder: bool = False) -> Place:
        """Of a file, or of all in a folder; of a URI `path` is where its filesystem has it if the URI does not say.

        A link is at its own path, which may lie in a folder that goes, and at that of its target.
        """
        if is_uri(target):
            store, found = pafs.FileSystem.from_uri(target)
            key = (path or found).rstrip("/")
            if store.type_name != "local":
                return cls(name, (key,), store=store, folder=folder)
            target = key
        parent, last = os.path.split(target)
        own = os.path.join(os.path.realpath(parent), last)
        paths = (own, os.path.realpath(own)) if os.path.islink(own) else (own,)
        inside = (os.path.join(at, file) for at, _, files in os.walk(target) for file in files)
        return cls(name, paths, frozenset().union(*map(_inodes, inside if folder else [own])), folder=folder)

    @classmethod
    def of_stream(cls, name: str, stream: IO[str] | None) -> Place:
        """Of the file behind standard input or output, if there is one."""
        with contextlib.suppress(OSError, ValueError):
            if stream is not None:
                return cls(name, (name,), _inodes(stream.fileno()))
        return cls(name, (name,))

    def holds(self, other: Place) -> bool:
        """Whether the other is the same file, or lies in this folder."""
        if (self.store is None) != (other.store is None) or (self.store and not self.store.equals(other.store)):
            return False
        inside = self.folder and any(path.startswith(f"{own}/") for own in self.paths for path in other.paths)
        return inside or bool(self.inodes & other.inodes) or not set(self.paths).isdisjoint(other.paths)


def _inodes(file: str | int) -> Inodes:
    with contextlib.suppress(OSError):
        status = os.stat(file)
        if stat.S_ISREG(status.st_mode):
            return frozenset({(status.st_dev, status.st_ino)})
    return frozenset()


_claimed: list[tuple[Place, str | None]] = []


@contextlib.contextmanager
def claimed(place: Place, updates: str | None = None) -> Iterator[None]:
    """Keep a place for an output; raises when another output goes there. `updates` is an input that it may replace."""
    if any(place.holds(other) or other.holds(place) for other, _ in _claimed):
        raise OutputError(f"{place.name}: it is named as two outputs; give each its own file")
    _claimed.append((place, updates))
    try:
        yield
    finally:
        _claimed[:] = [claim for claim in _claimed if claim[0] is not place]


def check_inputs(files: Iterable[DumpFile | str]) -> None:
    """Raise when an output that is being written would replace one of these inputs."""
    if not _claimed:
        return
    for file in files:
        if isinstance(file, str):
            source = Place.of(file, file)
        elif file.name == "standard input":  # `path` is a copy
            source = Place.of_stream(file.name, sys.stdin)
        else:
            source = Place.of(file.name, file.uri or file.path, file.path)
        for place, updates in _claimed:
            if source.name == updates or not place.holds(source):
                continue
            if place.folder:
                wrong = "lies in it; choose another directory with `output`"
            else:
                kind = "file" if place.store is None else "object"
                wrong = f"is the same {kind} and would be lost; choose another with `output`"
            raise OutputError(f"{place.name}: the input {source.name} {wrong}")


def check_outside(arguments: Iterable[str], target: str, name: str) -> None:
    """Raise when a mask would lie in a directory that is read, where the next run would take it for a dump."""
    target = local_path(target)
    place = _absolute(target)
    for argument in map(local_path, arguments):
        if target == "-" or is_uri(argument) != is_uri(target):
            continue
        inside = place.removeprefix(f"{_absolute(argument)}/")
        read = inside != place and not any(piece.startswith(("_", ".")) for piece in inside.split("/"))
        if read and (is_uri(argument) or os.path.isdir(argument)):
            raise OutputError(
                f"{name}: it lies in the input {argument}, and the next run would read it as a dump; choose another "
                "with `output`"
            )
        pattern = os.path.join(os.path.realpath("."), argument)
        if not is_uri(argument) and not os.path.lexists(argument) and _fits(place.split("/"), pattern.split("/")):
            raise OutputError(
                f"{name}: the next run would read it as a dump, because the pattern {argument} matches it; choose "
                "another with `output`"
            )


def _fits(pieces: list[str], patterns: list[str]) -> bool:
    """Whether a path is among those that a glob names."""
    if not patterns or not pieces:
        return not patterns and not pieces
    if patterns[0] == "**":
        return _fits(pieces, patterns[1:]) or _fits(pieces[1:], patterns)
    return fnmatch.fnmatchcase(pieces[0], patterns[0]) and _fits(pieces[1:], patterns[1:])
