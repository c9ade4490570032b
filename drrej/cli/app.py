"""The application: its commands, and its exit codes: 0 done, 1 the data say no, 2 anything else that is wrong.

A command is a function in the module of its name, whose docstring is the help.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import itertools
import os
import re
import signal
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from types import FrameType
from typing import Any, Never, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from drrej._version import __version__
from drrej.cli.config import RENAMED, settings
from drrej.cli.console import complain, is_terminal, show, silence
from drrej.cli.options import Options, flag, grouped, option
from drrej.errors import BadRowsError, DrrejError, OptionError

WRONG = 2
INTERRUPTED = 128 + signal.SIGINT
BROKEN_PIPE = 141  # 128 + SIGPIPE
_SHORT = re.compile(r"-([fq]*)o(.*)", re.DOTALL)
"""Short options in one word, the last with its value or before it: -oFILE, -fo FILE."""
_NO_MEMORY = re.compile("failed to map segment|[Cc]annot allocate memory|can't start new thread")
"""How libraries that are loaded, and threads that are started, tell that memory is short."""

PANELS = {
    "Get started": ("demo", "inspect", "run"),
    "Build": ("calibrate", "fit", "threshold"),
    "Use": ("evaluate", "reject", "monitor", "export"),
    "Plan": ("plan",),
    "Tools": ("cascade", "compare", "convert", "metrics", "config", "schema"),
}
_MODULES = {
    **dict.fromkeys(("calibrate", "fit", "threshold"), "build"),
    **dict.fromkeys(("demo", "compare", "metrics", "schema"), "tools"),
    "convert": "inspect",
}
COMMANDS = {name: panel for panel, names in PANELS.items() for name in names}
"""The commands with their panels, in the order of `drrej --help`."""

GONE = {
    "sweep": "alpha and lambda do not change the order of rows; see 'Compare settings' in docs/concepts.md",
    "weights": "the weights are functions of drrej.core.ratio; see 'Worst-case weights' in docs/proofs.md",
    "ensemble": "average the models' probabilities; see docs/guide-cascades.md",
    "help": "use 'drrej --help' or 'drrej COMMAND --help'",
}
"""Commands of earlier versions, and what to do in their place."""


def _show_version(wanted: bool) -> None:
    if wanted:
        show(f"drrej {__version__}\n")
        raise typer.Exit


def _show_help(context: typer.Context, parameter: typer.CallbackParam, wanted: bool) -> None:
    """Show the options for everyday use, or all; without colours in a pipe: typer colours it on GitHub's runners."""
    if not wanted:
        return
    from typer import rich_utils

    if not is_terminal(sys.stdout) and "FORCE_COLOR" not in os.environ:
        rich_utils.FORCE_TERMINAL = False
    command: Any = context.command
    rare = [] if parameter.name == "help_all" else getattr(command, "rare", [])
    if isinstance(command, Command):
        command.epilog = f"{len(rare)} more options: drrej {command.name} --help-all" if rare else None
    for each in rare:
        each.hidden = True
    show(context.get_help() + "\n")
    for each in rare:
        each.hidden = False
    raise typer.Exit


class _CommonOptions(Options):
    """What every command has besides its own options."""

    help_all: bool = flag("Show all options and exit.", callback=_show_help, is_eager=True)
    help: bool = flag("Show this message and exit.", callback=_show_help, is_eager=True)


