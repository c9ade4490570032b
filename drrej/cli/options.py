"""Options: each is declared once, in a group, with its help, panel and whether it is for everyday use.

A command takes groups and arguments; `grouped` spreads the groups out for typer. The flag of an option is the name of
its attribute. Help texts have no square brackets: rich would take them for markup.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self, get_type_hints

import typer

from drrej.cli.console import long_flag, progress, warn
from drrej.errors import OptionError, RejectorError

if TYPE_CHECKING:
    from drrej.documents.rejector import Rejector
    from drrej.engines import Progress
    from drrej.engines.protocol import Engine
    from drrej.outputs.destinations import OutputFile
    from drrej.pipeline.source import Source

STDIN = "-"
READING, ENGINE = "Reading", "Engine"
REQUIRED = ...
_SHORT = {"output": "-o", "rejector": "-r", "force": "-f", "quiet": "-q"}

Section = Literal["calibration", "ratio", "threshold"]
OnBad = Literal["error", "skip"]


class Declared(NamedTuple):
    """An option: its default, and what typer is told of it."""

    default: Any
    settings: dict[str, Any]


def option(help: str, metavar: str | None = None, panel: str | None = None, default: Any = None, **more: Any) -> Any:
    """Declare an option as an attribute of a group; without a metavar its choices are shown."""
    return Declared(default, {"help": help, "metavar": metavar, "rich_help_panel": panel, **more})


rare = partial(option, hidden=True)
"""An option that is not for everyday use: `COMMAND --help-all` shows it."""

flag = partial(option, metavar="", default=False)
"""An option without a value: typer's own metavar is <bool>."""

rare_flag = partial(flag, hidden=True)


class Options:
    """A group of options: the class declares them as attributes, and an object of it has their values."""

    def __init__(self, **given: Any) -> None:
        known = self.declared()
        if unknown := given.keys() - known.keys():
            raise TypeError(f"{type(self).__name__} has no option {', '.join(sorted(unknown))}")
        self.__dict__.update({name: each.default for name, each in known.items()} | given)

    @classmethod
    def declared(cls) -> dict[str, Declared]:
        """The options by name, those of the bases first."""
        attributes = [item for base in reversed(cls.__mro__) for item in vars(base).items()]
        return {name: value for name, value in attributes if isinstance(value, Declared)}

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """The options as typer understands them."""
        found, hints = [], get_type_hints(cls)
        for name, (default, settings) in cls.declared().items():
            flags = [*_SHORT.get(name, "").split(), long_flag(name)]
            kind: Any = Annotated[hints[name], typer.Option(*flags, **settings)]
            default = inspect.Parameter.empty if default is REQUIRED else default
            found.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind))
        return found

    def given(self) -> list[str]:
        """The names of the options that have another value than their default."""
        return [name for name, each in self.declared().items() if vars(self)[name] not in (each.default, [])]

    def replaced(self, **changes: Any) -> Self:
        """The same group with other values."""
        return type(self)(**{**vars(self), **changes})


