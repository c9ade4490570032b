"""Rows of one kind, told by a column that is true or false."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.errors import DumpError
from drrej.records import dataclass


@dataclass(frozen=True)
class Only:
    """The rows where a column has a value, true or false; 1 and 0 will do. Goes to workers with the dump."""

    column: str
    value: bool
    option: str
    """What errors call it."""

    def check(self, schema: pa.Schema, where: str) -> None:
        """Raise unless the column is there and can be true or false."""
        if self.column not in schema.names:
            raise DumpError(f"{where}: `{self.option}={self.column}`: there is no such column")
        kind = schema.field(self.column).type
        if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind)):
            raise DumpError(
                f"{where}: `{self.option}={self.column}`: the column is {kind}; it must be boolean (or 0 and 1)"
            )

    def places(self, batch: pa.RecordBatch, first_row: int, where: str) -> NDArray[np.intp]:
        """The places of such rows in a batch; raises where one says neither."""
        column = batch.column(self.column)
        missing = np.asarray(column.is_null())
        values = column.cast(pa.int64()).fill_null(2).to_numpy(zero_copy_only=False)
        odd = np.flatnonzero((values != 0) & (values != 1))
        if odd.size:
            row = int(odd[0])
            what = "has no value (null)" if missing[row] else f"is {values[row]}"
            raise DumpError(
                f"{where}: column '{self.column}' {what} in row {first_row + row} (counted from 0); `{self.option}` "
                "needs true or false (or 1 and 0) in every row"
            )
        return np.flatnonzero(values == int(self.value))
