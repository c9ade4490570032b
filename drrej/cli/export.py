"""drrej export."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated, Literal

import typer

from drrej.cli.input_options import read_rejector
from drrej.cli.options import REQUIRED, Options, OutputOptions, open_files, option, rare
from drrej.errors import OptionError


class ExportOptions(Options):
    """The language of the export, and what it is made for."""

    to: Literal["python", "sql", "js", "onnx"] = option("The language.", default=REQUIRED)
    output: str = OutputOptions.output
    force: bool = OutputOptions.force
    golden: int | None = option("Also write this many rows with their decisions, to FILE.golden.json.", "N")
    dialect: Literal["duckdb", "postgres"] | None = option("Of SQL; duckdb unless told.")
    scores: str | None = rare("SQL: the column of lists, or a pattern of wide columns, logit_*.", "COL")
    append_to: str | None = rare("ONNX: put the decision at the end of this model.", "MODEL")
    output_name: str | None = rare("ONNX: the model's output that has the scores.", "NAME")


def export(rejector: Annotated[str, typer.Argument(metavar="REJECTOR")], options: ExportOptions) -> None:
    """Write the decision of a rejector as a file that needs no drrej: Python, SQL, JavaScript or ONNX.

    The file checks itself against golden rows, which drrej has decided.

    Examples:
    drrej export rejector.json --to python -o decide.py
    drrej export rejector.json --to sql --dialect postgres -o decide.sql
    drrej export rejector.json --to js -o decide.mjs --golden 200

    """
    from drrej.export.write import export as step
    from drrej.pipeline.source import Source

    for name, language in (("dialect", "sql"), ("scores", "sql"), ("append_to", "onnx"), ("output_name", "onnx")):
        if getattr(options, name) is not None and options.to != language:
            raise OptionError(f"`{name}` goes with `to={language}`")
    beside = None if options.golden is None else f"{options.output}.golden.json"
    if beside is not None and options.output == "-":
        raise OptionError("`golden` needs a file to stand beside; name one with `output`")
    with ExitStack() as stack:
        file, *others = open_files(stack, [options.output, beside], options.force)
        content, golden = step(
            read_rejector(rejector, Source([]), "threshold"),
            options.to,
            golden=options.golden,
            dialect=options.dialect or "duckdb",
            scores=options.scores,
            append_to=options.append_to,
            output_name=options.output_name,
        )
        file.write_bytes(content)
        for other in others:
            other.write_text(golden)
        for each in (*others, file):
            each.commit()
