"""The commands, in the order of the pipeline: that of `drrej --help`."""

from __future__ import annotations

from importlib import import_module

COMMANDS = (
    *("calibrate", "fit", "threshold", "evaluate", "reject", "run"),
    *("monitor", "sweep", "weights", "inspect", "config", "schema"),
)


def register(arguments: list[str]) -> None:
    """Import the module of the command that is called, which registers it; all of them for help and for errors."""
    first = 2 if arguments[:1] == ["--config"] else 0
    called = arguments[first] if len(arguments) > first else ""
    for name in (called,) if called in COMMANDS else COMMANDS:
        import_module(f"drrej.cli.{name}")
