"""What reaches a terminal or a log: names cannot act there, secrets are masked, and a broken stderr changes nothing."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import environment, logit_columns, make_model, succeed, thorough
from running import drrej

from drrej.data.problems import redacted
from drrej.errors import printable

NAMES = ["a\n::error::owned", "b\x1b[31mred", "c\u202edesrever"]
COLUMN = "gr\n::error::owned\x1b[2J"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A dump and a rejector whose names hold line breaks, escape sequences and marks of direction."""
    logits, labels = make_model(300, 3, 1)
    groups = [NAMES[number % 2] for number in range(300)]
    columns = {**logit_columns(logits, "fixed"), "label": labels, COLUMN: groups}
    pq.write_table(pa.table(columns), tmp_path / "d\x1b[31m.parquet")
    names = np.array(NAMES)[labels]
    pq.write_table(pa.table({**columns, "label": names}), tmp_path / "named.parquet")
    succeed("calibrate", "d\x1b[31m.parquet", "-o", "c.json", cwd=tmp_path)
    succeed("fit", "d\x1b[31m.parquet", "-r", "c.json", "-o", "f.json", cwd=tmp_path)
    succeed("threshold", "d\x1b[31m.parquet", "-r", "f.json", "--coverage", "0.8", "-o", "r.json", cwd=tmp_path)
    return tmp_path


def assert_harmless(text: str) -> None:
    assert not [character for character in text if not character.isprintable() and character != "\n"]
    assert not [line for line in text.splitlines() if line.startswith("::error::")]


def test_printable_escapes_what_acts_on_a_terminal_and_nothing_else() -> None:
    assert printable("a\nb\x1b[31m\x9b\u2028\u202e") == r"a\nb\x1b[31m\x9b\u2028\u202e"
    assert printable("straße 東京 \\n é") == "straße 東京 \\n é"


@pytest.mark.parametrize("format", ["text", "markdown", "github", "junit"])
def test_names_of_groups_do_not_act_in_reports(hostile: Path, format: str) -> None:
    words = ["evaluate", "d\x1b[31m.parquet", "-r", "r.json", "--report-by", COLUMN, "--format", format]
    outcome = drrej(*words, cwd=hostile)
    assert outcome.code == 0
    assert_harmless(outcome.out.decode())
    assert_harmless(outcome.err)
    ending = {"text": "txt", "markdown": "md", "github": "txt", "junit": "xml"}[format]
    drrej(*words[:-2], "-o", f"report.{ending}", cwd=hostile)
    assert_harmless((hostile / f"report.{ending}").read_text())


def test_names_of_files_columns_and_labels_do_not_act_in_inspect(hostile: Path) -> None:
    for name in ("d\x1b[31m.parquet", "named.parquet"):
        outcome = drrej("inspect", name, cwd=hostile)
        assert outcome.code == 0
        assert_harmless(outcome.out.decode())


def test_names_do_not_act_in_messages(hostile: Path) -> None:
    for words in (["inspect", "no\x1b[31m\n::error::x.parquet"], ["calibrate", "named.parquet", "--label", COLUMN]):
        outcome = drrej(*words, cwd=hostile)
        assert outcome.code == 2
        assert_harmless(outcome.err)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://key:secret@bucket/x", "s3://bucket/x"),
        ("gs://SECRET@bucket/x", "gs://bucket/x"),
        ("s3://b/x?secret_key=abc&region=eu", "s3://b/x?secret_key=***&region=eu"),
        ("s3://b/x?region=eu&session_token=abc: no such file", "s3://b/x?region=eu&session_token=***: no such file"),
        ("abfs://c@account.dfs.core.windows.net/x?sig=abc", "abfs://account.dfs.core.windows.net/x?sig=***"),
        ("https://h/x?X-Amz-Signature=abc", "https://h/x?X-Amz-Signature=***"),
        ("s3://b/a@2x/y.parquet?endpoint_override=h:9", "s3://b/a@2x/y.parquet?endpoint_override=h:9"),
        ("mail me@home", "mail me@home"),
    ],
)
def test_secrets_of_uris_are_masked(text: str, shown: str) -> None:
    assert redacted(text) == shown


def with_stderr(words: list[str], cwd: Path, stderr: str) -> subprocess.CompletedProcess[bytes]:
    line = shlex.join([sys.executable, "-m", "drrej", *words])
    return subprocess.run(
        ["bash", "-c", f"{line} {stderr}"], cwd=cwd, env=environment(), capture_output=True, timeout=120
    )


@pytest.mark.parametrize("stderr", ["2>/dev/full", thorough("2>&-")])
def test_warnings_and_logs_that_cannot_be_written_change_no_exit_code(hostile: Path, stderr: str) -> None:
    dump = "d\x1b[31m.parquet"
    done = with_stderr(["evaluate", dump, "-r", "r.json", "--gate", "coverage >= 0.5"], hostile, stderr)
    assert (done.returncode, b"PASS" in done.stdout) == (0, True)  # with a warning: the rows were used
    (hostile / "in").mkdir()
    (hostile / dump).rename(hostile / "in" / "d.parquet")
    assert with_stderr(["reject", "in", "-r", "r.json", "-o", "out/"], hostile, stderr).returncode == 0
    assert pq.read_metadata(hostile / "out" / "d.parquet").num_rows == 300


@pytest.mark.parametrize("stderr", [thorough("2>/dev/full"), "2>&-"])
def test_errors_that_cannot_be_written_keep_their_exit_code(hostile: Path, stderr: str) -> None:
    assert with_stderr(["calibrate", "missing.parquet"], hostile, stderr).returncode == 2
    gate = ["--gate", "coverage >= 0.99"]
    assert with_stderr(["evaluate", "d\x1b[31m.parquet", "-r", "r.json", *gate], hostile, stderr).returncode == 1


def test_a_closed_standard_output_is_one_line_and_exit_2(hostile: Path) -> None:
    for words in (
        ["--version"],
        ["evaluate", "named.parquet", "-r", "r.json", "--no-labels", "-q"],
        ["calibrate", "d\x1b[31m.parquet"],
    ):
        done = with_stderr(words, hostile, ">&-")
        assert done.returncode == 2
        assert done.stderr.startswith(b"drrej: error: ")
        assert done.stderr.count(b"\n") == 1
        assert b"unexpected" not in done.stderr


@pytest.mark.parametrize("format", ["text", "markdown"])
def test_line_breaks_that_are_meant_stay(format: str) -> None:
    shown = succeed("plan", "--accuracy", "0.98", "--coverage", "0.8", "--format", format).decode()
    assert "with a chance of" in shown
    assert r"\n" not in shown


def test_names_of_batches_do_not_act(hostile: Path) -> None:
    words = ["monitor", "s.json", "d\x1b[31m.parquet", "-r", "r.json", "--max-risk", "0.9", "--batch", NAMES[0]]
    for format in ("text", "markdown", "github"):
        (hostile / "s.json").unlink(missing_ok=True)
        outcome = drrej(*words, "--format", format, cwd=hostile)
        assert_harmless(outcome.out.decode() + outcome.err)
