"""The commands and options that typer knows."""

from __future__ import annotations

import functools
from typing import Any

from drrej.cli.app import COMMANDS, command


@functools.cache
def commands() -> dict[str, Any]:
    """Every command, in the order of the help."""
    return {name: command(name) for name in COMMANDS}


def options(command: str) -> list[Any]:
    """The options of a command, without those for its help, and its arguments."""
    return [option for option in commands()[command].params if option.name not in ("help", "help_all")]


def flag(option: Any) -> str:
    """The long name of an option; an argument's own name."""
    return max(option.opts, key=len)
