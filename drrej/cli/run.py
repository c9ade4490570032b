"""drrej run."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from drrej.cli import options
from drrej.cli.calibrate import warn_calibration
from drrej.cli.choosing import Objective, Target
from drrej.cli.command import Command
from drrej.cli.console import complain, say_notes, warn_bad_rows
from drrej.cli.evaluate import with_words
from drrej.cli.judging import Comparisons, Judging, Shown, exit_by_gates, show_report, warn_order, warn_seen
from drrej.cli.main import app
from drrej.cli.parts import Parts, RowOptions, parts_of
from drrej.cli.reading import Bad, Certificates, Reading, Start, bytes_of, engine_of, names_of
from drrej.cli.threshold import warn_uncertified
from drrej.cli.writing import can_draw, check_spared, check_table
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.documents.rejector import Rejector
    from drrej.pipeline.calibrate import CalibrateOptions
    from drrej.pipeline.source import Source
    from drrej.pipeline.split import SplitOptions

FILES = ("mask.parquet", "rejector.json", "report.json", "report.txt", "report.html")
"""What is written; the page where it can be drawn."""

rows = partial(typer.Option, rich_help_panel="Rows: one DUMP, or --val and --test")

_PROMISED = ("accuracy", "risk", "coverage", "mean-cost")
"""Rules that are certified by default where rows are fresh."""

EXAMPLES = """
Examples:

drrej run predictions.parquet --accuracy 0.98 -o out

drrej run predictions.parquet --coverage 0.8 --split 40,20,20,20 -o out

