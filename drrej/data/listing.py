"""From what the user typed to an ordered list of files: the parts of a dump."""

from __future__ import annotations

import contextlib
import glob
import itertools
import json
import os
import shutil
import stat
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import IO
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
from msgspec.structs import replace

from drrej.data.files import COMPRESSIONS, DumpFile, is_uri, local_path, no_room, temporary_path
from drrej.data.formats import ENDINGS, FOLDER_ENDINGS, format_of
from drrej.data.problems import one_line, redacted
from drrej.errors import DumpError

STDIN = "-"
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


Spools = dict[str, DumpFile]
"""What could not seek and was copied, by argument: it can be read only once, but a command may open it twice."""


def find_parts(arguments: Sequence[str], spools: Spools | None = None) -> list[DumpFile]:
    """The parts of a dump: arguments in the order given, directories and globs sorted by path.

    A file that is there twice, by the same name, by a link, or by a glob beside its directory, counts once.
    """
    if not arguments:
        raise DumpError("no predictions file given; name a file or a directory of them")
    spools = {} if spools is None else spools
    found: dict[tuple[str | int, ...], DumpFile] = {}
    for argument in arguments:
        for part in _find(local_path(argument), spools):
            found.setdefault(_place(part), part)
    return list(found.values())


def _place(part: DumpFile) -> tuple[str | int, ...]:
    """What two names of one file have in common."""
    if part.uri is not None:
        return part.path, part.uri.partition("://")[0]
    try:
        status = os.stat(part.path)
    except OSError:  # which its reader will tell
        return (part.path,)
    return status.st_dev, status.st_ino


def _find(argument: str, spools: Spools, named: bool = True) -> list[DumpFile]:
    """The files of an argument, or of what a glob has found: only what is named itself is read as a stream."""
    if argument in spools:
        return [spools[argument]]
    if argument == STDIN:
        if sys.stdin is None:
            raise DumpError("standard input: it is closed; name a file instead of -")
        stdin = _spooled(sys.stdin.buffer, "standard input")
        spools[argument] = replace(stdin, mask_path="stdin.parquet")
        return [spools[argument]]
    if is_uri(argument):
        return _find_uri(argument)
    if os.path.isdir(argument):
        paths = [os.path.join(folder, file) for folder, files in _folders(argument) for file in files]
        files = [(os.path.relpath(path, argument), os.path.join(os.getcwd(), path), path) for path in paths]
        return _of_one_format(argument, files)
    if not os.path.lexists(argument):
        return _of_pattern(argument, spools)
    try:
        if named and not stat.S_ISREG(os.stat(argument).st_mode):  # a FIFO or <(...): most formats need to seek
            with open(argument, "rb") as stream:
                spools[argument] = _spooled(stream, argument)
            return [spools[argument]]
    except OSError as error:
        raise DumpError(f"{argument}: cannot be read ({error.strerror})") from None
    path = os.path.join(os.getcwd(), argument)  # as a worker with another current directory can open it
    part = DumpFile(path, argument, _mask_name(_from_hive(argument)), _hive(argument))
    if part.ends_with(ENDINGS) or not os.path.isfile(part.path):
        return [part]
    with open(part.path, "rb") as stream:
        return [replace(part, ending=ending_of(stream.read(HEAD)) or "")]


def _of_pattern(pattern: str, spools: Spools) -> list[DumpFile]:
    """The files that a glob names; hidden ones only if the pattern spells the underscore or dot.

    Their masks have the paths below the folder where the pattern begins, but for folders of columns.
    """
    if not glob.has_magic(pattern):
        raise DumpError(f"{pattern}: no such file or directory")
    matches = sorted(_globbed(pattern))
    if not _hidden(os.path.basename(pattern)):
        matches = [match for match in matches if not _hidden(os.path.basename(match))]
    if not matches:
        raise DumpError(f"{pattern}: the pattern matches no file")
    fixed = itertools.takewhile(lambda piece: not glob.has_magic(piece), pattern.split("/")[:-1])
    start = os.path.join(os.getcwd(), *fixed) if not pattern.startswith("/") else "/" + os.path.join(*fixed, "")
    found = []
    for part in itertools.chain.from_iterable(_find(match, spools, named=False) for match in matches):
        below = _mask_name(os.path.relpath(part.path, start).replace(os.sep, "/"))
        own = part.mask_path if below.startswith("../") else max(below, part.mask_path, key=len)
        found.append(replace(part, mask_path=own))
    return found


