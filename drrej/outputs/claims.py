"""What this process is writing: no two outputs in one place, and no input where an output goes.

Every output claims its place when it is made and gives it up when it is left. Whoever opens inputs asks `check_inputs`.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import stat
import sys
from collections.abc import Iterable
from typing import IO, Any, Protocol

from drrej.data.files import DumpFile
from drrej.data.uris import is_uri
from drrej.errors import OutputError
from drrej.records import dataclass

Inode = tuple[int, int]
"""Device and number: the same for every name of a file."""


@dataclass(frozen=True)
class Input:
    """A file that a command reads: by its paths and inode, or by its place in object storage."""

    name: str
    paths: tuple[str, ...] = ()
    inode: Inode | None = None
    storage: tuple[Any, str] | None = None

    @classmethod
    def of(cls, file: DumpFile | str) -> Input:
        """What is known of a part of a dump, or of any other file or URI."""
        part = file if isinstance(file, DumpFile) else DumpFile(file, file, "", uri=file if is_uri(file) else None)
        if part.uri is not None:
            return cls._stored(part, file)
        if part.name == "standard input":  # `path` is a copy
            return cls(part.name, (), inode_of(descriptor_of(sys.stdin)))
        folder, name = os.path.split(part.path)
        path = os.path.join(_real(folder), name)
        paths = (path, os.path.realpath(path)) if os.path.islink(path) else (path,)
        return cls(part.name, paths, inode_of(path))

    @classmethod
    def _stored(cls, part: DumpFile, file: DumpFile | str) -> Input:
        import pyarrow.fs as pafs

        assert part.uri is not None
        filesystem, path = pafs.FileSystem.from_uri(part.uri)
        path = part.path if isinstance(file, DumpFile) else path
        if filesystem.type_name == "local":
            return cls.of(DumpFile(path, part.name, part.mask_path))
        return cls(part.name, storage=(filesystem, path))


class Output(Protocol):
    """An output as far as it matters here: what was named, and what messages call it."""

    @property
    def target(self) -> str:
        """The path or URI that was named."""

    @property
    def name(self) -> str:
        """For messages."""


class Place(Protocol):
    """Where an output goes."""

    @property
    def key(self) -> str:
        """The same for two outputs that would overwrite each other."""

    def conflict(self, file: Input) -> str | None:
        """What is wrong if this file is an input, in words that follow the output's name; None if nothing is."""


_real = functools.lru_cache(os.path.realpath)
"""Of a folder: the files of a dump share a few."""

_claimed: dict[str, tuple[str, Place]] = {}


def claim(place: Place, name: str) -> None:
    """Raise when another output goes to the same place."""
    if place.key in _claimed:
        raise OutputError(f"{name}: it is named for two outputs; give each its own file")
    _claimed[place.key] = name, place


def release(place: Place) -> None:
    """Give up a place."""
    if place.key in _claimed and _claimed[place.key][1] is place:
        del _claimed[place.key]


def check_inputs(files: Iterable[DumpFile | str]) -> None:
    """Raise when an output that is being written would replace one of these inputs."""
    if not _claimed:
        return
    _real.cache_clear()
    for file in files:
        source = Input.of(file)
        for name, place in _claimed.values():
            wrong = place.conflict(source)
            if wrong is not None:
                raise OutputError(f"{name}: {wrong}")


def check_outside(arguments: Iterable[str], output: Output) -> None:
    """Raise when a mask would lie in a directory that is read, where the next run would take it for a dump."""
    target = output.target
    if target == "-" or (is_uri(target) and not any(is_uri(argument) for argument in arguments)):
        return
    place = target.rstrip("/") if is_uri(target) else os.path.realpath(target)
    for argument in arguments:
        if is_uri(argument) != is_uri(target):
            continue
        folder = argument.rstrip("/") if is_uri(argument) else os.path.realpath(argument)
        inside = place.removeprefix(f"{folder}/") if place.startswith(f"{folder}/") else ""
        if inside and not any(piece.startswith(("_", ".")) for piece in inside.split("/")) and _is_folder(argument):
            raise OutputError(
                f"{output.name}: it lies in the input {argument}, and the next run would read it as a dump; choose "
                "another with `output`"
            )
        if not is_uri(argument) and not os.path.lexists(argument) and _matches(place, argument):
            raise OutputError(
                f"{output.name}: the next run would read it as a dump, because the pattern {argument} matches it; "
                "choose another with `output`"
            )


def _is_folder(argument: str) -> bool:
    return is_uri(argument) or os.path.isdir(argument)


def _matches(place: str, pattern: str) -> bool:
    """Whether a path is among those that a glob names."""
    return _fits(place.split("/"), os.path.join(os.path.realpath("."), pattern).split("/"))


def _fits(pieces: list[str], patterns: list[str]) -> bool:
    if not patterns or not pieces:
        return not patterns and not pieces
    if patterns[0] == "**":
        return _fits(pieces, patterns[1:]) or _fits(pieces[1:], patterns)
    return fnmatch.fnmatchcase(pieces[0], patterns[0]) and _fits(pieces[1:], patterns[1:])


def descriptor_of(stream: IO[str] | None) -> int | None:
    """The descriptor behind standard input or output, if there is one."""
    try:
        return None if stream is None else stream.fileno()
    except (OSError, ValueError):
        return None


def inode_of(file: str | int | None) -> Inode | None:
    """The inode of a regular file, by path or descriptor."""
    try:
        status = None if file is None else os.stat(file)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if status is not None and stat.S_ISREG(status.st_mode) else None


@dataclass(frozen=True)
class FilePlace:
    """A file on this machine, or the file behind an open descriptor such as standard output."""

    key: str
    path: str | None
    inode: Inode | None
    updates: str | None = None

    def conflict(self, file: Input) -> str | None:
        """An input with the same path or inode, hard links included, would be lost; but for the one it updates."""
        if file.name == self.updates:
            return None
        same = self.path in file.paths or (self.inode is not None and self.inode == file.inode)
        return f"the input {file.name} is the same file and would be lost; {_ELSEWHERE}" if same else None


@dataclass(frozen=True)
class ObjectPlace:
    """An object, or with a folder all that lies below it."""

    key: str
    filesystem: Any
    path: str
    folder: bool = False
    updates: str | None = None

    def conflict(self, file: Input) -> str | None:
        """An input with the same name in the same store would be lost; but for the one it updates."""
        if file.storage is None or file.name == self.updates:
            return None
        filesystem, path = file.storage
        if not filesystem.equals(self.filesystem):
            return None
        if self.folder:
            return _lies_in_it(file) if path.startswith(f"{self.path}/") else None
        return (
            f"the input {file.name} is the same object and would be lost; {_ELSEWHERE}" if path == self.path else None
        )


@dataclass(frozen=True)
class FolderPlace:
    """A directory on this machine, which is replaced with all that is in it."""

    key: str
    path: str

    def conflict(self, file: Input) -> str | None:
        """An input in the directory would be lost, by whatever name it was given."""
        inside = any(path.startswith(f"{self.path}{os.sep}") for path in file.paths)
        return _lies_in_it(file) if inside or file.inode in self._inodes else None

    @functools.cached_property
    def _inodes(self) -> set[Inode | None]:
        found = (os.path.join(folder, name) for folder, _, names in os.walk(self.path) for name in names)
        return {inode_of(path) for path in found} - {None}


def _lies_in_it(file: Input) -> str:
    return f"the input {file.name} lies in it; choose another directory with `output`"


_ELSEWHERE = "choose another with `output`"
