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
        Literal["rejector", "report", "plan", "monitor", "cascade", "config"],
        typer.Argument(metavar="DOCUMENT", help="Which document to describe."),
    ],
) -> None:
    """Print the JSON Schema of a document."""
    import json

    from drrej.cli.configuration import config_schema
    from drrej.documents.schemas import cascade_schema, plan_schema, rejector_schema, report_schema
    from drrej.monitor.state import monitor_schema

    made = {
        "rejector": rejector_schema,
        "report": report_schema,
        "plan": plan_schema,
        "monitor": monitor_schema,
        "cascade": cascade_schema,
        "config": config_schema,
    }
    show(json.dumps(made[document](), indent=2) + "\n")
