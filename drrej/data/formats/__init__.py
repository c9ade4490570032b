"""Readers, one per file format. To read another format, write its `Format` and put it into `FORMATS`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from drrej.data.files import DumpFile, FileInfo, Format, Request
from drrej.data.formats import arrays, arrow, csv, json, logs, parquet

FORMATS: tuple[Format, ...] = (
    *(parquet.PARQUET, arrow.MEMORY, csv.CSV, json.LINES, json.TABLE, arrow.ARROW, arrays.NPY, arrays.NPZ, logs.EVAL),
)
"""The first is for files whose name says nothing."""

ENDINGS = tuple(ending for format in FORMATS for ending in format.endings)
"""How names of files end that are known."""

FOLDER_ENDINGS = tuple(ending for ending in ENDINGS if ending not in json.TABLE.endings)
"""How names of files end that are looked for in directories: most documents in JSON are something else."""

_TABLE_ROWS = 1 << 16


def format_of(file: DumpFile) -> Format:
    """The format of a file, by its name."""
    return next((format for format in FORMATS if file.ends_with(format.endings)), FORMATS[0])


def has_no_keys(file: DumpFile) -> bool:
    """Whether the rows of a file are known by their order alone: it is an array, not a table."""
    return format_of(file) in (arrays.NPY, arrays.NPZ)


def read_table(file: DumpFile, columns: Sequence[str], info: FileInfo) -> pa.Table:
    """Some columns of a whole file, in memory."""
    batches = [
        batch
        for group in range(len(info.groups))
        for batch in format_of(file).batches(Request(file, group, columns, _TABLE_ROWS))
    ]
    return pa.Table.from_batches(batches, pa.schema([info.schema.field(name) for name in columns]))
