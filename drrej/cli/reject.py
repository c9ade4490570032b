"""drrej reject."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from drrej.cli.console import FileLog, LogKind, is_terminal, say_notes, warn
from drrej.cli.options import (
    REQUIRED,
    Dumps,
    EngineOptions,
    MaskRowOptions,
    RejectorOptions,
    ScoreOptions,
    check_spared,
    flag,
    force_option,
    names_of,
    option,
    rare,
    read_rejector,
)
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.outputs.dataset import Dataset
    from drrej.outputs.destinations import OutputFile
    from drrej.pipeline.reject import MaskCounts


class MaskOutput(RejectorOptions):
    """Where the mask goes, and what is written besides."""

    output: str = option(
        "The mask: a file (.parquet, .csv, .jsonl, .arrow, ...), - or DIR/ (one file per input file).",
        "OUT",
        default=REQUIRED,
    )
    force: bool = force_option()
    update: bool = flag("With -o DIR/: only files that are new or changed; the rest stays.")
    review: str | None = option(
        "Also write the rejected rows, most doubtful first: .json (tasks of Label Studio) or .jsonl.", "FILE"
    )
    review_limit: int | None = rare("No more than N rows in --review.", "N")
    summary: str | None = rare("Also write what was done, as JSON.", "FILE")
    log: LogKind | None = rare(
        "A line for each file on standard error.", "text|json", show_default="text with -o DIR/ and no terminal"
    )

    @property
    def is_directory(self) -> bool:
        """Whether there is one mask for each input file."""
        return self.output.endswith("/") or os.path.isdir(self.output)

    def check(self) -> None:
        """Raise when options do not go together."""
        if self.review_limit is not None and self.review is None:
            raise OptionError("--review-limit goes with --review FILE")
        if self.review is not None and self.update:
            raise OptionError("--review does not go with --update: masks that stay as they are would be missing in it")
        if self.force and self.update:
            raise OptionError("--force makes all masks again, --update only new ones: give one of them")
        if self.update and not self.is_directory:
            raise OptionError(f"--update goes with a directory of masks: write -o {self.output}/")

    def mask(self) -> OutputFile | Dataset:
        """The file or directory to be written."""
        from drrej.outputs.destinations import OutputFile

        if self.is_directory:
            from drrej.outputs.dataset import open_dataset

            return open_dataset(self.output, self.force, self.update)
        return OutputFile(self.output, self.force)

    def file_log(self, quiet: bool) -> FileLog | None:
        """What is logged: as wanted, else text for a directory of masks where no terminal shows a progress bar."""
        if self.log is not None and quiet:
            raise OptionError("--log goes without -q")
        kind = self.log or ("text" if self.is_directory and not quiet and not is_terminal(sys.stderr) else None)
        return None if kind is None else FileLog(kind)


class MaskInput(MaskRowOptions, ScoreOptions):
    """How rows are read that need no labels, and what becomes of them in the mask."""


def reject(dumps: Dumps, output: MaskOutput, input: MaskInput, engine: EngineOptions) -> None:
    """Write the rejection mask, row for row.

    DUMP: parquet files, directories, globs or URIs; - is standard input.

    Examples:
    drrej reject test.parquet -r rejector.json -o mask.csv --review tasks.json
    drrej reject nightly/ -r rejector.json -o scored/ --update --on-bad-row reject
    cat test.parquet | drrej reject - -r rejector.json -o - > mask.parquet

    """
    from drrej.outputs.destinations import OutputFile
    from drrej.pipeline.reject import MaskOptions, mask_summary
    from drrej.pipeline.reject import reject as step

    started = time.monotonic()
    lines = output.file_log(engine.quiet)
    source = input.source(dumps, engine.start(lines))
    output.check()
    with ExitStack() as stack:
        place = output.mask()
        stack.enter_context(place)
        record = queue = None
        if output.summary is not None:
            record = stack.enter_context(OutputFile(output.summary, output.force or output.update))
        if output.review is not None:
            queue = stack.enter_context(OutputFile(output.review, output.force))
        check_spared(input.classes)
        document = read_rejector(output.rejector, source, "threshold")
        options = MaskOptions(names_of(input.keep), input.on_bad_row, input.on_unseen_group)
        counts = step(source, document, place, options, queue, output.review_limit)
        done = mask_summary(source, counts, time.monotonic() - started)
        if record is not None:
            record.write_text(done.to_json())
        place.commit()
        if queue is not None:
            queue.commit()
        if record is not None:
            record.commit()
    if lines is None or lines.kind != "json":  # which says the same in its last line
        say_notes(source, engine.quiet, document.floor)
        if counts.reused and not output.update:
            warn(f"{counts.reused} files were finished by an earlier run and are used again", engine.quiet, "note")
        warn_bad_rows(counts, engine.quiet, input.on_bad_row)
        for file in counts.files:
            if not file.rows and not file.bad_rows:
                warn(f"{file.file}: zero rows, so its mask is empty", engine.quiet)
    if output.review_limit is not None and counts.rejected > output.review_limit:
        left, limit = counts.rejected - output.review_limit, output.review_limit
        warn(
            f"--review has {limit} of {counts.rejected} rejected rows; --review-limit {limit} leaves out {left}",
            engine.quiet,
        )
    if lines is not None:
        lines.summary(done)


def warn_bad_rows(counts: MaskCounts, quiet: bool, policy: str, more: str = "") -> None:
    """Tell that rows without usable scores were let through."""
    if counts.bad:
        read = counts.rows + (counts.bad if policy == "skip" else 0)
        done = "left out" if policy == "skip" else f"rejected{more}"
        warn(f"{counts.bad} of {read} rows have no usable scores and were {done}", quiet)
