"""Options: each is declared once, as a field of a group, with its flag, help, panel and whether it is for everyday use.

A command takes groups (Structs) and single options; `grouped` spreads the groups out for typer. Help texts have no
square brackets: rich would take them for markup.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from msgspec import Struct
from msgspec.structs import fields

if TYPE_CHECKING:
    from drrej.outputs.destinations import OutputFile


def option(spelling: str, help: str, panel: str | None = None, **more: Any) -> Any:
    """An option of typer's, spelled as in "-o --output FILE"; without a word for the value its choices are shown."""
    words = spelling.split()
    flags = [word for word in words if word.startswith("-")]
    more |= {"metavar": words[-1]} if len(words) > len(flags) else {}
    return typer.Option(*flags, help=help, rich_help_panel=panel, **more)


rare = partial(option, hidden=True)
"""An option that is not for everyday use: `COMMAND --help-all` shows it."""

flag = partial(option, metavar="")
"""An option without a value: typer's own metavar is <bool>."""

rare_flag = partial(flag, hidden=True)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the fields of its groups in place of the groups, as typer understands them."""
    groups: dict[str, Any] = {}
    flat: list[inspect.Parameter] = []
    own = inspect.signature(command, eval_str=True).parameters
    for parameter in own.values():
        group = parameter.annotation
        if not (isinstance(group, type) and issubclass(group, Struct)):
            flat.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[parameter.name] = group
        hints = get_type_hints(group, include_extras=True)
        for field in fields(group):
            default = inspect.Parameter.empty if field.required else field.default
            one = inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default)
            flat.append(one.replace(annotation=hints[field.name]))

    def call(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**{name: values[name] for name in own})

    call.__doc__ = command.__doc__
    call.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    return call


Dumps = Annotated[list[str], typer.Argument(metavar="DUMP", hidden=True)]  # the help would say <list[str]>
OptionalDumps = Annotated[list[str] | None, typer.Argument(metavar="DUMP", hidden=True)]
_rejector = option("-r --rejector FILE", "The rejector so far; - is standard input.")
RejectorFile = Annotated[str, _rejector]
OptionalRejector = Annotated[str | None, _rejector]
Force = Annotated[bool, flag("-f --force", "Overwrite what exists.")]


class OutputOptions(Struct, frozen=True):
    """Where a document goes."""

    output: Annotated[str, option("-o --output FILE", "Where to write; - is standard output.")] = "-"
    force: Force = False

    def file(self, rejector: str | None = None) -> AbstractContextManager[OutputFile]:
        """The file to be written; `-r R -o R` needs no --force."""
        from drrej.outputs.destinations import OutputFile

        return OutputFile(self.output, self.force, updates=rejector)
