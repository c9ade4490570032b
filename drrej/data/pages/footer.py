"""The footer of a file, and what it says of a column chunk before any page is looked at.

pyarrow's view of a column chunk ends the process on files that Arrow itself refuses with an error (columns that are
encrypted, unknown codecs), so these numbers are read here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.parquet as pq

from drrej.data.pages.runs import Levels
from drrej.data.pages.storage import Storage
from drrej.data.pages.thrift import BINARY, I64, LIST, STRUCT, Fields, UnfitError, number, read_struct, substruct
from drrej.records import dataclass

CODECS = {0: None, 1: "snappy", 2: "gzip", 6: "zstd", 7: "lz4_raw"}

TAIL = 8
"""Bytes after the footer."""
_MAGIC = b"PAR1"
_MOST_BYTES = 1 << 22
_MOST_COLUMNS = 512
_FEWEST_ROWS = 1 << 10  # of an average row group: smaller ones are not worth the reading of the footer
_MOST_LEVEL = 7
_TYPES = {4: "FLOAT", 5: "DOUBLE", 7: "FIXED_LEN_BYTE_ARRAY"}


@dataclass(frozen=True)
class Footer:
    """The footer of a file: Arrow's reading of it, its bytes, and where in them the row groups are."""

    metadata: pq.FileMetaData
    data: bytes
    row_groups: list[int]

    @classmethod
    def read(cls, file: Storage, metadata: pq.FileMetaData) -> Footer:
        """Read the footer of a file, which Arrow has read as `metadata`."""
        if metadata.num_columns > _MOST_COLUMNS or metadata.num_rows < metadata.num_row_groups * _FEWEST_ROWS:
            raise UnfitError("many columns or small row groups")
        size = metadata.serialized_size
        if size > _MOST_BYTES:
            raise UnfitError("length of the footer")
        data = file.some(max(0, file.size - size - TAIL), size + TAIL)
        if data[size:] != size.to_bytes(4, "little") + _MAGIC:
            raise UnfitError("footer")
        fields, _ = read_struct(data, 0)
        row_groups = fields.get((4, LIST), [])
        if len(row_groups) != metadata.num_row_groups or (8, STRUCT) in fields:
            raise UnfitError("row groups, or encryption")
        return cls(metadata, data, row_groups)

    def column(self, row_group: int, leaf: int) -> tuple[Fields, int]:
        """What the footer says of a column chunk, and the rows of the row group."""
        fields, _ = read_struct(self.data, self.row_groups[row_group])
        rows = number(fields, 3, I64)
        columns = fields.get((1, LIST), [])
        if len(columns) != self.metadata.num_columns or rows != self.metadata.row_group(row_group).num_rows:
            raise UnfitError("columns or rows")
        place, _ = read_struct(self.data, columns[leaf])
        if (1, BINARY) in place or (8, STRUCT) in place or (9, BINARY) in place:
            raise UnfitError("in another file, or encrypted")
        return substruct(place, 3), rows


@dataclass(frozen=True)
class Layout:
    """What the footer says of a column chunk of lists of K floats."""

    start: int
    end: int
    """Where the chunk is in the file."""
    rows: int
    classes: int
    """K."""
    dtype: np.dtype[Any]
    codec: str | None
    levels: tuple[Levels, Levels]
    """What repetition and definition levels must say."""

    @classmethod
    def of(cls, footer: Footer, row_group: int, leaf: int, classes: int) -> Layout:
        """The layout of the column `leaf` in a row group, if it can hold `classes` floats in each row."""
        chunk, rows = footer.column(row_group, leaf)
        column = footer.metadata.schema.column(leaf)
        codec, top = number(chunk, 4), column.max_definition_level
        if codec not in CODECS or _TYPES.get(number(chunk, 1)) != column.physical_type:
            raise UnfitError("type or codec")
        if classes < 1 or rows < 1 or number(chunk, 5, I64) != rows * classes:
            raise UnfitError("number of values")
        if column.max_repetition_level != 1 or not 0 < top <= _MOST_LEVEL:
            raise UnfitError("not a list")
        start = number(chunk, 9, I64)
        dictionary = chunk.get((11, I64), 0)
        start = dictionary if 0 < dictionary < start else start
        end = start + number(chunk, 7, I64)
        levels = Levels(classes, 0, int(classes > 1), 1), Levels(1, top, top, top.bit_length())
        return cls(start, end, rows, classes, _dtype(column), CODECS[codec], levels)


def _dtype(column: Any) -> np.dtype[Any]:
    kind = {"FLOAT": "<f4", "DOUBLE": "<f8"}.get(column.physical_type)
    if kind is None and column.length == 2 and column.logical_type.type == "FLOAT16":
        kind = "<f2"
    if kind is None:
        raise UnfitError("type")
    return np.dtype(kind)
