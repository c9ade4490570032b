"""What a document says of bad rows and bad files."""

from __future__ import annotations

from drrej._version import __version__
from drrej.documents.left_out import BadFile, BadRows, LeftOut
from drrej.documents.summaries import MaskedFile, MaskSummary
from drrej.outputs.records import FileCounts
from drrej.pipeline.reject import MaskCounts
from drrej.pipeline.source import Source


def left_out(source: Source) -> LeftOut | None:
    """The bad rows and files of a dump that was read; None if there were none."""
    rows, files = source.passed.all(), source.bad_files.all()
    if not rows and not files:
        return None
    return LeftOut(
        rows=source.notes.bad_rows,
        reasons=tuple(
            BadRows(
                reason=problem.what,
                column=problem.column,
                rows=problem.count,
                first_file=problem.file,
                first_row=problem.row,
            )
            for problem in rows
        ),
        files=tuple(BadFile(file=file, reason=reason) for file, reason in files.items()),
    )


def mask_summary(source: Source, counts: MaskCounts, seconds: float) -> MaskSummary:
    """What `reject` did."""
    total = FileCounts("", counts.rows, counts.rejected, counts.bad, seconds)
    return MaskSummary(
        drrej_version=__version__,
        files=len(counts.files),
        reused=counts.reused,
        rows=counts.rows,
        rejected=counts.rejected,
        coverage=total.coverage,
        bad_rows=counts.bad,
        seconds=seconds,
        masks=tuple(masked_file(file) for file in counts.files),
        left_out=left_out(source) or LeftOut(rows=0, reasons=(), files=()),
    )


def masked_file(file: FileCounts) -> MaskedFile:
    """What became of one input file."""
    return MaskedFile(
        file=file.name,
        rows=file.rows,
        rejected=file.rejected,
        coverage=file.coverage,
        bad_rows=file.bad,
        seconds=file.seconds,
        reused=file.reused,
    )
