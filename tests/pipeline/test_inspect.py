"""drrej inspect."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
import reference
from conftest import fail, make_model, run_here, source, succeed, write_dump

from drrej.cli.inspect import describe
from drrej.errors import DumpError, RejectorError


def look(path: str | Path, **options: object) -> str:
    return describe(str(path), source(path, **options))


def test_a_dump(val: str) -> None:
    lines = succeed("inspect", val).decode().splitlines()
    assert lines[0] == f"{val}: predictions in 1 file, 1648 rows in 1 row group"
    assert "logits:  column 'logits' (fixed_size_list<element: float>[6]), 6 classes" in lines
    assert lines[-1] == f"  drrej calibrate {val} -o rejector.json"
    assert any(line.startswith("labels:  column 'label' (int64); the prediction is right in 97.88 %") for line in lines)


def test_several_files_and_standard_input(val: str, rejector_file: str) -> None:
    text = succeed("inspect", "-", rejector_file, stdin=Path(val).read_bytes()).decode()
    first, second = text.split("\n\n")
    assert "1648 rows" in first
    assert second.startswith(f"{rejector_file}: a rejector for 6 classes")


def test_the_advice_works(tmp_path: Path) -> None:
    logits, labels = make_model(60, 3, seed=1, dtype=np.float64)
    path = write_dump(tmp_path / "my dump.parquet", reference.softmax(logits, 9.0), None, extra={"truth": labels})
    text = look(path, label="truth")
    assert "probabilities: rows lie in [0, 1] and sum to 1" in text
    command = shlex.split(text.splitlines()[-1])
    assert command[:2] == ["drrej", "calibrate"]
    assert "--input" in command
    succeed(*command[1:], cwd=tmp_path)
    assert (tmp_path / "rejector.json").exists()


def test_rejectors_in_plain_words(documents: Path) -> None:
    assert "drrej fit DUMP -r" in look(documents / "calibrated.json")
    assert "drrej threshold DUMP -r" in look(documents / "fitted.json")
    text = look(documents / "rejector.json")
    assert "temperature: 0.536052, so probabilities are more confident than the raw scores" in text
    assert "KL divergence (alpha 1), lambda 1" in text
    assert "accepts 1319 of 1648 rows (80.04 %)" in text
    assert "flat part: none" in text


def test_labels_that_equal_the_prediction_are_suspicious(tmp_path: Path) -> None:
    logits, _ = make_model(60, 3, seed=1)
    path = write_dump(tmp_path / "d.parquet", logits, logits.argmax(axis=1))
    assert "are these the true labels?" in look(path)


def test_bad_rows_are_listed(tmp_path: Path) -> None:
    logits, labels = make_model(60, 3, seed=1)
    logits[7] = np.nan
    labels[9:11] = 5
    text = look(write_dump(tmp_path / "d.parquet", logits, labels))
    assert "bad rows: " in text
    assert "1 row has NaN among the scores; row 7" in text
    assert "2 rows have a label outside 0 to 2; the first is row 9, counted from 0 (5)" in text


def test_a_dump_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    path = write_dump(
        tmp_path / "d.parquet", make_model(5, 3, seed=1)[0], extra={"other": make_model(5, 2, 1)[0][:, 0]}
    )
    text = look(path, logits="other")
    assert "cannot be used as it is" in text
    assert "--binary" in text


@pytest.mark.parametrize(
    ("name", "content", "kind", "message"),
    [
        ("missing", None, DumpError, "no such file"),
        ("empty.parquet", b"", DumpError, "not a readable parquet file"),
        ("text.txt", b"hello, world", DumpError, "not a readable parquet file"),
        ("empty.json", b"", RejectorError, "not a JSON document"),
        ("other.json", b"{}", RejectorError, "not a rejector"),
        ("binary.json", b"\xff\xfe\x00", RejectorError, "not a JSON document"),
        ("cut.parquet", b"PAR1" + b"\0" * 50, DumpError, "not a readable parquet file"),
    ],
)
def test_odd_files(tmp_path: Path, name: str, content: bytes | None, kind: type[Exception], message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(kind, match=rf"{name}: .*{message}") as caught:
        look(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_an_empty_directory_and_an_empty_dump(tmp_path: Path) -> None:
    assert "no .parquet file in this directory" in fail("inspect", tmp_path)
    path = write_dump(tmp_path / "d.parquet", np.zeros((0, 3), np.float32))
    done = run_here("inspect", path)
    assert b"zero rows" in done.stdout + done.stderr
