"""drrej schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

import typer

from drrej.cli.config import config_schema
from drrej.cli.console import show

EXAMPLES = """
drrej schema rejector
drrej schema report > report.schema.json
"""


def schema(
    context: typer.Context,
    document: Annotated[
        Literal["rejector", "report", "plan", "monitor", "cascade", "config"],
        typer.Argument(metavar="DOCUMENT", help="Which document to describe."),
    ],
) -> None:
    """Print the JSON Schema of a document."""
    import json

    from drrej.documents.schemas import cascade_schema, plan_schema, rejector_schema, report_schema
    from drrej.monitor.state import monitor_schema

    top: Any = context.parent
    made: dict[str, Callable[[], Any]] = {
        "rejector": rejector_schema,
        "report": report_schema,
        "plan": plan_schema,
        "monitor": monitor_schema,
        "cascade": cascade_schema,
        "config": partial(config_schema, top.command.commands),
    }
    show(json.dumps(made[document](), indent=2) + "\n")
