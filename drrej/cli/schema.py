"""drrej schema."""

from __future__ import annotations

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

    from drrej.documents.document import schema_of
    from drrej.documents.rejector import Rejector
    from drrej.documents.report import Report
    from drrej.documents.summaries import Cascade, Plan
    from drrej.monitor.state import MonitorState

    top: Any = context.parent
    kinds: dict[str, Any] = {"rejector": Rejector, "report": Report, "plan": Plan, "cascade": Cascade}
    kinds["monitor"] = MonitorState
    described = config_schema(top.command.commands) if document == "config" else schema_of(kinds[document])
    show(json.dumps(described, indent=2) + "\n")
