"""What `reject` did, as a document."""

from __future__ import annotations

from drrej._version import __version__
from drrej.documents.left_out import LeftOut
from drrej.documents.summaries import MaskedFile, MaskSummary
from drrej.outputs.records import FileCounts
from drrej.pipeline.left_out import left_out
from drrej.pipeline.reject import MaskCounts
from drrej.pipeline.source import Source


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
