"""drrej help."""

from __future__ import annotations

from typing import Annotated

import typer

from drrej.cli.command import Command
from drrej.cli.main import app, execute

EXAMPLES = """
Examples:

drrej help

drrej help evaluate
"""


@app.command(cls=Command, epilog=EXAMPLES)
def help(
    command: Annotated[str | None, typer.Argument(metavar="COMMAND", hidden=True)] = None,
) -> None:
    """Show the help of drrej, or that of a command."""
    raise typer.Exit(execute([*([] if command is None else [command]), "--help"]))
