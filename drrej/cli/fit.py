"""drrej fit."""

from __future__ import annotations

from drrej.cli.console import say_notes
from drrej.cli.main import app
from drrej.cli.options import Dumps, Output, Precision, RatioChoice, Reading, Start, grouped
from drrej.cli.parameters import Command


@app.command(cls=Command)
@grouped
def fit(
    dumps: Dumps,
    start: Start = Start(),
    ratio: RatioChoice = RatioChoice(),
    output: Output = Output(),
    reading: Reading = Reading(),
    precision: Precision = Precision(),
) -> None:
    """Add the density ratio (labels are needed for --loss learned and auto only)."""
    from drrej.pipeline.fit import fit as step

    source = reading.source(dumps)
    with output.open(same_as=start.rejector) as file:
        rejector = start.rejector_for(source, ratio.loss_column, precision)
        fitted = step(source, rejector, ratio.options(rejector.class_names))
        say_notes(source, reading.quiet)
        file.write_text(fitted.to_json())
        file.commit()
