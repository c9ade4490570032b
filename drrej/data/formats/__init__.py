"""Readers, one per file format. To read another one, write its `Format` in a module here and name it in `FORMATS`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import chain

import pyarrow as pa

from drrej.data.files import IN_MEMORY, DumpFile, FileInfo, Format, Request, with_compressions

FORMATS = {
    "parquet.PARQUET": (".parquet",),
    "arrow.MEMORY": (IN_MEMORY,),
    "csv.CSV": with_compressions(".csv", ".tsv"),
    "json.LINES": with_compressions(".jsonl", ".ndjson"),
    "json.TABLE": with_compressions(".json"),
    "arrow.ARROW": (".arrow", ".feather", ".ipc", ".arrows"),
    "arrays.NPY": (".npy",),
    "arrays.NPZ": (".npz",),
    "logs.EVAL": (".eval",),
}
"""How names of files of each format end. Its module is imported when there is such a file; the first format is for
files whose name says nothing."""

ENDINGS = tuple(chain(*FORMATS.values()))
"""How names of files end that are known."""

FOLDER_ENDINGS = tuple({*ENDINGS}.difference(FORMATS["json.TABLE"]))
"""How names of files end that are looked for in directories: most documents in JSON are something else."""

ARRAYS = (*FORMATS["arrays.NPY"], *FORMATS["arrays.NPZ"])
"""How names of files end whose rows are known by their order alone: arrays, not tables."""

_TABLE_ROWS = 1 << 16


def format_of(file: DumpFile) -> Format:
    """The format of a file, by its name."""
    place = next((place for place, endings in FORMATS.items() if file.ends_with(endings)), "parquet.PARQUET")
    module, _, name = place.partition(".")
    format: Format = getattr(import_module(f"{__name__}.{module}"), name)
    return format


def read_table(file: DumpFile, columns: Sequence[str], info: FileInfo) -> pa.Table:
    """Some columns of a whole file, in memory."""
    batches = [
        batch
        for group in range(len(info.groups))
        for batch in format_of(file).batches(Request(file, group, columns, _TABLE_ROWS))
    ]
    return pa.Table.from_batches(batches, pa.schema([info.schema.field(name) for name in columns]))
