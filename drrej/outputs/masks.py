"""Tables out, group by group; the ending of a file's name says the format. A mask is such a table.

Text formats have the numbers in as few digits as read back to the same float.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from drrej.data.labels import is_text, value_type
from drrej.data.problems import shown
from drrej.errors import DumpError, OptionError, OutputError
from drrej.outputs.atomic import writing
from drrej.outputs.destinations import OutputFile

MASK_COLUMNS = ("prediction", "loss", "ratio", "rejected")
PARQUET = ".parquet"
Format = Literal["parquet", "arrow", "csv", "json"]
_GROUP_ROWS = 1 << 17


class MaskFile(AbstractContextManager["MaskFile"]):
    """Writes batches to a file in groups of a fixed size, whatever the size of the batches."""

    def __init__(
        self, path: str, target: str, schema: pa.Schema, ending: str = PARQUET, safe_csv: bool = False
    ) -> None:
        self._target = target
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0
        self._format, codec = ENDINGS[ending]
        self._safe = safe_csv and self._format == "csv"
        self._schema = _written_schema(schema, self._format)
        with writing(target):
            file = pa.OSFile(path, "wb")
            self._stream = file if codec is None else pa.CompressedOutputStream(file, codec)
            shown = _without_formulas(self._schema.empty_table()).schema if self._safe else self._schema
            self._writer = _open_writer(self._stream, shown, self._format)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        while batch.num_rows:
            taken = batch.slice(0, _GROUP_ROWS - self._rows)
            self._pending.append(taken)
            self._rows += taken.num_rows
            batch = batch.slice(taken.num_rows)
            if self._rows == _GROUP_ROWS:
                self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        schema = self._schema
        batches = [
            pa.RecordBatch.from_arrays(batch.columns, schema=schema) if batch.schema == schema else batch.cast(schema)
            for batch in self._pending  # a cast, even to the same types, would load Arrow's functions
        ]
        table = pa.Table.from_batches(batches, schema)
        self._pending, self._rows = [], 0
        table = _without_formulas(table) if self._safe else table
        with writing(self._target):
            if self._writer is None:
                self._stream.write(b"".join(map(json_lines, table.to_batches())))
            else:
                self._writer.write_table(table if self._format == "parquet" else table.combine_chunks())

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Finish the file; after an error it will be thrown away."""
        if kind is None:
            self._flush()
        try:
            with writing(self._target):
                if self._writer is not None:
                    self._writer.close()
                self._stream.close()
        except OutputError:
            if kind is None:
                raise


_FORMULA = r"^([=+\-@\t\r])"
"""How a text begins that spreadsheets take for a formula."""


