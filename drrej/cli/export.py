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
    golden: int = option("Rows with their decisions that the file checks itself by.", "N", default=12)
    scores: str | None = rare("SQL: the column of the scores, a list per row; as in the rejector unless told.", "COL")


def export(rejector: Annotated[str, typer.Argument(metavar="REJECTOR", hidden=True)], options: ExportOptions) -> None:
    """Write the decision of a rejector as a file that needs no drrej: Python, SQL, JavaScript or ONNX.

    REJECTOR: a finished rejector, as JSON.

    The file checks itself against golden rows, which drrej has decided. SQL is that of DuckDB.

    Examples:
    drrej export rejector.json --to python -o decide.py
    drrej export rejector.json --to sql --scores logits -o decide.sql
    drrej export rejector.json --to js -o decide.mjs --golden 200

    """
    from drrej.export import export as step
    from drrej.pipeline.source import Source

    if options.scores is not None and options.to != "sql":
        raise OptionError("`scores` requires `to=sql`")
    with ExitStack() as stack:
        (file,) = open_files(stack, [options.output], options.force)
        made = read_rejector(rejector, Source([]), "threshold")
        file.write_bytes(step(made, options.to, options.golden, options.scores))
        file.commit()
