"""drrej threshold."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from drrej.cli import options
from drrej.cli.choosing import Target
from drrej.cli.command import Command
from drrej.cli.console import complain, say_notes
from drrej.cli.main import app
from drrej.cli.reading import Bad, Certificates, Reading, engine_of, read_rejector
from drrej.cli.writing import check_spared, check_table, output_file

if TYPE_CHECKING:
    from drrej.documents.rejector import Rejector

EXAMPLES = """
Examples:

drrej threshold fresh.parquet -r fitted.json --accuracy 0.98 --confidence 0.95

drrej threshold val.parquet -r fitted.json --risk 0.02 --by prediction

drrej threshold val.parquet -r fitted.json --error-cost 50 --review-cost 2
"""


@app.command(cls=Command, epilog=EXAMPLES)
def threshold(
    dumps: options.Dumps,
    rejector: options.RejectorFile,
    output: options.OutputPath = "-",
    force: options.Force = False,
    mask: Annotated[
        str | None, typer.Option("--mask", metavar="FILE", help="Also write the mask of these rows.")
    ] = None,
    table: options.Table = None,
    tau: options.Tau = None,
    coverage: options.Coverage = None,
    accuracy: options.Accuracy = None,
    risk: options.Risk = None,
    max_loss: options.MaxLoss = None,
    review_cost: options.ReviewCost = None,
    error_cost: options.ErrorCost = None,
    mean_cost: options.MeanCost = None,
    mse: options.Mse = None,
    mae: options.Mae = None,
    clip: options.Clip = None,
    confidence: options.Confidence = None,
    method: options.Method = None,
    by: options.CutoffBy = None,
    allow_reuse: options.AllowReuse = False,
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
    """Add the threshold by exactly one rule: --accuracy, --coverage, --risk, a cost, an error, --tau or --max-loss.

    DUMP: parquet files, directories, globs or URIs; - is standard input.
    """
    from drrej.outputs.destinations import OutputFile
    from drrej.outputs.masks import write_table
    from drrej.pipeline.reject import reject
    from drrej.pipeline.threshold import ThresholdOptions, choose_threshold

    prices = (review_cost, error_cost, method, mean_cost, mse, mae, clip)
    rule = Target(tau, coverage, accuracy, risk, max_loss, confidence, *prices).rule()
    check_table(table)
    bad = Bad(on_bad_row, on_bad_file, max_bad)
    reading = Reading(logits, label, labels_from, join_on, on_missing_label, input, binary, classes, normalize, bad)
    source = reading.source(dumps, engine_of(jobs, cluster, quiet, Certificates(tls_ca, tls_cert, tls_key)))
    with ExitStack() as files:
        document = files.enter_context(output_file(output, force, rejector))
        mask_file = None if mask is None else files.enter_context(OutputFile(mask, force))
        table_file = None if table is None else files.enter_context(OutputFile(table, force))
        check_spared(classes)
        start = read_rejector(rejector, source, "ratio")
        found = choose_threshold(source, start, rule, ThresholdOptions(by, allow_reuse), table_file is not None)
        say_notes(source, quiet, found.rejector.floor)
        if found.caution is not None and not quiet:
            complain(found.caution, "warning")
        warn_uncertified(found.rejector, quiet)
        document.write_text(found.rejector.to_json())
        if mask_file is not None:
            reject(source, found.rejector, mask_file)
            mask_file.commit()
        if table_file is not None:
            write_table(found.candidates, table_file.path, table_file.target)
            table_file.commit()
        document.commit()


def warn_uncertified(rejector: Rejector, quiet: bool) -> None:
    """Tell of groups that are rejected as a whole."""
    from drrej.pipeline.threshold import uncertified_groups

    groups = uncertified_groups(rejector)
    if groups and not quiet:
        shown = ", ".join(f"'{group}'" for group in groups[:5]) + (", ..." if len(groups) > 5 else "")
        complain(f"no cutoff meets the risk in {len(groups)} groups ({shown}); all their rows are rejected", "warning")
