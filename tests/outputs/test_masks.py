"""Masks in the format that the name says, with the index of a pandas frame; the review queue."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.json as pajson
import pyarrow.parquet as pq
import pytest
from conftest import examples, fail, logit_columns, make_model, run_here, succeed, texts
from hypothesis import given
from hypothesis import strategies as st

import drrej
from drrej.outputs.masks import json_lines
from drrej.outputs.review import ReviewQueue, task_of

LOGITS, LABELS = make_model(3000, 4, 5)
REJECTOR = drrej.fit_rejector(LOGITS, LABELS, coverage=0.7)
NEW, TRUE = make_model(500, 4, 6)
TEXTS = ["plain", 'quo"te', "comma, and\nline", "", "ünï\\", None, "\x01"]


@pytest.fixture
def at(tmp_path: Path) -> Path:
    """A folder with a dump of many types and a rejector."""
    REJECTOR.save(tmp_path / "r.json")
    rows = len(NEW)
    columns = {
        "id": np.arange(rows),
        "text": [TEXTS[i % len(TEXTS)] for i in range(rows)],
        "when": pa.array(np.arange(rows) * 1000, pa.timestamp("ms")),
        "kind": pa.array([f"k{i % 3}" for i in range(rows)]).dictionary_encode(),
        "size": np.where(np.arange(rows) % 50 == 7, np.inf, np.arange(rows) / 7),
        **logit_columns(NEW, "fixed"),
    }
    pq.write_table(pa.table(columns), tmp_path / "d.parquet", row_group_size=70)
    return tmp_path


def reject(at: Path, output: str, *options: object) -> Path:
    succeed("reject", at / "d.parquet", "-r", at / "r.json", "-o", at / output, *options)
    return at / output


def read(path: Path) -> pa.Table:
    """A mask by Arrow's own readers."""
    name = path.name.lower()
    if name.endswith((".parquet", ".pq")):
        return pq.read_table(path)
    if name.endswith((".arrow", ".feather")):
        return feather.read_table(path)
    with pa.input_stream(str(path)) as stream:  # takes .gz and .zst apart by itself
        if ".csv" in name:
            options = pacsv.ConvertOptions(quoted_strings_can_be_null=False, strings_can_be_null=True)
            return pacsv.read_csv(
                stream, parse_options=pacsv.ParseOptions(newlines_in_values=True), convert_options=options
            )
        return pajson.read_json(stream)


NAMES = [
    "m.pq",
    "m.csv",
    "M.CSV.gz",
    "m.csv.zst",
    "m.jsonl",
    "m.ndjson",
    "m.jsonl.gz",
    "m.jsonl.zst",
    "m.arrow",
    "m.feather",
]


@pytest.mark.parametrize("name", NAMES)
def test_the_ending_says_the_format(at: Path, name: str) -> None:
    expected, found = pq.read_table(reject(at, "m.parquet")), read(reject(at, name))
    assert found.column_names == expected.column_names
    for column in ("id", "prediction", "loss", "ratio", "rejected"):
        np.testing.assert_array_equal(found[column].to_numpy(), expected[column].to_numpy())
    assert found["text"].to_pylist() == expected["text"].to_pylist()
    size = expected["size"].to_pylist()
    assert found["size"].to_pylist() == [None if "son" in name and math.isinf(x) else x for x in size]


@pytest.mark.parametrize("name", ["m.csv", "m.csv.gz", "m.jsonl.zst", "m.arrow"])
def test_the_same_bytes_for_any_blocks_and_jobs(at: Path, name: str) -> None:
    expected = reject(at, name, "--jobs", 1).read_bytes()
    pq.write_table(pq.read_table(at / "d.parquet"), at / "d.parquet", row_group_size=499)
    assert reject(at, "again" + name, "--jobs", 2).read_bytes() == expected


def test_standard_output_is_parquet_and_json_lines_are_json(at: Path) -> None:
    out = succeed("reject", at / "d.parquet", "-r", at / "r.json", "-o", "-")
    assert pq.read_table(pa.BufferReader(out)).num_rows == len(NEW)
    lines = gzip.decompress(reject(at, "m.jsonl.gz").read_bytes()).decode().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["text"] for row in rows] == [TEXTS[i % len(TEXTS)] for i in range(len(NEW))]
    assert rows[3]["when"] == "1970-01-01 00:00:03.000"


