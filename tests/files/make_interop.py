"""Write the same sixty rows with the libraries that people dump logits with.

    pip install 'drrej[interop]' && python tests/files/make_interop.py

The files beside this script were made by polars 2.1, pandas 3.1, DuckDB 2.0 and datasets 5.2.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from dumps_zoo import small_rows

ROWS = small_rows()


def polars_list(path: Path) -> None:
    import polars as pl

    kinds = pl.Series(ROWS.text_labels, dtype=pl.Categorical)
    frame = pl.DataFrame({"logits": ROWS.logits.tolist(), "label": ROWS.text_labels, "kind": kinds})
    frame.with_columns(pl.col("logits").cast(pl.List(pl.Float32))).write_parquet(path)


def polars_array(path: Path) -> None:
    import polars as pl

    pl.DataFrame({"logits": ROWS.logits, "label": ROWS.labels}).write_parquet(path)


def polars_wide(path: Path) -> None:
    import polars as pl

    columns = {f"logit_{i}": ROWS.logits[:, i] for i in range(5)}
    label = pl.Series(ROWS.text_labels, dtype=pl.Enum(ROWS.names))
    pl.DataFrame({**columns, "label": label}).write_parquet(path)


def pandas_list(path: Path) -> None:
    import pandas as pd

    pd.DataFrame({"logits": list(ROWS.logits), "label": ROWS.labels}).to_parquet(path)


def pandas_wide(path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(ROWS.logits)
    frame.columns = frame.columns.astype(str)
    frame["label"] = pd.Categorical(ROWS.text_labels)
    frame.index = pd.Index([f"img{i}" for i in range(60)], name="file")
    frame.to_parquet(path)


def _duckdb(path: Path, query: str) -> None:
    import duckdb
    import pyarrow as pa

    connection = duckdb.connect()
    table = pa.table({**{f"z{i}": ROWS.logits[:, i] for i in range(5)}, "label": ROWS.labels, "name": ROWS.text_labels})
    connection.register("t", table)
    names = ", ".join(f"'{name}'" for name in ROWS.names)
    connection.execute(f"CREATE TYPE class AS ENUM ({names})")
    connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")


def duckdb_list(path: Path) -> None:
    _duckdb(path, "SELECT [z0, z1, z2, z3, z4] AS logits, label::INTEGER AS label FROM t")


def duckdb_array(path: Path) -> None:
    _duckdb(path, "SELECT [z0, z1, z2, z3, z4]::FLOAT[5] AS logits, name::class AS label FROM t")


def duckdb_wide(path: Path) -> None:
    _duckdb(path, "SELECT * EXCLUDE (name) FROM t")


def hf_datasets(path: Path) -> None:
    from datasets import ClassLabel, Dataset, Features, List, Value

    features = Features({"logits": List(Value("float32"), length=5), "label": ClassLabel(names=ROWS.names)})
    columns = {"logits": ROWS.logits.tolist(), "label": ROWS.labels.tolist()}
    Dataset.from_dict(columns, features=features).to_parquet(str(path))


def timm_inference(path: Path) -> None:
    """Columns and index as timm's inference.py has them with --topk 0 --output-type logit."""
    import pandas as pd

    frame = pd.DataFrame({"filename": [f"val/{i}.jpg" for i in range(60)], "logit": list(ROWS.logits)})
    frame.set_index("filename").to_parquet(path)


def timm_inference_separate(path: Path) -> None:
    """With --results-separate-col as well."""
    import pandas as pd

    columns = {f"logit_{i}": ROWS.logits[:, i] for i in range(5)}
    frame = pd.DataFrame({"filename": [f"val/{i}.jpg" for i in range(60)], **columns})
    frame.set_index("filename").to_parquet(path)


WRITERS: dict[str, Callable[[Path], None]] = {
    writer.__name__: writer
    for writer in (
        polars_list,
        polars_array,
        polars_wide,
        pandas_list,
        pandas_wide,
        duckdb_list,
        duckdb_array,
        duckdb_wide,
        hf_datasets,
        timm_inference,
        timm_inference_separate,
    )
}

if __name__ == "__main__":
    folder = Path(__file__).parent / "interop"
    folder.mkdir(exist_ok=True)
    for name, writer in WRITERS.items():
        writer(folder / f"{name}.parquet")
