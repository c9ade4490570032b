"""`drrej evaluate --task regression`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import typer

from drrej.cli.console import say_notes
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.documents.gates import Gate
    from drrej.documents.regression import RegressionReport
    from drrej.documents.rejector import Rejector
    from drrej.pipeline.source import Source


def report_regression(
    source: Source,
    rejector: Rejector,
    columns: tuple[str | None, str | None],
    gates: Sequence[Gate],
    outputs: Sequence[tuple[str, str]],
    format: str,
    force: bool,
    quiet: bool,
) -> RegressionReport:
    """Evaluate, write the outputs and print; the caller turns failed gates into the exit code."""
    from drrej.outputs.files import OutputFile
    from drrej.pipeline.regression import evaluate_regression
    from drrej.report import DRAWN, RENDERERS

    prediction, target = columns
    if prediction is None or target is None:
        raise OptionError("--task regression needs --prediction COL and --target COL")
    other = next((kind for kind in [format, *(kind for _, kind in outputs)] if kind in DRAWN), None)
    if other is not None:
        raise OptionError(f"--task regression has no picture; it is not reported as {other}")
    with ExitStack() as stack:
        files = [(stack.enter_context(OutputFile(path, force)), kind) for path, kind in outputs]
        report = evaluate_regression(source, rejector, prediction, target, gates)
        say_notes(source, quiet)
        for file, kind in files:
            file.write_text(RENDERERS[kind](report))
        for file, _ in files:
            file.commit()
    if "-" not in [path for path, _ in outputs]:
        typer.echo(RENDERERS[format](report), nl=False)
    return report
