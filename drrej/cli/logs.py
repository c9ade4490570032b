"""One line per file on standard error, and one at the end: for people, or for machines as JSON lines."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Literal

from drrej.cli.console import log
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.documents.summaries import MaskSummary
    from drrej.outputs.dataset import FileCounts

LogKind = Literal["text", "json"]


def log_kind(wanted: LogKind | None, quiet: bool, several: bool) -> LogKind | None:
    """What is logged: as wanted, else nothing if quiet.

    If nothing was said: text for a directory of masks, where there is no terminal for a progress bar.
    """
    if wanted is not None and quiet:
        raise OptionError("--log goes without -q")
    if wanted is not None or quiet:
        return wanted
    return "text" if several and not sys.stderr.isatty() else None


class FileLog:
    """A line for each file when it is finished. The line of a file comes once."""

    def __init__(self, kind: LogKind) -> None:
        self.kind = kind
        self._seen: set[str] = set()

    def start(self, what: str, rows: int) -> None:
        """Nothing."""

    def advance(self, rows: int) -> None:
        """Nothing."""

    def finished(self, file: FileCounts) -> None:
        """A line."""
        if file.name in self._seen:  # it was finished before another one turned out to be damaged
            return
        self._seen.add(file.name)
        if self.kind == "json":
            from drrej.pipeline.reject import masked_file

            _json("file", vars(masked_file(file)))
            return
        reused = "; it was there already" if file.reused else ""
        _say(f"{file.name}: {_counts(file.rows, file.rejected, file.coverage, file.bad)}, {file.seconds:.2f} s{reused}")

    def stop(self) -> None:
        """Nothing."""

    def summary(self, summary: MaskSummary) -> None:
        """The line at the end."""
        if self.kind == "json":
            _json("summary", {key: value for key, value in summary.items() if key not in ("format", "masks")})
            return
        files = "1 file" if summary.files == 1 else f"{summary.files} files"
        reused = f" ({summary.reused} of them there already)" if summary.reused else ""
        counts = _counts(summary.rows, summary.rejected, summary.coverage, summary.bad_rows)
        bad = len(summary.left_out.files)
        left = f", {bad} bad {'file' if bad == 1 else 'files'} left out" if bad else ""
        _say(f"{files}{reused}: {counts}{left}, {summary.seconds:.2f} s")


def _counts(rows: int, rejected: int, coverage: float | None, bad: int) -> str:
    share = "-" if coverage is None else f"{coverage:.4f}"
    return f"{rows} rows, {rejected} rejected, coverage {share}" + (f", {bad} bad" if bad else "")


def _say(line: str) -> None:
    log(f"drrej: {' '.join(line.splitlines())}")


def _json(event: str, fields: dict[str, object]) -> None:
    log(json.dumps({"event": event, **fields}, ensure_ascii=False))
