"""Parquet files as they are opened: settings for streaming, footers, schemas, and what is wrong with them."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from drrej.data.sources import Part, one_line
from drrej.errors import DumpError

READ_ERRORS = (OSError, pa.ArrowException, ValueError, OverflowError, TypeError)
"""What pyarrow raises on damaged files."""

_ALL_BUFFERS = 4 << 20
_LEAST_BUFFER = 1 << 14
_MOST_FOOTERS = 256
_State = tuple[str, int, int]
_footers: dict[str, tuple[_State, pq.FileMetaData]] = {}
"""Footers already parsed: a file is opened for each of its row groups, and the footer grows with their number."""


def open_parquet(part: Part, opened: str = "", columns: int = 1) -> pq.ParquetFile:
    """Open a part with settings that keep its buffers small; missing, foreign and damaged files are DumpErrors.

    The footer is parsed once for each opening of a dump, which `opened` names: the file may have changed since another.
    Each of the `columns` to be read has a buffer of its own.
    """
    buffer = min(1 << 20, max(_LEAST_BUFFER, _ALL_BUFFERS // columns))
    where: dict[str, Any] = {"pre_buffer": False, "buffer_size": buffer}
    if part.uri is not None:
        where = {"pre_buffer": True, "filesystem": part.filesystem()}
    try:
        state = (opened, *((0, 0) if part.uri is not None else _stamp(part.path)))
        known, footer = _footers.get(part.path, (None, None))
        footer = footer if opened and known == state else None
        file = pq.ParquetFile(part.path, metadata=footer, page_checksum_verification=True, **where)
        if opened and footer is None:
            if len(_footers) >= _MOST_FOOTERS:
                _footers.clear()
            _footers[part.path] = (state, file.metadata)
        return file
    except READ_ERRORS as error:
        raise DumpError(
            f"{part.name}: not a readable parquet file ({one_line(error)}); is it complete, and is it parquet?"
        ) from None


def _stamp(path: str) -> tuple[int, int]:
    """What changes when a file is written again."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size


def read_schema(file: pq.ParquetFile, part: Part) -> pa.Schema:
    """The columns of a part."""
    try:
        schema = file.schema_arrow.remove_metadata()
        for name in schema.names:
            name.encode()
    except READ_ERRORS as error:
        raise DumpError(f"{part.name}: its schema cannot be read ({one_line(error)}); write it again") from None
    return schema
