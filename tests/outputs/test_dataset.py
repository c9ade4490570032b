"""Directories of dumps night after night: runs that go on, updates, bad rows and files, logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import environment, fail, make_model, make_rejector, read_columns, source, succeed, write_dump
from running import drrej as run

import drrej
from drrej.documents.summaries import MaskSummary
from drrej.engines.local import LocalEngine
from drrej.outputs.dataset import LocalDataset

LOGITS, LABELS = make_model(900, 5, seed=3)


@pytest.fixture
def nights(tmp_path: Path) -> Path:
    """Two partitions with a file of the same name each, and a rejector."""
    for number in (1, 2):
        folder = tmp_path / "nights" / f"dt={number}"
        folder.mkdir(parents=True)
        rows = slice(300 * (number - 1), 300 * number)
        write_dump(folder / "part.parquet", LOGITS[rows], LABELS[rows])
    rejector = make_rejector(source(tmp_path / "nights"))
    (tmp_path / "r.json").write_text(rejector.to_json())
    return tmp_path


def add(nights: Path, name: str, rows: slice = slice(600, 900), **changes: Any) -> Path:
    """A file more; `changes` are {row: scores}."""
    logits = LOGITS[rows].copy()
    for row, scores in changes.get("bad", {}).items():
        logits[row] = scores
    path = nights / "nights" / name
    write_dump(path, logits, LABELS[rows])
    return path


def masks(folder: Path) -> dict[str, tuple[int, int]]:
    """The files of a dataset, with what tells whether they were written again."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def reject(nights: Path, *words: object, code: int = 0) -> list[str]:
    outcome = run("reject", "nights", "-r", "r.json", *words, cwd=nights)
    assert outcome.code == code, outcome.err
    return outcome.lines


# Updates

OUT = ("-o", "scored/", "--update")


def test_an_update_takes_a_file_whose_score_column_was_renamed(nights: Path) -> None:
    reject(nights, "-o", "scored/")
    before = masks(nights / "scored")
    (nights / "nights" / "dt=3").mkdir()
    new = add(nights, "dt=3/part.parquet")
    whole = pq.read_table(new)
    pq.write_table(whole.rename_columns([{"logits": "scores"}.get(name, name) for name in whole.column_names]), new)
    assert run("reject", "nights", "-r", "r.json", "-o", "scored/", "--update", cwd=nights).code == 2
    update = ("reject", "nights/dt=3/part.parquet", "-r", "r.json", "-o", "scored/", "--update", "--logits", "scores")
    assert run(*update, cwd=nights).code == 0
    after = masks(nights / "scored")
    assert list(after) == ["dt=1/part.parquet", "dt=2/part.parquet", "dt=3/part.parquet"]
    assert {name: after[name] for name in before} == before
    assert run(*update, cwd=nights).lines[-1].startswith("drrej: 1 file (1 of them already there)")
    other = nights / "other.json"
    other.write_text(make_rejector(source(nights / "nights" / "dt=1"), ("coverage", 0.5)).to_json())
    refused = run(*(word.replace("r.json", "other.json") for word in update), cwd=nights)
    assert refused.code == 2
    assert "was made with another rejector" in refused.err


def _renamed(path: Path, name: str) -> None:
    table = pq.read_table(path)
    pq.write_table(table.rename_columns([{"logits": name}.get(own, own) for own in table.column_names]), path)


