"""drrej convert and drrej inspect: every format and layout becomes parquet, and inspect knows how to go on."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import more_trials, thorough
from dumps_zoo import fixed_list, make_rows
from formats_zoo import WRITERS
from results import Results
from running import fail, succeed
from test_columns_by_class import NAMES, PROBABILITIES, ROWS, TEXT, VECTOR, bigquery, by_name, dense, write
from test_formats_llm import VAL

WORDS = {
    **dict.fromkeys(("csv", "tsv", "csv.gz", "csv.zst"), "CSV"),
    **dict.fromkeys(("jsonl", "ndjson.gz", "jsonl.zst"), "JSON lines"),
    **dict.fromkeys(("arrow", "arrows", "feather"), "Arrow"),
    "npz": ".npz",
    "parquet": "parquet",
}


def advised(*words: object, cwd: Path) -> list[str]:
    """The command that inspect advises."""
    last = succeed("inspect", *words, cwd=cwd).decode().splitlines()[-1]
    command = shlex.split(last)
    assert command[:2] == ["drrej", "calibrate"], last
    return command[1:]


@pytest.mark.parametrize(
    "ending", [thorough(name) if name in ("tsv", "csv.zst", "ndjson.gz", "arrows") else name for name in WORDS]
)
def test_every_format_is_named_advised_and_converted(tmp_path: Path, ending: str) -> None:
    rows = make_rows(5, rows=300, seed=2)
    path = tmp_path / f"d.{ending}"
    WRITERS[ending](path, rows)
    assert f"format:  {WORDS[ending]}\n".encode() in succeed("inspect", path)
    succeed(*advised(path.name, cwd=tmp_path), "-q", cwd=tmp_path)
    succeed("convert", path, "-o", tmp_path / "c.parquet", "-q")
    table = pq.read_table(tmp_path / "c.parquet")
    assert np.array_equal(np.array(table.column("logits").to_pylist()), rows.logits.astype(float))
    label = "labels" if ending == "npz" else "label"
    assert table.column(label).to_pylist() == rows.labels.tolist()
    assert table.column("id").to_pylist() == list(range(300))
    ours, theirs = (json.loads(succeed("calibrate", one, "-q")) for one in (path, tmp_path / "c.parquet"))
    assert ours["calibration"] == theirs["calibration"]


def _layouts(folder: Path) -> dict[str, tuple[Path, list[str], str]]:
    """A file of each layout, the flags it needs, and what inspect calls it."""
    vectors = pa.array([dense(row) for row in ROWS.logits], VECTOR)
    nested = pa.StructArray.from_arrays([fixed_list(ROWS.logits)], ["logits"])
    score: dict[str, Any] = {"score": ROWS.logits[:, 0], "label": ROWS.labels % 2}
    named = write(folder, "n.parquet", **by_name("prob_", [0, 1, 2, 3]), label=TEXT)
    struct = write(folder, "t.parquet", output=nested, label=ROWS.labels)
    pairs = "probabilities with their labels in any order, 4 classes: 'ant'"
    return {
        "named": (named, [], "named by class, 4 classes: 'dog'"),
        "spark": (write(folder, "s.parquet", rawPrediction=vectors, label=ROWS.labels), [], "vectors of Spark"),
        "struct": (struct, ["--logits", "output.logits"], "output.logits"),
        "labelled": (bigquery(folder, NAMES, TEXT), [], pairs),
        "choices": (VAL, [], "as many as a question has choices"),
        "binary": (write(folder, "b.parquet", **score), ["--binary"], "one score per row"),
    }


@pytest.mark.parametrize(
    "layout", ["named", more_trials("spark"), "struct", more_trials("labelled"), "choices", "binary"]
)
def test_every_layout_is_named_advised_and_converted(tmp_path: Path, layout: str) -> None:
    path, flags, words = _layouts(tmp_path)[layout]
    assert words.encode() in succeed("inspect", path, *flags)
    command = advised(path, *flags, cwd=tmp_path)
    succeed(*command, "-q", cwd=tmp_path)
    reading = command[2 : command.index("-o")]
    said = succeed("convert", path, *reading, "-o", "c.parquet", cwd=tmp_path).decode()
    following = shlex.split(said.splitlines()[-1])
    succeed(*following[1:], "-q", "-o", "r.json", cwd=tmp_path)
    ours = Results.of(tmp_path, path, *reading)
    theirs = Results.of(tmp_path, tmp_path / "c.parquet", *following[3:])
    ours.check(theirs)


def test_labels_from_another_file_are_converted_too(tmp_path: Path) -> None:
    np.save(tmp_path / "logits.npy", ROWS.logits)
    np.save(tmp_path / "labels.npy", ROWS.labels)
    flags = ["--labels-from", "labels.npy"]
    assert "--labels-from" in advised("logits.npy", *flags, cwd=tmp_path)
    assert b"in labels.npy, in the order of the rows" in succeed("inspect", "logits.npy", *flags, cwd=tmp_path)
    succeed("convert", "logits.npy", *flags, "-o", "c.parquet", "-q", cwd=tmp_path)
    table = pq.read_table(tmp_path / "c.parquet")
    assert table.column_names == ["logits", "label"]
    assert table.column("label").to_pylist() == ROWS.labels.tolist()


def test_what_convert_refuses(tmp_path: Path) -> None:
    path = write(tmp_path, "d.parquet", probs=fixed_list(PROBABILITIES), label=ROWS.labels)
    assert "pass --input probs" in fail("convert", path, "-o", tmp_path / "c.parquet")
    assert not (tmp_path / "c.parquet").exists()
    assert "the output is parquet" in fail("convert", path, "-o", tmp_path / "c.csv")
    bad = ROWS.logits.copy()
    bad[5, 1] = np.nan
    path = write(tmp_path, "d.parquet", z=fixed_list(bad), label=ROWS.labels)
    assert "1 row has NaN among the scores; row 5" in fail("convert", path, "-o", tmp_path / "c.parquet")
    assert not (tmp_path / "c.parquet").exists()
    path = write(tmp_path, "d.parquet", **by_name("z_", [0, 1, 2, 3]), probs=ROWS.labels)
    message = fail("convert", path, "--logits", "z_*", "--input", "probs", "-o", tmp_path / "c.parquet")
    assert "there is another column 'probs'; rename it" in message
