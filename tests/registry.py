"""The commands and options that typer knows."""

from __future__ import annotations

import functools
from typing import Any

from drrej.cli.commands import COMMANDS
from drrej.cli.main import command_group


@functools.cache
def commands() -> dict[str, Any]:
    """Every command, in the order of the pipeline."""
    return {name: command_group().commands[name] for name in COMMANDS}


def options(command: str) -> list[Any]:
    """The options of a command, without --help, and its arguments."""
    return list(commands()[command].params)


def flag(option: Any) -> str:
    """The long name of an option; an argument's own name."""
    return max(option.opts, key=len)