_NUMBERS = {int: re.compile(r"[0-9]{1,15}"), float: re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")}


def take_plain_values(parameter: Any) -> None:
    """Take values that need no conversion without pydantic, through which typer 0.29 takes every value, given or not.

    Importing pydantic is a quarter of a small `reject`, 50 ms. Typer still converts whatever is not plain, so every
    message is its own. DRREJ_TYPER_VALUES=1 switches this off.
    """
    process, kind = parameter.process_value, getattr(getattr(parameter, "type_descriptor", None), "annotation", None)

    def process_value(context: Any, value: Any) -> Any:
        if isinstance(value, str) and kind in _NUMBERS and _NUMBERS[kind].fullmatch(value):
            value = kind(value)
        absent = value is None and not parameter.required
        texts = kind == list[str] and isinstance(value, list | tuple) and set(map(type, value)) == {str}
        if not (absent or texts or type(value) is kind or value in get_args(kind)):
            return process(context, value)
        if get_origin(kind) is list:
            value = list(value) if texts else ()
        return value if parameter.callback is None else parameter.callback(context, parameter, value)

    if kind is not None and os.environ.get("DRREJ_TYPER_VALUES", "0") == "0":  # older versions have no descriptor
        parameter.process_value = process_value


class Command(TyperCommand):
    """A command whose options may be configured; `rare` are those that its help does not show unless asked for all."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rare: list[TyperOption] = []
        for each in self.params:
            take_plain_values(each)
            if isinstance(each, TyperOption) and each.hidden:
                self.rare.append(each)
                each.hidden = False  # shells complete them

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Turn the words after the command's name into the values of its parameters."""
        Options.configured = {}
        given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        if not (ctx.resilient_parsing or {"help", "help_all"} & given.keys()):
            configured = settings(ctx.parent, str(self.name), given)
            Options.configured = ctx.default_map = {name: value for name, (value, _) in configured.items()}
        return super().parse_args(ctx, args)


class Group(TyperGroup):
    """All commands by name; the module of a command is imported when it is asked for."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.commands: Any = dict.fromkeys(COMMANDS)  # their names

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - as typer calls it
        """The command of a name, None if there is none."""
        if cmd_name in GONE:
            raise OptionError(f"'drrej {cmd_name}' was removed: {GONE[cmd_name]}")
        return command(cmd_name) if cmd_name in COMMANDS else None


@cache
def command(name: str) -> Any:
    """A command as typer makes it."""
    function = getattr(import_module(f"drrej.cli.{_MODULES.get(name, name)}"), name)
    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    single.command(name, cls=Command, rich_help_panel=COMMANDS[name], add_help_option=False)(
        grouped(function, _CommonOptions)
    )
    return get_command(single)


app = typer.Typer(
    name="drrej",
    cls=Group,
    help="Decide which predictions of a classifier to trust, from saved logits, probabilities or scores.",
    epilog="""
drrej demo

drrej inspect predictions.parquet

drrej run predictions.parquet --accuracy 0.98 -o out
""",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_help_option=False,
)


def _accept_edited(context: typer.Context, wanted: bool) -> None:
    """Let this run read documents that were edited: as the variable of that name does."""
    if wanted:
        os.environ["DRREJ_ACCEPT_EDITED"] = "1"
        context.call_on_close(lambda: os.environ.pop("DRREJ_ACCEPT_EDITED"))


def _top(
    version: bool = flag("Show the version and exit.", callback=_show_version, is_eager=True),
    accept_edited: bool = flag(
        "Accept documents that were edited after drrej wrote them; place it before the command.",
        callback=_accept_edited,
    ),
    config: str | None = option("Also read options from this file (see 'drrej config'); place it first.", "FILE"),
    help: bool = _CommonOptions.help,
) -> None:
    pass


app.callback()(grouped(_top))


@cache
def application() -> Any:
    """The program as typer makes it."""
    group = get_command(app)
    for parameter in group.params:
        take_plain_values(parameter)
        if str(parameter.name).endswith("_completion"):  # typer's own, without a value: the help would say <bool>
            parameter.metavar = ""
    return group


def main() -> Never:
    """Run the command line and exit with its code."""
    try:
        _take_signals()
        code = execute()
        gc.freeze()  # what is left is not worth looking through on the way out
    except (KeyboardInterrupt, SystemExit):
        code = [INTERRUPTED, *_stopped][-1]
    if code not in (INTERRUPTED, *_stopped):
        sys.exit(code)
    # Threads that were broken off may be in the midst of Arrow's work. When one of them comes back during Python's own
    # end, that aborts the process: so it ends at once, after what was registered for the end.
    with contextlib.suppress(BaseException):  # another signal
        atexit._run_exitfuncs()
        sys.stderr.flush()
    os._exit(code)


def execute(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (by default the process's own) and return its exit code."""
    code = _run(list(sys.argv[1:] if arguments is None else arguments))
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = BROKEN_PIPE
        silence(sys.stdout)
    except OSError as error:
        complain(f"standard output: cannot be written ({error.strerror})")
        code = WRONG
        silence(sys.stdout)
    except (ValueError, AttributeError):  # closed or missing
        pass
    return code


def _run(arguments: list[str]) -> int:
    try:
        epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
        if not epoch:
            os.environ.pop("SOURCE_DATE_EPOCH", None)
        elif not epoch.isdecimal():  # libraries fail on it when they are loaded
            raise OptionError(f"SOURCE_DATE_EPOCH={epoch}: it must be seconds since 1970, as a whole number")
        result = application()(arguments or ["--help"], standalone_mode=False, prog_name="drrej")
        return (result if isinstance(result, int) else 0) if arguments else 2
    except typer.Exit as exit_:
        return int(exit_.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit as exit_:  # typer turns a broken pipe into an exit with 1, which nothing else uses
        if exit_.code != 1:
            return int(exit_.code or 0)
        silence(sys.stdout)
        return BROKEN_PIPE
    except Exception as error:
        if _stopped:  # what a signal broke off, such as an import or the making of a class, may fail in any way
            return _stopped[-1]
        if os.environ.get("DRREJ_DEBUG"):
            raise
        return _explain(error, arguments)


def _explain(error: Exception, arguments: list[str]) -> int:
    """Complain, and also where CI looks: a report of an earlier run must not stand for this one."""
    if isinstance(error, DrrejError):
        hint = " (or leave such rows out with --on-bad-row skip)" if isinstance(error, BadRowsError) else ""
        message = f"{error}{hint}"
    elif hasattr(error, "format_message"):  # typer's own errors about the command line
        message = _usage(error, arguments)
    elif isinstance(error, OSError):
        message = f"{error.filename or 'standard output'}: {error.strerror or error} (DRREJ_DEBUG=1 shows where)"
    elif isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
        message = "not enough memory"
    else:
        reason = " ".join(str(error).split()) or "no message"
        message = f"unexpected {type(error).__name__}: {reason} (DRREJ_DEBUG=1 shows where)"
    complain(message)
    pieces = [piece for word in arguments for piece in _apart(word)]
    values = list(itertools.pairwise(pieces))
    format = next((value for word, value in values if word == "--format"), Options.configured.get("format", ""))
    outputs = [value for word, value in values if word in ("-o", "--output") and value.lower().endswith(".xml")]
    if (outputs or format) and not {"evaluate", "run", "monitor"}.isdisjoint(arguments):
        from drrej.cli.report_options import report_error

        report_error(message, format, outputs, force=not {"-f", "--force"}.isdisjoint(pieces))
    if isinstance(error, OSError):
        silence(sys.stdout)
    return error.exit_code if isinstance(error, DrrejError) else WRONG


def _apart(word: str) -> list[str]:
    """Options that share a word with each other or with their value, each by itself.

    >>> _apart("-fogates.xml"), _apart("--output=gates.xml"), _apart("risk=0.1")
    (['-f', '-o', 'gates.xml'], ['--output', 'gates.xml'], ['risk=0.1'])
    """
    if found := _SHORT.fullmatch(word):
        return [*(f"-{flag}" for flag in found[1]), "-o", *([found[2]] if found[2] else [])]
    return word.split("=", 1) if word.startswith("--") else [word]


def _usage(error: Any, arguments: list[str]) -> str:
    """An error of typer's in one line: the option with its value, what is wrong, where to look."""
    unknown = str(getattr(error, "option_name", "")).removeprefix("--")
    if unknown in RENAMED:
        return f"--{unknown}: {RENAMED[unknown]}"
    called = " ".join(["drrej", *[word for word in arguments if word in COMMANDS][:1]])
    names, message = getattr(getattr(error, "param", None), "opts", ()), error.format_message()
    for word, following in zip(arguments, [*arguments[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name.startswith("-") and name in names:
            reason = str(error.message).removeprefix("Value error, ")
            message = f"{name} {value if equals else following}: {reason}"
            break
    return f"{' '.join(message.split())} (see '{called} --help')"


def _take_signals() -> None:
    sys.unraisablehook = _unraisable
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in the background of a shell
        signal.signal(signal.SIGINT, _stop)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # when all is done, Python would die of it
    signal.signal(signal.SIGTERM, _stop)
    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    if hangup is not None and signal.getsignal(hangup) is signal.SIG_DFL:  # nohup has it ignored
        signal.signal(hangup, _stop)


_stopped: list[int] = []
"""The exit codes of the signals to stop that have come."""


def _stop(number: int, _frame: FrameType | None) -> Never:
    """A signal to stop while a command runs is an exception."""
    _stopped.append(128 + number)
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(_stopped[-1])


def _unraisable(broken: sys.UnraisableHookArgs) -> None:
    """An error where nobody can catch it, such as in a finalizer: silence about what a signal has broken off."""
    if not _stopped:
        sys.__unraisablehook__(broken)
