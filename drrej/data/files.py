"""One file of a dump: where it is, what it was when the dump was opened, and what a reader tells of it."""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import itertools
import os
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
from msgspec import Struct, field

from drrej.data.problems import one_line
from drrej.errors import BadFileError, DumpError, ShortageError


class Identity(Struct, frozen=True):
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


RangeIndex = tuple[int, int, int, str | None]
"""The index of a pandas frame that is a mere range: start, stop, step and name, as pandas notes it."""


class DumpFile(Struct, frozen=True):
    """One file of a dump.

    `name` is what messages call it, `mask_path` the path of its mask in a directory of masks, `hive` the columns that
    its directories spell (`date=2026-01-31/`), `identity` what it was when the dump was opened, `index` its index where
    that is a range of pandas. `filter` names the answers that the user asks for, where a log has several, `ending` is
    what its name should end in where that tells nothing.
    """

    path: str
    name: str
    mask_path: str
    hive: tuple[tuple[str, str | None], ...] = ()
    uri: str | None = None
    identity: Identity | None = None
    index: RangeIndex | None = None
    filter: str | None = None
    ending: str = ""

    def ends_with(self, endings: tuple[str, ...]) -> bool:
        """Whether its name ends so, or should."""
        return (self.ending or self.path.lower()).endswith(endings)

    def filesystem(self) -> pafs.FileSystem:
        """The filesystem that opens `path`."""
        if self.uri is None:
            return pafs.LocalFileSystem()
        return _filesystem(self.uri, tuple(sorted(item for item in os.environ.items() if item[0].startswith("AWS_"))))


def is_uri(target: str) -> bool:
    """Whether a target is on a filesystem that pyarrow opens by URI."""
    return "://" in target


def local_path(target: str) -> str:
    """The path that a file:// URI names; any other target as it is."""
    return unquote(target.removeprefix("file://").partition("?")[0]) if target.startswith("file://") else target


@functools.lru_cache(maxsize=16)
def _filesystem(uri: str, environment: tuple[tuple[str, str], ...]) -> pafs.FileSystem:  # noqa: ARG001 - part of the key
    """One client for all objects of a dump: another would have to make connections of its own."""
    filesystem, _ = pafs.FileSystem.from_uri(uri)
    return filesystem


def identity_of(part: DumpFile, stream: Any = None) -> Identity:
    """The identity of a part as it is now; of an object by way of its open stream, if there is one."""
    if part.uri is None:
        status = os.stat(part.path)
        if not stat.S_ISREG(status.st_mode):  # to open a pipe may take for ever
            raise DumpError(f"{part.name}: it is not a regular file; name it by itself to have it read as a stream")
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
    except OSError as error:  # gone
        _check_shortage(part.name, error)
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
_SHORTAGES = (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO)
_MOST_MEMORY = 1 << 44
"""Only a damaged file asks for as many bytes."""


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


def no_room(name: str, error: OSError) -> ShortageError:
    """The error of a file that cannot be copied or converted."""
    folder = tempfile.gettempdir()
    reason = os.strerror(error.errno or errno.ENOSPC)
    return ShortageError(f"{name}: cannot be copied to {folder} ({reason}); set TMPDIR to a directory with room for it")


def _check_shortage(name: str, error: Exception) -> None:
    """Raise if a file could not be read for want of memory or descriptors, or as the disk fails: it may be good."""
    size = re.search(r"size (\d+)", str(error))
    asked = int(size[1]) if size is not None else 0
    if isinstance(error, MemoryError) and asked < _MOST_MEMORY:
        raise ShortageError(
            f"{name}: too little memory to read it ({one_line(error)}); give the process more"
        ) from None
    if isinstance(error, OSError) and error.errno in _SHORTAGES:
        reason = os.strerror(error.errno or 0)
        raise ShortageError(f"{name}: cannot be read now ({reason}); the file may be good: try again") from None


@atexit.register
def remove_temporary() -> None:
    """Remove the folder of this process, as its end does."""
    for process, folder in _temporary:
        if process == os.getpid():
            shutil.rmtree(folder, ignore_errors=True)
    _temporary.clear()


# Formats

READ_ERRORS = (OSError, pa.ArrowException, ValueError, OverflowError, TypeError, UnicodeDecodeError, MemoryError)
"""What pyarrow raises on damaged files."""

BLOCK = 4 << 20
"""Bytes of text that are parsed at a time."""

LONGEST_ROW = 256 << 20
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
IN_MEMORY = "\0memory"
"""The ending of what stands for a table of this process; no path ends so."""
_known: dict[tuple[object, ...], FileInfo] = {}
"""What was found in files: a command may open a dump several times."""


AS_WRITTEN = "\0"
"""What follows the name of a column whose values are as they were written; no name of a text's column has it."""


