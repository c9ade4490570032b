"""The gates as GitHub Actions annotations: workflow commands on standard output, one per gate."""

from __future__ import annotations

from drrej.documents.document import Judged
from drrej.report.numbers import against, figure


def render_github(report: Judged) -> str:
    """`::error` for a failed gate, `::notice` for one that passed; a notice with the coverage when there is no gate."""
    if not report.gates:
        accuracy = report.get("accuracy", {}).get("value")
        text = f"coverage {figure(report['coverage']['value'])}, accuracy {figure(accuracy)}, {report['rows']} rows"
        return command("notice", "drrej", text)
    return "".join(
        command(
            "notice" if gate.passed else "error",
            f"drrej gate {'passed' if gate.passed else 'failed'}",
            f"{gate.gate}: the value is {against(gate.value, gate.limit)}",
        )
        for gate in report.gates
    )


def command(kind: str, title: str, message: str) -> str:
    """A workflow command: `kind` is notice, warning or error."""
    return f"::{kind} title={_property(title)}::{_data(message)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
