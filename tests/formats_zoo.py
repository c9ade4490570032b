"""The same rows in every format that drrej reads."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
from dumps_zoo import Rows, fixed_list


def wide_table(rows: Rows) -> pa.Table:
    """A column per class, as CSV has them."""
    columns = {f"logit_{i}": rows.logits[:, i].astype(np.float64) for i in range(rows.classes)}
    return pa.table({"id": np.arange(len(rows.labels)), **columns, "label": rows.labels})


def list_table(rows: Rows) -> pa.Table:
    """A list per row."""
    logits = fixed_list(rows.logits.astype(np.float64))
    return pa.table({"id": np.arange(len(rows.labels)), "logits": logits, "label": rows.labels})


def csv_bytes(rows: Rows, separator: str = ",") -> bytes:
    sink = io.BytesIO()
    pacsv.write_csv(wide_table(rows), sink, pacsv.WriteOptions(delimiter=separator))
    return sink.getvalue()


def jsonl_bytes(rows: Rows) -> bytes:
    lines = (
        json.dumps({"id": i, "logits": row.astype(float).tolist(), "label": int(label)})
        for i, (row, label) in enumerate(zip(rows.logits, rows.labels, strict=True))
    )
    return ("\n".join(lines) + "\n").encode()


def zstd(text: bytes) -> bytes:
    compressed: bytes = pa.compress(text, codec="zstd", asbytes=True)
    return compressed


def _ipc(path: Path, rows: Rows, stream: bool = False) -> None:
    table = list_table(rows)
    opened = pa.ipc.new_stream(path, table.schema) if stream else pa.ipc.new_file(path, table.schema)
    with opened as writer:
        writer.write_table(table, max_chunksize=777)


def _npz(path: Path, rows: Rows, save: Callable[..., None], fortran: bool = False) -> None:
    logits = rows.logits.astype(np.float64)
    save(path, id=np.arange(len(logits)), logits=np.asfortranarray(logits) if fortran else logits, labels=rows.labels)


WRITERS: dict[str, Callable[[Path, Rows], object]] = {
    "csv": lambda path, rows: path.write_bytes(csv_bytes(rows)),
    "tsv": lambda path, rows: path.write_bytes(csv_bytes(rows, "\t")),
    "csv.gz": lambda path, rows: path.write_bytes(gzip.compress(csv_bytes(rows), mtime=0)),
    "csv.zst": lambda path, rows: path.write_bytes(zstd(csv_bytes(rows))),
    "jsonl": lambda path, rows: path.write_bytes(jsonl_bytes(rows)),
    "ndjson.gz": lambda path, rows: path.write_bytes(gzip.compress(jsonl_bytes(rows), mtime=0)),
    "jsonl.zst": lambda path, rows: path.write_bytes(zstd(jsonl_bytes(rows))),
    "arrow": _ipc,
    "arrows": lambda path, rows: _ipc(path, rows, stream=True),
    "feather": lambda path, rows: feather.write_feather(list_table(rows), str(path), compression="lz4", chunksize=500),
    "npz": lambda path, rows: _npz(path, rows, np.savez),
    "compressed.npz": lambda path, rows: _npz(path, rows, np.savez_compressed),
    "fortran.npz": lambda path, rows: _npz(path, rows, np.savez, fortran=True),
    "parquet": lambda path, rows: pq.write_table(list_table(rows), path),
}
"""By the ending of the file's name."""
