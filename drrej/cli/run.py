"""drrej run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from drrej.cli.calibrate import warn_calibration
from drrej.cli.console import say_notes, show, warn
from drrej.cli.options import (
    REQUIRED,
    EngineOptions,
    InputOptions,
    MaskRowOptions,
    OptionalDumps,
    Options,
    check_one_stdin,
    check_spared,
    force_option,
    names_of,
    option,
    rare,
)
from drrej.cli.reject import warn_bad_rows
from drrej.cli.report_options import (
    REPORT,
    ReportOptions,
    exit_by_gates,
    format_option,
    gates_of,
    reports_errors,
    warn_of_report,
    with_words,
)
from drrej.cli.rule_options import (
    GUARANTEE,
    CalibrationOptions,
    ObjectiveOptions,
    RuleOptions,
    check_table,
    loss_option,
    table_option,
    temperature_option,
)
from drrej.errors import OptionError
from drrej.report import TextFormat

if TYPE_CHECKING:
    from drrej.core.thresholds import Rule
    from drrej.documents.gates import Gate
    from drrej.documents.rejector import Rejector
    from drrej.documents.report import Report
    from drrej.outputs.destinations import OutputFile
    from drrej.pipeline.evaluate import EvaluateOptions
    from drrej.pipeline.fit import RatioOptions
    from drrej.pipeline.source import Source
    from drrej.pipeline.split import SplitOptions
    from drrej.pipeline.threshold import ChosenThreshold

FILES = ("mask.parquet", "rejector.json", "report.json", "report.txt", "report.html")
"""What is written; the page where it can be drawn."""

ROWS = "Rows: one DUMP, or --val and --test"
WAYS = "give one DUMP, which is divided, or --val DUMP and --test DUMP"

_PROMISED = ("accuracy", "risk", "coverage", "mean-cost")
"""Rules that are certified by default where rows are fresh."""


class RunOutput(Options):
    """What is written and shown."""

    output: str = option("Directory for the results.", "DIR", default=REQUIRED)
    force: bool = force_option()
    format: TextFormat = format_option()
    table: str | None = table_option()

    def open(self, stack: ExitStack, page: bool) -> dict[str, OutputFile]:
        """The files of the directory, and the table if there is to be one."""
        from drrej.outputs.destinations import OutputFile, prepare_directory

        stack.enter_context(prepare_directory(self.output))
        paths = {name: os.path.join(self.output, name) for name in (FILES if page else FILES[:-1])}
        paths |= {} if self.table is None else {"table": self.table}
        return {name: stack.enter_context(OutputFile(path, self.force)) for name, path in paths.items()}


class RowOptions(Options):
    """Dumps with a task of their own, or how one dump is divided."""

    val: list[str] | None = option("Rows to calibrate, fit and choose on. Repeatable.", "DUMP", ROWS)
    test: list[str] | None = option("Rows to report on and to mask. Repeatable.", "DUMP", ROWS)
    choose: list[str] | None = rare(
        "Fresh rows to choose the threshold on. Repeatable.", "DUMP", ROWS, show_default="--val"
    )
    split: str | None = option(
        "Shares of DUMP to fit, choose and test; of four the first is to calibrate. With --val: A,B of it.",
        "A,B,C",
        ROWS,
        show_default="40,30,30",
    )
    seed: int | None = rare("Another seed, another split.", "N", ROWS, show_default="0")
    group: str | None = rare("Rows with the same value, such as a patient, stay together.", "COL", ROWS)

    def division(self, dumps: list[str] | None) -> SplitOptions | None:
        """How rows are divided, if they are; raises when options do not go together."""
        from drrej.pipeline.split import DEFAULT_SHARES, SplitOptions

        if dumps and (self.val or self.test or self.choose):
            raise OptionError(f"{WAYS}, not both")
        if not dumps and not (self.val and self.test):
            raise OptionError(WAYS)
        if self.split is not None and self.choose:
            raise OptionError("--split divides --val into rows to fit and rows to choose on; leave out --choose")
        if not dumps and self.split is None:
            if self.seed is not None or self.group is not None:
                option = "--seed" if self.group is None else "--group"
                raise OptionError(f"{option} says how one dump is divided; give one DUMP, or --split A,B for --val")
            return None
        shares = DEFAULT_SHARES if self.split is None else _shares(self.split)
        most = 4 if dumps else 3
        if len(shares) not in (most - 1, most):
            steps = "fit, choose and test (or calibrate, fit, choose and test)"
            if not dumps:
                steps = "fit and choose (or calibrate, fit and choose)"
            raise OptionError(f"--split {self.split}: give {most - 1} or {most} shares, of the rows to {steps}")
        return SplitOptions(shares, len(shares) - (2 if dumps else 1), self.seed or 0, self.group)


class Recipe(CalibrationOptions, ObjectiveOptions, RuleOptions):
    """How the rejector is made: the rule is a guarantee where rows are fresh, and the loss is what ranks best."""

    loss: str = loss_option(default="auto")
    confidence: float | None = option(
        "Make the rule hold on new rows with probability P; 0 for no guarantee.",
        "P",
        GUARANTEE,
        show_default="0.95 on fresh rows, if there are enough",
    )
    temperature: float | None = temperature_option()

    def check(self) -> None:
        """Raise unless there is one rule, or when a temperature is given and something is said of how to fit it."""
        self.chosen_rule()
        if self.temperature is not None and self.memory is not None:
            raise OptionError("--memory is for fitting the temperature; it does not go with --temperature T")
        if self.temperature is not None and self.calibrator is not None:
            raise OptionError("--calibrator says what is fitted; it does not go with --temperature T, which is given")

    def chosen_rule(self) -> Rule:
        """The rule; `make` certifies it where nothing is said of a guarantee."""
        return self.replaced(confidence=self.confidence or None).rule()

    def make(self, inputs: RunInputs, ratio: RatioOptions, table: bool) -> ChosenThreshold:
        """The rejector, certified where rows are fresh and nothing else was said; `table` keeps all candidates."""
        from drrej.pipeline.calibrate import calibrate
        from drrej.pipeline.fit import fit, uncalibrated
        from drrej.pipeline.threshold import ThresholdOptions, certify_if_possible, choose_threshold

        if inputs.no_sample is not None and self.confidence:
            raise OptionError(f"--confidence {self.confidence:g}: {inputs.no_sample}")
        if self.temperature is None:
            start = calibrate(inputs.calibrate, self.calibrate_options())
        else:
            start = uncalibrated(inputs.calibrate, self.temperature, self.precision or "auto", self.floor)
        fitted, rule = fit(inputs.fit, start, ratio), self.chosen_rule()
        group = None if inputs.divided is None else inputs.divided.group
        options = ThresholdOptions(self.cutoff_by, self.allow_reuse, inputs.divided is not None, group)
        if inputs.fresh and self.confidence is None and inputs.no_sample is None:
            return certify_if_possible(inputs.choose, fitted, rule, options, table)
        why_not = inputs.no_sample if self.confidence is None and rule.kind in _PROMISED else None
        return replace(choose_threshold(inputs.choose, fitted, rule, options, table), why_not=why_not)


class RunReport(ReportOptions):
    """What the report holds: groups that have a cutoff of their own, unless others are named."""

    report_by: str | None = option(
        "Also report by a column, 'prediction' or 'label'.", "COL", REPORT, show_default="--cutoff-by"
    )

    def run_options(
        self, gates: Sequence[Gate], cutoff_by: str | None, input: RunInput, known_fresh: bool
    ) -> EvaluateOptions:
        """As the library takes them; raises when no report has the metric of a gate."""
        from drrej.pipeline.evaluate import check_gates
        from drrej.report import need_libraries

        page = _can_draw()
        if not page and (self.title is not None or self.model is not None):
            need_libraries("html", "--title" if self.title is not None else "--model")
        wanted = self.replaced(report_by=self.report_by or cutoff_by).options(
            ["html"],
            FILES[1],
            on_unseen_group=input.on_unseen_group,
            on_bad_row=input.on_bad_row,
            pictures=page,
            known_fresh=known_fresh,
        )
        if not self.baseline_dump:
            check_gates(gates, wanted)
        return wanted


class RunInput(MaskRowOptions, InputOptions):
    """How rows are read, and what becomes of them in the mask."""


@reports_errors
def run(
    output: RunOutput,
    rows: RowOptions,
    recipe: Recipe,
    report: RunReport,
    input: RunInput,
    engine: EngineOptions,
    dumps: OptionalDumps = None,
) -> None:
    """Do all of it: calibrate, fit, choose the threshold, evaluate and reject.

    DUMP: parquet files, directories, globs or URIs, divided by --split; or give --val and --test. - is standard input.

    Examples:
    drrej run predictions.parquet --accuracy 0.98 -o out
    drrej run predictions.parquet --coverage 0.8 --split 40,20,20,20 -o out
    drrej run --val val.parquet --test test.parquet --coverage 0.8 -o out

    """
    from drrej.pipeline.evaluate import evaluate
    from drrej.pipeline.reject import MaskOptions, reject
    from drrej.report import render

    divided = rows.division(dumps)
    recipe.check()
    check_table(output.table)
    if dumps and input.on_bad_row != "error":
        raise OptionError(
            f"--on-bad-row {input.on_bad_row} goes with --test: rows without usable scores cannot be divided"
        )
    report.check_pairs(input)
    gates = gates_of(report.gate)
    wanted = report.run_options(gates, recipe.cutoff_by, input, known_fresh=bool(dumps))
    workers = engine.start()
    named = [dumps] if dumps else [rows.val, rows.test, rows.choose]
    sources = [report.without_key(input).source(each, workers) for each in named if each]
    check_one_stdin(*sources)
    ratio = recipe.ratio_options(sources[0].options.classes)
    with ExitStack() as stack:
        files = output.open(stack, page=wanted.pictures)
        check_spared(input.classes, recipe.cost_matrix, report.baseline)
        inputs = run_inputs(sources, divided)
        found = recipe.make(inputs, ratio, table="table" in files)
        rejector = found.rejector
        wanted = replace(wanted, baseline_dump=report.dump(input, workers, rejector))
        made = evaluate(inputs.test, rejector, gates, with_words(wanted, rejector))
        kept = MaskOptions(names_of(input.keep), input.on_bad_row, input.on_unseen_group)
        counts = reject(inputs.test, rejector, files[FILES[0]], kept)
        _write(files, found, made)
    _warn(inputs, found, engine.quiet)
    warn_of_report(made, engine.quiet)
    warn_bad_rows(counts, engine.quiet, input.on_bad_row, "; the report leaves them out")
    show(render(made, output.format).decode())
    exit_by_gates(made, and_target=True)


def _write(files: Mapping[str, OutputFile], found: ChosenThreshold, report: Report) -> None:
    """Everything but the mask, which is written; then all of them get their names."""
    from drrej.outputs.masks import write_table
    from drrej.report import render

    mask, document, *reports = (files[name] for name in FILES if name in files)
    document.write_text(found.rejector.to_json())
    for file, kind in zip(reports, ("json", "text", "html"), strict=False):
        file.write_bytes(render(report if kind == "html" else replace(report, pictures=None), kind))
    if "table" in files:
        write_table(found.candidates, files["table"].path, files["table"].target)
        files["table"].commit()
    for file in (mask, document, *reports):
        file.commit()


def _warn(inputs: RunInputs, found: ChosenThreshold, quiet: bool) -> None:
    """What there is to say of the rows and of the rejector that was made on them."""
    from drrej.pipeline.threshold import uncertified_words

    warn(inputs.note, quiet, "note")
    warn_calibration(found.rejector.need_calibration(), quiet)
    for caution in (found.caution, found.why_not, _not_promised(inputs, found.rejector)):
        warn(caution, quiet)
    warn(uncertified_words(found.rejector), quiet)
    for source in inputs.sources:
        say_notes(source, quiet, found.rejector.floor)


class RunInputs(Struct, frozen=True):
    """What to calibrate on, to fit on, to choose the threshold on, and to test on.

    `fresh` says that the rows to choose on were not fitted on, `divided` and `note` how rows were divided, `no_sample`
    why they are no random sample.
    """

    calibrate: Source
    fit: Source
    choose: Source
    test: Source
    fresh: bool
    divided: SplitOptions | None = None
    note: str | None = None
    no_sample: str | None = None

    @property
    def sources(self) -> list[Source]:
        """All of them, each once."""
        return list({id(source): source for source in (self.calibrate, self.fit, self.choose, self.test)}.values())


def run_inputs(sources: Sequence[Source], options: SplitOptions | None) -> RunInputs:
    """Which rows do what; divides the first of the dumps (one pass) where that is wanted."""
    from drrej.pipeline.split import split, why_no_sample

    first, *others = sources
    if options is None:
        test, choose = others[0], others[1] if len(others) > 1 else first
        return RunInputs(first, first, choose, test, fresh=len(others) > 1)
    divided = [*split(first, options), *others]
    counts = [source.options.split.rows for source in divided if source.options.split is not None]
    tasks = ["calibrate and fit", "choose", "test"] if len(divided) == 3 else ["calibrate", "fit", "choose", "test"]
    said = ", ".join(f"{rows} to {task}" for rows, task in zip(counts, tasks, strict=False))
    how = "by their content" if options.group is None else f"by '{options.group}'"
    note = f"{sum(counts)} rows are divided {how}: {said}"
    fit, choose, test = divided[-3:]
    return RunInputs(divided[0], fit, choose, test, True, options, note, why_no_sample(divided))


def _shares(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise OptionError(f"--split {text}: write shares separated by commas, such as 40,30,30") from None


def _not_promised(inputs: RunInputs, rejector: Rejector) -> str | None:
    """What the rows that the threshold was chosen on do not allow to promise."""
    rule, divided = rejector.need_threshold().rule, inputs.divided
    name = "mean_cost" if rule.kind == "mean-cost" else rule.kind
    if rule.confidence is not None and divided is not None and divided.group is not None:
        return (
            f"the guarantee takes rows as independent, but those of one '{divided.group}' may be alike; then it holds "
            "less often than it says"
        )
    if not inputs.fresh and rule.kind in ("accuracy", "risk", "mean-cost"):
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
