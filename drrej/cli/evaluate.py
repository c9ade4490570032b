"""drrej evaluate."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import typer

from drrej.cli.console import complain, say_notes
from drrej.cli.main import app
from drrej.cli.options import Dumps, Reading, RejectorIn, grouped, read_rejector
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.gates import Gate

Gates = Annotated[
    Optional[list[str]],
    typer.Option(
        "--gate", metavar="EXPR", help="Exit 1 unless METRIC OP NUMBER holds, e.g. 'accuracy >= 0.97'. Repeatable."
    ),
]


@app.command()
@grouped
def evaluate(
    dumps: Dumps,
    rejector: RejectorIn,
    gate: Gates = None,
    format: Annotated[Literal["text", "json"], typer.Option("--format", help="What goes to standard output.")] = "text",
    output: Annotated[
        Optional[list[str]],
        typer.Option(
            "-o", "--output", metavar="FILE", help="Also write the report here, format by its ending. Repeatable."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("-f", "--force", help="Overwrite what exists.")] = False,
    reading: Reading = Reading(),
) -> None:
    """Report coverage and accuracy on labelled rows; judge gates."""
    from drrej.output import OutputFile
    from drrej.report import RENDERERS
    from drrej.steps.evaluate import evaluate as step

    gates = parse_gates(gate)
    outputs = [(path, format if path == "-" else format_of(path)) for path in output or []]
    source = reading.source(dumps)
    with ExitStack() as stack:
        files = [(stack.enter_context(OutputFile(path, force)), kind) for path, kind in outputs]
        report = step(source, read_rejector(rejector, source, "threshold"), gates)
        say_notes(source, reading.quiet)
        for file, kind in files:
            file.write_text(RENDERERS[kind](report))
        for file, _ in files:
            file.commit()
    if "-" not in (output or []):
        typer.echo(RENDERERS[format](report), nl=False)
    exit_by_gates(report)


def parse_gates(texts: Sequence[str] | None) -> list[Gate]:
    """Gates, checked before any work."""
    from drrej.gates import Gate
    from drrej.steps.evaluate import KNOWN_METRICS

    gates = [Gate.parse(text) for text in texts or []]
    for gate in gates:
        gate.check_known(KNOWN_METRICS)
    return gates


def format_of(path: str) -> str:
    """The renderer for a file name."""
    from drrej.report import ENDINGS

    ending = os.path.splitext(path)[1].lower()
    if ending not in ENDINGS and (os.path.isfile(path) or not os.path.exists(path)):
        raise OptionError(f"-o {path}: the ending says the format; use one of {', '.join(ENDINGS)}")
    return ENDINGS.get(ending, "json")


def exit_by_gates(report: dict[str, Any]) -> None:
    """A line per failed gate, and exit 1 if there is one."""
    from drrej.report.numbers import against
    from drrej.steps.evaluate import failed_gates

    failed = failed_gates(report)
    for gate in failed:
        complain(f"{gate['gate']}: the value is {against(gate['value'], gate['limit'])}", "gate failed")
    if failed:
        raise typer.Exit(1)
