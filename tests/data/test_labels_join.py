"""Labels kept in another file: joined by key, whatever the order of the rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from dumps_zoo import Rows, drrej, fixed_list, make_rejector, make_rows, newer_arrow, succeed, write

ROWS = 600


@pytest.fixture(scope="module")
def rows() -> Rows:
    return make_rows(5, ROWS)


@pytest.fixture
def direct(rows: Rows, tmp_path: Path) -> dict[str, object]:
    """The calibration with the labels in the dump itself."""
    dump = write(tmp_path / "direct.parquet", {"logits": fixed_list(rows.logits), "label": rows.labels})
    return dict(json.loads(succeed("calibrate", dump).out)["calibration"])


def _dump(rows: Rows, folder: Path, keys: object, **columns: object) -> Path:
    table = {"key": keys, "logits": fixed_list(rows.logits), **columns}
    return write(folder / "dump.parquet", table, row_group_size=170)


def _shuffled(rows: Rows, folder: Path, keys: pa.Array, **columns: object) -> Path:
    """The labels in another order, with some that no row asks for."""
    order = pa.array(np.random.default_rng(1).permutation(ROWS))
    table = {"label": pa.array(rows.labels).take(order), "key": keys.take(order), **columns}
    return write(folder / "labels.parquet", table, row_group_size=90)


KEYS = {
    "int64": pa.array(np.arange(ROWS) * 7 - 300),
    "int32 and int64": pa.array(np.arange(ROWS) * 7 - 300),
    "floats from pandas": pa.array(np.arange(ROWS) * 3.0),
    "string": pa.array([f"img/{i * 37 % ROWS}.jpg" for i in range(ROWS)]),
    "large_string and string": pa.array([f"é{i}" for i in range(ROWS)], pa.large_string()),
    "string_view": pa.array([f"a name of more than fifteen bytes {i}" for i in range(ROWS)]),
    "dictionary": pa.array([f"k{i % ROWS}" for i in range(ROWS)]).dictionary_encode(),
    "binary": pa.array([i.to_bytes(4, "big") for i in range(ROWS)]),
    "fixed binary": pa.array([i.to_bytes(16, "big") for i in range(ROWS)], pa.binary(16)),
    "timestamp": pa.array(np.arange(ROWS) * 10**6, pa.timestamp("us")),
}


@pytest.mark.parametrize("kind", KEYS)
def test_any_order_and_type_of_keys(rows: Rows, tmp_path: Path, direct: dict[str, object], kind: str) -> None:
    keys = KEYS[kind]
    others = {
        "string_view": pa.string_view(),
        "int32 and int64": pa.int32(),
        "large_string and string": pa.string(),
        "floats from pandas": pa.int64(),
    }
    with newer_arrow():
        here = keys.cast(others[kind]) if kind in others else keys
    dump = _dump(rows, tmp_path, here, label=np.zeros(ROWS, int))  # a label column of its own is not looked at
    labels = _shuffled(rows, tmp_path, keys)
    outcome = succeed("calibrate", dump, "--labels-from", labels, "--join-on", "key")
    assert json.loads(outcome.out)["calibration"] == direct
    assert outcome.err == ""


def test_every_labelled_command(rows: Rows, tmp_path: Path) -> None:
    keys = KEYS["int64"]
    dump, labels = _dump(rows, tmp_path, keys), _shuffled(rows, tmp_path, keys)
    whole = _dump(rows, tmp_path / "whole", keys, label=rows.labels)
    expected = make_rejector(whole, tmp_path)
    join = ["--labels-from", labels, "--join-on", "key"]
    folder = tmp_path / "joined"
    folder.mkdir()
    succeed("calibrate", dump, *join, "-o", folder / "c.json")
    succeed("fit", dump, *join, "--loss", "log", "-r", folder / "c.json", "-o", folder / "f.json")
    rule = ["--risk", "0.02"]
    joined = succeed("threshold", dump, *join, "-r", folder / "f.json", *rule).out
    plain = succeed("threshold", whole, "-r", tmp_path / "fitted.json", *rule).out
    assert json.loads(joined)["threshold"] == json.loads(plain)["threshold"]
    report = succeed("evaluate", dump, *join, "-r", expected, "--format", "json").out
    assert report == succeed("evaluate", whole, "-r", expected, "--format", "json").out


def test_labels_in_several_files_and_text(rows: Rows, tmp_path: Path, direct: dict[str, object]) -> None:
    keys = KEYS["string"]
    dump = _dump(rows, tmp_path, keys)
    for i, piece in enumerate(np.array_split(np.random.default_rng(2).permutation(ROWS), 3)):
        text = pa.array([rows.text_labels[j] for j in piece])
        table = {"y": text if i else text.dictionary_encode(), "key": keys.take(pa.array(piece))}
        write(tmp_path / "labels" / f"{i}.parquet", table)
    empty = {"y": pa.array([], pa.string()), "key": pa.array([], pa.string())}
    write(tmp_path / "labels" / "empty.parquet", empty)
    join = ["--labels-from", tmp_path / "labels", "--join-on", "key", "--label", "y"]
    document = json.loads(succeed("calibrate", dump, *join, "--classes", ",".join(rows.names)).out)
    assert document["calibration"] == direct
    assert document["columns"]["label"] == "y"


def test_missing_labels_are_counted_and_named(rows: Rows, tmp_path: Path) -> None:
    keys = KEYS["string"]
    dump = _dump(rows, tmp_path, keys)
    kept = [i for i in range(ROWS) if i not in (5, 200, 599)]
    table = {"key": keys.take(kept), "label": rows.labels[kept]}
    labels = write(tmp_path / "labels.parquet", table)
    outcome = drrej("calibrate", dump, "--labels-from", labels, "--join-on", "key")
    assert outcome.code == 2
    (line,) = outcome.lines
    for words in ("dump.parquet: column 'key': 3 rows", "no label in", "labels.parquet", "the first is row 5"):
        assert words in line
    assert f"(key {keys[5]})" in line
    assert "--on-missing-label skip" in line


def test_missing_labels_can_be_skipped(rows: Rows, tmp_path: Path) -> None:
    """The rows that have a label count, and only they: bad logits elsewhere do no harm."""
    keys = np.arange(ROWS)
    scores: list[object] = list(rows.logits)
    skipped = [3, 250, 598]
    for row in skipped[:2]:
        scores[row] = None
    given: list[object] = keys.tolist()
    given[598] = None
    table = {"key": pa.array(given), "logits": pa.array(scores, pa.list_(pa.float16()))}
    dump = write(tmp_path / "dump.parquet", table, row_group_size=170)
    kept = np.setdiff1d(keys, skipped)
    labels = write(tmp_path / "labels.parquet", {"key": kept, "label": rows.labels[kept]})
    arguments = ["--labels-from", labels, "--join-on", "key", "--on-missing-label", "skip"]
    outcome = succeed("calibrate", dump, *arguments)
    assert outcome.lines == [f"drrej: note: 3 rows without a label in {labels} were left out"]
    alone = write(tmp_path / "alone.parquet", {"logits": fixed_list(rows.logits[kept]), "label": rows.labels[kept]})
    assert json.loads(outcome.out)["calibration"] == json.loads(succeed("calibrate", alone).out)["calibration"]
    assert succeed("calibrate", dump, *arguments, "-q").err == ""


def test_bad_rows_are_named_by_their_place_in_the_file(rows: Rows, tmp_path: Path) -> None:
    scores = rows.logits.astype(np.float32)
    scores[400] = np.nan
    dump = write(tmp_path / "dump.parquet", {"key": np.arange(ROWS), "logits": fixed_list(scores)}, row_group_size=170)
    labels = write(tmp_path / "labels.parquet", {"key": np.arange(100, ROWS), "label": rows.labels[100:]})
    skip = ["--on-missing-label", "skip"]
    outcome = drrej("calibrate", dump, "--labels-from", labels, "--join-on", "key", *skip)
    assert outcome.code == 2
    assert "row 400, counted from 0" in outcome.err


def _refused(tmp_path: Path, dump: Path, labels: Path, *more: object, on: str = "key") -> str:
    out = tmp_path / "out.json"
    outcome = drrej("calibrate", dump, "--labels-from", labels, "--join-on", on, "-o", out, *more)
    assert outcome.code == 2, outcome
    assert not out.exists()
    (line,) = outcome.lines
    assert "unexpected" not in line
    return line


def test_duplicates_among_the_labels(rows: Rows, tmp_path: Path) -> None:
    keys = np.arange(ROWS)
    dump = _dump(rows, tmp_path, keys)
    keys[[100, 500]] = 7
    line = _refused(tmp_path, dump, write(tmp_path / "labels.parquet", {"key": keys, "label": rows.labels}))
    for words in ("labels.parquet: column 'key': 2 rows", "occurred before", "the first is row 100", "(key 7)"):
        assert words in line


def test_duplicates_among_the_rows(rows: Rows, tmp_path: Path) -> None:
    labels = write(tmp_path / "labels.parquet", {"key": np.arange(ROWS), "label": rows.labels})
    keys = np.arange(ROWS)
    keys[[400, 401]] = 7
    line = _refused(tmp_path, _dump(rows, tmp_path, keys), labels)
    for words in ("dump.parquet", "column 'key'", "2 rows", "row 400", "(key 7)"):
        assert words in line


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ({"key": None}, ["labels.parquet", "no column 'key'", "'label'"]),
        ({"label": None}, ["labels.parquet", "no column 'label'", "--label", "'key'"]),
        (
            {"label": pa.array([9] * ROWS)},
            ["column 'key': 600 rows", "labels.parquet that is not among the classes, such as 9", "classes 0 to 4"],
        ),
        ({"label": pa.array(["a"] * ROWS)}, ["labels.parquet: column 'label'", "text", "--classes"]),
        (
            {"key": pa.array([None, *range(1, ROWS)])},
            ["labels.parquet: column 'key': 1 row has no key (null)", "row 0"],
        ),
        ({"key": pa.array([str(i) for i in range(ROWS)])}, ["column 'key' is int64", "labels.parquet", "text"]),
        ({"key": pa.array(np.arange(ROWS) + 0.5)}, ["labels.parquet: column 'key' is double", "whole numbers"]),
        ({"key": pa.array([[i] for i in range(ROWS)])}, ["labels.parquet: column 'key' is list", "whole numbers"]),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else given[-1],
)
def test_wrong_label_files(rows: Rows, tmp_path: Path, labels: dict[str, object], says: list[str]) -> None:
    dump = _dump(rows, tmp_path, np.arange(ROWS))
    table = {"key": np.arange(ROWS), "label": rows.labels, **labels}
    path = write(tmp_path / "labels.parquet", {k: v for k, v in table.items() if v is not None})
    line = _refused(tmp_path, dump, path)
    for words in says:
        assert words in line


def test_nothing_to_join(rows: Rows, tmp_path: Path) -> None:
    dump = _dump(rows, tmp_path, np.arange(ROWS))
    labels = write(tmp_path / "labels.parquet", {"key": np.arange(ROWS), "label": rows.labels})
    assert "no such file" in _refused(tmp_path, dump, tmp_path / "no.parquet")
    text = tmp_path / "labels.txt"
    text.write_text("no table\n")
    assert "labels.txt: not a readable parquet file" in _refused(tmp_path, dump, text)
    empty = write(tmp_path / "empty.parquet", {"key": np.arange(0), "label": rows.labels[:0]})
    assert "empty.parquet: zero rows" in _refused(tmp_path, dump, empty)
    line = _refused(tmp_path, dump, labels, on="id")
    assert "dump.parquet: there is no column 'id' to join on; columns: 'key', 'logits'" in line
    others = write(tmp_path / "others.parquet", {"key": np.arange(ROWS) + 10_000, "label": rows.labels})
    assert "600 rows have no label in" in _refused(tmp_path, dump, others)
    assert "no row has a label" in _refused(tmp_path, dump, others, "--on-missing-label", "skip")
