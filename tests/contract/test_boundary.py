"""One boundary: awkward values give the same results in every format and command, or are refused.

The truth is the parquet file, which has types. A format without them may refuse, but never end with other figures.
"""

from __future__ import annotations

import csv
import errno
import json
import os
import re
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from conftest import SAMPLE, load_json, make_model, thorough
from running import Outcome, drrej, fail, run_drrej, succeed

from drrej.cli import app
from drrej.data import files
from drrej.errors import BadFileError, ShortageError

ROWS, CLASSES = 300, 3
LOGITS, TRUTH = make_model(ROWS, CLASSES, 5)
NUMBERS = range(ROWS)

Table = dict[str, list[Any]]


def _csv(path: Path, table: Table) -> None:
    with path.open("w", newline="") as stream:
        rows = csv.writer(stream, lineterminator="\r" if "bare" in path.name else "\n")
        wide = {name: values for name, values in table.items() if name != "logits"}
        wide |= {f"logit_{i}": [row[i] for row in table["logits"]] for i in range(len(table["logits"][0]))}
        rows.writerow(wide)
        rows.writerows([_cell(value) for value in row] for row in zip(*wide.values(), strict=True))


def _cell(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _records(table: Table) -> list[dict[str, Any]]:
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def _array(values: list[Any]) -> pa.Array:
    longest = max((value for value in values if type(value) is int), default=0)
    return pa.array(values, pa.uint64() if longest >= 1 << 63 else None)


def _arrow(table: Table) -> pa.Table:
    return pa.table({name: _array(values) for name, values in table.items()})


WRITERS: dict[str, Callable[[Path, Table], object]] = {
    "parquet": lambda path, table: pq.write_table(_arrow(table), path),
    "feather": lambda path, table: feather.write_feather(_arrow(table), str(path), compression="uncompressed"),
    "csv": _csv,
    "bare.csv": _csv,
    "jsonl": lambda path, table: path.write_text("".join(json.dumps(row) + "\n" for row in _records(table))),
    "json": lambda path, table: path.write_text(
        json.dumps({"columns": list(table), "data": [list(row.values()) for row in _records(table)]})
    ),
    "npz": lambda path, table: np.savez(path, **{name: np.array(values) for name, values in table.items()}),
}
OTHERS = [ending for ending in WRITERS if ending != "parquet"]


def _with_labels(names: list[str]) -> list[str]:
    return [names[number] for number in TRUTH]


def _table(label: list[Any], copied: Mapping[str, list[Any]] | None = None) -> Table:
    return {**(copied or {}), "logits": LOGITS.astype(float).tolist(), "label": label}


COPIED: dict[str, list[Any]] = {
    "long ids": [2**64 - 1 - i for i in NUMBERS],
    "signed ids": [2**53 + 1 + 2 * i for i in NUMBERS],
    "zeros": [f"{i:06}" for i in NUMBERS],
    "phones": [f"+49{i:09}" for i in NUMBERS],
    "hexadecimal": [f"0x{i:x}" for i in NUMBERS],
    "zones": [f"2026-01-{i % 28 + 1:02}T00:00:00+02:00" for i in NUMBERS],
    "days": [f"2026-01-{i % 28 + 1:02}" for i in NUMBERS],
    "numbers": [str(10**25 + i) for i in NUMBERS],
    "words": [("NaN", "None", "naïve ☃", "true", "1e5")[i % 5] for i in NUMBERS],
    "flags": [i % 3 == 0 for i in NUMBERS],
    "fractions": [i / 7 for i in NUMBERS],
}
"""Columns that are only copied."""

LABELS: dict[str, tuple[list[str], list[Any]]] = {
    "words": (["cat", "dog", "cow"], _with_labels(["cat", "dog", "cow"])),
    "numbers as names": (["2", "0", "1"], _with_labels(["2", "0", "1"])),
    "zeros as names": (["01", "02", "00"], _with_labels(["01", "02", "00"])),
    "from one": (["1", "2", "3"], _with_labels(["1", "2", "3"])),
    "in order": (["0", "1", "2"], _with_labels(["0", "1", "2"])),
}
"""Names of classes, and labels that are these names."""


def _write(folder: Path, ending: str, table: Table, name: str = "dump") -> Path:
    path = folder / f"{name}.{ending}"
    WRITERS[ending](path, table)
    return path


def _steps(folder: Path, dump: Path, *flags: object) -> list[Outcome]:
    """Every command on a dump, each with what those before it have made; they stop at the first that refuses."""
    r, report, mask = folder / "r.json", folder / "report.json", folder / "mask.csv"
    commands = [
        ["calibrate", dump, *flags, "-o", r, "-f"],
        ["fit", dump, "-r", r, "-o", r, "-f"],
        ["threshold", dump, "-r", r, "--coverage", "0.8", "-o", r, "-f"],
        ["evaluate", dump, "-r", r, "-o", report, "-f", "-q"],
        ["reject", dump, "-r", r, "-o", mask, "-f", "-q"],
    ]
    outcomes = []
    for command in commands:
        outcomes.append(drrej(*command))
        if outcomes[-1].code == 2:
            break
    return outcomes


def _pairs(endings: Iterable[str], cases: Iterable[str]) -> list[Any]:
    """Text, where names and numbers look alike, with every case; each other ending with some, the rest thorough."""
    return [
        (ending, case) if "csv" in ending or (i + j) % 3 == 0 else thorough(ending, case)
        for i, ending in enumerate(endings)
        for j, case in enumerate(cases)
    ]


def _accuracy(folder: Path) -> float:
    accuracy: float = load_json(folder / "report.json")["base_accuracy"]["value"]
    return accuracy


@pytest.mark.parametrize(("ending", "case"), _pairs(WRITERS, LABELS))
def test_names_of_classes_mean_the_same_in_every_format(tmp_path: Path, ending: str, case: str) -> None:
    """A label that is read by its name in parquet is never read by its number elsewhere."""
    names, labels = LABELS[case]
    flags = ["--classes", ",".join(names)]
    right = float(np.mean(LOGITS.argmax(axis=1) == TRUTH))
    outcomes = _steps(tmp_path, _write(tmp_path, ending, _table(labels)), *flags)
    if outcomes[-1].code == 2:
        assert ending in ("csv", "bare.csv")
        assert "by its number but class" in outcomes[-1].err
        assert case in ("numbers as names", "from one")
    else:
        assert _accuracy(tmp_path) == right


@pytest.mark.parametrize("ending", WRITERS)
def test_true_and_false_are_names_or_refused(tmp_path: Path, ending: str) -> None:
    """`true,false` calls class 0 true: text is read so, and values that are true or false are refused."""
    logits, truth = make_model(ROWS, 2, 6)
    wrong, right = ["--classes", "true,false"], ["--classes", "false,true"]
    table = {"logits": logits.astype(float).tolist(), "label": [not number for number in truth]}
    dump = _write(tmp_path, ending, table)
    assert "by its number but class 0 by its name" in fail("calibrate", dump, *wrong, "-o", tmp_path / "no.json")
    swapped = _write(tmp_path, ending, table | {"label": [bool(number) for number in truth]}, "right")
    assert _steps(tmp_path, swapped, *right)[-1].code == 0
    assert _accuracy(tmp_path) == float(np.mean(logits.argmax(axis=1) == truth))


@pytest.mark.parametrize("ending", OTHERS)
def test_numbers_as_labels_beside_names_that_are_numbers(tmp_path: Path, ending: str) -> None:
    dump = _write(tmp_path, ending, _table(TRUTH.tolist()))
    assert "label 2 is class 2 ('1') by its number" in fail(
        "calibrate", dump, "--classes", "2,0,1", "-o", tmp_path / "r.json"
    )
    succeed("calibrate", dump, "--classes", "3,7,9", "-o", tmp_path / "r.json")  # no label can be such a name


def _mask_with(folder: Path, ending: str, copied: dict[str, list[Any]]) -> dict[str, list[str]]:
    """The columns of a mask as text, by way of every command."""
    dump = _write(folder, ending, _table(TRUTH.tolist(), copied))
    assert [outcome.code for outcome in _steps(folder, dump)] == [0] * 5
    with (folder / "mask.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    return {name: [row[name] for row in rows] for name in (*copied, "loss", "rejected", "prediction")}


@pytest.fixture(scope="module")
def mask_of_parquet(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return _mask_with(tmp_path_factory.mktemp("parquet"), "parquet", COPIED)


@pytest.mark.parametrize("ending", OTHERS)
def test_copied_columns_stay_as_they_were_written(
    tmp_path: Path, ending: str, mask_of_parquet: dict[str, list[str]]
) -> None:
    copied = {name: values for name, values in COPIED.items() if not (ending == "npz" and name == "flags")}
    found = _mask_with(tmp_path, ending, copied)
    for name, values in found.items():
        written = ending.endswith("csv") and name == "fractions"  # 0.0 stays 0.0
        assert values == (list(map(str, COPIED[name])) if written else mask_of_parquet[name]), name
    assert found["zeros"] == COPIED["zeros"]
    assert found["zones"] == COPIED["zones"]
    assert found["long ids"] == list(map(str, COPIED["long ids"]))


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_type_that_changes_late_is_one_that_holds_all(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BLOCK", 1 << 12)
    late: list[Any] = list(NUMBERS)
    late[-1] = "007" if ending == "csv" else 0.5
    columns = {"late": late, "empty": [None] * (ROWS - 1) + [5], "nothing": [None] * ROWS}
    dump = _write(tmp_path, ending, _table(TRUTH.tolist(), columns))
    assert _steps(tmp_path, dump)[-1].code == 0
    with (tmp_path / "mask.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    for name, values in columns.items():
        assert [row[name] for row in rows] == ["" if value is None else str(value) for value in values]


def test_what_is_only_copied_from_csv_stays_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where what would be written otherwise comes late; a column that comes back to the letter has a type.

    Fractions are text always: whether all of them come back would differ from one batch to the next.
    """
    monkeypatch.setattr(files, "BLOCK", 1 << 13)
    words = {"price": "1.50", "power": "1E5", "truth": "True", "none": "NULL", "missing": "N/A", "zero": "-0"}
    usual = {"price": "2.25", "power": "3", "truth": "false", "none": "7", "missing": "2026-01-31", "zero": "1"}
    columns = {name: [usual[name]] * (ROWS - 1) + [word] for name, word in words.items()}
    columns |= {"half": ["0.5", ""] * (ROWS // 2), "early": ["N/A", "5"] * (ROWS // 2)}
    columns |= {"whole": ["5.0"] * ROWS, "mixed": ["5", "5.0"] * (ROWS // 2), "day": ["2026-01-31"] * ROWS}
    columns |= {"blank": [" 7", "7 "] * (ROWS // 2), "nothing": ["  "] * ROWS, "count": ["3"] * ROWS}
    columns |= {"feature_0": ["5.0"] * ROWS, "feature_1": [" 1.50"] * ROWS}
    dump = _write(tmp_path, "csv", _table(TRUTH.tolist(), columns))
    assert _steps(tmp_path, dump, "--logits", "logit_*")[-1].code == 0
    with (tmp_path / "mask.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {name: [row[name] for row in rows] for name in columns} == columns
    succeed("reject", dump, "-r", tmp_path / "r.json", "-o", tmp_path / "mask.parquet")
    types = {field.name: str(field.type) for field in pq.read_schema(tmp_path / "mask.parquet")}
    typed = {name: kind for name, kind in types.items() if name in columns and kind != "string"}
    assert typed == {"day": "date32[day]", "count": "int64"}


def test_scores_of_csv_that_are_copied_are_text_as_written(tmp_path: Path) -> None:
    """Numbers to compute with, text in a mask; those of a converted file are numbers in both."""
    scores = [("+0.50", "0.90", "9.5E-1", " 0.25")[i % 4] for i in NUMBERS]
    right = [int(i % 7 > 0) if i % 4 else int(i % 8 == 0) for i in NUMBERS]
    dump, r, mask = tmp_path / "d.csv", tmp_path / "r.json", tmp_path / "mask.parquet"
    dump.write_text("score,right\n" + "".join(f"{a},{b}\n" for a, b in zip(scores, right, strict=True)))
    flags = ["--score", "score", "--correct", "right"]
    outcome = _steps(tmp_path, dump, *flags)[-1]
    assert outcome.code == 0, outcome.err
    succeed("reject", dump, "-r", r, "-o", mask)
    assert pq.read_table(mask)["score"].to_pylist() == scores
    losses = pq.read_table(mask)["loss"]
    succeed("convert", dump, *flags, "-o", tmp_path / "d.parquet")
    succeed("reject", tmp_path / "d.parquet", "-r", r, "-o", mask, "-f")
    assert pq.read_table(mask)["score"].to_pylist() == [float(score) for score in scores]
    assert pq.read_table(mask)["loss"] == losses
    wide = _write(tmp_path, "csv", _table(TRUTH.tolist()), "wide")
    assert _steps(tmp_path, wide)[-1].code == 0
    succeed("reject", wide, "-r", r, "-o", mask, "-f", "--keep", "logit_1")
    assert pq.read_table(mask)["logit_1"].to_pylist() == [str(row[1]) for row in LOGITS.astype(float).tolist()]


def test_files_that_write_a_column_in_other_words_are_not_made_alike(tmp_path: Path) -> None:
    """007 in the second file is not 7 because the first has numbers."""
    folder = tmp_path / "in"
    folder.mkdir()
    _write(folder, "csv", _table(TRUTH.tolist(), {"key": list(NUMBERS)}), "a")
    _write(folder, "csv", _table(TRUTH.tolist(), {"key": [f"{i:03}" for i in NUMBERS]}), "b")
    outcome = _steps(tmp_path, folder)[-1]
    assert outcome.code == 2
    assert "column 'key' is string but int64" in outcome.err


def test_labels_with_leading_zeros_are_class_numbers_where_nothing_has_a_type(tmp_path: Path) -> None:
    dump = _write(tmp_path, "csv", _table([f"{number:02}" for number in TRUTH]))
    assert _steps(tmp_path, dump)[-1].code == 0
    assert _accuracy(tmp_path) == float(np.mean(LOGITS.argmax(axis=1) == TRUTH))


def test_labels_with_a_sign_are_class_numbers(tmp_path: Path) -> None:
    dump = _write(tmp_path, "csv", _table([f"+{number}" for number in TRUTH]))
    assert _steps(tmp_path, dump)[-1].code == 0
    assert _accuracy(tmp_path) == float(np.mean(LOGITS.argmax(axis=1) == TRUTH))


def test_files_with_columns_in_another_order_are_named_with_them(tmp_path: Path) -> None:
    for name, order in (("a", "xyz"), ("b", "zxy")):
        table = {f"p_{each}": LOGITS["xyz".index(each)] for each in order}
        pq.write_table(pa.table({**table, "label": list(order)}), tmp_path / f"{name}.parquet")
    message = fail("calibrate", tmp_path, "--logits", "p_*", "-o", tmp_path / "r.json")
    assert "b.parquet: logits are in 'p_z, p_x, p_y', but in" in message
    assert "a.parquet in 'p_x, p_y, p_z'" in message


@pytest.mark.parametrize("ending", OTHERS)
def test_labels_that_are_words_need_names(tmp_path: Path, ending: str) -> None:
    dump = _write(tmp_path, ending, _table(LABELS["words"][1]))
    assert "name the classes in the order of the logits with --classes A,B,..." in fail("calibrate", dump, "-o", "-")


def test_keys_that_are_rounded_are_refused(tmp_path: Path) -> None:
    """As doubles, neighbours above 2^53 are one key, and each row would get another row's label."""
    keys = np.arange(2**53, 2**53 + 2 * ROWS, 2)
    dump = tmp_path / "dump.parquet"
    pq.write_table(pa.table({"key": keys.astype(np.float64), "logits": pa.array(LOGITS.tolist())}), dump)
    pq.write_table(pa.table({"key": keys, "label": TRUTH}), tmp_path / "labels.parquet")
    message = fail("calibrate", dump, "--labels-from", tmp_path / "labels.parquet", "--join-on", "key", "-o", "-")
    assert "2^53" in message


@pytest.mark.parametrize(
    "ending", ["parquet", thorough("feather"), "csv", thorough("bare.csv"), "jsonl", "json", "npz"]
)
def test_one_file_of_probabilities_among_logits_is_named(tmp_path: Path, ending: str) -> None:
    probabilities = np.exp(LOGITS - LOGITS.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    folder = tmp_path / "in"
    folder.mkdir()
    for name in "abc":
        _write(folder, ending, _table(TRUTH.tolist()), name)
    assert _steps(tmp_path, folder if ending != "json" else folder / "*.json")[-1].code == 0
    odd = _write(folder, ending, _table(TRUTH.tolist()) | {"logits": probabilities.tolist()}, "b")
    arguments = [folder / f"*.{ending}", "-r", tmp_path / "r.json"]
    for command in (
        ["evaluate", *arguments, "-o", tmp_path / "report.json", "-f"],
        ["threshold", *arguments, "--coverage", "0.8", "-o", tmp_path / "r.json", "-f"],
        ["reject", *arguments, "-o", tmp_path / "mask.parquet", "-f"],
        ["reject", *arguments, "-o", f"{tmp_path}/masks/", "-f"],
    ):
        message = fail(*command)
        assert str(odd) in message
        assert "unlike those of the other files" in message


@pytest.mark.parametrize("ending", WRITERS)
def test_rows_of_probabilities_among_logits_are_refused(tmp_path: Path, ending: str) -> None:
    """One row in 50 is enough, in any place of the file; who says that they are logits is believed."""
    _steps(tmp_path, _write(tmp_path, ending, _table(TRUTH.tolist()), "good"))
    table = _table(TRUTH.tolist())
    for row in range(0, ROWS, 50):
        weights = np.exp(LOGITS[row] - LOGITS[row].max()).astype(float)
        table["logits"][row] = (weights / weights.sum()).tolist()
    dump, r = _write(tmp_path, ending, table, "mixed"), tmp_path / "r.json"
    out = ("-o", tmp_path / "out.json")
    for words in (["calibrate", dump, *out], ["evaluate", dump, "-r", r, *out], ["reject", dump, "-r", r, "-o", "-"]):
        assert "some rows lie in [0, 1] and sum to 1" in fail(*words)
    succeed("calibrate", dump, "--input", "logits", *out)


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_numbered_columns_in_another_order_are_names(tmp_path: Path, ending: str) -> None:
    """Listed as p_2,p_0,p_1, the first column is class 2 by its name and class 0 by its place."""
    columns = {f"p_{name}": LOGITS[:, i].astype(float).tolist() for i, name in enumerate("201")}
    rows = _records(columns | {"label": [int("201"[number]) for number in TRUTH]})
    dump = tmp_path / f"d.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), dump)
    elif ending == "csv":
        dump.write_text("\n".join(",".join(map(str, row)) for row in [rows[0], *(row.values() for row in rows)]) + "\n")
    else:
        dump.write_text("".join(json.dumps(row) + "\n" for row in rows))
    message = fail("calibrate", dump, "--logits", "p_2,p_0,p_1", "-o", tmp_path / "r.json")
    assert "label 2 is class 2 ('1') by its number but class 0 by its name" in message
    assert _steps(tmp_path, dump, "--logits", "p_*")[-1].code == 0
    assert _accuracy(tmp_path) == float(np.mean(LOGITS.argmax(axis=1) == TRUTH))


@pytest.mark.parametrize(("kind", "bits"), [(np.float16, 11), (np.float32, 24)])
def test_short_keys_that_are_rounded_are_refused(tmp_path: Path, kind: type, bits: int) -> None:
    keys = 2**bits + 1 + 2 * np.arange(ROWS)
    dump, labels = tmp_path / "dump.parquet", tmp_path / "labels.parquet"
    pq.write_table(pa.table({"key": keys.astype(kind), "logits": pa.array(LOGITS.tolist())}), dump)
    pq.write_table(pa.table({"key": keys - 1, "label": TRUTH}), labels)
    assert f"2^{bits}" in fail("calibrate", dump, "--labels-from", labels, "--join-on", "key", "-o", "-")


# Each file once


def test_each_file_counts_once(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    dump = _write(folder, "parquet", _table(TRUTH.tolist()))
    (folder / "itself").symlink_to(folder)
    (tmp_path / "link.parquet").symlink_to(dump)
    os.link(dump, tmp_path / "hard.parquet")
    succeed("calibrate", dump, "-o", tmp_path / "r.json")
    expected = load_json(tmp_path / "r.json")
    for arguments in (
        [dump, dump],
        [folder],
        [folder, f"{folder}/*.parquet"],
        [dump, tmp_path / "link.parquet", tmp_path / "hard.parquet"],
        [dump, os.path.relpath(dump)],
        [f"file://{dump}", f"file://{dump}"],
        [f"file://{dump}", dump],
        [f"file://{folder}"],
    ):
        succeed("calibrate", *arguments, "-o", tmp_path / "again.json", "-f")
        assert load_json(tmp_path / "again.json")["calibration"] == expected["calibration"], arguments


def test_patterns_of_any_depth_end_where_links_lead_back(tmp_path: Path) -> None:
    """Two links to folders above doubled the ways at each level."""
    folder = tmp_path / "top" / "in"
    (folder / "deep" / "er").mkdir(parents=True)
    _write(folder / "deep" / "er", "parquet", _table(TRUTH.tolist()))
    _write(folder, "parquet", _table(TRUTH.tolist()))
    for name in ("itself", "again"):
        (folder / name).symlink_to(folder)
    (folder / "above").symlink_to(folder.parent)
    for pattern, rows in {
        "**/*.parquet": 2,
        "**/er/*.parquet": 1,
        "d*/**/*.parquet": 1,
        "**/deep/**/*.parquet": 1,
    }.items():
        succeed("convert", folder / pattern, "-o", tmp_path / "c.parquet", "-f")
        assert pq.read_metadata(tmp_path / "c.parquet").num_rows == rows * ROWS, pattern


def test_a_pipe_in_a_directory_is_refused_and_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    _write(folder, "parquet", _table(TRUTH.tolist()))
    os.mkfifo(folder / "pipe.parquet")
    for dump in (folder, f"{folder}/*"):
        assert "pipe.parquet: it is not a regular file" in fail("calibrate", dump, "-o", tmp_path / "no.json")
        assert drrej("calibrate", dump, "--on-bad-file", "skip", "-o", tmp_path / "r.json", "-f").code == 0


# The machine's fault


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.EIO])
def test_a_shortage_is_not_the_fault_of_a_file(
    tmp_path: Path, ending: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--on-bad-file skip` good rows would be left out."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name in "ab":
        _write(folder, ending, _table(TRUTH.tolist()), name)
    identity = files.identity_of

    def short(part: files.DumpFile, stream: Any = None) -> files.Identity:
        if os.path.basename(part.path).startswith("b."):
            raise OSError(number, os.strerror(number))
        return identity(part, stream)

    monkeypatch.setattr(files, "identity_of", short)
    message = fail("calibrate", f"{folder}/*.{ending}", "--on-bad-file", "skip", "-o", tmp_path / "r.json")
    assert os.strerror(number) in message
    assert not (tmp_path / "r.json").exists()


def test_memory_that_no_machine_has_is_the_fault_of_the_file() -> None:
    file = files.DumpFile("x", "x", "x")
    with pytest.raises(ShortageError):
        files.damaged(file, pa.ArrowMemoryError("malloc of size 1048576 failed"))
    assert isinstance(files.damaged(file, pa.ArrowMemoryError(f"malloc of size {1 << 60} failed")), BadFileError)


# Text that is made to hurt


def test_a_doubled_key_is_refused(tmp_path: Path) -> None:
    table = json.dumps(_table(TRUTH.tolist()))
    for text in (
        '{"columns": ["a"], "data": [[1]], "data": [[2]]}',
        '[{"a": 1, "a": 2}]',
        f"[{table[:-1]}, {table[1:]}]",
    ):
        (tmp_path / "d.json").write_text(text)
        assert "occurs twice" in fail("calibrate", tmp_path / "d.json", "-o", tmp_path / "r.json")


def test_doubled_columns_are_refused(tmp_path: Path) -> None:
    for name, text in {
        "d.csv": "logit_0,logit_1,label,label\n0.5,1.5,0,1\n",
        "d.jsonl": '{"logits": [0.5, 1.5], "label": 0, "label": 1}\n',
        "log.jsonl": '{"doc_id": 0, "target": 0, "target": 1, "filtered_resps": [["-0.2"], ["-1.5"]]}\n',
    }.items():
        (tmp_path / name).write_text(text)
        assert "twice" in fail("calibrate", tmp_path / name, "-o", tmp_path / "r.json")
    table = pa.table([pa.array([0.5]), pa.array([1.5]), pa.array([0]), pa.array([1])], ["logit_0", "logit_1", "y", "y"])
    pq.write_table(table, tmp_path / "d.parquet")
    assert "twice" in fail("calibrate", tmp_path / "d.parquet", "--label", "y", "-o", tmp_path / "r.json")
    np.savez(tmp_path / "d.npz", logits=LOGITS, label=TRUTH)
    np.save(tmp_path / "other.npy", TRUTH[::-1])
    with zipfile.ZipFile(tmp_path / "d.npz", "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.write(tmp_path / "other.npy", "label.npy")
    assert "twice" in fail("calibrate", tmp_path / "d.npz", "-o", tmp_path / "r.json")


@pytest.mark.parametrize("ending", ["json", "jsonl", "ndjson.gz"])
def test_deep_nesting_is_one_line(tmp_path: Path, ending: str) -> None:
    """In a process of its own: it used to end with a signal."""
    text = b'{"logits": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    path = tmp_path / f"d.{ending}"
    path.write_bytes(text if not ending.endswith("gz") else zlib.compress(text, wbits=31))
    done = run_drrej("calibrate", path, "-o", tmp_path / "r.json")
    assert done.returncode == 2
    assert b"nested" in done.stderr


def test_encrypted_columns_are_refused(tmp_path: Path) -> None:
    """In a process of its own: pyarrow's metadata of such a column ends it."""
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Keys(encryption.KmsClient):  # type: ignore[misc, name-defined]
        def __init__(self, _: Any) -> None:
            encryption.KmsClient.__init__(self)

        def wrap_key(self, key: bytes, _: str) -> str:
            return key.hex()

    settings = encryption.EncryptionConfiguration(
        "foot", column_keys={"c": ["logits.list.element"]}, plaintext_footer=True
    )
    factory = encryption.CryptoFactory(Keys)
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), settings)
    dump = tmp_path / "d.parquet"
    pq.write_table(_arrow(_table(TRUTH.tolist())), dump, encryption_properties=properties)
    done = run_drrej("calibrate", dump, "-o", tmp_path / "r.json")
    assert (done.returncode, b"decrypt" in done.stderr) == (2, True)


def test_an_archive_of_many_arrays(tmp_path: Path) -> None:
    """More than are kept unpacked at a time; each of them may be a column of scores."""
    classes = 1500
    logits = np.random.default_rng(3).standard_normal((20, classes))
    columns = {f"logit_{i}": logits[:, i] for i in range(classes)}
    np.savez(tmp_path / "d.npz", label=np.arange(20), **columns)
    succeed("convert", tmp_path / "d.npz", "-o", tmp_path / "d.parquet")
    found = np.array(pq.read_table(tmp_path / "d.parquet")["logits"].to_pylist())
    assert np.array_equal(found, logits)


def test_arrays_by_the_thousand_and_documents_of_another_kind_are_refused_at_once(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        np.save(tmp_path / "a.npy", np.zeros(3))
        for number in range(5000):
            archive.write(tmp_path / "a.npy", f"a{number}.npy")
    assert "5000 arrays have 3 values each" in fail("inspect", tmp_path / "d.npz")
    np.savez(tmp_path / "lengths.npz", **{f"a{number}": np.zeros(number) for number in range(1, 100)})
    message = fail("inspect", tmp_path / "lengths.npz")
    assert "'a12' (12,), ...); save" in message
    (tmp_path / "r.json").write_text('{"rows": [' + ", ".join(["[1, 2]"] * 300_000) + "]}")
    assert "not a rejector" in fail("evaluate", SAMPLE / "test.parquet", "-r", tmp_path / "r.json")
    (tmp_path / "d.json").write_text(json.dumps({"rows": [{"logits": [1.0, 2.0], "label": 0}] * 1000}))
    assert "not a table" in fail("calibrate", tmp_path / "d.json", "-o", "-")
    (tmp_path / "nan.json").write_text('{"columns": ["logits", "label"], "data": [[[NaN, 1.0], 0], [[0.5, 1.0], 1]]}')
    assert "NaN among the scores" in fail("calibrate", tmp_path / "nan.json", "-o", "-")


@pytest.mark.parametrize(("epoch", "code"), [("abc", 2), ("-1", 2), ("", 0), ("0", 0)])
def test_a_date_that_is_none_is_one_line(
    tmp_path: Path, epoch: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries fail on it while they are loaded."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    done = drrej("calibrate", _write(tmp_path, "parquet", _table(TRUTH.tolist())), "-o", tmp_path / "r.json")
    assert done.code == code
    assert ("SOURCE_DATE_EPOCH=" in done.err) == (code == 2)


def test_a_cell_that_is_no_number_is_told_by_its_column(tmp_path: Path) -> None:
    dump = _write(tmp_path, "csv", _table(TRUTH.tolist()))
    lines = dump.read_text().splitlines()
    dump.write_text("\n".join([*lines[:5], lines[5].rpartition(",")[0] + ",0x10", *lines[6:]]))
    message = fail("calibrate", dump, "-o", tmp_path / "r.json")
    assert "logit_2" in message
    assert "0x10" in message


def test_texts_that_are_formulas_are_quoted_on_request(tmp_path: Path) -> None:
    texts = [("=1+1", "+2", "-3", "@x", "\tx", "plain", None)[i % 7] for i in NUMBERS]
    dump = _write(tmp_path, "parquet", _table(TRUTH.tolist(), {"=name": texts}))
    assert _steps(tmp_path, dump)[-1].code == 0

    def column(*flags: str) -> list[str]:
        assert drrej("reject", dump, "-r", tmp_path / "r.json", "-o", tmp_path / "mask.csv", "-fq", *flags).code == 0
        with (tmp_path / "mask.csv").open(newline="") as stream:
            return [row[0] for row in csv.reader(stream)][:8]

    assert column() == ["=name", "=1+1", "+2", "-3", "@x", "\tx", "plain", ""]
    assert column("--safe-csv") == ["'=name", "'=1+1", "'+2", "'-3", "'@x", "'\tx", "plain", ""]
    drrej("reject", dump, "-r", tmp_path / "r.json", "-o", tmp_path / "mask.parquet", "-fq", "--safe-csv")
    assert pq.read_table(tmp_path / "mask.parquet")["=name"].to_pylist() == texts


@pytest.mark.parametrize("format", ["text", "markdown", "github"])
def test_the_name_of_a_column_of_cutoffs_is_one_line(tmp_path: Path, format: str) -> None:
    name = "x\n::error::y\x1b[31m"
    dump = _write(tmp_path, "parquet", _table(TRUTH.tolist(), {name: ["a"] * ROWS}))
    done = drrej("run", dump, "--coverage", "0.8", "--cutoff-by", name, "-o", tmp_path / "o", "--format", format)
    assert done.code == 0, done.err
    texts = [
        done.out.decode(),
        (tmp_path / "o" / "report.txt").read_text(),
        (tmp_path / "o" / "report.html").read_text(),
    ]
    texts[2] = texts[2].replace("\n::error::y", "")  # a page is not read line by line
    assert not any(line.startswith("::error::y") or "\x1b" in line for text in texts for line in text.splitlines())


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://b/x?secret%5Fkey=SECRET", "s3://b/x?secret%5Fkey=***: cannot"),
        ("s3://b/x?session_token=SEC'RET", "s3://b/x?session_token=***: cannot"),
        ("s3://b/x?secret_key=SEC:RET&region=eu", "s3://b/x?secret_key=***&region=eu: cannot"),
    ],
)
def test_no_part_of_a_secret_is_shown(uri: str, shown: str) -> None:
    assert shown in fail("calibrate", uri, "-o", "-")


def test_scores_without_bound_give_no_warning_of_numpy(tmp_path: Path) -> None:
    dump = _write(tmp_path, "parquet", _table(TRUTH.tolist()) | {"logits": np.where(LOGITS > 0, 1e308, 0.0).tolist()})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        succeed("inspect", dump)


def test_advice_is_about_what_there_is(tmp_path: Path) -> None:
    """No --normalize for one score per row, and no --mse where there are no regressions."""
    pq.write_table(pa.table({"score": np.linspace(0, 100, ROWS), "label": TRUTH % 2}), tmp_path / "d.parquet")
    flags = ["--binary", "--input", "probs", "-o", tmp_path / "r.json"]
    message = fail("calibrate", tmp_path / "d.parquet", *flags)
    assert "as a share of 1, not as a percentage" in message
    assert "--normalize" not in message
    assert "--mse" not in fail("run", tmp_path / "d.parquet", "-o", tmp_path / "o")


def test_a_wrong_command_line_is_where_ci_looks(tmp_path: Path) -> None:
    """The report of an earlier run, without errors, must not stay."""
    report = tmp_path / "report.xml"
    report.write_text('<testsuites failures="0" errors="0"/>')
    assert drrej("evaluate", "a.parquet", "--nosuch", "-o", report, "-f").code == 2
    assert 'errors="1"' in report.read_text()
    assert drrej("evaluate", "a.parquet", "--nosuch", "--format", "github").out.startswith(
        b"::error title=drrej::No such"
    )


def test_libraries_that_find_no_memory_are_a_shortage(monkeypatch: pytest.MonkeyPatch) -> None:
    def short() -> None:
        raise ImportError("libx.so: failed to map segment from shared object")

    monkeypatch.setattr(app, "application", short)
    assert fail("metrics") == "not enough memory"


# The same rows, said otherwise


def test_the_same_rows_give_the_same_figures(tmp_path: Path) -> None:
    """In another order, format or type, and split over files; each row twice changes no share."""
    table = _table(TRUTH.tolist())
    dump = _write(tmp_path, "parquet", table)
    assert _steps(tmp_path, dump)[-1].code == 0
    order = np.random.default_rng(4).permutation(ROWS).tolist()
    turned = _write(tmp_path, "parquet", {name: [values[i] for i in order] for name, values in table.items()}, "turned")
    single = tmp_path / "single.parquet"
    pq.write_table(pa.table({"logits": pa.array(LOGITS.tolist(), pa.list_(pa.float32())), "label": TRUTH}), single)
    halves = tmp_path / "halves"
    halves.mkdir()
    for name, part in {"a": slice(0, 100), "b": slice(100, None)}.items():
        _write(halves, "parquet", {key: values[part] for key, values in table.items()}, name)
    twice = _write(tmp_path, "parquet", {key: [*values, *values] for key, values in table.items()}, "twice")
    others = [_write(tmp_path, ending, table, "same") for ending in ("feather", "jsonl", "json", "npz")]

    def figures(*dumps: Path) -> dict[str, Any]:
        report = tmp_path / "figures.json"
        assert drrej("evaluate", *dumps, "-r", tmp_path / "r.json", "-o", report, "-fq").code == 0
        found = load_json(report)
        shares = {key: found[key]["value"] for key in ("coverage", "accuracy", "base_accuracy")}
        return shares | {"nll": found["nll"]["all"], "brier": found["brier"]["all"]}

    expected = figures(dump)
    for same in (turned, single, halves, *others):
        assert figures(same) == pytest.approx(expected, rel=1e-6), same
    shares = ("coverage", "accuracy", "base_accuracy")
    assert {key: figures(twice)[key] for key in shares} == {key: expected[key] for key in shares}


def test_what_macos_lacks_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other system is claimed: files are locked with flock."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(sys, "platform", "darwin")
    val, test, out = SAMPLE / "val.parquet", SAMPLE / "test.parquet", tmp_path / "out"
    outcome = drrej("run", "--val", val, "--test", test, "--risk", "0.02", "-o", out)
    assert outcome.code == 0, outcome.err
    succeed("reject", test, "-r", out / "rejector.json", "-o", f"{tmp_path}/masks/")
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert sorted(re.findall(r'"Operating System :: (.*)"', text)) == ["MacOS", "POSIX :: Linux"]


def test_columns_of_lists_are_no_groups_and_no_keys(tmp_path: Path) -> None:
    dump, r = _write(tmp_path, "parquet", _table(TRUTH.tolist())), tmp_path / "r.json"
    assert _steps(tmp_path, dump)[-1].code == 0
    made = (dump, "-r", r)
    for words in (
        ["evaluate", *made, "--report-by", "logits", "-o", tmp_path / "x.json"],
        ["threshold", *made, "--cutoff-by", "logits", "--coverage", "0.8", "-o", tmp_path / "x.json"],
        ["threshold", *made, "--group", "logits", "--risk", "0.2", "--confidence", "0.9", "-o", tmp_path / "x.json"],
        ["monitor", tmp_path / "state.json", *made, "--report-by", "logits"],
        ["evaluate", *made, "--label", "logits"],
        ["evaluate", *made, "--labels-from", dump, "--join-on", "logits"],
    ):
        assert "'logits'" in fail(*words), words


def test_what_would_take_long_takes_seconds_or_is_one_line(tmp_path: Path) -> None:
    """A confidence with ten digits once took minutes; a backend that is none is not drrej's to load."""
    assert b"10,347" in succeed("plan", "--risk", "0.02", "--error", "0.01", "--confidence", "0.9999999999")
    dump = _write(tmp_path, "parquet", _table(TRUTH.tolist()))
    assert _steps(tmp_path, dump)[-1].code == 0
    words = ("evaluate", dump, "-r", tmp_path / "r.json", "-q", "-o", tmp_path / "curve.png")
    done = run_drrej(*words, env={"MPLBACKEND": "bogus"})
    assert done.returncode == 0, done.stderr
