"""Readers, one per file format. To read another format, write its reader and put it into `READERS`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from drrej.data.files import DumpFile
from drrej.data.formats import FileInfo, ListColumn, Reader, Request, from_row
from drrej.data.formats.arrays import NpyReader, NpzReader
from drrej.data.formats.arrow import ArrowReader, MemoryReader
from drrej.data.formats.csv import CsvReader
from drrej.data.formats.json import JsonLinesReader, JsonTableReader
from drrej.data.formats.parquet import ParquetReader

__all__ = [
    "ENDINGS",
    "FOLDER_ENDINGS",
    "READERS",
    "FileInfo",
    "ListColumn",
    "Reader",
    "Request",
    "batches_of",
    "has_no_keys",
    "read_table",
    "reader_of",
]

READERS: tuple[Reader, ...] = (
    ParquetReader(),
    MemoryReader(),
    CsvReader(),
    JsonLinesReader(),
    JsonTableReader(),
    ArrowReader(),
    NpyReader(),
    NpzReader(),
)
"""The first is for files whose name says nothing."""

ENDINGS = tuple(ending for reader in READERS for ending in reader.endings)
"""How names of files end that are known."""

FOLDER_ENDINGS = tuple(ending for ending in ENDINGS if ".json" not in ending or ".jsonl" in ending)
"""How names of files end that are looked for in directories: most documents in JSON are something else."""

_TABLE_ROWS = 1 << 16


def reader_of(part: DumpFile) -> Reader:
    """The reader for a file, by its name."""
    return next((reader for reader in READERS if reader.reads(part)), READERS[0])


def batches_of(request: Request) -> Iterator[pa.RecordBatch]:
    """The rows of a row group from `request.start` on, of whatever format."""
    reader = reader_of(request.part)
    batches = reader.batches(request)
    return batches if isinstance(reader, ParquetReader) else from_row(batches, request.start)


def has_no_keys(part: DumpFile) -> bool:
    """Whether the rows of a file are known by their order alone: it is an array, not a table."""
    return isinstance(reader_of(part), NpyReader | NpzReader)


def read_table(part: DumpFile, columns: Sequence[str], contents: FileInfo) -> pa.Table:
    """Some columns of a whole file, in memory."""
    reader = reader_of(part)
    batches = [
        batch
        for group in range(len(contents.groups))
        for batch in reader.batches(Request(part, "", group, columns, _TABLE_ROWS, place=contents.place(group)))
    ]
    return pa.Table.from_batches(batches, pa.schema([contents.schema.field(name) for name in columns]))
