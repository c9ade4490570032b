"""Shell completion."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import environment


def _drrej(*words: str, **variables: str) -> str:
    env = environment() | variables
    return subprocess.run(
        [sys.executable, "-m", "drrej", *words], env=env, capture_output=True, check=True
    ).stdout.decode()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell(shell: str) -> None:
    text = _drrej("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "_DRREJ_COMPLETE" in text


def test_commands_and_options_are_completed() -> None:
    words = {"_DRREJ_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
    assert _drrej(COMP_WORDS="drrej cal", **words).split() == ["calibrate"]
    words["COMP_CWORD"] = "2"
    assert _drrej(COMP_WORDS="drrej evaluate --ga", **words).split() == ["--gate"]
    assert _drrej(COMP_WORDS="drrej evaluate --max", **words).split() == ["--max-bad"]  # which --help does not show
