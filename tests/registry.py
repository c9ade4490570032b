"""The commands and options that typer knows."""

from __future__ import annotations

import functools
from typing import Any

from typer.main import get_command

from drrej.cli.commands import COMMANDS, register
from drrej.cli.main import app


@functools.cache
def commands() -> dict[str, Any]:
    """Every command, in the order of the pipeline."""
    register([])
    known: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    return {name: known[name] for name in COMMANDS}


def options(command: str) -> list[Any]:
    """The options of a command, without --help, and its arguments."""
    return list(commands()[command].params)


def flag(option: Any) -> str:
    """The long name of an option; an argument's own name."""
    return max(option.opts, key=len)