def test_an_update_of_a_folder_keeps_masks_of_files_with_the_earlier_column(nights: Path) -> None:
    reject(nights, "-o", "scored/")
    before = masks(nights / "scored")
    (nights / "nights" / "dt=3").mkdir()
    _renamed(add(nights, "dt=3/part.parquet"), "scores")
    new = (*OUT, "--logits", "scores")
    assert "3 files (2 of them already there): 900 rows" in reject(nights, *new)[-1]
    after = masks(nights / "scored")
    assert {name: after[name] for name in before} == before
    assert list(after) == [*before, "dt=3/part.parquet"]
    for words in (OUT, new):  # by either name
        assert "3 files (3 of them already there): 900 rows" in reject(nights, *words)[-1]
        assert masks(nights / "scored") == after
    other = (*new, "--on-bad-row", "reject")  # masks of other options would have to be made again
    assert "dt=1/part.parquet: there is no column 'scores'" in reject(nights, *other, code=2)[-1]
    alone = ("reject", "nights/dt=3/part.parquet", "-r", "r.json", *OUT)  # nothing says that the options are the same
    assert "there is no column 'logits'" in fail(*alone, cwd=nights)
    add(nights, "dt=1/part.parquet", slice(0, 200))  # it changed, so that it has no mask
    assert "dt=1/part.parquet: there is no column 'scores'" in reject(nights, *new, code=2)[-1]
    _renamed(nights / "nights" / "dt=1" / "part.parquet", "scores")
    assert "3 files (2 of them already there): 800 rows" in reject(nights, *new)[-1]


def test_an_update_makes_the_mask_of_a_file_that_has_the_other_column_too(nights: Path) -> None:
    part = nights / "nights" / "dt=1" / "part.parquet"
    table = pq.read_table(part)
    pq.write_table(table.append_column("turned", pa.array(LOGITS[:300, ::-1].tolist())), part)
    reject(nights, "-o", "scored/", "--keep", "label")
    before = pq.read_table(nights / "scored")["prediction"].to_pylist()[:300]
    update = ("reject", part, "-r", "r.json", *OUT, "--keep", "label", "--logits", "turned")
    assert "(1 of them already there)" not in run(*update, cwd=nights).err
    assert pq.read_table(nights / "scored")["prediction"].to_pylist()[:300] != before


def test_a_file_without_rows_is_said(nights: Path) -> None:
    write_dump(nights / "nights" / "dt=2" / "empty.parquet", LOGITS[:0], LABELS[:0])
    lines = reject(nights, "-o", "scored/")
    assert "drrej: warning: nights/dt=2/empty.parquet: zero rows, so its mask is empty" in lines
    assert pq.read_table(nights / "scored" / "dt=2" / "empty.parquet").num_rows == 0


def test_an_update_scores_what_is_new_or_changed_and_leaves_the_rest(nights: Path) -> None:
    reject(nights, "-o", "scored/")
    before = masks(nights / "scored")
    assert list(before) == ["dt=1/part.parquet", "dt=2/part.parquet"]
    assert reject(nights, "-o", "scored/", "--update")[-1].startswith("drrej: 2 files (2 of them already there)")
    assert masks(nights / "scored") == before
    add(nights, "dt=2/more.parquet")
    add(nights, "dt=1/part.parquet", slice(0, 200))
    reject(nights, "-o", "scored/", "--update")
    after = masks(nights / "scored")
    assert list(after) == ["dt=1/part.parquet", "dt=2/more.parquet", "dt=2/part.parquet"]
    assert after["dt=2/part.parquet"] == before["dt=2/part.parquet"]
    assert after["dt=1/part.parquet"] != before["dt=1/part.parquet"]
    reject(nights, "-o", "whole/")
    for name in after:
        assert (nights / "scored" / name).read_bytes() == (nights / "whole" / name).read_bytes()
    assert sorted(os.listdir(nights)) == [
        ".scored.drrej-masks.json", ".whole.drrej-masks.json", "nights", "r.json", "scored", "whole",
    ]  # fmt: skip


def test_an_update_with_the_files_of_one_night_leaves_the_masks_of_others(nights: Path) -> None:
    reject(nights, "-o", "scored/")
    add(nights, "dt=2/more.parquet")
    succeed("reject", "nights/dt=2/more.parquet", "-r", "r.json", "-o", "scored/", "--update", cwd=nights)
    assert list(masks(nights / "scored")) == ["dt=1/part.parquet", "dt=2/more.parquet", "dt=2/part.parquet"]
    assert "3 of them already there" in reject(nights, "-o", "scored/", "--update")[-1]


def test_a_mask_that_was_touched_is_made_again(nights: Path) -> None:
    reject(nights, "-o", "scored/")
    mask = nights / "scored" / "dt=1" / "part.parquet"
    whole = mask.read_bytes()
    mask.write_bytes(whole[:-1] + b"?")
    assert "(1 of them already there)" in reject(nights, "-o", "scored/", "--update")[-1]
    assert mask.read_bytes() == whole