drrej run --val val.parquet --test test.parquet --coverage 0.8 -o out
"""


@app.command(cls=Command, epilog=EXAMPLES)
def run(
    output: Annotated[str, typer.Option("-o", "--output", metavar="DIR", help="Directory for the results.")],
    dumps: Annotated[list[str] | None, typer.Argument(metavar="DUMP", hidden=True)] = None,
    split: Annotated[
        str | None,
        rows(
            "--split",
            metavar="A,B,C",
            show_default="40,30,30",
            help="Shares of DUMP to fit, choose and test; of four the first is to calibrate. With --val: A,B of it.",
        ),
    ] = None,
    seed: Annotated[
        int | None, rows("--seed", metavar="N", show_default="0", help="Another seed, another split.")
    ] = None,
    group: Annotated[
        str | None, rows("--group", metavar="COL", help="Rows with the same value, such as a patient, stay together.")
    ] = None,
    val: Annotated[
        list[str] | None, rows("--val", metavar="DUMP", help="Rows to calibrate, fit and choose on. Repeatable.")
    ] = None,
    test: Annotated[
        list[str] | None, rows("--test", metavar="DUMP", help="Rows to report on and to mask. Repeatable.")
    ] = None,
    choose: Annotated[
        list[str] | None,
        rows(
            "--choose",
            metavar="DUMP",
            show_default="--val",
            help="Fresh rows to choose the threshold on. Repeatable.",
        ),
    ] = None,
    temperature: options.Temperature = None,
    calibrator: options.Calibrator = None,
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
    mean_cost: options.MeanCost = None,
    confidence: Annotated[
        float | None,
        options.guarantee(
            "--confidence",
            metavar="P",
            show_default="0.95 on fresh rows, if there are enough",
            help="Make the rule hold on new rows with probability P; 0 for no guarantee.",
        ),
    ] = None,
    method: options.Method = None,
    by: options.CutoffBy = None,
    allow_reuse: options.AllowReuse = False,
    divergence: options.Divergence = None,
    alpha: options.Alpha = None,
    lam: options.Lambda = None,
    effective_sample: options.EffectiveSample = None,
    loss: options.LossName = "auto",
    cost_matrix: options.CostMatrixFile = None,
    loss_column: options.LossColumn = None,
    gate: options.Gates = None,
    metric: options.Metrics = None,
    intervals: options.Intervals = False,
    classwise: options.Classwise = False,
    report_by: Annotated[
        str | None,
        options.report(
            "--report-by", metavar="COL", show_default="--by", help="Also report by a column, 'prediction' or 'label'."
        ),
    ] = None,
    title: options.Title = None,
    model: options.Model = None,
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
    on_bad_file: options.OnBadFile = "error",
    max_bad: options.MaxBad = None,
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
    """Do all of it: calibrate, fit, choose the threshold, evaluate and reject.

    DUMP: parquet files, directories, globs or URIs, divided by --split; or give --val and --test. - is standard input.
    """
    from drrej.outputs.destinations import OutputFile, prepare_directory
    from drrej.outputs.masks import write_table
    from drrej.pipeline.calibrate import CalibrateOptions
    from drrej.pipeline.evaluate import check_gates, evaluate
    from drrej.pipeline.fit import fit
    from drrej.pipeline.reject import MaskOptions, reject
    from drrej.pipeline.threshold import ThresholdOptions, certify_if_possible, choose_threshold
    from drrej.report import need_libraries, render

    division = RowOptions(dumps, val, test, choose, split, seed, group)
    divided = division.check()
    prices = (review_cost, error_cost, method, mean_cost)
    rule = Target(tau, coverage, accuracy, risk, max_loss, confidence or None, *prices).rule()
    check_table(table)
    if temperature is not None and memory is not None:
        raise OptionError("--memory is for fitting the temperature; it does not go with --temperature T")
    if temperature is not None and calibrator is not None:
        raise OptionError("--calibrator says what is fitted; it does not go with --temperature T, which is given")
    if dumps and on_bad_row != "error":
        raise OptionError(f"--on-bad-row {on_bad_row} goes with --test: rows without usable scores cannot be divided")
    bad = Bad(on_bad_row, on_bad_file, max_bad)
    reading = Reading(logits, label, labels_from, join_on, on_missing_label, input, binary, classes, normalize, bad)
    judging = Judging(gate, metric, intervals, report_by or by, classwise=classwise)
    others = Comparisons(compare, score, score_order, rejected, baseline, baseline_dump, baseline_rejector)
    gates, wanted = judging.gates(), judging.options(others, reading, on_unseen_group)
    page = can_draw("html")
    if not page and (title is not None or model is not None):
        need_libraries("html", "--title" if title is not None else "--model")
    wanted = Shown(None, title, model).options(wanted, ["html"], FILES[1])
    wanted = replace(wanted, on_bad_row=on_bad_row, pictures=page, known_fresh=bool(dumps))
    if not baseline_dump:
        check_gates(gates, wanted)
    plain, engine = others.reading(reading), engine_of(jobs, cluster, quiet, Certificates(tls_ca, tls_cert, tls_key))
    sources = division.sources(plain, engine)
    objective = Objective(divergence, alpha, lam, loss, cost_matrix, loss_column, effective_sample).options(
        sources[0].options.classes
    )
    with ExitStack() as stack:
        stack.enter_context(prepare_directory(output))
        names = FILES if page else FILES[:-1]
        mask, document, *reports = (
            stack.enter_context(OutputFile(os.path.join(output, name), force)) for name in names
        )
        candidates = None if table is None else stack.enter_context(OutputFile(table, force))
        check_spared(classes, cost_matrix, baseline)
        parts = parts_of(sources, divided)
        if parts.no_sample is not None and confidence:
            raise OptionError(f"--confidence {confidence:g}: {parts.no_sample}")
        how = CalibrateOptions(precision or "auto", bytes_of(memory), floor, calibrator or "temperature")
        fitted = fit(parts.fit, _calibrated(parts.calibrate, temperature, how), objective)
        choosing = ThresholdOptions(by, allow_reuse, known_fresh=divided is not None)
        if parts.fresh and confidence is None and parts.no_sample is None:
            promised = certify_if_possible(parts.choose, fitted, rule, choosing, table is not None)
            found, why_not = promised.chosen, promised.why_not
        else:
            found = choose_threshold(parts.choose, fitted, rule, choosing, table is not None)
            why_not = parts.no_sample if confidence is None and rule.kind in _PROMISED else None
        rejector = found.rejector
        wanted = replace(wanted, baseline_dump=others.dump(reading, engine, rejector))
        report = evaluate(parts.test, rejector, gates, with_words(wanted, rejector))
        counts = reject(parts.test, rejector, mask, MaskOptions(names_of(keep), on_bad_row, on_unseen_group))
        document.write_text(rejector.to_json())
        for file, kind in zip(reports, ("json", "text", "html"), strict=False):
            file.write_bytes(render(report if kind == "html" else replace(report, pictures=None), kind))
        if candidates is not None:
            write_table(found.candidates, candidates.path, candidates.target)
            candidates.commit()
        for file in (mask, document, *reports):
            file.commit()
    if parts.note is not None and not quiet:
        complain(parts.note, "note")
    warn_calibration(rejector.need_calibration(), quiet)
    for caution in (found.caution, why_not, _not_promised(parts, rejector, divided)):
        if caution is not None and not quiet:
            complain(caution, "warning")
    warn_uncertified(rejector, quiet)
    for source in parts.sources:
        say_notes(source, quiet, rejector.floor)
    warn_seen(report, quiet)
    warn_order(report, quiet)
    warn_bad_rows(counts, quiet, on_bad_row, "; the report leaves them out")
    show_report(report, format)
    exit_by_gates(report, and_target=True)


def _not_promised(parts: Parts, rejector: Rejector, divided: SplitOptions | None) -> str | None:
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


def _calibrated(source: Source, temperature: float | None, how: CalibrateOptions) -> Rejector:
    from drrej.pipeline.calibrate import calibrate

    if temperature is None:
        return calibrate(source, how)
    return Start(None, temperature, how.precision, floor=how.floor).rejector_for(source)
