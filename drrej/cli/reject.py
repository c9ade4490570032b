"""drrej reject."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from drrej.cli import options
from drrej.cli.command import Command
from drrej.cli.console import complain, say_notes, warn_bad_rows
from drrej.cli.main import app
from drrej.cli.reading import Certificates, Reading, engine_of, names_of, read_rejector
from drrej.cli.writing import check_spared

EXAMPLES = """
Examples:

drrej reject test.parquet -r rejector.json -o mask.parquet

drrej reject nightly/ -r rejector.json -o scored/ --on-bad-row reject

cat test.parquet | drrej reject - -r rejector.json -o - > mask.parquet
"""


@app.command(cls=Command, epilog=EXAMPLES)
def reject(
    dumps: options.Dumps,
    rejector: options.RejectorFile,
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", metavar="OUT", help="The mask: a parquet file, - or DIR/ (one file per input file)."
        ),
    ],
    force: options.Force = False,
    keep: options.Keep = None,
    on_bad_row: options.OnBadRow = "error",
    on_unseen_group: options.OnUnseenGroup = "error",
    logits: options.Logits = None,
    label: options.Label = None,
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
    """Write the rejection mask, row for row.

    DUMP: parquet files, directories, globs or URIs; - is standard input.
    """
    from drrej.outputs.files import OutputFile
    from drrej.pipeline.reject import MaskOptions
    from drrej.pipeline.reject import reject as step

    reading = Reading(logits=logits, label=label, input=input, binary=binary, classes=classes, normalize=normalize)
    source = reading.source(dumps, engine_of(jobs, cluster, quiet, Certificates(tls_ca, tls_cert, tls_key)))
    whole_directory = output.endswith("/") or os.path.isdir(output)
    wanted = MaskOptions(names_of(keep), on_bad_row, on_unseen_group)
    with source.engine.dataset(output, force) if whole_directory else OutputFile(output, force) as place:
        check_spared(classes)
        document = read_rejector(rejector, source, "threshold")
        counts = step(source, document, place, wanted)
        place.commit()
    say_notes(source, quiet, document.floor)
    if counts.reused and not quiet:
        complain(f"{counts.reused} files were finished by an earlier run and are used again", "note")
    warn_bad_rows(counts)
