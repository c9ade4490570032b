"""One file of a dump: where it is, what it is called, and what it was when the dump was opened."""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import itertools
import os
import shutil
import tempfile
from collections import deque
from typing import Any

import pyarrow.fs as pafs

from drrej.data.uris import redacted
from drrej.errors import DumpError
from drrej.records import dataclass


@dataclass(frozen=True)
class Identity:
    """What changes when a file is written again: its size, and its time or the tag that a store gives it.

    A file on this machine that was replaced by another also has another inode. Elsewhere devices have other numbers,
    and so may inodes: they are compared where the device is the same.
    """

    size: int
    version: int | str
    device: int | None = None
    inode: int | None = None

    def same_as(self, other: Identity) -> bool:
        """Whether two looks found one file with one content."""
        if (self.size, self.version) != (other.size, other.version):
            return False
        return self.device != other.device or self.inode == other.inode


@dataclass(frozen=True)
class RangeIndex:
    """The index of a pandas frame that is a mere range, as pandas notes it."""

    start: int
    stop: int
    step: int
    name: str | None = None


@dataclass(frozen=True)
class ReaderOptions:
    """What the user says of which rows of a file are meant, for formats that leave it open."""

    filter: str | None = None


@dataclass(frozen=True)
class DumpFile:
    """One file of a dump.

    `name` is what messages call it, `mask_path` the path of its mask in a directory of masks, `hive` the columns that
    its directories spell (`date=2026-01-31/`), `identity` what it was when the dump was opened, `index` its index where
    that is a range of pandas. `asked` is what the user says of its rows, `ending` what its name should end in where
    that tells nothing.
    """

    path: str
    name: str
    mask_path: str
    hive: tuple[tuple[str, str | None], ...] = ()
    uri: str | None = None
    identity: Identity | None = None
    index: RangeIndex | None = None
    asked: ReaderOptions = ReaderOptions()
    ending: str = ""

    def ends_with(self, endings: tuple[str, ...]) -> bool:
        """Whether its name ends so, or should."""
        return (self.ending or self.path.lower()).endswith(endings)

    def filesystem(self) -> pafs.FileSystem:
        """The filesystem that opens `path`."""
        if self.uri is None:
            return pafs.LocalFileSystem()
        return _filesystem(self.uri, tuple(sorted(item for item in os.environ.items() if item[0].startswith("AWS_"))))


@functools.lru_cache(maxsize=16)
def _filesystem(uri: str, environment: tuple[tuple[str, str], ...]) -> pafs.FileSystem:  # noqa: ARG001 - part of the key
    """One client for all objects of a dump: another would have to make connections of its own."""
    filesystem, _ = pafs.FileSystem.from_uri(uri)
    return filesystem


def one_line(error: BaseException) -> str:
    """The message of someone else's exception on one line."""
    return redacted(" ".join(str(error).split()))[:300] or type(error).__name__


def identity_of(part: DumpFile, stream: Any = None) -> Identity:
    """The identity of a part as it is now; of an object by way of its open stream, if there is one."""
    if part.uri is None:
        status = os.stat(part.path)
        return Identity(status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino)
    if stream is None:
        stream = part.filesystem().open_input_file(part.path)
    tag = stream.metadata().get("ETag")
    if tag is not None:
        return Identity(stream.size(), tag.decode())
    info = part.filesystem().get_file_info(part.path)
    return Identity(info.size, info.mtime_ns or 0)


def check_unchanged(part: DumpFile, found: Identity | None = None) -> None:
    """Raise unless a part, as found now, is what it was when the dump was opened."""
    if part.identity is None:
        return
    try:
        same = part.identity.same_as(found or identity_of(part))
    except OSError:  # gone
        same = False
    if not same:
        raise DumpError(
            f"{part.name}: the file was changed, replaced or removed while it was being read; "
            "wait until it is complete, then run the command again"
        )


_MOST_CONVERTED = 1024
"""Files in the temporary folder that can be made again; the oldest go first."""
_temporary: list[tuple[int, str]] = []
_converted: deque[str] = deque()
_numbers = itertools.count()
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def temporary_path(lasting: bool = False) -> str:
    """A new path in a folder that ends with this process; unless it is `lasting`, the file may go before."""
    if not _temporary or _temporary[-1][0] != os.getpid():
        _temporary.append((os.getpid(), tempfile.mkdtemp(prefix="drrej-")))
        _converted.clear()  # of the process that this is a copy of
    path = os.path.join(_temporary[-1][1], str(next(_numbers)))
    if not lasting:
        _converted.append(path)
        if len(_converted) > _MOST_CONVERTED:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_converted.popleft())
    return path


def no_room(name: str, error: OSError) -> DumpError:
    """The error of a file that cannot be copied or converted."""
    folder = tempfile.gettempdir()
    reason = os.strerror(error.errno or errno.ENOSPC)
    return DumpError(f"{name}: cannot be copied to {folder} ({reason}); set TMPDIR to a directory with room for it")


@atexit.register
def remove_temporary() -> None:
    """Remove the folder of this process, as its end does."""
    for process, folder in _temporary:
        if process == os.getpid():
            shutil.rmtree(folder, ignore_errors=True)
    _temporary.clear()
