"""Options: each is declared once, in a group, with its help, panel and whether it is for everyday use.

A command takes groups, arguments and options that it alone has; `grouped` spreads the groups out for typer. The flag of
an option is the name of its attribute. Help texts have no square brackets: rich would take them for markup.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, get_type_hints

from msgspec import Struct
from typer.models import OptionInfo

from drrej.cli.console import Bar, is_terminal, long_flag, warn
from drrej.engines import Progress
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.engines.protocol import Engine
    from drrej.outputs.destinations import OutputFile

S = TypeVar("S", bound=Struct)

STREAM = "-"
"""Standard input or output."""
READING, ENGINE = "Reading", "Engine"
REQUIRED = ...
_SHORT = {"output": "-o", "rejector": "-r", "force": "-f", "quiet": "-q", "help": "-h"}


def option(help: str, metavar: str | None = None, panel: str | None = None, default: Any = None, **more: Any) -> Any:
    """Declare an option as an attribute of a group; without a metavar its choices are shown."""
    return OptionInfo(default=default, help=help, metavar=metavar, rich_help_panel=panel, **more)


rare = partial(option, hidden=True)
"""An option that is not for everyday use: `COMMAND --help-all` shows it."""

flag = partial(option, metavar="", default=False)
"""An option without a value: typer's own metavar is <bool>."""

rare_flag = partial(flag, hidden=True)


class Options:
    """A group of options: the class declares them as attributes, and an object of it has their values."""

    configured: ClassVar[Mapping[str, Any]] = {}
    """The options of the command that files and variables set, with their values; it notes them before it is parsed."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update({name: each.default for name, each in self.declared().items()} | given)

    @classmethod
    def declared(cls) -> dict[str, OptionInfo]:
        """The options by name, those of the bases first."""
        options: dict[str, OptionInfo] = {}
        for base in reversed(cls.__mro__):
            options |= {name: value for name, value in vars(base).items() if isinstance(value, OptionInfo)}
        return options

    @classmethod
    def rarer(cls, *names: str) -> dict[str, OptionInfo]:
        """Options as ones that are not for everyday use, for a command that has many."""
        options = {name: copy(cls.declared()[name]) for name in names}
        for each in options.values():
            each.hidden = True
        return options

    def not_default(self) -> list[str]:
        """The names of the options that have another value than their default."""
        return [name for name, each in self.declared().items() if vars(self)[name] not in (each.default, [])]

    def given(self) -> list[str]:
        """Those of them that were said for this run: what is configured for many may have no meaning in one."""
        return [name for name in self.not_default() if name not in Options.configured]

    def into(self, kind: type[S], **more: Any) -> S:
        """The options as the library takes them: those that `kind` has fields for, and `more`; None is its default."""
        fields = kind.__struct_fields__
        same = {name: value for name, value in vars(self).items() if name in fields and value is not None}
        return kind(**same | more)

    def check_needs(self, **needs: str) -> None:
        """Raise when an option has a value but the one that it needs does not."""
        there = self.not_default()
        for name, needed in needs.items():
            if name in there and needed not in there:
                raise OptionError(f"{long_flag(name)} requires {long_flag(needed)}")

    def replaced(self, **changes: Any) -> Self:
        """The same group with other values."""
        return type(self)(**{**vars(self), **changes})


def grouped(command: Callable[..., None], *more: type[Options]) -> Callable[..., None]:
    """A command with the options of its groups in place of the groups, and of `more` groups, which only call back.

    `Annotated[GROUP, {...}]` says what the command changes in a group: options that it declares anew, or None for those
    that it lacks.
    """
    own = inspect.signature(command, eval_str=True).parameters
    kinds = {name: each.annotation for name, each in own.items()} | {group.__name__: group for group in more}
    groups: dict[str, tuple[type[Options], list[str]]] = {}
    flat: list[inspect.Parameter] = []
    for name, kind in kinds.items():
        group, changes = getattr(kind, "__origin__", kind), getattr(kind, "__metadata__", [{}])[0]
        if not (isinstance(group, type) and issubclass(group, Options)):
            flat.append(own[name].replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        declared = {each: info for each, info in {**group.declared(), **changes}.items() if info is not None}
        groups[name], hints = (group, list(declared)), get_type_hints(group)
        for each, info in declared.items():
            flat.append(inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=info, annotation=hints[each]))
    for parameter in flat:
        if isinstance(parameter.default, OptionInfo):
            parameter.default.param_decls = [*_SHORT.get(parameter.name, "").split(), long_flag(parameter.name)]

    def call(**values: Any) -> None:
        for name, (group, options) in groups.items():
            values[name] = group(**{each: values.pop(each) for each in options})
        command(**{name: values[name] for name in own})

    call.__doc__ = command.__doc__
    call.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    return call


output_option = partial(option, "Where to write; - is standard output.", "FILE")


class OutputOptions(Options):
    """Where a document goes."""

    output: str = output_option(default=STREAM)
    force: bool = flag("Overwrite existing files.")


class EngineOptions(Options):
    """What runs the passes, and whether it may say something."""

    jobs: int = rare("Workers on this machine; 0 is all cores.", "N", ENGINE, 0)
    cluster: str | None = rare(
        "Run on a Dask cluster: tls://HOST:8786 or tcp://HOST:8786.", "ADDRESS", ENGINE, envvar="DASK_SCHEDULER_ADDRESS"
    )
    quiet: bool = flag("Print no progress and no warnings.")

    def start(self, log: Progress | None = None) -> Engine:
        """What runs the passes: this machine, or a cluster; `log` is told how far they are."""
        if self.jobs < 0:
            raise OptionError(f"--jobs {self.jobs}: it must be 0 (all cores) or more")
        shown = log or (Progress() if self.quiet or not is_terminal(sys.stderr) else Bar())
        if self.cluster is None:
            from drrej.engines.local import LocalEngine

            return LocalEngine(self.jobs, shown, processes=True)
        from drrej.engines.dask import DaskEngine, connect, is_open_to_strangers

        client = connect(self.cluster)
        if is_open_to_strangers(self.cluster):
            warn(f"{self.cluster} is not encrypted: anyone there can read the rows and run code as you", self.quiet)
        return DaskEngine(client, shown)


def open_files(stack: ExitStack, paths: Iterable[str | None], force: bool) -> list[OutputFile]:
    """Files to be written, where there is a path; closed when the stack ends."""
    from drrej.outputs.destinations import OutputFile

    return [stack.enter_context(OutputFile(path, force)) for path in paths if path is not None]


def write_files(files: Sequence[OutputFile], contents: Sequence[bytes]) -> None:
    """Write all of them; then all of them get their names."""
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    for file in files:
        file.commit()
