"""What all commands share: help, exit codes, pipes, streams, messages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer.core
from conftest import environment, fail, load_json, run_drrej, succeed

import drrej

COMMANDS = [
    *("calibrate", "fit", "threshold", "evaluate", "reject", "run"),
    *("sweep", "weights", "inspect", "schema"),
]


def test_help_lists_the_commands_in_the_order_of_the_pipeline() -> None:
    text = succeed("--help").decode()
    listed = [line.split()[0] for line in text.split("Commands:\n")[1].split("\n\n")[0].splitlines()]
    assert listed == COMMANDS
    assert "\x1b" not in text


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(command: str) -> None:
    text = succeed(command, "-h").decode()
    assert f"{command} [OPTIONS]" in text
    assert ("--logits COL" in text) == (command != "schema")


def test_version() -> None:
    assert succeed("--version").decode() == f"drrej {drrej.__version__}\n"


def test_the_console_script_is_the_same_program() -> None:
    code = "import sys; sys.argv[1:] = ['--version']; from drrej.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"drrej {drrej.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing command"),
        (["frobnicate"], "frobnicate"),
        (["calibrate"], "DUMP"),
        (["calibrate", "x.parquet", "--frobnicate"], "--frobnicate"),
        (["calibrate", "x.parquet", "--jobs", "many"], "--jobs"),
        (["calibrate", "x.parquet"], "x.parquet: no such file or directory"),
        (["calibrate", "x\ny.parquet"], "x y.parquet: no such file or directory"),
        (["evaluate", "x.parquet", "-r", "r.json"], "r.json: cannot be read (No such file or directory)"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_one_line_and_exit_2(arguments: list[str], message: str) -> None:
    assert message in fail(*arguments)


def shell(script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    prelude = f'set -o pipefail; drrej() {{ "{sys.executable}" -m drrej "$@"; }}\n'
    return subprocess.run(
        ["bash", "-c", prelude + script], cwd=cwd, env=environment(), capture_output=True, text=True, timeout=120
    )


def test_the_pipeline_in_a_shell(tmp_path: Path, val: str, test: str, rejector_file: str) -> None:
    done = shell(
        f"""
        drrej calibrate {val} | drrej fit {val} -r - | drrej threshold {val} -r - --coverage 0.8 -o rejector.json &&
        drrej evaluate {test} -r rejector.json --gate 'accuracy >= 0.97' -o report.json &&
        cat {test} | drrej reject - -r rejector.json -o - > mask.parquet
        """,
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "PASS  accuracy >= 0.97" in done.stdout
    assert sorted(os.listdir(tmp_path)) == ["mask.parquet", "rejector.json", "report.json"]
    assert (tmp_path / "rejector.json").read_bytes() == Path(rejector_file).read_bytes()
    assert load_json(tmp_path / "report.json")["rows"] == 2060


def test_a_failed_step_fails_the_steps_after_it(tmp_path: Path, val: str) -> None:
    done = shell(f"drrej calibrate missing.parquet | drrej fit {val} -r - -o out.json", tmp_path)
    assert done.returncode == 2
    assert "missing.parquet: no such file" in done.stderr
    assert "standard input: no rejector: it is empty; the step before it in the pipe failed" in done.stderr
    assert os.listdir(tmp_path) == []


def test_a_broken_pipe_is_silent(tmp_path: Path, val: str, test: str, rejector_file: str) -> None:
    for command in (
        f"calibrate {val}",
        f"evaluate {test} -r {rejector_file}",
        f"reject {test} -r {rejector_file} -o -",
    ):
        done = shell(f"drrej {command} | true; echo ${{PIPESTATUS[0]}}", tmp_path)
        assert (done.stdout, done.stderr) == ("141\n", ""), command


def test_a_full_disk_is_an_error(val: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "drrej", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=60,
        )
        assert done.returncode == 2
        assert done.stderr.startswith(b"drrej: error: standard output: No space left on device")
        assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_leaves_nothing(tmp_path: Path, number: int, code: int) -> None:
    """Reading standard input that never comes, with the output already begun."""
    spool, out = tmp_path / "tmp", tmp_path / "out"
    spool.mkdir()
    out.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "drrej", "calibrate", "-", "-o", str(out / "r.json")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment() | {"TMPDIR": str(spool)},
    )
    while not list(spool.glob("drrej-*")) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (code, b"", b"")
    assert os.listdir(out) == []
    assert os.listdir(spool) == []


def test_standard_input_cannot_be_both() -> None:
    assert "cannot be both" in fail("fit", "-", "-r", "-")


def test_a_traceback_only_when_asked_for(tmp_path: Path) -> None:
    done = run_drrej("calibrate", tmp_path / "x.parquet", env={"DRREJ_DEBUG": "1"})
    assert b"Traceback" in done.stderr
    assert done.returncode != 0


@pytest.mark.parametrize(
    ("jobs", "accepted"), [("1", True), ("02", True), (" 2", True), ("-1", False), ("1.5", False), ("two", False)]
)
def test_numbers_mean_what_typer_says(jobs: str, accepted: bool, val: str) -> None:
    """Plain values skip typer's converters; the others go through them."""
    done = run_drrej("calibrate", val, "--jobs", jobs)
    assert done.returncode == (0 if accepted else 2)
    assert accepted or b"--jobs" in done.stderr


@pytest.mark.skipif(not hasattr(typer.core.TyperOption, "get_runtime_param"), reason="this typer has other converters")
def test_plain_values_do_not_load_pydantic(val: str) -> None:
    code = (
        f"import sys\nfrom drrej.cli.main import execute\nassert execute(['calibrate', {val!r}, '--jobs', '2']) == 0\n"
    )
    code += "assert 'numpy' in sys.modules\nassert 'pydantic' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode == 0, done.stderr
