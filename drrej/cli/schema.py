"""drrej schema."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from drrej.cli.main import app
from drrej.cli.parameters import Command


@app.command(cls=Command)
def schema(
    document: Annotated[Literal["rejector", "report"], typer.Argument(help="Which document.")],
) -> None:
    """Print the JSON Schema of a document."""
    import json

    from drrej.documents.schemas import rejector_schema, report_schema

    tree = rejector_schema() if document == "rejector" else report_schema()
    typer.echo(json.dumps(tree, indent=2))
