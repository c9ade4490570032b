"""The commands, in the order of the pipeline: that of `drrej --help`."""

from __future__ import annotations

from importlib import import_module

from drrej.cli.configuration import split_config

COMMANDS = (
    *("calibrate", "fit", "threshold", "evaluate", "reject", "run"),
    *(
        "plan",
        "monitor",
        "cascade",
        "inspect",
        "convert",
        "metrics",
        "config",
        "schema",
        "help",
    ),
)


def register(arguments: list[str]) -> None:
    """Import the module of the command that is called, which registers it; all of them for help and for errors.

    The version needs none of them.
    """
    _, rest = split_config(arguments)
    called = rest[0] if rest else ""
    if called == "--version":
        return
    for name in (called,) if called in COMMANDS else COMMANDS:
        import_module(f"drrej.cli.{name}")
