"""drrej fit."""

from __future__ import annotations

from drrej.cli import options
from drrej.cli.choosing import Objective
from drrej.cli.command import Command
from drrej.cli.console import say_notes
from drrej.cli.main import app
from drrej.cli.reading import Certificates, Reading, Start, engine_of
from drrej.cli.writing import check_spared, output_file

EXAMPLES = """
Examples:

drrej fit val.parquet -r calibrated.json -o fitted.json

drrej fit val.parquet -r calibrated.json --loss auto --divergence chi2

drrej fit forecasts.parquet --loss column --loss-column variance
"""


@app.command(cls=Command, epilog=EXAMPLES)
def fit(
    dumps: options.Dumps,
    rejector: options.RejectorSoFar = None,
    temperature: options.Temperature = None,
    output: options.OutputPath = "-",
    force: options.Force = False,
    divergence: options.Divergence = None,
    alpha: options.Alpha = None,
    lam: options.Lambda = None,
    effective_sample: options.EffectiveSample = None,
    loss: options.LossName = "log",
    cost_matrix: options.CostMatrixFile = None,
    loss_column: options.LossColumn = None,
    prediction: options.PredictionColumn = None,
    target: options.TargetColumn = None,
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
    jobs: options.Jobs = 0,
    cluster: options.ClusterAddress = None,
    tls_ca: options.TlsAuthority = None,
    tls_cert: options.TlsCertificate = None,
    tls_key: options.TlsKey = None,
    quiet: options.Quiet = False,
) -> None:
    """Add the density ratio (labels are needed for --loss learned and auto only).

    DUMP: parquet files, directories, globs or URIs; - is standard input.
    """
    from drrej.pipeline.fit import fit as step

    objective = Objective(divergence, alpha, lam, loss, cost_matrix, loss_column, effective_sample)
    reading = Reading(logits, label, labels_from, join_on, on_missing_label, input, binary, classes, normalize)
    source = reading.source(dumps, engine_of(jobs, cluster, quiet, Certificates(tls_ca, tls_cert, tls_key)))
    with output_file(output, force, rejector) as file:
        check_spared(classes, cost_matrix)
        start = Start(rejector, temperature, precision, loss_column, prediction, target, floor).rejector_for(source)
        fitted = step(source, start, objective.options(start.class_names))
        say_notes(source, quiet, start.floor)
        file.write_text(fitted.to_json())
        file.commit()
