"""drrej reject."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

from drrej.cli.console import FileLog, LogKind, is_terminal, say_notes, warn
from drrej.cli.input_options import Dumps, MaskInput, names_of, read_rejector, rejector_option
from drrej.cli.options import REQUIRED, STREAM, EngineOptions, Options, OutputOptions, flag, open_files, option, rare
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.documents.summaries import MaskSummary
    from drrej.outputs.dataset import Dataset


class MaskOutput(Options):
    """The rejector, where its mask goes, and what is written besides."""

    rejector: str = rejector_option(default=REQUIRED)
    output: str = option(
        "The mask: a file (.parquet, .csv, .jsonl, .arrow, ...), - or DIR/ (one file per input file).",
        "OUT",
        default=REQUIRED,
    )
    force: bool = OutputOptions.force
    update: bool = flag("With -o DIR/: score only new or changed files and keep the other masks.")
    review: str | None = option(
        "Also write the rejected rows, most doubtful first: .json (Label Studio tasks), .jsonl or .csv.", "FILE"
    )
    reviews: int | None = option("Review budget: only the N most doubtful rows go to --review.", "B")
    audit: float | None = option(
        "Also draw accepted rows at random for --review: a share such as 0.01, or a number.", "SHARE|N"
    )
    seed: int = rare("Random seed of --audit.", "N", default=0)
    safe_csv: bool = flag("In CSV, put ' before text that spreadsheets would treat as a formula.", hidden=True)
    summary: str | None = rare("Also write a summary of the run as JSON.", "FILE")
    log: LogKind | None = rare(
        "Write a line for each file to standard error.", "text|json", show_default="text with -o DIR/ and no terminal"
    )


LabelsLeftOut = Annotated[MaskInput, dict.fromkeys(("labels_from", "on_missing_label", "join_on"))]


def reject(dumps: Dumps, output: MaskOutput, input: LabelsLeftOut, engine: EngineOptions) -> None:
    """Write the rejection mask, row for row.

    DUMP: parquet files, directories, globs or URIs; - is standard input.

    Examples:
    drrej reject test.parquet -r rejector.json -o mask.csv --review tasks.json
    drrej reject nightly/ -r rejector.json -o scored/ --update --on-bad-row reject
    cat test.parquet | drrej reject - -r rejector.json -o - > mask.parquet

    """
    from drrej.outputs.dataset import open_dataset
    from drrej.outputs.destinations import OutputFile
    from drrej.pipeline.reject import MaskOptions
    from drrej.pipeline.reject import reject as step

    directory = output.output.endswith("/") or os.path.isdir(output.output)
    if output.log is not None and engine.quiet:
        raise OptionError("--log cannot be combined with -q")
    shown = directory and not engine.quiet and not is_terminal(sys.stderr)  # where there is no progress bar
    lines = FileLog(output.log or "text") if output.log or shown else None
    output.check_needs(reviews="review")
    if output.review is not None and output.update:
        raise OptionError("--review cannot be combined with --update: it would lack the rows of masks that are kept")
    if output.force and output.update:
        raise OptionError("--force makes all masks again, --update only new ones: give one of them")
    if output.update and not directory:
        raise OptionError(f"--update requires a directory of masks: write -o {output.output}/")
    workers = engine.start(lines)
    with ExitStack() as stack:
        place: OutputFile | Dataset = (
            open_dataset(output.output, output.force, output.update)
            if directory
            else OutputFile(output.output, output.force)
        )
        stack.enter_context(place)
        records = open_files(stack, [output.summary], output.force or output.update)
        queues = open_files(stack, [output.review], output.force)
        source = input.source(dumps, workers)
        document = read_rejector(output.rejector, source, "threshold")
        queue = {name: getattr(output, name) for name in ("safe_csv", "audit", "seed")}
        options = input.into(MaskOptions, keep=names_of(input.keep), **queue)
        done = step(source, document, place, options, queues[0] if queues else None, output.reviews)
        for record in records:
            record.write_text(done.to_json())
        place.commit()
        for written in (*queues, *records):
            written.commit()
    if lines is None or lines.kind != "json":  # which says the same in its last line
        say_notes(source, engine.quiet, document.floor)
        if done.reused and not output.update:
            warn(f"{done.reused} files were finished by an earlier run and are reused", engine.quiet, "note")
        if done.rejector_model is not None:
            from drrej.report.words import other_model  # with all that reports are made of

            warn(other_model(done), engine.quiet)
        warn_bad_rows(done, engine.quiet, input.on_bad_row)
        for file in done.masks:
            if not file.rows and not file.bad_rows:
                warn(f"{file.file}: zero rows, so its mask is empty", engine.quiet)
    if output.reviews is not None and done.rejected > output.reviews:
        over = done.rejected - output.reviews
        warn(
            f"{over} of {done.rejected} rejected rows exceed the budget of {output.reviews} reviews: the least "
            "doubtful, which --review leaves out and the mask still rejects",
            engine.quiet,
        )
    if lines is None and output.output != STREAM and not engine.quiet:
        lines = FileLog("text")
    if lines is not None:
        lines.summary(done)


def warn_bad_rows(done: MaskSummary, quiet: bool, policy: str, more: str = "") -> None:
    """Tell that rows without usable scores were let through."""
    if done.bad_rows:
        read = done.rows + (done.bad_rows if policy == "skip" else 0)
        what = "left out" if policy == "skip" else f"rejected{more}"
        warn(f"{done.bad_rows} of {read} rows have no usable scores and were {what}", quiet)
