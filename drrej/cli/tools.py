"""drrej demo, compare, metrics and schema: the whole job shown, reports side by side, what documents can hold."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Sequence
from contextlib import ExitStack, chdir
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from drrej.cli.console import in_flags, show
from drrej.cli.options import OutputOptions, flag, open_files, option, write_files
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.documents.gates import Metric
    from drrej.documents.report import Report

STEPS = (
    ("What is in the file, and how to go on", "inspect val.parquet"),
    (
        "Everything in one command: accept as many rows as possible, with at least 98 % of them right",
        "run --val val.parquet --test test.parquet --split 60,40 --accuracy 0.98 -o out --force",
    ),
    ("What the rejector does", "inspect out/rejector.json"),
    ("Score new rows, which need no labels", "reject test.parquet -r out/rejector.json -o mask.csv --force"),
)
"""What is shown, and the command that shows it."""


def demo(
    output: str = option("Directory for the sample data and the results.", "DIR", default="drrej-demo"),
    force: bool = flag("Use an existing directory."),
) -> None:
    """Show the whole job on sample data: the commands and what they print.

    The data are 3,708 predictions of a small network on the UCI HAR data set (six activities), with true labels.

    Examples:
    drrej demo
    drrej demo -o somewhere

    """
    from drrej.cli.app import execute

    if os.path.exists(output) and not force:
        raise OptionError(f"-o {output}: it exists already; choose another directory, or use --force")
    os.makedirs(output, exist_ok=True)
    package = str(files("drrej"))
    inside, beside = (os.path.join(place, "sample_data") for place in (package, os.path.dirname(package)))
    for name in ("val.parquet", "test.parquet"):
        folder = inside if os.path.isdir(inside) else beside  # in a checkout
        shutil.copyfile(os.path.join(folder, name), os.path.join(output, name))
    show(f"Sample data and results are in {output}/\n\n$ cd {shlex.quote(output)}\n")
    with chdir(output):
        for title, command in STEPS:
            show(f"\n# {title}\n$ drrej {command}\n")
            code = execute(shlex.split(command))
            if code:
                raise typer.Exit(code)
    page = os.path.join(output, "out", "report.html")
    show(f"\nThe page of the report is {page}\n" if os.path.exists(page) else "")


# Reports side by side


def compare(
    reports: Annotated[list[str], typer.Argument(metavar="REPORT...", hidden=True)],
    output: list[str] | None = option("Also write .md .tex .csv .html .txt .png .svg .pdf. Repeatable.", "FILE"),
    force: bool = OutputOptions.force,
) -> None:
    """Compare several reports: models, figures and intervals in one table, and one plot.

    REPORT: reports of 'drrej evaluate' as JSON; NAME=FILE gives one a name.

    Differences are those from the first report. They are paired if a report was made with --baseline-dump on the rows
    of the first one.

    Examples:
    drrej compare before.json report.json
    drrej compare old=before.json new=report.json -o table.md

    """
    from drrej.pipeline.compare import difference_from
    from drrej.report import need_libraries
    from drrej.report.comparison import ENDINGS, render_comparison

    kinds = {path: os.path.splitext(path)[1].lower() for path in output or []}
    for path, ending in kinds.items():
        if ending not in ENDINGS:
            raise OptionError(f"-o {path}: the ending must be one of {', '.join(ENDINGS)}")
        need_libraries(ending[1:], f"-o {path}")
    read = _read(reports)
    first, *others = read
    differences = {name: difference_from(read[name], read[first]) for name in others}
    with ExitStack() as stack:
        places = open_files(stack, output or [], force)
        write_files(places, [render_comparison(read, differences, kinds[path][1:]) for path in output or []])
    show(render_comparison(read, differences, "txt").decode())


def _read(reports: list[str]) -> dict[str, Report]:
    """The reports by name: the one given, or the shortest end of the path that tells it from the others."""
    from drrej.pipeline.compare import read_baseline

    given = [("", text) if os.path.exists(text) else text.rpartition("=")[::2] for text in reports]
    paths = [path for _, path in given]
    names = [name or _short(path, paths) for name, path in given]
    if len(names) < 2:
        raise OptionError("name at least two reports")
    if len(set(names)) < len(names):
        raise OptionError(f"two reports are called '{max(names, key=names.count)}'; write NAME=FILE to name them")
    return {name: read_baseline(path, "`report`") for name, path in zip(names, paths, strict=True)}


def _short(path: str, paths: list[str]) -> str:
    """The stem of a file, with the folders that tell it from others; of `a/report.json` the folder alone."""
    ways = [
        os.path.splitext(os.path.normpath(other))[0].removesuffix(f"{os.sep}report").split(os.sep) for other in paths
    ]
    way = ways[paths.index(path)]
    length = next((n for n in range(1, len(way)) if [other[-n:] for other in ways].count(way[-n:]) == 1), len(way))
    return "/".join(way[-length:])


# What documents can hold

_MORE = """
Points of the curve take any number: accuracy@coverage=0.9, risk@coverage=0.9, coverage@risk=0.01,
coverage@accuracy=0.99. NAME is a class or, with --report-by, a group. 'target' and 'fresh' are gates of their
own, without a number. Shares are written as 0.99, not as 99.
"""

_FRESH = "As a gate, it fails if a step that made the rejector has used some of these rows."
_DRIFT = "As a gate, it fails if the losses have moved since the fit: a p-value of drift below 0.01."
_TARGET = "What the threshold was chosen for; as a gate, it fails if these rows contradict it."


def metrics(
    words: Annotated[list[str] | None, typer.Argument(metavar="WORD", hidden=True)] = None,
    regression: bool = flag("List the metrics of regressions."),
    format: Literal["text", "json"] = option("json has every part of a figure.", default="text"),
) -> None:
    """List what gates can name, with a sentence each; with WORDs those whose names contain one of them.

    Examples:
    drrej metrics
    drrej metrics accuracy coverage@risk
    drrej metrics --format json

    """
    from msgspec.structs import asdict

    from drrej.documents.gates import Metric, catalogue, group_metrics, named
    from drrej.documents.report import RegressionReport, Report

    found = catalogue(of=RegressionReport if regression else Report)
    if not regression:
        found += [*group_metrics("class"), *group_metrics("group")]
    found.append(Metric("target", _TARGET, "verdict", "neither", "none", "a threshold that was chosen for a target"))
    found.append(Metric("fresh", _FRESH, "verdict", "neither", "none", ""))
    if not regression:
        found.append(Metric("drift", _DRIFT, "verdict", "neither", "none", ""))
    wanted = [metric for metric in found if not words or any(named(word) in metric.name for word in words)]
    if not wanted:
        raise OptionError(f"no metric has {' or '.join(words or [])} in its name; 'drrej metrics' lists them all")
    if format == "json":
        show(json.dumps([asdict(metric) | {"needs": in_flags(metric.needs)} for metric in wanted], indent=2) + "\n")
        return
    show("\n".join(_metric_lines(wanted)) + "\n" + ("" if words or regression else _MORE))


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
    document: Annotated[
        Literal["rejector", "report", "plan", "monitor", "cascade"],
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
    show(json.dumps(schema_of(kinds[document]), indent=2) + "\n")
