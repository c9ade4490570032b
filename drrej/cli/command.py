"""The classes of commands: where drrej adds to typer.

Typer 0.29 takes the value of every option, also of one that was not given, through pydantic, whose import
takes longer than all else that a small command does. It has no setting for this: even the `--help` that it adds itself
goes that way. So `Command` reads a command line by itself when every value on it is plain, such as text where text is
wanted. Any other command line, and so every error message, is typer's own. Without `parse_args` everything works the
same, a tenth of a second later.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import typing
from collections.abc import Iterator
from typing import Any

from typer.core import TyperCommand, TyperGroup

from drrej.cli.commands import COMMANDS

_NUMBERS: dict[Any, re.Pattern[str]] = {
    int: re.compile(r"[0-9]{1,15}"),
    float: re.compile(r"[0-9]{1,15}(\.[0-9]{0,15})?"),
}


class Command(TyperCommand):
    """A command that starts quickly, and whose help has no colours in a pipe."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Turn the words after the command's name into the values of its parameters."""
        ctx.default_map = _configured(self, ctx, list(args))
        try:
            ctx.params.update(_plain_values(self, ctx, list(args)))
        except _NotPlainError:
            return super().parse_args(ctx, args)
        ctx.args = []
        return []

    def get_help_option(self, ctx: Any) -> Any:
        """The option `--help`."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.metavar = ""  # or the help would call it <bool>
        return option

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        with _no_colours_in_a_pipe():
            super().format_help(ctx, formatter)


class Group(TyperGroup):
    """The commands together, in the order of the pipeline; their help has no colours in a pipe."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take `--config FILE` from the front: an option with a value would go through pydantic, given or not."""
        from drrej.cli.configuration import chosen, split_config

        chosen.path, rest = split_config(args)
        return super().parse_args(ctx, rest)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands that are registered, whichever came first."""
        return sorted(super().list_commands(ctx), key=COMMANDS.index)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        for option in self.params:
            if str(option.name).endswith("_completion"):
                option.metavar = ""  # or the help would call it <bool>
        with _no_colours_in_a_pipe():
            super().format_help(ctx, formatter)


@contextlib.contextmanager
def _no_colours_in_a_pipe() -> Iterator[None]:
    """Typer colours its help on GitHub's runners also when it is piped; a dumb terminal has no colours."""
    terminal = os.environ.get("TERM", "")
    if not sys.stdout.isatty() and "FORCE_COLOR" not in os.environ:
        os.environ["TERM"] = "dumb"
    try:
        yield
    finally:
        os.environ["TERM"] = terminal


def _configured(command: TyperCommand, ctx: Any, args: list[str]) -> dict[str, Any]:
    """What variables and configuration files say of the options that are not on the command line."""
    from drrej.cli.configuration import settings_of

    given, _, _ = command.make_parser(ctx).parse_args(args=args)
    if "help" in given:
        return {}
    return {name: setting.value for name, setting in settings_of(command, given).items()}


class _NotPlainError(Exception):
    """A command line that typer has to read."""


def _plain_values(command: TyperCommand, ctx: Any, args: list[str]) -> dict[str, Any]:
    given, rest, _ = command.make_parser(ctx).parse_args(args=args)
    if rest or "help" in given:
        raise _NotPlainError
    return {
        parameter.name: _plain(parameter, parameter.consume_value(ctx, given)[0])
        for parameter in typing.cast("list[Any]", command.params)
    }


def _plain(parameter: Any, value: Any) -> Any:
    """The value of a parameter where it needs no checking."""
    described = getattr(parameter, "type_descriptor", None)
    if described is None:  # an older typer, which converts without pydantic
        raise _NotPlainError
    kind = described.annotation
    if value is None and not parameter.required:
        return None
    if isinstance(value, list | tuple) and kind == list[str] and value:
        return list(value)
    if typing.get_origin(kind) is typing.Literal and value in typing.get_args(kind):
        return value
    if type(value) is kind:
        return value
    if isinstance(value, str) and kind in _NUMBERS and _NUMBERS[kind].fullmatch(value):
        return kind(value)
    raise _NotPlainError