def _globbed(pattern: str) -> list[str]:
    """What a pattern names, where ** stands for folders of any depth, each of them once."""
    before, stars, after = pattern.partition("**/")
    if not stars or before[-1:] not in ("", "/"):
        return glob.glob(pattern)
    tops = glob.glob(before) if before else [os.curdir]
    folders = [folder for top in tops for folder, _ in _folders(top)]
    return [match for folder in folders for match in _globbed(os.path.join(glob.escape(folder), after or "*"))]


def _folders(directory: str) -> Iterator[tuple[str, list[str]]]:
    """A folder and those below it with their files, also where links lead; each folder once."""

    def fail(error: OSError) -> None:
        raise DumpError(f"{error.filename}: cannot be listed ({error.strerror})")

    seen = set[tuple[int, int]]()
    for folder, folders, files in os.walk(directory, onerror=fail, followlinks=True):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:  # a link to a folder that was there already, such as its own
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        linked = {name: os.path.islink(os.path.join(folder, name)) for name in folders if not _hidden(name)}
        folders[:] = sorted(linked, key=lambda name: (linked[name], name))
        yield folder, files


def _find_uri(uri: str) -> list[DumpFile]:
    name = redacted(uri)
    try:
        filesystem, path = pafs.FileSystem.from_uri(uri)
        info = filesystem.get_file_info(path)
        if info.type == pafs.FileType.NotFound:
            raise DumpError(f"{name}: no such file or directory")
        if info.type != pafs.FileType.Directory:
            return [DumpFile(path, name, _mask_name(_from_hive(path)), _hive(path), uri=uri)]
        entries = filesystem.get_file_info(pafs.FileSelector(path, recursive=True))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise DumpError(f"{name}: cannot be opened ({one_line(error)})") from None
    folder, mark, options = name.partition("?")  # options such as ?endpoint_override=... stay at the end
    found = [entry.path for entry in entries if entry.type == pafs.FileType.File]
    inside = [(str(PurePosixPath(file).relative_to(path)), file) for file in found]
    files = [(relative, file, f"{folder.rstrip('/')}/{relative}{mark}{options}") for relative, file in inside]
    return _of_one_format(name, files, uri)


def _of_one_format(directory: str, files: Sequence[tuple[str, str, str]], uri: str | None = None) -> list[DumpFile]:
    """The files of a directory that are the dump, by their paths in it: those in parquet if there are any."""
    found = []
    for relative, path, name in sorted(files):
        pieces = relative.replace(os.sep, "/").split("/")
        if not any(map(_hidden, pieces)) and pieces[-1].lower().endswith(FOLDER_ENDINGS):
            found.append(DumpFile(path, name, _mask_name("/".join(pieces)), _hive("/".join(pieces)), uri))
    formats = {format_of(part).name for part in found}
    if not found:
        raise DumpError(f"{directory}: no .parquet file in this directory, nor any other that drrej reads")
    if "parquet" in formats:
        formats = {"parquet"}
    if len(formats) > 1:
        raise DumpError(
            f"{directory}: it holds files of several formats ({', '.join(sorted(formats))}); name those of the dump "
            "with a pattern such as '*.csv'"
        )
    return sorted((part for part in found if format_of(part).name in formats), key=lambda part: part.mask_path)


def _mask_name(relative: str) -> str:
    """The path of a file's mask in a directory of masks: parquet, whatever the file is."""
    if relative.endswith(".parquet"):
        return relative
    others = (ending for ending in ENDINGS if ending != ".parquet" and relative.lower().endswith(ending))
    return relative[: len(relative) - len(max(others, key=len, default=""))] + ".parquet"


