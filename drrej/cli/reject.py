"""drrej reject."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from drrej.cli import options
from drrej.cli.command import Command
from drrej.cli.console import complain, say_notes, warn_bad_rows
from drrej.cli.main import app
from drrej.cli.reading import Certificates, Reading, engine_of, names_of, read_rejector
from drrej.cli.writing import check_spared
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.outputs.protocol import Dataset

EXAMPLES = """
Examples:

drrej reject test.parquet -r rejector.json -o mask.csv --review tasks.json

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
            "-o",
            "--output",
            metavar="OUT",
            help="The mask: a file (.parquet, .csv, .jsonl, .arrow, ...), - or DIR/ (one file per input file).",
        ),
    ],
    review: Annotated[
        str | None,
        typer.Option(
            "--review",
            metavar="FILE",
            help="Also write the rejected rows, most doubtful first: .json (tasks of Label Studio) or .jsonl.",
        ),
    ] = None,
    review_limit: Annotated[
        int | None, typer.Option("--review-limit", metavar="N", help="No more than N rows in --review.")
    ] = None,
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
    from drrej.pipeline.reject import MaskOptions, Review
    from drrej.pipeline.reject import reject as step

    reading = Reading(logits=logits, label=label, input=input, binary=binary, classes=classes, normalize=normalize)
    source = reading.source(dumps, engine_of(jobs, cluster, quiet, Certificates(tls_ca, tls_cert, tls_key)))
    whole_directory = output.endswith("/") or os.path.isdir(output)
    wanted = MaskOptions(names_of(keep), on_bad_row, on_unseen_group)
    if review_limit is not None and review is None:
        raise OptionError("--review-limit goes with --review FILE")
    with ExitStack() as stack:
        place: OutputFile | Dataset
        if whole_directory:
            place = stack.enter_context(source.engine.dataset(output, force))
        else:
            place = stack.enter_context(OutputFile(output, force))
        queue = None if review is None else Review(stack.enter_context(OutputFile(review, force)), review_limit)
        check_spared(classes)
        document = read_rejector(rejector, source, "threshold")
        counts = step(source, document, place, wanted, queue)
        place.commit()
        if queue is not None:
            queue.file.commit()
    say_notes(source, quiet, document.floor)
    if counts.reused and not quiet:
        complain(f"{counts.reused} files were finished by an earlier run and are used again", "note")
    warn_bad_rows(counts)
