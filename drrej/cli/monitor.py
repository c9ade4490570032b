"""drrej monitor."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated, Literal

import typer

from drrej.cli.console import long_flag, say_notes, show, warn
from drrej.cli.input_options import BatchInput, MaskInput, OnUnseen, OptionalDumps, read_rejector
from drrej.cli.options import STREAM, EngineOptions, Options, OutputOptions, flag, open_files, option, rare, rare_flag
from drrej.cli.report_options import ReportOptions, finish, format_of, gates_of
from drrej.errors import MonitorError, OptionError

ENDINGS = (".html", ".json", ".md", ".prom", ".txt")
WATCHED, BATCH = "What is watched: fixed by the first batch", "The batch"


class WatchOptions(Options):
    """What is watched, and which batch it is."""

    max_risk: float | None = option("Alarm when the risk of accepted rows is above R.", "R", WATCHED)
    min_coverage: float | None = option("Alarm when the coverage is below C.", "C", WATCHED)
    no_drift: bool = flag("Do not watch for drift of the losses (which needs no labels).", panel=WATCHED)
    confidence: float | None = option("Probability of never raising a false alarm.", "P", WATCHED, show_default="0.95")
    report_by: str | None = rare("Also report which groups of a column moved.", "COL", WATCHED)
    batch: str | None = option("Name of the batch.", "NAME", BATCH, show_default="the file's name")
    late: str | None = option("Count the labels of an earlier batch; DUMP is that batch again.", "NAME", BATCH)
    audited: bool = rare_flag("The labels come from 'drrej reject --audit'.", panel=BATCH)
    reset: str | None = option("End the monitor, record why, and start over with this batch or the next.", "WHY", BATCH)
    on_unseen_group: OnUnseen = MaskInput.on_unseen_group


def monitor(
    state: Annotated[str, typer.Argument(metavar="STATE", hidden=True)],
    dumps: OptionalDumps = None,
    *,
    rejector: str | None = option("The rejector that is used; - is standard input.", "FILE"),
    output: list[str] | None = option(
        "Also write .html (with plots) .json .md .prom .txt, by the ending. Repeatable.", "FILE"
    ),
    force: bool = OutputOptions.force,
    format: Literal["text", "json", "markdown", "github", "prometheus"] = option(
        "Format of standard output: text, json, markdown, github or prometheus.", "FORMAT", default="text"
    ),
    gate: list[str] | None = ReportOptions.gate,
    watch: WatchOptions,
    input: BatchInput,
    engine: EngineOptions,
) -> None:
    """Watch risk, coverage and drift batch by batch; alarms stay valid under repeated looks.

    STATE: the monitor's file, which each batch replaces; without DUMP it is shown.

    DUMP: one batch: parquet files, directories, globs or URIs; - is standard input.

    Examples:
    drrej monitor state.json fresh.parquet -r rejector.json --max-risk 0.1
    drrej monitor state.json nightly/ -r rejector.json --batch 2026-03-01
    drrej monitor state.json -o history.html

    """
    from drrej.monitor.report import monitor_report
    from drrej.monitor.state import MonitorState
    from drrej.monitor.step import MonitorOptions, check_monitor_gates, reset_monitor
    from drrej.monitor.step import monitor as step
    from drrej.monitor.view import e_value, render_monitor, verdict, watches
    from drrej.outputs.destinations import locked_state, read_state

    gates, paths = gates_of(gate), output or []
    check_monitor_gates(gates)
    kinds = [format_of(path, format, ENDINGS) for path in paths]
    if dumps and rejector is None:
        raise OptionError("-r REJECTOR is required: the one that makes the masks")
    for name in [name for name in watch.given() if name != "reset" and not dumps]:
        raise OptionError(f"{long_flag(name)} requires the DUMP of a batch")
    if not dumps and rejector is not None:
        raise OptionError("-r requires the DUMP of a batch; without one the state is only shown")
    wanted = watch.into(MonitorOptions, drift=False if watch.no_drift else None, by=watch.report_by)
    with ExitStack() as stack:
        places = open_files(stack, paths, force)
        if dumps or watch.reset is not None:
            successor = stack.enter_context(locked_state(state))
        text, after = read_state(state), None
        before = None if text is None else MonitorState.from_json(text, state)
        try:
            if dumps:
                source = input.source(dumps, engine.start())
                document = read_rejector(str(rejector), source, "threshold")
                after, report = step(source, document, before, wanted, gates)
                say_notes(source, engine.quiet, document.floor)
            else:
                if before is None:
                    raise MonitorError("no such file; name the file of the first batch to start a monitor")
                if watch.reset is not None:
                    after = before = reset_monitor(before, watch.reset)
                report = monitor_report(before, gates)
        except MonitorError as error:  # they are about the state
            raise MonitorError(f"{state}: {error}") from None
        for file, kind in zip(places, kinds, strict=True):
            file.write_text(render_monitor(report, kind))
        if after is not None:
            successor.write_text(after.to_json())
            successor.commit()
        for file in places:
            file.commit()
    if STREAM not in paths:
        brief = engine.quiet and format == "text"
        show(f"{verdict(report)}\n" if brief else render_monitor(report, format))
    for name, found in watches(report):
        if found.alarm is not None:
            warn(f"{name} since '{found.alarm}' (e-value {e_value(found.log10_e_value)})", engine.quiet, "alarm")
    finish(report, None, engine.quiet)
    if report.alarms:
        raise typer.Exit(1)
