"""drrej sweep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from drrej.cli import options
from drrej.cli.command import Command
from drrej.cli.console import say_notes, show_curve
from drrej.cli.main import app
from drrej.cli.reading import Certificates, Reading, Start, engine_of
from drrej.cli.writing import check_spared, output_file
from drrej.errors import OptionError

EXAMPLES = """
Examples:

drrej sweep val.parquet -r calibrated.json --alpha 1,3,5 --lambda 0.5,1,2

drrej sweep val.parquet -r calibrated.json --loss log,zero-one,brier

drrej sweep nightly/ -r calibrated.json --no-labels --format csv -o sweep.csv
"""


@app.command(cls=Command, epilog=EXAMPLES)
def sweep(
    dumps: options.Dumps,
    rejector: options.RejectorSoFar = None,
    temperature: options.Temperature = None,
    output: options.OutputPath = "-",
    force: options.Force = False,
    format: Annotated[Literal["text", "json", "csv"], typer.Option("--format", help="Format of the table.")] = "text",
    no_labels: Annotated[
        bool, typer.Option("--no-labels", metavar=options.FLAG, help="Leave out what needs labels.")
    ] = False,
    alpha: Annotated[str, options.swept("--alpha", metavar="A,...", help="Comma list of alphas.")] = "1,3",
    lam: Annotated[str, options.swept("--lambda", metavar="L,...", help="Comma list of lambdas.")] = "1",
    loss: Annotated[
        str, options.swept("--loss", metavar="NAME,...", help="Comma list of log, zero-one, brier.")
    ] = "log",
    logits: options.Logits = None,
    label: options.Label = None,
    labels_from: options.LabelsFrom = None,
    join_on: options.JoinOn = None,
    on_missing_label: options.OnMissingLabel = None,
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
    """Compare alphas, lambdas and losses: the coverage that tau reaches, the flat part, accuracy.

    DUMP: parquet files, directories, globs or URIs; - is standard input.
    """
    from drrej.pipeline.sweep import Grid
    from drrej.pipeline.sweep import sweep as step
    from drrej.report.json import render_json
    from drrej.report.sweep import render_sweep, render_sweep_csv

    grid = Grid(_numbers("--alpha", alpha), _numbers("--lambda", lam), [part.strip() for part in loss.split(",")])
    render: dict[str, Callable[[Any], str]] = {
        "text": render_sweep,
        "json": render_json,
        "csv": render_sweep_csv,
    }
    reading = Reading(logits, label, labels_from, join_on, on_missing_label, input, binary, classes, normalize)
    source = reading.source(dumps, engine_of(jobs, cluster, quiet, Certificates(tls_ca, tls_cert, tls_key)))
    with output_file(output, force) as file:
        check_spared(classes)
        start = Start(rejector, temperature, precision).rejector_for(source)
        table = step(source, start, grid, labelled=not no_labels)
        say_notes(source, quiet)
        file.write_text(render[format](table))
        file.commit()
    if format == "text" and output == "-":
        for name, curve in table.get("curves", {}).items():
            show_curve(curve, title=f"accuracy by the loss '{name}'")


def _numbers(option: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise OptionError(f"{option} {text}: write numbers separated by commas, such as 1,3,5") from None