def test_another_rejector_means_all_masks_again_or_none(nights: Path) -> None:
    reject(nights, "-o", "scored/")
    rejector = drrej.Rejector.from_json((nights / "r.json").read_text())
    other = make_rejector(source(nights / "nights"), ("coverage", 0.5))
    assert other.need_threshold().cutoff != rejector.need_threshold().cutoff
    (nights / "r.json").write_text(other.to_json())
    message = fail("reject", "nights/dt=2/part.parquet", "-r", "r.json", "-o", "scored/", "--update", cwd=nights)
    assert message.startswith("scored: dt=1/part.parquet was made with another rejector, other options or another")
    assert "already" not in reject(nights, "-o", "scored/", "--update")[-1]


def test_rows_that_would_be_there_twice(nights: Path) -> None:
    write_dump(nights / "a.parquet", LOGITS, LABELS)
    (nights / "a").mkdir()
    (nights / "b").mkdir()
    for name in "ab":
        write_dump(nights / name / "x.parquet", LOGITS[:100] * (1 + (name == "b")), LABELS[:100])
    succeed("reject", "a", "-r", "r.json", "-o", "scored/", cwd=nights)
    message = fail("reject", "a", "b", "-r", "r.json", "-o", "scored/", "--update", cwd=nights)
    assert message.startswith("scored: x.parquet was made of the same file as a/x.parquet would be")
    assert list(masks(nights / "scored")) == ["x.parquet"]


def test_what_cannot_be_updated(nights: Path) -> None:
    reject(nights, "-o", "scored/")
    (nights / ".scored.drrej-masks.json").unlink()
    assert "nothing says of what its masks were made" in reject(nights, "-o", "scored/", "--update", code=2)[-1]
    assert "use --force to replace it, or --update to add" in reject(nights, "-o", "scored/", code=2)[-1]
    assert "give one of them" in reject(nights, "-o", "scored/", "--update", "--force", code=2)[-1]
    assert "write -o m.parquet/" in reject(nights, "-o", "m.parquet", "--update", code=2)[-1]
    reject(nights, "-o", "scored/", "--force")
    assert "2 of them already there" in reject(nights, "-o", "scored/", "--update")[-1]


# Interrupted runs


class Stops(drrej.engines.Progress):
    """Ctrl-C when a file is finished."""

    def finished(self, file: Any) -> None:  # noqa: ARG002
        raise KeyboardInterrupt


def test_threads_go_on_where_they_were_interrupted(nights: Path) -> None:
    rejector = drrej.Rejector.from_json((nights / "r.json").read_text())
    dump = drrej.Source(nights / "nights", engine=LocalEngine(2, Stops()))
    with pytest.raises(KeyboardInterrupt), LocalDataset(f"{nights}/scored") as output:
        drrej.reject(dump, rejector, output)
    assert not (nights / "scored").exists()
    with LocalDataset(f"{nights}/scored") as output:
        counts = drrej.reject(source(nights / "nights"), rejector, output)
        output.commit()
    assert (counts.reused, counts.rows) == (1, 600)
    with LocalDataset(f"{nights}/whole") as output:
        assert drrej.reject(source(nights / "nights"), rejector, output).rejected == counts.rejected
        output.commit()
    for name in masks(nights / "whole"):
        assert (nights / "scored" / name).read_bytes() == (nights / "whole" / name).read_bytes()


def test_an_error_after_an_interruption_leaves_nothing(nights: Path) -> None:
    rejector = drrej.Rejector.from_json((nights / "r.json").read_text())
    before = sorted(os.listdir(nights))
    dump = drrej.Source(nights / "nights", engine=LocalEngine(2, Stops()))
    with pytest.raises(KeyboardInterrupt), LocalDataset(f"{nights}/scored") as output:
        drrej.reject(dump, rejector, output)
    assert sorted(os.listdir(nights)) == [".scored.drrej-masks.json", ".scored.drrej-parts", *before]
    add(nights, "dt=2/bad.parquet", bad={3: np.nan})
    reject(nights, "-o", "scored/", code=2)
    assert sorted(os.listdir(nights)) == before


