"""drrej evaluate."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Literal, Optional

import typer

from drrej.cli.console import say_notes
from drrej.cli.judging import Format, Judging, exit_by_gates, show_report
from drrej.cli.main import app
from drrej.cli.options import Dumps, Reading, RejectorIn, grouped, read_rejector
from drrej.cli.parameters import Command
from drrej.cli.regression import report_regression
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.pipeline.evaluate import EvaluateOptions


@app.command(cls=Command)
@grouped
def evaluate(
    dumps: Dumps,
    rejector: RejectorIn,
    judging: Judging = Judging(),
    by: Annotated[
        Optional[str],
        typer.Option("--by", metavar="COL", help="Also report by the values of a column, or by 'prediction'."),
    ] = None,
    no_labels: Annotated[
        bool, typer.Option("--no-labels", help="Only what needs no labels: coverage, expected accuracy, drift.")
    ] = False,
    format: Annotated[Format, typer.Option("--format", help="What goes to standard output.")] = "text",
    output: Annotated[
        Optional[list[str]],
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Also write .html .json .md .txt .xml by its ending, or the curve as .png .svg .pdf. Repeatable.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("-f", "--force", help="Overwrite what exists.")] = False,
    task: Annotated[
        Literal["classification", "regression"], typer.Option("--task", help="What the rows are about.")
    ] = "classification",
    prediction: Annotated[
        Optional[str], typer.Option("--prediction", metavar="COL", help="Regression: the predicted value.")
    ] = None,
    target: Annotated[
        Optional[str], typer.Option("--target", metavar="COL", help="Regression: the true value.")
    ] = None,
    reading: Reading = Reading(),
) -> None:
    """Report coverage and accuracy; judge gates."""
    from drrej.outputs.files import OutputFile
    from drrej.pipeline.evaluate import evaluate as step
    from drrej.report import render

    outputs = [(path, format if path == "-" else format_of(path)) for path in output or []]
    if task == "regression":
        source = reading.source(dumps)
        document = read_rejector(rejector, source, "threshold")
        exit_by_gates(
            report_regression(
                source, document, (prediction, target), judging.gates(), outputs, format, force, reading.quiet
            )
        )
        return
    if prediction is not None or target is not None:
        raise OptionError("--prediction and --target go with --task regression")
    gates, options = judging.gates(), judging.options(reading, by, labels=not no_labels)
    options = with_pictures(options, outputs)
    source = judging.reading(reading).source(dumps)
    with ExitStack() as stack:
        files = [(stack.enter_context(OutputFile(path, force)), kind) for path, kind in outputs]
        document = read_rejector(rejector, source, "threshold")
        report = step(source, document, gates, judging.with_baseline_dump(options, reading, document))
        say_notes(source, reading.quiet)
        for file, kind in files:
            file.write_bytes(render(report, kind))
        for file, _ in files:
            file.commit()
    if "-" not in (output or []):
        show_report(report, format)
    exit_by_gates(report)


def format_of(path: str) -> str:
    """The renderer for a file name."""
    from drrej.report import ENDINGS

    ending = os.path.splitext(path)[1].lower()
    if ending not in ENDINGS and (os.path.isfile(path) or not os.path.exists(path)):
        raise OptionError(f"-o {path}: the ending says the format; use one of {', '.join(ENDINGS)}")
    return ENDINGS.get(ending, "json")


def with_pictures(options: EvaluateOptions, outputs: list[tuple[str, str]]) -> EvaluateOptions:
    """The options with what pages and plots need, if one of them is wanted; raises when it cannot be drawn."""
    from drrej.report import DRAWN, PLOTS, need_libraries

    drawn = [(path, kind) for path, kind in outputs if kind in DRAWN]
    if not drawn:
        return options
    for path, kind in drawn:
        need_libraries(kind, f"-o {path}")
        if kind in PLOTS and not options.labels:
            raise OptionError(f"-o {path}: the curve needs labels; it does not go with --no-labels")
    return dataclasses.replace(options, pictures=True, command=shlex.join(["drrej", *sys.argv[1:]]))
