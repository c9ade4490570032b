"""Ctrl-C and termination: the right exit code, no traceback, nothing left behind, at any moment."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, environment

MOMENTS = [0.005 + 0.05 * step for step in range(13)]  # as far as numpy, pyarrow and scipy take to import
SCRIPT = """
import os, sys
from drrej.__main__ import main
os.write(1, b"!")
sys.exit(main())
"""


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """The console script, at the first line of `main`."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", SCRIPT, *arguments]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environment())
    assert child.stdout is not None
    assert child.stdout.read(1) == b"!"
    return child


def test_next_to_nothing_comes_before_ctrl_c_is_taken_care_of() -> None:
    """Until then Python's own traceback would be shown: the modules that `signal` needs, and they are guarded."""
    code = "import sys; before = {*sys.modules}; import drrej.__main__; print(*{*sys.modules} - before)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"],
        capture_output=True,
        text=True,
    )
    loaded = {
        name for name in done.stdout.split() if name.split(".")[0] == "drrej" or name in ("typing", "re", "importlib")
    }
    assert loaded == {"drrej", "drrej._version", "drrej.__main__"}


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_at_any_moment_of_the_start(moment: float, val: str, tmp_path: Path) -> None:
    child = start("calibrate", val, "-o", str(tmp_path / "r.json"))
    time.sleep(moment)
    child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=60)
    if errors.endswith(b"KeyboardInterrupt\n") and errors.count(b"File ") == errors.count(b'File "<string>"') == 1:
        pytest.skip("the machine was so busy that the script had not got into `main`")
    assert (output, errors) == (b"", b"")
    assert child.returncode in (0, 130)
    left = {name: json.loads((tmp_path / name).read_bytes()) for name in os.listdir(tmp_path)}
    if left:  # a signal that comes after the document is in place leaves it, whole, and still ends with 130
        done = subprocess.run([sys.executable, "-m", "drrej", "calibrate", val], capture_output=True, check=True)
        assert left == {"r.json": json.loads(done.stdout)}
    assert left or child.returncode == 130


def test_an_ignored_ctrl_c_stays_ignored(val: str) -> None:
    """As in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = start("calibrate", val)
    finally:
        signal.signal(signal.SIGINT, before)
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (0, b"")
    assert output.startswith(b"{")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_in_the_making_of_something_is_no_other_error(
    monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    """Where Python makes an error of its own of it, as it does of one in `__set_name__`, the command was stopped."""
    main = importlib.import_module("drrej.cli.app")

    class Member:
        def __set_name__(self, owner: type, name: str) -> None:
            main._stop(number, None)

    def broken() -> None:
        try:
            type("Made", (), {"member": Member()})
        except BaseException as error:
            raise ImportError("cannot import name 'x' from partially initialized module 'y'") from error

    monkeypatch.setattr(main, "application", broken)
    monkeypatch.setattr(main, "_stopped", [])
    assert main.execute(["calibrate"]) == code


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


INTERRUPTED_AMONG_THREADS = """
import atexit, os, signal, sys, threading, time
from drrej.cli import app as main

def execute():
    threading.Thread(target=time.sleep, args=(60,)).start()
    signal.raise_signal(int(sys.argv[1]))

atexit.register(os.write, 1, b"tidied")
main.execute = execute
main.main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_does_not_wait_for_its_threads(number: int, code: int) -> None:
    """Python's own end would wait, and abort when a thread comes back to an interpreter that is half gone."""
    words = [sys.executable, "-c", INTERRUPTED_AMONG_THREADS, str(int(number))]
    done = subprocess.run(words, capture_output=True, env=environment(), timeout=50, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"tidied", b"")
