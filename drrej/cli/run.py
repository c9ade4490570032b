"""drrej run."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Annotated, Literal

import typer

from drrej.cli.calibrate import warn_unconverged
from drrej.cli.console import say_notes
from drrej.cli.evaluate import Gates, exit_by_gates, parse_gates
from drrej.cli.main import app
from drrej.cli.options import Memory, Precision, RatioChoice, Reading, RuleChoice, check_one_stdin, grouped


@app.command()
@grouped
def run(
    val: Annotated[
        list[str], typer.Option("--val", metavar="DUMP", help="Rows to calibrate, fit and choose on. Repeatable.")
    ],
    test: Annotated[
        list[str], typer.Option("--test", metavar="DUMP", help="Rows to report on and to mask. Repeatable.")
    ],
    output: Annotated[str, typer.Option("-o", "--output", metavar="DIR", help="Directory for the four results.")],
    rule: RuleChoice = RuleChoice(),
    ratio: RatioChoice = RatioChoice(),
    gate: Gates = None,
    format: Annotated[Literal["text", "json"], typer.Option("--format", help="What goes to standard output.")] = "text",
    force: Annotated[bool, typer.Option("-f", "--force", help="Overwrite what exists.")] = False,
    reading: Reading = Reading(),
    precision: Precision = Precision(),
    memory: Memory = Memory(),
) -> None:
    """Do all of it: calibrate, fit and threshold on --val; evaluate and reject on --test."""
    from drrej.output import OutputFile, prepare_directory
    from drrej.report import RENDERERS
    from drrej.steps.calibrate import calibrate
    from drrej.steps.evaluate import evaluate
    from drrej.steps.fit import fit
    from drrej.steps.reject import reject
    from drrej.steps.threshold import threshold

    chosen, options, gates = rule.rule(), ratio.options(), parse_gates(gate)
    source, target = reading.source(val), reading.source(test)
    check_one_stdin([], source, target)
    with ExitStack() as stack:
        stack.enter_context(prepare_directory(output))
        document, as_json, as_text, mask = (
            stack.enter_context(OutputFile(os.path.join(output, name), force))
            for name in ("rejector.json", "report.json", "report.txt", "mask.parquet")
        )
        rejector = calibrate(source, precision.chosen, memory.bytes())
        warn_unconverged(rejector.need_calibration().converged, reading.quiet)
        rejector = threshold(source, fit(source, rejector, options), chosen)
        report = evaluate(target, rejector, gates)
        reject(target, rejector, mask)
        document.write_text(rejector.to_json())
        as_json.write_text(RENDERERS["json"](report))
        as_text.write_text(RENDERERS["text"](report))
        for file in (mask, document, as_json, as_text):
            file.commit()
    say_notes(source, reading.quiet)
    say_notes(target, reading.quiet)
    typer.echo(RENDERERS[format](report), nl=False)
    exit_by_gates(report)
