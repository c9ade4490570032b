"""drrej sweep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from drrej.cli.console import say_notes, show_curve
from drrej.cli.main import app
from drrej.cli.options import Dumps, Output, Precision, Reading, Start, grouped
from drrej.cli.parameters import Command
from drrej.errors import OptionError


@app.command(cls=Command)
@grouped
def sweep(
    dumps: Dumps,
    start: Start = Start(),
    alpha: Annotated[str, typer.Option("--alpha", metavar="A,...", help="Comma list of alphas.")] = "1,3",
    lam: Annotated[str, typer.Option("--lambda", metavar="L,...", help="Comma list of lambdas.")] = "1",
    loss: Annotated[
        str, typer.Option("--loss", metavar="NAME,...", help="Comma list of log, zero-one, brier.")
    ] = "log",
    no_labels: Annotated[bool, typer.Option("--no-labels", help="Leave out what needs labels.")] = False,
    format: Annotated[Literal["text", "json", "csv"], typer.Option("--format", help="Format of the table.")] = "text",
    output: Output = Output(),
    reading: Reading = Reading(),
    precision: Precision = Precision(),
) -> None:
    """Compare alphas, lambdas and losses: the coverage that tau reaches, the flat part, accuracy."""
    from drrej.pipeline.sweep import Grid
    from drrej.pipeline.sweep import sweep as step
    from drrej.report.json import render_json
    from drrej.report.sweep import render_sweep, render_sweep_csv

    grid = Grid(_numbers("--alpha", alpha), _numbers("--lambda", lam), [part.strip() for part in loss.split(",")])
    render: dict[str, Callable[[Any], str]] = {
        "text": render_sweep,
        "json": render_json,
        "csv": render_sweep_csv,
    }
    source = reading.source(dumps)
    with output.open() as file:
        rejector = start.rejector_for(source, None, precision)
        table = step(source, rejector, grid, labelled=not no_labels)
        say_notes(source, reading.quiet)
        file.write_text(render[format](table))
        file.commit()
    if format == "text" and output.output == "-":
        for name, curve in table.get("curves", {}).items():
            show_curve(curve, title=f"accuracy by the loss '{name}'")


def _numbers(option: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise OptionError(f"{option} {text}: write numbers separated by commas, such as 1,3,5") from None
