"""drrej schema."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from drrej.cli.command import Command
from drrej.cli.console import show
from drrej.cli.main import app

EXAMPLES = """
Examples:

drrej schema rejector

drrej schema report > report.schema.json
"""


@app.command(cls=Command, epilog=EXAMPLES)
def schema(
    document: Annotated[
        Literal["rejector", "report"], typer.Argument(metavar="DOCUMENT", help="Which document to describe.")
    ],
) -> None:
    """Print the JSON Schema of a document."""
    import json

    from drrej.documents.schemas import rejector_schema, report_schema

    tree = rejector_schema() if document == "rejector" else report_schema()
    show(json.dumps(tree, indent=2) + "\n")
