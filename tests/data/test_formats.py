"""Every format gives what the same rows give in parquet, to the bit; what is wrong with a file is said in one line."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import pickle
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dumps_zoo import Rows, make_rows, small_rows
from formats_zoo import WRITERS, csv_bytes, jsonl_bytes, list_table, wide_table
from results import Results
from running import fail, succeed

from drrej.data import files
from drrej.data.dump import DumpOptions
from drrej.data.open import open_dump
from drrej.errors import DumpError

ROWS = make_rows(5, rows=900, seed=3)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("parquet")
    pq.write_table(list_table(ROWS), folder / "d.parquet")
    return Results.of(folder, folder / "d.parquet")


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text in pieces of a few rows, so that there are many of them."""
    monkeypatch.setattr(files, "BLOCK", 1 << 13)


@pytest.mark.parametrize("ending", WRITERS)
def test_a_format_gives_the_same_bits_as_parquet(
    ending: str, tmp_path: Path, expected: Results, small_chunks: None
) -> None:
    path = tmp_path / f"dump.{ending}"
    WRITERS[ending](path, ROWS)
    found = Results.of(tmp_path, path)
    found.check(expected)
    assert found.mask.column("id").to_pylist() == expected.mask.column("id").to_pylist()


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_files_with_labels_by_position(tmp_path: Path, expected: Results, order: Any) -> None:
    np.save(tmp_path / "val_logits.npy", ROWS.logits.astype(">f8", order=order))
    np.save(tmp_path / "labels.npy", ROWS.labels)
    Results.of(tmp_path, tmp_path / "val_logits.npy", "--labels-from", tmp_path / "labels.npy").check(expected)
    np.save(tmp_path / "labels.npy", ROWS.labels[:-1])
    message = fail("calibrate", tmp_path / "val_logits.npy", "--labels-from", tmp_path / "labels.npy")
    assert "it has 899 labels but the dump has 900 rows" in message


@pytest.mark.parametrize("ending", ["csv", "jsonl", "arrow", "npz", "parquet"])
def test_labels_from_any_format(tmp_path: Path, expected: Results, ending: str) -> None:
    np.save(tmp_path / "logits.npy", ROWS.logits.astype(np.float64))
    WRITERS[ending](tmp_path / f"labels.{ending}", ROWS)
    Results.of(tmp_path, tmp_path / "logits.npy", "--labels-from", tmp_path / f"labels.{ending}").check(expected)


def test_labels_by_position_over_several_files_and_formats(tmp_path: Path, expected: Results) -> None:
    np.save(tmp_path / "a_logits.npy", ROWS.logits[:300].astype(np.float64))
    np.savez(tmp_path / "b.npz", logits=ROWS.logits[300:].astype(np.float64))
    (tmp_path / "labels.csv").write_text("truth\n" + "\n".join(map(str, ROWS.labels)) + "\n")
    out = tmp_path / "r.json"
    succeed("calibrate", "-q", tmp_path / "a_logits.npy", tmp_path / "b.npz", "--labels-from", tmp_path / "labels.csv",
            "-o", out)  # fmt: skip
    assert json.loads(out.read_text())["calibration"] == expected.rejector["calibration"]
    lines = (tmp_path / "labels.csv").read_text().splitlines()
    lines[301] = ""  # a missing label is not skipped: all that follow would move
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    message = fail("calibrate", tmp_path / "a_logits.npy", tmp_path / "b.npz", "--labels-from",
                   tmp_path / "labels.csv")  # fmt: skip
    assert "1 row has no label (null); row 300, counted from 0" in message


def test_tables_are_not_matched_by_position(tmp_path: Path) -> None:
    pq.write_table(list_table(ROWS), tmp_path / "d.parquet")
    pq.write_table(pa.table({"label": ROWS.labels}), tmp_path / "labels.parquet")
    message = fail("calibrate", tmp_path / "d.parquet", "--labels-from", tmp_path / "labels.parquet")
    assert "--labels-from FILE and --join-on COL require each other" in message


def test_a_join_between_formats(tmp_path: Path, expected: Results) -> None:
    (tmp_path / "d.jsonl").write_bytes(jsonl_bytes(ROWS))
    lines = [f"{i},{label}" for i, label in enumerate(ROWS.labels)]
    (tmp_path / "truth.csv").write_text("\n".join(["id,truth", *reversed(lines)]) + "\n")
    flags = ["--labels-from", tmp_path / "truth.csv", "--join-on", "id", "--label", "truth"]
    Results.of(tmp_path, tmp_path / "d.jsonl", *flags).check(expected)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "jsonl.zst", "arrow", "arrows", "npz", "feather"])
