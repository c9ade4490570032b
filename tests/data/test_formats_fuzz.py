"""A small sample of the campaign of `fuzz_readers`."""

from __future__ import annotations

from pathlib import Path

import fuzz_readers
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drrej.data.dump import DumpOptions
from drrej.data.open import open_dump
from drrej.errors import DumpError


@pytest.mark.parametrize("ending", fuzz_readers.ENDINGS)
def test_mutated_files_are_read_or_refused(ending: str, tmp_path: Path) -> None:
    counts = fuzz_readers.campaign(ending, 12, tmp_path, first=100_000)
    assert counts["refused"] > 0


def test_a_damaged_footer_does_not_end_the_process(tmp_path: Path) -> None:
    """pyarrow's description of a column chunk would, where the footer contradicts itself about levels or codecs."""
    path = tmp_path / "d.parquet"
    lists = pa.array([[1.0, 2.0, 3.0]] * 20, pa.list_(pa.float32()))
    pq.write_table(pa.table({"logits": lists}), path, store_schema=False)
    data, size = path.read_bytes(), pq.read_metadata(path).serialized_size
    refused = 0
    for place in range(len(data) - 8 - size, len(data) - 8):
        damaged = bytearray(data)
        damaged[place] ^= 2
        path.write_bytes(damaged)
        try:
            open_dump([str(path)], DumpOptions(), labelled=False)
        except DumpError:
            refused += 1
    assert refused > 50
