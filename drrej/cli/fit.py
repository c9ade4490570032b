"""drrej fit."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from drrej.cli.console import say_notes
from drrej.cli.main import app
from drrej.cli.options import Dumps, Output, Precision, RatioChoice, Reading, grouped, read_rejector
from drrej.errors import OptionError


@app.command()
@grouped
def fit(
    dumps: Dumps,
    rejector: Annotated[
        Optional[str],
        typer.Option("-r", "--rejector", metavar="FILE", help="The rejector so far; - is standard input."),
    ] = None,
    temperature: Annotated[
        Optional[float], typer.Option("--temperature", metavar="T", help="Instead of -r: use this temperature.")
    ] = None,
    ratio: RatioChoice = RatioChoice(),
    output: Output = Output(),
    reading: Reading = Reading(),
    precision: Precision = Precision(),
) -> None:
    """Add the density ratio (labels are not needed)."""
    from drrej.steps.fit import fit as step
    from drrej.steps.fit import uncalibrated

    options = ratio.options()
    if (rejector is None) == (temperature is None):
        raise OptionError("give either -r REJECTOR (from 'drrej calibrate') or --temperature T (1 for none)")
    if rejector is not None and precision.precision is not None:
        raise OptionError("--precision is remembered in the rejector of -r; give it to 'drrej calibrate'")
    source = reading.source(dumps)
    with output.open(same_as=rejector) as file:
        if rejector is not None:
            start = read_rejector(rejector, source, "calibration")
        else:
            assert temperature is not None
            start = uncalibrated(source, temperature, precision.chosen)
        fitted = step(source, start, options)
        say_notes(source, reading.quiet)
        file.write_text(fitted.to_json())
        file.commit()
