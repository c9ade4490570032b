"""drrej inspect."""

from __future__ import annotations

from typing import Annotated

import typer

from drrej.cli.flags import in_flags
from drrej.cli.main import app
from drrej.cli.options import Reading, grouped
from drrej.cli.parameters import Command


@app.command(cls=Command)
@grouped
def inspect(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Dumps or rejectors.")],
    reading: Reading = Reading(),
) -> None:
    """Tell what a dump holds and how to go on, or what a rejector does."""
    from drrej.pipeline.inspect import describe

    for number, path in enumerate(files):
        if number:
            typer.echo("")
        typer.echo(in_flags(describe(path, reading.source([path]))))
