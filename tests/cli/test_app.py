"""What all commands share: exit codes, pipes, streams, messages, reading the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
import running
import typer
from conftest import environment, fail, load_json, run_drrej, succeed, thorough

import drrej
from drrej.cli.app import COMMANDS, command


def test_version() -> None:
    assert succeed("--version").decode() == f"drrej {drrej.__version__}\n"


def test_the_console_script_is_the_same_program() -> None:
    code = "import sys; sys.argv[1:] = ['--version']; from drrej.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"drrej {drrej.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "No such command 'frobnicate'. (see 'drrej --help')"),
        (["calibrat"], "No such command 'calibrat'. Did you mean 'calibrate'? (see 'drrej --help')"),
        (["sweep", "val.parquet"], "'drrej sweep' was removed: "),
        (["weights"], "'drrej weights' was removed: "),
        (["ensemble"], "'drrej ensemble' was removed: "),
        (["help", "fit"], "'drrej help' was removed: use 'drrej --help' or 'drrej COMMAND --help'"),
        (["threshold", "x.parquet", "--by", "region"], "--by: it is now --cutoff-by (a cutoff for each group: "),
        (
            ["fit", "x.parquet", "--effective-sample", "0.5"],
            "--effective-sample: it was removed: lambda does",
        ),
        (
            ["run", "x.parquet", "--method", "sgr"],
            "--method: it was removed: there is one method for each kind of target",
        ),
        (["calibrate"], "Missing argument 'DUMP'. (see 'drrej calibrate --help')"),
        (["calibrate", "x.parquet", "--forced"], "No such option: --forced"),
        (["calibrate", "x.parquet", "-o"], "Option '-o' requires an argument. (see 'drrej calibrate --help')"),
        (["calibrate", "x.parquet", "--jobs", "many"], "--jobs many: "),
        (
            ["calibrate", "x.parquet", "--input=odds"],
            "--input odds: 'odds' is not one of 'logits', 'probs', 'log-probs'. (see",
        ),
        (["threshold", "x.parquet", "-r", "r.json", "--tau", "x"], "--tau x: "),
        (["reject", "x.parquet", "-r", "r.json"], "Missing option '-o' / '--output'. (see 'drrej reject --help')"),
        (["schema", "mask"], "'mask' is not one of 'rejector', 'report'"),
        (["calibrate", "x.parquet"], "x.parquet: no such file or directory"),
        (["calibrate", "x\ny.parquet"], "x y.parquet: no such file or directory"),
        (["evaluate", "x.parquet", "-r", "r.json"], "r.json: cannot be read (No such file or directory)"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_one_line_and_exit_2(arguments: list[str], message: str) -> None:
    assert message in fail(*arguments)


def test_without_a_command_the_help_is_shown() -> None:
    done = run_drrej()
    assert (done.returncode, done.stdout, done.stderr) == (2, succeed("--help"), b"")


def test_a_failed_gate_is_exit_1_of_the_process(test: str, rejector_file: str) -> None:
    done = run_drrej("evaluate", test, "-r", rejector_file, "--gate", "coverage > 0.99", "--format", "json")
    assert done.returncode == 1
    assert done.stderr.startswith(b"drrej: gate failed: coverage > 0.99: the value is 0.")
    assert json.loads(done.stdout)["coverage"]["value"] < 0.99


def shell(script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    prelude = f'set -o pipefail; drrej() {{ "{sys.executable}" -m drrej "$@"; }}\n'
    return subprocess.run(
        ["bash", "-c", prelude + script], cwd=cwd, env=environment(), capture_output=True, text=True, timeout=120
    )


def test_the_pipeline_in_a_shell(tmp_path: Path, val: str, test: str, rejector_file: str) -> None:
    done = shell(
        f"""
        drrej calibrate {val} | drrej fit {val} -r - --loss log |
        drrej threshold {val} -r - --coverage 0.8 -o rejector.json &&
        drrej evaluate {test} -r rejector.json --gate 'accuracy >= 0.97' --verbose -o report.json &&
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
    assert "standard input: it is empty; the step before it in the pipe failed" in done.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", ["calibrate", thorough("evaluate"), "reject"])
