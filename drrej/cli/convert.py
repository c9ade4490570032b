"""drrej convert."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from drrej.cli import options
from drrej.cli.command import Command
from drrej.cli.console import show
from drrej.cli.main import app
from drrej.cli.reading import Certificates, Reading, engine_of
from drrej.cli.writing import check_spared, output_file
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.pipeline.convert import Converted

EXAMPLES = """
Examples:

drrej convert val.csv -o val.parquet

drrej convert logits.npy --labels-from labels.npy -o val.parquet

cat val.csv | drrej convert - -o - > val.parquet
"""


@app.command(cls=Command, epilog=EXAMPLES)
def convert(
    dumps: options.Dumps,
    output: options.OutputPath,
    force: options.Force = False,
    logits: options.Logits = None,
    label: options.Label = None,
    labels_from: options.LabelsFrom = None,
    join_on: options.JoinOn = None,
    on_missing_label: options.OnMissingLabel = None,
    input: options.Input = None,
    normalize: options.Normalize = False,
    binary: options.Binary = False,
    classes: options.Classes = None,
    filter: options.Filter = None,
    per_length: options.PerLength = False,
    jobs: options.Jobs = 0,
    cluster: options.ClusterAddress = None,
    tls_ca: options.TlsAuthority = None,
    tls_cert: options.TlsCertificate = None,
    tls_key: options.TlsKey = None,
    quiet: options.Quiet = False,
) -> None:
    """Write a dump of any format and layout as one parquet file.

    DUMP: files, directories, globs or URIs; - is standard input.
    """
    from drrej.pipeline.convert import convert as step

    how = (logits, label, labels_from, join_on, on_missing_label, input, binary, classes, normalize)
    reading = Reading(*how, filter, per_length)
    source = reading.source(dumps, engine_of(jobs, cluster, quiet, Certificates(tls_ca, tls_cert, tls_key)))
    if not output.lower().endswith((".parquet", ".pq")) and output != "-":
        raise OptionError(f"-o {output}: the output is parquet; end its name in .parquet")
    with output_file(output, force) as file:
        check_spared(classes)
        written = step(source, file)
        file.commit()
    if not quiet and output != "-":
        show(f"{written.rows} rows; go on with:\n  {_next(output, written, normalize)}\n")


def _next(output: str, written: Converted, normalize: bool) -> str:
    """The command for the new file."""
    flags = ["--logits", written.scores] if written.scores != "logits" else []
    flags += ["--label", written.label] if written.label not in (None, "label") else []
    flags += ["--input", written.input] if written.input != "logits" else []
    flags += ["--normalize"] if normalize else []
    flags += ["--binary"] if written.binary else []
    flags += ["--classes", ",".join(written.classes)] if written.classes else []
    return shlex.join(["drrej", "calibrate", output, *(flag for flag in flags if flag is not None)])
