"""Messages and progress, on standard error."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from drrej.cli.flags import in_flags
from drrej.data.uris import redacted

if TYPE_CHECKING:
    from drrej.engines.protocol import Progress
    from drrej.outputs.dataset import FileCounts
    from drrej.pipeline.reject import MaskCounts
    from drrej.pipeline.source import Source

_PATIENCE = 1.0
"""Seconds before a progress bar appears."""


def complain(message: str, kind: str = "error") -> None:
    """One line on standard error, whatever a file's name or a gate contains; never credentials."""
    print(f"drrej: {kind}: {redacted(in_flags(' '.join(message.splitlines())))}", file=sys.stderr)


def log(line: str) -> None:
    """A line of a log on standard error, at once."""
    print(redacted(line), file=sys.stderr, flush=True)


def show(text: str) -> None:
    """A result on standard output."""
    print(text, end="")


def say_notes(source: Source, quiet: bool, floor: float | None = None) -> None:
    """Tell what a pass noticed; `floor` is what a probability of 0 counts as."""
    notes = source.notes
    if quiet:
        return
    if notes.zeros:
        counts_as = "" if floor is None else f" as {floor:.3g}"
        complain(f"{notes.zeros} probabilities of 0 count{counts_as or ' as the rejector says'}", "note")
    if notes.left_out:
        where = "" if source.options.labels_from is None else f" in {source.options.labels_from}"
        complain(f"{notes.left_out} rows without a label{where} were left out", "note")
    for problem in source.passed.all():
        complain(problem.said("left out" if source.options.on_bad_row == "skip" else "let through"), "warning")
    for reason in source.bad_files.all().values():
        complain(f"{reason}; the file is left out", "warning")


def warn_bad_rows(counts: MaskCounts, quiet: bool, policy: str, more: str = "") -> None:
    """Tell that rows without usable scores were let through."""
    if counts.bad and not quiet:
        read = counts.rows + (counts.bad if policy == "skip" else 0)
        done = "left out" if policy == "skip" else f"rejected{more}"
        complain(f"{counts.bad} of {read} rows have no usable scores and were {done}", "warning")


def progress(quiet: bool) -> Progress:
    """A progress bar on a terminal, nothing elsewhere."""
    from drrej.engines.protocol import Silent

    return Silent() if quiet or not sys.stderr.isatty() else Bar()


class Bar:
    """Rows, rows per second and time left, for passes that take more than a second."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._what = ""
        self._rows = 0
        self._done = 0
        self._started = 0.0

    def start(self, what: str, rows: int) -> None:
        """A pass over so many rows begins."""
        self._what, self._rows, self._done, self._started = what, rows, 0, time.monotonic()

    def advance(self, rows: int) -> None:
        """So many rows more are done."""
        self._done += rows
        if self._bar is None and time.monotonic() - self._started > _PATIENCE and self._done < self._rows:
            self._show()
        if self._bar is not None:
            rate = self._done / max(time.monotonic() - self._started, 1e-9)
            self._bar.update(self._task, completed=self._done, rate=f"{rate:,.0f} rows/s")

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task(self._what, total=self._rows, rate="")

    def finished(self, file: FileCounts) -> None:
        """Nothing: the bar moves by rows."""

    def stop(self) -> None:
        """The pass is over."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
