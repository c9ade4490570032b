"""drrej calibrate."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import reference
from conftest import fail, load_json, make_model, run_here, source, succeed, write_dump

import drrej
from drrej.cli.rule_options import bytes_of
from drrej.errors import OptionError


def test_the_document_goes_to_standard_output_or_a_file(tmp_path: Path, val: str, documents: Path) -> None:
    expected = (documents / "calibrated.json").read_bytes()
    assert succeed("calibrate", val) == expected
    assert succeed("calibrate", val, "-o", tmp_path / "r.json", "--jobs", "1", "--memory", "0") == b""
    assert (tmp_path / "r.json").read_bytes() == expected


def test_force_is_needed_to_overwrite(tmp_path: Path, val: str, documents: Path) -> None:
    target = tmp_path / "r.json"
    target.write_text("precious")
    assert "r.json: it exists already; use --force" in fail("calibrate", val, "-o", target)
    assert target.read_text() == "precious"
    succeed("calibrate", val, "-o", target, "-f")
    assert target.read_bytes() == (documents / "calibrated.json").read_bytes()


def test_columns_are_found_named_and_remembered(tmp_path: Path) -> None:
    logits, labels = make_model(200, 12, seed=1)
    path = write_dump(tmp_path / "d.parquet", logits, None, "wide", extra={"truth": labels, "score": labels * 0.5})
    assert "no column 'label'" in fail("calibrate", path)
    named = json.loads(succeed("calibrate", path, "--logits", "logit_*", "--label", "truth"))
    assert named["columns"] == {"logits": "logit_*", "label": "truth"}
    assert named["classes"] == 12
    assert json.loads(succeed("calibrate", path, "--label", "truth")) == named
    assert named["calibration"]["temperature"] == pytest.approx(reference.temperature(logits, labels), rel=1e-6)


def test_several_files_and_directories_are_one_dump(tmp_path: Path) -> None:
    logits, labels = make_model(300, 5, seed=2)
    whole = write_dump(tmp_path / "whole.parquet", logits, labels)
    parts = tmp_path / "parts"
    (parts / "b").mkdir(parents=True)
    write_dump(parts / "a.parquet", logits[:100], labels[:100])
    write_dump(parts / "b" / "x.parquet", logits[100:200], labels[100:200])
    write_dump(parts / "_hidden.parquet", logits[:7], labels[:7])
    write_dump(parts / "empty.parquet", logits[:0], labels[:0])
    last = write_dump(tmp_path / "last.parquet", logits[200:], labels[200:])
    assert succeed("calibrate", parts, last) == succeed("calibrate", whole)
    assert succeed("calibrate", str(parts / "*.parquet"), parts / "b", last).count(b"\n") > 10


def test_no_minimum_is_said_and_recorded(tmp_path: Path) -> None:
    logits, labels = make_model(500, 3, seed=3)
    path = write_dump(tmp_path / "d.parquet", -logits, labels)
    done = run_here("calibrate", path)
    assert done.returncode == 0
    assert done.stderr.decode() == (
        "drrej: warning: 7.8 % of the rows are right, below chance (33.3 %); labels or class order may be swapped\n"
        "drrej: warning: the best temperature lies at or beyond the end of [0.001, 1000]; the nearest value was used\n"
    )
    calibration = json.loads(done.stdout)["calibration"]
    assert (calibration["temperature"], calibration["converged"]) == (1e3, False)
    assert run_here("calibrate", path, "-q").stderr == b""


def test_rows_without_an_error_have_a_sane_temperature(tmp_path: Path) -> None:
    logits, _ = make_model(50, 3, seed=3)
    path = write_dump(tmp_path / "d.parquet", logits, logits.argmax(axis=1))
    calibration = json.loads(succeed("calibrate", path))["calibration"]
    assert calibration["converged"]
    assert 0.1 < calibration["temperature"] < 1


def test_probabilities_are_never_guessed(tmp_path: Path) -> None:
    logits, labels = make_model(100, 4, seed=4, dtype=np.float64)
    path = write_dump(tmp_path / "d.parquet", reference.softmax(logits, 20.0), labels)
    assert "these are probabilities, not logits; pass --input probs" in fail("calibrate", path)
    document = json.loads(succeed("calibrate", path, "--input", "probs"))
    assert document["input"] == "probs"
    assert document["calibration"]["temperature"] == pytest.approx(reference.temperature(logits / 20, labels), rel=1e-6)


def test_zeros_among_probabilities_are_counted(tmp_path: Path) -> None:
    probabilities = np.array([[1.0, 0, 0], [0.5, 0.5, 0], [0.2, 0.3, 0.5], [0.4, 0.3, 0.3]], np.float32)
    path = write_dump(tmp_path / "d.parquet", probabilities, np.array([0, 1, 0, 2]))
    done = run_here("calibrate", path, "--input", "probs")
    assert done.returncode == 0
    assert done.stderr == b"drrej: note: 3 probabilities of 0 count as 0.0625\n"


@pytest.mark.parametrize("size", ["x", "", "4X", "-1", "1e3", ".", "²"])
def test_sizes_that_cannot_be_read(val: str, size: str) -> None:
    with pytest.raises(OptionError, match="write a size such as 500M or 4G"):
        bytes_of(size)


@pytest.mark.parametrize(
    ("size", "count"),
    [("0", 0), ("123", 123), ("1.5K", 1536), ("4g", 4 << 30), ("4GiB", 4 << 30), ("2MB", 2 << 20), (" 1 T ", 1 << 40)],
)
def test_sizes(size: str, count: int) -> None:
    assert bytes_of(size) == count
    assert bytes_of(None) is None


def test_an_error_writes_nothing(tmp_path: Path) -> None:
    logits, labels = make_model(100, 4, seed=4)
    labels[33] = 4
    path = write_dump(tmp_path / "d.parquet", logits, labels)
    message = fail("calibrate", path, "-o", tmp_path / "r.json")
    assert message.startswith(f"{path}: column 'label': 1 row has a label outside 0 to 3; row 33, counted from 0 (4); ")
    assert os.listdir(tmp_path) == ["d.parquet"]


def test_the_library_does_the_same(val: str, documents: Path) -> None:
    assert drrej.calibrate(source(val)).to_json() == (documents / "calibrated.json").read_text()
    assert load_json(documents / "calibrated.json")["calibration"]["rows"] == 1648


def test_hundreds_of_tiny_row_groups_give_the_same_document(tmp_path: Path) -> None:
    """Footers are parsed once and tiny blocks are gathered; neither may change a bit."""
    logits, labels = make_model(400, 5, seed=9)
    one = write_dump(tmp_path / "d.parquet", logits, labels)
    document = succeed("calibrate", one)
    write_dump(one, logits, labels, row_group=2)
    assert succeed("calibrate", one) == document


def test_probabilities_that_only_wide_types_hold_give_one_calibration_in_every_type(tmp_path: Path) -> None:
    """A careless model: a few labels lie where it says 1e-12, which float16 stores as 0."""
    rng = np.random.default_rng(8)
    rows = 2000
    p = np.tile([0.9, 0.06, 0.04], (rows, 1))
    labels = np.where(rng.random(rows) < 0.9, 0, 1)
    p[:40], labels[:40] = [1 - 2e-12, 1e-12, 1e-12], 2
    found = []
    for width in (np.float64, np.float32, np.float16):
        for input in ("probs", "log-probs"):
            with np.errstate(divide="ignore"):
                scores = np.log(p) if input == "log-probs" else p
            dump = source(write_dump(tmp_path / "d.parquet", scores.astype(width), labels), input=input)
            found.append(drrej.calibrate(dump).need_calibration())
    assert len({one.floor for one in found}) == 1
    assert [one.temperature for one in found] == pytest.approx([found[0].temperature] * 6, rel=5e-3)
    after = [one.ece.after for one in found if one.ece is not None]
    assert max(after) < 0.01 + min(one.ece.before for one in found if one.ece is not None)
