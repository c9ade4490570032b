"""inspect tells a newcomer what is there, and the command it prints works."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from dumps_zoo import drrej, fixed_list, make_rejector, make_rows, plain_list, succeed, wide, write

ROWS = make_rows(4, 400)
LOGITS = np.where(np.isfinite(ROWS.logits), ROWS.logits, -9).astype(np.float32)


def _inspect(*arguments: object, stdin: bytes = b"") -> str:
    outcome = succeed("inspect", *arguments, stdin=stdin)
    assert outcome.err == ""
    return outcome.out.decode()


def _advised(text: str) -> list[str]:
    """The last line: `drrej calibrate ...`."""
    words = shlex.split(text.strip().splitlines()[-1])
    assert words[0] == "drrej"
    return words[1:]


def _probabilities() -> np.ndarray:
    raw = np.exp(LOGITS)
    return raw / raw.sum(axis=1, keepdims=True)


SCORES = LOGITS[:, 0]
DUMPS: dict[str, tuple[dict[str, object], list[str], list[str]]] = {
    "list": ({"logits": plain_list(LOGITS), "label": ROWS.labels}, [], ["column 'logits'", "4 classes", "400 rows"]),
    "wide": ({**wide(LOGITS), "label": ROWS.labels}, [], ["columns 'logit_0' to 'logit_3'", "4 classes"]),
    "bare": ({**wide(LOGITS, ""), "label": ROWS.labels}, [], ["columns '0' to '3'"]),
    "other names": (
        {"scores": fixed_list(LOGITS), "y": ROWS.labels, "more": fixed_list(LOGITS)},
        ["--logits", "scores", "--label", "y"],
        ["column 'scores'", "column 'y'"],
    ),
    "probabilities": (
        {"p": fixed_list(_probabilities()), "label": ROWS.labels},
        [],
        ["probabilities", "--input probs"],
    ),
    "binary": ({"s": SCORES, "label": (SCORES > 0) ^ (SCORES > 4)}, ["--binary"], ["one score per row", "2 classes"]),
    "text labels": (
        {"logits": fixed_list(LOGITS), "label": pa.array(ROWS.text_labels)},
        ["--classes", ",".join(ROWS.names)],
        ["column 'label' (string)"],
    ),
}


@pytest.mark.parametrize("kind", DUMPS)
def test_the_advice_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    columns, flags, says = DUMPS[kind]
    (tmp_path / "a folder").mkdir()
    monkeypatch.chdir(tmp_path)
    write(Path("a folder/dump.parquet"), columns)
    text = _inspect("a folder/dump.parquet", *flags)
    for words in [*says, "bad rows: none", "the prediction is right in", "go on with:"]:
        assert words in text
    succeed(*_advised(text))
    assert Path("rejector.json").exists()


def test_text_labels_are_listed(tmp_path: Path) -> None:
    text = _inspect(write(tmp_path / "d.parquet", {"logits": fixed_list(LOGITS), "label": pa.array(ROWS.text_labels)}))
    assert "column 'label' is text ('class 0', 'class 1', 'class 2', 'class 3')" in text
    assert "--classes NAMES" in text


def test_a_dump_that_cannot_be_used_yet(tmp_path: Path) -> None:
    dump = write(tmp_path / "d.parquet", {"a": fixed_list(LOGITS), "b": fixed_list(LOGITS)})
    text = _inspect(dump)
    assert "  a  fixed_size_list" in text
    assert "cannot be used as it is" in text
    assert "choose with --logits" in text


def test_no_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = _inspect(write(Path("d.parquet"), {"logits": fixed_list(LOGITS), "truth": ROWS.labels}))
    assert "no column 'label'; choose one with --label" in text
    make_rejector(write(Path("v.parquet"), {"logits": fixed_list(LOGITS), "label": ROWS.labels}), tmp_path)
    succeed(*_advised(text))
    assert Path("mask.parquet").exists()


def test_bad_rows_are_counted(tmp_path: Path) -> None:
    rows: list[object] = list(LOGITS)
    rows[5] = rows[300] = None
    rows[17] = [np.nan] * 4
    labels: list[object] = ROWS.labels.tolist()
    labels[9] = 77
    dump = write(tmp_path / "d.parquet", {"logits": pa.array(rows), "label": pa.array(labels)}, row_group_size=100)
    lines = [line for line in _inspect(dump).splitlines() if line.startswith("bad rows: ")]
    assert len(lines) == 3
    assert any("2 rows have no value (null); the first is row 5" in line for line in lines)
    assert any("1 row has NaN" in line and "row 17" in line for line in lines)
    assert any("column 'label': 1 row has a label outside 0 to 3; row 9" in line and "(77)" in line for line in lines)


def test_labels_that_are_predictions(tmp_path: Path) -> None:
    """timm writes the prediction as `label`."""
    text = _inspect(write(tmp_path / "d.parquet", {"logits": fixed_list(LOGITS), "label": LOGITS.argmax(axis=1)}))
    assert "equal to the prediction in every row: are these the true labels?" in text


def test_sorted_scores(tmp_path: Path) -> None:
    """A top-k dump has lost the order of the classes."""
    scores = np.sort(LOGITS, axis=1)[:, ::-1]
    text = _inspect(write(tmp_path / "d.parquet", {"logits": fixed_list(np.ascontiguousarray(scores))}))
    assert "sorted scores (top-k) are not in class order" in text
    assert "top-k" not in _inspect(write(tmp_path / "e.parquet", {"logits": fixed_list(LOGITS)}))


def test_hive_directories_and_streams(tmp_path: Path) -> None:
    for day in range(3):
        dump = write(tmp_path / "in" / f"day={day}" / "x.parquet", {"logits": fixed_list(LOGITS), "label": ROWS.labels})
    text = _inspect(tmp_path / "in")
    assert "predictions in 3 files, 1200 rows in 3 row groups" in text
    assert "day  int64 (from the directory names)" in text
    assert "400 rows" in _inspect("-", stdin=dump.read_bytes())


def test_a_join(tmp_path: Path) -> None:
    dump = write(tmp_path / "d.parquet", {"key": np.arange(400), "logits": fixed_list(LOGITS)})
    labels = write(tmp_path / "l.parquet", {"key": np.arange(400)[::-1], "label": ROWS.labels[::-1]})
    text = _inspect(dump, "--labels-from", labels, "--join-on", "key")
    right = 100 * np.mean(LOGITS.argmax(axis=1) == ROWS.labels)
    assert f"joined on 'key'; the prediction is right in {right:.2f} %" in text
    document = succeed(*_advised(text)[:-2]).out
    assert b'"rows": 400' in document


def test_a_rejector_in_plain_words(tmp_path: Path) -> None:
    dump = write(tmp_path / "d.parquet", {"logits": fixed_list(LOGITS), "label": ROWS.labels})
    rejector = make_rejector(dump, tmp_path)
    stages = [_inspect(tmp_path / f"{name}.json") for name in ("calibrated", "fitted", "rejector")]
    assert "drrej fit DUMP -r" in stages[0]
    assert "drrej threshold DUMP -r" in stages[1]
    assert "drrej reject DUMP -r" in stages[2]
    for words in (
        "temperature: ",
        "the entropy of the calibrated probabilities",
        "KL divergence",
        "flat part: none",
        "rejects a row when its expected loss is",
        "or less (tau)",
        "accepts 320 of 400 rows (80.00 %)",
    ):
        assert words in stages[2]
    assert _inspect("-", stdin=rejector.read_bytes()).splitlines()[1:-1] == stages[2].splitlines()[1:-1]


def test_the_flat_part_and_chows_rule(tmp_path: Path) -> None:
    dump = write(tmp_path / "d.parquet", {"logits": fixed_list(LOGITS), "label": ROWS.labels})
    fitted, finished = tmp_path / "f.json", tmp_path / "r.json"
    flags = ["--temperature", "1", "--alpha", "5", "--lambda", "0.1", "--loss", "zero-one"]
    succeed("fit", dump, *flags, "-o", fitted)
    succeed("threshold", dump, "-r", fitted, "--max-loss", "0.25", "-o", finished)
    text = _inspect(finished)
    assert "given, not fitted" in text
    assert "on the ratio is 0 and rows are rejected at every tau" in text
    assert "(largest probability 0.75 or less)" in text


def test_several_files(tmp_path: Path) -> None:
    dump = write(tmp_path / "d.parquet", {"logits": fixed_list(LOGITS), "label": ROWS.labels})
    rejector = make_rejector(dump, tmp_path)
    text = _inspect(dump, rejector)
    assert "predictions in 1 file" in text
    assert "a rejector for 4 classes" in text
    assert drrej("inspect").code == 2


def test_rounded_probabilities_in_columns_named_by_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table as people export it: p_CLASS with four digits. The first advice works too."""
    monkeypatch.chdir(tmp_path)
    names = ["ant", "bee", "cow", "dog"]
    lines = [",".join([*(f"p_{name}" for name in names), "label"])]
    for row, label in zip(_probabilities(), ROWS.labels, strict=True):
        lines.append(",".join([*(f"{p:.4f}" for p in row), names[label]]))
    Path("d.csv").write_text("\n".join(lines) + "\n")
    text = _inspect("d.csv")
    assert "do not sum to 1 within the rounding" in text
    assert "drop or fix" not in text
    first = next(line for line in text.splitlines() if line.startswith("  drrej run"))
    assert first == "  drrej run d.csv --logits 'p_*' --input probs --normalize --accuracy 0.95 -o out"
    succeed(*_advised(text))
    succeed(*shlex.split(first)[1:-4], "--coverage", "0.8", "-o", "out")