def _hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def _hive(path: str) -> tuple[tuple[str, str | None], ...]:
    """key=value folders of a path."""
    columns = []
    for folder in path.replace(os.sep, "/").split("/")[:-1]:
        key, equals, value = folder.partition("=")
        if equals:
            columns.append((unquote(key), None if value == _HIVE_NULL else unquote(value)))
    return tuple(columns)


def _from_hive(path: str) -> str:
    """The name of a file, with the folders before it from the first on that spells a column."""
    pieces = os.path.normpath(path).replace(os.sep, "/").split("/")
    while len(pieces) > 1 and "=" not in pieces[0]:
        del pieces[0]
    return "/".join(pieces)


def distinct(parts: Sequence[DumpFile], target: str) -> tuple[DumpFile, ...]:
    """The same parts with masks that have paths of their own: where two are equal, all begin at the folder they share.

    Raises when two parts would still have their masks in one place of the `target`.
    """
    masks, paths = [part.mask_path for part in parts], [os.path.normpath(part.path) for part in parts]
    alike = len({part.uri is None for part in parts}) == 1 and len(set(paths)) == len(paths)
    if len(set(masks)) < len(masks) and alike:
        shared = os.path.commonpath([os.path.dirname(path) for path in paths])
        masks = [_mask_name(os.path.relpath(path, shared).replace(os.sep, "/")) for path in paths]
    name, times = Counter(masks).most_common(1)[0]
    if times > 1:
        raise DumpError(f"{target}: two input files would both be written to {name}; give them one by one")
    return tuple(replace(part, mask_path=path) for part, path in zip(parts, masks, strict=True))


def _spooled(stream: IO[bytes], name: str) -> DumpFile:
    """Copy what cannot seek to a temporary file that ends with the process."""
    try:
        path = temporary_path(lasting=True)  # before anything is read: reading may take for ever
        with open(path, "wb") as spool:
            head = stream.read(HEAD)
            spool.write(head)
            shutil.copyfileobj(stream, spool, 1 << 20)
            size = spool.tell()
    except OSError as error:
        raise no_room(name, error) from None
    if not size:
        raise DumpError(f"{name}: it is empty; did the command before the pipe fail?")
    return DumpFile(path, name, f"{os.path.basename(name)}.parquet", ending=ending_of(head) or ".parquet")


HEAD = 1 << 16
"""Bytes that are looked at."""

_MAGIC = {
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
    b"FEA1": ".feather",
    b"\xff\xff\xff\xff": ".arrows",
    b"\x93NUMPY": ".npy",
    b"PK\x03\x04": ".npz",
}
_COMPRESSED = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}


def ending_of(head: bytes) -> str | None:
    r"""The ending that a file should have, None where its first bytes say nothing.

    >>> ending_of(b"PAR1..."), ending_of(b'{"logits": [1.5, 2.0]}\n{"lo'), ending_of(b"a,b,label\n1,2,0\n")
    ('.parquet', '.jsonl', '.csv')
    """
    for magic, ending in _MAGIC.items():
        if head.startswith(magic):
            return ending
    for magic, ending in _COMPRESSED.items():
        if head.startswith(magic):
            with contextlib.suppress(OSError):  # it is cut off
                text = pa.CompressedInputStream(pa.BufferReader(head), COMPRESSIONS[ending]).read(1 << 10)
                return None if _text_ending(text) is None else f"{_text_ending(text)}{ending}"
            return None
    return _text_ending(head)


def _text_ending(text: bytes) -> str | None:
    start = text.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start or b"\0" in text:
        return None
    if start[:1] in b"{[":
        line, newline, rest = start.partition(b"\n")
        if start[:1] == b"{" and newline and rest.strip()[:1] in (b"{", b""):
            with contextlib.suppress(ValueError, RecursionError):
                return ".json" if {"columns", "data"} <= set(json.loads(line)) else ".jsonl"
        return ".json"
    header, first = (*start.split(b"\n", 2), b"")[:2]
    marks = (b",", b"\t", b";", b"|")
    return ".csv" if any(0 < header.count(mark) <= first.count(mark) for mark in marks) else None
