"""score_batch: the rows of a batch get what `drrej reject` writes, in whatever engine the batches come from."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import LAYOUTS, make_model, make_rejector, source, write_dump

import drrej
from drrej.data import dump as dump_module
from drrej.errors import DumpError
from drrej.outputs.destinations import OutputFile


@pytest.fixture(scope="module")
def rejector(tmp_path_factory: pytest.TempPathFactory) -> drrej.Rejector:
    logits, labels = make_model(2000, 10, seed=1)
    return make_rejector(source(write_dump(tmp_path_factory.mktemp("val") / "v.parquet", logits, labels)))


def mask_of(path: Path, rejector: drrej.Rejector, options: drrej.MaskOptions | None = None) -> pa.Table:
    target = path.with_suffix(".mask.parquet")
    with OutputFile(str(target)) as file:
        drrej.reject(source(path), rejector, file, options)
        file.commit()
    return pq.ParquetFile(target).read()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_batches_of_any_size_make_the_mask(tmp_path: Path, layout: str) -> None:
    logits, labels = make_model(150, 10, seed=2)
    path = tmp_path / "d.parquet"
    write_dump(path, logits, labels, layout=layout)
    rejector = make_rejector(source(path))
    expected = mask_of(path, rejector)
    for size in (1, 7, 150):
        batches = pq.ParquetFile(path).iter_batches(batch_size=size)
        found = pa.Table.from_batches([drrej.score_batch(batch, rejector) for batch in batches])
        assert found.equals(expected)


def test_slices_and_long_batches(tmp_path: Path, rejector: drrej.Rejector, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = make_model(700, 10, seed=3)
    path = tmp_path / "d.parquet"
    write_dump(path, logits, labels)
    expected = mask_of(path, rejector)
    (batch,) = pq.ParquetFile(path).read().combine_chunks().to_batches()
    monkeypatch.setattr(dump_module, "BLOCK_BYTES", 4000)  # 100 rows
    assert pa.Table.from_batches([drrej.score_batch(batch, rejector)]).equals(expected)
    sliced = drrej.score_batch(batch.slice(123, 300), rejector)
    assert pa.Table.from_batches([sliced]).equals(expected.slice(123, 300))


def test_a_batch_without_rows_has_the_columns(tmp_path: Path, rejector: drrej.Rejector) -> None:
    logits, labels = make_model(5, 10, seed=3)
    (batch,) = pq.ParquetFile(write_dump(tmp_path / "d.parquet", logits, labels)).read().to_batches()
    empty = drrej.score_batch(batch.slice(0, 0), rejector)
    assert (empty.num_rows, empty.schema) == (0, drrej.score_batch(batch, rejector).schema)


def test_bad_rows_and_foreign_batches(tmp_path: Path, rejector: drrej.Rejector) -> None:
    logits, labels = make_model(50, 10, seed=4)
    logits[[3, 9], 2] = np.nan
    path = tmp_path / "d.parquet"
    write_dump(path, logits, labels)
    (batch,) = pq.ParquetFile(path).read().to_batches()
    with pytest.raises(DumpError, match=r"record batch: column 'logits': 2 rows have NaN .* the first is row 3"):
        drrej.score_batch(batch, rejector)
    allowed = drrej.MaskOptions(["id"], "reject")
    assert pa.Table.from_batches([drrej.score_batch(batch, rejector, allowed)]).equals(mask_of(path, rejector, allowed))
    with pytest.raises(DumpError, match=r"1 row has not 10 scores; row 0, .*it has 4"):
        drrej.score_batch(pa.record_batch({"logits": [[1.0, 2.0, 3.0, 4.0]]}), rejector)
    with pytest.raises(DumpError, match="record batch: there is no column 'logits'"):
        drrej.score_batch(pa.record_batch({"x": [1]}), rejector)


@pytest.mark.filterwarnings("default")  # of Spark and pandas
def test_spark_maps_it(tmp_path: Path, rejector: drrej.Rejector, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe of docs/scale.md in Spark's local mode."""
    pytest.importorskip("pandas", reason="Spark's mapInArrow needs pandas: pip install pandas")
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed: pip install pyspark")
    logits, labels = make_model(1000, 10, seed=5)
    path = tmp_path / "d.parquet"
    write_dump(path, logits, labels, layout="list", row_group=300)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    try:
        spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    except Exception as error:
        if "JAVA_GATEWAY_EXITED" in str(error):
            pytest.skip("no Java to run Spark with")
        raise
    try:
        text = rejector.to_json()

        def score(batches):  # type: ignore[no-untyped-def]
            import drrej

            rejector = drrej.Rejector.from_json(text)
            for batch in batches:
                yield drrej.score_batch(batch, rejector)

        columns = "id long, label long, prediction long, loss double, ratio double, rejected boolean"
        rows = spark.read.parquet(str(path)).mapInArrow(score, columns).orderBy("id").collect()
    finally:
        spark.stop()
    expected = mask_of(path, rejector)
    assert [tuple(row) for row in rows] == list(zip(*(column.to_pylist() for column in expected.columns), strict=True))
