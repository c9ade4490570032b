"""numpy's .npy and .npz files, mapped into memory and never unpickled. Members of an archive are unpacked once."""

from __future__ import annotations

import os
import shutil
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator
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
_HEADER_ERRORS = (SyntaxError, tokenize.TokenError, IndexError, KeyError, AttributeError, RecursionError)
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, KeyError)
_KINDS = "an array of floating-point numbers, whole numbers, true and false, or text"

Arrays = dict[str, NDArray[Any]]
_unpacked: dict[tuple[str, str | None], tuple[Identity, dict[str, str]]] = {}
"""Where the arrays of archives, and objects that are elsewhere, lie on this machine."""


def _look(file: DumpFile, opened: str) -> FileInfo:  # noqa: ARG001 - what was found is kept by identity
    def look(identity: Identity) -> FileInfo:
        arrays = _columns(file, identity)
        rows, step = _size(arrays)
        schema = pa.schema([(name, _type(array)) for name, array in arrays.items()])
        return FileInfo(schema, tuple(min(step, rows - start) for start in range(0, rows, step)), identity)

    return files.looked_at(file, _ending(file), look)


def _batches(request: Request) -> Iterator[pa.RecordBatch]:
    with files.reading(request.file):
        identity = files.identity_of(request.file)
        files.check_unchanged(request.file, identity)
        arrays = _columns(request.file, identity)
        rows, step = _size(arrays)
        stop = min(rows, (request.group + 1) * step)
        names = [name for name in request.columns if name in arrays]
        for start in range(request.group * step + request.start, stop, request.rows):
            columns = [_column(arrays[name][start : min(stop, start + request.rows)]) for name in names]
            yield pa.RecordBatch.from_arrays(columns, names)


NPY = Format(".npy", (".npy",), _look, _batches)
NPZ = Format(".npz", (".npz",), _look, _batches)


def _ending(file: DumpFile) -> str:
    return NPZ.name if file.ends_with(NPZ.endings) else NPY.name


