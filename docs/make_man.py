"""Writes docs/drrej.1, the manual page, from what the command line knows of its options: python docs/make_man.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drrej._version import __version__
from drrej.cli.app import COMMANDS, application, command

EXIT_CODES = (
    ("0", "Done."),
    ("1", "The data say no: a gate failed, a target is contradicted, no threshold meets the target, a monitor alarms."),
    ("2", "Anything else that is wrong, in one line on standard error."),
    ("130, 141, 143", "Interrupted, broken pipe, terminated."),
)


def page() -> str:
    """The text of the page."""
    top = application()
    lines = [f'.TH DRREJ 1 "" "drrej {__version__}"', ".SH NAME", f"drrej \\- {_plain(top.help)}"]
    lines += [".SH SYNOPSIS", ".B drrej", "[\\-\\-config FILE] COMMAND [OPTIONS] [DUMP...]", ".SH COMMANDS"]
    for name in COMMANDS:
        lines += _section(command(name))
    lines.append(".SH EXIT STATUS")
    for code, meaning in EXIT_CODES:
        lines += [".TP", f".B {code}", _plain(meaning)]
    lines += [".SH ENVIRONMENT", ".TP", ".B DRREJ_*"]
    lines.append(
        "Options by name, such as DRREJ_JOBS; stronger than configuration files, weaker than the command line."
    )
    lines += [".TP", ".B DRREJ_DEBUG", "Show where an unexpected error came from."]
    lines += [".SH FILES", ".TP", ".B drrej.toml, pyproject.toml", "Options of a project; see drrej config.", ""]
    return "\n".join(lines)


def _section(command: Any) -> Iterator[str]:
    yield f".SS {command.name}"
    about, examples = command.help.split("\n\nExamples:\n")
    for paragraph in about.split("\n\n"):
        yield from (_plain(paragraph), ".PP")
    for option in command.params:
        if option.param_type_name == "option" and option.name not in ("help", "help_all"):
            value = _value(option)
            yield from (
                ".TP",
                f".B {_plain(', '.join(option.opts))}{f' {value}' if value else ''}",
                _plain(option.help),
            )
    yield from (".PP", "Examples:", ".nf")
    yield from map(_plain, examples.splitlines())
    yield ".fi"


def _value(option: Any) -> str:
    kind = getattr(option, "type_descriptor", getattr(option, "type", None))  # of typer 0.29, and before
    return _plain("|".join(kind.choices) if option.metavar is None else option.metavar)


def _plain(text: str) -> str:
    """Text that troff leaves alone: no line starts with a dot or a quote, dashes are for typing."""
    joined = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{joined}" if joined.startswith((".", "'")) else joined


if __name__ == "__main__":
    Path(__file__).with_name("drrej.1").write_text(page(), encoding="utf-8")
