"""Rejection masks out: parquet with the kept columns, then prediction, loss, ratio, rejected."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from drrej.errors import DumpError
from drrej.output import cannot_write

MASK_COLUMNS = ("prediction", "loss", "ratio", "rejected")
_GROUP_ROWS = 1 << 17


def check_names(keep: Sequence[str], names: Sequence[str], where: str) -> None:
    """Raise when a kept column is missing or its name is one of the mask's own."""
    for name in keep:
        if name not in names:
            raise DumpError(f"{where}: there is no column '{name}' to keep")
        if name in MASK_COLUMNS:
            raise DumpError(
                f"{where}: the dump has a column '{name}', which the mask uses itself; rename it or list the columns "
                "to keep with --keep"
            )
    if len(set(keep)) < len(keep):
        raise DumpError("--keep names a column twice")


def _repeats(field: pa.Field) -> bool:
    return field.name == "prediction" or not pa.types.is_primitive(field.type)


class MaskWriter:
    """Writes batches to a parquet file in row groups of a fixed size, whatever the size of the batches."""

    def __init__(self, path: str, target: str, schema: pa.Schema) -> None:
        self._target = target
        self._schema = schema
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0
        try:
            self._writer = pq.ParquetWriter(
                path,
                schema,
                # Numbers hardly repeat, losses and ratios look random: a dictionary or a codec would only cost time.
                use_dictionary=[field.name for field in schema if _repeats(field)],
                compression={name: "none" if name in ("loss", "ratio") else "snappy" for name in schema.names},
            )
        except OSError as error:
            raise cannot_write(target, error) from None

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
        if self._pending:
            table = pa.Table.from_batches(self._pending, self._schema)
            self._pending, self._rows = [], 0
            try:
                self._writer.write_table(table, row_group_size=_GROUP_ROWS)
            except OSError as error:
                raise cannot_write(self._target, error) from None

    def __enter__(self) -> MaskWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
        try:
            self._writer.close()
        except OSError as failure:
            if kind is None:
                raise cannot_write(self._target, failure) from None
