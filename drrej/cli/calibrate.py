"""drrej calibrate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drrej.cli import options
from drrej.cli.command import Command
from drrej.cli.console import complain, say_notes
from drrej.cli.main import app
from drrej.cli.reading import Bad, Certificates, Reading, bytes_of, engine_of
from drrej.cli.writing import check_spared, output_file

if TYPE_CHECKING:
    from drrej.documents.rejector import Calibration

EXAMPLES = """
Examples:

drrej calibrate val.parquet -o rejector.json

drrej calibrate wide.parquet --logits 'logit_*' --label truth

drrej calibrate val.parquet | drrej fit val.parquet -r -
"""


@app.command(cls=Command, epilog=EXAMPLES)
def calibrate(
    dumps: options.Dumps,
    output: options.OutputPath = "-",
    force: options.Force = False,
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
    floor: options.Floor = None,
    calibrator: options.Calibrator = None,
    precision: options.Precision = None,
    memory: options.Memory = None,
    jobs: options.Jobs = 0,
    cluster: options.ClusterAddress = None,
    tls_ca: options.TlsAuthority = None,
    tls_cert: options.TlsCertificate = None,
    tls_key: options.TlsKey = None,
    quiet: options.Quiet = False,
) -> None:
    """Start a rejector: fit the temperature, or another calibrator, on labelled rows.

    DUMP: parquet files, directories, globs or URIs; - is standard input.
    """
    from drrej.pipeline.calibrate import CalibrateOptions
    from drrej.pipeline.calibrate import calibrate as step

    bad = Bad(on_bad_row, on_bad_file, max_bad)
    reading = Reading(logits, label, labels_from, join_on, on_missing_label, input, binary, classes, normalize, bad)
    source = reading.source(dumps, engine_of(jobs, cluster, quiet, Certificates(tls_ca, tls_cert, tls_key)))
    with output_file(output, force) as file:
        check_spared(classes)
        rejector = step(
            source, CalibrateOptions(precision or "auto", bytes_of(memory), floor, calibrator or "temperature")
        )
        file.write_text(rejector.to_json())
        file.commit()
    say_notes(source, quiet, rejector.floor)
    warn_calibration(rejector.need_calibration(), quiet)


def warn_calibration(calibration: Calibration, quiet: bool) -> None:
    """Tell when the likelihood has no maximum at a finite temperature, or calibration made its own rows worse."""
    if quiet:
        return
    if calibration.converged is False and calibration.vector is not None:
        complain("the search for the calibrator did not converge; its last point was taken", "warning")
    elif calibration.converged is False:
        complain("the best temperature lies at or beyond the end of [0.001, 1000]; the nearest was taken", "warning")
    from drrej.documents.words import worse_figures

    worse = worse_figures(calibration)
    if worse is not None:
        complain(worse, "warning")
