"""The gates as GitHub Actions annotations: workflow commands on standard output, one per gate."""

from __future__ import annotations

from drrej.documents.document import Judged
from drrej.documents.gates import TARGET
from drrej.errors import printable
from drrej.report.text import confusion_lines
from drrej.report.words import TYPESET, figure, gate_words, target_lines, target_of, warnings_of


def render_github(report: Judged) -> str:
    """`::error` for a failed gate, `::notice` for one that passed; without gates a notice with the coverage.

    Then the target: a warning where these rows contradict it. Whether that is an error, the gate `target` says. Then
    the confusion matrix, a notice of several lines.
    """
    warnings = "".join(command("warning", "drrej", line) for line in warnings_of(report))
    if not report.gates:
        accuracy = report.get("accuracy", {}).get("value")
        text = f"coverage {figure(report['coverage']['value'])}, accuracy {figure(accuracy)}, {report['rows']} rows"
        return command("notice", "drrej", text) + _target(report) + warnings + _confusion(report)
    gates = [
        command(
            "notice" if gate.passed else "error",
            f"drrej gate {'passed' if gate.passed else 'failed'}",
            gate_words(report, gate, TYPESET),
        )
        for gate in report.gates
    ]
    target = "" if any(gate.gate == TARGET for gate in report.gates) else _target(report)
    return "".join(gates) + target + warnings + _confusion(report)


def _confusion(report: Judged) -> str:
    """The matrix as one notice of several lines."""
    title, *lines = confusion_lines(report) or [""]
    return command("notice", f"drrej {title.rstrip(':').lower()}", "\n".join(lines)) if lines else ""


def _target(report: Judged) -> str:
    target = target_of(report)
    kind = "warning" if target is not None and target.verdict == "missed" else "notice"
    return "".join(command(kind, "drrej target", line) for line in target_lines(report, TYPESET))


def command(kind: str, title: str, message: str) -> str:
    """A workflow command: `kind` is notice, warning or error."""
    title = printable(title).replace("%", "%25")
    message = "%0A".join(printable(line).replace("%", "%25") for line in message.split("\n"))
    return f"::{kind} title={title.replace(':', '%3A').replace(',', '%2C')}::{message}\n"