def test_a_mask_of_another_rejector_is_not_taken_for_this_ones(nights: Path) -> None:
    """Killed twice: the manifest of the first run beside a mask of the second, of the same size."""
    first = drrej.Rejector.from_json((nights / "r.json").read_text())
    second = make_rejector(source(nights / "nights"), ("coverage", 0.5))

    def interrupted(rejector: drrej.Rejector) -> None:
        dump = drrej.Source(nights / "nights", engine=LocalEngine(1, Stops()))
        with pytest.raises(KeyboardInterrupt), LocalDataset(f"{nights}/scored") as output:
            drrej.reject(dump, rejector, output)

    interrupted(first)
    manifest = nights / ".scored.drrej-masks.json"
    kept = manifest.read_text()
    interrupted(second)
    manifest.write_text(kept)
    with LocalDataset(f"{nights}/scored") as output:
        assert drrej.reject(source(nights / "nights"), first, output).reused == 0


def test_two_runs_at_one_directory(nights: Path) -> None:
    """One of them loses with a clear message, and what is there is whole."""
    line = [sys.executable, "-m", "drrej", "reject", "nights", "-r", "r.json", "-o", "scored/", "--update", "-q"]
    runs = [subprocess.Popen(line, cwd=nights, env=environment(), stderr=subprocess.PIPE) for _ in range(3)]
    ends = [(process.communicate()[1].decode(), process.returncode) for process in runs]
    assert 0 in [code for _, code in ends]
    for message, code in ends:
        assert code == 0 or (code, "another run is writing it; wait for it" in message) == (2, True), message
    assert list(masks(nights / "scored")) == ["dt=1/part.parquet", "dt=2/part.parquet"]
    with LocalDataset(f"{nights}/scored", update=True):
        assert "another run is writing it" in reject(nights, "-o", "scored/", "--update", code=2)[-1]


# Places


def test_partitions_keep_their_paths(nights: Path) -> None:
    for words, folder in (
        (["nights/dt=*/*.parquet"], "glob"),
        (["nights/dt=1/part.parquet", "nights/dt=2/part.parquet"], "files"),
        (["nights/dt=1", "nights/dt=2"], "folders"),
    ):
        succeed("reject", *words, "-r", "r.json", "-o", f"{folder}/", cwd=nights)
        assert list(masks(nights / folder)) == ["dt=1/part.parquet", "dt=2/part.parquet"]
    assert read_columns(nights / "glob" / "dt=2" / "part.parquet")["id"].size == 300


@pytest.mark.parametrize("output", ["nights/out/", "nights/dt=1/out.parquet", "nights/../nights/y/"])
def test_an_output_inside_its_input(nights: Path, output: str) -> None:
    assert "it lies in the input nights, and the next run would read it" in reject(nights, "-o", output, code=2)[-1]
    uri = f"file://{nights / 'nights'}"
    assert "it lies in the input" in fail("reject", uri, "-r", "r.json", "-o", output, cwd=nights)


def test_an_output_that_a_pattern_of_its_input_names(nights: Path) -> None:
    pattern = "nights/*/*.parquet"
    message = fail("reject", pattern, "-r", "r.json", "-o", "nights/dt=1/out.parquet", cwd=nights)
    assert "the pattern nights/*/*.parquet matches it" in message
    succeed("reject", pattern, "-r", "r.json", "-o", "nights/dt=1/out.pq", cwd=nights)
    reject(nights, "-o", "nights/_scored/")  # what begins so is not read


def test_a_name_that_may_be_a_directory(nights: Path) -> None:
    (said,) = reject(nights, "-o", "scored", code=2)
    assert said.startswith("drrej: error: scored: the ending of the name says the format; use one of .parquet, ")
    assert said.endswith(", or a name that ends in / for a directory")
    reject(nights, "-o", "scored/")


# Bad rows and files


@pytest.fixture
def broken(nights: Path) -> Path:
    """Also a file with two bad rows of 50, and one that is cut off."""
    add(nights, "dt=2/bad.parquet", slice(600, 650), bad={3: np.nan, 7: np.inf})
    whole = (nights / "nights" / "dt=1" / "part.parquet").read_bytes()
    (nights / "nights" / "dt=2" / "cut.parquet").write_bytes(whole[:-20])
    return nights


