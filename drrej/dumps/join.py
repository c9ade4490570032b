"""Labels kept in another file, joined by key: never by position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from drrej.dumps.columns import find_label
from drrej.dumps.labels import LabelKind, label_kind
from drrej.dumps.problems import Problem, Problems
from drrej.dumps.sources import find_parts, one_line
from drrej.errors import DumpError

if TYPE_CHECKING:
    from drrej.dumps.dump import Block, DumpOptions


@dataclass(frozen=True)
class LabelJoin:
    """A table of labels by key, held in memory; the dump side streams.

    Keys are sorted so that a block is joined by binary search. `skip_missing` says whether a row without a label is
    left out or is an error.
    """

    on: str
    file: str
    keys: NDArray[np.generic]
    labels: NDArray[np.int64]
    kind: LabelKind
    skip_missing: bool

    @classmethod
    def load(cls, path: str, on: str, options: DumpOptions, classes: int) -> LabelJoin:
        """Read key and label columns; duplicate and null keys are errors."""
        tables = []
        name = ""
        for part in find_parts([path]):
            try:
                schema = pq.read_schema(part.path, filesystem=part.filesystem())
                if on not in schema.names:
                    raise DumpError(f"{part.name}: there is no column '{on}' to join on")
                name = find_label([n for n in schema.names if n != on], options.label, part.name)
                tables.append(pq.read_table(part.path, columns=[on, name], filesystem=part.filesystem()))
            except (OSError, pa.ArrowException) as error:
                raise DumpError(f"{part.name}: not a readable parquet file ({one_line(error)})") from None
        table = pa.concat_tables(tables).combine_chunks()
        kind = label_kind(table.schema.field(name).type, options.classes, classes, f"{path}: column '{name}'")
        problems = Problems()

        def report(rows: NDArray[np.intp], what: str, remedy: str, column: str = name) -> None:
            if rows.size:
                problems.add([Problem(what, column, remedy, path, int(rows[0]), int(rows.size))])

        column = pa.concat_arrays(table.column(name).chunks) if table.num_rows else pa.array([], kind.type)
        labels = kind.encode(column, classes, report)
        keys, missing = sortable_keys(table.column(on))
        report(missing, "no key (null)", "every label needs its key", on)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        repeated = np.flatnonzero(keys[1:] == keys[:-1]) + 1
        if repeated.size:
            report(order[repeated], f"a key that occurred before ({keys[repeated[0]]})", "keys must be unique", on)
        problems.raise_first()
        if not keys.size:
            raise DumpError(f"{path}: zero rows; there are no labels to join")
        return cls(on, path, keys, labels[order], kind, options.on_missing_label == "skip")

    def positions(self, column: pa.Array, block: Block) -> NDArray[np.int64]:
        """Where each row's label is, -1 where there is none: reported as bad unless those rows are left out."""
        keys, nulls = sortable_keys(column)
        block.report(nulls, "no key (null)", "every row needs its key", column=self.on)
        if keys.dtype.kind != self.keys.dtype.kind:
            raise DumpError(
                f"{block.part.name}: column '{self.on}' is {column.type} but {self.file} has keys of another kind"
            )
        found = np.minimum(np.searchsorted(self.keys, keys), self.keys.size - 1).astype(np.int64)
        missing = self.keys[found] != keys
        missing[nulls] = False
        if not self.skip_missing:
            rows = np.flatnonzero(missing)
            remedy = f"add it to {self.file} or use --on-missing-label skip"
            block.report(rows, "no label in the joined file", remedy, column=self.on)
        found[missing] = -1
        return found


def sortable_keys(column: pa.Array | pa.ChunkedArray) -> tuple[NDArray[np.generic], NDArray[np.intp]]:
    """Keys as a numpy array that sorts (integers or text) and the rows without one."""
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    nulls = np.flatnonzero(np.asarray(column.is_null()))
    if pa.types.is_integer(column.type):
        if nulls.size:
            column = column.fill_null(0)
        return column.to_numpy(zero_copy_only=False).astype(np.int64), nulls
    if nulls.size:
        column = column.cast(pa.string()).fill_null("")
    values: list[str] = column.cast(pa.string()).to_pylist()
    text: NDArray[np.generic] = np.array(values, dtype=np.dtypes.StringDType())
    return text, nulls
