"""drrej reject."""

from __future__ import annotations

import os
from typing import Annotated, Literal, Optional

import typer

from drrej.cli.console import complain, say_notes
from drrej.cli.main import app
from drrej.cli.options import Dumps, Reading, RejectorIn, grouped, read_rejector
from drrej.cli.parameters import Command


@app.command(cls=Command)
@grouped
def reject(
    dumps: Dumps,
    rejector: RejectorIn,
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", metavar="OUT", help="The mask: a parquet file, - or DIR/ (one file per input file)."
        ),
    ],
    keep: Annotated[
        Optional[str],
        typer.Option("--keep", metavar="COLS", help="Comma list of columns to copy [all but the logits]."),
    ] = None,
    on_bad_row: Annotated[
        Literal["error", "reject"], typer.Option("--on-bad-row", help="A row without usable scores.")
    ] = "error",
    on_unseen_group: Annotated[
        Literal["error", "reject"],
        typer.Option("--on-unseen-group", help="A row of a group that the threshold does not know."),
    ] = "error",
    force: Annotated[bool, typer.Option("-f", "--force", help="Overwrite what exists.")] = False,
    reading: Reading = Reading(),
) -> None:
    """Write the rejection mask, row for row."""
    from drrej.outputs.files import OutputFile
    from drrej.pipeline.reject import MaskOptions
    from drrej.pipeline.reject import reject as step

    names = None if keep is None else [name.strip() for name in keep.split(",") if name.strip()]
    source = reading.source(dumps)
    whole_directory = output.endswith("/") or os.path.isdir(output)
    options = MaskOptions(names, on_bad_row, on_unseen_group)
    with source.engine.dataset(output, force) if whole_directory else OutputFile(output, force) as place:
        counts = step(source, read_rejector(rejector, source, "threshold"), place, options)
        place.commit()
    say_notes(source, reading.quiet)
    if counts.reused and not reading.quiet:
        complain(f"{counts.reused} files were finished by an earlier run and are used again", "note")
    if counts.bad:
        complain(f"{counts.bad} of {counts.rows} rows have no usable scores and were rejected", "warning")
