"""numpy's .npy and .npz files, never unpickled.

An .npy file is read at the rows that are asked for. The arrays of an .npz file are read side by side from their start,
compressed or not, which also verifies their checksums; an array in Fortran order is then held as a whole.
"""

from __future__ import annotations

import contextlib
import os
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.data.columns import LABEL_NAMES, SCORE_NAMES
from drrej.data.files import DumpFile, Identity, check_unchanged
from drrej.data.formats import FileInfo, Request, damaged, looked_at, open_bytes, reading, unreadable
from drrej.data.scores import boolean_array, plain_array
from drrej.errors import DumpError
from drrej.records import dataclass

_GROUP_BYTES = 16 << 20
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, KeyError)
_KINDS = "an array of floating-point numbers, whole numbers, true and false, or text"


@dataclass(frozen=True)
class Stored:
    """An array as it is stored: its type, its shape, and where its values begin."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    offset: int

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))

    @property
    def type(self) -> pa.DataType:
        """As a column."""
        text = self.dtype.kind in "US"
        flat = pa.string() if text else pa.from_numpy_dtype(self.dtype.newbyteorder("="))
        return flat if len(self.shape) == 1 else pa.list_(flat, self.shape[1])

    def column(self, values: NDArray[Any]) -> pa.Array:
        """Some rows of it."""
        flat = np.ascontiguousarray(values, self.dtype.newbyteorder("=")).reshape(-1)
        if self.dtype.kind == "S":
            plain = pa.array([value.decode() for value in flat.tolist()], pa.string())
        elif self.dtype.kind == "U":
            plain = pa.array(flat.tolist(), pa.string())
        else:
            plain = boolean_array(flat) if self.dtype.kind == "b" else plain_array(flat)
        return plain if len(self.shape) == 1 else pa.FixedSizeListArray.from_arrays(plain, self.shape[1])


def _stored(stream: IO[bytes] | Any, name: str, part: DumpFile) -> Stored:
    """The header of an array; what cannot be a column is an error."""
    from numpy.lib import format as npy

    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of the format is for records")
    header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    try:
        with warnings.catch_warnings():  # of headers that Python 2 wrote
            warnings.simplefilter("ignore")
            shape, fortran, dtype = header(stream)
    except (SyntaxError, tokenize.TokenError, TypeError, IndexError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"its header is damaged: {error}") from None
    where = f"{part.name}: array '{name}'"
    if dtype.hasobject:
        raise DumpError(
            f"{where} holds Python objects, which means a pickle, and pickles are never loaded; save it as {_KINDS}"
        )
    if dtype.kind not in "fiubUS" or (dtype.kind == "f" and dtype.itemsize > 8):
        raise DumpError(f"{where} is of type {dtype}; save it as {_KINDS} (bfloat16 as float32)")
    if dtype.itemsize == 0 or len(shape) > 2 or any(size < 0 for size in shape):
        raise DumpError(f"{where} has the shape {shape}; one vector, or one number, per row is needed")
    return Stored(name, dtype, shape, fortran, stream.tell())


class NpyReader:
    """Reads .npy files: an array as one column, named after what the file's name says that it is."""

    format = ".npy"
    endings: tuple[str, ...] = (".npy",)

    def reads(self, part: DumpFile) -> bool:
        """By the ending of its name."""
        return part.ends_with(self.endings)

    def contents(self, part: DumpFile, opened: str) -> FileInfo:  # noqa: ARG002 - what was found is kept by identity
        """The one column, in row groups of a fixed size."""

        def look(identity: Identity) -> FileInfo:
            with open_bytes(part) as file:
                array = _stored(file, os.path.basename(part.path), part)
                if len(array.shape) == 0:
                    raise DumpError(f"{part.name}: it holds one number; one vector, or one number, per row is needed")
                rows = array.shape[0]
                if array.offset + rows * array.row_bytes != file.size():
                    raise ValueError(f"it has {file.size()} bytes, not those of {rows} rows of {array.row_bytes}")
                step = _group_rows(array)
                groups = tuple(min(step, rows - start) for start in range(0, rows, step))
                return FileInfo(pa.schema([(_column_name(part, array), array.type)]), groups, identity)

        return looked_at(part, self.format, look)

    def batches(self, request: Request) -> Iterator[pa.RecordBatch]:
        """The rows of a row group."""
        part = request.part
        with reading(part), open_bytes(part) as file:
            array = _stored(file, os.path.basename(part.path), part)
            name = _column_name(part, array)
            step = _group_rows(array)
            end = min(array.shape[0], (request.group + 1) * step)
            for start in range(request.group * step, end, request.rows):
                rows = min(request.rows, end - start)
                column = array.column(_rows_at(file, array, start, rows))
                yield pa.RecordBatch.from_arrays([column], [name]).select([n for n in request.columns if n == name])