def test_standard_input_and_names_that_say_nothing(tmp_path: Path, ending: str, expected: Results) -> None:
    path = tmp_path / f"dump.{ending}"
    WRITERS[ending](path, ROWS)
    calibration = expected.rejector["calibration"]
    assert json.loads(succeed("calibrate", "-q", "-", stdin=path.read_bytes()))["calibration"] == calibration
    nameless = path.rename(tmp_path / "dump")
    assert json.loads(succeed("calibrate", "-q", nameless))["calibration"] == calibration


def test_directories_globs_and_mixed_formats(tmp_path: Path, expected: Results) -> None:
    folder = tmp_path / "nightly"
    folder.mkdir()
    pieces = [Rows(ROWS.logits[start : start + 300], ROWS.labels[start : start + 300]) for start in (0, 300, 600)]
    for number, piece in enumerate(pieces):
        WRITERS["csv"](folder / f"{number}.csv", piece)
    calibration = expected.rejector["calibration"]
    assert json.loads(succeed("calibrate", "-q", folder))["calibration"] == calibration
    assert json.loads(succeed("calibrate", "-q", f"{folder}/*.csv"))["calibration"] == calibration
    WRITERS["jsonl"](folder / "3.jsonl", pieces[0])
    assert "several formats (CSV, JSON lines)" in fail("calibrate", folder)
    WRITERS["arrow"](tmp_path / "0.arrow", pieces[0])
    WRITERS["parquet"](tmp_path / "1.parquet", pieces[1])
    mixed = [tmp_path / "0.arrow", tmp_path / "1.parquet"]
    WRITERS["jsonl"](tmp_path / "2.jsonl", pieces[2])
    assert json.loads(succeed("calibrate", "-q", *mixed, tmp_path / "2.jsonl"))["calibration"] == calibration
    Results.of(tmp_path, f"{folder}/[012].csv")  # leaves a rejector
    masks = tmp_path / "masks"
    succeed("reject", f"{folder}/[012].csv", "-r", tmp_path / "out" / "rejector.json", "-o", f"{masks}/", "-q")
    assert sorted(path.name for path in masks.iterdir()) == ["0.parquet", "1.parquet", "2.parquet"]


def test_csv_as_it_is_written(tmp_path: Path, small_chunks: None) -> None:
    """Quotes, line breaks in cells, CRLF, a byte order mark, blank lines, numbers that look whole, nan and inf."""
    rows = small_rows()
    body = ['\ufeff"logit_0",logit_1,logit_2,logit_3,logit_4,note,label']
    for number, (row, label) in enumerate(zip(rows.logits, rows.labels, strict=True)):
        cells = [repr(float(value)) if value % 1 else str(int(value)) for value in row]
        note = '"a ""quoted"", note\r\nin two lines"' if number % 3 == 0 else f"plain {number}"
        body += [",".join([*cells, note, str(label)]), ""]
    (tmp_path / "d.csv").write_bytes("\r\n".join(body).encode())
    table = wide_table(rows)
    pq.write_table(table, tmp_path / "d.parquet")
    ours, theirs = (Results.of(tmp_path, tmp_path / f"d.{ending}") for ending in ("csv", "parquet"))
    ours.check(theirs)
    assert ours.mask.column("note")[3].as_py() == 'a "quoted", note\r\nin two lines'
    semicolons = csv_bytes(rows, ";")
    (tmp_path / "s.csv").write_bytes(semicolons)
    Results.of(tmp_path, tmp_path / "s.csv").check(theirs)


def test_types_are_those_of_all_rows(tmp_path: Path, small_chunks: None) -> None:
    """A column that holds whole numbers at first and others later is one of floating-point numbers, or text."""
    rows = make_rows(3, rows=700, seed=1)
    names = ["id", "mixed", "late", "logit_0", "logit_1", "logit_2", "label"]
    lines = [",".join(names)]
    for i, (row, label) in enumerate(zip(rows.logits, rows.labels, strict=True)):
        cells = [
            str(i),
            str(i) if i < 650 else f"x{i}",
            "" if i < 650 else "7",
            *map(str, row.astype(float)),
            str(label),
        ]
        lines.append(",".join(cells))
    (tmp_path / "d.csv").write_text("\n".join(lines))
    found = Results.of(tmp_path, tmp_path / "d.csv").mask
    assert found.schema.field("mixed").type == pa.string()
    assert found.column("mixed")[0].as_py() == "0"
    assert (found.schema.field("late").type, found.column("late").null_count) == (pa.int64(), 650)


