"""drrej weights."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated, Literal

import typer

from drrej.cli import options
from drrej.cli.choosing import Objective
from drrej.cli.command import Command
from drrej.cli.console import say_notes, show
from drrej.cli.main import app
from drrej.cli.reading import Bad, Certificates, Reading, Start, engine_of, names_of
from drrej.cli.writing import check_spared
from drrej.errors import OptionError

EXAMPLES = """
Examples:

drrej weights val.parquet -r calibrated.json --radius 0.1

drrej weights val.parquet -r calibrated.json --radius 0.1 -o weights.parquet

drrej weights val.parquet --temperature 1 --lambda 2 --loss zero-one
"""


@app.command(cls=Command, epilog=EXAMPLES)
def weights(
    dumps: options.Dumps,
    rejector: options.RejectorSoFar = None,
    temperature: options.Temperature = None,
    radius: Annotated[
        float | None,
        typer.Option("--radius", metavar="EPS", help="Worst case within this divergence of the data; solves lambda."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="OUT", help="The weights, row for row, as parquet.")
    ] = None,
    force: options.Force = False,
    keep: options.Keep = None,
    format: Annotated[Literal["text", "json"], typer.Option("--format", help="What goes to standard output.")] = "text",
    divergence: options.Divergence = None,
    alpha: options.Alpha = None,
    lam: options.Lambda = None,
    loss: options.LossName = "log",
    cost_matrix: options.CostMatrixFile = None,
    loss_column: options.LossColumn = None,
    logits: options.Logits = None,
    on_bad_row: options.SkipBadRow = "error",
    on_bad_file: options.OnBadFile = "error",
    max_bad: options.MaxBad = None,
    input: options.Input = None,
    normalize: options.Normalize = False,
    binary: options.Binary = False,
    classes: options.Classes = None,
    precision: options.Precision = None,
    jobs: options.Jobs = 0,
    cluster: options.ClusterAddress = None,
    tls_ca: options.TlsAuthority = None,
    tls_cert: options.TlsCertificate = None,
    tls_key: options.TlsKey = None,
    quiet: options.Quiet = False,
) -> None:
    """Give the worst-case weights of a divergence ball around the data (DRO).

    DUMP: parquet files, directories, globs or URIs; - is standard input.
    """
    from drrej.outputs.destinations import OutputFile
    from drrej.pipeline.weights import weights as step
    from drrej.report.json import render_json
    from drrej.report.weights import render_weights

    if radius is not None and lam is not None:
        raise OptionError("give --radius or --lambda, not both: the radius fixes lambda")
    if radius is None and lam is None:
        raise OptionError("give --radius EPS (the ball) or --lambda L (the weight of the divergence)")
    if keep is not None and output is None:
        raise OptionError("--keep says which columns go beside the weights; it goes with -o OUT")
    objective = Objective(divergence, alpha, lam, loss, cost_matrix, loss_column)
    reading = Reading(
        logits=logits,
        input=input,
        binary=binary,
        classes=classes,
        normalize=normalize,
        bad=Bad(on_bad_row, on_bad_file, max_bad),
    )
    source = reading.source(dumps, engine_of(jobs, cluster, quiet, Certificates(tls_ca, tls_cert, tls_key)))
    start = Start(rejector, temperature, precision, loss_column).rejector_for(source)
    with OutputFile(output, force) if output is not None else nullcontext() as file:
        check_spared(rejector, classes, cost_matrix)
        summary = step(source, start, objective.options(start.class_names), radius, file, names_of(keep))
        if file is not None:
            file.commit()
    say_notes(source, quiet)
    if output != "-":
        show((render_json if format == "json" else render_weights)(summary))
