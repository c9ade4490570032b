"""drrej metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from drrej.cli.console import in_flags, show
from drrej.cli.options import flag, option
from drrej.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drrej.documents.gates import Metric

EXAMPLES = """
drrej metrics
drrej metrics accuracy coverage@risk
drrej metrics --format json
"""

_MORE = """
Points of the curve take any number: accuracy@coverage=0.9, risk@coverage=0.9, coverage@risk=0.01,
coverage@accuracy=0.99. NAME is a class or, with --report-by, a group. 'target' is a gate of its own, without a
number. Shares are written as 0.99, not as 99.
"""

_TARGET = "What the threshold was chosen for; as a gate it fails where these rows contradict it."


def metrics(
    words: Annotated[list[str] | None, typer.Argument(metavar="WORD", hidden=True)] = None,
    regression: Annotated[bool, flag("--regression", "Those of the report of a regression.")] = False,
    format: Annotated[Literal["text", "json"], option("--format", "json has every part of a figure.")] = "text",
) -> None:
    """List what gates can name, with a sentence each; with WORDs those whose names contain one of them."""
    import json

    from msgspec.structs import asdict

    from drrej.documents.gates import Metric, catalogue, group_metrics
    from drrej.documents.report import RegressionReport, Report

    found = catalogue(of=RegressionReport if regression else Report)
    if not regression:
        found += [*group_metrics("class"), *group_metrics("group")]
    found.append(Metric("target", _TARGET, "verdict", "neither", "none", "a threshold that was chosen for something"))
    wanted = [metric for metric in found if not words or any(word in metric.name for word in words)]
    if not wanted:
        raise OptionError(f"no metric has {' or '.join(words or [])} in its name; 'drrej metrics' lists them all")
    if format == "json":
        show(json.dumps([asdict(metric) | {"needs": in_flags(metric.needs)} for metric in wanted], indent=2) + "\n")
        return
    show("\n".join(_lines(wanted)) + "\n" + ("" if words or regression else _MORE))


def _lines(found: Sequence[Metric]) -> list[str]:
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
