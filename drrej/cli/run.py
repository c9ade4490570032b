"""drrej run."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from drrej.cli import options
from drrej.cli.calibrate import warn_calibration
from drrej.cli.choosing import Objective, Target
from drrej.cli.command import Command
from drrej.cli.console import complain, say_notes, warn_bad_rows
from drrej.cli.judging import Comparisons, Judging, exit_by_gates, show_report, warn_seen
from drrej.cli.main import app
from drrej.cli.reading import Certificates, Reading, Start, bytes_of, check_one_stdin, engine_of, names_of
from drrej.cli.threshold import warn_uncertified
from drrej.cli.writing import check_spared, check_table
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.documents.rejector import Rejector
    from drrej.pipeline.calibrate import CalibrateOptions
    from drrej.pipeline.source import Source

FILES = ("rejector.json", "report.json", "report.txt", "mask.parquet")

EXAMPLES = """
Examples:

drrej run --val val.parquet --test test.parquet --coverage 0.8 -o out

drrej run --val val.parquet --test test.parquet --risk 0.01 --loss auto -o out

drrej run --val val.parquet --test test.parquet --tau 0.9 --keep id -o out
"""


@app.command(cls=Command, epilog=EXAMPLES)
def run(
    val: Annotated[
        list[str], typer.Option("--val", metavar="DUMP", help="Rows to calibrate, fit and choose on. Repeatable.")
    ],
    test: Annotated[
        list[str], typer.Option("--test", metavar="DUMP", help="Rows to report on and to mask. Repeatable.")
    ],
    output: Annotated[str, typer.Option("-o", "--output", metavar="DIR", help="Directory for the four results.")],
    choose: Annotated[
        list[str] | None,
        typer.Option(
            "--choose",
            metavar="DUMP",
            show_default="--val",
            help="Rows to choose the threshold on; --confidence needs fresh ones. Repeatable.",
        ),
    ] = None,
    temperature: options.Temperature = None,
    force: options.Force = False,
    format: options.Format = "text",
    table: options.Table = None,
    keep: options.Keep = None,
    on_bad_row: options.OnBadRow = "error",
    on_unseen_group: options.OnUnseenGroup = "error",
    tau: options.Tau = None,
    coverage: options.Coverage = None,
    accuracy: options.Accuracy = None,
    risk: options.Risk = None,
    max_loss: options.MaxLoss = None,
    review_cost: options.ReviewCost = None,
    error_cost: options.ErrorCost = None,
    confidence: options.Confidence = None,
    method: options.Method = None,
    by: options.CutoffBy = None,
    allow_reuse: options.AllowReuse = False,
    divergence: options.Divergence = None,
    alpha: options.Alpha = None,
    lam: options.Lambda = None,
    effective_sample: options.EffectiveSample = None,
    loss: options.LossName = "log",
    cost_matrix: options.CostMatrixFile = None,
    loss_column: options.LossColumn = None,
    gate: options.Gates = None,
    metric: options.Metrics = None,
    intervals: options.Intervals = False,
    report_by: Annotated[
        str | None,
        options.report(
            "--report-by", metavar="COL", show_default="--by", help="Also report by a column, or by 'prediction'."
        ),
    ] = None,
    compare: options.Compare = False,
    score: options.Scores = None,
    score_order: options.ScoreOrders = None,
    rejected: options.Masks = None,
    baseline: options.Baseline = None,
    baseline_dump: options.BaselineDumps = None,
    baseline_rejector: options.BaselineRejector = None,
    logits: options.Logits = None,
    label: options.Label = None,
    labels_from: options.LabelsFrom = None,
    join_on: options.JoinOn = None,
    on_missing_label: options.OnMissingLabel = None,
    input: options.Input = None,
    normalize: options.Normalize = False,
    binary: options.Binary = False,
    classes: options.Classes = None,
    floor: options.Floor = None,
    precision: options.Precision = None,
    memory: options.Memory = None,
    jobs: options.Jobs = 0,
    cluster: options.ClusterAddress = None,
    tls_ca: options.TlsAuthority = None,
    tls_cert: options.TlsCertificate = None,
    tls_key: options.TlsKey = None,
    quiet: options.Quiet = False,
) -> None:
    """Do all of it: calibrate, fit and threshold on --val; evaluate and reject on --test.

    DUMP: a parquet file, directory, glob or URI; - is standard input.
    """
    from drrej.outputs.files import OutputFile, prepare_directory
    from drrej.outputs.masks import write_table
    from drrej.pipeline.calibrate import CalibrateOptions
    from drrej.pipeline.evaluate import check_gates, evaluate
    from drrej.pipeline.fit import fit
    from drrej.pipeline.reject import MaskOptions, reject
    from drrej.pipeline.threshold import ThresholdOptions, choose_threshold
    from drrej.report import render

    rule = Target(tau, coverage, accuracy, risk, max_loss, confidence, review_cost, error_cost, method).rule()
    check_table(table)
    if temperature is not None and memory is not None:
        raise OptionError("--memory is for fitting the temperature; it does not go with --temperature T")
    reading = Reading(logits, label, labels_from, join_on, on_missing_label, input, binary, classes, normalize)
    judging = Judging(gate, metric, intervals, report_by or by)
    others = Comparisons(compare, score, score_order, rejected, baseline, baseline_dump, baseline_rejector)
    gates, wanted = judging.gates(), judging.options(others, reading, on_unseen_group)
    wanted = replace(wanted, on_bad_row=on_bad_row)
    if not baseline_dump:
        check_gates(gates, wanted)
    plain, engine = others.reading(reading), engine_of(jobs, cluster, quiet, Certificates(tls_ca, tls_cert, tls_key))
    source, target = plain.source(val, engine), plain.source(test, engine)
    chosen_on = plain.source(choose, engine) if choose else source
    check_one_stdin(source, target, *([chosen_on] if choose else []))
    objective = Objective(divergence, alpha, lam, loss, cost_matrix, loss_column, effective_sample).options(
        source.options.classes
    )
    with ExitStack() as stack:
        stack.enter_context(prepare_directory(output))
        document, as_json, as_text, mask = (
            stack.enter_context(OutputFile(os.path.join(output, name), force)) for name in FILES
        )
        candidates = None if table is None else stack.enter_context(OutputFile(table, force))
        check_spared(classes, cost_matrix, baseline)
        fitted = fit(
            source,
            _calibrated(source, temperature, CalibrateOptions(precision or "auto", bytes_of(memory), floor)),
            objective,
        )
        found = choose_threshold(chosen_on, fitted, rule, ThresholdOptions(by, allow_reuse), table is not None)
        rejector = found.rejector
        wanted = replace(wanted, baseline_dump=others.dump(reading, engine, rejector))
        report = evaluate(target, rejector, gates, wanted)
        counts = reject(target, rejector, mask, MaskOptions(names_of(keep), on_bad_row, on_unseen_group))
        document.write_text(rejector.to_json())
        as_json.write_bytes(render(report, "json"))
        as_text.write_bytes(render(report, "text"))
        if candidates is not None:
            write_table(found.candidates, candidates.path, candidates.target)
            candidates.commit()
        for file in (mask, document, as_json, as_text):
            file.commit()
    warn_calibration(rejector.need_calibration(), quiet)
    if found.caution is not None and not quiet:
        complain(found.caution, "warning")
    warn_uncertified(rejector, quiet)
    for passed in (source, target, *([chosen_on] if choose else [])):
        say_notes(passed, quiet, rejector.floor)
    warn_seen(report, quiet)
    warn_bad_rows(counts, "; the report leaves them out")
    show_report(report, format)
    exit_by_gates(report, and_target=True)


def _calibrated(source: Source, temperature: float | None, how: CalibrateOptions) -> Rejector:
    from drrej.pipeline.calibrate import calibrate

    if temperature is None:
        return calibrate(source, how)
    return Start(None, temperature, how.precision, floor=how.floor).rejector_for(source)
