"""drrej calibrate, fit and threshold: the steps that make a rejector."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

from drrej.cli.console import in_flags, say_notes, show, warn
from drrej.cli.input_options import Dumps, JudgedInput, RegressionOptions, check_spared, read_rejector, rejector_option
from drrej.cli.options import REQUIRED, STREAM, EngineOptions, Options, OutputOptions, open_files, rare
from drrej.cli.report_options import own_ending, written
from drrej.cli.rule_options import CalibrationOptions, ObjectiveOptions, Precision, RuleOptions
from drrej.data.problems import redacted
from drrej.errors import OptionError, printable

if TYPE_CHECKING:
    from drrej.documents.rejector import Rejector
    from drrej.pipeline.source import Source


StepInput = Annotated[JudgedInput, {"on_unknown_label": None}]
"""How a dump is read that a rejector is made of."""


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
    from drrej.documents.words import calibration_warnings
    from drrej.outputs.destinations import OutputFile
    from drrej.pipeline.calibrate import calibrate as step

    with OutputFile(output.output, output.force) as file:
        source = input.source(dumps, engine.start())
        rejector = step(source, calibration.calibrate_options())
        file.write_text(rejector.to_json())
        file.commit()
    say_notes(source, engine.quiet, rejector.floor)
    for words in calibration_warnings(rejector.need_calibration()):
        warn(words, engine.quiet)


class StartOptions(Options):
    """What `fit` starts from: a rejector, a temperature in its place, or the own loss of rows without logits."""

    rejector: str | None = rejector_option()
    temperature: float | None = rare("Use this temperature instead of a fitted one (1: logits as they are).", "T")
    floor: float | None = CalibrationOptions.floor
    precision: Precision | None = CalibrationOptions.precision

    def rejector_for(
        self, source: Source, loss_column: str | None, regression: RegressionOptions, prediction: str | None
    ) -> Rejector:
        """A calibrated rejector."""
        from drrej.pipeline.fit import uncalibrated, without_logits

        precision = self.precision or "auto"
        if self.floor is not None and self.temperature is None:
            raise OptionError(
                "--floor is stored in the rejector; pass it to 'drrej calibrate', or together with --temperature"
            )
        if loss_column is not None and self.rejector is None and self.temperature is None:
            return without_logits(loss_column, precision, prediction, regression.target)
        regression.refuse()
        if self.rejector is not None and self.temperature is None:
            if self.precision is not None:
                raise OptionError("--precision is stored in the rejector of -r; pass it to 'drrej calibrate'")
            return read_rejector(self.rejector, source, "calibration")
        if self.temperature is not None and self.rejector is None:
            return uncalibrated(source, self.temperature, precision, self.floor)
        raise OptionError("give either -r REJECTOR (from 'drrej calibrate') or --temperature T (1 for none)")


def fit(
    dumps: Dumps,
    start: StartOptions,
    output: OutputOptions,
    objective: ObjectiveOptions,
    regression: Annotated[RegressionOptions, {"task": None}],
    input: StepInput,
    engine: EngineOptions,
) -> None:
    """Add the loss and the density ratio; with labels, the loss is learned from them (--loss auto).

    DUMP: parquet files, directories, globs or URIs; - is standard input.

    Examples:
    drrej fit val.parquet -r calibrated.json -o fitted.json
    drrej fit val.parquet -r calibrated.json --loss log --divergence chi2
    drrej fit forecasts.parquet --loss column --loss-column variance

    """
    from drrej.outputs.destinations import OutputFile
    from drrej.pipeline.fit import fit as step

    with OutputFile(output.output, output.force, updates=start.rejector) as file:
        source = input.source(dumps, engine.start())
        check_spared(objective.cost_matrix)
        rejector = start.rejector_for(source, objective.loss_column, regression, input.prediction)
        fitted = step(source, rejector, objective.ratio_options(rejector.class_names))
        say_notes(source, engine.quiet, rejector.floor)
        file.write_text(fitted.to_json())
        file.commit()


class ThresholdFiles(Options):
    """The rejector, before and after, and what is written besides."""

    rejector: str = rejector_option(default=REQUIRED)
    output: str = OutputOptions.output
    force: bool = OutputOptions.force
    mask: str | None = rare("Also write the mask of these rows.", "FILE")
    table: str | None = rare("Also write every candidate cutoff, as .parquet or .csv.", "FILE")


def check_table(path: str | None) -> None:
    """Raise unless the ending of --table is one of a table."""
    if path is not None and not path.lower().endswith((".parquet", ".csv")):
        raise OptionError(f"--table {path}: the ending determines the format; use .parquet or .csv")


def threshold(
    dumps: Dumps, files: ThresholdFiles, rule: RuleOptions, input: JudgedInput, engine: EngineOptions
) -> None:
    """Add the threshold by one rule (an accuracy, a coverage, a cost, a tau ...) or by several promises together.

    DUMP: parquet files, directories, globs or URIs; - is standard input.

    Examples:
    drrej threshold fresh.parquet -r fitted.json --accuracy 0.98 --confidence 0.95
    drrej threshold val.parquet -r fitted.json --risk 0.02 --cutoff-by prediction
    drrej threshold val.parquet -r fitted.json --error-cost 50 --review-cost 2

    """
    from drrej.outputs.destinations import OutputFile
    from drrej.outputs.masks import write_table
    from drrej.pipeline.reject import reject
    from drrej.pipeline.threshold import ThresholdOptions, choose_threshold, uncertified_words, vacuous_words

    chosen_by = rule.rule()
    rule.check_needs(group="confidence")
    check_table(files.table)
    with ExitStack() as stack:
        document = stack.enter_context(OutputFile(files.output, files.force, updates=files.rejector))
        masks = open_files(stack, [files.mask], files.force)
        tables = open_files(stack, [files.table], files.force)
        source = input.source(dumps, engine.start())
        start = read_rejector(files.rejector, source, "ratio")
        options = rule.into(ThresholdOptions, by=rule.cutoff_by)
        found = choose_threshold(source, start, chosen_by, options, bool(tables))
        say_notes(source, engine.quiet, found.rejector.floor)
        for words in (found.caution, uncertified_words(found.rejector)):
            warn(words, engine.quiet)
        warn(vacuous_words(found.rejector), engine.quiet, "note")
        document.write_text(found.rejector.to_json())
        for mask in masks:
            reject(source, found.rejector, mask)
        for table in tables:
            write_table(found.candidates, table.path, table.target)
        for file in (*masks, *tables, document):
            file.commit()
    if files.output != STREAM and not engine.quiet:
        show(_summary(found.rejector, files, dumps))


def _summary(rejector: Rejector, files: ThresholdFiles, dumps: Sequence[str]) -> str:
    """What was chosen, the files that were written and the next command; the answer first."""
    from drrej.documents.words import threshold_lines

    found = rejector.need_threshold()
    share = f"{100 * found.coverage:.1f} % of {found.rows:,} rows"
    right = "" if found.accuracy is None else f"; {100 * found.accuracy:.1f} % of the accepted rows are right"
    lines = [f"Accepts {share}{right}.", ""]
    lines += map(in_flags, threshold_lines(rejector))
    paths = [files.output, *(path for path in (files.mask, files.table) if path is not None)]
    lines += ["", *(f"{label:6}  {text}" for label, text in written(paths, None))]
    lines.append(f"{'Next':6}  drrej evaluate TEST{own_ending(dumps)} -r {shlex.quote(redacted(files.output))}")
    return "\n".join(printable(line) for line in lines) + "\n"