@pytest.mark.parametrize("name", ["mask", "m.xlsx", "m.txt", "m.gz", "m.json", "m.parquet.gz", "m.csv.bz2"])
def test_any_other_ending_is_an_error(at: Path, name: str) -> None:
    said = fail("reject", at / "d.parquet", "-r", at / "r.json", "-o", at / name)
    assert "the ending of the name says the format" in said
    assert not (at / name).exists()


@pytest.mark.parametrize(
    ("name", "column", "said"),
    [
        ("m.csv", pa.array([[1.0, 2.0]] * len(NEW)), "column 'x' is list<element: double>, which CSV cannot hold"),
        ("m.csv", pa.array([b"x"] * len(NEW)), "which CSV cannot hold"),
        ("m.jsonl", pa.array([b"x"] * len(NEW)), "column 'x' is binary, which JSON cannot hold"),
        ("m.jsonl", pa.array([{"a": [b"x"]}] * len(NEW)), "which JSON cannot hold"),
    ],
)
def test_columns_that_a_format_cannot_hold(at: Path, name: str, column: pa.Array, said: str) -> None:
    pq.write_table(pq.read_table(at / "d.parquet").append_column("x", column), at / "d.parquet")
    message = fail("reject", at / "d.parquet", "-r", at / "r.json", "-o", at / name)
    assert said in message
    assert "--keep" in message
    assert not (at / name).exists()
    assert "x" not in read(reject(at, name, "--keep", "id")).column_names