def grouped(command: Callable[..., None], *more: type[Options]) -> Callable[..., None]:
    """A command with the fields of its groups in place of the groups, and of `more` groups, which only call back."""
    own = inspect.signature(command, eval_str=True).parameters
    kinds = {name: each.annotation for name, each in own.items()}
    groups = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Options)}
    flat: list[inspect.Parameter] = []
    for name, each in own.items():
        flat += groups[name].parameters() if name in groups else [each.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    for group in more:
        flat += group.parameters()

    def call(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{each: values.pop(each) for each in group.declared()})
        command(**{name: values[name] for name in own})

    call.__doc__ = command.__doc__
    call.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    return call


Dumps = Annotated[list[str], typer.Argument(metavar="DUMP", hidden=True)]  # the help would say <list[str]>
OptionalDumps = Annotated[list[str] | None, typer.Argument(metavar="DUMP", hidden=True)]

rejector_option = partial(option, "The rejector so far; - is standard input.", "FILE")
force_option = partial(flag, "Overwrite what exists.")


class RejectorOptions(Options):
    """The rejector to use."""

    rejector: str = rejector_option(default=REQUIRED)


class OutputOptions(Options):
    """Where a document goes."""

    output: str = option("Where to write; - is standard output.", "FILE", default=STDIN)
    force: bool = force_option()

    def file(self, rejector: str | None = None) -> OutputFile:
        """The file to be written; `-r R -o R` needs no --force."""
        from drrej.outputs.destinations import OutputFile

        return OutputFile(self.output, self.force, updates=rejector)


class EngineOptions(Options):
    """What runs the passes, and whether it may say something."""

    jobs: int = rare("Workers on this machine; 0 is all cores.", "N", ENGINE, 0)
    cluster: str | None = rare(
        "Work on a Dask cluster: tls://HOST:8786 or tcp://HOST:8786.",
        "ADDRESS",
        ENGINE,
        envvar="DASK_SCHEDULER_ADDRESS",
    )
    quiet: bool = flag("No progress, no warnings.")

    def start(self, log: Progress | None = None) -> Engine:
        """What runs the passes: this machine, or a cluster; `log` is told how far they are."""
        if self.jobs < 0:
            raise OptionError(f"--jobs {self.jobs}: it must be 0 (all cores) or more")
        shown = log or progress(self.quiet)
        if self.cluster is None:
            from drrej.engines.local import LocalEngine

            return LocalEngine(self.jobs, shown, processes=True)
        from drrej.engines.dask import DaskEngine, connect, is_open_to_strangers

        client = connect(self.cluster)
        if is_open_to_strangers(self.cluster):
            warn(
                f"{self.cluster} is not encrypted: whoever reaches it can read the rows and run code as you", self.quiet
            )
        return DaskEngine(client, shown)


# What is read

on_bad_file_option = partial(
    rare, "What becomes of a file that cannot be read; skip: it is left out.", panel=READING, default="error"
)
max_bad_option = partial(
    rare, "Exit 2 if more of the rows, or files, are bad.", "SHARE", READING, show_default="no limit"
)
on_unseen_group_option = partial(
    rare, "What becomes of a row of a group that the threshold does not know.", default="error"
)


class SkipOptions(Options):
    """What becomes of bad rows and files where there is no mask that could reject them."""

    on_bad_row: OnBad = rare(
        "What becomes of a row without usable scores; skip: it is left out.", panel=READING, default="error"
    )
    on_bad_file: OnBad = on_bad_file_option()
    max_bad: float | None = max_bad_option()


class MaskRowOptions(Options):
    """What a mask holds, and what becomes of bad rows, bad files and unknown groups."""

    keep: str | None = option("Comma list of columns to copy.", "COLS", show_default="all but the logits")
    on_bad_row: Literal["error", "reject", "skip"] = option(
        "What becomes of a row without usable scores; skip: it is left out.", default="error"
    )
    on_unseen_group: Literal["error", "reject"] = on_unseen_group_option()
    on_bad_file: OnBad = on_bad_file_option()
    max_bad: float | None = max_bad_option()


class ScoreOptions(Options):
    """How scores and labels are found in a dump."""

    logits: str | None = option("A column, a path, a glob such as 'prob_*', or a list: A,B.", "COL", READING)
    label: str | None = option("Label column.", "COL", READING, show_default="label")
    input: Literal["logits", "probs", "log-probs"] | None = option(
        "What the scores are; log-probs only where a class may have 0.", panel=READING, show_default="logits"
    )
    normalize: bool = rare_flag("Divide each row of --input probs by its sum, whatever that is.", panel=READING)
    binary: bool = rare_flag("One score per row: that of class 1.", panel=READING)
    classes: str | None = rare("Class names in logit order: a file or a comma list.", "NAMES", READING)

    def source(self, dumps: list[str], engine: Engine) -> Source:
        """The dump to read; a group that also has options for bad rows and files brings them along."""
        from drrej.data.dump import DumpOptions
        from drrej.engines.local import reuse_memory
        from drrej.pipeline.source import Source

        reuse_memory()
        given = {name: value for name, value in vars(self).items() if name in DumpOptions.__struct_fields__}
        given = {name: value for name, value in given.items() if value is not None and value is not False}
        if self.classes is not None:
            given["classes"] = _class_names(self.classes)
        if isinstance(self, SkipOptions | MaskRowOptions):
            if self.max_bad is not None and self.on_bad_row == self.on_bad_file == "error":
                raise OptionError(
                    "--max-bad goes with --on-bad-row or --on-bad-file: without them the first bad row or file is an "
                    "error"
                )
            given["on_bad_row"] = "skip" if self.on_bad_row == "skip" else "error"
        source = Source(dumps, DumpOptions(**given), engine)
        check_one_stdin(source)
        return source


class LabelOptions(ScoreOptions):
    """How scores are found in a dump, and labels in it or beside it."""

    labels_from: str | None = rare("Labels kept in another file, of any format.", "FILE", READING)
    on_missing_label: OnBad | None = rare(
        "What becomes of rows without a label (null, or not in --labels-from).", panel=READING, show_default="error"
    )


class InputOptions(LabelOptions):
    """How a dump is read."""

    join_on: str | None = rare("Key column shared with --labels-from; arrays go row by row.", "COL", READING)


class StepInput(SkipOptions, InputOptions):
    """How the dump of a step is read, and what becomes of bad rows and files."""


class JudgedInput(StepInput):
    """How a dump is read whose labels are compared with predictions."""

    on_unknown_label: Literal["error", "wrong", "skip"] | None = rare(
        "Rows whose label is not a class of the model; wrong: they are errors, skip: leave them out.",
        panel=READING,
        show_default="error",
    )


class LayoutOptions(InputOptions):
    """How dumps and logs of lm-evaluation-harness are read."""

    filter: str | None = rare("Of a log of lm-evaluation-harness with several filters.", "NAME", READING)
    per_length: bool = rare_flag("Divide log-likelihoods of choices by their length in characters.", panel=READING)


def _class_names(text: str) -> tuple[str, ...]:
    if os.path.isfile(text):
        try:
            with open(text, encoding="utf-8") as stream:
                names = [line.rstrip("\r\n") for line in stream if line.strip()]
        except (OSError, UnicodeDecodeError):
            raise OptionError(f"--classes {text}: the file cannot be read as lines of text") from None
    else:
        names = [name.strip() for name in text.split(",")]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise OptionError(f"--classes: the name '{repeated}' occurs twice")
    if len(names) < 2 or "" in names:
        hint = "" if "," in text else " (or is it a file that does not exist?)"
        raise OptionError(f"--classes {text}: name at least two classes, none of them empty{hint}")
    return tuple(names)


def names_of(text: str | None) -> list[str] | None:
    """The columns of a comma list."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def bytes_of(memory: str | None) -> int | None:
    """The size of --memory."""
    if memory is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]?)(?:I?B)?\s*", memory.upper(), re.ASCII)
    if match is None:
        raise OptionError(f"--memory '{memory}': write a size such as 500M or 4G")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2] or " "))


def check_one_stdin(*sources: Source, rejector: str | None = None) -> None:
    """Standard input can be read for one thing only."""
    named = [rejector]
    for source in sources:
        named += [*source.arguments, source.options.labels_from]
    if named.count(STDIN) > 1:
        raise OptionError("standard input cannot be both of two inputs; give all but one of them as files")


def check_spared(*inputs: str | None) -> None:
    """Raise when an output would replace one of these files, which are inputs besides the dumps."""
    from drrej.outputs.destinations import check_inputs

    check_inputs(name for name in inputs if name is not None and ("://" in name or os.path.isfile(name)))


def read_rejector(path: str, source: Source, needs: Section) -> Rejector:
    """The rejector document behind `-r`, checked to have a section (and those before it)."""
    from drrej.documents.rejector import Rejector

    check_one_stdin(source, rejector=path)
    check_spared(path)
    where = "standard input" if path == STDIN else path
    raw = _content(path)
    if not raw.strip():
        reason = "; the step before it in the pipe failed" if path == STDIN else ""
        raise RejectorError(f"{where}: no rejector: it is empty{reason}")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise RejectorError(f"{where}: not a JSON document; is it a rejector?") from None
    rejector = Rejector.from_json(text, where)
    try:
        getattr(rejector, f"need_{needs}")()
    except RejectorError as error:
        raise RejectorError(f"{where}: {error}") from None
    return rejector


def _content(path: str) -> bytes:
    if path == STDIN:
        if sys.stdin is None:
            raise RejectorError("standard input: it is closed; name a file with -r")
        return sys.stdin.buffer.read()
    try:
        if "://" not in path:
            with open(path, "rb") as stream:
                return stream.read()
        import pyarrow.fs as pafs

        filesystem, key = pafs.FileSystem.from_uri(path)
        with filesystem.open_input_stream(key) as remote:
            content: bytes = remote.read()
        return content
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())[:300]
        raise RejectorError(f"{path}: cannot be read ({reason})") from None