@contextlib.contextmanager
def _changed(text: str, line: int, cell: int, value: str) -> Iterator[bytes]:
    lines = [row.split(",") for row in text.splitlines()]
    lines[line][cell] = value
    yield "\n".join(",".join(row) for row in lines).encode()


CSV_ERRORS = {
    "a word among numbers": (450, 2, "abc", ["column 'logit_1': row 449", "holds 'abc', which is not a number"]),
    "nan": (450, 2, "NaN", ["column 'logit_*': 1 row has NaN among the scores; row 449"]),
    "infinity": (450, 2, "inf", ["column 'logit_*': 1 row has +inf among the scores; row 449"]),
    "an empty cell": (450, 2, "", ["column 'logit_*': 1 row has a null among the scores; row 449"]),
    "a cell too many": (450, 2, "1,2", ["row 449, counted from 0, has 8 cells but the header names 7 columns"]),
    "a label outside": (450, 6, "9", ["column 'label': 1 row has a label outside 0 to 4; row 449"]),
    "no label": (450, 6, "", ["column 'label': 1 row has no label (null); row 449"]),
    "a quote": (450, 2, '5" pipe', ["a quote is not where a cell begins or ends"]),
    "a column twice": (0, 2, "logit_0", ["column 'logit_0' occurs twice"]),
}


@pytest.mark.parametrize("case", CSV_ERRORS)
def test_errors_of_csv_name_file_row_and_column(tmp_path: Path, case: str, small_chunks: None) -> None:
    line, cell, value, words = CSV_ERRORS[case]
    with _changed(csv_bytes(ROWS).decode().replace('"', ""), line, cell, value) as text:
        (tmp_path / "d.csv").write_bytes(text)
    message = fail("calibrate", tmp_path / "d.csv")
    assert "d.csv" in message
    for word in words:
        assert word in message


