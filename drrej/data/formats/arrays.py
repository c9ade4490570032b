"""numpy's .npy and .npz files, mapped into memory and never unpickled. Members of an archive are unpacked once."""

from __future__ import annotations

import contextlib
import functools
import io
import math
import os
import shutil
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy
from numpy.typing import NDArray

from drrej.data import files
from drrej.data.columns import LABEL_NAMES, SCORE_NAMES
from drrej.data.files import DumpFile, FileInfo, Format, Identity, Request
from drrej.data.scores import boolean_array, plain_array
from drrej.errors import DumpError

_GROUP_BYTES = 16 << 20
_SMALL = 1 << 16
"""Bytes of an array of an archive that is not copied to a file of its own."""
_MOST_COLUMNS = 4096
"""Arrays that may be columns: each is opened anew for each block."""
_HEADER_ERRORS = (SyntaxError, tokenize.TokenError, IndexError, KeyError, AttributeError, RecursionError)
_KINDS = "an array of floating-point numbers, whole numbers, true and false, or text"

_unpacked: dict[tuple[str, str | None, str], tuple[Identity, str]] = {}
"""Where arrays of archives, and objects that are elsewhere, lie on this machine."""


def _look(file: DumpFile) -> FileInfo:
    def look(identity: Identity) -> FileInfo:
        arrays = _columns(file, identity)
        schema = pa.schema([(name, _column(array[:0]).type) for name, array in arrays.items()])
        rows = len(next(iter(arrays.values())))
        width = sum(math.prod(array.shape[1:]) * array.dtype.itemsize for array in arrays.values())
        step = max(1, _GROUP_BYTES // max(1, width))
        return FileInfo(schema, tuple(min(step, rows - start) for start in range(0, rows, step)), identity)

    return files.looked_at(file, ".npz" if file.ends_with((".npz",)) else ".npy", look)


def _batches(request: Request) -> Iterator[pa.RecordBatch]:
    with files.reading(request.file):
        info = _look(request.file)
        assert info.identity is not None
        known = set(info.schema.names)  # which Arrow makes anew each time
        names = [name for name in request.columns if name in known]
        arrays = _mapped(request.file, info.identity, names)
        first = sum(info.groups[: request.group])
        stop = first + info.groups[request.group]
        for start in range(first + request.start, stop, request.rows):
            columns = [_column(array[start : min(stop, start + request.rows)]) for array in arrays]
            yield pa.RecordBatch.from_arrays(columns, names)


NPY = Format(".npy", _look, _batches)
NPZ = Format(".npz", _look, _batches)


def _column(rows: NDArray[Any]) -> pa.Array:
    flat = np.array(rows, rows.dtype.newbyteorder("="), order="C").reshape(-1)
    if flat.dtype.kind in "SU":
        texts = [value.decode() if isinstance(value, bytes) else value for value in flat.tolist()]
        plain = pa.array(texts, pa.string())
    else:
        plain = boolean_array(flat) if flat.dtype.kind == "b" else plain_array(flat)
    return plain if rows.ndim == 1 else pa.FixedSizeListArray.from_arrays(plain, rows.shape[1])


def _columns(file: DumpFile, identity: Identity) -> dict[str, NDArray[Any]]:
    """The arrays of a file that are columns; of an archive, such as have only their types and shapes."""
    if not file.ends_with((".npz",)):
        (array,) = _mapped(file, identity, [os.path.basename(file.path)])
        if array.ndim == 0:
            raise DumpError(f"{file.name}: it holds one number; one vector, or one number, per row is needed")
        return {_column_name(file, array.dtype): array}
    arrays: dict[str, NDArray[Any]] = {}
    with files.open_bytes(file) as stream, files.archive_in(stream) as archive:
        for member in archive.namelist():
            if not member.endswith(".npy"):
                continue
            name = member.removesuffix(".npy")
            if name in arrays:
                raise DumpError(f"{file.name}: array '{name}' occurs twice; save it once")
            with archive.open(member) as packed:
                shape, _, dtype = _header(packed, name, file)
            arrays[name] = np.broadcast_to(np.empty((), dtype), shape)
    if not arrays:
        raise DumpError(
            f"{file.name}: there is no array in it; write it with numpy.savez(FILE, logits=..., labels=...)"
        )
    return _with_rows(arrays, file)


def _mapped(file: DumpFile, identity: Identity, names: Sequence[str]) -> list[NDArray[Any]]:
    """Arrays of a file, mapped; from an archive, or from elsewhere, they are copied first, which verifies checksums."""
    packed = file.ends_with((".npz",))
    if not packed and file.uri is None:
        return [_map(file.path, name, file) for name in names]
    keys = {name: (file.path, file.uri, name if packed else "") for name in names}
    paths = {name: _unpacked.get(key) for name, key in keys.items()}
    known = {name: found[1] for name, found in paths.items() if found is not None and found[0] == identity}
    arrays = {name: _map(path, name, file) for name, path in known.items() if os.path.exists(path)}
    with contextlib.ExitStack() as stack:
        missing = [name for name in names if name not in arrays]
        stream: Any = stack.enter_context(files.open_bytes(file)) if missing else None
        archive = stack.enter_context(files.archive_in(stream)) if missing and packed else None
        for name in missing:  # each is mapped at once: only so many copies are kept
            member = f"{name}.npy"
            if archive and archive.getinfo(member).file_size < _SMALL:  # no file, and none kept open
                with archive.open(member) as array:
                    shape, fortran, dtype = _header(array, name, file)
                    arrays[name] = np.frombuffer(array.read(), dtype).reshape(shape, order="F" if fortran else "C")
                continue
            path = files.temporary_path()
            try:
                with archive.open(member) if archive else stream as array, open(path, "wb") as copy:
                    shutil.copyfileobj(array, copy, 1 << 20)
            except OSError as error:
                raise files.no_room(file.name, error) if error.errno in files.NO_ROOM else error from None
            _unpacked[keys[name]] = identity, path
            arrays[name] = _map(path, name, file)
    return [arrays[name] for name in names]


def _map(path: str, name: str, file: DumpFile) -> NDArray[Any]:
    with open(path, "rb") as stream:
        (shape, fortran, dtype), offset = _header(stream, name, file), stream.tell()
    size, needed = os.path.getsize(path), math.prod(shape) * dtype.itemsize
    if offset + needed != size:
        raise ValueError(f"array '{name}' has {size} bytes, not those of the shape {shape}")
    return np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C") if needed else np.empty(shape, dtype)


def _header(stream: Any, name: str, file: DumpFile) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """The shape of an array that can be a column, whether it is stored by columns, and its type."""
    where = f"{file.name}: array '{name}'"
    version = npy.read_magic(stream)
    size = stream.read(2 if version == (1, 0) else 4)
    shape, fortran, dtype = _parsed(version, size, stream.read(int.from_bytes(size, "little")))
    if dtype.hasobject:
        raise DumpError(
            f"{where} holds Python objects, which means a pickle, and pickles are never loaded; save it as {_KINDS}"
        )
    if dtype.kind not in "fiubUS" or (dtype.kind == "f" and dtype.itemsize > 8):
        raise DumpError(f"{where} is of type {dtype}; save it as {_KINDS} (bfloat16 as float32)")
    if dtype.itemsize == 0 or len(shape) > 2 or any(length < 0 for length in shape):
        raise DumpError(f"{where} has the shape {shape}; one vector, or one number, per row is needed")
    return shape, fortran, dtype


@functools.lru_cache(maxsize=64)
def _parsed(version: tuple[int, int], size: bytes, text: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """What a header tells; arrays of one shape have the same, and to read it is slow."""
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    try:
        with warnings.catch_warnings():  # of headers that Python 2 wrote
            warnings.simplefilter("ignore")
            shape, fortran, dtype = read(io.BytesIO(size + text))
            return shape, fortran, dtype
    except _HEADER_ERRORS as error:
        raise ValueError(f"its header is damaged: {error}") from None


def _column_name(file: DumpFile, dtype: np.dtype[Any]) -> str:
    """What a column is called: after the word that the file's name has, or after the array's kind."""
    words = os.path.basename(file.path).lower().removesuffix(".npy")
    pieces = words.replace("-", "_").replace(".", "_").split("_")
    named = [name for name in (*SCORE_NAMES, *LABEL_NAMES) if name in (words, *pieces)]
    if named:
        return named[0]
    return "scores" if dtype.kind == "f" else "label"


def _with_rows(arrays: dict[str, NDArray[Any]], file: DumpFile) -> dict[str, NDArray[Any]]:
    """The arrays with a value per row: as many as the scores have, whatever else is in the file."""
    rows = {name: array.shape[0] for name, array in arrays.items() if array.shape}
    vectors = [name for name, array in arrays.items() if len(array.shape) == 2 and array.dtype.kind == "f"]
    scores = [name for name in rows if name in SCORE_NAMES] or vectors
    lengths = {rows[name] for name in scores or rows}
    if len(lengths) != 1:
        listed = ", ".join([f"'{name}' {array.shape}" for name, array in arrays.items()][:12])
        more = ", ..." if len(arrays) > 12 else ""
        raise DumpError(
            f"{file.name}: its arrays have different lengths ({listed}{more}); save those of the same rows in a file "
            "of their own"
        )
    (length,) = lengths
    for name in LABEL_NAMES:
        if rows.get(name, length) != length:
            other = next(other for other in [*scores, *rows] if rows[other] == length)
            raise DumpError(
                f"{file.name}: array '{name}' has {rows[name]} values but '{other}' has {length} rows; they must agree"
            )
    columns = {name: arrays[name] for name in rows if rows[name] == length}
    if len(columns) > _MOST_COLUMNS:
        raise DumpError(
            f"{file.name}: {len(columns)} arrays have {length} values each; save the scores as one array (rows x "
            "classes)"
        )
    return columns
