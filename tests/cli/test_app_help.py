"""The help: whole, in panels, with examples that work, without colours in a pipe."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import SAMPLE, environment, make_model, run_drrej, succeed, write_dump
from registry import commands, flag, options
from running import LOG_LINE, VACUOUS, drrej

COMMANDS = [
    *("demo", "inspect", "run", "calibrate", "fit", "threshold", "evaluate", "reject", "monitor", "export", "plan"),
    *("cascade", "compare", "convert", "metrics", "config", "schema"),
]


def squeezed(text: str) -> str:
    """The text without the frames of panels, without spaces and line breaks."""
    return re.sub(r"[\s│]", "", text)


def test_help_lists_the_commands_by_what_they_are_for() -> None:
    text = succeed("--help").decode()
    listed = re.findall(r"^│ (\w+) ", text.split("─ Get started ─")[1], re.MULTILINE)
    assert listed == COMMANDS == list(commands())
    assert re.findall(r"^╭─ ([A-Z][\w ]+) ─", text, re.MULTILINE)[1:] == [
        "Get started",
        "Build",
        "Use",
        "Plan",
        "Tools",
    ]
    for command in commands().values():
        assert squeezed(command.help.split("\n\n")[0]) in squeezed(text)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_is_told_in_whole(command: str) -> None:
    """No text is cut or taken for markup, and no name of a type gets into it."""
    text = succeed(command, "--help-all").decode()
    assert f"drrej {command} [OPTIONS]" in text
    assert "more options" not in text
    assert not re.search(r"<(bool|class|list|str|int|float)|Literal|Annotated|Optional", text)
    for option in options(command):
        if not option.hidden:
            assert re.search(rf"(?<![\w-]){flag(option)}(?![\w-])", text)
            assert squeezed(option.help) in squeezed(text)
    assert squeezed(commands()[command].help) in squeezed(text)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_what_is_for_everyday_use_and_how_to_see_the_rest(command: str) -> None:
    text, everything = succeed(command, "-h").decode(), succeed(command, "--help-all").decode()
    flags, all_flags = (
        set(re.findall(r"^│ (?:\* )? *(--[a-z-]+)", shown, re.MULTILINE)) for shown in (text, everything)
    )
    assert flags <= all_flags
    assert len(flags) <= 24
    more = re.search(rf"(\d+) more options: drrej {command} --help-all", text)
    assert (0 if more is None else int(more[1])) == len(all_flags) - len(flags)
    assert text == succeed(command, "--help").decode()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_texts_have_no_markup(command: str) -> None:
    """Rich takes square brackets for markup and swallows them."""
    for option in options(command):
        assert not set("[]") & set(option.help or "")
        assert not set("[]") & set(str(option.show_default))
    assert not set("[]") & set(commands()[command].help)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_help_text_and_a_metavar(command: str) -> None:
    for option in options(command):
        assert option.hidden or re.fullmatch(r"[A-Za-z.].*\.", option.help), flag(option)
        kind = getattr(option, "type_descriptor", getattr(option, "type", None))  # of typer 0.29, and before
        assert option.metavar is not None or kind.choices, flag(option)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_into_80_columns(command: str) -> None:
    text = succeed(command, "--help").decode()
    assert all(len(line) <= 80 for line in text.splitlines())
    shown = [line.strip() for line in text.split("Examples:")[1].split("╭")[0].split("\n")]
    assert [line for line in shown if line] == examples(command)  # none is wrapped
    assert 2 <= len(examples(command)) <= 3


def examples(command: str) -> list[str]:
    return [line for line in commands()[command].help.split("Examples:")[1].splitlines() if line]


@pytest.mark.parametrize("variable", ["GITHUB_ACTIONS", "PY_COLORS"])
def test_no_colours_in_a_pipe(variable: str) -> None:
    """Rich is told to colour its output on GitHub's runners, pipe or not."""
    done = run_drrej("run", "--help", env={variable: "1", "TERM": "xterm-256color"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\x1b" not in done.stdout


def test_colours_on_a_terminal() -> None:
    shown = on_a_terminal("reject", "--help")
    assert "\x1b[" in shown
    assert "Write the rejection mask, row for row." in shown
    assert "\x1b[" not in on_a_terminal("reject", "--help", TERM="dumb")


def on_a_terminal(*arguments: str, **variables: str) -> str:
    """What a command shows on a terminal."""
    ours, theirs = pty.openpty()
    env = environment() | {"TERM": "xterm-256color", "COLUMNS": "100"} | variables
    with subprocess.Popen([sys.executable, "-m", "drrej", *arguments], stdout=theirs, stderr=theirs, env=env) as child:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
        assert child.wait(60) == 0
    os.close(ours)
    return shown.decode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the examples name."""
    folder = tmp_path_factory.mktemp("examples")
    rng = np.random.default_rng(0)
    logits, labels = make_model(200, 3, seed=1)
    write_dump(folder / "wide.parquet", logits, layout="wide", extra={"truth": labels})
    np.save(folder / "logits.npy", logits)
    np.save(folder / "labels.npy", labels)
    lines = [",".join(map(str, [*row, label])) for row, label in zip(logits, labels, strict=True)]
    (folder / "val.csv").write_text("\n".join(["logit_0,logit_1,logit_2,label", *lines]) + "\n")
    for name in ("val", "test"):
        shutil.copy(SAMPLE / f"{name}.parquet", folder)
    for name in ("fresh", "predictions"):
        shutil.copy(SAMPLE / "test.parquet", folder / f"{name}.parquet")
    for name in ("nightly", "small", "large", "a", "b"):
        (folder / name).mkdir()
        shutil.copy(SAMPLE / "test.parquet", folder / name)
    pq.write_table(pa.table({"variance": rng.random(50)}), folder / "forecasts.parquet")
    succeed("calibrate", "val.parquet", "-o", "calibrated.json", cwd=folder)
    succeed("fit", "val.parquet", "-r", "calibrated.json", "-o", "fitted.json", cwd=folder)
    succeed("threshold", "val.parquet", "-r", "fitted.json", "--coverage", "0.8", "-o", "rejector.json", cwd=folder)
    succeed("evaluate", "test.parquet", "-r", "rejector.json", "-o", "before.json", "-o", "report.json", cwd=folder)
    succeed("monitor", "state.json", "val.parquet", "-r", "rejector.json", "--max-risk", "0.1", cwd=folder)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_the_examples_work(folder: Path, tmp_path: Path, command: str) -> None:
    here = tmp_path / "here"
    for example in examples(command):
        shutil.copytree(folder, here)
        for output in re.findall(r"-o (\S+)", example):
            (here / output).unlink(missing_ok=True)
        written = b""
        for words in piped(example):
            if words[0] == "cat":
                written = (here / words[1]).read_bytes()
                continue
            assert words[0] == "drrej"
            outcome = drrej(*words[1:], cwd=here, stdin=written)
            assert outcome.code == 0, outcome.err
            told = LOG_LINE.sub("", outcome.err).splitlines()
            assert all(line.startswith("drrej: note: ") or VACUOUS in line for line in told), outcome.err
            written = outcome.out
        shutil.rmtree(here)


def piped(line: str) -> list[list[str]]:
    """The commands of a line, as a shell divides it at `|`; what it writes into a file with `>` is left out."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    stages: list[list[str]] = [[]]
    for word in lexer:
        stages += [[]] if word == "|" else []
        stages[-1] += [word] if word != "|" else []
    if ">" in stages[-1]:
        assert len(stages[-1]) == stages[-1].index(">") + 2
        del stages[-1][-2:]
    return stages
