"""drrej plan."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from drrej.cli import options
from drrej.cli.command import Command
from drrej.cli.console import complain, say_notes, show
from drrej.cli.flags import in_flags
from drrej.cli.main import app
from drrej.cli.reading import Certificates, Reading, engine_of, read_rejector
from drrej.cli.writing import check_spared
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.documents.plan import Plan
    from drrej.pipeline.plan import PlanOptions

EXAMPLES = """
Examples:

drrej plan --accuracy 0.98 --coverage 0.8

drrej plan --risk 0.02 --confidence 0.9 --error 0.01 --power 0.9 -o plan.png

drrej plan fresh.parquet -r fitted.json --risk 0.02 -o plan.svg
"""

PLOTS = (".png", ".svg", ".pdf")
TEXTS = {".txt": "text", ".json": "json", ".md": "markdown"}
Format = Literal["text", "json", "markdown"]


@app.command(cls=Command, epilog=EXAMPLES)
def plan(
    dumps: Annotated[list[str] | None, typer.Argument(metavar="DUMP", hidden=True)] = None,
    rejector: options.RejectorSoFar = None,
    accuracy: Annotated[
        float | None, typer.Option("--accuracy", metavar="A", help="The accuracy of accepted rows to promise.")
    ] = None,
    risk: Annotated[float | None, typer.Option("--risk", metavar="R", help="The same as an error rate: 1 - A.")] = None,
    confidence: Annotated[
        float, typer.Option("--confidence", metavar="P", help="The probability that the promise is kept.")
    ] = 0.95,
    coverage: Annotated[
        float | None,
        typer.Option("--coverage", metavar="C", show_default="0.8; with a dump, all", help="The coverage to reach."),
    ] = None,
    error: Annotated[
        list[float] | None,
        typer.Option(
            "--error",
            metavar="E",
            show_default="0, 1/4, 1/2 and 3/4 of R",
            help="Error rate that is expected among accepted rows. Repeatable.",
        ),
    ] = None,
    power: Annotated[
        float | None,
        typer.Option("--power", metavar="Q", show_default="0.8", help="The wanted chance that the rows certify it."),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option("-o", "--output", metavar="FILE", help="Also write .txt .json .md .png .svg .pdf. Repeatable."),
    ] = None,
    force: options.Force = False,
    format: Annotated[Format, typer.Option("--format", help="What goes to standard output.")] = "text",
    logits: options.Logits = None,
    label: options.Label = None,
    labels_from: options.LabelsFrom = None,
    join_on: options.JoinOn = None,
    on_missing_label: options.OnMissingLabel = None,
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
    """Say how many labelled rows a promise takes, or what the rows of a dump can promise.

    DUMP: none, or labelled parquet files, directories, globs or URIs; - is standard input.
    """
    from drrej.outputs.destinations import OutputFile
    from drrej.pipeline.plan import COVERAGE, POWER, PlanOptions, plan_from
    from drrej.pipeline.plan import plan as step

    asked = PlanOptions(
        _risk(accuracy, risk),
        confidence,
        COVERAGE if coverage is None else coverage,
        POWER if power is None else power,
        error,
    )
    reading = Reading(logits, label, labels_from, join_on, on_missing_label, input, binary, classes, normalize)
    certificates = Certificates(tls_ca, tls_cert, tls_key)
    _check(bool(dumps), rejector, reading, asked, power)
    if not dumps and (jobs or certificates != Certificates()):
        raise OptionError("--jobs and --tls-ca go with a DUMP; name one, or leave them out")
    renderers = {path: _renderer(path) for path in output or []}
    with ExitStack() as stack:
        files = [(stack.enter_context(OutputFile(path, force)), renderer) for path, renderer in renderers.items()]
        if dumps and rejector is not None:
            check_spared(classes)
            source = reading.source(dumps, engine_of(jobs, cluster, quiet, certificates))
            found, caution = plan_from(source, read_rejector(rejector, source, "ratio"), asked, coverage)
            say_notes(source, quiet)
            if caution is not None and not quiet:
                complain(caution, "warning")
        else:
            found = step(asked)
        for file, renderer in files:
            file.write_bytes(renderer(found))
        for file, _ in files:
            file.commit()
    show(_text(found, format))


def _risk(accuracy: float | None, risk: float | None) -> float | None:
    """The error rate to promise."""
    from drrej.core.thresholds import Rule

    if accuracy is None:
        return risk
    if risk is not None:
        raise OptionError("--accuracy and --risk are the same promise; give one of them")
    return Rule("accuracy", accuracy).risk


def _check(dumps: bool, rejector: str | None, reading: Reading, asked: PlanOptions, power: float | None) -> None:
    """Raise when options do not go together."""
    if dumps and rejector is None:
        raise OptionError("a dump needs -r REJECTOR (from 'drrej fit'), whose losses order its rows")
    if dumps and asked.errors is not None:
        raise OptionError("--error is for a plan without a dump: here the rows say it")
    if dumps and asked.risk is None and power is not None:
        raise OptionError("--power goes with --risk R: the chance to certify it")
    if not dumps and (rejector is not None or reading != Reading()):
        raise OptionError("-r and the options on how to read go with a DUMP; name one, or leave them out")


def _renderer(path: str) -> Callable[[Plan], bytes]:
    """How a file is made, by its ending."""
    ending = os.path.splitext(path)[1].lower()
    if ending in PLOTS:
        from drrej.report import need_libraries
        from drrej.report.plan import render_plan_plot

        need_libraries(ending[1:], f"-o {path}")
        return lambda plan: render_plan_plot(plan, ending[1:])
    if ending not in TEXTS:
        raise OptionError(f"-o {path}: the ending says the format; use one of {', '.join([*TEXTS, *PLOTS])}")
    return lambda plan: _text(plan, TEXTS[ending]).encode()


def _text(plan: Plan, format: str) -> str:
    from drrej.report.plan import render_plan, render_plan_markdown

    if format == "json":
        return plan.to_json()
    return in_flags((render_plan if format == "text" else render_plan_markdown)(plan))
