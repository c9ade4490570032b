"""drrej evaluate."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from drrej.cli.console import long_flag, say_notes
from drrej.cli.input_options import Dumps, JudgedInput, RegressionOptions, check_spared, read_rejector, rejector_option
from drrej.cli.options import REQUIRED, STREAM, EngineOptions, OutputOptions, flag, open_files, option, write_files
from drrej.cli.report_options import ReportOptions, finish, format_of, gates_of, rows_words, shown, written
from drrej.errors import OptionError
from drrej.report import TextFormat

if TYPE_CHECKING:
    from drrej.documents.report import RegressionReport, Report

_FOR_REGRESSIONS = {"gate", "prediction", "model", "on_unseen_group", "on_bad_row", "on_bad_file", "max_bad"}
"""Options on reports and reading that a regression has a use for."""


def evaluate(
    dumps: Dumps,
    *,
    rejector: str = rejector_option(default=REQUIRED),
    output: list[str] | None = option(
        "Also write .html .json .md .txt .xml, or the curve as .csv .png .svg .pdf, by the ending. Repeatable.", "FILE"
    ),
    force: bool = OutputOptions.force,
    format: TextFormat = option(
        "Format of standard output: text, json, markdown, github, junit or prometheus.", "FORMAT", default="text"
    ),
    verbose: bool = flag("Print the whole report, not only the summary."),
    report: ReportOptions,
    regression: RegressionOptions,
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
    from drrej.documents.gates import catalogue
    from drrej.documents.report import RegressionReport
    from drrej.pipeline.evaluate import check_gates, evaluate_regression
    from drrej.pipeline.evaluate import evaluate as step
    from drrej.report import CURVES, DRAWN, ENDINGS, render

    paths = output or []
    kinds = [format_of(path, format, ENDINGS) for path in paths]
    gates = gates_of(report.gate)
    wanted = report.options(rejector, kinds, input.join_on)
    for path, kind in zip(paths, kinds, strict=True):
        if kind in CURVES and report.no_labels:
            raise OptionError(f"-o {path}: the curve needs labels; it cannot be combined with --no-labels")
    if gates and not report.baseline_dump:  # which task it is, the rejector says
        of_regression = {metric.name for metric in catalogue(of=RegressionReport)}
        check_gates([gate for gate in gates if gate.metric not in of_regression], wanted)
    workers = engine.start()
    with ExitStack() as stack:
        places = open_files(stack, paths, force)
        source = input.source(dumps, workers, paired=bool(report.baseline_dump))
        check_spared(report.baseline)
        document = read_rejector(rejector, source, "threshold")
        if regression.task not in (None, document.task):
            raise OptionError(f"--task {regression.task}: the rejector is for a {document.task}")
        if document.task == "classification":
            regression.refuse()
            wanted = report.completed(wanted, document, input, workers)
            made: Report | RegressionReport = step(source, document, gates, wanted)
        else:
            for name in [name for name in (*report.given(), *input.given()) if name not in _FOR_REGRESSIONS]:
                raise OptionError(f"{long_flag(name)}: it does not apply to a regression, which this rejector is for")
            for kind in [kind for kind in (format, *kinds) if kind in DRAWN]:
                raise OptionError(f"a regression has no plots; it cannot be reported as {kind}")
            made = evaluate_regression(
                source, document, input.prediction, regression.target, gates, report.on_unseen_group
            )
        write_files(places, [render(made, kind) for kind in kinds])
    say_notes(source, engine.quiet, document.floor)
    if STREAM in paths:
        return finish(made, None, engine.quiet)
    last = written(paths, None if rejector == STREAM else rejector, dumps)
    heading = f"drrej evaluate \N{MIDDLE DOT} {rows_words(dumps, made.rows)}"
    return finish(made, shown(made, format, verbose, heading, last), engine.quiet)
