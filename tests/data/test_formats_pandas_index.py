"""Masks and weights of frames that pandas saved have the index of the frame: a flag belongs to its row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import make_model, make_rejector, source, write_dump
from running import succeed

from drrej.data.files import DumpFile
from drrej.data.formats.parquet import range_of, with_range

pd = pytest.importorskip("pandas")

CLASSES = 4


@pytest.fixture(scope="module")
def rejector(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("rejector")
    dump = write_dump(path / "val.parquet", *make_model(400, CLASSES, seed=1))
    (path / "r.json").write_text(make_rejector(source(dump), ("coverage", 0.6)).to_json())
    return str(path / "r.json")


def frame() -> Any:
    logits, labels = make_model(300, CLASSES, seed=2)
    return pd.DataFrame({"logits": list(logits), "label": labels, "row": np.arange(300)})


def shuffled(named: str | None) -> Any:
    return frame().sample(frac=0.5, random_state=3).rename_axis(named)


def two_levels() -> Any:
    rows = frame()
    return rows.set_index(pd.MultiIndex.from_arrays([rows.row % 7, rows.row + 1], names=["a", None]))


def by_time() -> Any:
    rows = frame().iloc[::-1]
    return rows.set_index(pd.to_datetime(rows.row * 3600, unit="s", utc=True).dt.tz_convert("Europe/Berlin").to_numpy())


FRAMES = {
    "shuffled": lambda: shuffled(None),
    "shuffled and named": lambda: shuffled("id"),
    "a part of a range": lambda: frame().iloc[200:20:-3],
    "two levels": two_levels,
    "times": by_time,
}


@pytest.mark.parametrize("name", FRAMES)
def test_flags_land_on_their_rows(name: str, rejector: str, tmp_path: Path) -> None:
    rows = FRAMES[name]()
    rows.to_parquet(tmp_path / "d.parquet")
    (tmp_path / "parts").mkdir()
    for number, part in enumerate((rows.iloc[:60], rows.iloc[60:120], rows.iloc[120:])):
        part.to_parquet(tmp_path / "parts" / f"{number}.parquet")
    succeed("reject", "d.parquet", "-r", rejector, "-o", "mask.parquet", cwd=tmp_path)
    succeed("reject", "parts", "-r", rejector, "-o", "joined.parquet", cwd=tmp_path)
    succeed("reject", "parts", "-r", rejector, "-o", "masks/", "-q", cwd=tmp_path)  # some parts are empty
    masks = {file: pd.read_parquet(tmp_path / file) for file in ("mask.parquet", "joined.parquet")}
    masks["masks/"] = pd.concat(pd.read_parquet(file) for file in sorted((tmp_path / "masks").iterdir()))
    for file, mask in masks.items():
        pd.testing.assert_index_equal(mask.index, rows.index, check_names=True, exact="equiv", obj=file)
        assert (mask["row"] == rows["row"]).all()


def test_an_index_that_is_not_kept_is_not_promised(rejector: str, tmp_path: Path) -> None:
    shuffled("id").to_parquet(tmp_path / "d.parquet")
    succeed("reject", "d.parquet", "-r", rejector, "-o", "mask.parquet", "--keep", "row", cwd=tmp_path)
    mask = pd.read_parquet(tmp_path / "mask.parquet")
    assert mask.columns[0] == "row"
    assert list(mask.index) == list(range(150))


@pytest.mark.parametrize(
    ("ranges", "whole"),
    [
        ([(5, 11, 3), (11, 12, 3), (14, 20, 3)], (5, 20, 3)),
        ([(0, 5, 1), (0, 5, 1)], None),
        ([(0, 5, 1), (5, 9, 2)], None),
        ([(0, 5, 1), None], None),
        ([None, (0, 5, 1)], None),
    ],
)
def test_ranges_one_after_the_other(ranges: list[Any], whole: Any) -> None:
    parts = [DumpFile("x", "x", "x", index=None if ends is None else (*ends, None)) for ends in ranges]
    noted = json.dumps({"index_columns": [], "columns": []}).encode()
    schema = with_range(pa.schema([pa.field("a", pa.int64())], {b"pandas": noted}), parts)
    found = json.loads(schema.metadata[b"pandas"])["index_columns"]
    assert [(level["start"], level["stop"], level["step"]) for level in found] == ([] if whole is None else [whole])


@pytest.mark.parametrize(
    "text", ["", "[", "[]", "{}", '{"index_columns": 3}', '{"index_columns": [{}], "columns": []}']
)
def test_notes_that_pandas_would_not_write_are_no_index(text: str) -> None:
    assert range_of(text.encode(), 3) is None
