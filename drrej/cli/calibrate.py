"""drrej calibrate."""

from __future__ import annotations

from drrej.cli.console import complain, say_notes
from drrej.cli.main import app
from drrej.cli.options import Dumps, Memory, Output, Precision, Reading, grouped
from drrej.cli.parameters import Command


@app.command(cls=Command)
@grouped
def calibrate(
    dumps: Dumps,
    output: Output = Output(),
    reading: Reading = Reading(),
    precision: Precision = Precision(),
    memory: Memory = Memory(),
) -> None:
    """Start a rejector: fit the temperature on labelled rows."""
    from drrej.pipeline.calibrate import CalibrateOptions
    from drrej.pipeline.calibrate import calibrate as step

    source = reading.source(dumps)
    with output.open() as file:
        rejector = step(source, CalibrateOptions(precision.chosen, memory.bytes()))
        say_notes(source, reading.quiet)
        warn_unconverged(rejector.need_calibration().converged, reading.quiet)
        file.write_text(rejector.to_json())
        file.commit()


def warn_unconverged(converged: bool | None, quiet: bool) -> None:
    """Tell when the likelihood has no maximum at a finite temperature."""
    if converged is False and not quiet:
        complain("the best temperature lies at or beyond the end of [0.001, 1000]; the nearest was taken", "warning")
