"""The application and its exit codes: 0 done, 1 the data say no, 2 anything else that is wrong."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Sequence
from functools import cache
from types import FrameType
from typing import Annotated, Any, Never

import typer

from drrej._version import __version__
from drrej.cli.command import Group
from drrej.cli.commands import COMMANDS, register
from drrej.cli.configuration import chosen
from drrej.cli.console import complain, show
from drrej.cli.options import FLAG
from drrej.core import special
from drrej.errors import BadRowsError, DrrejError

WRONG = 2
INTERRUPTED = 128 + signal.SIGINT
BROKEN_PIPE = 128 + signal.SIGPIPE

_COMPLETING = "_DRREJ_COMPLETE" in os.environ or bool(
    {"--install-completion", "--show-completion", "--help", "-h"} & set(sys.argv[1:2])
)
"""Whether options for completion may be meant: to have them imports pydantic, see `command`."""

app = typer.Typer(
    name="drrej",
    cls=Group,
    help="Let a classifier say 'I don't know': rejection by density ratios on saved logits.",
    epilog="""
calibrate | fit | threshold make a rejector; evaluate and reject apply it; run does all of it.

drrej inspect val.parquet

drrej run --val val.parquet --test test.parquet --coverage 0.8 -o out
""",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=_COMPLETING,
    add_help_option=False,  # see `_top`
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        show(f"drrej {__version__}\n")
        raise typer.Exit


def _help(context: typer.Context, wanted: bool) -> None:
    if wanted:
        show(context.get_help() + "\n")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool,
        typer.Option("--version", metavar=FLAG, callback=_version, is_eager=True, help="Show the version and exit."),
    ] = False,
    help: Annotated[
        bool,
        typer.Option("-h", "--help", metavar=FLAG, callback=_help, is_eager=True, help="Show this message and exit."),
    ] = False,
    config: Annotated[
        bool,
        typer.Option(
            "--config", metavar="FILE", help="Take options from this file too, see 'drrej config --help'; comes first."
        ),
    ] = False,
) -> None:
    pass


@cache
def command_group() -> Any:
    """All commands as typer makes them from their functions."""
    from typer.main import get_command

    register([])
    return get_command(app)


chosen.commands = lambda: {name: command_group().commands[name] for name in COMMANDS}


def main() -> Never:
    """Run the command line and exit with its code."""
    _stop.code = 0
    special.alone = True
    try:
        _take_signals()
        code = execute()
        gc.freeze()  # what is left is not worth looking through on the way out
    except (KeyboardInterrupt, SystemExit):
        code = _stop.code or INTERRUPTED
    if code and code in (INTERRUPTED, _stop.code):
        _leave(code)
    sys.exit(code)


def _leave(code: int) -> Never:
    """End at once, after what was registered for the end.

    Threads that were broken off may be in the midst of Arrow's work. When one of them comes back during Python's own
    end, that aborts the process.
    """
    with contextlib.suppress(BaseException):  # another signal
        atexit._run_exitfuncs()
        sys.stderr.flush()
    os._exit(code)


def execute(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (by default the process's own) and return its exit code."""
    code = _run(list(sys.argv[1:] if arguments is None else arguments))
    with contextlib.suppress(ValueError, AttributeError):  # closed or missing
        code = _flush(code)
    return code


def _run(arguments: list[str]) -> int:
    try:
        register(arguments)
        result = app(arguments, standalone_mode=False, prog_name="drrej")
        return result if isinstance(result, int) else 0
    except typer.Exit as exit_:
        return int(exit_.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit as exit_:  # typer turns a broken pipe into an exit with 1, which nothing else uses
        return _silence(BROKEN_PIPE) if exit_.code == 1 else int(exit_.code or 0)
    except Exception as error:
        if _stop.code:  # what a signal broke off, such as an import or the making of a class, may fail in any way
            return _stop.code
        if os.environ.get("DRREJ_DEBUG"):
            raise
        return _explain(error, arguments)


def _explain(error: Exception, arguments: list[str]) -> int:
    if isinstance(error, DrrejError):
        hint = " (or leave such rows out with --on-bad-row skip)" if isinstance(error, BadRowsError) else ""
        complain(f"{error}{hint}")
        return error.exit_code
    if hasattr(error, "format_message"):  # typer's own errors about the command line
        complain(_usage(error, arguments))
    elif isinstance(error, OSError):
        complain(f"{error.filename or 'standard output'}: {error.strerror or error} (DRREJ_DEBUG=1 shows where)")
        return _silence(WRONG)
    elif isinstance(error, MemoryError):
        complain("not enough memory")
    else:
        reason = " ".join(str(error).split()) or "no message"
        complain(f"unexpected {type(error).__name__}: {reason} (DRREJ_DEBUG=1 shows where)")
    return WRONG


def _usage(error: Any, arguments: list[str]) -> str:
    """An error of typer's in one line: the option with its value, what is wrong, where to look."""
    called = f"drrej {arguments[0]}" if arguments and arguments[0] in COMMANDS else "drrej"
    given = _given(error, arguments)
    message = str(error.message).removeprefix("Value error, ") if given else error.format_message()
    return f"{given}{' '.join(message.split())} (see '{called} --help')"


def _given(error: Any, arguments: list[str]) -> str:
    """The option and value that an error is about."""
    names = getattr(getattr(error, "param", None), "opts", ())
    for word, following in zip(arguments, [*arguments[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name.startswith("-") and name in names:
            return f"{name} {value if equals else following}: "
    return ""


def _flush(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _silence(BROKEN_PIPE)
    except OSError as error:
        complain(f"standard output: cannot be written ({error.strerror})")
        return _silence(WRONG)
    return code


def _silence(code: int) -> int:
    """Let the interpreter's own flush at exit go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _take_signals() -> None:
    sys.unraisablehook = _stop.unraisable
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in the background of a shell
        signal.signal(signal.SIGINT, _stop)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # when all is done, Python would die of it
    signal.signal(signal.SIGTERM, _stop)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # nohup has it ignored
        signal.signal(signal.SIGHUP, _stop)


class _Stop:
    """A signal to stop while a command runs: an exception, and silence about what it breaks off.

    `code` is the exit code of the signal that came, 0 before.
    """

    def __init__(self) -> None:
        self.code = 0

    def __call__(self, number: int, _frame: FrameType | None) -> Never:
        self.code = 128 + number
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(self.code)

    def unraisable(self, broken: sys.UnraisableHookArgs) -> None:
        """What Python says of an error where nobody can catch it, such as in a finalizer."""
        if not self.code:
            sys.__unraisablehook__(broken)


_stop = _Stop()
