"""drrej run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, NamedTuple

from msgspec.structs import replace

from drrej.cli.build import StartOptions, ThresholdFiles, check_table
from drrej.cli.console import say_notes, warn
from drrej.cli.input_options import MaskInput, OptionalDumps, check_one_stdin, check_spared, names_of
from drrej.cli.options import REQUIRED, EngineOptions, Options, OutputOptions, open_files, option, rare, rare_flag
from drrej.cli.reject import warn_bad_rows
from drrej.cli.report_options import REPORT, ReportOptions, finish, gates_of, rows_words, shown, written
from drrej.cli.rule_options import GUARANTEE, CalibrationOptions, ObjectiveOptions, RuleOptions
from drrej.errors import OptionError
from drrej.report import TextFormat

if TYPE_CHECKING:
    from drrej.core.thresholds import Rule
    from drrej.documents.report import Report
    from drrej.outputs.destinations import OutputFile
    from drrej.pipeline.fit import RatioOptions
    from drrej.pipeline.source import Source
    from drrej.pipeline.split import SplitOptions
    from drrej.pipeline.threshold import ChosenThreshold

FILES = ("mask.parquet", "rejector.json", "report.json", "report.txt", "report.html")
"""What is written; the page where it can be drawn."""

ROWS = "Rows: one DUMP, or --val and --test"
WAYS = "give one DUMP, which is split, or --val DUMP and --test DUMP"


class RunFiles(Options):
    """What is written and shown; the dumps with a task of their own, or how one dump is divided."""

    output: str = option("Directory for the results.", "DIR", default=REQUIRED)
    force: bool = OutputOptions.force
    format: TextFormat = rare("Format of standard output, as in evaluate.", "FORMAT", default="text")
    verbose: bool = rare_flag("Print the whole report, not only the summary.")
    table: str | None = ThresholdFiles.table
    val: list[str] | None = option("Rows to calibrate, fit and choose the cutoff on. Repeatable.", "DUMP", ROWS)
    test: list[str] | None = option("Rows to report on and to mask. Repeatable.", "DUMP", ROWS)
    choose: list[str] | None = rare(
        "Fresh rows to choose the threshold on. Repeatable.", "DUMP", ROWS, show_default="--val"
    )
    split: str | None = option(
        "Shares of DUMP to fit, choose and test on; of four, the first is to calibrate. With --val: A,B.",
        "A,B,C",
        ROWS,
        show_default="14,56,30, with at least 50 rows to fit; 40,30,30 for --tau and costs",
    )
    seed: int | None = rare("Random seed for the split.", "N", ROWS, show_default="0")
    group: str | None = rare("Keep rows with the same value, such as a patient, together.", "COL", ROWS)

    def division(self, dumps: list[str] | None, certified: bool = False) -> SplitOptions | None:
        """How rows are divided, if they are; raises when options contradict each other.

        Where a rule can be certified, the number of rows decides how many of them fit.
        """
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
                raise OptionError(f"{option} splits a single DUMP; give one DUMP, or --split A,B for --val")
            return None
        if self.split is None and certified:
            return SplitOptions(None, 1, self.seed or 0, self.group)
        try:
            shares = DEFAULT_SHARES if self.split is None else [float(part) for part in self.split.split(",")]
        except ValueError:
            raise OptionError(f"--split {self.split}: write shares separated by commas, such as 40,30,30") from None
        most = 4 if dumps else 3
        if len(shares) not in (most - 1, most):
            steps = "fit, choose and test (or calibrate, fit, choose and test)"
            if not dumps:
                steps = "fit and choose (or calibrate, fit and choose)"
            raise OptionError(f"--split {self.split}: give {most - 1} or {most} shares, of the rows to {steps}")
        return SplitOptions(shares, len(shares) - (2 if dumps else 1), self.seed or 0, self.group)


class RecipeOptions(CalibrationOptions, ObjectiveOptions, RuleOptions):
    """How the rejector is made."""

    temperature: float | None = StartOptions.temperature

    def make(
        self, rows: RunRows, rule: Rule, ratio: RatioOptions, divided: SplitOptions | None, table: bool
    ) -> ChosenThreshold:
        """The rejector, certified where rows are fresh and nothing else was said; `table` keeps all candidates."""
        from drrej.pipeline.calibrate import calibrate
        from drrej.pipeline.fit import fit, uncalibrated
        from drrej.pipeline.split import why_no_sample
        from drrej.pipeline.threshold import ThresholdOptions, certify_if_possible, choose_threshold

        no_sample = why_no_sample(rows.sources)
        if no_sample is not None and self.confidence:
            raise OptionError(f"--confidence {self.confidence:g}: {no_sample}")
        if self.temperature is None:
            start = calibrate(rows.calibrate, self.calibrate_options())
        else:
            start = uncalibrated(rows.calibrate, self.temperature, self.precision or "auto", self.floor)
        fitted = fit(rows.fit, start, ratio)
        group = None if divided is None else divided.group
        options = ThresholdOptions(self.cutoff_by, self.allow_reuse, divided is not None, group)
        if rows.choose is not rows.fit and self.confidence is None and no_sample is None:
            return certify_if_possible(rows.choose, fitted, rule, options, table)
        why_not = no_sample if self.confidence is None and rule.can_be_certified else None
        return replace(choose_threshold(rows.choose, fitted, rule, options, table), why_not=why_not)


Recipe = Annotated[
    RecipeOptions,
    {
        **dict.fromkeys(("mse", "mae", "group", "clip")),
        **RecipeOptions.rarer("risk", "max_missed", "cutoff_by", "loss"),
        "calibrator": rare("How scores are calibrated, as in calibrate.", "NAME", show_default="temperature"),
        "confidence": option(
            "Guarantee the target on new rows with probability P; 0 for no guarantee.",
            "P",
            GUARANTEE,
            show_default="0.95 on fresh rows, if there are enough",
        ),
    },
]
"""The rule is a guarantee where rows are fresh, unless something else is said."""

RunReport = Annotated[
    ReportOptions,
    {
        **dict.fromkeys(("no_labels", "audited", "examples", "ood", "ood_cost", "on_unseen_group", "group")),
        "report_by": rare(
            "Also report by a column, 'prediction' or 'label'.", "COL", REPORT, show_default="--cutoff-by"
        ),
    },
]


def run(
    files: RunFiles,
    recipe: Recipe,
    report: RunReport,
    input: Annotated[MaskInput, MaskInput.rarer("keep", "on_bad_row", "score")],
    engine: EngineOptions,
    dumps: OptionalDumps = None,
) -> None:
    """Run all steps: calibrate, fit, choose the cutoff, evaluate and reject.

    DUMP: parquet files, directories, globs or URIs, divided by --split; or give --val and --test. - is standard input.

    Examples:
    drrej run predictions.parquet --accuracy 0.98 -o out
    drrej run predictions.parquet --coverage 0.8 --split 40,20,20,20 -o out
    drrej run --val val.parquet --test test.parquet --coverage 0.8 -o out

    """
    from drrej.outputs.destinations import prepare_directory
    from drrej.pipeline.evaluate import check_gates, evaluate
    from drrej.pipeline.reject import MaskOptions, reject

    rule = recipe.replaced(confidence=recipe.confidence or None).rule("mse", "mae")
    divided = files.division(dumps, certified=rule.can_be_certified)
    for name in [name for name in ("memory", "calibrator") if name in recipe.not_default()]:
        if recipe.temperature is not None:
            raise OptionError(f"--{name} cannot be combined with --temperature T: nothing is fitted then")
    check_table(files.table)
    if dumps and input.on_bad_row != "error":
        raise OptionError(
            f"--on-bad-row {input.on_bad_row} requires --test: rows without usable scores cannot be divided"
        )
    gates = gates_of(report.gate)
    wanted = replace(
        report.options(FILES[1], ["html"], input.join_on),
        by=report.report_by or recipe.cutoff_by,
        on_unseen_group=input.on_unseen_group,
        on_bad_row=input.on_bad_row,
        pictures=_can_draw(report),
        known_fresh=bool(dumps),
        group=files.group,
    )
    if not report.baseline_dump:
        check_gates(gates, wanted)
    workers = engine.start()
    with ExitStack() as stack:
        stack.enter_context(prepare_directory(files.output))
        names = FILES if wanted.pictures else FILES[:-1]
        paths = [*(os.path.join(files.output, name) for name in names), files.table]
        places = dict(zip([*names, "table"], open_files(stack, paths, files.force), strict=False))
        named = [dumps] if dumps else [files.val, files.test, files.choose]
        sources = [input.source(each, workers, paired=bool(report.baseline_dump)) for each in named if each]
        check_one_stdin(*sources)
        check_spared(recipe.cost_matrix, report.baseline)
        ratio = recipe.ratio_options(sources[0].options.classes)
        used = run_rows(sources, divided)
        found = recipe.make(used, rule, ratio, divided, table="table" in places)
        made = evaluate(used.test, found.rejector, gates, report.completed(wanted, found.rejector, input, workers))
        kept = input.into(MaskOptions, keep=names_of(input.keep))
        counts = reject(used.test, found.rejector, places[FILES[0]], kept)
        _write(places, found, made)
    _warn(used, found, divided, engine.quiet)
    warn_bad_rows(counts, engine.quiet, input.on_bad_row, "; the report leaves them out")
    last = written([path for path in paths if path is not None], paths[1], dumps or files.test or ())
    if not wanted.pictures:
        page = os.path.join(files.output, FILES[-1])
        last.insert(1, ("Page", f"pip install 'drrej[plot]' to write {page} too"))
    rows = rows_words(dumps or files.val or [], sum(used.shares) or found.rejector.need_ratio().rows)
    if files.test:
        rows += f" \N{RIGHTWARDS ARROW} {rows_words(files.test, made.rows)}"
    heading = f"drrej run \N{MIDDLE DOT} {rows}"
    finish(made, shown(made, files.format, files.verbose, heading, last), engine.quiet, and_target=True)


def _can_draw(report: ReportOptions) -> bool:
    """Whether what a page needs is installed; raises when it is missing and something was said about the page."""
    from drrej.report import need_libraries

    try:
        need_libraries("html", "--title")
    except OptionError:
        if report.title is not None:
            raise
        return False
    return True


def _write(files: Mapping[str, OutputFile], found: ChosenThreshold, report: Report) -> None:
    """Everything but the mask, which is written; then all of them get their names."""
    from drrej.outputs.masks import write_table
    from drrej.report import render

    files["rejector.json"].write_text(found.rejector.to_json())
    for name, kind in {"report.json": "json", "report.txt": "text", "report.html": "html"}.items():
        if name in files:
            files[name].write_bytes(render(report if kind == "html" else replace(report, pictures=None), kind))
    if "table" in files:
        write_table(found.candidates, files["table"].path, files["table"].target)
    for file in files.values():
        file.commit()


def _warn(rows: RunRows, found: ChosenThreshold, divided: SplitOptions | None, quiet: bool) -> None:
    """What there is to say of the rows and of the rejector that was made on them."""
    from drrej.documents.words import calibration_warnings
    from drrej.pipeline.split import SplitPart
    from drrej.pipeline.threshold import uncertified_words

    rule, no_promise = found.rejector.need_threshold().rule, None
    part = rows.fit.options.split
    if rule.confidence is not None and isinstance(part, SplitPart) and part.shared:
        no_promise = (
            f"the guarantee assumes independent rows, but those of one '{part.group}' may be alike; then it holds "
            "less often than it says"
        )
    elif rows.choose is rows.fit and rule.kind in ("accuracy", "risk", "mean-cost", "promises"):
        no_promise = (
            f"{rule.asked} describes the rows it was chosen on, which the fit has seen; for a "
            "guarantee on new rows give --split 60,40, or fresh rows with --choose"
        )
    if divided is not None:
        counts, tasks = rows.shares, ["calibrate", "fit", "choose", "test"]
        tasks = ["calibrate and fit", "choose", "test"] if len(rows.sources) == 3 else tasks
        said = ", ".join(f"{count} to {task}" for count, task in zip(counts, tasks, strict=False))
        how = "by their content" if rows.fit.options.score is None else "by their place"
        how = how if divided.group is None else f"by '{divided.group}'"
        warn(f"{sum(counts)} rows are divided {how}: {said}", quiet, "note")
    odd = calibration_warnings(found.rejector.need_calibration())
    for words in (*odd, found.caution, found.why_not, no_promise, uncertified_words(found.rejector)):
        warn(words, quiet)
    say_notes(rows.calibrate, quiet, found.rejector.floor, rows.sources[1:])


class RunRows(NamedTuple):
    """What to calibrate on, to fit on, to choose the threshold on, and to test on."""

    calibrate: Source
    fit: Source
    choose: Source
    test: Source

    @property
    def sources(self) -> list[Source]:
        """All of them, each once."""
        return list({id(source): source for source in self}.values())

    @property
    def shares(self) -> list[int]:
        """The rows of each part of what was divided."""
        return [source.options.split.rows for source in self.sources if source.options.split is not None]


def run_rows(sources: Sequence[Source], options: SplitOptions | None) -> RunRows:
    """Which rows do what; divides the first of the dumps (one pass) where that is wanted."""
    from drrej.pipeline.split import split

    first, *others = sources
    if options is None:
        return RunRows(first, first, others[1] if len(others) > 1 else first, others[0])
    parts = [*split(first, options), *others]
    return RunRows(parts[0], *parts[-3:])
