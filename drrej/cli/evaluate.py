"""drrej evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from drrej.cli.console import long_flag, say_notes, show
from drrej.cli.options import (
    Dumps,
    EngineOptions,
    JudgedInput,
    Options,
    RejectorOptions,
    SkipOptions,
    check_spared,
    flag,
    force_option,
    names_of,
    on_unseen_group_option,
    option,
    rare,
    read_rejector,
)
from drrej.cli.report_options import (
    REPORT,
    ReportOptions,
    exit_by_gates,
    format_of,
    format_option,
    gates_of,
    reports_errors,
    warn_of_report,
    with_words,
)
from drrej.cli.rule_options import REGRESSION, RegressionOptions
from drrej.errors import OptionError
from drrej.report import TextFormat

if TYPE_CHECKING:
    from drrej.documents.gates import Gate
    from drrej.documents.rejector import Rejector
    from drrej.documents.report import RegressionReport, Report
    from drrej.pipeline.evaluate import EvaluateOptions


class EvaluateReport(ReportOptions):
    """What the report of `evaluate` can hold besides."""

    no_labels: bool = flag("Only what needs no labels: coverage, expected accuracy, drift.", panel=REPORT)
    examples: str | None = rare("Also show these columns of some rejected rows and accepted errors.", "COLS", REPORT)
    ood: str | None = rare("Rows where this column is true belong to no class: judge them apart.", "COL", REPORT)
    ood_cost: float | None = rare(
        "What accepting a row of no class costs, as a multiple of an error.", "X", REPORT, show_default="1"
    )
    on_unseen_group: Literal["error", "reject"] = on_unseen_group_option()

    def evaluate_options(self, outputs: Sequence[tuple[str, str]], rejector: str) -> EvaluateOptions:
        """As the library takes them; raises when one option lacks another, or an output cannot be drawn."""
        from drrej.report import CURVES, DRAWN, need_libraries

        if self.ood_cost is not None and self.ood is None:
            raise OptionError("--ood-cost goes with --ood COL")
        examples = names_of(self.examples)
        if examples == []:
            raise OptionError("--examples: name the columns to show, e.g. --examples id")
        for path, kind in outputs:
            need_libraries(kind, f"-o {path}")
            if kind in CURVES and self.no_labels:
                raise OptionError(f"-o {path}: the curve needs labels; it does not go with --no-labels")
        return self.options(
            [kind for _, kind in outputs],
            rejector,
            labels=not self.no_labels,
            examples=examples,
            ood=self.ood,
            ood_cost=1.0 if self.ood_cost is None else self.ood_cost,
            on_unseen_group=self.on_unseen_group,
            pictures=any(kind in DRAWN for _, kind in outputs),
        )


class TaskOptions(RegressionOptions):
    """The options for a regression. The task is the rejector's; `task` only says what it is expected to be."""

    task: Literal["classification", "regression"] | None = rare(
        "classification or regression: check that the rejector is for it.", "TASK", REGRESSION
    )

    def is_meant(self, rejector: Rejector) -> bool:
        """Whether the rejector is for a regression; raises when the options say otherwise."""
        if self.task not in (None, rejector.task):
            raise OptionError(f"--task {self.task}: the rejector is for a {rejector.task}")
        if rejector.task == "classification":
            self.refuse()
        return rejector.task == "regression"


class ReportFiles(RejectorOptions):
    """The rejector, and where its report goes."""

    output: list[str] | None = option(
        "Also write .html .json .md .txt .xml by its ending, or the curve as .csv .png .svg .pdf. Repeatable.", "FILE"
    )
    force: bool = force_option()
    format: TextFormat = format_option()


@reports_errors
def evaluate(
    dumps: Dumps,
    files: ReportFiles,
    report: EvaluateReport,
    regression: TaskOptions,
    input: JudgedInput,
    engine: EngineOptions,
) -> None:
    """Report coverage and accuracy; judge gates.

    DUMP: parquet files, directories, globs or URIs; - is standard input.

    Examples:
    drrej evaluate test.parquet -r rejector.json --gate 'accuracy >= 0.97'
    drrej evaluate test.parquet -r rejector.json --compare -o report.html
    drrej evaluate nightly/ -r rejector.json --no-labels --gate 'coverage >= 0.7'

    """
    from drrej.outputs.destinations import OutputFile
    from drrej.pipeline.evaluate import evaluate as step
    from drrej.pipeline.evaluate import evaluate_regression
    from drrej.report import render

    outputs = [(path, files.format if path == "-" else format_of(path)) for path in files.output or []]
    gates = gates_of(report.gate)
    report.check_pairs(input)
    wanted = report.evaluate_options(outputs, files.rejector)
    if not report.baseline_dump:
        _check_early(gates, wanted)
    workers = engine.start()
    source = report.without_key(input).source(dumps, workers)
    with ExitStack() as stack:
        places = [(stack.enter_context(OutputFile(path, files.force)), kind) for path, kind in outputs]
        check_spared(input.classes, report.baseline)
        rejector = read_rejector(files.rejector, source, "threshold")
        if regression.is_meant(rejector):
            _check_regression([report, input], [files.format, *(kind for _, kind in outputs)])
            made: Report | RegressionReport = evaluate_regression(
                source, rejector, regression.prediction, regression.target, gates, report.on_unseen_group
            )
        else:
            wanted = replace(wanted, baseline_dump=report.dump(input, workers, rejector))
            made = step(source, rejector, gates, with_words(wanted, rejector))
        for file, kind in places:
            file.write_bytes(render(made, kind))
        for file, _ in places:
            file.commit()
    say_notes(source, engine.quiet, rejector.floor)
    warn_of_report(made, engine.quiet)
    if "-" not in (files.output or []):
        show(render(made, files.format).decode())
    exit_by_gates(made)


def _check_early(gates: Sequence[Gate], wanted: EvaluateOptions) -> None:
    """Raise when no report has the metric of a gate: neither the one that is wanted nor that of a regression."""
    from drrej.documents.gates import catalogue
    from drrej.documents.report import RegressionReport
    from drrej.pipeline.evaluate import check_gates

    of_regression = {metric.name for metric in catalogue(of=RegressionReport)}
    check_gates([gate for gate in gates if gate.metric not in of_regression], wanted)


def _check_regression(groups: Sequence[Options], formats: Sequence[str]) -> None:
    """Raise when an option was given that a regression has no use for."""
    from drrej.report import DRAWN

    useful = {"gate", "on_unseen_group", *SkipOptions.declared()}
    for name in [name for group in groups for name in group.given() if name not in useful]:
        raise OptionError(f"{long_flag(name)}: it has no meaning for a regression, and the rejector is for one")
    for format in formats:
        if format in DRAWN:
            raise OptionError(f"a regression has no pictures; it is not reported as {format}")
