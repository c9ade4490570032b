"""The figures as Prometheus reads them: one gauge for each figure that gates may name, and one for each gate."""

from __future__ import annotations

from typing import Any

from drrej.documents.document import Document
from drrej.documents.gates import catalogue


def render_prometheus(report: Document) -> str:
    """Text for the collector of text files, or for a gateway; figures that the report lacks are left out."""
    state = report.get("state")
    prefix = "drrej_" if state is None else "drrej_monitor_"
    lines: list[str] = []
    for metric in catalogue(of=type(report), points=()):
        value: Any = report
        for key in metric.name.split("."):
            value = value.get(key) if hasattr(value, "get") else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            name = prefix + metric.name.replace(".", "_")
            lines += [f"# HELP {name} {metric.meaning}", f"# TYPE {name} gauge", f"{name} {value!r}"]
    if state is not None:
        lines += [f"# HELP {prefix}alarm Whether a monitor alarms.", f"# TYPE {prefix}alarm gauge"]
        alarms = report.get("alarms", ())
        lines += [f'{prefix}alarm{{monitor="{name}"}} {int(name in alarms)}' for name in ("risk", "coverage", "drift")]
    if report.get("model"):
        told = ",".join(f'{key}="{_quoted(report.get(key) or "")}"' for key in ("model", "rejector_model"))
        lines += [f"# HELP {prefix}model_info The model.", f"# TYPE {prefix}model_info gauge"]
        lines.append(f"{prefix}model_info{{{told}}} 1")
    if report.gates:
        lines += [f"# HELP {prefix}gate_passed Whether a gate passed.", f"# TYPE {prefix}gate_passed gauge"]
    for gate in report.gates:
        lines.append(f'{prefix}gate_passed{{gate="{_quoted(gate.gate)}"}} {int(gate.passed)}')
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
