"""Columns named by class, struct paths, Spark's vectors and labelled probabilities give the bits of a plain list."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dumps_zoo import Rows, fixed_list, make_rows
from results import Results
from running import fail, succeed

import drrej

NAMES = ["dog", "cat", "owl", "ant"]
VECTOR = pa.struct(
    [("type", pa.int8()), ("size", pa.int32()), ("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float64()))]
)


def make(rows: int = 600) -> Rows:
    drawn = make_rows(4, rows=rows, seed=9)
    logits = drawn.logits.astype(np.float64)
    return Rows(np.where(np.isinf(logits), -20.0, logits), drawn.labels)


ROWS = make()
ODDS = np.exp(ROWS.logits)
PROBABILITIES = ODDS / ODDS.sum(axis=1, keepdims=True)
TEXT = [NAMES[i] for i in ROWS.labels]


def write(folder: Path, name: str, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), folder / name)
    return folder / name


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("list")
    return Results.of(folder, write(folder, "d.parquet", logits=fixed_list(ROWS.logits), label=ROWS.labels))


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("named")
    path = write(folder, "d.parquet", probs=fixed_list(PROBABILITIES), label=TEXT)
    return Results.of(folder, path, "--input", "probs", "--classes", ",".join(NAMES))


def by_name(prefix: str, order: list[int]) -> dict[str, np.ndarray]:
    return {f"{prefix}{NAMES[i]}": np.ascontiguousarray(PROBABILITIES[:, i]) for i in order}


# Columns named by class


def test_columns_named_by_class(tmp_path: Path, named: Results) -> None:
    path = write(tmp_path, "d.parquet", **by_name("y_pred_proba_", [0, 1, 2, 3]), label=TEXT)
    found = Results.of(tmp_path, path, "--logits", "y_pred_proba_*", "--input", "probs")
    found.check(named)
    assert found.rejector["class_names"] == NAMES
    assert found.rejector["columns"]["logits"] == "y_pred_proba_*"
    assert set(found.mask.column("prediction").to_pylist()) <= set(NAMES)


def test_later_files_are_matched_by_name(tmp_path: Path, named: Results) -> None:
    """The order of the columns in another file is not the order of the classes."""
    first = write(tmp_path, "d.parquet", **by_name("p_", [0, 1, 2, 3]), label=TEXT)
    Results.of(tmp_path, first, "--logits", "p_*", "--input", "probs")
    other = write(tmp_path, "e.parquet", **by_name("p_", [2, 0, 3, 1]))
    rejector = tmp_path / "out" / "rejector.json"
    succeed("reject", other, "-r", rejector, "-o", tmp_path / "m.parquet")
    mask = pq.read_table(tmp_path / "m.parquet")
    assert mask.column("loss").to_pylist() == named.mask.column("loss").to_pylist()
    assert mask.column("prediction").to_pylist() == named.mask.column("prediction").to_pylist()
    batch = pq.read_table(other).to_batches()[0]
    scored = drrej.score_batch(batch, drrej.Rejector.from_json(rejector.read_text()))
    assert scored.column("loss").to_pylist() == mask.column("loss").to_pylist()
    write(tmp_path, "f.parquet", **by_name("p_", [2, 0, 3]))
    assert "there is no column 'p_cat'" in fail("reject", tmp_path / "f.parquet", "-r", rejector, "-o", "x.parquet")
    more = by_name("p_", [2, 0, 3, 1]) | {"p_emu": PROBABILITIES[:, 0]}
    write(tmp_path, "g.parquet", **more)
    assert "'p_emu' is not of a class" in fail("reject", tmp_path / "g.parquet", "-r", rejector, "-o", "x.parquet")


def test_a_comma_list_has_the_order_of_the_classes(tmp_path: Path, named: Results) -> None:
    path = write(tmp_path, "d.parquet", **by_name("prob.", [3, 1, 0, 2]), label=TEXT)
    listed = ",".join(f"prob.{name}" for name in NAMES)
    found = Results.of(tmp_path, path, "--logits", listed, "--input", "probs")
    found.check(named)
    assert found.rejector["class_names"] == NAMES
    assert "there is no column 'prob.emu'" in fail("calibrate", path, "--logits", "prob.dog,prob.emu")


def test_columns_named_by_class_in_csv(tmp_path: Path, named: Results) -> None:
    lines = [",".join([*(f"prob_{name}" for name in NAMES), "label"])]
    lines += [",".join([*map(repr, map(float, row)), name]) for row, name in zip(PROBABILITIES, TEXT, strict=True)]
    (tmp_path / "d.csv").write_text("\n".join(lines))
    Results.of(tmp_path, tmp_path / "d.csv", "--logits", "prob_*", "--input", "probs").check(named)
    message = fail("calibrate", tmp_path / "d.csv")
    assert "are the columns 'prob_*' the scores" in message
    assert "--logits 'prob_*'" in message


@pytest.mark.parametrize(
    ("pattern", "words"),
    [("p_*_*", "one star is needed"), ("p_do?", "p_dog"), ("*", "matches --logits '*' but is"), ("q_*", "no column")],
)
def test_patterns_that_name_no_classes(tmp_path: Path, pattern: str, words: str) -> None:
    path = write(tmp_path, "d.parquet", **by_name("p_", [0, 1, 2, 3]), p_a_b=PROBABILITIES[:, 0], label=TEXT)
    assert words in fail("calibrate", path, "--logits", pattern, "--input", "probs")


# Structs


def test_a_path_into_structs(tmp_path: Path, expected: Results) -> None:
    inner = pa.StructArray.from_arrays([fixed_list(ROWS.logits), pa.array(ROWS.labels)], ["logits", "truth"])
    path = write(tmp_path, "d.parquet", id=np.arange(600), output=pa.StructArray.from_arrays([inner], ["head"]))
    found = Results.of(tmp_path, path, "--logits", "output.head.logits", "--label", "output.head.truth")
    found.check(expected)
    assert found.rejector["columns"]["logits"] == "output.head.logits"
    assert found.mask.column_names == ["id", "prediction", "loss", "ratio", "rejected"]
    message = fail("calibrate", path, "--logits", "output.head")
    assert "choose with --logits among: 'output.head.logits', 'output.head.truth'" in message
    lines = [
        json.dumps({"output": {"logits": row.tolist()}, "label": int(label)})
        for row, label in zip(ROWS.logits, ROWS.labels, strict=True)
    ]
    (tmp_path / "d.jsonl").write_text("\n".join(lines))
    Results.of(tmp_path, tmp_path / "d.jsonl", "--logits", "output.logits").check(expected)


def test_rows_without_the_struct_are_bad(tmp_path: Path) -> None:
    rows: list[Any] = [{"logits": row.tolist()} for row in ROWS.logits]
    rows[17] = None
    path = write(tmp_path, "d.parquet", output=pa.array(rows), label=ROWS.labels)
    message = fail("calibrate", path, "--logits", "output.logits")
    assert "column 'output.logits': 1 row has no value (null); row 17, counted from 0" in message


# Spark


def dense(row: np.ndarray) -> dict[str, Any]:
    return {"type": 1, "size": None, "indices": None, "values": row.tolist()}


def sparse(row: np.ndarray) -> dict[str, Any]:
    places = np.flatnonzero(row)
    return {"type": 0, "size": len(row), "indices": places.tolist(), "values": row[places].tolist()}


def spark(folder: Path, scores: np.ndarray, store: Callable[[int], Any], name: str = "rawPrediction") -> Path:
    vectors = pa.array([store(i)(row) for i, row in enumerate(scores)], VECTOR)
    features = pa.array([dense(np.arange(3.0))] * len(scores), VECTOR)
    return write(folder, "d.parquet", **{"features": features, name: vectors, "label": ROWS.labels.astype(np.float64)})


@pytest.mark.parametrize("kind", ["dense", "sparse", "mixed"])
def test_vectors_of_spark(tmp_path: Path, kind: str) -> None:
    logits = np.where(np.abs(ROWS.logits) < 0.7, 0.0, ROWS.logits)
    logits[5] = 0.0
    plain = write(tmp_path, "p.parquet", logits=fixed_list(logits), label=ROWS.labels.astype(np.float64))
    expected = Results.of(tmp_path, plain)
    stores = {"dense": lambda _: dense, "sparse": lambda _: sparse, "mixed": lambda i: sparse if i % 3 else dense}
    Results.of(tmp_path, spark(tmp_path, logits, stores[kind])).check(expected)


def test_probabilities_of_spark(tmp_path: Path) -> None:
    plain = write(tmp_path, "p.parquet", probs=fixed_list(PROBABILITIES), label=ROWS.labels.astype(np.float64))
    expected = Results.of(tmp_path, plain, "--input", "probs")
    path = spark(tmp_path, PROBABILITIES, lambda _: dense, "probability")
    Results.of(tmp_path, path, "--input", "probs").check(expected)
    assert "pass --input probs" in fail("calibrate", path, "--logits", "probability")


def test_broken_vectors_are_counted(tmp_path: Path) -> None:
    vectors: list[Any] = [dense(row) for row in ROWS.logits]
    vectors[3] = {"type": 0, "size": 4, "indices": [1, 9], "values": [1.0, 2.0]}
    vectors[4] = {"type": 0, "size": 5, "indices": [1], "values": [1.0]}
    vectors[5] = {"type": 0, "size": 4, "indices": [1, 1], "values": [1.0, 2.0]}
    vectors[6] = {"type": 0, "size": 4, "indices": [1, 2], "values": [1.0]}
    vectors[7] = None
    vectors[8] = {"type": 1, "size": None, "indices": None, "values": [1.0, 2.0]}
    path = write(tmp_path, "d.parquet", rawPrediction=pa.array(vectors, VECTOR), label=ROWS.labels)
    message = fail("calibrate", path)
    assert "1 row has no value (null); row 7" in message
    assert "also 1 with not 4 scores" in message
    assert "also 4 with a sparse vector that is not one of 4 scores" in message


# Labels with their probabilities


def labelled(row: np.ndarray, names: list[Any], rng: np.random.Generator) -> list[dict[str, Any]]:
    order = rng.permutation(len(row))
    return [{"label": names[i], "prob": float(row[i])} for i in order]


def bigquery(folder: Path, names: list[Any], labels: Any) -> Path:
    rng = np.random.default_rng(1)
    column = pa.array([labelled(row, names, rng) for row in PROBABILITIES])
    return write(folder, "d.parquet", predicted_species_probs=column, label=labels)


def test_labelled_probabilities_in_any_order(tmp_path: Path) -> None:
    order = np.argsort(NAMES)
    plain = write(tmp_path, "p.parquet", probs=fixed_list(PROBABILITIES[:, order]), label=TEXT)
    expected = Results.of(tmp_path, plain, "--input", "probs", "--classes", ",".join(sorted(NAMES)))
    found = Results.of(tmp_path, bigquery(tmp_path, NAMES, TEXT), "--input", "probs")
    found.check(expected)
    assert found.rejector["class_names"] == sorted(NAMES)


def test_labels_that_are_numbers_but_not_class_numbers(tmp_path: Path) -> None:
    years = [1990, 7, 2020, 12]
    order = np.argsort(years)
    text = [str(years[i]) for i in ROWS.labels]
    plain = write(tmp_path, "p.parquet", probs=fixed_list(PROBABILITIES[:, order]), label=text)
    expected = Results.of(tmp_path, plain, "--input", "probs", "--classes", "7,12,1990,2020")
    path = bigquery(tmp_path, years, np.array(years)[ROWS.labels])
    Results.of(tmp_path, path, "--input", "probs").check(expected)


def test_a_row_without_a_label_is_bad(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [labelled(row, NAMES, rng) for row in PROBABILITIES]
    rows[9] = rows[9][:3]
    rows[11][0]["label"] = rows[11][1]["label"]
    path = write(tmp_path, "d.parquet", predicted_x_probs=pa.array(rows), label=TEXT)
    message = fail("calibrate", path, "--input", "probs")
    assert "2 rows have not one probability for each of the 4 labels; the first is row 9" in message