def test_csv_without_a_header_or_rows(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes(csv_bytes(ROWS).split(b"\n", 1)[1])
    assert "its first line holds numbers" in fail("calibrate", tmp_path / "d.csv")
    (tmp_path / "d.csv").write_bytes(csv_bytes(ROWS).split(b"\n", 1)[0] + b"\n")
    assert "zero rows" in fail("calibrate", tmp_path / "d.csv")
    (tmp_path / "d.csv").write_bytes(b"")
    assert "there is no header" in fail("calibrate", tmp_path / "d.csv")
    (tmp_path / "d.csv.gz").write_bytes(gzip.compress(csv_bytes(ROWS))[:-20])
    assert "d.csv.gz" in fail("calibrate", tmp_path / "d.csv.gz")
    (tmp_path / "d.csv").write_bytes(csv_bytes(ROWS).decode().encode("utf-16"))
    assert "not text in UTF-8" in fail("calibrate", tmp_path / "d.csv")


JSON_ERRORS = {
    "not JSON": (b'{"logits": [1.0, 2.0', ["row 450, counted from 0, is not JSON"]),
    "an array": (b"[1, 2]", ["row 450, counted from 0, is not a JSON object"]),
    "text for a number": (
        b'{"id": 1, "logits": [1.0, "a"], "label": 1}',
        ["column 'logits'", "row 450", "but the rows before hold list<item: double>"],
    ),
    "null": (b'{"id": 1, "logits": null, "label": 1}', ["1 row has no value (null); row 450"]),
    "too few": (b'{"id": 1, "logits": [1.5], "label": 1}', ["1 row has not 5 scores; row 450", "it has 1"]),
    "NaN": (b'{"id": 1, "logits": [1.5, NaN, 1, 2, 3], "label": 1}', ["NaN among the scores; row 450"]),
    "no label": (b'{"id": 1, "logits": [1.5, 1, 1, 2, 3]}', ["column 'label': 1 row has no label (null); row 450"]),
    "two objects": (b'{"id": 1, "logits": [1.5, 1, 1, 2, 3]}{"id": 2}', ["write one JSON object per line"]),
}


@pytest.mark.parametrize("case", JSON_ERRORS)
def test_errors_of_json_lines_name_file_row_and_column(tmp_path: Path, case: str, small_chunks: None) -> None:
    line, words = JSON_ERRORS[case]
    lines = jsonl_bytes(ROWS).split(b"\n")
    lines[450] = line
    (tmp_path / "d.jsonl").write_bytes(b"\n".join(lines))
    message = fail("calibrate", tmp_path / "d.jsonl")
    assert "d.jsonl" in message
    for word in words:
        assert word in message


def test_json_lines_with_numbers_that_look_whole(tmp_path: Path, small_chunks: None) -> None:
    rows = small_rows()
    lines = [
        json.dumps({"logits": [int(v) if v % 1 == 0 else float(v) for v in row], "label": int(label)})
        for row, label in zip(rows.logits, rows.labels, strict=True)
    ]
    (tmp_path / "d.jsonl").write_text("\n".join(lines) + "\n\n")
    pq.write_table(list_table(rows), tmp_path / "d.parquet")
    ours, theirs = (Results.of(tmp_path, tmp_path / f"d.{ending}") for ending in ("jsonl", "parquet"))
    ours.check(theirs)


def _saved(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def test_errors_of_arrays(tmp_path: Path) -> None:
    logits = ROWS.logits.astype(np.float32)

    def refused(**arrays: Any) -> str:
        (tmp_path / "d.npz").write_bytes(_saved(**arrays))
        return fail("calibrate", tmp_path / "d.npz")

    assert "array 'ids' holds Python objects, which means a pickle" in refused(
        logits=logits, labels=ROWS.labels, ids=np.array(["a", None] * 450, object)
    )
    assert "array 'labels' has 899 values but 'logits' has 900 rows" in refused(logits=logits, labels=ROWS.labels[:-1])
    assert "different lengths ('train' (900, 5), 'val' (10, 5)" in refused(train=logits, val=logits[:10])
    assert "array 'logits' is of type complex128" in refused(logits=logits.astype(complex), labels=ROWS.labels)
    assert "has the shape (60, 15, 5)" in refused(logits=logits.reshape(60, 15, 5), labels=ROWS.labels)
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    assert "o.npy: array 'o.npy' holds Python objects" in fail("calibrate", tmp_path / "o.npy")
    np.save(tmp_path / "d.npy", logits)
    (tmp_path / "d.npy").write_bytes((tmp_path / "d.npy").read_bytes()[:-4])
    assert "not a readable .npy file" in fail("calibrate", tmp_path / "d.npy")


def test_arrays_of_any_name_and_type(tmp_path: Path) -> None:
    rows = small_rows()
    names = np.array(["a", "b", "c", "d", "e"])
    wide, exact = rows.logits.astype(np.float64), rows.logits.astype(np.float16)
    pq.write_table(pa.table({"logits": list(exact), "label": names[rows.labels]}), tmp_path / "d.parquet")
    expected = Results.of(tmp_path, tmp_path / "d.parquet", "--classes", "a,b,c,d,e")
    np.savez(tmp_path / "d.npz", z=exact, embedding=wide, truth=names[rows.labels], epoch=3, names=names)
    flags = ["--logits", "z", "--label", "truth", "--classes", "a,b,c,d,e"]
    Results.of(tmp_path, tmp_path / "d.npz", *flags).check(expected)
    assert "several columns may hold the logits ('z', 'embedding')" in fail("calibrate", tmp_path / "d.npz")


def test_arrays_that_are_called_probabilities_are_never_taken_as_logits(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", probs=small_rows().logits[:10], y=small_rows().labels[:10])
    assert "is named like probabilities, but its rows do not sum to 1" in fail("calibrate", tmp_path / "d.npz")


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "arrow", "npz"])
def test_uris_and_one_job(tmp_path: Path, ending: str, expected: Results, small_chunks: None) -> None:
    path = tmp_path / f"dump.{ending}"
    WRITERS[ending](path, ROWS)
    Results.of(tmp_path, f"file://{path}", "--jobs", "1").check(expected)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "arrow", "npz", "csv.zst", "npy"])