def _without_formulas(table: pa.Table) -> pa.Table:
    """The same table with a ' before each text that a spreadsheet would run, names too."""
    import pyarrow.compute as pc

    columns = [
        pc.replace_substring_regex(column, _FORMULA, r"'\1") if is_text(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, [re.sub(_FORMULA, r"'\1", name) for name in table.column_names])


# Formats

_CODECS = {"": None, ".gz": "gzip", ".zst": "zstd"}
_TEXTS: dict[str, Format] = {".csv": "csv", ".jsonl": "json", ".ndjson": "json"}
ENDINGS: dict[str, tuple[Format, str | None]] = {
    PARQUET: ("parquet", None),
    ".pq": ("parquet", None),
    ".arrow": ("arrow", None),
    ".feather": ("arrow", None),
    **{text + end: (format, codec) for text, format in _TEXTS.items() for end, codec in _CODECS.items()},
}
"""The format of a file whose name ends so, and how the file is compressed as a whole."""


def _open_writer(stream: pa.NativeFile, schema: pa.Schema, format: Format) -> Any:
    """Something with `write_table` and `close`; None for JSON lines."""
    if format == "parquet":
        # Numbers hardly repeat, losses and ratios look random: a dictionary or a codec would only cost time.
        repeated = {"prediction", "label"} | {field.name for field in schema if not pa.types.is_primitive(field.type)}
        return pq.ParquetWriter(
            stream,
            schema,
            use_dictionary=[name for name in schema.names if name in repeated],
            compression={name: "none" if name in ("loss", "ratio") else "snappy" for name in schema.names},
        )
    if format == "arrow":  # with a footer, which is what .feather files are
        return pa.ipc.new_file(stream, schema)
    if format == "csv":  # missing values are empty, empty texts have quotes
        import pyarrow.csv as pacsv

        return pacsv.CSVWriter(stream, schema)
    return None


def _written_schema(schema: pa.Schema, format: Format) -> pa.Schema:
    """Types that the format can be written from; raises for columns that it cannot hold."""
    named = {"csv": ("CSV", "end the name in .jsonl or .parquet"), "json": ("JSON", "end the name in .parquet")}
    for field in schema if format in named else ():
        if _is_bytes(field.type) or (format == "csv" and pa.types.is_nested(field.type)):
            name, remedy = named[format]
            raise OptionError(
                f"column '{field.name}' is {field.type}, which {name} cannot hold; leave it out with `keep`, or "
                f"{remedy}"
            )
    if format != "csv":
        return schema
    types = [value_type(field.type) for field in schema]
    plain = [pa.large_string() if pa.types.is_string_view(kind) else kind for kind in types]
    return pa.schema(list(zip(schema.names, plain, strict=True)))


def _is_bytes(data_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(data_type):
        return _is_bytes(data_type.value_type)
    if pa.types.is_nested(data_type):
        return any(_is_bytes(data_type.field(i).type) for i in range(data_type.num_fields))
    return "binary" in str(data_type)


def ending_of(name: str) -> str | None:
    """The ending of a file's name that says its format; None for any other.

    >>> ending_of("mask.CSV.gz"), ending_of("mask.xlsx"), ending_of("s3://bucket/mask.arrow?region=eu")
    ('.csv.gz', None, '.arrow')
    """
    plain = name.partition("?")[0].lower() if "://" in name else name.lower()
    return max((ending for ending in ENDINGS if plain.endswith(ending)), key=len, default=None)


def format_of(output: OutputFile) -> str:
    """The ending that says the format of a file; what has no name that lasts, such as standard output, is parquet."""
    ending = ending_of(output.target) if output.kind in ("file", "object") else PARQUET
    if ending is None:
        raise OptionError(
            f"{output.name}: the ending of the name says the format; use one of {', '.join(ENDINGS)}, or a name that "
            "ends in / for a directory"
        )
    return ending


def write_table(table: pa.Table, path: str, target: str) -> None:
    """Write a whole table, as csv or parquet by the ending of its target."""
    with MaskFile(path, target, table.schema, ".csv" if target.lower().endswith(".csv") else PARQUET) as file:
        for batch in table.to_batches():
            file.write(batch)


# Names


def check_names(keep: Sequence[str], names: Sequence[str], where: str, own: Sequence[str] = MASK_COLUMNS) -> None:
    """Raise when a kept column is missing or its name is one of the mask's (or another output's) own."""
    for name in keep:
        if name not in names:
            raise DumpError(f"{where}: there is no column '{name}' to keep; columns: {shown(names)}")
        if name in own:
            output = "mask" if "rejected" in own else "output"
            raise DumpError(
                f"{where}: the dump has a column '{name}', which the {output} uses itself; rename it or list the "
                "columns to keep with `keep`"
            )
        if list(keep).count(name) > 1:
            raise DumpError(f"`keep` names the column '{name}' twice; once is enough")


# Rows as JSON: numbers that are not finite are null, and what JSON has no word for is text

ENCODER = msgspec.json.Encoder(enc_hook=str, decimal_format="number")


def json_lines(batch: pa.RecordBatch) -> bytes:
    r"""A JSON object per row, each on a line of its own.

    >>> json_lines(pa.record_batch({"id": ["a", 'b"'], "loss": [0.5, float("inf")], "rejected": [True, None]}))
    b'{"id":"a","loss":0.5,"rejected":true}\n{"id":"b\\"","loss":null,"rejected":null}\n'
    """
    columns = [_short_numbers(column) for column in batch.columns]
    return ENCODER.encode_lines(pa.RecordBatch.from_arrays(columns, batch.schema.names).to_pylist())


def _short_numbers(array: pa.Array) -> pa.Array:
    """Single precision in as few digits as read back to the same float; times as text."""
    if pa.types.is_temporal(array.type):
        return array.cast(pa.string())
    if pa.types.is_floating(array.type) and array.type.bit_width < 64:
        return array.cast(pa.string()).cast(pa.float64())
    return array
