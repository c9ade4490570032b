"""Rejection masks out: files with the kept columns, then prediction, loss, ratio, rejected."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from drrej.data.files import DumpFile
from drrej.data.problems import shown
from drrej.errors import DumpError, OptionError
from drrej.outputs.encoders import ENCODERS, PARQUET, ending_of
from drrej.outputs.files import OutputFile
from drrej.outputs.hidden import cannot_write

MASK_COLUMNS = ("prediction", "loss", "ratio", "rejected")
_GROUP_ROWS = 1 << 17


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


def format_of(output: OutputFile) -> str:
    """The ending that says the format of a file; what has no name that lasts, such as standard output, is parquet."""
    if not output.is_regular:
        return PARQUET
    ending = ending_of(output.target)
    if ending is None:
        raise OptionError(
            f"{output.name}: the ending of the name says the format; use one of {', '.join(ENCODERS)}, or a name that "
            "ends in / for a directory"
        )
    return ending


class MaskFile:
    """Writes batches to a file in groups of a fixed size, whatever the size of the batches."""

    def __init__(self, path: str, target: str, schema: pa.Schema, format: str = PARQUET) -> None:
        self._target = target
        self._schema = schema
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0
        try:
            self._encoder = ENCODERS[format](path, schema)
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
            table = pa.Table.from_batches([_in_schema(batch, self._schema) for batch in self._pending], self._schema)
            self._pending, self._rows = [], 0
            try:
                self._encoder.write(table)
            except OSError as error:
                raise cannot_write(self._target, error) from None

    def __enter__(self) -> MaskFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(complete=kind is None)

    def close(self, complete: bool) -> None:
        """Finish the file; one that is not complete will be thrown away."""
        if complete:
            self._flush()
        try:
            self._encoder.close()
        except OSError as error:
            if complete:
                raise cannot_write(self._target, error) from None


def mask_name(part: DumpFile) -> str:
    """The path of the mask of a part below the directory of a dataset: parquet, whatever the part is."""
    return part.mask_path if part.mask_path.endswith(PARQUET) else part.mask_path + PARQUET


def check_distinct(parts: Sequence[DumpFile], target: str) -> None:
    """Raise when two parts would have their masks in one place."""
    seen: set[str] = set()
    for part in parts:
        name = mask_name(part)
        if name in seen:
            raise DumpError(f"{target}: two input files would both be written to {name}; give them one by one")
        seen.add(name)


def write_table(table: pa.Table, path: str, target: str) -> None:
    """Write a whole table, as csv or parquet by the ending of its target."""
    try:
        if target.lower().endswith(".csv"):
            import pyarrow.csv as pacsv

            pacsv.write_csv(table, path)
        else:
            pq.write_table(table, path)
    except OSError as error:
        raise cannot_write(target, error) from None


def _in_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with a schema whose types may be others; a cast, even to the same types, loads Arrow's functions."""
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema) if batch.schema == schema else batch.cast(schema)