def test_row_groups_are_read_elsewhere(tmp_path: Path, ending: str, small_chunks: None) -> None:
    """A worker gets the dump and a row group, and reads the same blocks."""
    path = tmp_path / f"dump.{ending}"
    if ending == "npy":
        np.save(path, ROWS.logits.astype(np.float64))
    else:
        WRITERS[ending](path, ROWS)
    dump = open_dump([str(path)], DumpOptions(), labelled=False)
    assert len(dump.row_groups) > {"csv": 3, "jsonl": 3, "arrow": 1}.get(ending, 0)
    sent = pickle.loads(pickle.dumps(dump))
    blocks = [block.scores for group in reversed(sent.row_groups) for block in sent.read(group, labelled=False)]
    assert sum(map(len, blocks)) == len(ROWS.labels)
    rows = np.concatenate([block.scores for group in sent.row_groups for block in sent.read(group, labelled=False)])
    assert np.array_equal(rows, ROWS.logits.astype(np.float64))


@pytest.mark.parametrize("ending", ["csv", "jsonl.zst", "npz"])
def test_converted_files_are_made_again_where_they_are_gone(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that lives long keeps the last ones; so a file may be converted more than once."""
    monkeypatch.setattr(files, "_MOST_CONVERTED", 3)  # as many as an archive has arrays
    monkeypatch.setattr(files, "_converted", deque())
    large = make_rows(5, rows=3000, seed=3)  # smaller arrays are not converted
    for number in range(4):
        WRITERS[ending](tmp_path / f"{number}.{ending}", large)
    dump = open_dump([f"{tmp_path}/*.{ending}"], DumpOptions(), labelled=True)
    rows = np.concatenate([block.scores for group in dump.row_groups for block in dump.read(group, labelled=True)])
    assert len(files._converted) == 3
    assert np.array_equal(rows, np.tile(large.logits.astype(np.float64), (4, 1)))


@pytest.mark.parametrize("ending", ["csv", "jsonl", "arrow", "npz", "csv.gz", "npy"])
@pytest.mark.parametrize("how", ["longer", "shorter", "gone", "replaced"])
def test_files_that_change_while_they_are_read(tmp_path: Path, ending: str, how: str) -> None:
    path = tmp_path / f"dump.{ending}"
    if ending == "npy":
        np.save(path, ROWS.logits.astype(np.float64))
    else:
        WRITERS[ending](path, ROWS)
    dump = open_dump([str(path)], DumpOptions(), labelled=False)
    text = path.read_bytes()
    if how == "gone":
        path.unlink()
    elif how == "replaced":
        path.rename(tmp_path / "old")
        path.write_bytes(text)
    else:
        path.write_bytes(text + text if how == "longer" else text[: len(text) // 2])
    with pytest.raises(DumpError, match="was changed, replaced or removed while it was being read"):
        list(dump.read(dump.row_groups[0], labelled=False))


def test_lists_in_cells_of_csv(tmp_path: Path, expected: Results, small_chunks: None) -> None:
    """As pandas writes a column of lists."""
    lines = ["id,logits,label"]
    for i, (row, label) in enumerate(zip(ROWS.logits, ROWS.labels, strict=True)):
        cell = json.dumps(row.astype(float).tolist()).replace("Infinity", "inf" if i % 2 else "Infinity")
        lines.append(f'{i},"{cell}",{label}')
    (tmp_path / "d.csv").write_text("\n".join(lines))
    Results.of(tmp_path, tmp_path / "d.csv").check(expected)
    lines[600] = '599,"[1.0, 2.0, abc]",1'
    (tmp_path / "d.csv").write_text("\n".join(lines))
    message = fail("calibrate", tmp_path / "d.csv")
    assert (
        "column 'logits': row 599, counted from 0, holds '[1.0, 2.0, abc]', which is not a list of numbers" in message
    )


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_largethat_are_bad_twice_and_nans_that_signal(tmp_path: Path, kind: type) -> None:
    logits = ROWS.logits.astype(kind)
    bits = np.uint32(0x7FA00000) if kind is np.float32 else np.uint64(0x7FF4000000000000)
    logits.view(bits.dtype)[7, 2] = bits
    labels = ROWS.labels.copy()
    labels[7] = 99
    np.savez(tmp_path / "d.npz", logits=logits, labels=labels)
    assert "1 row has a label outside 0 to 4; row 7" in fail("calibrate", tmp_path / "d.npz")
    np.savez(tmp_path / "d.npz", logits=logits, labels=ROWS.labels)
    assert "1 row has NaN among the scores; row 7" in fail("calibrate", tmp_path / "d.npz")