def test_a_broken_pipe_is_silent(command: str, tmp_path: Path, val: str, test: str, rejector_file: str) -> None:
    words = {
        "calibrate": val,
        "evaluate": f"{test} -r {rejector_file}",
        "reject": f"{test} -r {rejector_file} -o -",
    }[command]
    done = shell(f"drrej {command} {words} | true; echo ${{PIPESTATUS[0]}}", tmp_path)
    assert (done.stdout, done.stderr) == ("141\n", "")


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


def test_standard_input_cannot_be_both() -> None:
    assert "only one input" in fail("fit", "-", "-r", "-")


def test_a_traceback_only_when_asked_for(tmp_path: Path) -> None:
    done = run_drrej("calibrate", tmp_path / "x.parquet", env={"DRREJ_DEBUG": "1"})
    assert b"Traceback" in done.stderr
    assert done.returncode != 0


@pytest.mark.parametrize(
    ("jobs", "accepted"), [("1", True), ("02", True), (" 2", True), ("-1", False), ("1.5", False), ("two", False)]
)
def test_what_a_number_may_look_like(jobs: str, accepted: bool, val: str) -> None:
    outcome = running.drrej("calibrate", val, "--jobs", jobs)
    assert outcome.code == (0 if accepted else 2)
    assert accepted or outcome.err.startswith(f"drrej: error: --jobs {jobs}: ")


def test_too_little_address_space_is_said_at_once() -> None:
    resource = pytest.importorskip("resource")

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))

    done = subprocess.run(
        [sys.executable, "-m", "drrej", "metrics"], capture_output=True, check=False, timeout=60, preexec_fn=limited
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == (
        "drrej: error: the address space is limited to 409600 kB; allow 1572864 or more (ulimit -v)\n"
    )


TEXTS = ["plain text", "", "5", "-1", "0.5", "1e3", " 5", "5_0", "0005", "nan", "inf", "true", "5.", ".5", "+5", "5\n"]
TEXTS += ["\u0665", "1" * 15, "1" * 20, "0." + "1" * 16]
TYPED = [5, -1, 10**20, 0.5, float("nan"), float("inf"), True, False]


def outcome(parameter: Any, context: Any, value: Any) -> tuple[object, ...]:
    """What becomes of a value: the result, with its type and those of its items, or the message."""
    try:
        found = parameter.process_value(context, value)
    except typer.BadParameter as error:
        return type(error), error.format_message()
    return type(found), repr(found)  # also of its items; nan is not equal to itself


@pytest.mark.parametrize("name", COMMANDS)
def test_plain_values_are_those_of_typer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = command.__wrapped__(name)
    monkeypatch.setenv("DRREJ_TYPER_VALUES", "1")
    theirs = command.__wrapped__(name)
    contexts = [each.make_context(name, [], resilient_parsing=True) for each in (ours, theirs)]
    compared = 0
    for own, other in zip(ours.params, theirs.params, strict=True):
        if own.callback is not None:
            continue
        assert "process_value" in vars(own)
        assert "process_value" not in vars(other)
        choices = [choice for choice in get_args(own.type_descriptor.annotation) if isinstance(choice, str)]
        values: list[Any] = [*TEXTS, *TYPED, *choices, *(choice.upper() for choice in choices), None]
        lists: list[Any] = [[], ["a", "b"], ["a", 1], *([value] for value in values)]
        for value in [*values, *lists, *map(tuple, lists)]:
            assert outcome(own, contexts[0], value) == outcome(other, contexts[1], value), (own.name, value)
            compared += 1
    assert compared or name == "config"  # which has no options of its own


@pytest.mark.parametrize("typers_own", [False, True])
def test_plain_values_pass_by_pydantic(typers_own: bool, tmp_path: Path, test: str, rejector_file: str) -> None:
    arguments = ["reject", test, "-r", rejector_file, "-o", "mask.csv", "--jobs", "1", "--keep", "label", "--seed", "2"]
    code = "import sys; from drrej.cli.app import execute; print(execute(sys.argv[1:]), 'pydantic' in sys.modules)"
    env = environment() | {"DRREJ_TYPER_VALUES": str(int(typers_own))}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments, "--on-bad-row", "reject", "-q"],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (f"0 {typers_own}\n", "")
    assert os.listdir(tmp_path) == ["mask.csv"]
