"""drrej reject."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from drrej.cli import options
from drrej.cli.command import Command
from drrej.cli.console import complain, say_notes, warn_bad_rows
from drrej.cli.logs import FileLog, LogKind, log_kind
from drrej.cli.main import app
from drrej.cli.reading import Bad, Certificates, Reading, engine_of, names_of, read_rejector
from drrej.cli.writing import check_spared
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.outputs.dataset import Dataset
    from drrej.outputs.destinations import OutputFile

EXAMPLES = """
Examples:

drrej reject test.parquet -r rejector.json -o mask.csv --review tasks.json

drrej reject nightly/ -r rejector.json -o scored/ --update --on-bad-row reject

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
    update: Annotated[
        bool,
        typer.Option(
            "--update", metavar=options.FLAG, help="With -o DIR/: only files that are new or changed; the rest stays."
        ),
    ] = False,
    keep: options.Keep = None,
    on_bad_row: options.OnBadRow = "error",
    on_unseen_group: options.OnUnseenGroup = "error",
    log: Annotated[
        LogKind | None,
        typer.Option(
            "--log",
            metavar="text|json",
            show_default="text with -o DIR/ and no terminal",
            help="A line for each file on standard error.",
        ),
    ] = None,
    summary: Annotated[
        str | None, typer.Option("--summary", metavar="FILE", help="Also write what was done, as JSON.")
    ] = None,
    on_bad_file: options.OnBadFile = "error",
    max_bad: options.MaxBad = None,
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
    from drrej.outputs.destinations import OutputFile
    from drrej.pipeline.reject import MaskOptions, Review, mask_summary
    from drrej.pipeline.reject import reject as step

    started = time.monotonic()
    whole_directory = output.endswith("/") or os.path.isdir(output)
    kind = log_kind(log, quiet, whole_directory)
    lines = None if kind is None else FileLog(kind)
    bad = Bad(on_bad_row, on_bad_file, max_bad)
    reading = Reading(
        logits=logits, label=label, input=input, binary=binary, classes=classes, normalize=normalize, bad=bad
    )
    engine = engine_of(jobs, cluster, quiet, Certificates(tls_ca, tls_cert, tls_key), lines)
    source = reading.source(dumps, engine)
    wanted = MaskOptions(names_of(keep), on_bad_row, on_unseen_group)
    if review_limit is not None and review is None:
        raise OptionError("--review-limit goes with --review FILE")
    if review is not None and update:
        raise OptionError("--review does not go with --update: masks that stay as they are would be missing in it")
    with ExitStack() as stack:
        place = _place(output, whole_directory, force, update)
        stack.enter_context(place)
        record = None if summary is None else stack.enter_context(OutputFile(summary, force or update))
        queue = None if review is None else Review(stack.enter_context(OutputFile(review, force)), review_limit)
        check_spared(classes)
        document = read_rejector(rejector, source, "threshold")
        counts = step(source, document, place, wanted, queue)
        done = mask_summary(source, counts, time.monotonic() - started)
        if record is not None:
            record.write_text(done.to_json())
        place.commit()
        if queue is not None:
            queue.file.commit()
        if record is not None:
            record.commit()
    if kind != "json":  # which says the same in its last line
        say_notes(source, quiet, document.floor)
        if counts.reused and not quiet and not update:
            complain(f"{counts.reused} files were finished by an earlier run and are used again", "note")
        warn_bad_rows(counts, quiet, on_bad_row)
    if lines is not None:
        lines.summary(done)


def _place(output: str, whole_directory: bool, force: bool, update: bool) -> OutputFile | Dataset:
    """The file or directory to be written."""
    from drrej.outputs.destinations import OutputFile

    if force and update:
        raise OptionError("--force makes all masks again, --update only new ones: give one of them")
    if whole_directory:
        from drrej.outputs.dataset import open_dataset

        return open_dataset(output, force, update)
    if update:
        raise OptionError(f"--update goes with a directory of masks: write -o {output}/")
    return OutputFile(output, force)
