"""What this process is writing: no two outputs in one place, and no input where an output goes.

Every output claims its place while it is open. Whoever opens inputs asks `check_inputs`.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from typing import IO, Any

from drrej.data.files import DumpFile
from drrej.data.uris import is_uri
from drrej.errors import OutputError
from drrej.records import dataclass

Inodes = frozenset[tuple[int, int]]
"""Device and number: the same for every name of a file."""


@dataclass(frozen=True)
class Place:
    """Where an input or output is: the paths and inode of a file, or its key in an object store.

    A folder is a place with all that lies in it.
    """

    name: str
    paths: tuple[str, ...] = ()
    inodes: Inodes = frozenset()
    store: Any = None
    folder: bool = False

    @classmethod
    def of_file(cls, name: str, path: str) -> Place:
        """Of a file on this machine: also its own path where that is a link, which may lie in a folder that goes."""
        folder, last = os.path.split(path)
        own = os.path.join(_real(folder), last)
        return cls(name, (own, os.path.realpath(own)) if os.path.islink(own) else (own,), _inodes(own))

    @classmethod
    def of_target(cls, name: str, path: str) -> Place:
        """Of a file on this machine that is written: links are followed."""
        return cls(name, (os.path.realpath(path),), _inodes(path))

    @classmethod
    def of_stream(cls, name: str, stream: IO[str] | None) -> Place:
        """Of the file behind standard input or output, if there is one."""
        try:
            return cls(name, (name,), _inodes(None if stream is None else stream.fileno()))
        except (OSError, ValueError):
            return cls(name, (name,))

    @classmethod
    def of_folder(cls, name: str, path: str) -> Place:
        """Of a directory on this machine."""
        files = (os.path.join(folder, file) for folder, _, files in os.walk(path) for file in files)
        return cls(name, (os.path.realpath(path),), frozenset().union(*map(_inodes, files)), folder=True)

    @classmethod
    def of_uri(cls, name: str, uri: str, path: str | None = None, folder: bool = False) -> Place:
        """Of an object, or of all below a URI; `path` is where its filesystem has it if the URI does not say."""
        import pyarrow.fs as pafs

        store, found = pafs.FileSystem.from_uri(uri)
        key = (path or found).rstrip("/")
        if store.type_name == "local":
            return cls.of_folder(name, key) if folder else cls.of_file(name, key)
        return cls(name, (key,), store=store, folder=folder)

    def holds(self, other: Place) -> bool:
        """Whether the other is the same file, or lies in this folder."""
        if (self.store is None) != (other.store is None) or (self.store and not self.store.equals(other.store)):
            return False
        inside = self.folder and any(path.startswith(f"{own}/") for own in self.paths for path in other.paths)
        return inside or bool(self.inodes & other.inodes) or not set(self.paths).isdisjoint(other.paths)


_real = functools.lru_cache(os.path.realpath)
"""Of a folder: the files of a dump share a few."""


def _inodes(file: str | int | None) -> Inodes:
    try:
        status = None if file is None else os.stat(file)
    except OSError:
        return frozenset()
    regular = status is not None and stat.S_ISREG(status.st_mode)
    return frozenset({(status.st_dev, status.st_ino)}) if status is not None and regular else frozenset()


_claimed: list[tuple[Place, str | None]] = []


@contextlib.contextmanager
def claimed(place: Place, updates: str | None = None) -> Iterator[None]:
    """Keep a place for an output; raises when another output goes there. `updates` is an input that it may replace."""
    if any(place.holds(other) or other.holds(place) for other, _ in _claimed):
        raise OutputError(f"{place.name}: it is named for two outputs; give each its own file")
    _claimed.append((place, updates))
    try:
        yield
    finally:
        _claimed[:] = [claim for claim in _claimed if claim[0] is not place]


def check_inputs(files: Iterable[DumpFile | str]) -> None:
    """Raise when an output that is being written would replace one of these inputs."""
    if not _claimed:
        return
    _real.cache_clear()
    for file in files:
        source = _input(file)
        for place, updates in _claimed:
            if source.name == updates or not place.holds(source):
                continue
            if place.folder:
                wrong = "lies in it; choose another directory with `output`"
            else:
                kind = "file" if place.store is None else "object"
                wrong = f"is the same {kind} and would be lost; choose another with `output`"
            raise OutputError(f"{place.name}: the input {source.name} {wrong}")


def _input(file: DumpFile | str) -> Place:
    if isinstance(file, str):
        return Place.of_uri(file, file) if is_uri(file) else Place.of_file(file, file)
    if file.uri is not None:
        return Place.of_uri(file.name, file.uri, file.path)
    if file.name == "standard input":  # `path` is a copy
        return Place.of_stream(file.name, sys.stdin)
    return Place.of_file(file.name, file.path)


def check_outside(arguments: Iterable[str], target: str, name: str) -> None:
    """Raise when a mask would lie in a directory that is read, where the next run would take it for a dump."""
    place = _absolute(target)
    for argument in arguments:
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


def _absolute(argument: str) -> str:
    return argument.rstrip("/") if is_uri(argument) else os.path.realpath(argument)


def _fits(pieces: list[str], patterns: list[str]) -> bool:
    """Whether a path is among those that a glob names."""
    if not patterns or not pieces:
        return not patterns and not pieces
    if patterns[0] == "**":
        return _fits(pieces, patterns[1:]) or _fits(pieces[1:], patterns)
    return fnmatch.fnmatchcase(pieces[0], patterns[0]) and _fits(pieces[1:], patterns[1:])
