"""drrej monitor."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from drrej.cli.console import long_flag, say_notes, show, warn
from drrej.cli.options import (
    READING,
    EngineOptions,
    JudgedInput,
    OnBad,
    OptionalDumps,
    Options,
    flag,
    force_option,
    on_unseen_group_option,
    option,
    rare,
    read_rejector,
)
from drrej.cli.report_options import exit_by_gates, format_of, gate_option, gates_of, reports_errors
from drrej.errors import MonitorError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drrej.monitor.report import MonitorReport
    from drrej.monitor.state import MonitorState
    from drrej.monitor.step import MonitorOptions

FORMATS = ("text", "json", "markdown", "github", "prometheus", "html")
WATCHED, BATCH = "What is watched: fixed by the first batch", "The batch"


class WatchOptions(Options):
    """What is watched, and which batch it is."""

    max_risk: float | None = option("Alarm when the risk of accepted rows is above R.", "R", WATCHED)
    min_coverage: float | None = option("Alarm when the coverage is below C.", "C", WATCHED)
    no_drift: bool = flag("No alarm when the losses drift (needs no labels).", panel=WATCHED)
    confidence: float | None = option(
        "Chance that there is no false alarm of any, ever.", "P", WATCHED, show_default="0.95"
    )
    report_by: str | None = rare("Also say which groups of a column moved.", "COL", WATCHED)
    batch: str | None = option("What to call the batch.", "NAME", BATCH, show_default="the file's name")
    late: str | None = option("Count the labels of an earlier batch; DUMP is its dump again.", "NAME", BATCH)
    reset: str | None = option("End the monitor, record why, and start anew with this batch or the next.", "WHY", BATCH)
    on_unseen_group: Literal["error", "reject"] = on_unseen_group_option()

    def options(self) -> MonitorOptions:
        """As the library takes them."""
        from drrej.monitor.step import MonitorOptions

        return MonitorOptions(
            max_risk=self.max_risk,
            min_coverage=self.min_coverage,
            drift=False if self.no_drift else None,
            by=self.report_by,
            confidence=self.confidence,
            batch=self.batch,
            late=self.late,
            reset=self.reset,
            on_unseen_group=self.on_unseen_group,
        )

    def refuse(self) -> None:
        """Raise when something was said about a batch that is not there; a reset needs none."""
        for name in [name for name in self.given() if name != "reset"]:
            raise OptionError(f"{long_flag(name)} goes with the DUMP of a batch")


class MonitorFiles(Options):
    """The rejector, and where the report of the monitor goes."""

    rejector: str | None = option("The rejector that is used; - is standard input.", "FILE")
    output: list[str] | None = option(
        "Also write .html (drawn) .json .md .prom .txt by its ending. Repeatable.", "FILE"
    )
    force: bool = force_option()
    format: Literal["text", "json", "markdown", "github", "prometheus"] = option(
        "On standard output: text, json, markdown, github or prometheus.", "FORMAT", default="text"
    )
    gate: list[str] | None = gate_option()


class BatchInput(JudgedInput):
    """How the dump of a batch is read: rows without a label count for all but the risk."""

    on_missing_label: OnBad | None = rare(
        "Rows without a label; skip: they do not count as labels.", panel=READING, show_default="error"
    )


@reports_errors
def monitor(
    state: Annotated[str, typer.Argument(metavar="STATE", hidden=True)],
    files: MonitorFiles,
    watch: WatchOptions,
    input: BatchInput,
    engine: EngineOptions,
    dumps: OptionalDumps = None,
) -> None:
    """Watch risk, coverage and drift batch by batch; looking every day is allowed.

    STATE: the monitor's file, which each batch replaces; without DUMP it is shown.

    DUMP: one batch: parquet files, directories, globs or URIs; - is standard input.

    Examples:
    drrej monitor state.json fresh.parquet -r rejector.json --max-risk 0.1
    drrej monitor state.json nightly/ -r rejector.json --batch 2026-03-01
    drrej monitor state.json -o history.html

    """
    from drrej.monitor.report import monitor_report
    from drrej.monitor.step import check_monitor_gates, reset_monitor
    from drrej.monitor.step import monitor as step
    from drrej.monitor.view import render_monitor
    from drrej.outputs.destinations import OutputFile, locked_state

    gates = gates_of(files.gate)
    check_monitor_gates(gates)
    outputs = [(path, _format(path, files.format)) for path in files.output or []]
    wanted = watch.options()
    with ExitStack() as stack:
        places = [(stack.enter_context(OutputFile(path, files.force)), kind) for path, kind in outputs]
        after = None
        if dumps:
            if files.rejector is None:
                raise OptionError("-r REJECTOR is needed: the one whose masks are used")
            source = input.source(dumps, engine.start())
            successor = stack.enter_context(locked_state(state))
            before = _read(state)
            document = read_rejector(files.rejector, source, "threshold")
            with _naming(state):
                after, report = step(source, document, before, wanted, gates)
            say_notes(source, engine.quiet, document.floor)
        else:
            watch.refuse()
            if files.rejector is not None:
                raise OptionError("-r goes with the DUMP of a batch; without one the state is only shown")
            if watch.reset is not None:
                successor = stack.enter_context(locked_state(state))
            shown = _read(state)
            if shown is None:
                raise MonitorError(f"{state}: no such file; name the dump of the first batch to start a monitor")
            if watch.reset is not None:
                with _naming(state):
                    after = shown = reset_monitor(shown, watch.reset)
            report = monitor_report(shown, gates)
        for file, kind in places:
            file.write_text(render_monitor(report, kind))
        if after is not None:
            successor.write_text(after.to_json())
            successor.commit()
        for file, _ in places:
            file.commit()
    _show(report, files.format, engine.quiet, "-" in (files.output or []))


def _format(path: str, format: str) -> str:
    """The renderer for a file name; raises when there is none, or it cannot be used."""
    from drrej.report import need_libraries

    kind = format if path == "-" else format_of(path)
    if kind not in FORMATS:
        raise OptionError(f"-o {path}: a monitor is written as .html, .json, .md, .prom or .txt")
    need_libraries(kind, f"-o {path}")
    return kind


def _read(path: str) -> MonitorState | None:
    from drrej.monitor.state import MonitorState
    from drrej.outputs.destinations import read_state

    text = read_state(path)
    return None if text is None else MonitorState.from_json(text, path)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Errors about the state with its name before them."""
    try:
        yield
    except MonitorError as error:
        raise MonitorError(f"{name}: {error}") from None


def _show(report: MonitorReport, format: str, quiet: bool, shown: bool) -> None:
    """The report, then a line per alarm and failed gate, and exit 1 if there is one."""
    from drrej.monitor.view import e_value, render_monitor, verdict, watches

    if not shown:
        show(f"{verdict(report)}\n" if quiet and format == "text" else render_monitor(report, format))
    for name, found in watches(report):
        if found.alarm is not None:
            warn(f"{name} since '{found.alarm}' (e-value {e_value(found.log10_e_value)})", quiet, "alarm")
    exit_by_gates(report)
    if report.alarms:
        raise typer.Exit(1)
