"""drrej export."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from drrej.cli.input_options import check_spared, read_rejector
from drrej.cli.options import REQUIRED, STREAM, Options, OutputOptions, open_files, option, rare
from drrej.errors import OptionError


class ExportOptions(Options):
    """The language of the export, and what it is made for."""

    to: Literal["python", "sql", "js", "onnx"] = option("The language.", default=REQUIRED)
    output: str = OutputOptions.output
    force: bool = OutputOptions.force
    golden: int | None = option(
        "Rows with decisions by which the file checks itself, also written beside it as .golden.jsonl.",
        "N",
        show_default="12 in the file",
    )
    dialect: Literal["duckdb", "postgres"] | None = option("SQL dialect.", show_default="duckdb")
    scores: str | None = rare(
        "SQL: the column of the scores, a list per row, or the columns: A,B,C. ONNX: the output of --append.",
        "COL",
        show_default="as in the rejector",
    )
    append: str | None = rare("ONNX: add the decision to the end of this model.", "MODEL")


def export(rejector: Annotated[str, typer.Argument(metavar="REJECTOR", hidden=True)], options: ExportOptions) -> None:
    """Write the decision of a rejector as a file that needs no drrej: Python, SQL, JavaScript or ONNX.

    REJECTOR: a finished rejector, as JSON.

    The file checks itself against golden rows, which drrej has decided. SQL is that of DuckDB, or of PostgreSQL.

    Examples:
    drrej export rejector.json --to python -o decide.py
    drrej export rejector.json --to sql --scores logits -o decide.sql
    drrej export rejector.json --to js -o decide.mjs --golden 200

    """
    from drrej.export import GOLDEN, golden_lines
    from drrej.export import export as step
    from drrej.pipeline.source import Source

    if options.dialect is not None and options.to != "sql":
        raise OptionError("`dialect` requires `to=sql`")
    if options.append is not None and options.to != "onnx":
        raise OptionError("`append` requires `to=onnx`")
    if options.scores is not None and options.to != "sql" and options.append is None:
        raise OptionError("`scores` requires `to=sql` or `append`")
    beside = None
    if options.golden is not None and options.output != STREAM:
        beside = f"{os.path.splitext(options.output)[0]}.golden.jsonl"
    with ExitStack() as stack:
        places = open_files(stack, [options.output, beside], options.force)
        made = read_rejector(rejector, Source([]), "threshold")
        check_spared(options.append)
        rows, dialect = GOLDEN if options.golden is None else options.golden, options.dialect or "duckdb"
        model = None
        if options.append is not None:
            try:
                model = Path(options.append).read_bytes()
            except OSError as error:
                raise OptionError(f"--append {options.append}: it cannot be read ({error.strerror})") from None
        places[0].write_bytes(step(made, options.to, rows, options.scores, dialect, model))
        for place in places[1:]:
            place.write_text(golden_lines(made, rows))
        for place in places:
            place.commit()
