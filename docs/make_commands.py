"""Writes docs/commands.md from what the command line knows of its options: python docs/make_commands.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drrej.cli.app import COMMANDS, command

INTRODUCTION = """# Commands and their options

As `drrej COMMAND --help-all` has them; this page is made from the same text by `docs/make_commands.py`. Exit codes, the
documents are under [documents](documents.md), what is computed under [the mathematics](proofs.md).
"""


def page() -> str:
    """The text of the page."""
    return "\n".join([INTRODUCTION, *(line for name in COMMANDS for line in _section(command(name)))])


def _section(command: Any) -> Iterator[str]:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    usage = " ".join([f"drrej {command.name} [OPTIONS]", *(f"{argument.metavar}..." for argument in arguments)])
    if command.name == "schema":
        usage = "drrej schema rejector|report|plan|monitor|cascade"
    yield from (f"## {command.name}", "", f"`{usage}`", "")
    about, examples = command.help.split("\n\nExamples:\n")
    yield from (line for paragraph in about.split("\n\n") for line in (_plain(paragraph), ""))
    panels: dict[str, list[Any]] = {}
    for parameter in command.params:
        if parameter not in arguments and parameter.name not in ("help", "help_all"):
            panels.setdefault(parameter.rich_help_panel or "Options", []).append(parameter)
    for title, options in panels.items():
        yield from (f"| {title} | |", "|---|---|")
        yield from (f"| `{_spelled(option)}` | {_meaning(option)} |" for option in options)
        yield ""
    yield from ("```bash", *examples.splitlines(), "```", "")


def _spelled(option: Any) -> str:
    kind = getattr(option, "type_descriptor", getattr(option, "type", None))  # of typer 0.29, and before
    value = "|".join(kind.choices) if option.metavar is None else option.metavar
    return f"{', '.join(option.opts)} {value}".strip().replace("|", "\\|")


def _meaning(option: Any) -> str:
    default = option.default if option.show_default is True else option.show_default
    notes = []
    if default not in (None, False):
        notes.append(f"Default: {default}.")
    if option.envvar:
        notes.append(f"Also `{option.envvar}`.")
    if option.required:
        notes.append("Required.")
    return " ".join([_plain(option.help), *notes])


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    Path(__file__).with_name("commands.md").write_text(page(), encoding="utf-8")
