"""Formats of tables that are written group by group; the ending of a file's name says which.

Text formats have the numbers in as few digits as read back to the same float.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from drrej.errors import OptionError

PARQUET = ".parquet"


class Encoder(Protocol):
    """Writes a file of one format."""

    def write(self, table: pa.Table) -> None:
        """Add a group of rows."""

    def close(self) -> None:
        """Finish the file."""


class ParquetEncoder:
    """Parquet, a row group per group."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(
            path,
            schema,
            # Numbers hardly repeat, losses and ratios look random: a dictionary or a codec would only cost time.
            use_dictionary=[field.name for field in schema if _repeats(field)],
            compression={name: "none" if name in ("loss", "ratio") else "snappy" for name in schema.names},
        )

    def write(self, table: pa.Table) -> None:
        """Add a group of rows."""
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()


def _repeats(field: pa.Field) -> bool:
    return field.name in ("prediction", "label") or not pa.types.is_primitive(field.type)


class ArrowEncoder:
    """Arrow IPC with a footer, which is what .feather files are; a record batch per group."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._file = pa.OSFile(path, "wb")
        self._writer = pa.ipc.new_file(self._file, schema)

    def write(self, table: pa.Table) -> None:
        """Add a group of rows."""
        for batch in table.combine_chunks().to_batches():
            self._writer.write_batch(batch)

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()
        self._file.close()


class CsvEncoder:
    """Comma-separated values with a header. Missing values are empty; empty texts have quotes."""

    def __init__(self, path: str, schema: pa.Schema, compression: str | None = None) -> None:
        import pyarrow.csv as pacsv

        for field in schema:
            if pa.types.is_nested(field.type) or _is_bytes(field.type):
                raise _cannot_hold(field, "CSV", "end the name in .jsonl or .parquet")
        self._stream = _stream(path, compression)
        self._schema = pa.schema([(field.name, _plain(field.type)) for field in schema])
        self._writer = pacsv.CSVWriter(self._stream, self._schema)

    def write(self, table: pa.Table) -> None:
        """Add a group of rows."""
        self._writer.write_table(table.cast(self._schema))

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()
        self._stream.close()


def _plain(data_type: pa.DataType) -> pa.DataType:
    """A type that CSV can be written from, for the same values."""
    if pa.types.is_dictionary(data_type):
        return _plain(data_type.value_type)
    return pa.large_string() if pa.types.is_string_view(data_type) else data_type


class JsonLinesEncoder:
    """A JSON object per row. What JSON cannot say, such as an infinite ratio, is null."""

    def __init__(self, path: str, schema: pa.Schema, compression: str | None = None) -> None:
        for field in schema:
            if _is_bytes(field.type):
                raise _cannot_hold(field, "JSON", "end the name in .parquet")
        self._stream = _stream(path, compression)

    def write(self, table: pa.Table) -> None:
        """Add a group of rows."""
        from drrej.outputs.json_text import json_lines

        for batch in table.combine_chunks().to_batches():
            self._stream.write(json_lines(batch))

    def close(self) -> None:
        """Finish the file."""
        self._stream.close()


def _is_bytes(data_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(data_type):
        return _is_bytes(data_type.value_type)
    if pa.types.is_nested(data_type):
        return any(_is_bytes(data_type.field(i).type) for i in range(data_type.num_fields))
    return bool(
        pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or pa.types.is_fixed_size_binary(data_type)
        or pa.types.is_binary_view(data_type)
    )


def _cannot_hold(field: pa.Field, format: str, remedy: str) -> OptionError:
    return OptionError(
        f"column '{field.name}' is {field.type}, which {format} cannot hold; leave it out with `keep`, or {remedy}"
    )


def _stream(path: str, compression: str | None) -> pa.NativeFile:
    file = pa.OSFile(path, "wb")
    return file if compression is None else pa.CompressedOutputStream(file, compression)


_TEXTS: dict[str, Callable[[str, pa.Schema, str | None], Encoder]] = {
    ".csv": CsvEncoder,
    ".jsonl": JsonLinesEncoder,
    ".ndjson": JsonLinesEncoder,
}
_CODECS = {"": None, ".gz": "gzip", ".zst": "zstd"}


def _compressed(
    make: Callable[[str, pa.Schema, str | None], Encoder], codec: str | None
) -> Callable[[str, pa.Schema], Encoder]:
    return lambda path, schema: make(path, schema, codec)


ENCODERS: dict[str, Callable[[str, pa.Schema], Encoder]] = {
    PARQUET: ParquetEncoder,
    ".pq": ParquetEncoder,
    ".arrow": ArrowEncoder,
    ".feather": ArrowEncoder,
    **{text + end: _compressed(make, codec) for text, make in _TEXTS.items() for end, codec in _CODECS.items()},
}
"""What writes a file whose name ends so."""


def ending_of(name: str) -> str | None:
    """The ending of a file's name that says its format; None for any other.

    >>> ending_of("mask.CSV.gz"), ending_of("mask.xlsx"), ending_of("s3://bucket/mask.arrow?region=eu")
    ('.csv.gz', None, '.arrow')
    """
    plain = name.partition("?")[0].lower() if "://" in name else name.lower()
    return max((ending for ending in ENCODERS if plain.endswith(ending)), key=len, default=None)
