"""drrej run."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct
from msgspec.structs import replace

from drrej.cli.calibrate import warn_calibration
from drrej.cli.console import say_notes, show, warn
from drrej.cli.input_options import EngineOptions, InputOptions, MaskRowOptions, check_one_stdin, check_spared
from drrej.cli.options import Force, OptionalDumps, option
from drrej.cli.reject import warn_bad_rows
from drrej.cli.report_options import (
    REPORT,
    ComparisonOptions,
    Format,
    ReportOptions,
    exit_by_gates,
    gates_of,
    warn_of_report,
    with_words,
)
from drrej.cli.rule_options import (
    GUARANTEE,
    CalibrationOptions,
    LossName,
    ObjectiveOptions,
    RuleOptions,
    Table,
    Temperature,
    check_table,
)
from drrej.cli.run_inputs import RowOptions, RunInputs, run_inputs
from drrej.cli.threshold import warn_uncertified
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.core.thresholds import Rule
    from drrej.documents.rejector import Rejector
    from drrej.pipeline.source import Source
    from drrej.pipeline.split import SplitOptions
    from drrej.pipeline.threshold import ChosenThreshold, ThresholdOptions

FILES = ("mask.parquet", "rejector.json", "report.json", "report.txt", "report.html")
"""What is written; the page where it can be drawn."""

_PROMISED = ("accuracy", "risk", "coverage", "mean-cost")
"""Rules that are certified by default where rows are fresh."""

EXAMPLES = """
drrej run predictions.parquet --accuracy 0.98 -o out
drrej run predictions.parquet --coverage 0.8 --split 40,20,20,20 -o out
drrej run --val val.parquet --test test.parquet --coverage 0.8 -o out
"""


class RunOutput(Struct, frozen=True):
    """What is written and shown."""

    output: Annotated[str, option("-o --output DIR", "Directory for the results.")]
    force: Force = False
    format: Format = "text"
    table: Table = None


class RunRule(RuleOptions, frozen=True):
    """The rule, which is a guarantee by default where rows are fresh."""

    confidence: Annotated[
        float | None,
        option(
            "--confidence P",
            "Make the rule hold on new rows with probability P; 0 for no guarantee.",
            GUARANTEE,
            show_default="0.95 on fresh rows, if there are enough",
        ),
    ] = None


class RunObjective(ObjectiveOptions, frozen=True):
    """The objective, with the loss chosen by what ranks best."""

    loss: LossName = "auto"


class RunCalibration(CalibrationOptions, frozen=True):
    """How the calibrator is fitted, or a temperature in its place."""

    temperature: Temperature = None

    def check(self) -> None:
        """Raise when a temperature is given and something is said of how to fit it."""
        if self.temperature is not None and self.memory is not None:
            raise OptionError("--memory is for fitting the temperature; it does not go with --temperature T")
        if self.temperature is not None and self.calibrator is not None:
            raise OptionError("--calibrator says what is fitted; it does not go with --temperature T, which is given")

    def rejector(self, source: Source) -> Rejector:
        """The rejector to start with."""
        from drrej.pipeline.calibrate import calibrate
        from drrej.pipeline.fit import uncalibrated

        if self.temperature is None:
            return calibrate(source, self.options())
        return uncalibrated(source, self.temperature, self.precision or "auto", self.floor)


class RunReport(ReportOptions, frozen=True):
    """What the report holds: groups that have a cutoff of their own, unless others are named."""

    report_by: Annotated[
        str | None,
        option(
            "--report-by COL", "Also report by a column, 'prediction' or 'label'.", REPORT, show_default="--cutoff-by"
        ),
    ] = None


def run(
    output: RunOutput,
    rows: RowOptions,
    rule: RunRule,
    mask: MaskRowOptions,
    calibration: RunCalibration,
    objective: RunObjective,
    report: RunReport,
    comparisons: ComparisonOptions,
    input: InputOptions,
    engine: EngineOptions,
    dumps: OptionalDumps = None,
) -> None:
    """Do all of it: calibrate, fit, choose the threshold, evaluate and reject.

    DUMP: parquet files, directories, globs or URIs, divided by --split; or give --val and --test. - is standard input.
    """
    from drrej.outputs.destinations import OutputFile, prepare_directory
    from drrej.outputs.masks import write_table
    from drrej.pipeline.evaluate import check_gates, evaluate
    from drrej.pipeline.fit import fit
    from drrej.pipeline.reject import MaskOptions, reject
    from drrej.pipeline.threshold import ThresholdOptions
    from drrej.report import need_libraries, render

    divided = rows.division(dumps)
    chosen_by = replace(rule, confidence=rule.confidence or None).rule()
    check_table(output.table)
    calibration.check()
    if dumps and mask.on_bad_row != "error":
        raise OptionError(
            f"--on-bad-row {mask.on_bad_row} goes with --test: rows without usable scores cannot be divided"
        )
    comparisons.check(input)
    gates, page = gates_of(report.gate), _can_draw()
    if not page and (report.title is not None or report.model is not None):
        need_libraries("html", "--title" if report.title is not None else "--model")
    wanted = replace(report, report_by=report.report_by or rule.cutoff_by).options(
        comparisons,
        ["html"],
        FILES[1],
        on_unseen_group=mask.on_unseen_group,
        on_bad_row=mask.on_bad_row,
        pictures=page,
        known_fresh=bool(dumps),
    )
    if not comparisons.baseline_dump:
        check_gates(gates, wanted)
    workers, plain = engine.start(), comparisons.input(input)
    named = [dumps] if dumps else [rows.val, rows.test, rows.choose]
    sources = [plain.source(each, workers, mask) for each in named if each]
    check_one_stdin(*sources)
    ratio = objective.options(sources[0].options.classes)
    with ExitStack() as stack:
        stack.enter_context(prepare_directory(output.output))
        names = FILES if page else FILES[:-1]
        mask_file, document, *reports = (
            stack.enter_context(OutputFile(os.path.join(output.output, name), output.force)) for name in names
        )
        table = None if output.table is None else stack.enter_context(OutputFile(output.table, output.force))
        check_spared(input.classes, objective.cost_matrix, comparisons.baseline)
        parts = run_inputs(sources, divided)
        if parts.no_sample is not None and rule.confidence:
            raise OptionError(f"--confidence {rule.confidence:g}: {parts.no_sample}")
        fitted = fit(parts.fit, calibration.rejector(parts.calibrate), ratio)
        options = ThresholdOptions(rule.cutoff_by, rule.allow_reuse, known_fresh=divided is not None)
        found, why_not = _threshold(parts, fitted, chosen_by, options, rule.confidence is None, table is not None)
        rejector = found.rejector
        wanted = replace(wanted, baseline_dump=comparisons.dump(input, mask, workers, rejector))
        made = evaluate(parts.test, rejector, gates, with_words(wanted, rejector))
        kept = MaskOptions(mask.columns, mask.on_bad_row, mask.on_unseen_group)
        counts = reject(parts.test, rejector, mask_file, kept)
        document.write_text(rejector.to_json())
        for file, kind in zip(reports, ("json", "text", "html"), strict=False):
            file.write_bytes(render(made if kind == "html" else replace(made, pictures=None), kind))
        if table is not None:
            write_table(found.candidates, table.path, table.target)
            table.commit()
        for file in (mask_file, document, *reports):
            file.commit()
    warn(parts.note, engine.quiet, "note")
    warn_calibration(rejector.need_calibration(), engine.quiet)
    for caution in (found.caution, why_not, _not_promised(parts, rejector, divided)):
        warn(caution, engine.quiet)
    warn_uncertified(rejector, engine.quiet)
    for source in parts.sources:
        say_notes(source, engine.quiet, rejector.floor)
    warn_of_report(made, engine.quiet)
    warn_bad_rows(counts, engine.quiet, mask.on_bad_row, "; the report leaves them out")
    show(render(made, output.format).decode())
    exit_by_gates(made, and_target=True)


def _threshold(
    parts: RunInputs, fitted: Rejector, rule: Rule, options: ThresholdOptions, may_certify: bool, table: bool
) -> tuple[ChosenThreshold, str | None]:
    """The threshold, certified where rows are fresh and nothing else was said; and why it is not."""
    from drrej.pipeline.threshold import certify_if_possible, choose_threshold

    if parts.fresh and may_certify and parts.no_sample is None:
        found = certify_if_possible(parts.choose, fitted, rule, options, table)
        return found, found.why_not
    why_not = parts.no_sample if may_certify and rule.kind in _PROMISED else None
    return choose_threshold(parts.choose, fitted, rule, options, table), why_not


def _not_promised(parts: RunInputs, rejector: Rejector, divided: SplitOptions | None) -> str | None:
    """What the rows that the threshold was chosen on do not allow to promise."""
    rule = rejector.need_threshold().rule
    name = "mean_cost" if rule.kind == "mean-cost" else rule.kind
    if rule.confidence is not None and divided is not None and divided.group is not None:
        return (
            f"the guarantee takes rows as independent, but those of one '{divided.group}' may be alike; then it holds "
            "less often than it says"
        )
    if not parts.fresh and rule.kind in ("accuracy", "risk", "mean-cost"):
        return (
            f"`{name}={rule.target:g}` describes the rows it was chosen on, which the fit has seen; for a guarantee on "
            "new rows give --split 60,40, or fresh rows with --choose"
        )
    return None


def _can_draw() -> bool:
    """Whether what a page needs is installed."""
    from drrej.report import need_libraries

    try:
        need_libraries("html", "html")
    except OptionError:
        return False
    return True