@examples(0.5)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "t": st.none() | texts(),
                "f": st.none() | st.floats(),
                "i": st.none() | st.integers(-(2**63), 2**63 - 1),
                "b": st.none() | st.booleans(),
                "n": st.none() | st.lists(st.none() | st.floats(), max_size=3),
            }
        ),
        max_size=8,
    )
)
def test_json_lines_are_what_json_reads(rows: list[dict[str, Any]]) -> None:
    kinds = {"t": pa.string(), "f": pa.float64(), "i": pa.int64(), "b": pa.bool_(), "n": pa.list_(pa.float64())}
    try:
        batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema(kinds))
    except UnicodeEncodeError:  # half of a pair is no text
        return

    def finite(value: Any) -> Any:
        if isinstance(value, list):
            return [finite(inner) for inner in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    found = [json.loads(line) for line in json_lines(batch).decode().split("\n")[:-1]]
    assert found == [{key: finite(value) for key, value in row.items()} for row in rows]


# The index of a pandas frame


def frame(rows: int, seed: int = 6) -> Any:
    pandas = pytest.importorskip("pandas")
    logits, _ = make_model(rows, 4, seed)
    return pandas.DataFrame({f"logit_{i}": logits[:, i] for i in range(4)}).assign(id=np.arange(rows))


def dump(path: Path) -> drrej.Source:
    return drrej.Source(path, drrej.DumpOptions(logits="logit_*"))


INDICES = {
    "text": lambda df: df.set_index(df["id"].map(lambda i: f"row{(i * 7) % 1000}")),
    "named": lambda df: df.set_index("id"),
    "range": lambda df: df.iloc[100:200],
    "step": lambda df: df.iloc[::-3],
    "levels": lambda df: df.assign(b=df["id"] % 7).set_index(["b", "id"]),
    "when": lambda df: df.set_index(df["id"].map(lambda i: np.datetime64("2026-01-01") + np.timedelta64(int(i), "D"))),
    "plain": lambda df: df,
}


@pytest.mark.parametrize("kind", INDICES)
@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_a_mask_aligns_with_the_frame(tmp_path: Path, kind: str, ending: str) -> None:
    pandas = pytest.importorskip("pandas")
    df = INDICES[kind](frame(1000))
    df.to_parquet(tmp_path / "d.parquet")
    drrej.reject(dump(tmp_path / "d.parquet"), REJECTOR, tmp_path / f"m.{ending}")
    mask = getattr(pandas, f"read_{ending}")(tmp_path / f"m.{ending}")
    expected = REJECTOR.reject(df[[f"logit_{i}" for i in range(4)]])
    assert mask.index.equals(df.index)
    assert mask.index.names == df.index.names
    shuffled = df.sample(frac=1, random_state=0)
    shuffled["rejected"] = mask["rejected"]
    order = df.reset_index(drop=True).sample(frac=1, random_state=0).index
    assert shuffled["rejected"].tolist() == expected[order].tolist()


def test_each_mask_of_a_dataset_has_the_range_of_its_file(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    whole = frame(900)
    (tmp_path / "in").mkdir()
    for number, start in enumerate((0, 300, 600)):
        whole.iloc[start : start + 300].to_parquet(tmp_path / "in" / f"{number}.parquet")
    drrej.reject(dump(tmp_path / "in"), REJECTOR, f"{tmp_path}/out/")
    masks = [pandas.read_parquet(tmp_path / "out" / f"{number}.parquet") for number in range(3)]
    assert [mask.index.start for mask in masks] == [0, 300, 600]
    whole["rejected"] = pandas.concat(masks)["rejected"]
    assert whole["rejected"].tolist() == REJECTOR.reject(whole[[f"logit_{i}" for i in range(4)]]).tolist()
    drrej.reject(dump(tmp_path / "in"), REJECTOR, tmp_path / "one.parquet")
    assert pandas.read_parquet(tmp_path / "one.parquet").index.equals(pandas.RangeIndex(900))


def test_an_index_that_is_not_kept_is_none_and_nonsense_is_none(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    INDICES["levels"](frame(50)).to_parquet(tmp_path / "d.parquet")
    drrej.reject(dump(tmp_path / "d.parquet"), REJECTOR, tmp_path / "m.parquet", drrej.MaskOptions(keep=["b"]))
    mask = pandas.read_parquet(tmp_path / "m.parquet")
    assert mask.index.equals(pandas.RangeIndex(50))
    assert "b" in mask.columns
    table = pq.read_table(tmp_path / "d.parquet")
    for noted in (b"{", b"[]", b'{"index_columns": 3}', b'{"index_columns": [{"kind": "range"}], "columns": [1]}'):
        pq.write_table(table.replace_schema_metadata({b"pandas": noted}), tmp_path / "odd.parquet")
        drrej.reject(dump(tmp_path / "odd.parquet"), REJECTOR, tmp_path / "odd_mask.parquet", force=True)
        assert pandas.read_parquet(tmp_path / "odd_mask.parquet").index.equals(pandas.RangeIndex(50))


# The review queue


def by_hand(mask: pa.Table) -> list[int]:
    """Rows of a mask that are rejected, by falling loss."""
    rows = [(row["loss"], i) for i, row in enumerate(mask.to_pylist()) if row["rejected"]]
    return [i for loss, i in sorted(rows, key=lambda row: (math.inf if row[0] is None else -row[0], row[1]))]


def test_the_review_has_the_rejected_rows_most_doubtful_first(at: Path) -> None:
    mask = pq.read_table(reject(at, "m.parquet", "--review", at / "tasks.json"))
    tasks = json.loads((at / "tasks.json").read_text(encoding="utf-8"))
    expected = by_hand(mask)
    assert [task["data"]["mask_row"] for task in tasks] == expected
    assert 0 < len(expected) < len(NEW)
    scores = [task["predictions"][0]["score"] for task in tasks]
    assert scores == sorted(scores)
    first, row = tasks[0], mask.slice(expected[0], 1).to_pylist()[0]
    assert first["data"].keys() == {"id", "text", "when", "kind", "size", "loss", "ratio", "mask_row"}
    assert first["data"]["id"] == row["id"]
    assert first["predictions"] == [
        {
            "model_version": f"drrej {drrej.__version__}",
            "score": math.exp(-row["loss"]),
            "result": [
                {
                    "id": "prediction",
                    "from_name": "prediction",
                    "to_name": "row",
                    "type": "choices",
                    "value": {"choices": [str(row["prediction"])]},
                }
            ],
        }
    ]


def test_plain_rows_and_a_limit(at: Path) -> None:
    command = ("reject", at / "d.parquet", "-r", at / "r.json", "-o", at / "m.parquet", "--review", at / "q.jsonl")
    done = run_here(*command, "--reviews", 5)
    assert done.returncode == 0
    mask = pq.read_table(at / "m.parquet")
    rejected = mask["rejected"].to_pylist().count(True)
    told = f"{rejected - 5} of {rejected} rejected rows exceed the budget of 5 reviews: the least doubtful"
    assert told in done.stderr.decode()
    rows = [json.loads(line) for line in (at / "q.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["mask_row"] for row in rows] == by_hand(mask)[:5]
    assert list(rows[0]) == ["id", "text", "when", "kind", "size", "prediction", "loss", "ratio", "mask_row"]
    assert rows[0]["loss"] == mask["loss"][rows[0]["mask_row"]].as_py()


def test_rows_without_scores_come_last_and_have_no_prediction(at: Path) -> None:
    logits = NEW.copy()
    logits[[3, 99]] = np.nan
    pq.write_table(pa.table({"id": np.arange(len(NEW)), **logit_columns(logits, "list")}), at / "d.parquet")
    command = ("reject", at / "d.parquet", "-r", at / "r.json", "-o", at / "m.parquet", "--review", at / "t.json")
    assert "2 rows" in fail(*command)
    assert not (at / "m.parquet").exists()
    assert not (at / "t.json").exists()
    from running import drrej as run

    assert run(*command, "--on-bad-row", "reject").code == 0
    tasks = json.loads((at / "t.json").read_text(encoding="utf-8"))
    assert [task["data"]["mask_row"] for task in tasks[-2:]] == [3, 99]
    assert [task["predictions"] for task in tasks[-2:]] == [[], []]
    assert [task["data"]["mask_row"] for task in tasks] == by_hand(pq.read_table(at / "m.parquet"))


def test_the_review_of_a_dataset_names_the_files(at: Path) -> None:
    (at / "in").mkdir()
    table = pq.read_table(at / "d.parquet")
    for number in range(3):
        pq.write_table(table.slice(number * 150, 150), at / "in" / f"{number}.parquet")
    succeed("reject", at / "in", "-r", at / "r.json", "-o", f"{at}/out/", "--review", at / "q.jsonl")
    rows = [json.loads(line) for line in (at / "q.jsonl").read_text(encoding="utf-8").splitlines()]
    masks = {f"{n}.parquet": pq.read_table(at / "out" / f"{n}.parquet") for n in range(3)}
    assert len(rows) == sum(mask["rejected"].to_pylist().count(True) for mask in masks.values())
    assert [row["loss"] for row in rows] == sorted((row["loss"] for row in rows), reverse=True)
    assert all(masks[row["mask_file"]]["id"][row["mask_row"]].as_py() == row["id"] for row in rows)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--review", "tasks.xlsx"], "--review tasks.xlsx: the ending determines the format; use .json"),
        (["--review", "-"], "--review standard output: the ending determines"),
        (["--reviews", "5"], "--reviews requires --review"),
        (["--review", "t.json", "--reviews", "0"], "--reviews 0: it must be 1 or more"),
        (["--review", "there.json"], "it exists already"),
        (["--review", "r.json", "--force"], "r.json"),
    ],
)
def test_what_a_review_cannot_be(at: Path, options: list[str], said: str) -> None:
    (at / "there.json").write_text("[]")
    assert said in fail("reject", "d.parquet", "-r", "r.json", "-o", "m.parquet", *options, cwd=at)
    assert not (at / "m.parquet").exists()
    assert (at / "there.json").read_text() == "[]"


def test_a_column_that_the_review_uses_itself(at: Path) -> None:
    pq.write_table(pq.read_table(at / "d.parquet").rename_columns({"id": "mask_row"}), at / "d.parquet")
    command = ("reject", "d.parquet", "-r", "r.json", "-o", "m.parquet", "--review", "t.json")
    assert "column 'mask_row', which the review uses itself" in fail(*command, cwd=at)
    succeed(*command, "--keep", "text", cwd=at)


@given(
    st.lists(st.tuples(st.none() | st.sampled_from([0.0, 0.5, 0.5, 1.0, 3.0]), st.booleans()), max_size=60),
    st.integers(1, 9),
    st.none() | st.integers(1, 9),
)
def test_rows_of_equal_loss_stay_in_order(rows: list[tuple[float | None, bool]], step: int, limit: int | None) -> None:
    mask = pa.table(
        {
            "loss": pa.array([loss for loss, _ in rows], pa.float64()),
            "rejected": pa.array([rejected for _, rejected in rows], pa.bool_()),
        }
    )
    queue = ReviewQueue(mask.schema)
    for start in range(0, len(rows), step):
        for batch in mask.slice(start, step).to_batches():
            queue.add(batch)
    assert [row["mask_row"] for row in queue.rows(limit)] == by_hand(mask)[:limit]


def test_a_regression_has_rows_to_review_but_no_prediction() -> None:
    assert task_of({"id": 1, "loss": 2.0, "ratio": 0.1, "mask_row": 0})["predictions"] == []
