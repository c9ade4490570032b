"""drrej run."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Annotated, Optional

import typer

from drrej.cli.calibrate import warn_unconverged
from drrej.cli.console import say_notes
from drrej.cli.judging import Format, Judging, exit_by_gates, show_report
from drrej.cli.main import app
from drrej.cli.options import Memory, Precision, RatioChoice, Reading, RuleChoice, check_one_stdin, grouped
from drrej.cli.parameters import Command
from drrej.cli.threshold import Guarantee, warn_uncertified


@app.command(cls=Command)
@grouped
def run(
    val: Annotated[
        list[str], typer.Option("--val", metavar="DUMP", help="Rows to calibrate, fit and choose on. Repeatable.")
    ],
    test: Annotated[
        list[str], typer.Option("--test", metavar="DUMP", help="Rows to report on and to mask. Repeatable.")
    ],
    output: Annotated[str, typer.Option("-o", "--output", metavar="DIR", help="Directory for the four results.")],
    choose: Annotated[
        Optional[list[str]],
        typer.Option(
            "--choose", metavar="DUMP", help="Rows to choose the threshold on [--val]; --confidence needs fresh ones."
        ),
    ] = None,
    rule: RuleChoice = RuleChoice(),
    guarantee: Guarantee = Guarantee(),
    ratio: RatioChoice = RatioChoice(),
    judging: Judging = Judging(),
    report_by: Annotated[
        Optional[str],
        typer.Option("--report-by", metavar="COL", help="Also report by a column, or by 'prediction' [--by]."),
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="What goes to standard output.")] = "text",
    force: Annotated[bool, typer.Option("-f", "--force", help="Overwrite what exists.")] = False,
    reading: Reading = Reading(),
    precision: Precision = Precision(),
    memory: Memory = Memory(),
) -> None:
    """Do all of it: calibrate, fit and threshold on --val; evaluate and reject on --test."""
    from drrej.outputs.files import OutputFile, prepare_directory
    from drrej.pipeline.calibrate import CalibrateOptions, calibrate
    from drrej.pipeline.evaluate import evaluate
    from drrej.pipeline.fit import fit
    from drrej.pipeline.reject import MaskOptions, reject
    from drrej.pipeline.threshold import threshold
    from drrej.report import RENDERERS

    chosen, gates = guarantee.rule(rule), judging.gates()
    wanted, plain = judging.options(reading, report_by or guarantee.by), judging.reading(reading)
    source, target = plain.source(val), plain.source(test)
    options = ratio.options(source.options.classes)
    chosen_on = plain.source(choose) if choose else source
    check_one_stdin([], source, target, *([chosen_on] if choose else []))
    with ExitStack() as stack:
        stack.enter_context(prepare_directory(output))
        document, as_json, as_text, mask = (
            stack.enter_context(OutputFile(os.path.join(output, name), force))
            for name in ("rejector.json", "report.json", "report.txt", "mask.parquet")
        )
        rejector = calibrate(source, CalibrateOptions(precision.chosen, memory.bytes()))
        rejector = threshold(chosen_on, fit(source, rejector, options), chosen, guarantee.options())
        report = evaluate(target, rejector, gates, judging.with_baseline_dump(wanted, reading, rejector))
        reject(target, rejector, mask, MaskOptions(on_unseen_group=judging.on_unseen_group))
        document.write_text(rejector.to_json())
        as_json.write_text(RENDERERS["json"](report))
        as_text.write_text(RENDERERS["text"](report))
        for file in (mask, document, as_json, as_text):
            file.commit()
    warn_unconverged(rejector.need_calibration().converged, reading.quiet)
    warn_uncertified(rejector, reading.quiet)
    say_notes(source, reading.quiet)
    say_notes(target, reading.quiet)
    show_report(report, format)
    exit_by_gates(report)