SKIP = ("--on-bad-row", "skip", "--on-bad-file", "skip")


def test_messages_name_the_options(broken: Path) -> None:
    message = reject(broken, "-o", "scored/", code=2)[-1]
    assert "cut.parquet: not a readable parquet file" in message
    assert message.endswith("(or leave such files out with --on-bad-file skip)")
    message = reject(broken, "-o", "scored/", "--on-bad-file", "skip", code=2)[-1]
    assert "bad.parquet: column 'logits': 1 row has NaN" in message
    assert message.endswith("(or leave such rows out with --on-bad-row skip)")


def test_what_is_left_out_is_told(broken: Path) -> None:
    lines = reject(broken, "-o", "scored/", *SKIP, "--summary", "done.json")
    told = [line for line in lines if "warning" in line]
    assert [("NaN" in line, "+inf" in line, "cut.parquet" in line) for line in told[:3]] == [
        (True, False, False), (False, True, False), (False, False, True),
    ]  # fmt: skip
    assert lines[-1].startswith("drrej: 3 files: 648 rows, ")
    assert ", 2 bad, 1 bad file left out, " in lines[-1]
    mask = read_columns(broken / "scored" / "dt=2" / "bad.parquet")
    assert mask["id"].tolist() == [row for row in range(50) if row not in (3, 7)]
    done = MaskSummary.from_json((broken / "done.json").read_text())
    assert (done.files, done.rows, done.bad_rows, done.left_out.rows) == (3, 648, 2, 2)
    assert [(bad.reason, bad.first_row) for bad in done.left_out.reasons] == [
        ("NaN among the scores", 3), ("+inf among the scores", 7),
    ]  # fmt: skip
    assert [bad.file for bad in done.left_out.files] == ["nights/dt=2/cut.parquet"]
    assert done.rejected == sum(int(read_columns(p)["rejected"].sum()) for p in (broken / "scored").rglob("*.parquet"))


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--max-bad", "0.25", *SKIP], 0),
        (["--max-bad", "0.2", *SKIP], 2),  # 1 of 4 files
        (["--max-bad", "0.25", "--on-bad-file", "skip"], 2),
        (["--max-bad", "0.25"], 2),
        (["--max-bad", "1.5", *SKIP], 2),
    ],
)
def test_a_share_of_bad_files(broken: Path, words: list[str], code: int) -> None:
    reject(broken, "-o", "scored/", *words, code=code)
    assert (broken / "scored").exists() == (code == 0)


@pytest.mark.parametrize(("most", "code"), [("0.04", 0), ("0.0399", 2)])
@pytest.mark.parametrize("policy", ["skip", "reject"])
def test_a_share_of_bad_rows(broken: Path, policy: str, most: str, code: int) -> None:
    words = ["nights/dt=2/bad.parquet", "-r", "r.json", "-o", "m.parquet", "--on-bad-row", policy, "--max-bad", most]
    outcome = run("reject", *words, cwd=broken)
    assert outcome.code == code
    if code:
        assert outcome.lines[-1].endswith("(2 of 50 rows are bad, more than --max-bad 0.0399 allows)")


