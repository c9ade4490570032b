"""What a run leaves, to compare runs on the same rows in different formats and layouts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from dumps_zoo import same_decisions
from running import succeed, without_names


@dataclass(frozen=True)
class Results:
    """What `drrej run` leaves."""

    rejector: dict[str, Any]
    report: dict[str, Any]
    mask: pa.Table

    @classmethod
    def of(cls, folder: Path, dump: object, *flags: object) -> Results:
        """Of a run with a dump as validation and test rows."""
        run = ["run", "--val", dump, "--test", dump, *flags, "--coverage", "0.8", "-o", folder / "out", "-f", "-q"]
        succeed(*run)
        documents = (json.loads((folder / "out" / f"{name}.json").read_text()) for name in ("rejector", "report"))
        return cls(*documents, pq.ParquetFile(folder / "out" / "mask.parquet").read())

    def check(self, other: Results) -> None:
        """Equal to the bit, but for the names of files and columns."""
        for key in ("calibration", "ratio", "threshold", "classes", "input"):
            assert without_names(self.rejector[key]) == without_names(other.rejector[key]), key
        assert without_names(self.report) == without_names(other.report)
        same_decisions(self.mask, other.mask)
        assert self.mask.column("prediction").to_pylist() == other.mask.column("prediction").to_pylist()
