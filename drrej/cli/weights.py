"""drrej weights."""

from __future__ import annotations

from typing import Annotated, Literal, Optional

import typer

from drrej.cli.console import say_notes
from drrej.cli.main import app
from drrej.cli.options import Dumps, Precision, RatioChoice, Reading, Start, grouped
from drrej.cli.parameters import Command
from drrej.errors import OptionError


@app.command(cls=Command)
@grouped
def weights(
    dumps: Dumps,
    start: Start = Start(),
    radius: Annotated[
        Optional[float],
        typer.Option("--radius", metavar="EPS", help="Worst case within this divergence of the data; solves lambda."),
    ] = None,
    ratio: RatioChoice = RatioChoice(),
    output: Annotated[
        Optional[str], typer.Option("-o", "--output", metavar="OUT", help="The weights, row for row, as parquet.")
    ] = None,
    keep: Annotated[
        Optional[str],
        typer.Option("--keep", metavar="COLS", help="Comma list of columns to copy [all but the logits]."),
    ] = None,
    format: Annotated[Literal["text", "json"], typer.Option("--format", help="What goes to standard output.")] = "text",
    force: Annotated[bool, typer.Option("-f", "--force", help="Overwrite what exists.")] = False,
    reading: Reading = Reading(),
    precision: Precision = Precision(),
) -> None:
    """Give the worst-case weights of a divergence ball around the data (DRO)."""
    from contextlib import nullcontext

    from drrej.outputs.files import OutputFile
    from drrej.pipeline.weights import weights as step
    from drrej.report.json import render_json
    from drrej.report.weights import render_weights

    if radius is not None and ratio.lam is not None:
        raise OptionError("give --radius or --lambda, not both: the radius fixes lambda")
    if radius is None and ratio.lam is None:
        raise OptionError("give --radius EPS (the ball) or --lambda L (the weight of the divergence)")
    source = reading.source(dumps)
    rejector = start.rejector_for(source, ratio.loss_column, precision)
    names = None if keep is None else [name.strip() for name in keep.split(",") if name.strip()]
    with OutputFile(output, force) if output is not None else nullcontext() as file:
        summary = step(source, rejector, ratio.options(rejector.class_names), radius, file, names)
        if file is not None:
            file.commit()
    say_notes(source, reading.quiet)
    if output != "-":
        typer.echo((render_json if format == "json" else render_weights)(summary), nl=False)
