"""What people read: results on standard output; messages, logs and progress on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TextIO

from drrej.data.problems import redacted
from drrej.engines import Progress
from drrej.errors import OutputError, printable

if TYPE_CHECKING:
    from drrej.documents.summaries import MaskedFile, MaskSummary
    from drrej.pipeline.source import Source

LogKind = Literal["text", "json"]

_PATIENCE = 1.0
"""Seconds before a progress bar appears."""

_PARAMETER = re.compile(r"`([a-z][a-z_-]*)(?:=([^`]*))?`")
_LONG = {"lam": "--lambda", "by": "--report-by"}
_USUAL = {"output": "-o", "rejector": "-r"}


def long_flag(name: str) -> str:
    """The flag of a parameter."""
    return _LONG.get(name, "--" + name.replace("_", "-"))


def as_flags(**values: Any) -> list[str]:
    """Options with their values as words of a command line; those without a value are left out."""
    words = []
    for name, value in values.items():
        if value is not None and value is not False:
            words.append(long_flag(name))
            if value is not True:
                words.append(value if isinstance(value, str) else ",".join(value))
    return words


def in_flags(message: str) -> str:
    """A message of the library with flags in place of parameters.

    The library names a parameter in backquotes, by its Python name: `labels_from`, `risk=0.02`, `force=True`. Here, and
    only here, that becomes a flag: --labels-from, --risk 0.02, --force.
    """

    def flag(found: re.Match[str]) -> str:
        name, value = _USUAL.get(found[1]) or long_flag(found[1]), found[2]
        if value == "False":
            return name.replace("--", "--no-", 1)
        return name if value in (None, "True") else f"{name} {value}"

    return _PARAMETER.sub(flag, message)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether people look at a stream; one that was closed is None."""
    return stream is not None and stream.isatty()


def complain(message: str, kind: str = "error") -> None:
    """One line on standard error, whatever a file's name or a gate contains; never credentials."""
    _write(f"drrej: {kind}: {in_flags(' '.join(message.splitlines()))}")


def _write(line: str) -> None:
    """A line on standard error, if it can be written: whether it can changes no exit code and no output."""
    if sys.stderr is None:
        return
    try:
        print(printable(redacted(line)), file=sys.stderr, flush=True)
    except (OSError, ValueError):  # full, or closed
        silence(sys.stderr)


def silence(stream: TextIO | None) -> None:
    """Let what is still to be flushed to a stream go nowhere: the interpreter would fail on it at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # it has no file, or is closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # type: ignore[union-attr]


def warn(message: str | None, quiet: bool, kind: str = "warning") -> None:
    """A line on standard error if there is something to say, and it may be said."""
    if message and not quiet:
        complain(message, kind)


def show(text: str) -> None:
    """A result on standard output."""
    if sys.stdout is None:
        raise OutputError("standard output is closed")
    print(text, end="")


def say_notes(first: Source, quiet: bool, floor: float | None = None, others: Sequence[Source] = ()) -> None:
    """Tell what passes noticed, once where parts of one dump noticed the same.

    `floor` is what a probability of 0 counts as.
    """
    lines: list[tuple[str, str]] = []
    for source in () if quiet else (first, *others):
        notes, done = source.notes, "left out" if source.options.on_bad_row == "skip" else "let through"
        if notes.zeros:
            counts_as = "as the rejector specifies" if floor is None else f"as {floor:.3g}"
            lines.append((f"{notes.zeros} probabilities of 0 count {counts_as}", "note"))
        if notes.left_out:
            where = "" if source.options.labels_from is None else f" in {source.options.labels_from}"
            lines.append((f"{notes.left_out} rows without a label{where} were left out", "note"))
        warned = [problem.message(done) for problem in source.passed.values()]
        warned += [f"{reason}; the file is left out" for reason in source.bad_files.values()]
        lines += [(words, "warning") for words in (*warned, *source.cautions)]
    for words, kind in dict.fromkeys(lines):
        complain(words, kind)


class Bar(Progress):
    """Rows, rows per second and time left, for passes that take more than a second."""

    def __init__(self) -> None:
        self._bar: Any = None

    def start(self, what: str, rows: int) -> None:
        """A pass over so many rows begins."""
        self._what, self._rows, self._done, self._started = what, rows, 0, time.monotonic()

    def advance(self, rows: int) -> None:
        """So many rows more are done."""
        self._done += rows
        seconds = time.monotonic() - self._started
        if self._bar is None and seconds > _PATIENCE and self._done < self._rows:
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
        if self._bar is not None:
            rate = f"{self._done / max(seconds, 1e-9):,.0f} rows/s"
            self._bar.update(self._task, completed=self._done, rate=rate)

    def stop(self) -> None:
        """The pass is over."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class FileLog(Progress):
    """A line on standard error for each file when it is finished, once, and one at the end; text or JSON lines."""

    def __init__(self, kind: LogKind) -> None:
        self.kind = kind
        self._seen: set[str] = set()

    def finished(self, file: MaskedFile) -> None:
        """A line."""
        if file.file in self._seen:  # it was finished before another one turned out to be damaged
            return
        self._seen.add(file.file)
        if self.kind == "json":
            from msgspec.structs import asdict

            _write(json.dumps({"event": "file", **asdict(file)}))
            return
        reused = "; already there" if file.reused else ""
        counts = _counts(file.rows, file.rejected, file.coverage, file.bad_rows)
        _write(f"drrej: {file.file}: {counts}, {file.seconds:.2f} s{reused}")

    def summary(self, summary: MaskSummary) -> None:
        """The line at the end."""
        if self.kind == "json":
            fields = {key: value for key, value in summary.items() if key not in ("format", "masks")}
            _write(json.dumps({"event": "summary", **fields}))
            return
        files = "1 file" if summary.files == 1 else f"{summary.files} files"
        reused = f" ({summary.reused} of them already there)" if summary.reused else ""
        counts = _counts(summary.rows, summary.rejected, summary.coverage, summary.bad_rows)
        bad = len(summary.left_out.files)
        left = f", {bad} bad {'file' if bad == 1 else 'files'} left out" if bad else ""
        _write(f"drrej: {files}{reused}: {counts}{left}, {summary.seconds:.2f} s")


def _counts(rows: int, rejected: int, coverage: float | None, bad: int) -> str:
    share = "-" if coverage is None else f"{coverage:.4f}"
    return f"{rows} rows, {rejected} rejected, coverage {share}" + (f", {bad} bad" if bad else "")
