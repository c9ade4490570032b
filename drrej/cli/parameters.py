"""Values of options that need no converting.

Typer checks every value with pydantic, whose import takes longer than all else that a small command does. A command
of this class lets plain values through, such as a string where a string is wanted, and leaves the rest to typer: what
is wrong gets typer's message, and a typer that converts in another way is not touched.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from typer.core import TyperCommand, TyperGroup

_NUMBERS: dict[Any, re.Pattern[str]] = {
    int: re.compile(r"[0-9]{1,15}"),
    float: re.compile(r"[0-9]{1,15}(\.[0-9]{0,15})?"),
}


class Command(TyperCommand):
    """A command whose plain values skip typer's converters."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, `--help` included."""
        return [_quick(parameter) for parameter in super().get_params(ctx)]


class Group(TyperGroup):
    """The same for what comes before the command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, `--help` included."""
        return [_quick(parameter) for parameter in super().get_params(ctx)]


def _quick(parameter: Any) -> Any:
    described = getattr(parameter, "type_descriptor", None)
    converter = getattr(parameter, "get_runtime_param", None)
    if described is not None and converter is not None and "get_runtime_param" not in vars(parameter):
        quick = _Quick(described.annotation, described.parameter_info, converter)
        parameter.get_runtime_param = lambda: quick
    return parameter


@dataclass(frozen=True)
class _Quick:
    """Stands in for typer's converter of one parameter."""

    kind: Any
    info: Any
    converter: Callable[[], Any]

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value for the command."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        plain = self._plain(value)
        return self.converter().coerce(value, param=param, ctx=ctx) if plain is None else plain

    def _plain(self, value: Any) -> Any:
        """The value where it needs no checking, else None."""
        if getattr(self.info, "parser", None) is not None:
            return None
        if self.kind is str or typing.get_origin(self.kind) is typing.Literal:
            known = isinstance(value, str) if self.kind is str else value in typing.get_args(self.kind)
            return value if known else None
        if typing.get_origin(self.kind) is list and typing.get_args(self.kind) == (str,):
            given = isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
            return list(value) if given else None
        if self.kind in _NUMBERS:
            return self._number(value)
        return None

    def _number(self, value: Any) -> Any:
        if type(value) is self.kind:
            return value
        if not isinstance(value, str) or not _NUMBERS[self.kind].fullmatch(value):
            return None
        number = self.kind(value)
        low, high = getattr(self.info, "min", None), getattr(self.info, "max", None)
        inside = (low is None or number >= low) and (high is None or number <= high)
        return number if inside else None
