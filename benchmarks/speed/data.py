"""Generated, seeded dumps: logits like a fairly good classifier's, in list or wide layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

GROUP = 65536
"""Rows of a row group."""


@dataclass(frozen=True)
class Shape:
    """Size and layout of a dump."""

    rows: int
    classes: int
    layout: str = "list"

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"{self.rows:,} x {self.classes:,} float32, {self.layout}"

    def path(self, folder: Path) -> Path:
        """Where it is kept."""
        return folder / f"{self.rows}x{self.classes}-{self.layout}.parquet"

    def make(self, folder: Path) -> None:
        """Write the dump."""
        folder.mkdir(parents=True, exist_ok=True)
        part = self.path(folder).with_suffix(".part")
        with pq.ParquetWriter(part, self._rows(0, 1, 0).schema) as writer:
            for number, start in enumerate(range(0, self.rows, GROUP)):
                writer.write_table(self._rows(start, min(GROUP, self.rows - start), number))
        part.rename(self.path(folder))

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
