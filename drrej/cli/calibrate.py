"""drrej calibrate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drrej.cli.console import say_notes, warn
from drrej.cli.options import Dumps, EngineOptions, OutputOptions, StepInput, check_spared
from drrej.cli.rule_options import CalibrationOptions

if TYPE_CHECKING:
    from drrej.documents.rejector import Calibration


def calibrate(
    dumps: Dumps, output: OutputOptions, calibration: CalibrationOptions, input: StepInput, engine: EngineOptions
) -> None:
    """Start a rejector: fit the temperature, or another calibrator, on labelled rows.

    DUMP: parquet files, directories, globs or URIs; - is standard input.

    Examples:
    drrej calibrate val.parquet -o rejector.json
    drrej calibrate wide.parquet --logits 'logit_*' --label truth
    drrej calibrate val.parquet | drrej fit val.parquet -r -

    """
    from drrej.pipeline.calibrate import calibrate as step

    source = input.source(dumps, engine.start())
    with output.file() as file:
        check_spared(input.classes)
        rejector = step(source, calibration.calibrate_options())
        file.write_text(rejector.to_json())
        file.commit()
    say_notes(source, engine.quiet, rejector.floor)
    warn_calibration(rejector.need_calibration(), engine.quiet)


def warn_calibration(calibration: Calibration, quiet: bool) -> None:
    """Tell what is odd about a calibration."""
    from drrej.documents.words import calibration_warnings

    for words in calibration_warnings(calibration):
        warn(words, quiet)
