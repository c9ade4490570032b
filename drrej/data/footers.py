"""Parquet files as they are opened: settings for streaming, footers, schemas, and what is wrong with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from drrej.data.identity import Identity, check_unchanged, identity_of
from drrej.data.sources import Part, one_line
from drrej.errors import DumpError

READ_ERRORS = (OSError, pa.ArrowException, ValueError, OverflowError, TypeError)
"""What pyarrow raises on damaged files."""

_ALL_BUFFERS = 4 << 20
_LEAST_BUFFER = 1 << 14
_MOST_FOOTERS = 256
_footers: dict[str, tuple[str, Identity, pq.FileMetaData]] = {}
"""Footers already parsed: a file is opened for each of its row groups, and the footer grows with their number."""


def open_parquet(part: Part, opened: str = "", columns: int = 1) -> pq.ParquetFile:
    """Open a part with settings that keep its buffers small; missing, foreign and damaged files are DumpErrors.

    The footer is parsed once for each opening of a dump, which `opened` names: the file may have changed since another.
    It must not have changed since this one. Each of the `columns` to be read has a buffer of its own.
    """
    file, identity = open_identified(part, opened, columns)
    check_unchanged(part, identity)
    return file


def open_identified(part: Part, opened: str = "", columns: int = 1) -> tuple[pq.ParquetFile, Identity]:
    """`open_parquet` for the first time: what the file was when it was opened."""
    buffer = min(1 << 20, max(_LEAST_BUFFER, _ALL_BUFFERS // columns))
    settings: dict[str, Any] = {"pre_buffer": False, "buffer_size": buffer}
    try:
        source: Any = part.path
        if part.uri is not None:
            source, settings = part.filesystem().open_input_file(part.path), {"pre_buffer": True}
        identity = identity_of(part, source)
        known = _footers.get(part.path)
        footer = known[2] if known is not None and opened and known[:2] == (opened, identity) else None
        file = pq.ParquetFile(source, metadata=footer, page_checksum_verification=True, **settings)
        if part.uri is None:  # a file that was opened by its name may be another than the one looked at
            check_unchanged(replace(part, identity=identity))
        if opened and footer is None:
            if len(_footers) >= _MOST_FOOTERS:
                _footers.clear()
            _footers[part.path] = (opened, identity, file.metadata)
        return file, identity
    except READ_ERRORS as error:
        raise DumpError(
            f"{part.name}: not a readable parquet file ({one_line(error)}); is it complete, and is it parquet?"
        ) from None


def read_schema(file: pq.ParquetFile, part: Part) -> pa.Schema:
    """The columns of a part."""
    try:
        schema = file.schema_arrow.remove_metadata()
        for name in schema.names:
            name.encode()
    except READ_ERRORS as error:
        raise DumpError(f"{part.name}: its schema cannot be read ({one_line(error)}); write it again") from None
    return schema
