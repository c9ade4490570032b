"""Generated, seeded dumps: logits like a fairly good classifier's, in list or wide layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_STRETCH = 1 << 22
"""Logits made at a time."""


@dataclass(frozen=True)
class Shape:
    """Size and layout of a dump; `group` rows per row group, 0 for a single row group."""

    rows: int
    classes: int
    layout: str = "list"
    group: int = 65536

    @property
    def name(self) -> str:
        """What tables call it."""
        group = "one row group" if not self.group else f"{self.group} rows a group"
        return f"{self.rows:,} x {self.classes:,} float32, {self.layout}, {group}"

    def path(self, folder: Path) -> Path:
        """Where it is kept."""
        return folder / f"{self.rows}x{self.classes}-{self.layout}-{self.group}.parquet"

    def make(self, folder: Path) -> Path:
        """Write the dump unless it is there."""
        path = self.path(folder)
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            self._write(part)
            part.rename(path)
        return path

    def _write(self, path: Path) -> None:
        group = self.group or self.rows
        writer: pq.ParquetWriter | None = None
        tables: list[pa.Table] = []
        step = max(1, min(group, _STRETCH // self.classes))
        for number, start in enumerate(range(0, self.rows, step)):
            tables.append(self._rows(start, min(step, self.rows - start), number))
            if sum(table.num_rows for table in tables) >= group or start + step >= self.rows:
                merged = pa.concat_tables(tables).combine_chunks()
                tables = []
                writer = writer or pq.ParquetWriter(path, merged.schema)
                writer.write_table(merged, row_group_size=group)
        assert writer is not None
        writer.close()

    def _rows(self, start: int, rows: int, number: int) -> pa.Table:
        """Random logits with the true class lifted by a random amount: about 85 % accuracy, overconfident."""
        rng = np.random.default_rng([self.classes, number])
        logits = rng.standard_normal((rows, self.classes), dtype=np.float32) * np.float32(2)
        labels = rng.integers(0, self.classes, rows)
        lift = np.sqrt(2 * np.log(self.classes)) * 2 + rng.normal(3, 3, rows)
        logits[np.arange(rows), labels] += lift.astype(np.float32)
        columns: dict[str, pa.Array] = {"id": pa.array(np.arange(start, start + rows))}
        if self.layout == "list":
            offsets = np.arange(0, rows * self.classes + 1, self.classes, dtype=np.int32)
            columns["logits"] = pa.ListArray.from_arrays(offsets, logits.ravel())
        else:
            columns |= {f"logit_{k}": pa.array(np.ascontiguousarray(logits[:, k])) for k in range(self.classes)}
        columns["label"] = pa.array(labels)
        return pa.table(columns)
