"""drrej config."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from drrej.cli.command import Command
from drrej.cli.console import show
from drrej.cli.main import app

if TYPE_CHECKING:
    from drrej.cli.configuration import Setting

EXAMPLES = """
Examples:

drrej config

drrej config > drrej.toml
"""


@app.command(cls=Command, epilog=EXAMPLES)
def config() -> None:
    """Show what is configured, as TOML, and where each value comes from.

    Later ones win: drrej.toml or tool.drrej of pyproject.toml, --config FILE, DRREJ_* variables, the command line.
    """
    from drrej.cli.configuration import chosen, settings_of

    settings = {name: settings_of(command) for name, command in chosen.commands().items()}
    show("".join(f"{line}\n" for line in _lines(settings)) or "# nothing is configured\n")


def _lines(settings: dict[str, dict[str, Setting]]) -> Iterator[str]:
    """Keys that are the same wherever they are known come first; then the tables of single commands."""
    from drrej.cli.configuration import configurable

    known = configurable()
    names = sorted({name for found in settings.values() for name in found})
    common = {}
    for name in names:
        values = [settings[command][name] for command in settings if name in settings[command]]
        if all(value == values[0] for value in values) and len(values) == _takers(name, values[0], known):
            common[name] = values[0]
    yield from (_line(name, setting) for name, setting in common.items())
    for command, found in settings.items():
        own = [_line(name, setting) for name, setting in found.items() if name not in common]
        if own:
            yield from ("", f"[{command}]", *own)


def _takers(name: str, setting: Setting, known: dict[str, dict[str, Any]]) -> int:
    """How many commands would have the setting if it were for all."""
    from drrej.cli.configuration import what_it_must_be

    options = [found[name] for found in known.values() if name in found]
    return sum(not what_it_must_be(option, setting.value) for option in options)


def _line(name: str, setting: Setting) -> str:
    from drrej.cli.configuration import key_of

    return f"{key_of(name)} = {_toml(setting.value)}  # {setting.where}"


def _toml(value: Any) -> str:
    """A value as TOML: texts, numbers, truth values and lists of texts are written as in JSON."""
    return json.dumps(value, ensure_ascii=False)
