"""drrej fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drrej.cli.console import say_notes
from drrej.cli.options import (
    Dumps,
    EngineOptions,
    Options,
    OutputOptions,
    StepInput,
    check_spared,
    read_rejector,
    rejector_option,
)
from drrej.cli.rule_options import (
    ObjectiveOptions,
    Precision,
    RegressionOptions,
    floor_option,
    precision_option,
    temperature_option,
)
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.documents.rejector import Rejector
    from drrej.pipeline.source import Source


class StartOptions(Options):
    """What the step starts from: a rejector, a temperature in its place, or the own loss of rows without logits."""

    rejector: str | None = rejector_option()
    temperature: float | None = temperature_option()
    floor: float | None = floor_option()
    precision: Precision | None = precision_option()

    def rejector_for(self, source: Source, loss_column: str | None, regression: RegressionOptions) -> Rejector:
        """A calibrated rejector."""
        from drrej.pipeline.fit import uncalibrated, without_logits

        precision = self.precision or "auto"
        if self.floor is not None and self.temperature is None:
            raise OptionError(
                "--floor is remembered in the rejector; give it to 'drrej calibrate', or with --temperature"
            )
        if loss_column is not None and self.rejector is None and self.temperature is None:
            return without_logits(loss_column, precision, regression.prediction, regression.target)
        regression.refuse()
        if self.rejector is not None and self.temperature is None:
            if self.precision is not None:
                raise OptionError("--precision is remembered in the rejector of -r; give it to 'drrej calibrate'")
            return read_rejector(self.rejector, source, "calibration")
        if self.temperature is not None and self.rejector is None:
            return uncalibrated(source, self.temperature, precision, self.floor)
        raise OptionError("give either -r REJECTOR (from 'drrej calibrate') or --temperature T (1 for none)")


def fit(
    dumps: Dumps,
    start: StartOptions,
    output: OutputOptions,
    objective: ObjectiveOptions,
    regression: RegressionOptions,
    input: StepInput,
    engine: EngineOptions,
) -> None:
    """Add the density ratio (labels are needed for --loss learned and auto only).

    DUMP: parquet files, directories, globs or URIs; - is standard input.

    Examples:
    drrej fit val.parquet -r calibrated.json -o fitted.json
    drrej fit val.parquet -r calibrated.json --loss auto --divergence chi2
    drrej fit forecasts.parquet --loss column --loss-column variance

    """
    from drrej.pipeline.fit import fit as step

    source = input.source(dumps, engine.start())
    with output.file(start.rejector) as file:
        check_spared(input.classes, objective.cost_matrix)
        rejector = start.rejector_for(source, objective.loss_column, regression)
        fitted = step(source, rejector, objective.ratio_options(rejector.class_names))
        say_notes(source, engine.quiet, rejector.floor)
        file.write_text(fitted.to_json())
        file.commit()