def _size(arrays: Arrays) -> tuple[int, int]:
    """Rows, and rows of a row group."""
    rows = len(next(iter(arrays.values())))
    width = sum(array.itemsize * (array.shape[1] if array.ndim == 2 else 1) for array in arrays.values())
    return rows, max(1, _GROUP_BYTES // max(1, width))


def _type(array: NDArray[Any]) -> pa.DataType:
    flat = pa.string() if array.dtype.kind in "US" else pa.from_numpy_dtype(array.dtype.newbyteorder("="))
    return flat if array.ndim == 1 else pa.list_(flat, array.shape[1])


def _column(rows: NDArray[Any]) -> pa.Array:
    flat = np.array(rows, rows.dtype.newbyteorder("="), order="C").reshape(-1)
    if flat.dtype.kind in "SU":
        plain = pa.array(
            [value.decode() if isinstance(value, bytes) else value for value in flat.tolist()], pa.string()
        )
    else:
        plain = boolean_array(flat) if flat.dtype.kind == "b" else plain_array(flat)
    return plain if rows.ndim == 1 else pa.FixedSizeListArray.from_arrays(plain, rows.shape[1])


def _columns(file: DumpFile, identity: Identity) -> Arrays:
    """The arrays of a file as columns, mapped; what cannot be one is an error."""
    packed = file.ends_with(NPZ.endings)
    paths = {os.path.basename(file.path): file.path}
    if packed or file.uri is not None:
        known = _unpacked.get((file.path, file.uri))
        if known is None or known[0] != identity or not all(map(os.path.exists, known[1].values())):
            known = _unpacked[file.path, file.uri] = identity, _members(file)
        paths = known[1]
    arrays = {name: _array(path, name, file) for name, path in paths.items()}
    if packed:
        return _with_rows(arrays, file)
    (array,) = arrays.values()
    if array.ndim == 0:
        raise DumpError(f"{file.name}: it holds one number; one vector, or one number, per row is needed")
    return {_column_name(file, array): array}


def _copy(stream: Any, file: DumpFile) -> str:
    """Where the bytes of a stream were copied to."""
    path = files.temporary_path()
    try:
        with open(path, "wb") as copy:
            shutil.copyfileobj(stream, copy, 1 << 20)
    except OSError as error:
        raise files.no_room(file.name, error) if error.errno in files.NO_ROOM else error from None
    return path


def _members(file: DumpFile) -> dict[str, str]:
    """Where the arrays of a file were unpacked or copied to, by name; this verifies checksums."""
    with files.open_bytes(file) as stream:
        if not file.ends_with(NPZ.endings):
            return {os.path.basename(file.path): _copy(stream, file)}
        paths = {}
        try:
            with zipfile.ZipFile(stream) as archive:
                for member in archive.namelist():
                    if member.endswith(".npy"):
                        with archive.open(member) as packed:
                            paths[member.removesuffix(".npy")] = _copy(packed, file)
        except _ZIP_ERRORS as error:
            raise ValueError(str(error)) from None
    if not paths:
        raise DumpError(
            f"{file.name}: there is no array in it; write it with numpy.savez(FILE, logits=..., labels=...)"
        )
    return paths


def _array(path: str, name: str, file: DumpFile) -> NDArray[Any]:
    where = f"{file.name}: array '{name}'"
    try:
        with warnings.catch_warnings():  # of headers that Python 2 wrote
            warnings.simplefilter("ignore")
            array = npy.open_memmap(path, mode="r")
    except _HEADER_ERRORS as error:
        raise ValueError(f"its header is damaged: {error}") from None
    except ValueError as error:
        if "Python objects" not in str(error):
            raise
        raise DumpError(
            f"{where} holds Python objects, which means a pickle, and pickles are never loaded; save it as {_KINDS}"
        ) from None
    dtype, shape, size = array.dtype, array.shape, os.path.getsize(path)
    if dtype.kind not in "fiubUS" or (dtype.kind == "f" and dtype.itemsize > 8):
        raise DumpError(f"{where} is of type {dtype}; save it as {_KINDS} (bfloat16 as float32)")
    if dtype.itemsize == 0 or len(shape) > 2 or any(length < 0 for length in shape):
        raise DumpError(f"{where} has the shape {shape}; one vector, or one number, per row is needed")
    if array.offset + array.nbytes != size:
        raise ValueError(f"array '{name}' has {size} bytes, not those of the shape {shape}")
    return array


def _column_name(file: DumpFile, array: NDArray[Any]) -> str:
    """What a column is called: after the word that the file's name has, or after the array's kind."""
    words = os.path.basename(file.path).lower().removesuffix(".npy")
    pieces = words.replace("-", "_").replace(".", "_").split("_")
    named = [name for name in (*SCORE_NAMES, *LABEL_NAMES) if name in (words, *pieces)]
    if named:
        return named[0]
    return "scores" if array.dtype.kind == "f" else "label"


def _with_rows(arrays: Arrays, file: DumpFile) -> Arrays:
    """The arrays with a value per row: as many as the scores have, whatever else is in the file."""
    rows = {name: len(array) for name, array in arrays.items() if array.ndim}
    vectors = [name for name, array in arrays.items() if array.ndim == 2 and array.dtype.kind == "f"]
    scores = [name for name in rows if name in SCORE_NAMES] or vectors
    lengths = {rows[name] for name in scores or rows}
    if len(lengths) != 1:
        listed = ", ".join(f"'{name}' {array.shape}" for name, array in arrays.items())
        raise DumpError(
            f"{file.name}: its arrays have different lengths ({listed}); save those of the same rows in a file "
            "of their own"
        )
    (length,) = lengths
    for name in LABEL_NAMES:
        if rows.get(name, length) != length:
            other = next(other for other in [*scores, *rows] if rows[other] == length)
            raise DumpError(
                f"{file.name}: array '{name}' has {rows[name]} values but '{other}' has {length} rows; they must agree"
            )
    return {name: arrays[name] for name in rows if rows[name] == length}