class FileInfo(Struct, frozen=True):
    """What a file holds: its columns, the rows of each of its row groups, and what it was when it was looked at.

    `typed` is False where numbers are written as text, so that 1 may be a floating-point number. `pandas` is what it
    noted about the frame that was written. `list_sizes` are how many values a row of a column of lists has on average,
    where that is a whole number and known without reading it. `spool` is the path of the Arrow file that it was
    converted to, `altered` are its columns whose values are not as written: these are there too, see `AS_WRITTEN`.
    """

    schema: pa.Schema
    groups: tuple[int, ...]
    identity: Identity | None
    typed: bool = True
    pandas: bytes | None = None
    list_sizes: Mapping[str, int] = field(default_factory=dict)
    spool: str | None = None
    altered: frozenset[str] = frozenset()


class Request(Struct, frozen=True):
    """Some columns of one row group of a file from row `start` on, in batches of at most so many rows.

    `scores` is the list column that nearly all of the time goes into, with the values that each list should have; a
    reader that knows a short cut may take it.
    """

    file: DumpFile
    group: int
    columns: Sequence[str]
    rows: int
    scores: tuple[str, int] | None = None
    start: int = 0


class Format(NamedTuple):
    """A file format: what messages call it, and how such files are read.

    `look` tells what is in a file; missing, foreign and damaged ones are DumpErrors. `batches` are the rows of a row
    group in order, which is what one worker reads at a time; columns that the file does not have are left out.
    """

    name: str
    look: Callable[[DumpFile], FileInfo]
    batches: Callable[[Request], Iterator[pa.RecordBatch]]


def from_row(batches: Iterator[pa.RecordBatch], start: int) -> Iterator[pa.RecordBatch]:
    """The same rows without the first so many."""
    for batch in batches:
        passed = min(start, batch.num_rows)
        start -= passed
        if passed < batch.num_rows or not passed:
            yield batch.slice(passed) if passed else batch


def with_compressions(*endings: str) -> tuple[str, ...]:
    """Endings of files, compressed and not."""
    return tuple(ending + more for ending in endings for more in ("", *COMPRESSIONS))


def open_bytes(file: DumpFile) -> Any:
    """The file as it is stored, for reading at any place."""
    return pa.OSFile(file.path) if file.uri is None else file.filesystem().open_input_file(file.path)


def open_text(file: DumpFile) -> Any:
    """The file from its start, decompressed."""
    stream = open_bytes(file)
    compression = next((name for ending, name in COMPRESSIONS.items() if file.ends_with((ending,))), None)
    return stream if compression is None else pa.CompressedInputStream(stream, compression)


@contextlib.contextmanager
def archive_in(stream: Any) -> Iterator[zipfile.ZipFile]:
    """The zip archive in a stream; what is wrong with it is a ValueError."""
    try:
        with zipfile.ZipFile(stream) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, KeyError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def line_chunks(file: DumpFile) -> Iterator[bytes]:
    """A text in pieces of whole lines."""
    waiting = b""
    with open_text(file) as stream:
        while piece := stream.read(BLOCK):
            lines, newline, waiting = (waiting + piece).rpartition(b"\n")
            if newline:
                yield lines
            elif len(waiting) > LONGEST_ROW:
                raise DumpError(f"{file.name}: a row is longer than {LONGEST_ROW >> 20} MB; is an end of line missing?")
    yield waiting


def looked_at(file: DumpFile, format: str, look: Callable[[Identity], FileInfo]) -> FileInfo:
    """What `look` finds in a file; what was found before, if the file is still the same."""
    key = (format, file.path, file.uri, file.filter, file.ending)
    try:
        identity = identity_of(file)
        check_unchanged(file, identity)
        known = _known.get(key)
        if known is not None and known.identity == identity and (known.spool is None or os.path.exists(known.spool)):
            return known
        info = look(identity)
        _ = [info.schema.names, *map(str, info.schema.types)]  # raises where a name is not text
        if not identity.same_as(identity_of(file)):
            raise DumpError(f"{file.name}: the file was changed while it was being read; wait until it is complete")
    except READ_ERRORS as error:
        check_unchanged(file)
        raise damaged(file, error, format) from None
    _known[key] = info
    return info


def damaged(file: DumpFile, error: Exception, format: str | None = None) -> BadFileError:
    """The error of a file that cannot be read to its end; raises if it is not the file's fault.

    With a `format`, it cannot even be told what the file holds: it may be of another one.
    """
    _check_shortage(file.name, error)
    reason = one_line(error)
    what = f"cannot be read to the end ({reason}); is it complete? write it again"
    if format is not None:
        what = f"not a readable {format} file ({reason}); is it complete, and is it {format}?"
    return BadFileError.of(file.name, f"{file.name}: {what}")


@contextlib.contextmanager
def reading(file: DumpFile) -> Iterator[None]:
    """What goes wrong while a file is read, as one line: it was replaced meanwhile, or it is damaged."""
    try:
        yield
        check_unchanged(file)
    except DumpError as error:  # what is wrong may be that it is another file now
        check_unchanged(file)
        raise BadFileError.of(file.name, str(error)) from None
    except READ_ERRORS as error:
        check_unchanged(file)
        raise damaged(file, error) from None
