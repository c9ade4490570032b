"""drrej compare."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from drrej.cli.console import show
from drrej.cli.options import Options, OutputOptions, open_files, option, write_files
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.documents.report import Report


class CompareOptions(Options):
    """Where the comparison goes."""

    output: list[str] | None = option("Also write .md .tex .csv .html .txt .png .svg .pdf. Repeatable.", "FILE")
    force: bool = OutputOptions.force


def compare(
    reports: Annotated[list[str], typer.Argument(metavar="REPORT...", hidden=True)], options: CompareOptions
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

    paths = options.output or []
    for path in paths:
        ending = os.path.splitext(path)[1].lower()
        if ending not in ENDINGS:
            raise OptionError(f"-o {path}: the ending must be one of {', '.join(ENDINGS)}")
        need_libraries(ending[1:] if ending in (".html", ".png", ".svg", ".pdf") else "text", f"-o {path}")
    read = _read(reports)
    first, *others = read
    differences = {name: difference_from(read[name], read[first]) for name in others}
    with ExitStack() as stack:
        places = open_files(stack, paths, options.force)
        kinds = [os.path.splitext(path)[1].lower()[1:] for path in paths]
        write_files(places, (render_comparison(read, differences, kind) for kind in kinds))
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
