"""drrej monitor."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from drrej.cli import options
from drrej.cli.command import Command
from drrej.cli.console import complain, say_notes, show
from drrej.cli.judging import exit_by_gates
from drrej.cli.main import app
from drrej.cli.reading import Bad, Certificates, Reading, engine_of, read_rejector
from drrej.cli.writing import format_of
from drrej.errors import MonitorError, OptionError

if TYPE_CHECKING:
    from drrej.monitor.report import MonitorReport
    from drrej.monitor.state import MonitorState
    from drrej.monitor.step import MonitorOptions
    from drrej.outputs.destinations import StateFile

EXAMPLES = """
Examples:

drrej monitor state.json fresh.parquet -r rejector.json --max-risk 0.1

drrej monitor state.json nightly/ -r rejector.json --night 2026-03-01

drrej monitor state.json -o history.html
"""

FORMATS = ("text", "json", "markdown", "github", "html")
watch = partial(typer.Option, rich_help_panel="What is watched: fixed by the first night")
night_option = partial(typer.Option, rich_help_panel="The night")


@app.command(cls=Command, epilog=EXAMPLES)
def monitor(
    state: Annotated[str, typer.Argument(metavar="STATE", hidden=True)],
    dumps: Annotated[list[str] | None, typer.Argument(metavar="DUMP", hidden=True)] = None,
    rejector: Annotated[
        str | None,
        typer.Option("-r", "--rejector", metavar="FILE", help="The rejector that is used; - is standard input."),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Also write .html (drawn) .json .md .txt by its ending. Repeatable."
        ),
    ] = None,
    force: options.Force = False,
    format: Annotated[
        Literal["text", "json", "markdown", "github"],
        typer.Option("--format", metavar="FORMAT", help="On standard output: text, json, markdown or github."),
    ] = "text",
    gate: options.Gates = None,
    on_unseen_group: options.OnUnseenGroup = "error",
    max_risk: Annotated[
        float | None, watch("--max-risk", metavar="R", help="Alarm when the risk of accepted rows is above R.")
    ] = None,
    min_coverage: Annotated[
        float | None, watch("--min-coverage", metavar="C", help="Alarm when the coverage is below C.")
    ] = None,
    no_drift: Annotated[
        bool, watch("--no-drift", metavar=options.FLAG, help="No alarm when the losses drift (needs no labels).")
    ] = False,
    confidence: Annotated[
        float | None,
        watch(
            "--confidence", metavar="P", show_default="0.95", help="Chance that there is no false alarm of any, ever."
        ),
    ] = None,
    by: Annotated[str | None, watch("--by", metavar="COL", help="Also say which groups of a column moved.")] = None,
    night: Annotated[
        str | None,
        night_option("--night", metavar="NAME", show_default="the file's name", help="What to call the night."),
    ] = None,
    late: Annotated[
        str | None,
        night_option("--late", metavar="NAME", help="Count the labels of an earlier night; DUMP is its dump again."),
    ] = None,
    reset: Annotated[
        str | None,
        night_option("--reset", metavar="WHY", help="End the monitor, record why, and start anew with this night."),
    ] = None,
    logits: options.Logits = None,
    label: options.Label = None,
    labels_from: options.LabelsFrom = None,
    join_on: options.JoinOn = None,
    on_missing_label: Annotated[
        Literal["error", "skip"] | None,
        options.reading(
            "--on-missing-label", show_default="error", help="Rows without a label; skip: they do not count as labels."
        ),
    ] = None,
    on_bad_row: options.SkipBadRow = "error",
    on_bad_file: options.OnBadFile = "error",
    max_bad: options.MaxBad = None,
    input: options.Input = None,
    normalize: options.Normalize = False,
    binary: options.Binary = False,
    classes: options.Classes = None,
    jobs: options.Jobs = 0,
    cluster: options.ClusterAddress = None,
    tls_ca: options.TlsAuthority = None,
    tls_cert: options.TlsCertificate = None,
    tls_key: options.TlsKey = None,
    quiet: options.Quiet = False,
) -> None:
    """Watch risk, coverage and drift night by night; looking every day is allowed.

    STATE: the monitor's file, which each night replaces; without DUMP it is shown.

    DUMP: one night: parquet files, directories, globs or URIs; - is standard input.
    """
    from drrej.documents.gates import Gate
    from drrej.monitor.page import render_monitor
    from drrej.monitor.report import monitor_report
    from drrej.monitor.step import MonitorOptions, check_monitor_gates
    from drrej.monitor.step import monitor as step
    from drrej.outputs.destinations import OutputFile, StateFile

    gates = [Gate.parse(text) for text in gate or []]
    check_monitor_gates(gates)
    outputs = [(path, _format(path, format)) for path in output or []]
    drift = False if no_drift else None
    drawn = any(kind == "html" for _, kind in outputs)
    wanted = MonitorOptions(
        max_risk, min_coverage, drift, by, confidence, night, late, reset, on_unseen_group, history=drawn
    )
    place = StateFile(state)
    with ExitStack() as stack:
        files = [(stack.enter_context(OutputFile(path, force)), kind) for path, kind in outputs]
        after = None
        if dumps:
            if rejector is None:
                raise OptionError("-r REJECTOR is needed: the one whose masks are used")
            bad = Bad(on_bad_row, on_bad_file, max_bad)
            reading = Reading(
                logits, label, labels_from, join_on, on_missing_label, input, binary, classes, normalize, bad
            )
            source = reading.source(dumps, engine_of(jobs, cluster, quiet, Certificates(tls_ca, tls_cert, tls_key)))
            stack.enter_context(place)
            before = _read(place, state)
            document = read_rejector(rejector, source, "threshold")
            with _naming(state):
                after, report = step(source, document, before, wanted, gates)
            say_notes(source, quiet, document.floor)
        else:
            _refuse_night(wanted, rejector)
            shown = _read(place, state)
            if shown is None:
                raise MonitorError(f"{state}: no such file; name the dump of the first night to start a monitor")
            report = monitor_report(shown, gates, drawn)
        for file, kind in files:
            file.write_text(render_monitor(report, kind))
        if after is not None:
            place.write(after.to_json())
        for file, _ in files:
            file.commit()
    _show(report, format, quiet, "-" in (output or []))


def _format(path: str, format: str) -> str:
    """The renderer for a file name; raises when there is none, or it cannot be used."""
    from drrej.report import need_libraries

    kind = format if path == "-" else format_of(path)
    if kind not in FORMATS:
        raise OptionError(f"-o {path}: a monitor is written as .html, .json, .md or .txt")
    need_libraries(kind, f"-o {path}")
    return kind


def _read(place: StateFile, name: str) -> MonitorState | None:
    from drrej.monitor.state import MonitorState

    text = place.read()
    return None if text is None else MonitorState.from_json(text, name)


class _naming:  # noqa: N801 - reads as a statement
    """Errors about the state with its name before them."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, MonitorError):
            raise MonitorError(f"{self.name}: {error}") from None


def _refuse_night(wanted: MonitorOptions, rejector: str | None) -> None:
    """Raise when something was said about a night that is not there."""
    for field in dataclasses.fields(wanted):
        if field.name != "history" and getattr(wanted, field.name) != field.default:
            flag = "--no-drift" if field.name == "drift" else "--" + field.name.replace("_", "-")
            raise OptionError(f"{flag} goes with the DUMP of a night")
    if rejector is not None:
        raise OptionError("-r goes with the DUMP of a night; without one the state is only shown")


def _show(report: MonitorReport, format: str, quiet: bool, shown: bool) -> None:
    """The report, then a line per alarm and failed gate, and exit 1 if there is one."""
    from drrej.monitor.page import render_monitor
    from drrej.monitor.text import e_value, verdict, watches

    if not shown:
        show(f"{verdict(report)}\n" if quiet and format == "text" else render_monitor(report, format))
    for name, found in watches(report):
        if found.alarm is not None and not quiet:
            complain(f"{name} since '{found.alarm}' (e-value {e_value(found.log10_e_value)})", "alarm")
    exit_by_gates(report)
    if report.alarms:
        raise typer.Exit(1)
