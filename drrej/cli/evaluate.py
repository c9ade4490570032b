"""drrej evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from drrej.cli import options
from drrej.cli.command import Command
from drrej.cli.commandline import this_command
from drrej.cli.console import say_notes
from drrej.cli.flags import in_flags
from drrej.cli.judging import Comparisons, Judging, Shown, exit_by_gates, show_report, warn_order, warn_seen
from drrej.cli.main import app
from drrej.cli.reading import Bad, Certificates, Reading, engine_of, read_rejector
from drrej.cli.regression import Regression, Task, check_regression
from drrej.cli.writing import check_spared, format_of
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.documents.gates import Gate
    from drrej.documents.regression import RegressionReport
    from drrej.documents.rejector import Rejector
    from drrej.documents.report import Report
    from drrej.pipeline.evaluate import EvaluateOptions

EXAMPLES = """
Examples:

drrej evaluate test.parquet -r rejector.json --gate 'accuracy >= 0.97'

drrej evaluate test.parquet -r rejector.json --compare -o report.html

drrej evaluate nightly/ -r rejector.json --no-labels --gate 'coverage >= 0.7'
"""


@app.command(cls=Command, epilog=EXAMPLES)
def evaluate(
    dumps: options.Dumps,
    rejector: options.RejectorFile,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Also write .html .json .md .txt .xml by its ending, or the curve as .csv .png .svg .pdf. Repeatable.",
        ),
    ] = None,
    force: options.Force = False,
    format: options.Format = "text",
    on_unseen_group: options.OnUnseenGroup = "error",
    gate: options.Gates = None,
    metric: options.Metrics = None,
    intervals: options.Intervals = False,
    classwise: options.Classwise = False,
    by: Annotated[
        str | None,
        options.report("--by", metavar="COL", help="Also report by a column, by 'prediction' or by 'label'."),
    ] = None,
    no_labels: Annotated[
        bool,
        options.report(
            "--no-labels", metavar=options.FLAG, help="Only what needs no labels: coverage, expected accuracy, drift."
        ),
    ] = False,
    ood: Annotated[
        str | None,
        options.report(
            "--ood", metavar="COL", help="Rows where this column is true belong to no class: judge them apart."
        ),
    ] = None,
    ood_cost: Annotated[
        float | None,
        options.report(
            "--ood-cost",
            metavar="X",
            show_default="1",
            help="What accepting a row of no class costs, as a multiple of an error.",
        ),
    ] = None,
    examples: options.Examples = None,
    title: options.Title = None,
    model: options.Model = None,
    compare: options.Compare = False,
    score: options.Scores = None,
    score_order: options.ScoreOrders = None,
    rejected: options.Masks = None,
    baseline: options.Baseline = None,
    baseline_dump: options.BaselineDumps = None,
    baseline_rejector: options.BaselineRejector = None,
    task: Annotated[
        Task | None,
        options.regression(
            "--task", metavar="TASK", help="classification or regression: check that the rejector is for it."
        ),
    ] = None,
    prediction: options.PredictionColumn = None,
    target: options.TargetColumn = None,
    logits: options.Logits = None,
    label: options.Label = None,
    labels_from: options.LabelsFrom = None,
    join_on: options.JoinOn = None,
    on_missing_label: options.OnMissingLabel = None,
    on_bad_row: options.SkipBadRow = "error",
    on_bad_file: options.OnBadFile = "error",
    max_bad: options.MaxBad = None,
    input: options.Input = None,
    normalize: options.Normalize = False,
    binary: options.Binary = False,
    classes: options.Classes = None,
    jobs: options.Jobs = 0,
    cluster: options.ClusterAddress = None,
    tls_ca: options.TlsAuthority = None,
    tls_cert: options.TlsCertificate = None,
    tls_key: options.TlsKey = None,
    quiet: options.Quiet = False,
) -> None:
    """Report coverage and accuracy; judge gates.

    DUMP: parquet files, directories, globs or URIs; - is standard input.
    """
    from drrej.outputs.destinations import OutputFile
    from drrej.pipeline.evaluate import evaluate as step
    from drrej.pipeline.regression import evaluate_regression
    from drrej.report import render

    bad = Bad(on_bad_row, on_bad_file, max_bad)
    reading = Reading(logits, label, labels_from, join_on, on_missing_label, input, binary, classes, normalize, bad)
    judging = Judging(gate, metric, intervals, by, no_labels, classwise, ood, ood_cost)
    others = Comparisons(compare, score, score_order, rejected, baseline, baseline_dump, baseline_rejector)
    regression = Regression(task, prediction, target)
    outputs = [(path, format if path == "-" else format_of(path)) for path in output or []]
    gates, wanted = judging.gates(), with_pictures(judging.options(others, reading, on_unseen_group), outputs)
    shown = Shown(examples, title, model)
    wanted = shown.options(wanted, [kind for _, kind in outputs], rejector)
    if not baseline_dump:
        check_early(gates, wanted)
    engine = engine_of(jobs, cluster, quiet, Certificates(tls_ca, tls_cert, tls_key))
    source = others.reading(reading).source(dumps, engine)
    with ExitStack() as stack:
        files = [(stack.enter_context(OutputFile(path, force)), kind) for path, kind in outputs]
        check_spared(classes, baseline)
        document = read_rejector(rejector, source, "threshold")
        if regression.is_meant(document):
            check_regression([judging, others, reading, shown], [format, *(kind for _, kind in outputs)])
            report: Report | RegressionReport = evaluate_regression(
                source, document, prediction, target, gates, on_unseen_group
            )
        else:
            wanted = replace(wanted, baseline_dump=others.dump(reading, engine, document))
            report = step(source, document, gates, with_words(wanted, document))
        for file, kind in files:
            file.write_bytes(render(report, kind))
        for file, _ in files:
            file.commit()
    say_notes(source, quiet, document.floor)
    warn_seen(report, quiet)
    warn_order(report, quiet)
    if "-" not in (output or []):
        show_report(report, format)
    exit_by_gates(report)


def check_early(gates: Sequence[Gate], wanted: EvaluateOptions) -> None:
    """Raise when no report has the metric of a gate: neither the one that is wanted nor that of a regression."""
    from drrej.documents.metrics import catalogue
    from drrej.documents.regression import RegressionReport
    from drrej.pipeline.evaluate import check_gates

    of_regression = {metric.name for metric in catalogue(of=RegressionReport)}
    check_gates([gate for gate in gates if gate.metric not in of_regression], wanted)


def with_pictures(wanted: EvaluateOptions, outputs: Sequence[tuple[str, str]]) -> EvaluateOptions:
    """The options with what pages and plots need, if one of them is wanted; raises when it cannot be drawn."""
    from drrej.report import CURVES, DRAWN, need_libraries

    for path, kind in outputs:
        need_libraries(kind, f"-o {path}")
        if kind in CURVES and not wanted.labels:
            raise OptionError(f"-o {path}: the curve needs labels; it does not go with --no-labels")
    return replace(wanted, pictures=any(kind in DRAWN for _, kind in outputs))


def with_words(wanted: EvaluateOptions, rejector: Rejector) -> EvaluateOptions:
    """The options with what a page says of the rejector: its facts, with flags, and this command."""
    from drrej.documents.words import describe_sections

    if not wanted.pictures:
        return wanted
    words = [in_flags(line) for line in describe_sections(rejector)]
    return replace(wanted, words=words, commands=[this_command()])
