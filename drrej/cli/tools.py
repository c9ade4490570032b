"""drrej metrics and schema: what documents can hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from drrej.cli.config import config_schema
from drrej.cli.console import in_flags, show
from drrej.cli.options import Options, flag, option
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.documents.gates import Metric


_MORE = """
Points of the curve take any number: accuracy@coverage=0.9, risk@coverage=0.9, coverage@risk=0.01,
coverage@accuracy=0.99. NAME is a class or, with --report-by, a group. 'target' and 'fresh' are gates of their
own, without a number. Shares are written as 0.99, not as 99.
"""

_FRESH = "As a gate it fails where a step that made the rejector has used some of these rows."
_DRIFT = "As a gate it fails where the losses have moved since the fit: a p-value of drift below 0.01."
_TARGET = "What the threshold was chosen for; as a gate it fails where these rows contradict it."


class MetricOptions(Options):
    """Which figures to list, and how."""

    regression: bool = flag("Those of the report of a regression.")
    format: Literal["text", "json"] = option("json has every part of a figure.", default="text")


def metrics(
    options: MetricOptions, words: Annotated[list[str] | None, typer.Argument(metavar="WORD", hidden=True)] = None
) -> None:
    """List what gates can name, with a sentence each; with WORDs those whose names contain one of them.

    Examples:
    drrej metrics
    drrej metrics accuracy coverage@risk
    drrej metrics --format json

    """
    from msgspec.structs import asdict

    from drrej.documents.gates import Metric, catalogue, group_metrics
    from drrej.documents.report import RegressionReport, Report

    found = catalogue(of=RegressionReport if options.regression else Report)
    if not options.regression:
        found += [*group_metrics("class"), *group_metrics("group")]
    found.append(Metric("target", _TARGET, "verdict", "neither", "none", "a threshold that was chosen for something"))
    found.append(Metric("fresh", _FRESH, "verdict", "neither", "none", ""))
    if not options.regression:
        found.append(Metric("drift", _DRIFT, "verdict", "neither", "none", ""))
    wanted = [metric for metric in found if not words or any(word in metric.name for word in words)]
    if not wanted:
        raise OptionError(f"no metric has {' or '.join(words or [])} in its name; 'drrej metrics' lists them all")
    if options.format == "json":
        show(json.dumps([asdict(metric) | {"needs": in_flags(metric.needs)} for metric in wanted], indent=2) + "\n")
        return
    show("\n".join(_metric_lines(wanted)) + "\n" + ("" if words or options.regression else _MORE))


def _metric_lines(found: Sequence[Metric]) -> list[str]:
    """Two lines for each figure: its name and sentence, then what it is and which parts it has."""
    names = [metric.name for metric in found]
    lines: list[str] = []
    for metric in found:
        if any(metric.name.startswith(f"{name}.") for name in names):
            continue
        parts = [name.removeprefix(metric.name) for name in names if name.startswith(f"{metric.name}.")]
        better = "" if metric.better == "neither" else f", {metric.better} is better"
        needs = f"; needs {in_flags(metric.needs)}" if metric.needs else ""
        more = " ".join(part for part in parts if not part.endswith(".value"))
        lines += [f"{metric.name:<26} {metric.meaning}", f"{'':<26} {metric.unit}{better}{needs}"]
        lines[-1] += f"; also {more}" if more else ""
    return lines


def schema(
    context: typer.Context,
    document: Annotated[
        Literal["rejector", "report", "plan", "monitor", "cascade", "config"],
        typer.Argument(metavar="DOCUMENT", help="Which document to describe."),
    ],
) -> None:
    """Print the JSON Schema of a document.

    Examples:
    drrej schema rejector
    drrej schema report > report.schema.json

    """
    from drrej.documents.document import schema_of
    from drrej.documents.rejector import Rejector
    from drrej.documents.report import Report
    from drrej.documents.summaries import Cascade, Plan
    from drrej.monitor.state import MonitorState

    kinds: dict[str, Any] = {"rejector": Rejector, "report": Report, "plan": Plan, "cascade": Cascade}
    kinds["monitor"] = MonitorState
    described = config_schema(context.parent) if document == "config" else schema_of(kinds[document])
    show(json.dumps(described, indent=2) + "\n")
