"""From what the user typed to an ordered list of parquet files: the parts of a dump."""

from __future__ import annotations

import atexit
import glob
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from drrej.errors import DumpError

STDIN = "-"


@dataclass(frozen=True)
class Part:
    """One parquet file of a dump.

    `name` is what messages call it, `relative` its path below the directory it was found in, `hive` the columns that
    its directories spell (`date=2026-01-31/`).
    """

    path: str
    name: str
    relative: str
    hive: tuple[tuple[str, str], ...] = ()
    uri: str | None = None

    def filesystem(self) -> pafs.FileSystem:
        """The filesystem that opens `path`."""
        if self.uri is None:
            return pafs.LocalFileSystem()
        filesystem, _ = pafs.FileSystem.from_uri(self.uri)
        return filesystem


def find_parts(arguments: Sequence[str]) -> list[Part]:
    """The parts of a dump: arguments in the order given, directories and globs sorted by path."""
    if not arguments:
        raise DumpError("no dump given; name a parquet file or a directory of them")
    parts: list[Part] = []
    for argument in arguments:
        parts += _find(argument)
    return parts


def _find(argument: str) -> list[Part]:
    if argument == STDIN:
        return [_spooled(sys.stdin.buffer.fileno(), "standard input")]
    if "://" in argument:
        return _find_uri(argument)
    if os.path.isdir(argument):
        return _find_in_directory(argument)
    if not os.path.exists(argument):
        matches = sorted(glob.glob(argument, recursive=True)) if glob.has_magic(argument) else []
        if not matches:
            kind = "the pattern matches no file" if glob.has_magic(argument) else "no such file or directory"
            raise DumpError(f"{argument}: {kind}")
        return [part for match in matches for part in _find(match)]
    try:
        regular = stat.S_ISREG(os.stat(argument).st_mode)
        if not regular:  # a FIFO or <(...): parquet needs to seek
            with open(argument, "rb") as stream:
                return [_spooled(stream.fileno(), argument)]
    except OSError as error:
        raise DumpError(f"{argument}: cannot be read ({error.strerror})") from None
    return [Part(argument, argument, os.path.basename(argument), _hive(argument))]


def _find_in_directory(directory: str) -> list[Part]:
    found: list[Part] = []

    def fail(error: OSError) -> None:
        raise DumpError(f"{error.filename}: cannot be listed ({error.strerror})")

    for folder, folders, files in os.walk(directory, onerror=fail, followlinks=True):
        folders[:] = sorted(f for f in folders if not _hidden(f))
        for file in files:
            if not _hidden(file) and file.endswith(".parquet"):
                path = os.path.join(folder, file)
                relative = PurePosixPath(os.path.relpath(path, directory).replace(os.sep, "/"))
                found.append(Part(path, path, str(relative), _hive(str(relative.parent) + "/")))
    if not found:
        raise DumpError(f"{directory}: no .parquet file in this directory")
    return sorted(found, key=lambda part: part.relative)


def _find_uri(uri: str) -> list[Part]:
    try:
        filesystem, path = pafs.FileSystem.from_uri(uri)
        info = filesystem.get_file_info(path)
        if info.type == pafs.FileType.NotFound:
            raise DumpError(f"{uri}: no such file or directory")
        if info.type != pafs.FileType.Directory:
            return [Part(path, uri, PurePosixPath(path).name, _hive(path), uri=uri)]
        below = filesystem.get_file_info(pafs.FileSelector(path, recursive=True))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise DumpError(f"{uri}: cannot be opened ({one_line(error)})") from None
    found = []
    for entry in below:
        relative = PurePosixPath(entry.path).relative_to(path)
        visible = not any(_hidden(piece) for piece in relative.parts)
        if entry.type == pafs.FileType.File and visible and relative.suffix == ".parquet":
            name = f"{uri.rstrip('/')}/{relative}"
            found.append(Part(entry.path, name, str(relative), _hive(str(relative.parent) + "/"), uri=uri))
    if not found:
        raise DumpError(f"{uri}: no .parquet file in this directory")
    return sorted(found, key=lambda part: part.relative)


def _hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def _hive(path: str) -> tuple[tuple[str, str], ...]:
    """key=value folders of a path."""
    folders = path.replace(os.sep, "/").split("/")[:-1]
    pairs = (folder.split("=", 1) for folder in folders if "=" in folder)
    return tuple((unquote(key), unquote(value)) for key, value in pairs)


def _spooled(descriptor: int, name: str) -> Part:
    """Copy what cannot seek to a temporary file that ends with the process."""
    handle, path = tempfile.mkstemp(prefix="drrej-", suffix=".parquet")
    atexit.register(_remove, path)
    with open(handle, "wb") as spool, open(descriptor, "rb", closefd=False) as stream:
        shutil.copyfileobj(stream, spool, 1 << 20)
        if not spool.tell():
            raise DumpError(f"{name}: it is empty; did the command before the pipe fail?")
    return Part(path, name, "stdin.parquet")


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)


def one_line(error: BaseException) -> str:
    """The message of someone else's exception on one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
