"""drrej threshold."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated, Optional

import typer

from drrej.cli.console import say_notes
from drrej.cli.main import app
from drrej.cli.options import Dumps, Output, Reading, RejectorIn, RuleChoice, grouped, read_rejector


@app.command()
@grouped
def threshold(
    dumps: Dumps,
    rejector: RejectorIn,
    rule: RuleChoice = RuleChoice(),
    mask: Annotated[
        Optional[str], typer.Option("--mask", metavar="FILE", help="Also write the mask of these rows.")
    ] = None,
    output: Output = Output(),
    reading: Reading = Reading(),
) -> None:
    """Add the threshold: exactly one of --tau, --coverage, --risk, --max-loss."""
    from drrej.output import OutputFile
    from drrej.steps.reject import reject
    from drrej.steps.threshold import threshold as step

    chosen = rule.rule()
    source = reading.source(dumps)
    with ExitStack() as files:
        document = files.enter_context(output.open(same_as=rejector))
        mask_file = None if mask is None else files.enter_context(OutputFile(mask, output.force))
        finished = step(source, read_rejector(rejector, source, "ratio"), chosen)
        say_notes(source, reading.quiet)
        document.write_text(finished.to_json())
        if mask_file is not None:
            reject(source, finished, mask_file)
            mask_file.commit()
        document.commit()
