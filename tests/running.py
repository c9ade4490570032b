"""Running commands: in this process, which is quick, or in a process of their own."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import drrej as package
from drrej.cli import app
from drrej.data.files import remove_temporary

LOG_LINE = re.compile(r"^drrej: [^\n]*: \d+ rows, \d+ rejected, coverage [^\n]*\n", re.MULTILINE)
"""What `reject` says of a file, or of all of them."""


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.err.splitlines()


SEEN = "drrej: warning: some of these rows were used by "
VACUOUS = "met even without rejection"


def drrej(*arguments: object, cwd: Path | str | None = None, stdin: bytes = b"") -> Outcome:
    """Run a command in this process: the same code as the program's, short of its signal handlers."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    words = [str(argument) for argument in arguments]
    with contextlib.chdir(cwd or os.curdir), _process(words, io.TextIOWrapper(io.BytesIO(stdin)), out, err):
        code = app.execute(words)
    out.flush()
    return Outcome(code, out.buffer.getvalue(), err.getvalue())  # type: ignore[attr-defined]


def run_here(*arguments: object, cwd: Path | str | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run a command in this process; what `run_drrej` returns, at a tenth of its cost."""
    outcome = drrej(*arguments, cwd=cwd)
    return subprocess.CompletedProcess(arguments, outcome.code, outcome.out, outcome.err.encode())


@contextlib.contextmanager
def _process(
    arguments: list[str], stdin: io.TextIOBase, stdout: io.TextIOBase, stderr: io.TextIOBase
) -> Iterator[None]:
    """Arguments and streams as a process of its own would have them."""
    before = sys.stdin, sys.stdout, sys.stderr, sys.argv
    sys.stdin, sys.stdout, sys.stderr = stdin, stdout, stderr  # type: ignore[assignment]
    sys.argv = ["drrej", *arguments]
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr, sys.argv = before
        remove_temporary()


def succeed(*arguments: object, cwd: Path | str | None = None, stdin: bytes = b"") -> bytes:
    """The standard output of a command that must end well and say nothing on standard error but a log of its files.

    That rows are no test because they were used before, or that all meet a target, may be said: most tests make and
    judge a rejector on one dump.
    """
    outcome = drrej(*arguments, cwd=cwd, stdin=stdin)
    lines = LOG_LINE.sub("", outcome.err).splitlines()
    said = [line for line in lines if not line.startswith(SEEN) and VACUOUS not in line]
    assert (outcome.code, said) == (0, []), outcome.err
    return outcome.out


def fail(*arguments: object, code: int = 2, cwd: Path | str | None = None, stdin: bytes = b"") -> str:
    """The message of a command that must fail with a code, one line of message and nothing on standard output."""
    outcome = drrej(*arguments, cwd=cwd, stdin=stdin)
    return only_line(subprocess.CompletedProcess(arguments, outcome.code, outcome.out, outcome.err.encode()), code)


def only_line(done: subprocess.CompletedProcess[bytes], code: int) -> str:
    """The one line of message of a command that failed as it should."""
    message = LOG_LINE.sub("", done.stderr.decode())
    assert (done.returncode, done.stdout) == (code, b""), message
    assert message.startswith("drrej: error: ")
    assert message.count("\n") == 1, message
    assert "Traceback" not in message
    assert "unexpected" not in message
    return message.removeprefix("drrej: error: ").rstrip("\n")


_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # set for the tests alone; a user has all cores


def environment() -> dict[str, str]:
    """The environment of a subprocess that imports the drrej under test."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DRREJ_", "PYTEST_")) and k not in _THREADS}
    env["PYTHONPATH"] = str(Path(package.__file__).resolve().parents[1])
    env["PYTHONWARNINGS"] = "error::RuntimeWarning"
    return env


def run_drrej(
    *arguments: object, cwd: Path | str | None = None, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "drrej", *map(str, arguments)],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        env=environment() | dict(env or {}),
        timeout=120,
    )


_NAMES = {"files", "command", "commands", "about", "dump", "columns", "sources", "seconds", "path", "input_files"}
_NAMES |= {"digest"}  # of a document with other names


def without_names(found: Any) -> Any:
    """A document without the words that name files, commands and columns."""
    if isinstance(found, dict):
        return {key: without_names(value) for key, value in found.items() if key not in _NAMES}
    return [without_names(value) for value in found] if isinstance(found, list) else found