def test_every_command_leaves_out_the_same_rows(broken: Path) -> None:
    """As if they were not there: the documents are those of the good rows alone."""
    good = broken / "good"
    (good / "dt=2").mkdir(parents=True)
    rows = [row for row in range(50) if row not in (3, 7)]
    write_dump(good / "dt=2" / "bad.parquet", LOGITS[600:650][rows], LABELS[600:650][rows])
    for name in ("dt=1/part.parquet", "dt=2/part.parquet"):
        (good / name).parent.mkdir(exist_ok=True)
        os.link(broken / "nights" / name, good / name)

    def made(folder: str, *skip: str) -> list[Any]:
        documents = []
        for words in (
            ["calibrate", folder, "-o", "c.json"],
            ["fit", folder, "-r", "c.json", "-o", "f.json"],
            ["threshold", folder, "-r", "f.json", "--risk", "0.2", "-o", "t.json"],
        ):
            assert run(*words, "-f", *skip, cwd=broken).code == 0
            documents.append(json.loads((broken / words[-1]).read_text()))
        for words in (["evaluate", folder, "-r", "t.json"], ["evaluate", folder, "-r", "t.json", "--no-labels"]):
            report = json.loads(run(*words, "--format", "json", *skip, cwd=broken).out)
            assert ("left_out" in report) == bool(skip)
            documents.append({key: report[key] for key in report if key not in ("left_out", "digest")})
        run("monitor", "state.json", folder, "-r", "t.json", "--batch", "one", *skip, cwd=broken)
        documents.append(json.loads((broken / "state.json").read_text()))
        (broken / "state.json").unlink()
        return documents

    assert made("nights", *SKIP) == made("good")


def test_labels_are_never_left_out_as_bad_rows(nights: Path) -> None:
    """Labels that start at 1 would lose a class and keep the others, all wrong."""
    write_dump(nights / "one.parquet", LOGITS, LABELS + 1)
    assert "do yours start at 1?" in fail("calibrate", "one.parquet", *SKIP, cwd=nights)


def test_null_labels_are_left_out_like_missing_ones(nights: Path) -> None:
    path = write_dump(nights / "late.parquet", LOGITS, LABELS)
    table = pq.ParquetFile(path).read()
    known = [None if row % 10 == 0 else int(label) for row, label in enumerate(LABELS)]
    pq.write_table(table.set_column(table.schema.get_field_index("label"), "label", pa.array(known)), path)
    assert fail("calibrate", path, cwd=nights).endswith("or leave them out with --on-missing-label skip")
    outcome = run("calibrate", path, "--on-missing-label", "skip", cwd=nights)
    assert outcome.lines == ["drrej: note: 90 rows without a label were left out"]
    rows = [row for row in range(900) if row % 10]
    write_dump(nights / "known.parquet", LOGITS[rows], LABELS[rows])
    assert json.loads(outcome.out) == json.loads(succeed("calibrate", "known.parquet", cwd=nights))
    keys = pa.table({"id": list(range(900)), "label": pa.array(known)})
    pq.write_table(keys, nights / "labels.parquet")
    joined = ("--labels-from", "labels.parquet", "--join-on", "id", "--on-missing-label", "skip")
    assert json.loads(run("calibrate", path, *joined, cwd=nights).out) == json.loads(outcome.out)


def test_a_file_that_is_damaged_inside_is_left_out(nights: Path) -> None:
    """It is noticed while it is read: the step starts again without it, and finished masks are kept."""
    path = add(nights, "dt=2/inner.parquet")
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)  # the footer is whole
    path.write_bytes(content)
    lines = reject(nights, "-o", "scored/", "--on-bad-file", "skip")
    assert sum(": 300 rows" in line for line in lines) == 2, lines
    assert any("inner.parquet: " in line and line.endswith("; the file is left out") for line in lines)
    assert list(masks(nights / "scored")) == ["dt=1/part.parquet", "dt=2/part.parquet"]
    report = json.loads(
        run("evaluate", "nights", "-r", "r.json", "--on-bad-file", "skip", "--format", "json", cwd=nights).out
    )
    assert (report["rows"], report["left_out"]["files"][0]["file"]) == (600, "nights/dt=2/inner.parquet")


def test_a_file_of_another_model_does_not_push_out_the_others(nights: Path) -> None:
    logits, labels = make_model(50, 7, seed=1)
    write_dump(nights / "nights" / "dt=1" / "a.parquet", logits, labels)
    lines = reject(nights, "-o", "scored/", "--on-bad-file", "skip")
    assert "a.parquet: column 'logits' has 7 scores per row but the rejector was made for 5 classes" in " ".join(lines)
    assert lines[-1].startswith("drrej: 2 files: 600 rows")


