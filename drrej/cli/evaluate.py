"""drrej evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec.structs import fields, replace

from drrej.cli.console import say_notes, show
from drrej.cli.input_options import (
    EngineOptions,
    InputOptions,
    OnUnseenGroup,
    SkipOptions,
    check_spared,
    names_of,
    read_rejector,
)
from drrej.cli.options import Dumps, Force, RejectorFile, flag, option, rare
from drrej.cli.report_options import (
    REPORT,
    ComparisonOptions,
    Format,
    ReportOptions,
    exit_by_gates,
    format_of,
    gates_of,
    warn_of_report,
    with_words,
)
from drrej.cli.rule_options import REGRESSION, RegressionOptions
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.documents.gates import Gate
    from drrej.documents.rejector import Rejector
    from drrej.documents.report import RegressionReport, Report
    from drrej.pipeline.evaluate import EvaluateOptions

EXAMPLES = """
drrej evaluate test.parquet -r rejector.json --gate 'accuracy >= 0.97'
drrej evaluate test.parquet -r rejector.json --compare -o report.html
drrej evaluate nightly/ -r rejector.json --no-labels --gate 'coverage >= 0.7'
"""


class EvaluateReport(ReportOptions, frozen=True):
    """What the report of `evaluate` can hold besides."""

    no_labels: Annotated[
        bool, flag("--no-labels", "Only what needs no labels: coverage, expected accuracy, drift.", REPORT)
    ] = False
    examples: Annotated[
        str | None,
        rare("--examples COLS", "Also show these columns of some rejected rows and accepted errors.", REPORT),
    ] = None
    ood: Annotated[
        str | None, rare("--ood COL", "Rows where this column is true belong to no class: judge them apart.", REPORT)
    ] = None
    ood_cost: Annotated[
        float | None,
        rare(
            "--ood-cost X",
            "What accepting a row of no class costs, as a multiple of an error.",
            REPORT,
            show_default="1",
        ),
    ] = None

    def evaluate_options(
        self,
        comparisons: ComparisonOptions,
        outputs: Sequence[tuple[str, str]],
        rejector: str,
        on_unseen_group: Literal["error", "reject"],
    ) -> EvaluateOptions:
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
            comparisons,
            [kind for _, kind in outputs],
            rejector,
            labels=not self.no_labels,
            examples=examples,
            ood=self.ood,
            ood_cost=1.0 if self.ood_cost is None else self.ood_cost,
            on_unseen_group=on_unseen_group,
            pictures=any(kind in DRAWN for _, kind in outputs),
        )


class TaskOptions(RegressionOptions, frozen=True):
    """The options for a regression. The task is the rejector's; `task` only says what it is expected to be."""

    task: Annotated[
        Literal["classification", "regression"] | None,
        rare("--task TASK", "classification or regression: check that the rejector is for it.", REGRESSION),
    ] = None

    def is_meant(self, rejector: Rejector) -> bool:
        """Whether the rejector is for a regression; raises when the options say otherwise."""
        if self.task not in (None, rejector.task):
            raise OptionError(f"--task {self.task}: the rejector is for a {rejector.task}")
        if rejector.task == "classification":
            self.refuse()
        return rejector.task == "regression"


def evaluate(
    dumps: Dumps,
    rejector: RejectorFile,
    report: EvaluateReport,
    comparisons: ComparisonOptions,
    regression: TaskOptions,
    input: InputOptions,
    bad: SkipOptions,
    engine: EngineOptions,
    output: Annotated[
        list[str] | None,
        option(
            "-o --output FILE",
            "Also write .html .json .md .txt .xml by its ending, or the curve as .csv .png .svg .pdf. Repeatable.",
        ),
    ] = None,
    force: Force = False,
    format: Format = "text",
    on_unseen_group: OnUnseenGroup = "error",
) -> None:
    """Report coverage and accuracy; judge gates.

    DUMP: parquet files, directories, globs or URIs; - is standard input.
    """
    from drrej.outputs.destinations import OutputFile
    from drrej.pipeline.evaluate import evaluate as step
    from drrej.pipeline.evaluate import evaluate_regression
    from drrej.report import render

    outputs = [(path, format if path == "-" else format_of(path)) for path in output or []]
    gates = gates_of(report.gate)
    comparisons.check(input)
    wanted = report.evaluate_options(comparisons, outputs, rejector, on_unseen_group)
    if not comparisons.baseline_dump:
        _check_early(gates, wanted)
    workers = engine.start()
    source = comparisons.input(input).source(dumps, workers, bad)
    with ExitStack() as stack:
        files = [(stack.enter_context(OutputFile(path, force)), kind) for path, kind in outputs]
        check_spared(input.classes, comparisons.baseline)
        document = read_rejector(rejector, source, "threshold")
        if regression.is_meant(document):
            _check_regression([report, comparisons, input], [format, *(kind for _, kind in outputs)])
            made: Report | RegressionReport = evaluate_regression(
                source, document, regression.prediction, regression.target, gates, on_unseen_group
            )
        else:
            wanted = replace(wanted, baseline_dump=comparisons.dump(input, bad, workers, document))
            made = step(source, document, gates, with_words(wanted, document))
        for file, kind in files:
            file.write_bytes(render(made, kind))
        for file, _ in files:
            file.commit()
    say_notes(source, engine.quiet, document.floor)
    warn_of_report(made, engine.quiet)
    if "-" not in (output or []):
        show(render(made, format).decode())
    exit_by_gates(made)


def _check_early(gates: Sequence[Gate], wanted: EvaluateOptions) -> None:
    """Raise when no report has the metric of a gate: neither the one that is wanted nor that of a regression."""
    from drrej.documents.gates import catalogue
    from drrej.documents.report import RegressionReport
    from drrej.pipeline.evaluate import check_gates

    of_regression = {metric.name for metric in catalogue(of=RegressionReport)}
    check_gates([gate for gate in gates if gate.metric not in of_regression], wanted)


def _check_regression(
    groups: Sequence[EvaluateReport | ComparisonOptions | InputOptions], formats: Sequence[str]
) -> None:
    """Raise when an option was given that a regression has no use for."""
    from drrej.report import DRAWN

    given = [field.name for group in groups for field in fields(group) if getattr(group, field.name)]
    for name in given:
        if name != "gate":
            flag = name.replace("_", "-")
            raise OptionError(f"--{flag}: it has no meaning for a regression, and the rejector is for one")
    for format in formats:
        if format in DRAWN:
            raise OptionError(f"a regression has no pictures; it is not reported as {format}")