def _group_rows(array: Stored) -> int:
    return max(1, _GROUP_BYTES // max(1, array.row_bytes))


def _rows_at(file: Any, array: Stored, start: int, rows: int) -> NDArray[Any]:
    if not array.fortran or len(array.shape) == 1:
        text = file.read_at(rows * array.row_bytes, array.offset + start * array.row_bytes)
        return np.frombuffer(text, array.dtype).reshape(rows, *array.shape[1:])
    width = array.dtype.itemsize
    columns = [
        np.frombuffer(file.read_at(rows * width, array.offset + (j * array.shape[0] + start) * width), array.dtype)
        for j in range(array.shape[1])
    ]
    return np.stack(columns, axis=1)


def _column_name(part: DumpFile, array: Stored) -> str:
    """What a column is called: after the word that the file's name has, or after the array's kind."""
    words = os.path.basename(part.path).lower().removesuffix(".npy")
    pieces = words.replace("-", "_").replace(".", "_").split("_")
    named = [name for name in (*SCORE_NAMES, *LABEL_NAMES) if name in (words, *pieces)]
    if named:
        return named[0]
    return "scores" if array.dtype.kind == "f" else "label"


class NpzReader:
    """Reads .npz files: arrays with a value per row as columns."""

    format = ".npz"
    endings: tuple[str, ...] = (".npz",)

    def reads(self, part: DumpFile) -> bool:
        """By the ending of its name."""
        return part.ends_with(self.endings)

    def contents(self, part: DumpFile, opened: str) -> FileInfo:  # noqa: ARG002 - what was found is kept by identity
        """Its arrays, as one row group."""

        def look(identity: Identity) -> FileInfo:
            with _archive(part) as archive:
                arrays = _columns(_arrays(archive, part), part)
            schema = pa.schema([(array.name, array.type) for array in arrays])
            return FileInfo(schema, (arrays[0].shape[0],), identity)

        try:
            return looked_at(part, self.format, look)
        except _ZIP_ERRORS as error:
            raise unreadable(part, self.format, error) from None

    def batches(self, request: Request) -> Iterator[pa.RecordBatch]:
        """All rows."""
        part = request.part
        try:
            with reading(part), _archive(part) as archive:
                known = {array.name: array for array in _columns(_arrays(archive, part), part)}
                chosen = [known[name] for name in request.columns if name in known]
                with contextlib.ExitStack() as open_members:
                    streams = [
                        _Rows(open_members.enter_context(archive.open(f"{array.name}.npy")), array) for array in chosen
                    ]
                    left = next(iter(known.values())).shape[0]
                    while left:
                        rows = min(left, request.rows)
                        columns = [stream.take(rows) for stream in streams]
                        yield pa.RecordBatch.from_arrays(columns, [array.name for array in chosen])
                        left -= rows
                    for stream in streams:
                        stream.end()
        except _ZIP_ERRORS as error:
            check_unchanged(part)
            raise damaged(part, error) from None


@contextlib.contextmanager
def _archive(part: DumpFile) -> Iterator[zipfile.ZipFile]:
    with open_bytes(part) as file, zipfile.ZipFile(file) as archive:
        yield archive


def _arrays(archive: zipfile.ZipFile, part: DumpFile) -> list[Stored]:
    found = []
    for member in archive.namelist():
        if member.endswith(".npy"):
            with archive.open(member) as stream:
                array = _stored(stream, member.removesuffix(".npy"), part)
            size = archive.getinfo(member).file_size
            if array.offset + (array.shape[0] if array.shape else 1) * array.row_bytes != size:
                raise ValueError(f"array '{array.name}' has {size} bytes, not those of the shape {array.shape}")
            found.append(array)
    if not found:
        raise DumpError(
            f"{part.name}: there is no array in it; write it with numpy.savez(FILE, logits=..., labels=...)"
        )
    return found


def _columns(arrays: Sequence[Stored], part: DumpFile) -> list[Stored]:
    """The arrays with a value per row: as many as the scores have, whatever else is in the file."""
    rows = {array.name: array.shape[0] for array in arrays if array.shape}
    vectors = [array for array in arrays if len(array.shape) == 2 and array.dtype.kind == "f"]
    named = [array for array in arrays if array.name in SCORE_NAMES and array.shape]
    candidates = {array.shape[0] for array in named or vectors} or set(rows.values())
    if len(candidates) != 1:
        shown = ", ".join(f"'{array.name}' {array.shape}" for array in arrays)
        raise DumpError(
            f"{part.name}: its arrays have different lengths ({shown}); save those of the same rows in a file "
            "of their own"
        )
    (length,) = candidates
    for name in LABEL_NAMES:
        if rows.get(name, length) != length:
            scores = next(array.name for array in named or vectors or arrays if array.shape[0] == length)
            raise DumpError(
                f"{part.name}: array '{name}' has {rows[name]} values but '{scores}' has {length} rows; they must agree"
            )
    return [array for array in arrays if rows.get(array.name) == length]


class _Rows:
    """The rows of an array of an archive, in order."""

    def __init__(self, stream: IO[bytes], array: Stored) -> None:
        self._stream, self._array = stream, array
        self._read(array.offset)
        self._whole: NDArray[Any] | None = None
        if array.fortran and len(array.shape) == 2:
            size = array.shape[0] * array.row_bytes
            self._whole = np.frombuffer(self._read(size), array.dtype).reshape(array.shape[::-1]).T

    def take(self, rows: int) -> pa.Array:
        if self._whole is not None:
            values, self._whole = self._whole[:rows], self._whole[rows:]
        else:
            text = self._read(rows * self._array.row_bytes)
            values = np.frombuffer(text, self._array.dtype).reshape(rows, *self._array.shape[1:])
        return self._array.column(values)

    def end(self) -> None:
        """Read on to where the checksum is verified."""
        self._stream.read(1)

    def _read(self, size: int) -> bytes:
        text = self._stream.read(size)
        if len(text) != size:
            raise EOFError(f"array '{self._array.name}' ends early")
        return text