def test_all_bad_is_an_error(nights: Path) -> None:
    for path in (nights / "nights").rglob("*.parquet"):
        path.write_bytes(b"PAR1")
    assert "(all 2 files are bad)" in reject(nights, "-o", "scored/", *SKIP, code=2)[-1]
    write_dump(nights / "nan.parquet", np.full((5, 5), np.nan), LABELS[:5])
    for words in (["calibrate", "nan.parquet"], ["evaluate", "nan.parquet", "-r", "r.json", "--no-labels"]):
        assert "(5 of 5 rows are bad, all of them)" in fail(*words, *SKIP, cwd=nights)


# Logs


def test_a_line_for_each_file_and_one_at_the_end(nights: Path) -> None:
    lines = reject(nights, "-o", "scored/")
    assert [line.rpartition(", ")[0] for line in lines[:2]] == [
        f"drrej: nights/dt={number}/part.parquet: 300 rows, {count} rejected, coverage {1 - count / 300:.4f}"
        for number, count in enumerate(rejected(nights), 1)
    ]
    assert reject(nights, "-o", "quiet/", "-q") == []
    assert [line.startswith("drrej: 2 files: 600 rows") for line in reject(nights, "-o", "one.parquet")] == [True]
    assert len(reject(nights, "-o", "two.parquet", "--log", "text")) == 3
    assert "--log cannot be combined with -q" in reject(nights, "-o", "x/", "-q", "--log", "json", code=2)[-1]


def rejected(nights: Path) -> list[int]:
    paths = sorted((nights / "scored").rglob("*.parquet"))
    return [int(read_columns(path)["rejected"].sum()) for path in paths]


@pytest.mark.parametrize("output", ["scored/", "one.parquet"])
def test_json_lines(broken: Path, output: str) -> None:
    reject(broken, "-o", "scored/", *SKIP, "-q")
    counts = rejected(broken)
    lines = [json.loads(line) for line in reject(broken, "-o", output, *SKIP, "--log", "json", "--force")]
    assert [line["event"] for line in lines] == ["file"] * 3 + ["summary"]
    assert [(line["rows"], line["rejected"], line["bad_rows"]) for line in lines[:3]] == [
        (300, counts[0], 0), (48, counts[1], 2), (300, counts[2], 0),
    ]  # fmt: skip
    total = lines[-1]
    assert (total["rows"], total["rejected"], total["bad_rows"]) == (648, sum(counts), 2)
    assert total["coverage"] == 1 - sum(counts) / 648
    assert len(total["left_out"]["files"]) == 1


# Without labels, by group


def test_groups_without_labels(nights: Path) -> None:
    """Each group as a dump of its own has the same figures; p-values are times the number of groups."""
    write_dump(nights / "nights" / "dt=2" / "part.parquet", LOGITS[300:600] * 0.5, LABELS[300:600])
    words = ["-r", "r.json", "--no-labels", "--format", "json"]
    for by, names in (("file", ["nights/dt=2/part.parquet", "nights/dt=1/part.parquet"]), ("dt", ["2", "1"])):
        report = json.loads(succeed("evaluate", "nights", *words, "--report-by", by, cwd=nights))
        assert [look["group"] for look in report["looks"]] == names
        for look, folder in zip(report["looks"], ("dt=2", "dt=1"), strict=True):
            alone = json.loads(succeed("evaluate", f"nights/{folder}", *words, cwd=nights))
            assert look["coverage"].items() <= alone["coverage"].items()
            assert look["expected_accuracy"] == alone["expected_accuracy"]["value"]
            assert look["drift"]["distance"] == alone["drift"]["distance"]
            assert look["drift"]["p_value"] == min(1.0, 2 * alone["drift"]["p_value"])
    shown = succeed(
        "evaluate", "nights", "-r", "r.json", "--no-labels", "--report-by", "dt", "--verbose", cwd=nights
    ).decode()
    assert "p-values are Bonferroni-corrected for 2 groups" in shown
    assert drrej.Report.from_json(json.dumps(report)) == report


def test_a_column_called_file_is_meant_before_the_file(nights: Path) -> None:
    table = pq.ParquetFile(nights / "nights" / "dt=1" / "part.parquet").read()
    named = table.append_column("file", pa.array(["x", "y"] * 150))
    pq.write_table(named, nights / "named.parquet")
    report = json.loads(
        succeed(
            "evaluate",
            "named.parquet",
            "-r",
            "r.json",
            "--no-labels",
            "--report-by",
            "file",
            "--format",
            "json",
            cwd=nights,
        )
    )
    assert sorted(look["group"] for look in report["looks"]) == ["x", "y"]


