"""What a document says of bad rows and bad files."""

from __future__ import annotations

from drrej.documents.left_out import BadFile, BadRows, LeftOut
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