# Many small files


def test_the_cost_of_a_small_file(nights: Path) -> None:
    """A few milliseconds of processor time each; measured over 200 files, with room for a slow machine."""
    many = nights / "many"
    many.mkdir()
    write_dump(many / "0.parquet", LOGITS[:20], LABELS[:20])
    for number in range(1, 200):
        (many / f"{number}.parquet").write_bytes((many / "0.parquet").read_bytes())
    started = time.process_time()
    succeed("reject", "many", "-r", "r.json", "-o", "scored/", cwd=nights)
    assert time.process_time() - started < 200 * 0.03
    assert len(masks(nights / "scored")) == 200


# With what else a mask may be made of and for


def test_review_does_not_go_with_update(nights: Path) -> None:
    reject(nights, "-o", "scored/")
    message = fail(
        "reject", "nights", "-r", "r.json", "-o", "scored/", "--update", "--review", "tasks.json", cwd=nights
    )
    assert message == "--review cannot be combined with --update: it would lack the rows of masks that are kept"
    assert not (nights / "tasks.json").exists()


def write_lines(path: Path, rows: slice, *more: str) -> None:
    path.parent.mkdir(exist_ok=True)
    lines = [
        json.dumps({"logits": row.tolist(), "label": int(y)}) for row, y in zip(LOGITS[rows], LABELS[rows], strict=True)
    ]
    path.write_text("\n".join([*lines, *more]) + "\n")


def test_files_of_other_formats_are_updated_and_left_out_too(nights: Path) -> None:
    write_lines(nights / "lines/a.jsonl", slice(0, 200))
    write_lines(nights / "lines/c.jsonl", slice(200, 300), '{"logits": [1, 2')
    words = ("reject", "lines", "-r", "r.json", "-o", "scored/", "--update", "--on-bad-file", "skip")
    outcome = run(*words, cwd=nights)
    assert outcome.code == 0, outcome.err
    assert "c.jsonl" in outcome.err
    before = masks(nights / "scored")
    assert list(before) == ["a.parquet"]
    write_lines(nights / "lines/b.jsonl", slice(0, 100))
    assert run(*words, cwd=nights).code == 0
    after = masks(nights / "scored")
    assert list(after) == ["a.parquet", "b.parquet"]
    assert after["a.parquet"] == before["a.parquet"]
    assert len(read_columns(nights / "scored/b.parquet")["rejected"]) == 100


@pytest.mark.parametrize("output", ["scored/", "scored.csv"])
def test_a_review_has_no_row_of_a_file_that_was_left_out(nights: Path, output: str) -> None:
    path = add(nights, "dt=2/zz.parquet")
    content = bytearray(path.read_bytes())
    content[100:2000] = bytes(1900)  # found out when its rows are read, after those of the others
    path.write_bytes(content)
    lines = reject(nights, "-o", output, "--on-bad-file", "skip", "--review", "tasks.jsonl", "--log", "json")
    done = json.loads(lines[-1])
    assert len(done["left_out"]["files"]) == 1
    assert len((nights / "tasks.jsonl").read_text().splitlines()) == done["rejected"] > 0


def test_a_dump_that_is_divided(nights: Path) -> None:
    message = fail("run", "nights", "--coverage", "0.8", "-o", "out", "--on-bad-row", "skip", cwd=nights)
    assert message == "--on-bad-row skip requires --test: rows without usable scores cannot be divided"
    (nights / "nights/dt=2/bad.parquet").write_bytes(b"PAR1")
    outcome = run("run", "nights", "--coverage", "0.8", "-o", "out", "--on-bad-file", "skip", "-q", cwd=nights)
    assert outcome.code == 0, outcome.err
    report = json.loads((nights / "out/report.json").read_text())
    assert len(read_columns(nights / "out/mask.parquet")["rejected"]) == report["rows"] == 180
    assert len(report["left_out"]["files"]) == 1
